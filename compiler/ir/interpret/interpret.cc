// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/interpret/interpret.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "compiler/ir/grid.h"
#include "compiler/ir/interpret/instance_check.h"
#include "compiler/ir/interpret/launch_check.h"
#include "compiler/ir/interpret/machine.h"
#include "compiler/ir/verify/verify.h"

namespace hpvm::ir {
namespace {

class GroupRunner {
 public:
  explicit GroupRunner(LaunchState& launch) : launch_(launch) {}

  StatusOr<TrapReport> Run(uint64_t group) {
    const Box box = BoxOfGroup(launch_.launch, group);
    if (launch_.decoded.module.uses_group_memory) {
      launch_.group_memory.fill(0);
    }
    if (launch_.check != nullptr) {
      launch_.check->BeginUnit();
    }
    const bool together = launch_.decoded.module.uses_barrier;
    HPVMD_RETURN_IF_ERROR(Prepare(together ? box.count() : 1));
    return together ? Together(box) : OneByOne(box);
  }

 private:
  Status Prepare(size_t count) {
    while (instances_.size() < count) {
      instances_.emplace_back(launch_);
      HPVMD_RETURN_IF_ERROR(instances_.back().Allocate());
    }
    return absl::OkStatus();
  }
  TrapReport OneByOne(const Box& box) {
    for (uint64_t i = 0; i < box.count(); ++i) {
      instances_[0].Start(box.At(i), static_cast<uint32_t>(i));
      if (instances_[0].Run() == InstanceState::kTrapped) {
        return instances_[0].trap_report();
      }
    }
    return {};
  }
  TrapReport Together(const Box& box) {
    const std::span<Instance> group(instances_.data(), box.count());
    for (size_t i = 0; i < group.size(); ++i) {
      group[i].Start(box.At(i), static_cast<uint32_t>(i));
    }
    while (true) {
      Instance* waiting = nullptr;
      bool diverges = false;
      for (Instance& instance : group) {
        if (instance.Run() == InstanceState::kTrapped) {
          return instance.trap_report();
        }
        if (instance.state() == InstanceState::kWaiting && waiting == nullptr) {
          waiting = &instance;
        }
      }
      if (waiting == nullptr) {
        return {};
      }
      for (const Instance& instance : group) {
        diverges |= instance.state() == InstanceState::kEnded || instance.waits_at() != waiting->waits_at();
      }
      if (diverges) {
        return Diverge(group, *waiting);
      }
      if (launch_.check != nullptr) {
        launch_.check->PassBarrier();
      }
    }
  }
  // Reports an instance of the group that does not wait where the lowest waiting instance does.
  TrapReport Diverge(std::span<Instance> group, Instance& waiting) {
    const Code* barrier = waiting.waits_at() - 1;
    for (const Instance& other : group) {
      const bool has_ended = other.state() == InstanceState::kEnded;
      if (launch_.check == nullptr || (!has_ended && other.waits_at() == waiting.waits_at())) {
        continue;
      }
      const InstanceCheck& check = *other.check();
      CheckedSite site;
      site.instance = other.id();
      launch_.check->ReportMissedBarrier(waiting.check()->SiteAt(waiting, waiting.function(), barrier),
                                         has_ended ? site : check.SiteAt(other, other.function(), other.waits_at() - 1),
                                         has_ended);
    }
    waiting.Trap(TrapCode::kBarrierDivergence, barrier);
    return waiting.trap_report();
  }

  LaunchState& launch_;
  std::vector<Instance> instances_;  // Reused from group to group.
};

StatusOr<TrapReport> RunInstances(LaunchState& launch, uint64_t begin, uint64_t end) {
  Instance instance(launch);
  HPVMD_RETURN_IF_ERROR(instance.Allocate());
  for (uint64_t i = begin; i < end; ++i) {
    if (launch.check != nullptr) {
      launch.check->BeginUnit();
    }
    instance.Start(Unflatten(i, launch.launch.extent));
    if (instance.Run() == InstanceState::kTrapped) {
      return instance.trap_report();
    }
  }
  return TrapReport{};
}

// Compares with x fastest.
bool IsBefore(const Triple& a, const Triple& b) {
  return std::lexicographical_compare(a.rbegin(), a.rend(), b.rbegin(), b.rend());
}

StatusOr<TrapReport> RunGroups(LaunchState& launch, uint64_t begin, uint64_t end) {
  GroupRunner runner(launch);
  TrapReport lowest;
  for (uint64_t i = begin; i < end; ++i) {
    // A later group may contain lower instances than the one that trapped; only a check requires the lowest.
    if (lowest.code != TrapCode::kNone && IsBefore(lowest.instance, BoxOfGroup(launch.launch, i).origin)) {
      continue;
    }
    HPVMD_ASSIGN_OR_RETURN(const TrapReport report, runner.Run(i));
    if (report.code == TrapCode::kNone) {
      continue;
    }
    if (launch.check == nullptr || report.code == TrapCode::kStopped) {
      return report;
    }
    if (lowest.code == TrapCode::kNone || IsBefore(report.instance, lowest.instance)) {
      lowest = report;
    }
  }
  return lowest;
}

}  // namespace

Interpreter::Interpreter(std::unique_ptr<const DecodedModule> decoded) : decoded_(std::move(decoded)) {}
Interpreter::Interpreter(Interpreter&&) noexcept = default;
Interpreter& Interpreter::operator=(Interpreter&&) noexcept = default;
Interpreter::~Interpreter() = default;

StatusOr<Interpreter> Interpreter::Create(Module module) {
  HPVMD_RETURN_IF_ERROR(ToStatus(Verify(module)));
  return Interpreter(std::make_unique<const DecodedModule>(std::move(module)));
}

const Module& Interpreter::module() const { return decoded_->module; }

StatusOr<TrapReport> Interpreter::Run(const Launch& launch, const InterpretOptions& options) const {
  const Module& m = decoded_->module;
  HPVMD_RETURN_IF_ERROR(CheckLaunch(m, launch));
  HPVMD_ASSIGN_OR_RETURN(AddressSpace addresses, AssignAddresses(m, launch.arguments));
  const uint64_t steps = options.steps_max == 0 ? ~uint64_t{0} : options.steps_max;
  const uint64_t mask = m.is_memory64 ? ~uint64_t{0} : 0xffffffffu;
  // On the heap, because group memory is too large for a worker's stack.
  const std::unique_ptr<LaunchState> state(
      new LaunchState{*decoded_, launch, std::move(addresses), mask, steps, nullptr, {}});
  const uint64_t end = std::min(options.end, WorkUnits(m, launch));
  std::unique_ptr<LaunchCheck> check;
  if (launch.checker != nullptr) {
    HPVMD_RETURN_IF_ERROR(LaunchCheck::CanCheck(m, launch, end));
    check = std::make_unique<LaunchCheck>(*decoded_, launch, state->addresses, *launch.checker, options.begin);
    state->check = check.get();
  }
  return RunsByGroups(m) ? RunGroups(*state, options.begin, end) : RunInstances(*state, options.begin, end);
}

StatusOr<TrapReport> Interpret(const Module& module, const Launch& launch, const InterpretOptions& options) {
  HPVMD_ASSIGN_OR_RETURN(const Interpreter interpreter, Interpreter::Create(module));
  return interpreter.Run(launch, options);
}

}  // namespace hpvm::ir
