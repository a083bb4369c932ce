// SPDX-License-Identifier: Apache-2.0
// Measurements of `hpvm-bench gpu` other than kernels: the cost of launches through the engine, and copies.
#ifndef HPVMD_BENCH_GPU_GPU_MOVES_H_
#define HPVMD_BENCH_GPU_GPU_MOVES_H_

#include "bench/local_engine.h"

namespace hpvm::bench {

// Returns the seconds per node of a prepared graph of `count` tiny nodes on the rig's first device, one after the
// other or, with 250 buffers, mostly independent. Verified.
StatusOr<double> MeasureNodes(LocalEngine& rig, uint32_t count, bool dependent);

// Bytes per second between host memory and the rig's first device, and on the device.
struct GpuCopies {
  double to_device = 0, from_device = 0, on_device = 0;
};
StatusOr<GpuCopies> MeasureGpuCopies(LocalEngine& rig, uint64_t bytes);

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_GPU_GPU_MOVES_H_
