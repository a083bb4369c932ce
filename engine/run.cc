// SPDX-License-Identifier: Apache-2.0
// One run of a prepared graph: check the bindings, find or build the plan, put the caller's memory into its tables,
// submit its segments.
#include <algorithm>
#include <deque>
#include <limits>
#include <utility>

#include "compiler/debug/place.h"
#include "engine/bindings.h"
#include "engine/engine.h"
#include "engine/prepared_graph.h"
#include "engine/run_note.h"

namespace hpvm {
namespace {

// How often a waiting host looks at the stop word, which nobody signals.
constexpr Duration kStopPoll = std::chrono::milliseconds(2);

const std::atomic<uint32_t> kNoStop{0};

class Runner {
 public:
  Runner(const EngineOptions& options, PreparedGraph& graph, const RunRequest& request)
      : options_(options), graph_(graph), request_(request), stop_(request.stop == nullptr ? kNoStop : *request.stop) {}
  ~Runner() {
    if (has_entered_) {
      {
        std::lock_guard lock(graph_.mutex);
        graph_.is_running = false;
      }
      graph_.idle.notify_one();
    }
  }
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  StatusOr<RunResult> Run() {
    start_ = options_.clock->Now();
    if (request_.repeat == 0) {
      return InvalidArgument("Repeat count (0) must be at least 1.");
    }
    HPVMD_RETURN_IF_ERROR(Enter());
    HPVMD_RETURN_IF_ERROR(Bind());
    const Time run_start = options_.clock->Now();
    result_.bind = run_start - start_;
    for (uint32_t i = 0; i < request_.repeat; ++i) {
      log_.SetRepetition(i);
      if (Status status = RunOnce(); !status.ok()) {
        FillLog();
        // Failed timelines stay failed; the next run needs new ones.
        HPVMD_RETURN_IF_ERROR(ResetTimelines(*plan_));
        return status;
      }
      CountDeviceTime();
    }
    result_.run = options_.clock->Now() - run_start;
    for (Duration& time : result_.device_time) {
      time = std::min(time, result_.run);
    }
    result_.nodes_run = uint64_t{plan_->flat.nodes.size()} * request_.repeat;
    Record(run_start);
    FillLog();
    return std::move(result_);
  }

 private:
  // Waits for earlier runs of this graph, which may be long: a stop or the deadline ends the wait.
  Status Enter() {
    std::unique_lock lock(graph_.mutex);
    HPVMD_RETURN_IF_ERROR(CheckTime());
    while (graph_.is_running) {
      graph_.idle.wait_for(lock, kStopPoll);
      HPVMD_RETURN_IF_ERROR(CheckTime());
    }
    graph_.is_running = true;
    has_entered_ = true;
    return absl::OkStatus();
  }

  Status CheckTime() const {
    if (stop_.load(std::memory_order_relaxed) != 0) {
      return options_.clock->Now() >= request_.deadline ? DeadlineExceeded("The run's deadline has passed.")
                                                        : Cancelled("The run was cancelled.");
    }
    return request_.deadline != kNever && options_.clock->Now() >= request_.deadline
               ? DeadlineExceeded("The run's deadline has passed.")
               : absl::OkStatus();
  }

  Status Bind() {
    ports_.resize(root().ports.size());
    HPVMD_RETURN_IF_ERROR(BindInputs(root(), request_.inputs, BindData::kRequired, ports_));
    HPVMD_RETURN_IF_ERROR(FindPlan());
    HPVMD_RETURN_IF_ERROR(BindOutputs());
    HPVMD_RETURN_IF_ERROR(CheckOverlaps(root(), ports_));
    HPVMD_RETURN_IF_ERROR(Import());
    for (const ScalarSource& source : plan_->scalar_sources) {
      HPVMD_ASSIGN_OR_RETURN(plan_->scalars[source.slot],
                             ScalarBits(root().ports[source.port], *ports_[source.port], source.type));
    }
    return absl::OkStatus();
  }

