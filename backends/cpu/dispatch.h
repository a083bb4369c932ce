// SPDX-License-Identifier: Apache-2.0
// One dispatch on the CPU: decides between running on the submitting thread and sharing with the pool.
//
// What an instance took lately says how long the dispatch will take. Below kInlineNs it runs on the submitting thread,
// with no synchronisation and no allocation. A dispatch that turns out longer, seen after its first sixteenth, shares
// the rest.
#ifndef HPVMD_BACKENDS_CPU_DISPATCH_H_
#define HPVMD_BACKENDS_CPU_DISPATCH_H_

#include "backends/cpu/executable.h"
#include "backends/cpu/group.h"
#include "backends/cpu/pool.h"
#include "backends/shared/ticks.h"

namespace hpvm::cpu {

// A share costs a wake-up of a helper (5 to 50 µs): it must save more than that.
inline constexpr double kInlineNs = 20'000;
// Chunk boundaries come at least this often, if instances are short enough: a fifth of the grant's quantum.
inline constexpr double kChunkNsMax = 1'000'000;
inline constexpr double kChunkNsMin = 20'000;

struct DispatchEnd {
  Status status;           // Not OK: the world failed, or the run was stopped.
  ir::TrapReport trap;     // Code kNone: none. kStopped: the stop word ended the run.
  uint64_t ticks = 0;      // When it ended.
  uint32_t variant = 0;    // The variant that ran it; where several did, the one that looked best when it ended.
  bool is_settled = true;  // NodeTiming::is_settled.
};

// Runs every instance of the launch; `start` is the tick counter before it.
DispatchEnd RunDispatch(CpuExecutable& executable, const CpuLaunch& launch, Pool& pool, const backends::Ticks& ticks,
                        uint64_t start);

}  // namespace hpvm::cpu

#endif  // HPVMD_BACKENDS_CPU_DISPATCH_H_
