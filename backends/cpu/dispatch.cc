// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/dispatch.h"

#include <algorithm>
#include <mutex>

#include "backends/cpu/launch_run.h"

namespace hpvm::cpu {
namespace {

// Below this number of instances, a dispatch that is expected to be short is not probed.
constexpr uint64_t kProbeFromInstances = 64;

// Runs the range on the submitting thread, as long as that seems faster. Returns true when the dispatch is over;
// otherwise the range is the remainder, with the time per unit.
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

bool IsDone(const DispatchEnd& end) { return end.status.ok() && end.trap.code == ir::TrapCode::kNone; }

// Runs a box of whole tiles of the variant, or any box one instance at a time.
DispatchEnd RunBox(const Dispatch& d, const Box& box, const Variant& variant, double instance_ns, double* busy_ns) {
  const auto number = static_cast<uint32_t>(&variant - d.executable.variants().data());
  const Work work(d.executable, d.launch, box, backends::VariantMask{1} << number);
  Range range;
  range.variant = &variant;
  range.work = &work;
  range.end = work.slices();
  // Unknown: assume that each slice is worth a chunk.
  const double slice_ns = instance_ns * static_cast<double>(box.instances()) / static_cast<double>(range.end);
  range.unit_ns = instance_ns > 0 ? std::max(slice_ns, 0.01) : kChunkNsMin;
  return Share(d, range, busy_ns);
}

// Like RunAll, for a part of a launch without groups.
DispatchEnd RunPart(const Dispatch& d, const Variant& variant, double instance_ns, double* instance_ns_now) {
  const backends::Extent step{variant.width(), variant.height(), 1};
  const BoxCut cut = CutBox(d.launch.part, d.launch.extent, step);
  *instance_ns_now = 0;
  DispatchEnd outcome;
  if (cut.core.instances() != 0) {
    double busy_ns = 0;
    outcome = RunBox(d, cut.core, variant, instance_ns, &busy_ns);
    *instance_ns_now = IsDone(outcome) ? busy_ns / static_cast<double>(cut.core.instances()) : 0;
  }
  return IsDone(outcome) ? RunEdges(d, cut) : outcome;
}

}  // namespace

DispatchEnd RunEdges(const Dispatch& d, const BoxCut& cut) {
  DispatchEnd outcome;
  for (const Box& edge : cut.edges) {
    if (edge.instances() != 0 && IsDone(outcome)) {
      double busy_ns = 0;
      outcome = RunBox(d, edge, d.executable.variants().back(), 0, &busy_ns);
    }
  }
  outcome.ticks = d.ticks.Now();
  return outcome;
}

DispatchEnd RunAll(const Dispatch& d, const Variant& variant, double instance_ns, uint64_t start,
                   double* instance_ns_now) {
  const uint64_t instances = Instances(d.launch);
  double busy_ns = 0;
  uint64_t counted = instances;
  DispatchEnd outcome;
  Range range;
  range.variant = &variant;
  if (d.executable.has_groups()) {
    const backends::Extent& group = d.launch.group;
    const auto group_instances = static_cast<double>(group[0] * group[1] * group[2]);
    range.end = GroupCount(d.launch);
    // Unknown: assume that each group is worth a chunk.
    range.unit_ns = instance_ns > 0 ? instance_ns * group_instances : kChunkNsMin;
    outcome = Share(d, range, &busy_ns);
  } else if (!d.launch.is_whole) [[unlikely]] {
    return RunPart(d, variant, instance_ns, instance_ns_now);
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
  *instance_ns_now = IsDone(outcome) && counted != 0 ? busy_ns / static_cast<double>(counted) : 0;
  return outcome;
}

namespace {

DispatchEnd RunUnsettled(const Dispatch& d, backends::LaunchClass& launch_class, uint64_t start) {
  std::unique_lock lock(launch_class.mutex, std::try_to_lock);
  if (!lock.owns_lock() || launch_class.tuner.settled()) {
    double instance_ns = 0;
    const uint32_t favourite = launch_class.favourite.load(std::memory_order_relaxed);
    DispatchEnd outcome = RunAll(d, d.executable.variants()[favourite], 0, start, &instance_ns);
    outcome.variant = favourite;
    outcome.is_settled = false;
    return outcome;
  }
  DispatchEnd outcome = RunMeasured(d, launch_class, start);
  outcome.is_settled = false;
  const bool is_new = launch_class.Publish();
  lock.unlock();
  if (is_new) {
    d.executable.KeepTuning();
  }
  return outcome;
}

}  // namespace

DispatchEnd RunDispatch(CpuExecutable& executable, const CpuLaunch& launch, Pool& pool, const backends::Ticks& ticks,
                        uint64_t start) {
  const Dispatch dispatch{executable, launch, pool, ticks};
  backends::LaunchClass& launch_class = executable.ClassOf(launch);
  const uint32_t winner = launch_class.winner.load(std::memory_order_acquire);
  if (winner == backends::LaunchClass::kUnsettled) [[unlikely]] {
    return RunUnsettled(dispatch, launch_class, start);
  }
  double instance_ns = 0;
  DispatchEnd outcome =
      RunAll(dispatch, executable.variants()[winner], launch_class.instance_ns(), start, &instance_ns);
  outcome.variant = winner;
  if (instance_ns > 0) {
    launch_class.Learn(instance_ns);
  }
  return outcome;
}

}  // namespace hpvm::cpu
