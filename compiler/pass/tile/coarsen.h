// SPDX-License-Identifier: Apache-2.0
// Thread coarsening for GPUs: one work item runs a tile of instances, so that values and loads that do not depend on
// the lane in the tile are computed once (Polygeist's unroll-and-interleave; Magni, Dubach, O'Boyle, "A Large-Scale
// Cross-Architecture Evaluation of Thread-Coarsening", SC 2013).
#ifndef HPVMD_COMPILER_PASS_TILE_COARSEN_H_
#define HPVMD_COMPILER_PASS_TILE_COARSEN_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "compiler/api/gpu_code.h"
#include "compiler/api/gpu_target.h"
#include "compiler/api/report.h"
#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

struct GpuTile {
  std::array<uint32_t, 3> size{1, 1, 1};  // Instances of a work item along x, y, z.
  // The work items of a group of this shape cooperate to load the data that their instances share (stage_loads.h).
  bool is_staged = false;
  friend bool operator==(const GpuTile&, const GpuTile&) = default;
};

// A module in which one execution of the entry runs a tile of instances: instance_id(d) returns the id of the tile's
// first instance, which is a multiple of the tile, and the launch's extent is a multiple of the tile. Loads and stores
// of neighbours along x become load128 and store128 where they are known to be contiguous and aligned.
//
// The conditions of the module are written into it as operations that change nothing where the conditions hold, so
// that alignment analyses find them: `instance_id & -4`, `n & -4`.
struct CoarseModule {
  ir::Module module;
  // Only for launches in which every buffer begins at a multiple of 16 bytes, and scalars are multiples of these.
  bool needs_alignment = false;
  std::vector<GpuFactor> factors;
  // Work items of a group, if the module uses group memory for this variant. All of them reach the barriers.
  std::array<uint32_t, 3> group{0, 0, 0};
  // Indexed by OpId of the entry, for accesses to memory: the original access that it performs, for one or several
  // instances. If the original access is in the original's bounds program, this one stays inside its buffer whenever
  // that is proven. FindBounds of the coarse module would be useless: its ids are those of first instances.
  std::vector<ir::OpId> original;
  // Indexed by OpId of the entry: the lane in the tile of the instance that it serves (of the first, if several),
  // which a trap reports. kComputed: the values of `computed`, i32, of which the second may be invalid (0).
  static constexpr uint8_t kComputed = 0xff;
  std::vector<std::array<uint8_t, 2>> lane;
  std::array<ir::ValueId, 2> computed{};
};

// Returns kUnimplemented, with the reason, for kernels that synchronise or print, or whose control differs inside a
// tile beyond what guards can handle.
StatusOr<CoarseModule> Coarsen(const ir::Module& module, const GpuTile& tile);

// Returns the profitable tiles, the best estimate first, at most three; never the trivial tile, which is always made.
std::vector<GpuTile> ChooseTiles(const ir::Module& module, const GpuTarget& target, KernelReport* report);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_TILE_COARSEN_H_