  const graph::Node& root() const { return graph_.graph.node(graph_.graph.root()); }

  // The plan for these sizes goes to the front of the list; a new one pushes out the one used longest ago.
  Status FindPlan() {
    auto& plans = graph_.plans;
    auto same_request = [&](const std::unique_ptr<Plan>& plan) { return IsSameRequest(*plan); };
    auto it = std::find_if(plans.begin(), plans.end(), same_request);
    if (it == plans.end()) {
      HPVMD_ASSIGN_OR_RETURN(graph::SymbolValues symbols, SolveSymbols(graph_.graph, ports_, request_.symbols));
      it = std::find_if(plans.begin(), plans.end(),
                        [&](const std::unique_ptr<Plan>& plan) { return plan->symbols == symbols; });
      if (it == plans.end()) {
        MakeRoom();
        StatusOr<std::unique_ptr<Plan>> plan = BuildPlan(graph_, {.symbols = symbols});
        if (!plan.ok() && absl::IsResourceExhausted(plan.status()) && !plans.empty()) {
          plans.clear();  // Their memory may be what is missing.
          plan = BuildPlan(graph_, {.symbols = std::move(symbols)});
        }
        if (!plan.ok() && request_.shortage != nullptr) {
          *request_.shortage = graph_.shortage;
        }
        HPVMD_RETURN_IF_ERROR(plan.status());
        it = plans.insert(plans.begin(), *std::move(plan));
      }
      Remember(**it);
    }
    std::rotate(plans.begin(), it, it + 1);
    plan_ = plans.front().get();
    return absl::OkStatus();
  }

  bool IsSameRequest(const Plan& plan) const {
    if (plan.given != request_.symbols) {
      return false;
    }
    for (uint32_t port = 0; port < ports_.size(); ++port) {
      if (root().ports[port].access == graph::Access::kIn && plan.input_shapes[port] != ports_[port]->shape) {
        return false;
      }
    }
    return true;
  }

  void Remember(Plan& plan) const {
    plan.given = request_.symbols;
    plan.input_shapes.assign(ports_.size(), {});
    for (uint32_t port = 0; port < ports_.size(); ++port) {
      if (root().ports[port].access == graph::Access::kIn) {
        plan.input_shapes[port] = ports_[port]->shape;
      }
    }
  }

  // Keeps the number of plans in bounds, and their memory to a quarter of what the smallest host device has.
  void MakeRoom() const {
    auto& plans = graph_.plans;
    uint64_t memory = std::numeric_limits<uint64_t>::max();
    for (const Device* device : graph_.devices) {
      if (device->info().host_visible && device->info().memory_bytes != 0) {
        memory = std::min(memory, device->info().memory_bytes);
      }
    }
    uint64_t held = 0;
    for (const std::unique_ptr<Plan>& plan : plans) {
      held += plan->temporary_bytes;
    }
    while (!plans.empty() && (plans.size() >= kPlansMax || held > memory / 4)) {
      held -= plans.back()->temporary_bytes;
      plans.pop_back();
    }
  }

  Status BindOutputs() {
    HPVMD_RETURN_IF_ERROR(CheckOutputNames(root(), request_.outputs));
    for (uint32_t port = 0; port < ports_.size(); ++port) {
      const graph::Port& p = root().ports[port];
      if (p.access == graph::Access::kIn) {
        continue;
      }
      const graph::FlatValue& value = plan_->flat.values[plan_->flat.outputs[port].index];
      auto bound = request_.outputs.find(p.name);
      Binding binding;
      if (bound != request_.outputs.end()) {
        HPVMD_RETURN_IF_ERROR(CheckOutput(p, value, bound->second));
        binding = bound->second;
      } else if (request_.allocate_output) {
        binding = {.type = value.type, .shape = value.shape, .data = nullptr, .bytes = value.bytes};
        StatusOr<uint8_t*> data = request_.allocate_output(p.name, value.type, value.shape, value.bytes);
        if (!data.ok()) {
          return While(data.status(),
                       "allocating output \"" + p.name + "\" (" + std::to_string(value.bytes) + " bytes)");
        }
        binding.data = *data;
      } else {
        return InvalidArgument("Output \"" + p.name + "\" (" + std::to_string(value.bytes) + " bytes) is not bound.");
      }
      if (binding.data == nullptr && value.bytes > 0) {
        return InvalidArgument("Output \"" + p.name + "\" (" + std::to_string(value.bytes) +
                               " bytes) is bound to no memory.");
      }
      ports_[port] = &result_.outputs.emplace(p.name, std::move(binding)).first->second;
    }
    return absl::OkStatus();
  }

