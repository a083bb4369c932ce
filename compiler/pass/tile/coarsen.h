// SPDX-License-Identifier: Apache-2.0
// Thread coarsening for GPUs: one work item runs a tile of instances, so that values and loads that do not depend on
// the place in the tile are computed once (Polygeist's unroll-and-interleave; Magni, Dubach, O'Boyle, "A Large-Scale
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
  std::array<uint32_t, 3> size{1, 1, 1};  // Instances along x, y, z of a work item.
  // Work items in a group of this shape load together what their instances share (stage_loads.h).
  bool is_staged = false;
  friend bool operator==(const GpuTile&, const GpuTile&) = default;
};

// A module of which one execution of the entry runs a tile of instances: instance_id(d) reads as the id of the tile's
// first instance, which is a multiple of the tile, and the launch's extent is a multiple of the tile. Loads and stores
// of neighbours along x become load128 and store128 where they are known to be contiguous and aligned.
//
// What the module rests on is written into it as arithmetic that changes nothing where it holds, so that whoever looks
// for alignment finds it: `instance_id & -4`, `n & -4`.
struct CoarseModule {
  ir::Module module;
  // Only for launches in which every buffer begins at a multiple of 16 bytes, and scalars are multiples of these.
  bool needs_alignment = false;
  std::vector<GpuFactor> factors;
  // Work items of a group, if the module uses group memory: the variant's. Barriers are reached by all of them.
  std::array<uint32_t, 3> group{0, 0, 0};
  // By OpId of the entry, for accesses to memory: the access of the original that it does, for one or several
  // instances. If the original's is in the original's bounds program, this one stays inside its buffer whenever that is
  // proven. FindBounds of the coarse module would say nothing of use: its ids are those of first instances.
  std::vector<ir::OpId> original;
  // By OpId of the entry: the place in the tile of the instance it works for (of the first, if for several), which a
  // trap names. kComputed: the values of `computed`, i32, of which the second may be invalid (0).
  static constexpr uint8_t kComputed = 0xff;
  std::vector<std::array<uint8_t, 2>> place;
  std::array<ir::ValueId, 2> computed{};
};

// kUnimplemented, with the reason, for kernels whose control differs inside a tile beyond what can be guarded, that
// synchronise, or that print.
StatusOr<CoarseModule> Coarsen(const ir::Module& module, const GpuTile& tile);

// The tiles worth making, the best guess first; never the trivial one, which is always made. At most three.
std::vector<GpuTile> ChooseTiles(const ir::Module& module, const GpuTarget& target, KernelReport* report);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_TILE_COARSEN_H_
