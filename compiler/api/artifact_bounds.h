// SPDX-License-Identifier: Apache-2.0
// Checks of the bounds and work programs that an artifact holds. ir::ProveBounds and ir::CountWork index with what
// these say and recurse along it, so what is read is checked whole.
#ifndef HPVMD_COMPILER_API_ARTIFACT_BOUNDS_H_
#define HPVMD_COMPILER_API_ARTIFACT_BOUNDS_H_

#include <span>

#include "base/status.h"
#include "compiler/ir/bounds.h"
#include "compiler/ir/work.h"

namespace hpvm {

// OK when ir::ProveBounds may be given the program for a kernel with these parameters: every index is in range, atoms
// build on earlier atoms only (also through the constraints of a choice), sizes stay below limits.h's. An empty one
// is OK.
Status ValidateBounds(const ir::BoundsProgram& program, std::span<const ir::KernelParam> params);
// OK when ir::CountWork may be given the program with these bounds: every index is in range, every number is finite and
// not negative, sizes stay below limits.h's. An empty one is OK.
Status ValidateWork(const ir::WorkProgram& program, const ir::BoundsProgram& bounds);

}  // namespace hpvm

#endif  // HPVMD_COMPILER_API_ARTIFACT_BOUNDS_H_
