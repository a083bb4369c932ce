// SPDX-License-Identifier: Apache-2.0
// Chooses and emits the variants by which an image runs a launch other than one instance at a time (CpuVariant).
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
  std::vector<bool> proven;                   // Indexed by OpId of the entry: the bounds program covers the access.
  std::vector<pass::GangShape> shapes;        // Shapes of tiles, the best first.
  std::vector<pass::GangShape> group_shapes;  // For kernels with barriers; one row and one column.
  bool has_unchecked_instances = false;       // One instance at a time, without the checks that a proof makes needless.
  size_t before_instances = ~size_t{0};       // Number of `shapes` expected to be faster than unchecked instances.
  std::optional<pass::GangShape> without_edges;  // ShapeChoice's.
  bool has_along_y = true;                       // Lanes along y, where the kernel allows it.
};
// Chooses the variants of a kernel that has been through the pipeline. `report` may be null.
VariantChoice ChooseVariants(const ir::Module& module, const Machine& machine, const CpuOptions& options,
                             KernelReport* report);

struct EmittedVariant {
  enum class From : uint8_t {
    kShape,
    kWithoutEdges,
    kAlongY,
    kInstances
  };                                   // The part of the choice from which it was made.
  CpuVariant variant;                  // Without entry_offset.
  std::string entry;                   // The symbol.
  std::vector<std::string> functions;  // Further functions that only this variant calls.
  size_t choice = 0;                   // Index in VariantChoice::shapes or group_shapes.
  From from = From::kShape;
};
// Adds the code to `m`, which already has its functions. Leaves out a variant that cannot be made, with a remark.
std::vector<EmittedVariant> EmitVariants(ModuleEmitter& m, const VariantChoice& choice, KernelReport* report);

// Replaces the shape of `variant`, whose stack frame exceeds the limit, by a smaller one, or removes it.
void ReplaceBySmaller(VariantChoice& choice, const EmittedVariant& variant);

}  // namespace hpvm::cpu

#endif  // HPVMD_COMPILER_BACK_LLVM_VARIANTS_H_
