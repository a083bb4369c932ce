// SPDX-License-Identifier: Apache-2.0
// What Coarsen and ChooseTiles know of a kernel before a line of it is written for a tile; internal to this folder.
#ifndef HPVMD_COMPILER_PASS_TILE_TILE_PLAN_H_
#define HPVMD_COMPILER_PASS_TILE_TILE_PLAN_H_

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/pass/gang/gang_plan.h"
#include "compiler/pass/tile/coarsen.h"
#include "compiler/pass/tile/stage_loads.h"

namespace hpvm::pass {

// How a value is kept along x and y.
struct TileLayout {
  std::array<bool, 2> varies{};    // A copy for each place.
  std::array<uint64_t, 2> step{};  // Else the copy of place 0; place i has it plus i * step, modulo its type.
  bool Differs(size_t d) const { return varies[d] || step[d] != 0; }
  friend bool operator==(const TileLayout&, const TileLayout&) = default;
};

struct TilePlan {
  std::array<uint32_t, 2> tile{1, 1};
  GangPlan gang;
  std::vector<TileLayout> layouts;  // By ValueId.
  std::vector<bool> is_vector;      // By OpId: loads and stores that become 16-byte accesses.
  std::vector<GpuFactor> factors;   // What that rests on, besides buffers that begin at 16 bytes.
  std::optional<StagePlan> stage;   // If the tile asks for it.
};
StatusOr<TilePlan> PlanTile(const ir::Module& module, const GpuTile& tile);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_TILE_TILE_PLAN_H_
