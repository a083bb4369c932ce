// SPDX-License-Identifier: Apache-2.0
// Validates the bounds and work programs that an artifact holds. ir::ProveBounds and ir::CountWork use their numbers
// as indices and recurse along their references, so both programs are checked completely.
#ifndef HPVMD_COMPILER_API_ARTIFACT_BOUNDS_H_
#define HPVMD_COMPILER_API_ARTIFACT_BOUNDS_H_

#include <span>

#include "base/status.h"
#include "compiler/ir/bounds.h"
#include "compiler/ir/work.h"

namespace hpvm {

// Returns OK when ir::ProveBounds accepts the program for a kernel with these parameters: every index is in range,
// atoms depend on earlier atoms only (also through the constraints of a choice), and sizes stay within limits.h's. An
// empty program is OK.
Status ValidateBounds(const ir::BoundsProgram& program, std::span<const ir::KernelParam> params);
// Returns OK when ir::CountWork accepts the program with these bounds: every index is in range, every number is finite
// and not negative, and sizes stay within limits.h's. An empty program is OK.
Status ValidateWork(const ir::WorkProgram& program, const ir::BoundsProgram& bounds);

}  // namespace hpvm

#endif  // HPVMD_COMPILER_API_ARTIFACT_BOUNDS_H_
