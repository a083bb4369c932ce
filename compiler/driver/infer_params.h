// SPDX-License-Identifier: Apache-2.0
// Guesses what a kernel's parameters are when nobody says: `hpvmctl kernel explain` on a module alone. Never used for
// code that runs.
#ifndef HPVMD_COMPILER_DRIVER_INFER_PARAMS_H_
#define HPVMD_COMPILER_DRIVER_INFER_PARAMS_H_

#include <vector>

#include "base/status.h"
#include "compiler/api/service.h"
#include "compiler/ir/ir.h"

namespace hpvm::compile {

// `module` was read with WasmOptions::takes_any_params. A parameter from which addresses are computed is a buffer, one
// that is multiplied, shifted or compared a scalar; a buffer is writable if something stores through it. With
// kHpvmWeb the integer behind each buffer is its size, and the last six parameters belong to nobody.
StatusOr<std::vector<ParamSpec>> InferParams(ir::Module module, Abi abi);

}  // namespace hpvm::compile

#endif  // HPVMD_COMPILER_DRIVER_INFER_PARAMS_H_
