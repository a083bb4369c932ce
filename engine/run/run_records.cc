// SPDX-License-Identifier: Apache-2.0
#include "engine/run/run_records.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "compiler/api/source_text.h"
#include "compiler/api/variant_text.h"
#include "compiler/ir/loops_cut.h"

namespace hpvm::engine {
namespace {

const graph::FlatNode& NodeOf(const Plan& plan, const scheduler::Task& task) {
  return plan.flat.nodes[task.node.index];
}

// For a part: records its range of instances along the slowest dimension that was cut.
void SetPart(const Plan& plan, const scheduler::Task& task, NodeRecord* record) {
  for (size_t d = 0; task.is_part && d < 3; ++d) {
    if (task.box.count[d] != NodeOf(plan, task).extent[d]) {
      record->first = task.box.first[d];
      record->count = task.box.count[d];
    }
  }
}

// For failures whose node the device does not know: names the nodes that it ran.
Status NameSegment(const Plan& plan, const StageFailure& failure) {
  const PlanSegment& segment = *failure.segment;
  return While(failure.status, segment.note.empty()
                                   ? "running on device " + plan.devices[plan.queues[segment.queue].device]->info().id
                                   : "running " + segment.note);
}

}  // namespace

void CountTime(const Plan& plan, std::span<const NodeTiming> timings, std::span<TaskTotal> totals,
               std::vector<Duration>* device_time) {
  for (size_t i = 0; i < timings.size(); ++i) {
    const int64_t took = std::max<int64_t>(timings[i].end_ns - timings[i].start_ns, 0);
    (*device_time)[plan.tasks[i].device] += Duration(took);
    totals[i].ns += took;
    totals[i].runs += timings[i].end_ns != 0 ? 1 : 0;
  }
}

void AddRecords(const PreparedGraph& graph, Plan& plan, std::span<const NodeTiming> timings,
                std::span<const TaskTotal> totals, Time run_start, size_t records_max,
                const std::vector<bool>* is_wanted, std::vector<NodeRecord>* records) {
  const size_t count = std::min<size_t>(plan.tasks.size(), records_max);
  for (size_t i = plan.paths.size(); i < count; ++i) {
    plan.paths.push_back(graph::PathOf(graph.graph, NodeOf(plan, plan.tasks[i])));
  }
  // Nodes without instances have no times.
  int64_t base = run_start.count();
  for (size_t i = 0; i < count; ++i) {
    if (timings[i].end_ns != 0) {
      base = std::min(base, timings[i].start_ns);
    }
  }
  records->reserve(std::min(records_max, records->size() + count));
  for (size_t i = 0; i < count && records->size() < records_max; ++i) {
    const scheduler::Task& task = plan.tasks[i];
    if (is_wanted != nullptr && !(*is_wanted)[task.node.index]) {
      continue;
    }
    const bool ran = timings[i].end_ns != 0;
    NodeRecord& record = records->emplace_back();
    record.path = plan.paths[i];
    record.device = plan.devices[task.device]->info().id;
    record.start_ns = ran ? timings[i].start_ns - base : 0;
    record.end_ns = ran ? timings[i].end_ns - base : 0;
    record.total_ns = totals.empty() ? record.end_ns - record.start_ns : totals[i].ns;
    record.runs = totals.empty() ? (ran ? 1 : 0) : totals[i].runs;
    const Artifact& artifact = ExecutableOf(graph, plan, static_cast<uint32_t>(i)).artifact();
    record.variant = ran ? VariantText(artifact, timings[i].variant) : "";
    record.fast_math = artifact.fast_math;
    record.is_estimate = task.is_estimate;
    record.whole = scheduler::Name(task.whole);
    SetPart(plan, task, &record);
  }
}

std::string PathOfTask(const PreparedGraph& graph, const Plan& plan, uint32_t task) {
  return task < plan.tasks.size() ? graph::PathOf(graph.graph, NodeOf(plan, plan.tasks[task])) : std::string();
}

void FillLog(const PreparedGraph& graph, const Plan& plan, LaunchLog& said, RunLog* log) {
  const auto path = [&](uint32_t task) { return PathOfTask(graph, plan, task); };
  uint32_t task = std::numeric_limits<uint32_t>::max();
  std::string task_path;
  for (PrintedLine& line : said.TakeLines()) {
    if (line.node != task) {
      task = line.node;
      task_path = path(task);
    }
    log->lines.push_back({task_path, line.instance, std::move(line.text)});
  }
  for (Finding& finding : said.TakeFindings()) {
    log->findings.push_back({path(finding.node), std::move(finding)});
  }
  log->lines_dropped = said.dropped();
  log->findings_dropped = said.findings_dropped();
  log->check_incomplete = said.check_incomplete();
}

Status Explain(const PreparedGraph& graph, const Plan& plan, const StageFailure& failure, const Status& stopped) {
  if (failure.segment == nullptr) {
    return failure.status;
  }
  const uint32_t index = failure.failure.node;
  const Status& why = absl::IsCancelled(failure.status) && !stopped.ok() ? stopped : failure.status;
  if (index >= plan.tasks.size()) {
    return absl::IsCancelled(failure.status) ? why : NameSegment(plan, failure);
  }
  const scheduler::Task& task = plan.tasks[index];
  const std::string node = "node \"" + graph::PathOf(graph.graph, NodeOf(plan, task)) + "\"";
  if (absl::IsCancelled(failure.status)) {
    return While(why, "running " + node);
  }
  const ir::TrapReport& trap = failure.failure.trap;
  if (trap.code == ir::TrapCode::kNone || trap.code == ir::TrapCode::kStopped) {
    return While(failure.status, "running " + node + " on device " + plan.devices[task.device]->info().id);
  }
  const DeviceInfo& device = plan.devices[task.device]->info();
  if (trap.code == ir::kLoopsCut) {
    return FailedPrecondition("N" + node.substr(1) + " cannot run on device " + device.id +
                              ": its driver ends the loops of instances that run side by side after " +
                              std::to_string(ir::kLlvmpipeLoopRounds) +
                              " iterations in all, and this launch needs more. Run the node on another device.");
  }
  return Aborted("N" + node.substr(1) + " trapped: " + DescribeTrap(trap, ExecutableOf(graph, plan, index).artifact()) +
                 ".");
}

}  // namespace hpvm::engine
