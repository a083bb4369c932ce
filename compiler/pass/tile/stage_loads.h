// SPDX-License-Identifier: Apache-2.0
// PlanStage finds a loop whose loads a group of work items can share: for example, in a product of matrices each row
// of work items loads the same rows of A and each column the same columns of B. The group cooperates to load panels of
// them for a few iterations into group memory, and reads them from there: the blocking of Lam, Rothberg and Wolf ("The
// Cache Performance and Optimizations of Blocked Algorithms", ASPLOS 1991) for an explicitly managed memory.
//
// Internal to this folder; coarsener_stage.cc writes the planned code.
#ifndef HPVMD_COMPILER_PASS_TILE_STAGE_LOADS_H_
#define HPVMD_COMPILER_PASS_TILE_STAGE_LOADS_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

struct TilePlan;

// One load's elements of the block's iterations: a row per iteration, of all the group's instances along one
// dimension.
struct StagePanel {
  ir::OpId load;
  bool is_along_x = false;  // Neighbours in memory along x; shared along y. Else along y, and shared along x.
  uint64_t offset = 0;      // In group memory.
  uint64_t row_bytes = 0;
  // Along x a work item has this number of 16-byte pieces in a row; the first pieces of all work items are adjacent,
  // then the second pieces.
  uint32_t sections = 1;
  uint64_t section_bytes = 0;  // From one section to the next.
};

struct StagePlan {
  ir::OpId loop;
  std::array<uint32_t, 2> group{16, 16};  // Work items.
  uint32_t block = 8;                     // Iterations whose loads are staged together.
  // Indexed by the loop's parameters: the value that each iteration adds, which is the same for all instances; nothing
  // if an iteration changes the parameter in another way.
  std::vector<std::optional<ir::ValueId>> steps;
  // The loop continues while the next value of the parameter `counter` differs from, or (`is_below`) is less than,
  // `bound`.
  uint32_t counter = 0;
  ir::ValueId bound;   // Invalid: 0.
  int64_t stride = 1;  // The value that an iteration adds to the counter; plus or minus a power of two.
  bool is_below = false;
  std::vector<StagePanel> panels;
  uint64_t bytes = 0;  // Bytes of group memory.
};

// Returns nothing, with the reason, when there is no such loop: control up to it must depend on scalars alone, because
// all work items of a group have to take part; and no store may precede it.
std::optional<StagePlan> PlanStage(const ir::Module& module, const TilePlan& tile, std::string* reason);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_TILE_STAGE_LOADS_H_
