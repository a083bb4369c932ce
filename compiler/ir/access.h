// SPDX-License-Identifier: Apache-2.0
// Which bytes of each buffer a part of a launch touches, and how much work it is: from what the compiler wrote down
// (bounds.h, work.h) and what a launch knows. For schedulers: nothing here guards memory, but a launch whose parts run
// on different devices is only right when the ranges are.
#ifndef HPVMD_COMPILER_IR_ACCESS_H_
#define HPVMD_COMPILER_IR_ACCESS_H_

#include <array>
#include <cstdint>
#include <vector>

#include "compiler/ir/bounds.h"

namespace hpvm::ir {

// Instances [first, first + count) in each dimension.
struct InstanceBox {
  std::array<uint64_t, 3> first{0, 0, 0};
  std::array<uint64_t, 3> count{1, 1, 1};
};

// Bytes [begin, end) of one buffer; empty when end <= begin.
struct AccessRange {
  uint64_t begin = 0, end = 0;
  bool is_empty() const { return end <= begin; }
};

// Of one parameter.
struct ParamAccess {
  AccessRange read, written;  // Hulls: whatever is outside is not touched.
  // Every byte of `written` is stored to by the box's instances, whatever their data, and none reads any of it before
  // it has stored it itself; unless one traps, after which nothing of the launch counts.
  bool overwrites = false;
};

// One a parameter (of scalars: empty). False when some access is not understood: then nothing is known but that every
// buffer may be touched anywhere. Ranges are cut at the buffers' ends. Takes a few passes over the program.
bool FindAccesses(const BoundsProgram& program, const BoundsFacts& facts, const InstanceBox& box,
                  std::vector<ParamAccess>* accesses);

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_ACCESS_H_
