// SPDX-License-Identifier: Apache-2.0
// Remarks of an explained compile on a kernel as a whole, beside those of passes and the back end on its parts.
#ifndef HPVMD_COMPILER_DRIVER_EXPLAIN_H_
#define HPVMD_COMPILER_DRIVER_EXPLAIN_H_

#include <cstdint>
#include <optional>
#include <string>

#include "compiler/api/artifact.h"
#include "compiler/api/report.h"
#include "compiler/ir/ir.h"

namespace hpvm::compile {

// Reports which accesses to buffers a launch proves to stay inside, so that they run unchecked, and which keep their
// checks. `bounds` was made from `module`.
void ExplainBounds(const ir::Module& module, const ir::BoundsProgram& bounds, KernelReport* report);

// Interaction of the halves of a launch, found for a launch of 16 instances in each dimension with scalars of 16 and
// large buffers.
struct LaunchHalves {
  std::string apart;  // Of "xyz": dimensions along which neither half writes what the other touches.
  // A parameter whose buffer both halves along x touch while one of them writes it; set only if all accesses are
  // understood.
  std::optional<uint32_t> shared;
};
LaunchHalves FindHalves(const ir::Module& module, const ir::BoundsProgram& bounds);

// Reports whether parts of a launch can run on separate devices, and if not, which access prevents it.
void ExplainParts(const ir::Module& module, const ir::BoundsProgram& bounds, KernelReport* report);

// Reports calls that remain in the entry after inlining.
void ExplainCalls(const ir::Module& module, KernelReport* report);

// Reports the ways in which a GPU runs the kernel: tiles, groups, what a launch has to prove.
void ExplainVariants(const GpuCode& code, KernelReport* report);

// Sorts by source position, then kind, then text, and removes duplicates. Cuts to limits.h's number and length.
void SortReport(KernelReport* report);

}  // namespace hpvm::compile

#endif  // HPVMD_COMPILER_DRIVER_EXPLAIN_H_
