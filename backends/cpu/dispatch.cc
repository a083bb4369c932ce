// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/dispatch.h"

#include <algorithm>
#include <mutex>

namespace hpvm::cpu {
namespace {

// Below this many instances a dispatch that is expected to be short is not looked at in between.
constexpr uint64_t kProbeFromInstances = 64;
// Chunks are multiples of this where they are longer: whole vectors for images that work on several instances at once.
constexpr uint64_t kChunkMultiple = 64;

// How one participant runs a part of the dispatch: instances, or whole groups.
class Worker {
 public:
  virtual ~Worker() = default;
  // False when an instance trapped; `trap` is filled.
  virtual StatusOr<bool> Run(uint64_t begin, uint64_t end, ir::TrapReport* trap) = 0;
};

class InstanceWorker final : public Worker {
 public:
  InstanceWorker(CpuExecutable& executable, const CpuLaunch& launch, Lane* lane)
      : executable_(executable), launch_(launch), lane_(lane) {
    Bind(*lane_, launch_);
  }
  ~InstanceWorker() override { executable_.lanes().Give(lane_); }
  StatusOr<bool> Run(uint64_t begin, uint64_t end, ir::TrapReport* trap) override {
    StatusOr<bool> done = Call(*lane_, launch_.entry, begin, end);
    if (done.ok() && !*done) {
      *trap = TrapOf(lane_->context);
    }
    return done;
  }

 private:
  CpuExecutable& executable_;
  const CpuLaunch& launch_;
  Lane* const lane_;
};

class GroupWorker final : public Worker {
 public:
  GroupWorker(CpuExecutable& executable, const CpuLaunch& launch, std::unique_ptr<GroupRunner> runner)
      : executable_(executable), launch_(launch), runner_(std::move(runner)) {}
  ~GroupWorker() override { executable_.GiveGroupRunner(std::move(runner_)); }
  StatusOr<bool> Run(uint64_t begin, uint64_t end, ir::TrapReport* trap) override {
    for (uint64_t group = begin; group < end; ++group) {
      StatusOr<bool> done = runner_->Run(launch_, group, trap);
      if (!done.ok() || !*done) {
        return done;
      }
    }
    return true;
  }

 private:
  CpuExecutable& executable_;
  const CpuLaunch& launch_;
  std::unique_ptr<GroupRunner> runner_;
};

// The part of a dispatch that the pool shares.
class SharedPart final : public PoolBody {
 public:
  SharedPart(CpuExecutable& executable, const CpuLaunch& launch, const Ticks& ticks)
      : executable_(executable), launch_(launch), ticks_(ticks) {}

  void Work(Chunks& chunks) override {
    uint64_t begin, end;
    if (!chunks.Next(&begin, &end)) {
      return;
    }
    // The status is kept aside, as a participant has nobody to return it to.
    Status status = executable_.has_groups() ? WorkOnGroups(chunks, begin, end) : WorkOnInstances(chunks, begin, end);
    if (!status.ok()) {
      chunks.Cancel();
      std::lock_guard lock(mutex_);
      end_.status.Update(status);
    }
  }

  DispatchEnd TakeEnd() { return std::move(end_); }
  double busy_ns() const { return static_cast<double>(busy_ticks_.load()) * ticks_.ns_per_tick(); }

