// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>

#include "backends/cpu/launch_run.h"

namespace hpvm::cpu {
namespace {

// Longer launches are measured slice by slice, shorter ones as a whole, because that is how they will run.
constexpr double kWholeNs = 50'000'000;
// Intended time of a sample of slices, and the slice time above which a corner of a slice is measured instead.
constexpr double kSampleNs = 2'000'000;
constexpr double kSliceNsMax = 10'000'000;
// Time for which one thread may measure while the others wait; at least the time that all of them together would take.
constexpr double kAloneNs = 20'000'000;

// A launch of a class that has not settled: parts of it, or all, are samples for the tuner, which this launch uses
// exclusively.
class MeasuredRun {
 public:
  MeasuredRun(const Dispatch& dispatch, backends::LaunchClass& launch_class, uint64_t start)
      : d_(dispatch),
        class_(launch_class),
        tuner_(launch_class.tuner),
        cut_(CutLaunch(dispatch, launch_class.mask)),
        work_(dispatch.executable, dispatch.launch, cut_.core, launch_class.mask),
        start_(start) {}

  DispatchEnd Run() {
    Status status = Measure();
    if (outcome_.status.ok()) {
      outcome_.status = std::move(status);
    }
    if (!are_edges_done_ && outcome_.status.ok() && outcome_.trap.code == ir::TrapCode::kNone) {
      outcome_ = RunEdges(d_, cut_);
    }
    outcome_.ticks = d_.ticks.Now();
    outcome_.variant = measured_whole_.value_or(tuner_.best());
    return std::move(outcome_);
  }

 private:
  static BoxCut CutLaunch(const Dispatch& d, backends::VariantMask mask) {
    if (d.launch.is_whole || d.executable.has_groups()) {
      const Box all{{}, d.launch.extent};
      return {all, {}};
    }
    return CutBox(d.launch.part, d.launch.extent, StepOf(d.executable.variants(), mask));
  }

  const Variant& VariantAt(uint32_t number) const { return d_.executable.variants()[number]; }
  // Time of the whole launch, and of its remainder, on one thread.
  double Whole(uint32_t variant) const { return tuner_.estimate(variant) * static_cast<double>(work_.instances()); }
  double Remaining(uint32_t variant) const {
    return tuner_.estimate(variant) * static_cast<double>(work_.SliceInstances(at_, work_.slices()));
  }

  // Returns true when such launches are samples as a whole. Once they are, they stay so: one thread in a slice that
  // fits in its caches is not comparable with all threads, which share the memory.
  bool IsMeasuredWhole() {
    if (!class_.is_measured_whole && Whole(tuner_.best()) <= kWholeNs) {
      class_.is_measured_whole = true;
      tuner_.StartOver();
    }
    return class_.is_measured_whole;
  }
  // Returns true when the variant to be measured may run a whole launch.
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
    are_edges_done_ = true;
    measured_whole_ = variant;
    if (instance_ns > 0) {
      const uint64_t instances = Instances(d_.launch);
      tuner_.AddSample(variant, instance_ns * static_cast<double>(instances), instances);
    }
    return absl::OkStatus();
  }

  // Measures on this thread alone. Returns false when the launch has ended.
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

  // Returns true when it is better to share the remainder, and measure in later launches.
  bool HasMeasuredEnough() const {
    const double all_threads_ns = Whole(tuner_.best()) / d_.pool.threads();
    return d_.pool.threads() > 1 && d_.NsSince(start_) > std::max(kAloneNs, all_threads_ns);
  }

  StatusOr<bool> MeasureSlices(Worker& worker) {
    while (at_ < work_.slices() && !tuner_.settled() && !HasMeasuredEnough()) {
      const bool is_whole = !tuner_.wants_glimpse() && IsMeasuredWhole();
      if (is_whole && !tuner_.wants_glimpse() && IsBearable()) {
        break;  // Later launches are samples.
      }
      // When the variant to be measured seems too slow for a whole launch, another glimpse decides.
      const bool is_glimpse = tuner_.wants_glimpse() || is_whole;
      HPVMD_ASSIGN_OR_RETURN(const bool done, is_glimpse ? MeasureCorner(worker, true) : MeasureSome(worker));
      if (!done || !MayGoOn()) {
        return false;
      }
    }
    return true;
  }

  // Between parts: the launch may have been stopped, or others may need the processor.
  bool MayGoOn() {
    if (d_.launch.stop->load(std::memory_order_relaxed) == 0 &&
        (d_.pool.Granted() || d_.pool.WaitForGrant(d_.launch.stop))) {
      return true;
    }
    outcome_.trap.code = ir::TrapCode::kStopped;
    return false;
  }

  // Runs a corner of one slice by the variant to be measured, the rest of the slice by the best.
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

  // Runs as many slices as a sample should take, by the variant to be measured.
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
  backends::LaunchClass& class_;
  backends::Tuner& tuner_;
  const BoxCut cut_;
  const Work work_;
  const uint64_t start_;
  uint64_t at_ = 0;  // Number of slices that have run.
  bool are_edges_done_ = false;  // The edges of a part.
  // The variant that ran the whole launch.
  std::optional<uint32_t> measured_whole_;
  DispatchEnd outcome_;
};

// A part so narrow that not every variant has a whole tile in it cannot be compared.
bool IsAllEdge(const Dispatch& d, backends::VariantMask mask) {
  const backends::Extent step = StepOf(d.executable.variants(), mask);
  return CutBox(d.launch.part, d.launch.extent, step).core.instances() == 0;
}

}  // namespace

DispatchEnd RunMeasured(const Dispatch& d, backends::LaunchClass& launch_class, uint64_t start) {
  if (!d.launch.is_whole && !d.executable.has_groups() && IsAllEdge(d, launch_class.mask)) {
    double instance_ns = 0;
    return RunAll(d, d.executable.variants()[launch_class.tuner.best()], 0, start, &instance_ns);
  }
  return MeasuredRun(d, launch_class, start).Run();
}

}  // namespace hpvm::cpu
