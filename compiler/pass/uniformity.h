// SPDX-License-Identifier: Apache-2.0
// How values and control flow differ between the instances of one group, found by data flow over the structured IR.
//
// A value's shape is linear (it grows by a constant from one local id to the next; all constants 0 is uniform),
// varying (it depends on the instance's id in another way) or unknown (it comes from memory). Control varies at an
// operation when a condition of varying shape decides whether an instance gets there. What is only unknown is left to
// the check at run time (docs/KERNELS.md): every answer "varies" here rests on the id.
//
// The divergence of structured control follows the branches out of a varying `if`: the code behind it varies up to the
// end of the block that the branch leaves. Loops are as in Karrenberg and Hack, "Improving Performance of OpenCL on
// CPUs" (CC 2012): a loop with a varying exit varies as a whole.
#ifndef HPVMD_COMPILER_PASS_UNIFORMITY_H_
#define HPVMD_COMPILER_PASS_UNIFORMITY_H_

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/ir/ir.h"

namespace hpvm {

struct Shape {
  enum class Kind : uint8_t { kUnset, kLinear, kUnknown, kVarying };
  Kind kind = Kind::kUnset;
  // kLinear: modulo 2^64, along x, y, z. They are also right modulo 2^32 for an i32.
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

// Requires a verified module. Nothing when it did not settle within a bounded number of sweeps, each linear.
std::optional<Uniformity> AnalyseUniformity(const ir::Module& module);

}  // namespace hpvm

#endif  // HPVMD_COMPILER_PASS_UNIFORMITY_H_
