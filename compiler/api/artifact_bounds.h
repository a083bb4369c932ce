// SPDX-License-Identifier: Apache-2.0
// A bounds program as fields of an artifact. ir::ProveBounds indexes with what it says and recurses along it, so what
// is read is checked whole.
#ifndef HPVMD_COMPILER_API_ARTIFACT_BOUNDS_H_
#define HPVMD_COMPILER_API_ARTIFACT_BOUNDS_H_

#include <span>

#include "base/status.h"
#include "compiler/api/wire.h"
#include "compiler/ir/bounds.h"

namespace hpvm {

void WriteBounds(const ir::BoundsProgram& program, WireWriter& out);
// Fails the reader where the form is wrong; ValidateBounds looks at the meaning.
ir::BoundsProgram ReadBounds(WireReader& in);

// Whether ir::ProveBounds may be given the program for a kernel with these parameters: every index is in range, atoms
// build on earlier atoms only (also through the constraints of a choice), sizes stay below limits.h's. OK for an empty
// one.
Status ValidateBounds(const ir::BoundsProgram& program, std::span<const ir::KernelParam> params);

}  // namespace hpvm

#endif  // HPVMD_COMPILER_API_ARTIFACT_BOUNDS_H_
