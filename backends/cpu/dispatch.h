// SPDX-License-Identifier: Apache-2.0
// Runs one dispatch on the CPU: decides between the submitting thread alone and sharing with the pool.
//
// Recent times per instance predict the dispatch's time. Below kInlineNs it runs on the submitting thread, with no
// synchronisation and no allocation. If it turns out to be longer, as seen after its first sixteenth, the rest is
// shared.
#ifndef HPVMD_BACKENDS_CPU_DISPATCH_H_
#define HPVMD_BACKENDS_CPU_DISPATCH_H_

#include "backends/cpu/executable.h"
#include "backends/cpu/group.h"
#include "backends/cpu/pool.h"
#include "backends/shared/ticks.h"

namespace hpvm::cpu {

// Sharing costs a wake-up of a helper (5 to 50 µs), so it must save more than that.
inline constexpr double kInlineNs = 20'000;
// Chunk boundaries come at least this often, if instances are short enough: a fifth of the grant's quantum.
inline constexpr double kChunkNsMax = 1'000'000;
inline constexpr double kChunkNsMin = 20'000;

struct DispatchEnd {
  Status status;        // Not OK: a system failure, or the run was stopped.
  ir::TrapReport trap;  // Code kNone: no trap. kStopped: the stop word ended the run.
  uint64_t ticks = 0;   // The tick counter at its end.
  // The variant that ran it; if several did, the one that seemed best at its end.
  uint32_t variant = 0;
  bool is_settled = true;  // NodeTiming::is_settled.
};

// Runs every instance of the launch; `start` is the tick counter before it.
DispatchEnd RunDispatch(CpuExecutable& executable, const CpuLaunch& launch, Pool& pool, const backends::Ticks& ticks,
                        uint64_t start);

}  // namespace hpvm::cpu

#endif  // HPVMD_BACKENDS_CPU_DISPATCH_H_
