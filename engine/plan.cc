// SPDX-License-Identifier: Apache-2.0
#include "engine/plan.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "engine/access.h"
#include "engine/costs.h"
#include "engine/device_facts.h"
#include "engine/plan_commands.h"
#include "engine/plan_memory.h"
#include "engine/plan_placement.h"
#include "engine/plan_spaces.h"
#include "engine/prepared_graph.h"
#include "scheduler/residency/forecast.h"

namespace hpvm::engine {
namespace {

// Returns the time since the previous call.
class Lap {
 public:
  Duration Take() {
    const Time now = RealClock().Now();
    return now - std::exchange(last_, now);
  }

 private:
  Time last_ = RealClock().Now();
};

class Builder {
 public:
  explicit Builder(PreparedGraph& prepared) : prepared_(prepared), plan_(std::make_unique<Plan>()) {
    plan_->devices = prepared.devices;
    if (prepared.spill != nullptr) {
      plan_->devices.push_back(prepared.spill.get());
    }
  }

  // Valid after a failed Build.
  bool has_failed_to_share() const { return has_failed_to_share_; }
  const DeviceShortage& shortage() const { return shortage_; }
  std::optional<uint32_t> unavailable() const { return unavailable_; }
  void Discard() { plan_.reset(); }

  StatusOr<std::unique_ptr<Plan>> Build(const PlanRequest& request) {
    Lap lap;
    plan_->symbols = request.symbols;
    plan_->carries = request.carries;
    repeat_ = request.repeat;
    plan_->asked_on_host = request.on_host;
    if (request.flat != nullptr) {
      plan_->flat = *request.flat;
    } else if (prepared_.flat != nullptr) {
      plan_->flat = std::move(*std::exchange(prepared_.flat, nullptr));
    } else {
      HPVMD_ASSIGN_OR_RETURN(plan_->flat, graph::Flatten(prepared_.graph, plan_->symbols));
    }
    HPVMD_RETURN_IF_ERROR(CheckExtents(prepared_, plan_->flat));
    plan_->times.flatten = lap.Take();
    const GraphAccesses accesses(prepared_, plan_->flat);
    const bool is_free = request.only_device == PlanRequest::kAnyDevice;
    costs_ = prepared_.costs->ForPlan(prepared_, plan_->flat, request.may_pin && is_free);
    std::vector<scheduler::Task> uncut;
    if (request.tasks != nullptr) {
      plan_->tasks = *request.tasks;
      plan_->makespan = EndOf(plan_->tasks);
    } else {
      HPVMD_RETURN_IF_ERROR(PlaceNodes(prepared_, &accesses, *costs_, request, *plan_, &uncut));
    }
    accesses.Admit(plan_->tasks);
    plan_->times.place = lap.Take();
    PlanSpaces spaces = SpacesOf(prepared_, Grants::kHeeded);
    uint64_t& host_bytes_max = spaces.spaces[scheduler::kHostSpace].bytes_max;
    host_bytes_max -= std::min(host_bytes_max, request.host_bytes_held);
    HPVMD_RETURN_IF_ERROR(uncut.empty() ? PlanStorages(spaces, accesses)
                                        : PlanBetter(std::move(uncut), spaces, accesses));
    costs_.reset();
    plan_->times.residency = lap.Take();
    HPVMD_RETURN_IF_ERROR(Allocate(spaces, lap));
    HPVMD_RETURN_IF_ERROR(ResetTimelines(*plan_));
    plan_->timings.resize(plan_->tasks.size());
    return std::move(plan_);
  }

 private:
  static Duration EndOf(const std::vector<scheduler::Task>& tasks) {
    Duration end{0};
    for (const scheduler::Task& task : tasks) {
      end = std::max(end, task.end);
    }
    return end;
  }

  // Plans with the cuts that placement prefers, or without them, whichever the memory and copies favour. When one of
  // the two does not fit, uses the other.
  Status PlanBetter(std::vector<scheduler::Task> uncut, PlanSpaces& spaces, const scheduler::AccessModel& accesses) {
    PlanSpaces cut_spaces = spaces;
    const Status cut = PlanStorages(cut_spaces, accesses);
    std::vector<scheduler::Task> cut_tasks = std::exchange(plan_->tasks, std::move(uncut));
    scheduler::Residency cut_residency = std::exchange(plan_->residency, {});
    const Duration cut_makespan = std::exchange(plan_->makespan, EndOf(plan_->tasks));
    const Status whole = PlanStorages(spaces, accesses);
    if (whole.ok() && (!cut.ok() || plan_->makespan <= cut_makespan)) {
      for (scheduler::Task& task : plan_->tasks) {
        const bool was_cut = std::ranges::any_of(
            cut_tasks, [&](const scheduler::Task& part) { return part.is_part && part.node == task.node; });
        task.whole = was_cut ? scheduler::Whole::kNoGain : task.whole;
      }
      return whole;
    }
    plan_->tasks = std::move(cut_tasks);
    plan_->residency = std::move(cut_residency);
    plan_->makespan = cut_makespan;
    spaces = std::move(cut_spaces);
    return cut;
  }

