// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/group.h"

#include <algorithm>
#include <cstring>

namespace hpvm::cpu {
namespace {

using backends::Extent;

// For groups of one instance, which never waits.
uint32_t PassBarrier(ir::CpuContext*, uint64_t) { return 0; }

struct PlainCall {
  Lane* lane;
  ir::CpuEntry entry;
  uint64_t begin, end;
  uint32_t outcome;
};

// Calls on a separate stack of the calling thread, when its first stack is small, unknown or nearly used up.
StatusOr<bool> CallOnOwnStack(Lane& lane, ir::CpuEntry entry, uint64_t begin, uint64_t end) {
  static thread_local std::unique_ptr<Fiber> fiber;
  if (fiber == nullptr) {
    HPVMD_ASSIGN_OR_RETURN(fiber, Fiber::Create());
  }
  lane.context.stack_limit = fiber->stack_limit();
  PlainCall call{&lane, entry, begin, end, 0};
  auto body = [](void* argument) {
    auto* call = static_cast<PlainCall*>(argument);
    call->outcome = call->entry(&call->lane->context, call->begin, call->end);
  };
  fiber->Start(body, &call);
  HPVMD_CHECK(fiber->Resume());
  return call.outcome == ir::kCpuDone;
}

}  // namespace

Extent GroupCounts(const CpuLaunch& launch) {
  Extent counts;
  for (size_t d = 0; d < 3; ++d) {
    counts[d] = CeilDivide(launch.extent[d], launch.group[d]);
  }
  return counts;
}

namespace {

// Group counts of the running part, along each dimension.
Extent PartGroupCounts(const CpuLaunch& launch) {
  Extent counts;
  for (size_t d = 0; d < 3; ++d) {
    counts[d] = CeilDivide(launch.part.to[d] - launch.part.from[d], launch.group[d]);
  }
  return counts;
}

}  // namespace

uint64_t GroupCount(const CpuLaunch& launch) {
  const Extent counts = launch.is_whole ? GroupCounts(launch) : PartGroupCounts(launch);
  return counts[0] * counts[1] * counts[2];
}

uint64_t GroupAt(const CpuLaunch& launch, uint64_t index) {
  if (launch.is_whole) {
    return index;
  }
  const Extent counts = PartGroupCounts(launch), whole = GroupCounts(launch);
  const Extent id = {launch.part.from[0] / launch.group[0] + index % counts[0],
                     launch.part.from[1] / launch.group[1] + index / counts[0] % counts[1],
                     launch.part.from[2] / launch.group[2] + index / counts[0] / counts[1]};
  return (id[2] * whole[1] + id[1]) * whole[0] + id[0];
}

void Bind(Lane& lane, const CpuLaunch& launch) {
  lane.print = launch.print;
  ir::CpuContext& context = lane.context;
  context.arguments = launch.arguments.data();
  context.argument_count = launch.separate ? 0 : launch.arguments.size();
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t) && std::atomic<uint32_t>::is_always_lock_free);
  context.stop = reinterpret_cast<const uint32_t*>(launch.stop);
  for (size_t d = 0; d < 3; ++d) {
    context.extent[d] = launch.extent[d];
    context.group[d] = launch.group[d];
  }
  context.trap_code = 0;
}

StatusOr<bool> Call(Lane& lane, ir::CpuEntry entry, uint64_t begin, uint64_t end) {
  const uint64_t limit = StackLimitHere();
  if (limit == 0) [[unlikely]] {
    return CallOnOwnStack(lane, entry, begin, end);
  }
  lane.context.stack_limit = limit;
  return entry(&lane.context, begin, end) == ir::kCpuDone;
}

ir::TrapReport TrapOf(const ir::CpuContext& context) {
  ir::TrapReport trap;
  trap.code = static_cast<ir::TrapCode>(context.trap_code);
  std::copy(std::begin(context.trap_instance), std::end(context.trap_instance), trap.instance.begin());
  trap.function = context.trap_function;
  trap.source = context.trap_source;
  trap.address = context.trap_address;
  trap.bytes = context.trap_bytes;
  return trap;
}

StatusOr<std::unique_ptr<GroupRunner>> GroupRunner::Create(LaneCache& lanes, bool uses_barrier) {
  std::unique_ptr<GroupRunner> runner(new GroupRunner(lanes, uses_barrier));
  HPVMD_ASSIGN_OR_RETURN(runner->group_memory_, Pages::Map(ir::kGroupMemoryBytesMax));
  return runner;
}

GroupRunner::~GroupRunner() {
  for (Instance& instance : instances_) {
    if (instance.lane != nullptr) {
      lanes_.Give(instance.lane);
    }
  }
}

void GroupRunner::ListInstances(const CpuLaunch& launch, uint64_t index) {
  const Extent counts = GroupCounts(launch);
  const Extent id = {index % counts[0], index / counts[0] % counts[1], index / counts[0] / counts[1]};
  Extent from, to;
  for (size_t d = 0; d < 3; ++d) {
    from[d] = id[d] * launch.group[d];
    to[d] = std::min(launch.extent[d], from[d] + launch.group[d]);
  }
  linear_.clear();
  for (uint64_t z = from[2]; z < to[2]; ++z) {
    for (uint64_t y = from[1]; y < to[1]; ++y) {
      for (uint64_t x = from[0]; x < to[0]; ++x) {
        linear_.push_back((z * launch.extent[1] + y) * launch.extent[0] + x);
      }
    }
  }
}

Status GroupRunner::Grow(size_t instances) {
  while (instances_.size() < instances) {
    Instance instance;
    if (uses_barrier_) {
      HPVMD_ASSIGN_OR_RETURN(instance.fiber, Fiber::Create());
    }
    HPVMD_ASSIGN_OR_RETURN(instance.lane, lanes_.Take());
    instance.lane->fiber = instance.fiber.get();
    instances_.push_back(std::move(instance));
  }
  return absl::OkStatus();
}

