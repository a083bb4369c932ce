// SPDX-License-Identifier: Apache-2.0
// A work program as fields of an artifact. ir::CountWork indexes with what it says, so what is read is checked whole.
#ifndef HPVMD_COMPILER_API_ARTIFACT_WORK_H_
#define HPVMD_COMPILER_API_ARTIFACT_WORK_H_

#include "base/status.h"
#include "compiler/api/wire.h"
#include "compiler/ir/bounds.h"
#include "compiler/ir/work.h"

namespace hpvm {

void WriteWork(const ir::WorkProgram& program, WireWriter& out);
// Fails the reader where the form is wrong; ValidateWork looks at the meaning.
ir::WorkProgram ReadWork(WireReader& in);

// Whether ir::CountWork may be given the program with these bounds: every index is in range, every number is finite and
// not negative, sizes stay below limits.h's. OK for an empty one.
Status ValidateWork(const ir::WorkProgram& program, const ir::BoundsProgram& bounds);

}  // namespace hpvm

#endif  // HPVMD_COMPILER_API_ARTIFACT_WORK_H_