  // Puts the caller's memory into the tables. Memory that is the same as in the last run is still in place.
  Status Import() {
    for (PortImport& import : plan_->imports) {
      const Binding& binding = *ports_[import.port];
      if (import.buffer != nullptr && import.data == binding.data) {
        continue;
      }
      Device& device = *plan_->devices[import.device];
      if (!device.info().host_visible) {
        import.buffer = MakeHostView(binding.data, import.bytes);
      } else {
        // An empty tensor has no memory to import.
        StatusOr<std::unique_ptr<Buffer>> buffer =
            device.Allocate({.bytes = import.bytes, .import = import.bytes == 0 ? nullptr : binding.data});
        if (!buffer.ok()) {
          return While(buffer.status(),
                       "importing port \"" + root().ports[import.port].name + "\" on device " + device.info().id);
        }
        import.buffer = *std::move(buffer);
      }
      import.data = binding.data;
      plan_->buffers[import.device][import.slot] = import.buffer.get();
    }
    return absl::OkStatus();
  }

  Status RunOnce() {
    HPVMD_RETURN_IF_ERROR(CheckTime());
    points_.clear();
    note_.Clear();
    submitted_.assign(plan_->queues.size(), 0);
    Status status = absl::OkStatus();
    for (const PlanSegment& segment : plan_->segments) {
      status = SubmitSegment(segment);
      if (!status.ok()) {
        break;
      }
    }
    // Nothing may touch the caller's memory after Run returns, so what was submitted is awaited even after a failure.
    for (size_t i = 0; i < submitted_.size(); ++i) {
      PlanQueue& queue = plan_->queues[i];
      if (submitted_[i] > 0) {
        const Status settled = queue.timeline->Wait(queue.base + submitted_[i], kNever);
        status = status.ok() ? settled : status;
      }
      queue.base += plan_->body.steps[i];
    }
    return Explain(std::move(status));
  }

  Status SubmitSegment(const PlanSegment& segment) {
    HPVMD_RETURN_IF_ERROR(CheckTime());
    const PlanQueue& queue = plan_->queues[segment.queue];
    Device& device = *plan_->devices[queue.device];
    // Spans in a submission stay valid until its signals, so each segment in flight has its own points.
    SegmentPoints& points = points_.emplace_back();
    points.segment = &segment;
    for (const PlanWait& wait : segment.waits) {
      points.waits.push_back({plan_->queues[wait.queue].timeline.get(), plan_->queues[wait.queue].base + wait.value});
    }
    points.signal = {queue.timeline.get(), queue.base + segment.signal};
    if (device.info().runs_inline) {
      // An inline device runs on this thread only when its waits are reached; otherwise it would need a thread of its
      // own.
      for (const TimelinePoint& wait : points.waits) {
        HPVMD_RETURN_IF_ERROR(Await(wait));
      }
    }
    if (!segment.note.empty()) {
      note_.Add(segment.note);
    }
    HPVMD_RETURN_IF_ERROR(device.Submit({.waits = points.waits,
                                         .lane = queue.lane,
                                         .commands = &segment.commands,
                                         .buffers = plan_->buffers[queue.device],
                                         .scalars = plan_->scalars,
                                         .signals = {&points.signal, 1},
                                         .stop = &stop_,
                                         .timings = plan_->timings,
                                         .failure = &points.failure,
                                         .log = request_.log != nullptr ? &log_ : nullptr,
                                         .check = graph_.is_checked}));
    submitted_[segment.queue] = segment.signal;
    if (!device.info().runs_inline) {
      return absl::OkStatus();
    }
    HPVMD_RETURN_IF_ERROR(points.signal.timeline->Wait(points.signal.value, kNever));
    points_.pop_back();
    return absl::OkStatus();
  }

