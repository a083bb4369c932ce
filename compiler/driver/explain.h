// SPDX-License-Identifier: Apache-2.0
// What an explained compile says of a kernel as a whole, beside what passes and the back end say of its parts.
#ifndef HPVMD_COMPILER_DRIVER_EXPLAIN_H_
#define HPVMD_COMPILER_DRIVER_EXPLAIN_H_

#include <cstdint>
#include <optional>
#include <string>

#include "compiler/api/artifact.h"
#include "compiler/api/report.h"
#include "compiler/ir/ir.h"

namespace hpvm::compile {

// Which accesses to buffers a launch shows to stay inside, so that they run unchecked, and which keep their checks.
// `module` is what `bounds` was made from.
void ExplainBounds(const ir::Module& module, const ir::BoundsProgram& bounds, KernelReport* report);

// What halves of a launch do to each other, found for a launch of 16 instances in each dimension with scalars of 16 and
// large buffers.
struct LaunchHalves {
  std::string apart;  // Of "xyz": the dimensions along which neither half writes what the other touches.
  // A parameter whose buffer halves along x have in common while one of them writes it; where no access is
  // misunderstood.
  std::optional<uint32_t> shared;
};
LaunchHalves FindHalves(const ir::Module& module, const ir::BoundsProgram& bounds);

// Whether parts of a launch can run on devices of their own, and if not, because of which access.
void ExplainParts(const ir::Module& module, const ir::BoundsProgram& bounds, KernelReport* report);

// Calls that are left in the entry after inlining.
void ExplainCalls(const ir::Module& module, KernelReport* report);

// The ways in which a GPU runs the kernel: tiles, groups, what a launch has to show.
void ExplainVariants(const GpuCode& code, KernelReport* report);

// By place, then kind, then text; what was said twice stands once. Cut to limits.h's number and length.
void SortReport(KernelReport* report);

}  // namespace hpvm::compile

#endif  // HPVMD_COMPILER_DRIVER_EXPLAIN_H_
