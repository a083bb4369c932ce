// SPDX-License-Identifier: Apache-2.0
// What an explained compile says of a kernel as a whole, beside what passes and the back end say of its parts.
#ifndef HPVMD_COMPILER_DRIVER_EXPLAIN_H_
#define HPVMD_COMPILER_DRIVER_EXPLAIN_H_

#include "compiler/api/artifact.h"
#include "compiler/api/report.h"
#include "compiler/ir/ir.h"

namespace hpvm {

// Which accesses to buffers a launch shows to stay inside, so that they run unchecked, and which keep their checks.
// `module` is what `bounds` was made from.
void ExplainBounds(const ir::Module& module, const ir::BoundsProgram& bounds, KernelReport* report);

// Calls that are left in the entry after inlining.
void ExplainCalls(const ir::Module& module, KernelReport* report);

// The ways in which a GPU runs the kernel: tiles, groups, what a launch has to show.
void ExplainVariants(const GpuCode& code, KernelReport* report);

// By place, then kind, then text; what was said twice stands once.
void SortReport(KernelReport* report);

}  // namespace hpvm

#endif  // HPVMD_COMPILER_DRIVER_EXPLAIN_H_