  // Until the point is reached or failed, or the run is stopped or late.
  Status Await(const TimelinePoint& point) const {
    while (true) {
      const StatusOr<size_t> settled =
          options_.hub->WaitAny({&point, 1}, std::min(request_.deadline, options_.clock->Now() + kStopPoll));
      if (settled.ok()) {
        return point.timeline->Wait(point.value, kNever);
      }
      HPVMD_RETURN_IF_ERROR(CheckTime());
    }
  }

  // The segment in which the failure began: upstream ones are submitted first. Null before any was.
  const PlanSegment* FailedSegment() const {
    const auto failed = std::find_if(points_.begin(), points_.end(), [](const SegmentPoints& points) {
      return Poll(points.signal) == PointState::kFailed;
    });
    return failed != points_.end() ? failed->segment : points_.empty() ? nullptr : points_.back().segment;
  }

  const Device& DeviceOf(const PlanSegment& segment) const {
    return *plan_->devices[plan_->queues[segment.queue].device];
  }

  void ReportLost() const {
    if (const PlanSegment* segment = FailedSegment(); segment != nullptr && request_.lost_devices != nullptr) {
      request_.lost_devices->push_back(DeviceOf(*segment).info().id);
    }
  }

  // For failures of which the device does not know the node: which ones it ran.
  Status NameSegment(Status status) const {
    const PlanSegment* segment = FailedSegment();
    if (segment == nullptr) {
      return status;
    }
    return While(std::move(status), segment->note.empty()
                                        ? "running on device " + DeviceOf(*segment).info().id
                                        : "running " + segment->note);
  }

  // Names the node that failed first, where a device said which.
  Status Explain(Status status) const {
    if (status.ok()) {
      return status;
    }
    const auto failed = std::find_if(points_.begin(), points_.end(), [&](const SegmentPoints& points) {
      return points.failure.node < plan_->tasks.size();
    });
    if (absl::IsUnavailable(status)) {
      ReportLost();
    }
    if (failed == points_.end()) {
      return absl::IsCancelled(status) ? CheckTime().ok() ? status : CheckTime() : NameSegment(std::move(status));
    }
    const uint32_t task = failed->failure.node;
    const std::string node = "node \"" + PathOf(task) + "\"";
    if (absl::IsCancelled(status)) {
      return While(CheckTime().ok() ? status : CheckTime(), "running " + node);
    }
    const ir::TrapReport& trap = failed->failure.trap;
    if (trap.code == ir::TrapCode::kNone || trap.code == ir::TrapCode::kStopped) {
      return While(std::move(status),
                   "running " + node + " on device " + plan_->devices[plan_->tasks[task].device]->info().id);
    }
    return Aborted("N" + node.substr(1) + " trapped: " + DescribeTrap(trap, ExecutableOf(graph_, *plan_, task).artifact()) +
                   ".");
  }

  std::string PathOf(uint32_t task) const {
    return graph::PathOf(graph_.graph, plan_->flat.nodes[plan_->tasks[task].node.index]);
  }

  // What the devices say that the nodes of this repetition took.
  void CountDeviceTime() {
    result_.device_time.resize(graph_.devices.size());
    for (size_t i = 0; i < plan_->timings.size(); ++i) {
      const NodeTiming& timing = plan_->timings[i];
      result_.device_time[plan_->tasks[i].device] += Duration(std::max<int64_t>(timing.end_ns - timing.start_ns, 0));
    }
  }

