// SPDX-License-Identifier: Apache-2.0
// Runs a prepared graph once: checks the bindings, finds or builds the plan, puts the caller's memory into its
// tables, and runs its stages as often as requested.
#include <algorithm>
#include <optional>
#include <utility>

#include "engine/bindings.h"
#include "engine/engine.h"
#include "engine/prepared_graph.h"
#include "engine/run/recover.h"
#include "engine/run/run_iterations.h"
#include "engine/run/run_plans.h"
#include "engine/run/run_records.h"
#include "engine/run/run_repeat.h"
#include "engine/run/run_stage.h"

namespace hpvm::engine {
namespace {

// Interval at which a run that waits for its turn polls the stop word.
constexpr Duration kStopPoll = std::chrono::milliseconds(2);

const std::atomic<uint32_t> kNoStop{0};

// A turn to run a graph, in order of arrival.
class Turn {
 public:
  explicit Turn(PreparedGraph& graph) : graph_(graph) {}
  ~Turn() {
    if (has_entered_) {
      std::unique_lock lock(graph_.mutex);
      graph_.is_running = false;
      Wake(lock);
    }
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  // Waits for earlier runs of this graph, which may be long: a stop or the deadline ends the wait.
  Status Enter(const StageOptions& options) {
    std::unique_lock lock(graph_.mutex);
    HPVMD_RETURN_IF_ERROR(CheckTime(options));
    if (graph_.is_running || !graph_.waiting.empty()) {
      const auto place = graph_.waiting.insert(graph_.waiting.end(), this);
      Status status;
      while (status.ok() && (graph_.is_running || graph_.waiting.front() != this)) {
        graph_.idle.wait_for(lock, kStopPoll);
        status = CheckTime(options);
      }
      graph_.waiting.erase(place);
      if (!status.ok()) {
        Wake(lock);  // The next run may have been waiting only for this one.
        return status;
      }
    }
    graph_.is_running = true;
    has_entered_ = true;
    return absl::OkStatus();
  }

 private:
  // The first waiter must wake; the others merely check.
  void Wake(std::unique_lock<std::mutex>& lock) {
    const bool is_awaited = !graph_.waiting.empty();
    lock.unlock();
    if (is_awaited) {
      graph_.idle.notify_all();
    }
  }

  PreparedGraph& graph_;
  bool has_entered_ = false;
};

class PlanRun {
 public:
  PlanRun(const EngineOptions& options, PreparedGraph& graph, const RunRequest& request)
      : options_(options),
        graph_(graph),
        request_(request),
        stage_options_{.hub = *options.hub,
                       .clock = *options.clock,
                       .stop = request.stop == nullptr ? kNoStop : *request.stop,
                       .deadline = request.deadline,
                       .log = request.log != nullptr ? &log_ : nullptr,
                       .check = graph.is_checked,
                       .device_time_max = request.device_time_max,
                       .over_device_time = request.over_device_time},
        turn_(graph) {}

  StatusOr<RunResult> Run() {
    const Time start = options_.clock->Now();
    HPVMD_ASSIGN_OR_RETURN(repetition_, ReadRepetition(root(), request_));
    HPVMD_RETURN_IF_ERROR(turn_.Enter(stage_options_));
    HPVMD_RETURN_IF_ERROR(Bind());
    const Time run_start = options_.clock->Now();
    result_.bind = run_start - start;
    result_.device_time.resize(graph_.devices.size());
    HPVMD_RETURN_IF_ERROR(RunAll(run_start));
    result_.run = options_.clock->Now() - run_start;
    for (Duration& time : result_.device_time) {
      time = std::min(time, result_.run);
    }
    return std::move(result_);
  }

 private:
  const graph::Node& root() const { return graph_.graph.node(graph_.graph.root()); }

  Status Bind() {
    ports_.resize(root().ports.size());
    HPVMD_RETURN_IF_ERROR(BindInputs(root(), request_.inputs, BindData::kRequired, ports_));
    HPVMD_ASSIGN_OR_RETURN(plan_, FindPlanWithoutLost());
    HPVMD_RETURN_IF_ERROR(BindOutputs());
    return CheckOverlaps(root(), ports_);
  }

