// SPDX-License-Identifier: Apache-2.0
// TilePlan is the analysis of a kernel on which Coarsen and ChooseTiles base a tile's code; internal to this folder.
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

// The representation of a value along x and y.
struct TileLayout {
  std::array<bool, 2> varies{};    // A copy for each lane.
  std::array<uint64_t, 2> step{};  // Else the copy of lane 0; lane i adds i * step, modulo its type.
  bool Differs(size_t d) const { return varies[d] || step[d] != 0; }
  friend bool operator==(const TileLayout&, const TileLayout&) = default;
};

struct TilePlan {
  std::array<uint32_t, 2> tile{1, 1};
  GangPlan gang;
  std::vector<TileLayout> layouts;  // Indexed by ValueId.
  std::vector<bool> is_vector;      // Indexed by OpId: loads and stores that become 16-byte accesses.
  std::vector<GpuFactor> factors;   // Conditions of is_vector, besides buffers that begin at multiples of 16 bytes.
  std::optional<StagePlan> stage;   // If the tile is staged.
};
StatusOr<TilePlan> PlanTile(const ir::Module& module, const GpuTile& tile);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_TILE_TILE_PLAN_H_
