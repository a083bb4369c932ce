// SPDX-License-Identifier: Apache-2.0
#include "tests/schedsim/world.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "scheduler/cost/cost_history.h"
#include "scheduler/placement/remainder.h"
#include "scheduler/testing/plan_checker.h"
#include "scheduler/testing/schedule_checker.h"
#include "tests/schedsim/checks.h"
#include "tests/schedsim/execution.h"
#include "tests/schedsim/kernels.h"

namespace hpvm::schedsim {
namespace {

using scheduler::Candidate;
using scheduler::Placement;
using scheduler::Residency;
using scheduler::Task;

constexpr uint32_t kInputOffset = 1'000;  // For values that are kept after a loss, as root ports.

struct Planned {
  Placement placement;
  Residency residency;
};

class World {
 public:
  explicit World(uint64_t seed) : rng_(seed), machine_(MakeMachine(rng_)), graph_(MakeGraph(rng_, machine_)) {}

  Verdict Run() {
    Prepare();
    Count();
    const uint64_t runs = graph_.flat.nodes.size() > 400 ? 1 : 1 + rng_.Below(3);
    for (uint64_t run = 0; run < runs && verdict_.faults.empty(); ++run) {
      RunGraph();
    }
    return std::move(verdict_);
  }

 private:
  Counts& counts() { return verdict_.counts; }
  void Add(const std::string& fault) { verdict_.faults.push_back(fault); }
  void Add(const std::vector<std::string>& faults) {
    verdict_.faults.insert(verdict_.faults.end(), faults.begin(), faults.end());
  }
  bool Chance(uint64_t percent) { return rng_.Below(100) < percent; }

