// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/testing/instance_runner.h"

#include <algorithm>
#include <string>
#include <utility>

#include "backends/cpu/executable.h"
#include "backends/cpu/fiber.h"
#include "backends/cpu/group.h"
#include "base/limits.h"

namespace hpvm::cpu {
namespace {

// For the code between two nested images: the frames of ir::HostCalls and Run.
constexpr uint64_t kHostReserveBytes = 512 * limits::kKiB;

constexpr std::atomic<uint32_t> kNeverStopped{0};
// Limit of the stack used by this thread's runs; 0 outside a run.
thread_local uint64_t running_limit = 0;

uint32_t Entered(ir::CpuContext& context, ir::CpuEntry entry) {
  context.stack_limit = running_limit;
  if (reinterpret_cast<uint64_t>(__builtin_frame_address(0)) < running_limit) {
    context.trap_code = static_cast<uint32_t>(ir::TrapCode::kStackOverflow);
    return ir::kCpuTrapped;
  }
  return entry(&context, 0, 1);
}

struct OutermostCall {
  ir::CpuContext* context;
  ir::CpuEntry entry;
  uint32_t outcome;
};

// Runs on a separate stack of this thread.
StatusOr<uint32_t> EnterOnFiber(ir::CpuContext& context, ir::CpuEntry entry) {
  static thread_local std::unique_ptr<Fiber> fiber;
  if (fiber == nullptr) {
    HPVMD_ASSIGN_OR_RETURN(fiber, Fiber::Create(kHostReserveBytes));
  }
  running_limit = fiber->stack_limit();
  OutermostCall call{&context, entry, 0};
  auto body = [](void* argument) {
    auto* call = static_cast<OutermostCall*>(argument);
    call->outcome = Entered(*call->context, call->entry);
  };
  fiber->Start(body, &call);
  HPVMD_CHECK(fiber->Resume());
  running_limit = 0;
  return call.outcome;
}

}  // namespace

struct InstanceRunner::Invocation {
  InstanceRunner& runner;
  const ir::Launch& launch;
  std::vector<ir::CpuArgument> arguments{};
  ir::CpuContext context{};
};

InstanceRunner::InstanceRunner(const Artifact& artifact, std::span<const ir::FunctionType> reference_types, Image image)
    : outline_(OutlineOf(artifact)), image_(std::move(image)) {
  for (const std::vector<ir::Type>& types : artifact.format_types) {
    print_operands_.push_back(static_cast<uint32_t>(types.size()));
  }
  for (const ir::FunctionType& type : reference_types) {
    host_values_.push_back(static_cast<uint32_t>(std::max(type.params.size(), type.results.size())));
  }
}

StatusOr<std::unique_ptr<InstanceRunner>> InstanceRunner::Load(const Artifact& artifact,
                                                               std::span<const ir::FunctionType> reference_types) {
  if (artifact.uses_barrier || artifact.uses_group_memory) {
    return InvalidArgument("Kernel \"" + artifact.entry + "\" runs by groups, not as a single instance.");
  }
  HPVMD_ASSIGN_OR_RETURN(Image image, Image::Map(artifact));
  std::unique_ptr<InstanceRunner> runner(new InstanceRunner(artifact, reference_types, std::move(image)));
  const uint64_t granules = artifact.memory_bytes_max / ir::kDirtyGranuleBytes;
  HPVMD_ASSIGN_OR_RETURN(runner->dirty_, Pages::Map((granules + 63) / 64 * 8 + granules * sizeof(uint32_t)));
  return runner;
}

uint32_t InstanceRunner::CallHost(ir::CpuContext* context, uint32_t reference, uint32_t type, uint64_t* values) {
  auto& invocation = *static_cast<Invocation*>(context->runner);
  const std::vector<uint32_t>& counts = invocation.runner.host_values_;
  ir::HostCalls* host = invocation.launch.host;
  if (host == nullptr || type >= counts.size()) {
    return static_cast<uint32_t>(ir::TrapCode::kHost);
  }
  ir::InstanceStorage& storage = *invocation.launch.instance;
  storage.memory_bytes = context->memory_bytes;
  const ir::TrapCode code = host->Call(reference, type, {values, counts[type]});
  context->memory_bytes = std::min(storage.memory_bytes, context->memory_bytes_max);
  return static_cast<uint32_t>(code);
}

void InstanceRunner::Print(ir::CpuContext* context, uint32_t format, const uint64_t* values) {
  const auto& invocation = *static_cast<const Invocation*>(context->runner);
  const std::vector<uint32_t>& counts = invocation.runner.print_operands_;
  if (invocation.launch.print != nullptr && format < counts.size()) {
    invocation.launch.print->Print({values[0], values[1], values[2]}, format, {values + 3, counts[format]});
  }
}

void InstanceRunner::Prepare(Invocation& invocation, const ir::AddressSpace& addresses) {
  const ir::Launch& launch = invocation.launch;
  const ir::InstanceStorage& storage = *launch.instance;
  for (size_t k = 0; k < outline_.params.size(); ++k) {
    const ir::Argument& argument = launch.arguments[k];
    invocation.arguments.push_back(outline_.params[k].is_buffer
                                       ? ir::CpuArgument{argument.data, argument.bytes, addresses.base[k],
                                                         outline_.params[k].is_writable ? 1u : 0u}
                                       : ir::CpuArgument{nullptr, 0, argument.scalar, ir::kCpuScalar});
  }
  ir::CpuContext& context = invocation.context;
  context.arguments = invocation.arguments.data();
  context.argument_count = addresses.separate ? 0 : invocation.arguments.size();
  context.memory = storage.memory;
  context.memory_bytes = storage.memory_bytes;
  context.memory_bytes_max = storage.memory_bytes_max;
  const uint64_t granules = outline_.memory_bytes_max / ir::kDirtyGranuleBytes;
  context.dirty_bits = reinterpret_cast<uint64_t*>(dirty_.data());
  context.dirty_list = reinterpret_cast<uint32_t*>(dirty_.data() + (granules + 63) / 64 * 8);
  context.globals = storage.globals;
  context.state = storage.state;
  context.stop = reinterpret_cast<const uint32_t*>(launch.stop != nullptr ? launch.stop : &kNeverStopped);
  for (size_t d = 0; d < 3; ++d) {
    context.extent[d] = launch.extent[d];
    context.group[d] = launch.group[d];
  }
  context.restore = [](ir::CpuContext*) {};
  context.barrier = [](ir::CpuContext*, uint64_t) { return uint32_t{0}; };
  context.host = CallHost;
  context.print = Print;
  context.runner = &invocation;
}

StatusOr<ir::TrapReport> InstanceRunner::Run(const ir::Launch& launch) {
  HPVMD_RETURN_IF_ERROR(ir::CheckLaunch(outline_, launch));
  const ir::InstanceStorage* storage = launch.instance;
  if (storage == nullptr || launch.instances() != 1) {
    return InvalidArgument("A launch of " + std::to_string(launch.instances()) +
                           " instances, with or without storage, is not one instance in the caller's memory.");
  }
  if (storage->memory_bytes > storage->memory_bytes_max || storage->memory_bytes_max > outline_.memory_bytes_max) {
    return InvalidArgument("Memory (" + std::to_string(storage->memory_bytes) + " of at most " +
                           std::to_string(storage->memory_bytes_max) + " bytes) does not suit a module of at most " +
                           std::to_string(outline_.memory_bytes_max) + " bytes.");
  }
  HPVMD_ASSIGN_OR_RETURN(const ir::AddressSpace addresses, ir::AssignAddresses(outline_, launch.arguments));
  Invocation invocation{*this, launch};
  Prepare(invocation, addresses);
  uint32_t outcome = 0;
  if (running_limit != 0) {
    outcome = Entered(invocation.context, image_.entry());
  } else {
    HPVMD_ASSIGN_OR_RETURN(outcome, EnterOnFiber(invocation.context, image_.entry()));
  }
  launch.instance->memory_bytes = invocation.context.memory_bytes;
  return outcome == ir::kCpuDone ? ir::TrapReport{} : TrapOf(invocation.context);
}

}  // namespace hpvm::cpu
