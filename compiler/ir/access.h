// SPDX-License-Identifier: Apache-2.0
// Computes which bytes of each buffer a part of a launch accesses, from the compiler's bounds program (bounds.h) and
// the facts of a launch. Serves schedulers: it does not guard memory, but a launch whose parts run on different
// devices is correct only when the ranges are.
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

// Accesses to one parameter.
struct ParamAccess {
  AccessRange read, written;  // Hulls: no byte outside is accessed.
  // True when the box's instances store to every byte of `written`, whatever their data, and no instance reads such a
  // byte before it has stored it itself; unless one traps, after which the launch's output is void.
  bool overwrites = false;
};

// Fills one entry per parameter (empty for scalars). Returns false when some access is not understood: then any
// buffer may be accessed anywhere. Ranges are clipped to the buffers. Takes a few passes over the program.
bool FindAccesses(const BoundsProgram& program, const BoundsFacts& facts, const InstanceBox& box,
                  std::vector<ParamAccess>* accesses);

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_ACCESS_H_
