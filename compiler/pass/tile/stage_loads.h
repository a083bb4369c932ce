// SPDX-License-Identifier: Apache-2.0
// Finds a loop whose loads a group of work items can share: of a product of matrices, say, where each row of work items
// loads the same rows of A and each column the same columns of B. The group loads panels of them for a few iterations
// into group memory, together, and reads them from there; the classic blocking of Lam, Rothberg and Wolf ("The Cache
// Performance and Optimizations of Blocked Algorithms", ASPLOS 1991) for a memory that is managed by hand.
//
// Internal to this folder; coarsener_stage.cc writes what is planned here.
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

// One load's elements of the block's iterations: a row an iteration, of all the group's instances along one dimension.
struct StagePanel {
  ir::OpId load;
  bool is_along_x = false;  // Neighbours in memory; shared along y. Else along y, and shared along x.
  uint64_t offset = 0;      // In group memory.
  uint64_t row_bytes = 0;
  // Along x a work item has so many pieces of 16 bytes in a row; the first of all lie together, then the second of all.
  uint32_t sections = 1;
  uint64_t section_bytes = 0;  // From one to the next.
};

struct StagePlan {
  ir::OpId loop;
  std::array<uint32_t, 2> group{16, 16};  // Work items.
  uint32_t block = 8;                     // Iterations whose loads are staged together.
  // By the loop's parameters: what each iteration adds, which is the same for all instances; nothing where an iteration
  // does something else.
  std::vector<std::optional<ir::ValueId>> steps;
  uint32_t counter = 0;  // The parameter whose next value decides: the loop goes on while it is not, or below, the
  ir::ValueId bound;     // bound; invalid: 0.
  int64_t stride = 1;    // What an iteration adds to it; plus or minus a power of two.
  bool is_below = false;
  std::vector<StagePanel> panels;
  uint64_t bytes = 0;  // Of group memory.
};

// Nothing, with the reason, when there is no such loop: control up to it must depend on scalars alone, as all of a
// group have to take part; and nothing may be stored before it.
std::optional<StagePlan> PlanStage(const ir::Module& module, const TilePlan& tile, std::string* reason);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_TILE_STAGE_LOADS_H_
