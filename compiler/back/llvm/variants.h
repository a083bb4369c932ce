// SPDX-License-Identifier: Apache-2.0
// The ways in which an image runs a launch beside one instance at a time (CpuVariant): which there are, and their code.
// Internal to this folder.
#ifndef HPVMD_COMPILER_BACK_LLVM_VARIANTS_H_
#define HPVMD_COMPILER_BACK_LLVM_VARIANTS_H_

#include <optional>
#include <string>
#include <vector>

#include "compiler/api/artifact.h"
#include "compiler/api/report.h"
#include "compiler/back/llvm/emit/emitter.h"
#include "compiler/back/llvm/llvm_back.h"
#include "compiler/ir/bounds.h"
#include "compiler/pass/gang/gang_plan.h"

namespace hpvm::cpu {

struct VariantChoice {
  ir::BoundsProgram bounds;
  std::vector<bool> proven;                   // By OpId of the entry: the bounds program covers the access.
  std::vector<pass::GangShape> shapes;        // Of tiles, the best first.
  std::vector<pass::GangShape> group_shapes;  // For kernels with barriers; one row and one column.
  bool has_unchecked_instances = false;  // One instance at a time without the checks that a launch proves needless.
  size_t before_instances = ~size_t{0};  // So many of `shapes` are expected to be quicker than that.
  std::optional<pass::GangShape> without_edges;  // ShapeChoice's.
  bool has_along_y = true;                       // Lanes along y, where the kernel allows it.
};
// What to make of a kernel that has gone through the pipeline. `report` may be null.
VariantChoice ChooseVariants(const ir::Module& module, const Machine& machine, const CpuOptions& options,
                             KernelReport* report);

struct EmittedVariant {
  enum class From : uint8_t {
    kShape,
    kWithoutEdges,
    kAlongY,
    kInstances
  };                                   // The part of the choice that it was made from.
  CpuVariant variant;                  // Without entry_offset.
  std::string entry;                   // The symbol.
  std::vector<std::string> functions;  // What it calls of its own, besides.
  size_t choice = 0;                   // In VariantChoice::shapes or group_shapes.
  From from = From::kShape;
};
// Adds the code to `m`, whose functions are there already. A variant that cannot be made is left out, with a remark.
std::vector<EmittedVariant> EmitVariants(ModuleEmitter& m, const VariantChoice& choice, KernelReport* report);

// A stack frame of `variant` is above the limit: puts a smaller shape in its place, or none.
void ReplaceBySmaller(VariantChoice& choice, const EmittedVariant& variant);

}  // namespace hpvm::cpu

#endif  // HPVMD_COMPILER_BACK_LLVM_VARIANTS_H_
