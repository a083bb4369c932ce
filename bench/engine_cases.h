// SPDX-License-Identifier: Apache-2.0
// A workload as a prepared graph in the engine alone, compared with the peers.
#ifndef HPVMD_BENCH_ENGINE_CASES_H_
#define HPVMD_BENCH_ENGINE_CASES_H_

#include "bench/registry.h"
#include "bench/workload.h"

namespace hpvm::bench {

// Returns the microseconds per node of ours, tbb and starpu, each with `workers` workers (0: as many as the machine
// has); checks every round's data.
StatusOr<Measurement> MeasureEngine(const Workload& workload, int rounds, uint32_t workers = 0);

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_ENGINE_CASES_H_