  void Prepare() {
    if (Chance(40)) {
      LimitMemory(rng_, graph_, &machine_);
      ++counts().with_budgets;
    }
    for (const std::vector<Candidate>& candidates : graph_.candidates) {
      for (size_t c = 0; c < candidates.size(); ++c) {
        const bool is_gpu = machine_.devices[candidates[c].device].is_gpu;
        // Independent of the roofline: kernels deviate by up to a factor of a hundred.
        const double unit_ns = std::pow(10.0, static_cast<double>(rng_.Below(300)) / 100 - (is_gpu ? 1 : 0));
        truth_.push_back({static_cast<double>(500 + rng_.Below(20'000)), unit_ns});
      }
      first_truth_.push_back(truth_.size());
    }
    histories_.resize(truth_.size());
    for (size_t space = 0; space < 16; ++space) {
      bytes_per_ns_.push_back(0.5 + static_cast<double>(rng_.Below(500)) / 10);
    }
    constexpr uint64_t kEfforts[] = {0, 100, 400, 400, 2'000};
    effort_ = kEfforts[rng_.Below(5)];
    jitter_ = rng_.Below(3) == 0 ? 0 : 0.02 * static_cast<double>(rng_.Below(50));
  }

  void Count() {
    Counts& c = counts();
    const size_t nodes = graph_.flat.nodes.size();
    c.worlds = 1;
    c.nodes = nodes;
    c.with_carries = graph_.carries.empty() ? 0 : 1;
    const size_t limits[] = {4, 16, 64, 256, 1'024};
    ++c.by_nodes[std::lower_bound(std::begin(limits), std::end(limits), nodes) - std::begin(limits)];
    ++c.by_devices[std::min<size_t>(machine_.computing, 7) - 1];
  }

  size_t TruthOf(uint32_t leaf, uint32_t choice) const { return (leaf == 0 ? 0 : first_truth_[leaf - 1]) + choice; }

  double Jitter() { return 1 + jitter_ * static_cast<double>(rng_.Below(1'000)) / 1'000; }

  int64_t TrueNs(const graph::FlatGraph& flat, const Task& task) {
    const uint32_t leaf = flat.nodes[task.node.index].leaf.index;
    const Truth& truth = truth_[TruthOf(leaf, OriginalChoice(leaf, task.device, task.choice))];
    const double instances =
        static_cast<double>(task.box.count[0]) * static_cast<double>(task.box.count[1] * task.box.count[2]);
    return static_cast<int64_t>((truth.start_ns + instances * truth.unit_ns) * Jitter());
  }

  // Returns the model's present knowledge.
  scheduler::MeasuredCosts Costs() const {
    scheduler::MeasuredCosts costs;
    for (uint32_t leaf = 0; leaf < graph_.candidates.size(); ++leaf) {
      std::vector<uint32_t> curves;
      for (uint32_t c = 0; c < graph_.candidates[leaf].size(); ++c) {
        const scheduler::DeviceFacts& device = machine_.devices[graph_.candidates[leaf][c].device];
        curves.push_back(costs.AddCurve(scheduler::CostCurve(histories_[TruthOf(leaf, c)], device)));
      }
      costs.AddLeaf(curves);
    }
    return costs;
  }

  // Plans the graph, or the rest of it, on the remaining devices. Returns nothing when planning was refused, for a
  // valid reason or with a fault.
  std::optional<Planned> Plan(const graph::FlatGraph& flat, const SimAccesses& accesses,
                              const std::vector<std::vector<Candidate>>& candidates, bool with_carries) {
    const scheduler::MeasuredCosts costs = Costs();
    scheduler::PlacementInput input{.flat = flat,
                                    .devices = machine_.devices,
                                    .candidates = candidates,
                                    .costs = costs,
                                    .accesses = &accesses,
                                    .effort = effort_,
                                    .seed = rng_.Next(),
                                    .wants_transfers = true};
    uint32_t unplaced = 0;
    StatusOr<Placement> placed = scheduler::Place(input, &unplaced);
    ++counts().plans;
    if (!placed.ok()) {
      if (!candidates[flat.nodes[unplaced].leaf.index].empty()) {
        Add("placement: " + Message(placed.status()));
      }
      ++counts().no_device;
      return std::nullopt;
    }
    const StatusOr<Duration> checked = scheduler::CheckSchedule(input, *placed);
    if (!checked.ok()) {
      Add("schedule: " + Message(checked.status()));
      return std::nullopt;
    }
    Planned planned{*std::move(placed), {}};
    Add(CheckParts(flat, accesses, planned.placement.tasks));
    const scheduler::ResidencyInput memory = MemoryInput(flat, accesses, planned.placement.tasks, with_carries);
    uint32_t culprit = 0xffffffffu;
    StatusOr<Residency> residency = scheduler::PlanResidency(memory, &culprit);
    if (!residency.ok()) {
      if (culprit >= planned.placement.tasks.size() && culprit != 0xffffffffu) {
        Add("refusal: No task is to blame.");
      }
      CheckRefusal(flat, planned.placement.tasks, residency.status(), with_carries);
      return std::nullopt;
    }
    planned.residency = *std::move(residency);
    for (const std::string& fault :
         scheduler::CheckPlan(memory, planned.residency,
                              {.bodies = with_carries ? 3u : 1u, .faults_max = 3, .ordered_steps_max = 256})) {
      Add("memory: " + fault);
    }
    counts().tasks += planned.placement.tasks.size();
    counts().evictions += planned.residency.evictions;
    counts().spills += planned.residency.spills;
    counts().late_extents += planned.residency.late_extents.size();
    for (const Task& task : planned.placement.tasks) {
      counts().parts += task.is_part ? 1 : 0;
    }
    return planned;
  }

  scheduler::ResidencyInput MemoryInput(const graph::FlatGraph& flat, const SimAccesses& accesses,
                                        std::span<const Task> tasks, bool with_carries) const {
    scheduler::ResidencyInput input{
        .flat = flat, .devices = machine_.devices, .spaces = machine_.spaces, .tasks = tasks, .accesses = accesses};
    if (with_carries) {
      input.carries = graph_.carries;
      input.on_host = graph_.on_host;
    }
    return input;
  }

  // A refusal is a fault where every launch alone fits each space: everything else can be moved to the disk, through
  // the host's memory. The input and the output of values that iterations pass on stay.
  void CheckRefusal(const graph::FlatGraph& flat, const std::vector<Task>& tasks, const Status& status,
                    bool with_carries) {
    ++counts().refusals;
    if (machine_.spaces.empty()) {
      return Add("refusal: There are no limits, and yet: " + Message(status));
    }
    if (status.code() != absl::StatusCode::kResourceExhausted) {
      return Add("refusal: " + Message(status));
    }
    uint64_t needs = 0, room = ~uint64_t{0};
    for (const Task& task : tasks) {
      needs = std::max(needs, Footprint(flat, task.node.index));
    }
    for (const scheduler::SpaceFacts& facts : machine_.spaces) {
      room = std::min({room, facts.bytes_max, facts.piece_bytes_max});
    }
    for (size_t k = 0; with_carries && k < graph_.carries.size(); ++k) {
      needs += 4 * (flat.values[flat.outputs[graph_.carries[k].output].index].bytes + scheduler::kStorageAlignment);
    }
    if (needs <= room) {
      Add("refusal: A launch that needs " + std::to_string(needs) + " bytes, where each memory has " +
          std::to_string(room) + " at least, is refused: " + Message(status));
    }
  }

  void RunGraph() {
    ++counts().runs;
    const SimAccesses accesses(graph_.flat, graph_.kernels);
    if (!graph_.carries.empty() && Chance(60)) {
      const std::optional<Planned> planned = Plan(graph_.flat, accesses, graph_.candidates, true);
      if (planned.has_value() && verdict_.faults.empty()) {
        CarryOut(graph_.flat, accesses, *planned, graph_.candidates, 0, true);
      }
      return;
    }
    std::optional<Planned> planned = Plan(graph_.flat, accesses, graph_.candidates, false);
    if (planned.has_value() && verdict_.faults.empty()) {
      CarryOut(graph_.flat, accesses, *planned, graph_.candidates, 0, false);
    }
  }

  // Runs the plan; after a loss, the rest of it.
  void CarryOut(const graph::FlatGraph& flat, const SimAccesses& accesses, const Planned& planned,
                const std::vector<std::vector<Candidate>>& candidates, int depth, bool iterates) {
    const scheduler::ResidencyInput memory = MemoryInput(flat, accesses, planned.placement.tasks, iterates);
    ExecutionInput input{.plan_input = memory,
                         .plan = planned.residency,
                         .duration = [&](const scheduler::Step& step) { return StepNs(flat, planned, step); },
                         .bodies = iterates ? 1 + static_cast<uint32_t>(rng_.Below(4)) : 1,
                         .window = 1 + static_cast<uint32_t>(rng_.Below(8))};
    counts().iterations += iterates ? input.bodies : 0;
    const auto moment = [&] {
      return static_cast<int64_t>(rng_.Below(static_cast<uint64_t>(planned.placement.makespan.count()) * 2 + 1));
    };
    const uint64_t luck = rng_.Below(100);
    const bool is_lost = luck < 30 && machine_.computing > 1 && depth < 3;
    if (is_lost) {
      input.lost_device = 1 + static_cast<uint32_t>(rng_.Below(machine_.computing - 1));
      input.lost_at = moment();
    } else if (luck < 35) {
      input.stop_at = moment();
      ++counts().cancels;
    } else if (luck < 40) {
      input.failing_task = static_cast<uint32_t>(rng_.Below(planned.placement.tasks.size()));
      ++counts().failures;
    }
    const Execution execution = Execute(input);
    Add(execution.faults);
    Learn(flat, planned, execution);
    const bool has_failed = input.failing_task < planned.placement.tasks.size();
    if (execution.is_complete ? has_failed : input.stop_at < 0 && !is_lost && !has_failed) {
      Add(has_failed ? "ends: A task failed, and the run did not."
                     : "ends: Nothing went wrong, and the run did not come to its end.");
    }
    if (execution.is_complete || !is_lost || !verdict_.faults.empty()) {
      return;
    }
    ++counts().losses;
    counts().losses_again += depth > 0 ? 1 : 0;
    if (iterates) {
      return;  // Starts again, without the device.
    }
    GoOn(flat, memory, planned, execution, candidates, input.lost_device, depth);
  }

  void GoOn(const graph::FlatGraph& flat, const scheduler::ResidencyInput& memory, const Planned& planned,
            const Execution& execution, std::vector<std::vector<Candidate>> candidates, uint32_t lost, int depth) {
    const auto held = scheduler::FindSurviving({.flat = flat,
                                                .tasks = memory.tasks,
                                                .accesses = memory.accesses,
                                                .residency = planned.residency,
                                                .states = execution.states});
    std::vector<bool> is_kept(flat.values.size());
    for (size_t v = 0; v < held.size(); ++v) {
      is_kept[v] = !held[v].empty();
    }
    const scheduler::Remainder rest =
        scheduler::BuildRemainder(flat, is_kept, kInputOffset * static_cast<uint32_t>(depth + 1));
    counts().kept_values += rest.kept.size();
    Add(CheckRemainder(flat, rest, is_kept));
    for (std::vector<Candidate>& leaf : candidates) {
      std::erase_if(leaf, [&](const Candidate& candidate) { return candidate.device == lost; });
    }
    const SimAccesses accesses(rest.flat, graph_.kernels);
    const std::optional<Planned> next = Plan(rest.flat, accesses, candidates, false);
    if (next.has_value() && verdict_.faults.empty()) {
      CarryOut(rest.flat, accesses, *next, candidates, depth + 1, false);
    }
  }

  int64_t StepNs(const graph::FlatGraph& flat, const Planned& planned, const scheduler::Step& step) {
    if (step.kind == scheduler::Step::Kind::kRun) {
      return std::max<int64_t>(1, TrueNs(flat, planned.placement.tasks[step.task]));
    }
    const double bytes_per_ns = bytes_per_ns_[machine_.devices[step.device].space % bytes_per_ns_.size()];
    return 1 + static_cast<int64_t>((1'000 + static_cast<double>(step.bytes) / bytes_per_ns) * Jitter());
  }

  void Learn(const graph::FlatGraph& flat, const Planned& planned, const Execution& execution) {
    const scheduler::MeasuredCosts costs = Costs();
    for (size_t t = 0; t < execution.task_ns.size() && t < 200; ++t) {
      const Task& task = planned.placement.tasks[t];
      if (execution.task_ns[t] < 0) {
        continue;
      }
      const uint32_t leaf = flat.nodes[task.node.index].leaf.index;
      const uint32_t choice = OriginalChoice(leaf, task.device, task.choice);
      scheduler::Work work{.leaf = flat.nodes[task.node.index].leaf,
                           .choice = choice,
                           .instances = task.box.count[0],
                           .bytes = Footprint(flat, task.node.index)};
      const double expected =
          static_cast<double>(costs.Run(work, task.device, machine_.devices[task.device]).time.count());
      histories_[TruthOf(leaf, choice)].Add(work, static_cast<double>(execution.task_ns[t]), expected);
    }
  }

  // Matches by device, because choices are renumbered when candidates are removed.
  uint32_t OriginalChoice(uint32_t leaf, uint32_t device, uint32_t choice) const {
    const std::vector<Candidate>& candidates = graph_.candidates[leaf];
    for (uint32_t c = 0; c < candidates.size(); ++c) {
      if (candidates[c].device == device) {
        return c;
      }
    }
    return choice;
  }

  struct Truth {
    double start_ns = 0, unit_ns = 0;
  };

  SeededRng rng_;
  SimMachine machine_;
  SimGraph graph_;
  std::vector<Truth> truth_;  // Indexed by leaf and choice.
  std::vector<size_t> first_truth_;
  std::vector<scheduler::CostHistory> histories_;  // Like truth_.
  std::vector<double> bytes_per_ns_;
  double jitter_ = 0;
  uint64_t effort_ = 0;
  Verdict verdict_;
};

}  // namespace

void Counts::Add(const Counts& other) {
  const auto* from = reinterpret_cast<const uint64_t*>(&other);
  auto* to = reinterpret_cast<uint64_t*>(this);
  for (size_t i = 0; i < sizeof(Counts) / sizeof(uint64_t); ++i) {
    to[i] += from[i];
  }
}

std::string Counts::ToString() const {
  const auto part = [](const char* name, uint64_t value) { return std::string(name) + " " + std::to_string(value); };
  std::string text = part("worlds", worlds) + ", " + part("runs", runs) + ", " + part("plans", plans) + ", " +
                     part("nodes", nodes) + ", " + part("tasks", tasks) + ", " + part("parts of launches", parts) +
                     "\nfaults: " + part("devices lost", losses) + ", " + part("after another", losses_again) + ", " +
                     part("values kept", kept_values) + ", " + part("failures", failures) + ", " +
                     part("cancels", cancels) + ", " + part("without a device", no_device) +
                     "\nmemory: " + part("worlds with limits", with_budgets) + ", " + part("evictions", evictions) +
                     ", " + part("spills", spills) + ", " + part("refusals", refusals) + ", " +
                     part("worlds with carries", with_carries) + ", " + part("iterations", iterations) + ", " +
                     part("late extents", late_extents) + "\nnodes:";
  const char* const sizes[] = {"1-4", "5-16", "17-64", "65-256", "257-1024", "more"};
  for (size_t i = 0; i < std::size(sizes); ++i) {
    text += std::string(i == 0 ? " " : ", ") + part(sizes[i], by_nodes[i]);
  }
  text += "\ndevices:";
  for (size_t i = 0; i < std::size(by_devices); ++i) {
    text += std::string(i == 0 ? " " : ", ") + std::to_string(i + 1) + ": " + std::to_string(by_devices[i]);
  }
  return text;
}

Verdict RunWorld(uint64_t seed) { return World(seed).Run(); }

}  // namespace hpvm::schedsim