void GroupRunner::Prepare(Lane& lane, const CpuLaunch& launch) {
  Bind(lane, launch);
  lane.context.group_memory = group_memory_.data();
  lane.context.group_memory_base = launch.group_base;
  lane.context.group_memory_used = 0;
  lane.context.group_memory_bytes_max = group_memory_.bytes();
}

// An instance accesses only the memory it was given, so only that can be non-zero.
void GroupRunner::ClearGroupMemory() {
  std::memset(group_memory_.data(), 0, group_memory_used_);
  group_memory_used_ = 0;
}

StatusOr<bool> GroupRunner::Run(const CpuLaunch& launch, const Variant& variant, uint64_t index, ir::TrapReport* trap) {
  ListInstances(launch, index);
  ClearGroupMemory();
  if (!uses_barrier_ || linear_.size() == 1) {
    return RunInOrder(launch, variant.entry, trap);
  }
  return RunOnFibers(launch, variant.entry, trap);
}

StatusOr<bool> GroupRunner::RunWhole(const CpuLaunch& launch, const Variant& variant, uint64_t index,
                                     ir::TrapReport* trap) {
  HPVMD_RETURN_IF_ERROR(Grow(1));
  ClearGroupMemory();
  const uint64_t bytes = GroupValueBytes(variant.shape, launch.group);
  HPVMD_CHECK(bytes != ~uint64_t{0});
  if (bytes > group_values_.bytes()) {
    HPVMD_ASSIGN_OR_RETURN(group_values_, Pages::Map(bytes));
  }
  Lane& lane = *instances_[0].lane;
  Prepare(lane, launch);
  lane.context.barrier = PassBarrier;
  lane.context.group_values = group_values_.data();
  HPVMD_ASSIGN_OR_RETURN(const bool done, Call(lane, variant.entry, index, index + 1));
  if (!done) {
    *trap = TrapOf(lane.context);
  }
  EndInstance(lane);
  return done;
}

void GroupRunner::EndInstance(Lane& lane) {
  group_memory_used_ = std::max(group_memory_used_, lane.context.group_memory_used);
  lane.Restore();
}

StatusOr<bool> GroupRunner::RunInOrder(const CpuLaunch& launch, ir::CpuEntry entry, ir::TrapReport* trap) {
  HPVMD_RETURN_IF_ERROR(Grow(1));
  Lane& lane = *instances_[0].lane;
  for (uint64_t linear : linear_) {
    Prepare(lane, launch);
    lane.context.barrier = PassBarrier;
    HPVMD_ASSIGN_OR_RETURN(bool done, Call(lane, entry, linear, linear + 1));
    if (!done) {
      *trap = TrapOf(lane.context);
    }
    EndInstance(lane);
    if (!done) {
      return false;
    }
  }
  return true;
}

uint32_t GroupRunner::Wait(ir::CpuContext* context, uint64_t site) {
  auto* lane = static_cast<Lane*>(context->runner);
  lane->barrier_site = site;
  lane->fiber->Suspend();
  return lane->barrier_outcome;
}

void GroupRunner::RunInstance(void* argument) {
  auto* instance = static_cast<Instance*>(argument);
  instance->outcome = instance->entry(&instance->lane->context, instance->linear, instance->linear + 1);
}

// Ends the group at an instance that waits for instances that have ended or wait at another barrier: it returns from
// the barrier with the trap.
bool GroupRunner::Diverge(Instance& waiting, ir::TrapReport* trap) {
  waiting.lane->barrier_outcome = static_cast<uint32_t>(ir::TrapCode::kBarrierDivergence);
  if (!waiting.fiber->Resume() || waiting.outcome == ir::kCpuDone) {
    return false;
  }
  *trap = TrapOf(waiting.lane->context);
  return true;
}

StatusOr<bool> GroupRunner::RunOnFibers(const CpuLaunch& launch, ir::CpuEntry entry, ir::TrapReport* trap) {
  HPVMD_RETURN_IF_ERROR(Grow(linear_.size()));
  const std::span<Instance> group = std::span(instances_).first(linear_.size());
  for (size_t i = 0; i < group.size(); ++i) {
    Instance& instance = group[i];
    Prepare(*instance.lane, launch);
    instance.lane->context.barrier = Wait;
    instance.lane->context.stack_limit = instance.fiber->stack_limit();
    instance.lane->barrier_outcome = 0;
    instance.entry = entry;
    instance.linear = linear_[i];
    instance.ended = false;
    instance.fiber->Start(RunInstance, &instance);
  }
  bool trapped = false, diverged = false;
  size_t ended = 0;
  while (ended == 0 && !trapped && !diverged) {
    for (Instance& instance : group) {
      instance.ended = instance.fiber->Resume();
      ended += instance.ended ? 1 : 0;
      if (instance.ended && instance.outcome != ir::kCpuDone) {
        *trap = TrapOf(instance.lane->context);
        trapped = true;
        break;
      }
    }
    diverged = ended == 0 && !trapped && std::any_of(group.begin(), group.end(), [&](const Instance& i) {
                 return i.lane->barrier_site != group[0].lane->barrier_site;
               });
  }
  if (!trapped && ended != group.size()) {
    Instance& waiting = *std::find_if(group.begin(), group.end(), [](const Instance& i) { return !i.ended; });
    if (!Diverge(waiting, trap)) {
      return Internal("The image's code ignores the result of a barrier call.");
    }
    trapped = true;
  }
  for (Instance& instance : group) {
    EndInstance(*instance.lane);
  }
  return !trapped;
}

}  // namespace hpvm::cpu