  void Record(Time run_start) {
    const size_t count = std::min<size_t>(plan_->tasks.size(), request_.node_records_max);
    for (size_t i = plan_->paths.size(); i < count; ++i) {
      plan_->paths.push_back(PathOf(static_cast<uint32_t>(i)));
    }
    // Nodes without instances have no times.
    int64_t base = run_start.count();
    for (size_t i = 0; i < count; ++i) {
      if (plan_->timings[i].end_ns != 0) {
        base = std::min(base, plan_->timings[i].start_ns);
      }
    }
    result_.nodes.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      const NodeTiming& timing = plan_->timings[i];
      const bool ran = timing.end_ns != 0;
      result_.nodes.push_back({.path = plan_->paths[i],
                               .device = plan_->devices[plan_->tasks[i].device]->info().id,
                               .start_ns = ran ? timing.start_ns - base : 0,
                               .end_ns = ran ? timing.end_ns - base : 0,
                               .fast_math = ExecutableOf(graph_, *plan_, static_cast<uint32_t>(i)).artifact().fast_math});
    }
  }

  // What the kernels said, by the paths of their nodes.
  void FillLog() {
    if (request_.log == nullptr) {
      return;
    }
    const auto path = [&](uint32_t node) {
      return node < plan_->tasks.size() ? PathOf(node) : std::string();
    };
    RunLog& log = *request_.log;
    uint32_t node = std::numeric_limits<uint32_t>::max();
    std::string node_path;
    for (PrintedLine& line : log_.TakeLines()) {
      if (line.node != node) {
        node = line.node;
        node_path = path(node);
      }
      log.lines.push_back({node_path, line.instance, std::move(line.text)});
    }
    for (Finding& finding : log_.TakeFindings()) {
      log.findings.push_back({path(finding.node), std::move(finding)});
    }
    log.lines_dropped = log_.dropped();
    log.findings_dropped = log_.findings_dropped();
    log.check_incomplete = log_.check_incomplete();
  }

  struct SegmentPoints {
    const PlanSegment* segment = nullptr;
    std::vector<TimelinePoint> waits;
    TimelinePoint signal;
    Failure failure;
  };

  const EngineOptions& options_;
  PreparedGraph& graph_;
  const RunRequest& request_;
  const std::atomic<uint32_t>& stop_;
  bool has_entered_ = false;
  Time start_{0};
  Plan* plan_ = nullptr;               // In graph_.plans.
  std::vector<const Binding*> ports_;  // By the root's port: in the request, or in result_.outputs.
  std::deque<SegmentPoints> points_;   // Of segments in flight, and of the one that failed.
  std::vector<uint64_t> submitted_;    // By queue: the last signal submitted in this repetition.
  LaunchLog log_;
  RunNote note_;
  RunResult result_;
};

}  // namespace

StatusOr<RunResult> Engine::Run(PreparedGraph& graph, const RunRequest& request) {
  return Runner(options_, graph, request).Run();
}

StatusOr<std::map<std::string, Binding>> Engine::OutputShapes(PreparedGraph& graph,
                                                              const std::map<std::string, Binding>& inputs,
                                                              const std::map<std::string, int64_t>& symbols) {
  const graph::Node& root = graph.graph.node(graph.graph.root());
  std::vector<const Binding*> ports(root.ports.size());
  HPVMD_RETURN_IF_ERROR(BindInputs(root, inputs, BindData::kOptional, ports));
  HPVMD_ASSIGN_OR_RETURN(const graph::SymbolValues values, SolveSymbols(graph.graph, ports, symbols));
  std::map<std::string, Binding> outputs;
  for (const graph::Port& port : root.ports) {
    if (port.access != graph::Access::kIn) {
      HPVMD_ASSIGN_OR_RETURN(outputs[port.name], ShapeOf(port, values));
    }
  }
  return outputs;
}

}  // namespace hpvm
