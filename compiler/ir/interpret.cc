// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/interpret.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "compiler/ir/machine.h"
#include "compiler/ir/verify.h"

namespace hpvm::ir {
namespace {

using Triple = std::array<uint64_t, 3>;

// The place of a linear index in a box, x fastest.
Triple Unflatten(uint64_t index, const Triple& box) {
  return {index % box[0], index / box[0] % box[1], index / box[0] / box[1]};
}

class GroupRunner {
 public:
  explicit GroupRunner(LaunchState& launch) : launch_(launch) {
    const Launch& l = launch.launch;
    for (int i = 0; i < 3; ++i) {
      groups_[i] = l.extent[i] / l.group[i] + (l.extent[i] % l.group[i] != 0 ? 1 : 0);
    }
  }

  StatusOr<TrapReport> Run(uint64_t group);

 private:
  Status Prepare(size_t count);
  TrapReport OneByOne(const Triple& origin, const Triple& box);
  TrapReport Together(const Triple& origin, const Triple& box);

  LaunchState& launch_;
  Triple groups_{};
  std::vector<Instance> instances_;  // Reused from group to group.
};

Triple Plus(const Triple& a, const Triple& b) { return {a[0] + b[0], a[1] + b[1], a[2] + b[2]}; }

Status GroupRunner::Prepare(size_t count) {
  while (instances_.size() < count) {
    instances_.emplace_back(launch_);
    HPVMD_RETURN_IF_ERROR(instances_.back().Allocate());
  }
  return absl::OkStatus();
}

StatusOr<TrapReport> GroupRunner::Run(uint64_t group) {
  const Launch& l = launch_.launch;
  const Triple at = Unflatten(group, groups_);
  Triple origin{}, box{};
  for (int i = 0; i < 3; ++i) {
    origin[i] = at[i] * l.group[i];
    box[i] = std::min(l.group[i], l.extent[i] - origin[i]);  // The last group may be partial.
  }
  if (launch_.decoded.module.uses_group_memory) {
    launch_.group_memory.fill(0);
  }
  const bool together = launch_.decoded.module.uses_barrier;
  HPVMD_RETURN_IF_ERROR(Prepare(together ? box[0] * box[1] * box[2] : 1));
  return together ? Together(origin, box) : OneByOne(origin, box);
}

TrapReport GroupRunner::OneByOne(const Triple& origin, const Triple& box) {
  for (uint64_t i = 0; i < box[0] * box[1] * box[2]; ++i) {
    instances_[0].Start(Plus(origin, Unflatten(i, box)));
    if (instances_[0].Run() == InstanceState::kTrapped) {
      return instances_[0].trap_report();
    }
  }
  return {};
}

TrapReport GroupRunner::Together(const Triple& origin, const Triple& box) {
  const std::span<Instance> group(instances_.data(), box[0] * box[1] * box[2]);
  for (size_t i = 0; i < group.size(); ++i) {
    group[i].Start(Plus(origin, Unflatten(i, box)));
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
      waiting->Trap(TrapCode::kBarrierDivergence, waiting->waits_at() - 1);
      return waiting->trap_report();
    }
  }
}

StatusOr<TrapReport> RunInstances(LaunchState& launch, uint64_t begin, uint64_t end) {
  Instance instance(launch);
  HPVMD_RETURN_IF_ERROR(instance.Allocate());
  for (uint64_t i = begin; i < end; ++i) {
    instance.Start(Unflatten(i, launch.launch.extent));
    if (instance.Run() == InstanceState::kTrapped) {
      return instance.trap_report();
    }
  }
  return TrapReport{};
}

StatusOr<TrapReport> RunGroups(LaunchState& launch, uint64_t begin, uint64_t end) {
  GroupRunner runner(launch);
  for (uint64_t i = begin; i < end; ++i) {
    HPVMD_ASSIGN_OR_RETURN(const TrapReport report, runner.Run(i));
    if (report.code != TrapCode::kNone) {
      return report;
    }
  }
  return TrapReport{};
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
  // On the heap: group memory is too large for a worker's stack.
  const std::unique_ptr<LaunchState> state(
      new LaunchState{*decoded_, launch, std::move(addresses), mask, steps, {}});
  const uint64_t end = std::min(options.end, WorkUnits(m, launch));
  return RunsByGroups(m) ? RunGroups(*state, options.begin, end) : RunInstances(*state, options.begin, end);
}

StatusOr<TrapReport> Interpret(const Module& module, const Launch& launch, const InterpretOptions& options) {
  HPVMD_ASSIGN_OR_RETURN(const Interpreter interpreter, Interpreter::Create(module));
  return interpreter.Run(launch, options);
}

}  // namespace hpvm::ir