  // Excludes a device that turns out to be lost when a plan needs its memory.
  StatusOr<Plan*> FindPlanWithoutLost() {
    while (true) {
      const Duration left = request_.deadline == kNever ? kNever : request_.deadline - options_.clock->Now();
      StatusOr<Plan*> plan = FindPlan(graph_, {request_, repetition_, ports_, left});
      const std::optional<uint32_t> lost = plan.ok() ? std::nullopt : graph_.unavailable;
      if (!lost.has_value() || IsLost(*lost)) {
        return plan.ok() || loss_.ok() ? plan : StatusOr<Plan*>(loss_);  // No other device can run the graph.
      }
      NoteLoss(*lost, plan.status());
      DropPlansOf(graph_, *lost);
    }
  }

  bool IsLost(uint32_t device) const { return device < graph_.is_lost.size() && graph_.is_lost[device]; }

  void NoteLoss(uint32_t device, Status status) {
    loss_ = std::move(status);
    graph_.is_lost.resize(graph_.devices.size());
    graph_.is_lost[device] = true;
    ++result_.lost_devices;
    if (request_.lost_devices != nullptr) {
      request_.lost_devices->push_back(graph_.devices[device]->info().id);
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
      HPVMD_ASSIGN_OR_RETURN(Binding binding, BindOutput(p, value));
      if (binding.data == nullptr && value.bytes > 0) {
        return InvalidArgument("Output \"" + p.name + "\" (" + std::to_string(value.bytes) +
                               " bytes) is bound to no memory.");
      }
      ports_[port] = &result_.outputs.emplace(p.name, std::move(binding)).first->second;
    }
    return absl::OkStatus();
  }

  StatusOr<Binding> BindOutput(const graph::Port& port, const graph::FlatValue& value) const {
    const auto bound = request_.outputs.find(port.name);
    if (bound != request_.outputs.end()) {
      HPVMD_RETURN_IF_ERROR(CheckOutput(port, value, bound->second));
      return bound->second;
    }
    if (!request_.allocate_output) {
      return InvalidArgument("Output \"" + port.name + "\" (" + std::to_string(value.bytes) + " bytes) is not bound.");
    }
    Binding binding{.type = value.type, .shape = value.shape, .data = nullptr, .bytes = value.bytes};
    StatusOr<OutputMemory> memory = request_.allocate_output(port.name, value.type, value.shape, value.bytes);
    if (!memory.ok()) {
      return While(memory.status(),
                   "allocating output \"" + port.name + "\" (" + std::to_string(value.bytes) + " bytes)");
    }
    binding.data = memory->data;
    binding.block = std::move(memory->block);
    return binding;
  }

  // Runs all repetitions; excludes a device that is lost meanwhile, and repeats its work elsewhere.
  Status RunAll(Time run_start) {
    nodes_ = plan_->flat.nodes.size();
    while (progress_.repetitions < request_.repeat && !progress_.is_converged) {
      const bool is_rest = recovery_.plan() != nullptr;
      if (plan_ == nullptr && !is_rest) {
        HPVMD_ASSIGN_OR_RETURN(plan_, FindPlanWithoutLost());
      }
      HPVMD_RETURN_IF_ERROR(RunPlan(is_rest ? *recovery_.plan() : *plan_, is_rest, run_start));
    }
    result_.repetitions = progress_.repetitions;
    result_.is_converged = progress_.is_converged;
    result_.nodes_run = nodes_ * progress_.repetitions;
    return absl::OkStatus();
  }

