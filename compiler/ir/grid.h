// SPDX-License-Identifier: Apache-2.0
// Coordinates of the instances and groups of a launch, numbered x fastest.
#ifndef HPVMD_COMPILER_IR_GRID_H_
#define HPVMD_COMPILER_IR_GRID_H_

#include <algorithm>
#include <array>
#include <cstdint>

#include "compiler/ir/launch.h"

namespace hpvm::ir {

using Triple = std::array<uint64_t, 3>;

// Returns the coordinates of a linear index in a box.
inline Triple Unflatten(uint64_t index, const Triple& box) {
  return {index % box[0], index / box[0] % box[1], index / box[0] / box[1]};
}

// A part of the extent: a group, which may be smaller than declared at the end of a dimension.
struct Box {
  Triple origin{}, size{};

  uint64_t count() const { return size[0] * size[1] * size[2]; }
  Triple At(uint64_t local) const {
    const Triple offset = Unflatten(local, size);
    return {origin[0] + offset[0], origin[1] + offset[1], origin[2] + offset[2]};
  }
};

inline Box BoxOfGroup(const Launch& launch, uint64_t group) {
  Triple groups{};
  for (int i = 0; i < 3; ++i) {
    groups[i] = launch.extent[i] / launch.group[i] + (launch.extent[i] % launch.group[i] != 0 ? 1 : 0);
  }
  const Triple at = Unflatten(group, groups);
  Box box;
  for (int i = 0; i < 3; ++i) {
    box.origin[i] = at[i] * launch.group[i];
    box.size[i] = std::min(launch.group[i], launch.extent[i] - box.origin[i]);
  }
  return box;
}

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_GRID_H_
