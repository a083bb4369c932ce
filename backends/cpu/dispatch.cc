// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/dispatch.h"

#include <algorithm>
#include <mutex>

#include "backends/cpu/worker.h"

namespace hpvm::cpu {
namespace {

// Below this many instances a dispatch that is expected to be short is not looked at in between.
constexpr uint64_t kProbeFromInstances = 64;
// Chunks of instances are multiples of this where they are longer.
constexpr uint64_t kChunkMultiple = 64;

// One dispatch on its way. Everything is borrowed.
struct Dispatch {
  CpuExecutable& executable;
  const CpuLaunch& launch;
  Pool& pool;
  const Ticks& ticks;

  double NsSince(uint64_t start) const { return static_cast<double>(ticks.Now() - start) * ticks.ns_per_tick(); }
};

// A part of a dispatch: what is counted, and about how long one of it takes.
struct Range {
  const Variant* variant = nullptr;
  const Work* work = nullptr;  // Slices of it; null: units of the variant, or groups.
  uint64_t begin = 0, end = 0;
  double unit_ns = 1;
};

// A part that the pool shares.
class SharedPart final : public PoolBody {
 public:
  SharedPart(const Dispatch& dispatch, const Range& range) : d_(dispatch), range_(range) {}

  void Work(Chunks& chunks) override {
    uint64_t begin, end;
    if (!chunks.Next(&begin, &end)) {
      return;
    }
    // The status is kept aside, as a participant has nobody to return it to.
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

// Shares the range over the pool. `busy_ns` receives what all participants took together, 0 when not all of it ran.
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

// Runs the range on the submitting thread, as long as that looks like the quicker way. True when the dispatch is over;
// else the range is what is left, with what a unit of it takes.
bool RunInline(const Dispatch& d, uint64_t start, uint64_t instances, bool is_known, Range* range, DispatchEnd* outcome,
               double* busy_ns) {
  StatusOr<Lane*> lane = d.executable.lanes().Take();
  if (!lane.ok()) {
    outcome->status = lane.status();
    return true;
  }
  InstanceWorker worker(d.executable, d.launch, *lane);
  const uint64_t units = range->end;
  const bool probes = !is_known || instances >= kProbeFromInstances;
  const uint64_t first = !probes ? units : std::max<uint64_t>(1, units / (is_known ? 16 : 64));
  StatusOr<bool> ran = worker.Run(*range->variant, 0, first, &outcome->trap);
  outcome->ticks = d.ticks.Now();
  if (first != units && ran.ok() && *ran) {
    range->begin = first;
    range->unit_ns = static_cast<double>(outcome->ticks - start) * d.ticks.ns_per_tick() / static_cast<double>(first);
    if (range->unit_ns * static_cast<double>(units - first) >= kInlineNs) {
      range->unit_ns = std::max(range->unit_ns, 0.01);
      return false;
    }
    ran = worker.Run(*range->variant, first, units, &outcome->trap);
    outcome->ticks = d.ticks.Now();
  }
  outcome->status = ran.status();
  *busy_ns = static_cast<double>(outcome->ticks - start) * d.ticks.ns_per_tick();
  return true;
}

uint64_t Instances(const CpuLaunch& launch) { return launch.extent[0] * launch.extent[1] * launch.extent[2]; }

// Runs all of the launch by one variant, of which an instance takes about `instance_ns`; 0: unknown. `instance_ns_now`
// receives what one took, or 0.
DispatchEnd RunAll(const Dispatch& d, const Variant& variant, double instance_ns, uint64_t start,
                   double* instance_ns_now) {
  const uint64_t instances = Instances(d.launch);
  double busy_ns = 0;
  uint64_t counted = instances;
  DispatchEnd outcome;
  Range range;
  range.variant = &variant;
  if (d.executable.has_groups()) {
    const Extent& group = d.launch.group;
    const auto group_instances = static_cast<double>(group[0] * group[1] * group[2]);
    range.end = GroupCount(d.launch);
    // Unknown: as if each group were worth a chunk.
    range.unit_ns = instance_ns > 0 ? instance_ns * group_instances : kChunkNsMin;
    outcome = Share(d, range, &busy_ns);
  } else {
    range.end = UnitCount(variant, d.launch.extent);
    range.unit_ns = instance_ns * static_cast<double>(instances) / static_cast<double>(range.end);
    const bool is_short = instance_ns * static_cast<double>(instances) < kInlineNs;
    if (!is_short || !RunInline(d, start, instances, instance_ns > 0, &range, &outcome, &busy_ns)) {
      range.unit_ns = std::max(range.unit_ns, 0.01);
      counted = instances / range.end * (range.end - range.begin);
      outcome = Share(d, range, &busy_ns);
    }
  }
  const bool is_whole = outcome.status.ok() && outcome.trap.code == ir::TrapCode::kNone && counted != 0;
  *instance_ns_now = is_whole ? busy_ns / static_cast<double>(counted) : 0;
  return outcome;
}

// Launches that take longer are measured slice by slice, shorter ones as a whole: that is how they will run.
constexpr double kWholeNs = 50'000'000;
// What a sample of slices should take, and from where on a corner of a slice must do.
constexpr double kSampleNs = 2'000'000;
constexpr double kSliceNsMax = 10'000'000;

// A launch of a class that has not settled: parts of it, or all, are samples for the tuner, which this one has to
// itself.
class MeasuredRun {
 public:
  MeasuredRun(const Dispatch& dispatch, LaunchClass& launch_class, uint64_t start)
      : d_(dispatch),
        class_(launch_class),
        tuner_(launch_class.tuner),
        work_(dispatch.executable, dispatch.launch, launch_class.mask),
        start_(start) {}

  DispatchEnd Run() {
    Status status = Measure();
    if (outcome_.status.ok()) {
      outcome_.status = std::move(status);
    }
    outcome_.ticks = d_.ticks.Now();
    return std::move(outcome_);
  }

 private:
  const Variant& VariantAt(uint32_t number) const { return d_.executable.variants()[number]; }
  // What all of the launch would take, and what is left of it, on one thread.
  double Whole(uint32_t variant) const { return tuner_.estimate(variant) * static_cast<double>(Instances(d_.launch)); }
  double Remaining(uint32_t variant) const {
    return tuner_.estimate(variant) * static_cast<double>(work_.SliceInstances(at_, work_.slices()));
  }

  // Whether launches like this are samples as a whole. Once they are, they stay so: one thread in a slice that fits its
  // caches is not to be compared with all threads, which share the memory.
  bool IsMeasuredWhole() {
    if (!class_.is_measured_whole && Whole(tuner_.best()) <= kWholeNs) {
      class_.is_measured_whole = true;
      tuner_.StartOver();
    }
    return class_.is_measured_whole;
  }
  // Whether the one to measure may have all of a launch.
  bool IsBearable() const { return Whole(tuner_.next()) <= 4 * std::max(kWholeNs, Whole(tuner_.best())); }

  Status Measure() {
    if (!tuner_.wants_glimpse() && IsMeasuredWhole() && !tuner_.wants_glimpse() && IsBearable()) {
      return MeasureWhole();
    }
    HPVMD_ASSIGN_OR_RETURN(const bool goes_on, MeasureSlices());
    return goes_on && at_ < work_.slices() ? RunRemaining() : absl::OkStatus();
  }

  Status MeasureWhole() {
    const uint32_t variant = tuner_.next();
    double instance_ns = 0;
    outcome_ = RunAll(d_, VariantAt(variant), tuner_.estimate(variant), start_, &instance_ns);
    if (instance_ns > 0) {
      const uint64_t instances = Instances(d_.launch);
      tuner_.AddSample(variant, instance_ns * static_cast<double>(instances), instances);
    }
    return absl::OkStatus();
  }

  // On this thread alone. False when the launch has ended.
  StatusOr<bool> MeasureSlices() {
    if (d_.executable.has_groups()) {
      HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<GroupRunner> runner, d_.executable.TakeGroupRunner());
      GroupWorker worker(d_.executable, d_.launch, std::move(runner));
      return MeasureSlices(worker);
    }
    HPVMD_ASSIGN_OR_RETURN(Lane * lane, d_.executable.lanes().Take());
    InstanceWorker worker(d_.executable, d_.launch, lane);
    return MeasureSlices(worker);
  }

  StatusOr<bool> MeasureSlices(Worker& worker) {
    while (at_ < work_.slices() && !tuner_.settled()) {
      const bool is_whole = !tuner_.wants_glimpse() && IsMeasuredWhole();
      if (is_whole && !tuner_.wants_glimpse() && IsBearable()) {
        break;  // Later launches are samples.
      }
      // Where the one to measure looks too slow for a launch, another look tells.
      const bool is_glimpse = tuner_.wants_glimpse() || is_whole;
      HPVMD_ASSIGN_OR_RETURN(const bool done, is_glimpse ? MeasureCorner(worker, true) : MeasureSome(worker));
      if (!done || !MayGoOn()) {
        return false;
      }
    }
    return true;
  }

  // Between parts: the launch may have been stopped, or others may want the processor.
  bool MayGoOn() {
    if (d_.launch.stop->load(std::memory_order_relaxed) == 0 &&
        (d_.pool.Granted() || d_.pool.WaitForGrant(d_.launch.stop))) {
      return true;
    }
    outcome_.trap.code = ir::TrapCode::kStopped;
    return false;
  }

  // A corner of one slice by the variant to measure, the rest of it by the best.
  StatusOr<bool> MeasureCorner(Worker& worker, bool is_glimpse) {
    const uint32_t variant = tuner_.next();
    const uint64_t instances = work_.CornerInstances(at_);
    const uint64_t start = d_.ticks.Now();
    HPVMD_ASSIGN_OR_RETURN(bool done, work_.RunCorner(worker, VariantAt(variant), at_, &outcome_.trap));
    const double ns = d_.NsSince(start);
    if (done && is_glimpse) {
      tuner_.AddGlimpse(variant, ns, instances);
    } else if (done) {
      tuner_.AddSample(variant, ns, instances);
    }
    if (done) {
      HPVMD_ASSIGN_OR_RETURN(done, work_.RunRest(worker, VariantAt(tuner_.best()), at_++, &outcome_.trap));
    }
    return done;
  }

  // As many slices as a sample should take, by the variant to measure.
  StatusOr<bool> MeasureSome(Worker& worker) {
    const uint32_t variant = tuner_.next();
    const double slice_ns = tuner_.estimate(variant) * static_cast<double>(work_.SliceInstances(at_, at_ + 1));
    if (slice_ns > kSliceNsMax) {
      return MeasureCorner(worker, false);
    }
    const auto wanted = static_cast<uint64_t>(std::clamp(kSampleNs / slice_ns, 1.0, 1e9));
    const uint64_t end = at_ + std::min(work_.slices() - at_, wanted);
    const uint64_t start = d_.ticks.Now();
    HPVMD_ASSIGN_OR_RETURN(const bool done, work_.RunSlices(worker, VariantAt(variant), at_, end, &outcome_.trap));
    if (done) {
      tuner_.AddSample(variant, d_.NsSince(start), work_.SliceInstances(at_, end));
      at_ = end;
    }
    return done;
  }

  Status RunRemaining() {
    Range range;
    range.variant = &VariantAt(tuner_.best());
    range.work = &work_;
    range.begin = at_;
    range.end = work_.slices();
    range.unit_ns = std::max(Remaining(tuner_.best()) / static_cast<double>(range.end - range.begin), 0.01);
    double busy_ns = 0;
    outcome_ = Share(d_, range, &busy_ns);
    return absl::OkStatus();
  }

  const Dispatch& d_;
  LaunchClass& class_;
  Tuner& tuner_;
  const Work work_;
  const uint64_t start_;
  uint64_t at_ = 0;  // Slices before it have run.
  DispatchEnd outcome_;
};

DispatchEnd RunMeasured(const Dispatch& d, LaunchClass& launch_class, uint64_t start) {
  std::unique_lock lock(launch_class.mutex, std::try_to_lock);
  if (!lock.owns_lock() || launch_class.tuner.settled()) {
    double instance_ns = 0;
    return RunAll(d, d.executable.variants()[launch_class.favourite.load(std::memory_order_relaxed)], 0, start,
                  &instance_ns);
  }
  DispatchEnd outcome = MeasuredRun(d, launch_class, start).Run();
  const bool is_new = launch_class.Publish();
  lock.unlock();
  if (is_new) {
    d.executable.KeepLearnt();
  }
  return outcome;
}

}  // namespace

DispatchEnd RunDispatch(CpuExecutable& executable, const CpuLaunch& launch, Pool& pool, const Ticks& ticks,
                        uint64_t start) {
  const Dispatch dispatch{executable, launch, pool, ticks};
  LaunchClass& launch_class = executable.ClassOf(launch);
  const uint32_t winner = launch_class.winner.load(std::memory_order_acquire);
  if (winner == LaunchClass::kUnsettled) [[unlikely]] {
    return RunMeasured(dispatch, launch_class, start);
  }
  double instance_ns = 0;
  DispatchEnd outcome =
      RunAll(dispatch, executable.variants()[winner], launch_class.instance_ns(), start, &instance_ns);
  if (instance_ns > 0) {
    launch_class.Learn(instance_ns);
  }
  return outcome;
}

}  // namespace hpvm::cpu
