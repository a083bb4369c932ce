// SPDX-License-Identifier: Apache-2.0
// Runs a coarsened kernel in the interpreter.
#ifndef HPVMD_COMPILER_PASS_TESTING_COARSE_RUN_H_
#define HPVMD_COMPILER_PASS_TESTING_COARSE_RUN_H_

#include "base/status.h"
#include "compiler/ir/interpret/interpret.h"
#include "compiler/pass/tile/coarsen.h"

namespace hpvm::pass::testing {

// The launch's extent must be a multiple of the tile. Returns kFailedPrecondition if a scalar lacks the factor that
// the coarse kernel requires.
StatusOr<ir::TrapReport> RunCoarse(const ir::Module& module, const ir::Launch& launch, const GpuTile& tile,
                                   const ir::InterpretOptions& options = {});

}  // namespace hpvm::pass::testing

#endif  // HPVMD_COMPILER_PASS_TESTING_COARSE_RUN_H_
