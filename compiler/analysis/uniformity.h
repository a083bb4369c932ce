// SPDX-License-Identifier: Apache-2.0
// How values and control flow differ between instances, found by data flow over the structured IR.
//
// A value's shape is linear (it grows by a constant from one instance to the next; all constants 0 is uniform),
// varying (it depends on the instance's id in another way) or unknown (it comes from memory). Control varies at an
// operation when a condition of varying shape decides whether an instance gets there.
//
// Two questions are asked. Among the instances of a group, for barriers: what is only unknown is left to the check at
// run time (docs/KERNELS.md), so every answer "varies" rests on the id. Among instances that run in lockstep along one
// dimension, for a vectoriser: there every answer "uniform" is sure, what comes from memory varies unless the address
// is uniform, and nothing is unknown. Among the instances of a group in any order (kSurelyGroup), for running groups as
// a whole: as in lockstep, but every load varies.
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
  // kLinear: modulo 2^64, along x, y, z; for an i32 modulo 2^32. Among lanes only their own dimension's means
  // something.
  std::array<uint64_t, 3> step{};

  static Shape Uniform() { return {Kind::kLinear, {}}; }
  static Shape Unknown() { return {Kind::kUnknown, {}}; }
  static Shape Varying() { return {Kind::kVarying, {}}; }
  bool is_uniform() const { return kind == Kind::kLinear && step == std::array<uint64_t, 3>{}; }
  // Whether it is known to depend on the id.
  bool varies() const { return kind == Kind::kVarying || (kind == Kind::kLinear && !is_uniform()); }
  friend bool operator==(const Shape&, const Shape&) = default;
};
// The shape of a value that is one of the two.
Shape Join(const Shape& a, const Shape& b);

struct FunctionUniformity {
  std::vector<Shape> shapes;  // By ValueId.
  // By OpId: the branch (an if or leave_table) whose varying condition decides whether the operation is reached within
  // its function; invalid when none does.
  std::vector<ir::OpId> decided_by;
};

struct Uniformity {
  std::vector<FunctionUniformity> functions;  // By FunctionId; empty for functions the entry does not reach.
};

// Whose instances are compared: those of a group, or those that differ in one coordinate of their ids and run in
// lockstep.
enum class Lanes : uint8_t { kGroup, kAlongX, kAlongY, kAlongZ, kSurelyGroup };

// Requires a verified module. Nothing when it did not settle within a bounded number of sweeps, each linear. `assumed`,
// by OpId of the entry, names ifs and leave_tables whose condition is taken to be the same for all, whatever it is
// computed from, and along x extensions of an i32 and edge forms (compiler/analysis/edge_forms.h) that are taken to
// meet no edge.
std::optional<Uniformity> AnalyseUniformity(const ir::Module& module, Lanes lanes = Lanes::kGroup,
                                            const std::vector<bool>* assumed = nullptr);

// By ValueId: surely the same for all instances of a launch, or of a group, whenever each of them computes it: made
// without effects of parameters and what the launch, or group, gives to all. Control plays no part, so that what a loop
// or a choice brings is not among them. Requires a verified function.
std::vector<bool> FindFixed(const ir::Function& function, bool of_group);

}  // namespace hpvm::analysis

#endif  // HPVMD_COMPILER_ANALYSIS_UNIFORMITY_H_