 private:
  Status WorkOnInstances(Chunks& chunks, uint64_t begin, uint64_t end) {
    HPVMD_ASSIGN_OR_RETURN(Lane* lane, executable_.lanes().Take());
    InstanceWorker worker(executable_, launch_, lane);
    return Loop(worker, chunks, begin, end);
  }
  Status WorkOnGroups(Chunks& chunks, uint64_t begin, uint64_t end) {
    HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<GroupRunner> runner, executable_.TakeGroupRunner());
    GroupWorker worker(executable_, launch_, std::move(runner));
    return Loop(worker, chunks, begin, end);
  }
  Status Loop(Worker& worker, Chunks& chunks, uint64_t begin, uint64_t end) {
    uint64_t busy = 0;
    do {
      const uint64_t start = ticks_.Now();
      ir::TrapReport trap;
      HPVMD_ASSIGN_OR_RETURN(const bool done, worker.Run(begin, end, &trap));
      busy += ticks_.Now() - start;
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

  CpuExecutable& executable_;
  const CpuLaunch& launch_;
  const Ticks& ticks_;
  std::atomic<uint64_t> busy_ticks_{0};
  std::mutex mutex_;
  DispatchEnd end_;  // Guarded by mutex_ while participants work.
};

uint64_t ChunkOf(double ns, double unit_ns) {
  const double units = std::clamp(ns / unit_ns, 1.0, 1e15);
  const auto whole = static_cast<uint64_t>(units);
  return whole >= kChunkMultiple ? whole / kChunkMultiple * kChunkMultiple : whole;
}

// Shares units [begin, end), each of `unit_ns` and so many instances, over the pool.
DispatchEnd Share(CpuExecutable& executable, const CpuLaunch& launch, Pool& pool, const Ticks& ticks, uint64_t begin,
                  uint64_t end, double unit_ns, uint64_t unit_instances) {
  SharedPart part(executable, launch, ticks);
  PoolRange range;
  range.begin = begin;
  range.end = end;
  range.chunk_min = ChunkOf(kChunkNsMin, unit_ns);
  range.chunk_max = ChunkOf(kChunkNsMax, unit_ns);
  range.stop = launch.stop;
  const bool complete = pool.Run(range, part);
  DispatchEnd outcome = part.TakeEnd();
  if (!complete && outcome.status.ok() && outcome.trap.code == ir::TrapCode::kNone) {
    outcome.trap.code = ir::TrapCode::kStopped;
  }
  outcome.ticks = ticks.Now();
  if (complete) {
    executable.Learn(part.busy_ns(), (end - begin) * unit_instances);
  }
  return outcome;
}

DispatchEnd RunGroups(CpuExecutable& executable, const CpuLaunch& launch, Pool& pool, const Ticks& ticks) {
  const std::array<uint64_t, 3> counts = GroupCounts(launch);
  const uint64_t unit_instances = launch.group[0] * launch.group[1] * launch.group[2];
  // Unknown: as if each group were worth a chunk.
  const double known_ns = static_cast<double>(executable.instance_ns()) * static_cast<double>(unit_instances);
  return Share(executable, launch, pool, ticks, 0, counts[0] * counts[1] * counts[2],
               known_ns > 0 ? known_ns : kChunkNsMin, unit_instances);
}

// What is left of a dispatch after the submitting thread has run a part by itself.
struct Rest {
  uint64_t begin = 0;
  double unit_ns = 0;
};

// Runs the launch on the submitting thread, as long as that looks like the quicker way. True when the dispatch is over.
bool RunInline(CpuExecutable& executable, const CpuLaunch& launch, uint64_t instances, const Ticks& ticks,
               uint64_t start, DispatchEnd* outcome, Rest* rest) {
  const bool known = executable.instance_ns() > 0;
  StatusOr<Lane*> lane = executable.lanes().Take();
  if (!lane.ok()) {
    outcome->status = lane.status();
    return true;
  }
  InstanceWorker worker(executable, launch, *lane);
  const bool probes = !known || instances >= kProbeFromInstances;
  const uint64_t first = !probes ? instances : std::max<uint64_t>(1, instances / (known ? 16 : 64));
  StatusOr<bool> ran = worker.Run(0, first, &outcome->trap);
  outcome->ticks = ticks.Now();
  if (first != instances && ran.ok() && *ran) {
    rest->begin = first;
    rest->unit_ns = static_cast<double>(outcome->ticks - start) * ticks.ns_per_tick() / static_cast<double>(first);
    if (rest->unit_ns * static_cast<double>(instances - first) >= kInlineNs) {
      return false;
    }
    ran = worker.Run(first, instances, &outcome->trap);
    outcome->ticks = ticks.Now();
  }
  outcome->status = ran.status();
  executable.Learn(static_cast<double>(outcome->ticks - start) * ticks.ns_per_tick(), instances);
  return true;
}

DispatchEnd RunInstances(CpuExecutable& executable, const CpuLaunch& launch, uint64_t instances, Pool& pool,
                         const Ticks& ticks, uint64_t start) {
  Rest rest{0, executable.instance_ns()};
  if (rest.unit_ns * static_cast<double>(instances) < kInlineNs) {
    DispatchEnd outcome;
    if (RunInline(executable, launch, instances, ticks, start, &outcome, &rest)) {
      return outcome;
    }
  }
  return Share(executable, launch, pool, ticks, rest.begin, instances, std::max(rest.unit_ns, 0.01), 1);
}

}  // namespace

DispatchEnd RunDispatch(CpuExecutable& executable, const CpuLaunch& launch, Pool& pool, const Ticks& ticks,
                        uint64_t start) {
  if (executable.has_groups()) {
    return RunGroups(executable, launch, pool, ticks);
  }
  return RunInstances(executable, launch, launch.extent[0] * launch.extent[1] * launch.extent[2], pool, ticks, start);
}

}  // namespace hpvm::cpu
