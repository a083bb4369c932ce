// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <mutex>

#include "backends/cpu/launch_run.h"

namespace hpvm::cpu {
namespace {

// Longer chunks of instances are multiples of this.
constexpr uint64_t kChunkMultiple = 64;

// A part that the pool shares.
class SharedPart final : public PoolBody {
 public:
  SharedPart(const Dispatch& dispatch, const Range& range) : d_(dispatch), range_(range) {}

  void Work(Chunks& chunks) override {
    uint64_t begin, end;
    if (!chunks.Next(&begin, &end)) {
      return;
    }
    // The status is stored, because a participant cannot return it.
    Status status = d_.executable.has_groups() ? WorkOnGroups(chunks, begin, end) : WorkOnTiles(chunks, begin, end);
    if (!status.ok()) {
      chunks.Cancel();
      std::lock_guard lock(mutex_);
      end_.status.Update(status);
    }
  }

  DispatchEnd TakeEnd() { return std::move(end_); }
  double busy_ns() const { return static_cast<double>(busy_ticks_.load()) * d_.ticks.ns_per_tick(); }

 private:
  Status WorkOnTiles(Chunks& chunks, uint64_t begin, uint64_t end) {
    HPVMD_ASSIGN_OR_RETURN(Lane * lane, d_.executable.lanes().Take());
    InstanceWorker worker(d_.executable, d_.launch, lane);
    return Loop(worker, chunks, begin, end);
  }
  Status WorkOnGroups(Chunks& chunks, uint64_t begin, uint64_t end) {
    HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<GroupRunner> runner, d_.executable.TakeGroupRunner());
    GroupWorker worker(d_.executable, d_.launch, std::move(runner));
    return Loop(worker, chunks, begin, end);
  }
  Status Loop(Worker& worker, Chunks& chunks, uint64_t begin, uint64_t end) {
    uint64_t busy = 0;
    do {
      const uint64_t start = d_.ticks.Now();
      ir::TrapReport trap;
      HPVMD_ASSIGN_OR_RETURN(const bool done, range_.work != nullptr
                                                  ? range_.work->RunSlices(worker, *range_.variant, begin, end, &trap)
                                                  : worker.Run(*range_.variant, begin, end, &trap));
      busy += d_.ticks.Now() - start;
      if (!done) {
        chunks.Cancel();
        std::lock_guard lock(mutex_);
        if (end_.trap.code == ir::TrapCode::kNone || end_.trap.code == ir::TrapCode::kStopped) {
          end_.trap = trap;
        }
        break;
      }
    } while (chunks.Next(&begin, &end));
    busy_ticks_.fetch_add(busy, std::memory_order_relaxed);
    return absl::OkStatus();
  }

  const Dispatch& d_;
  const Range& range_;
  std::atomic<uint64_t> busy_ticks_{0};
  std::mutex mutex_;
  DispatchEnd end_;  // Guarded by mutex_ while participants work.
};

uint64_t ChunkOf(double ns, double unit_ns) {
  const double units = std::clamp(ns / unit_ns, 1.0, 1e15);
  const auto whole = static_cast<uint64_t>(units);
  return whole >= kChunkMultiple ? whole / kChunkMultiple * kChunkMultiple : whole;
}

}  // namespace

DispatchEnd Share(const Dispatch& d, const Range& range, double* busy_ns) {
  SharedPart part(d, range);
  PoolRange pool_range;
  pool_range.begin = range.begin;
  pool_range.end = range.end;
  pool_range.chunk_min = ChunkOf(kChunkNsMin, range.unit_ns);
  pool_range.chunk_max = ChunkOf(kChunkNsMax, range.unit_ns);
  pool_range.stop = d.launch.stop;
  const bool complete = d.pool.Run(pool_range, part);
  DispatchEnd outcome = part.TakeEnd();
  if (!complete && outcome.status.ok() && outcome.trap.code == ir::TrapCode::kNone) {
    outcome.trap.code = ir::TrapCode::kStopped;
  }
  outcome.ticks = d.ticks.Now();
  *busy_ns = complete ? part.busy_ns() : 0;
  return outcome;
}

}  // namespace hpvm::cpu
