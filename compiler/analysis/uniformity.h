// SPDX-License-Identifier: Apache-2.0
// Data-flow analysis over the structured IR that finds how values and control flow differ between instances.
//
// A value's shape is linear (it grows by a constant from one instance to the next; all constants 0 is uniform),
// varying (it depends on the instance's id in another way) or unknown (it comes from memory). Control varies at an
// operation when a condition of varying shape decides whether an instance gets there.
//
// The analysis answers three questions. Among the instances of a group (kGroup, for barriers), "varies" is certain
// because it rests on the id, and unknown values are left to the check at run time (docs/KERNELS.md). Among instances
// that run in lockstep along one dimension (for a vectoriser), "uniform" is certain: values from memory vary unless
// the address is uniform, and no shape is unknown. Among the instances of a group in any order (kSurelyGroup, for
// running whole groups), the rules are those of lockstep, but every load varies.
//
// The divergence of structured control follows the branches out of a varying `if`: the code behind it varies up to the
// end of the block that the branch leaves. Loops are as in Karrenberg and Hack, "Improving Performance of OpenCL on
// CPUs" (CC 2012): a loop with a varying exit varies as a whole.
#ifndef HPVMD_COMPILER_ANALYSIS_UNIFORMITY_H_
#define HPVMD_COMPILER_ANALYSIS_UNIFORMITY_H_

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/analysis/words.h"

namespace hpvm::analysis {

struct Shape {
  enum class Kind : uint8_t { kUnset, kLinear, kUnknown, kVarying };
  Kind kind = Kind::kUnset;
  // kLinear: steps along x, y, z, modulo 2^64; for an i32 modulo 2^32. Among lanes only the step of the lanes' own
  // dimension is meaningful.
  std::array<uint64_t, 3> step{};

  static Shape Uniform() { return {Kind::kLinear, {}}; }
  static Shape Unknown() { return {Kind::kUnknown, {}}; }
  static Shape Varying() { return {Kind::kVarying, {}}; }
  bool is_uniform() const { return kind == Kind::kLinear && step == std::array<uint64_t, 3>{}; }
  // Returns true if the value is known to depend on the id.
  bool varies() const { return kind == Kind::kVarying || (kind == Kind::kLinear && !is_uniform()); }
  friend bool operator==(const Shape&, const Shape&) = default;
};
// Returns the shape of a value that is one of the two.
Shape Join(const Shape& a, const Shape& b);

struct FunctionUniformity {
  std::vector<Shape> shapes;  // Indexed by ValueId.
  // Indexed by OpId: the branch (an if or br_table) whose varying condition decides whether the operation is
  // reached within its function; invalid when none does.
  std::vector<ir::OpId> decided_by;
};

struct Uniformity {
  std::vector<FunctionUniformity> functions;  // Indexed by FunctionId; empty for functions the entry does not reach.
};

// Selects the instances to compare: those of a group, or those that differ in one coordinate of their ids and run in
// lockstep.
enum class Lanes : uint8_t { kGroup, kAlongX, kAlongY, kAlongZ, kSurelyGroup };

// Requires a verified module. Returns nothing when the analysis did not reach a fixed point within a bounded number of
// sweeps, each linear. `assumed`, by OpId of the entry, marks ifs and br_tables whose conditions are assumed
// uniform regardless of their inputs, and, along x, extensions of an i32 and edge forms
// (compiler/analysis/edge_forms.h) that are assumed to meet no edge.
std::optional<Uniformity> AnalyseUniformity(const ir::Module& module, Lanes lanes = Lanes::kGroup,
                                            const std::vector<bool>* assumed = nullptr);

// Returns, by ValueId, true for values that are certainly the same in all instances of a launch, or of a group,
// whenever each of them computes the value: effect-free results of parameters and of values that the launch, or group,
// gives to all instances. The analysis ignores control flow, so results of loops and ifs are never included. Requires
// a verified function.
std::vector<bool> FindFixed(const ir::Function& function, bool of_group);

}  // namespace hpvm::analysis

#endif  // HPVMD_COMPILER_ANALYSIS_UNIFORMITY_H_