  Status RunPlan(Plan& plan, bool is_rest, Time run_start) {
    IterationContext context{stage_options_, graph_, repetition_, ports_, log_};
    recovery_.AddPorts(&context.ports);
    if (request_.log != nullptr && request_.on_line) {
      log_.SetListener([this, &plan](const PrintedLine& line) {
        request_.on_line({PathOfTask(graph_, plan, line.node), line.instance, line.text});
      });
    }
    Iterations iterations(context, plan);
    const Time start = options_.clock->Now();
    const uint32_t before = progress_.repetitions;
    Status status = iterations.Run(is_rest ? before + 1 : request_.repeat, &progress_, &result_);
    log_.SetListener(nullptr);
    if (request_.log != nullptr) {
      FillLog(graph_, plan, log_, request_.log);
    }
    if (!status.ok()) {
      return TakeFailure(plan, iterations, context.ports, std::move(status), run_start);
    }
    if (!is_rest) {
      result_.nodes.clear();
    }
    AddRecords(graph_, plan, iterations.timings(), iterations.totals(), run_start, request_.node_records_max, nullptr,
               &result_.nodes);
    if (is_rest) {
      recovery_.Clear();
    } else {
      ReviewPlan(graph_, plan, iterations.timings(),
                 (options_.clock->Now() - start) / std::max(progress_.repetitions - before, 1u));
    }
    return absl::OkStatus();
  }

  // Returns OK when the run can continue without a device.
  Status TakeFailure(Plan& plan, const Iterations& iterations, const PortBindings& ports, Status status,
                     Time run_start) {
    const StageFailure& failure = iterations.stages().failure();
    if (failure.status.ok()) {
      return status;  // No device failed.
    }
    status = Explain(graph_, plan, failure, CheckTime(stage_options_));
    const std::optional<uint32_t> lost = LostDevice(graph_, plan, failure);
    if (!lost.has_value()) {
      HPVMD_RETURN_IF_ERROR(ResetTimelines(plan));  // Failed timelines stay failed.
      return status;
    }
    NoteLoss(*lost, std::move(status));
    plan_ = nullptr;
    if (plan.carries.empty() && !plan.residency.steps.empty()) {
      KeepRest(plan, *lost, iterations, ports, run_start);
      return absl::OkStatus();
    }
    if (!plan.carries.empty()) {
      progress_ = Progress();  // Values handed over may be lost, so the run starts again.
    }
    result_.nodes.clear();
    recovery_.Clear();
    DropPlansOf(graph_, *lost);
    return absl::OkStatus();
  }

  // Keeps the results of the interrupted repetition; drops the plan.
  void KeepRest(Plan& plan, uint32_t lost, const Iterations& iterations, const PortBindings& ports, Time run_start) {
    std::vector<NodeRecord> records;
    AddRecords(graph_, plan, iterations.broken_timings(), {}, run_start, request_.node_records_max, nullptr, &records);
    std::vector<uint32_t> nodes;
    for (size_t i = 0; i < records.size(); ++i) {
      nodes.push_back(plan.tasks[i].node.index);
    }
    if (recovery_.plan() != &plan) {
      result_.nodes.clear();  // The records are of an earlier repetition.
    }
    const std::vector<scheduler::SegmentState> states = iterations.stages().States();
    const std::vector<bool> is_done = recovery_.Keep(graph_, lost, plan, states, ports);
    for (size_t i = 0; i < records.size() && !is_done.empty(); ++i) {
      if (is_done[nodes[i]]) {
        result_.nodes.push_back(std::move(records[i]));
      }
    }
  }

  const EngineOptions& options_;
  PreparedGraph& graph_;
  const RunRequest& request_;
  LaunchLog log_;
  const StageOptions stage_options_;
  Turn turn_;
  Repetition repetition_;
  Plan* plan_ = nullptr;  // In graph_.plans; null after a loss, until FindPlan is called again.
  PortBindings ports_;    // Indexed by the root's port: bindings in the request, or in result_.outputs.
  uint64_t nodes_ = 0;    // Number of nodes of the whole graph.
  Progress progress_;
  Recovery recovery_;
  Status loss_;  // The error for the last loss of a device, if no other device can run the graph.
  RunResult result_;
};

}  // namespace

StatusOr<RunResult> Engine::Run(PreparedGraph& graph, const RunRequest& request) {
  return PlanRun(options_, graph, request).Run();
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

}  // namespace hpvm::engine
