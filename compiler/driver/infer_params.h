// SPDX-License-Identifier: Apache-2.0
// Guesses a kernel's parameters when none are given: `hpvmctl kernel explain` on a module alone. Never used for code
// that runs.
#ifndef HPVMD_COMPILER_DRIVER_INFER_PARAMS_H_
#define HPVMD_COMPILER_DRIVER_INFER_PARAMS_H_

#include <vector>

#include "base/status.h"
#include "compiler/api/service.h"
#include "compiler/ir/ir.h"

namespace hpvm::compile {

// `module` was read with WasmOptions::takes_any_params. A parameter from which addresses are computed is a buffer; one
// that is multiplied, shifted or compared is a scalar; a buffer is writable if a store goes through it. With kHpvmWeb
// the integer after each buffer is its size, and the last six parameters are not part of the result.
StatusOr<std::vector<ParamSpec>> InferParams(ir::Module module, Abi abi);

}  // namespace hpvm::compile

#endif  // HPVMD_COMPILER_DRIVER_INFER_PARAMS_H_