  // Plans a second time when the spaces together are too large. Work on other devices takes as long as its own steps;
  // placement has estimated the time that the processor alone takes.
  Status PlanStorages(PlanSpaces& spaces, const scheduler::AccessModel& accesses) {
    HPVMD_RETURN_IF_ERROR(PlanWith(spaces, accesses));
    if (!CheckSpaces(spaces, plan_->residency).ok()) {
      ShareSpaces(*plan_, spaces);
      HPVMD_RETURN_IF_ERROR(PlanWith(spaces, accesses));
    }
    HPVMD_RETURN_IF_ERROR(CheckSpaces(spaces, plan_->residency));
    if (std::ranges::any_of(plan_->tasks, [&](const scheduler::Task& task) {
          return spaces.devices[task.device].space != scheduler::kHostSpace;
        })) {
      plan_->makespan = scheduler::Forecast({.residency = plan_->residency,
                                             .devices = spaces.devices,
                                             .tasks = plan_->tasks,
                                             .costs = *costs_,
                                             .repeat = repeat_});
    }
    return absl::OkStatus();
  }

  Status PlanWith(const PlanSpaces& spaces, const scheduler::AccessModel& accesses) {
    uint32_t culprit = static_cast<uint32_t>(plan_->tasks.size());
    StatusOr<scheduler::Residency> residency = scheduler::PlanResidency({.flat = plan_->flat,
                                                                         .devices = spaces.devices,
                                                                         .spaces = spaces.spaces,
                                                                         .tasks = plan_->tasks,
                                                                         .accesses = accesses,
                                                                         .carries = plan_->carries,
                                                                         .on_host = plan_->asked_on_host},
                                                                        &culprit);
    if (!residency.ok() && culprit < plan_->tasks.size()) {
      return ExplainNoRoom(prepared_, *plan_, spaces, culprit, residency.status());
    }
    HPVMD_RETURN_IF_ERROR(residency.status());
    plan_->residency = *std::move(residency);
    return absl::OkStatus();
  }

  Status Allocate(const PlanSpaces& spaces, Lap& lap) {
    PlanMemory memory(prepared_, spaces, *plan_);
    const Status status = memory.Allocate();
    has_failed_to_share_ = memory.has_failed_to_share();
    shortage_ = memory.shortage();
    unavailable_ = memory.unavailable();
    HPVMD_RETURN_IF_ERROR(status);
    plan_->times.memory = lap.Take();
    PlanWriter(prepared_, memory, *plan_).Write();
    FindOnHost();
    DropSteps();
    plan_->times.commands = lap.Take();
    return absl::OkStatus();
  }

  // Looks outputs up in the table of a device that has them there.
  void FindOnHost() {
    for (size_t i = 0; i < plan_->residency.on_host.size(); ++i) {
      const auto [slot, offset] = plan_->views[plan_->residency.on_host[i].index];
      for (uint32_t device = 0; device < plan_->devices.size(); ++device) {
        if (plan_->buffers[device][slot] != nullptr || IsImported(device, slot)) {
          plan_->on_host.push_back({.port = plan_->asked_on_host[i], .device = device, .slot = slot, .offset = offset});
          break;
        }
      }
    }
  }

  bool IsImported(uint32_t device, SlotIndex slot) const {
    return std::any_of(plan_->imports.begin(), plan_->imports.end(),
                       [&](const PortImport& one) { return one.device == device && one.slot == slot; });
  }

  // Only a run that continues without a lost device needs the steps.
  void DropSteps() {
    std::vector<bool> is_used(plan_->devices.size());
    for (const PlanQueue& queue : plan_->queues) {
      is_used[queue.device] = true;
    }
    if (std::count(is_used.begin(), is_used.end(), true) < 2) {
      plan_->residency.steps = {};
      plan_->residency.first_touch = {};
      plan_->residency.touches = {};
    }
  }

  PreparedGraph& prepared_;
  std::unique_ptr<Plan> plan_;
  std::unique_ptr<PlanCosts> costs_;  // Exists while the plan is made.
  uint32_t repeat_ = 1;
  bool has_failed_to_share_ = false;
  DeviceShortage shortage_;
  std::optional<uint32_t> unavailable_;
};

}  // namespace

StatusOr<std::unique_ptr<Plan>> BuildPlan(PreparedGraph& prepared, PlanRequest request) {
  Builder builder(prepared);
  StatusOr<std::unique_ptr<Plan>> plan = builder.Build(request);
  prepared.shortage = builder.shortage();
  prepared.unavailable = builder.unavailable();
  if (plan.ok() || !builder.has_failed_to_share()) {
    return plan;
  }
  builder.Discard();
  prepared.shares_memory = AssignSpaces(prepared, /*may_share=*/false);
  Builder unshared(prepared);
  plan = unshared.Build(request);
  prepared.shortage = unshared.shortage();
  prepared.unavailable = unshared.unavailable();
  return plan;
}

Status ResetTimelines(Plan& plan) {
  for (PlanQueue& queue : plan.queues) {
    queue.timeline.reset();
    queue.base = 0;
    queue.timeline = plan.devices[queue.device]->CreateTimeline();
  }
  return absl::OkStatus();
}

uint8_t* HostAddress(const Plan& plan, scheduler::StorageId storage) {
  const auto [slot, offset] = plan.views[storage.index];
  uint8_t* const data = slot < plan.host_of_slot.size() ? plan.host_of_slot[slot] : nullptr;
  return data == nullptr ? nullptr : data + offset;
}

const Executable& ExecutableOf(const PreparedGraph& prepared, const Plan& plan, uint32_t task) {
  const scheduler::Task& t = plan.tasks[task];
  return *prepared.executables[plan.flat.nodes[t.node.index].leaf.index][t.choice];
}

}  // namespace hpvm::engine
