// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/device.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "backends/cpu/addresses.h"
#include "backends/cpu/dispatch.h"
#include "backends/cpu/executable.h"
#include "backends/cpu/flow.h"
#include "backends/cpu/pool.h"
#include "backends/cpu/speed.h"
#include "backends/shared/host_buffer.h"
#include "backends/shared/host_queue.h"
#include "backends/shared/launch_part.h"
#include "base/limits.h"
#include "compiler/api/source_text.h"

namespace hpvm {
namespace {

using cpu::CpuExecutable;
using cpu::CpuLaunch;

constexpr std::atomic<uint32_t> kNeverStopped{0};

uint32_t MachineThreads() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) {
    return 1;
  }
  return static_cast<uint32_t>(std::max(1, CPU_COUNT(&set)));
}

// Returns the processor's brand from CPUID, because a sandbox may hide /proc.
std::string ProcessorName() {
#if defined(__x86_64__)
  char text[49] = {};
  auto* words = reinterpret_cast<unsigned*>(text);
  for (unsigned leaf = 0; leaf < 3; ++leaf) {
    unsigned a, b, c, d;
    asm volatile("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(0x80000002u + leaf), "c"(0));
    const unsigned values[4] = {a, b, c, d};
    std::copy(values, values + 4, words + leaf * 4);
  }
  std::string name = text;
  const size_t first = name.find_first_not_of(' ');
  const size_t last = name.find_last_not_of(' ');
  return first == std::string::npos ? "x86-64" : name.substr(first, last - first + 1);
#else
  return "CPU";
#endif
}

std::string VectorName() {
  for (const char* level : {"x86-64-v4", "x86-64-v3", "x86-64-v2"}) {
    if (cpu::CheckTarget(level).ok()) {
      return std::string(", ") + level;
    }
  }
  return "";
}

// Multiplies extents; returns false when the product does not fit in 63 bits.
bool Multiply(const std::array<uint64_t, 3>& extent, uint64_t* product) {
  uint64_t partial;
  return !__builtin_mul_overflow(extent[0], extent[1], &partial) &&
         !__builtin_mul_overflow(partial, extent[2], product) && *product < uint64_t{1} << 63;
}

class CpuDevice final : public Device, private backends::CommandTarget {
 public:
  CpuDevice(Hub& hub, const CpuDeviceOptions& options)
      : Device(hub),
        options_(options),
        ticks_(backends::ProcessTicks()),
        pool_(options.threads != 0 ? options.threads : MachineThreads(), options.grant, options.gate),
        queue_(hub, *this) {
    const uint32_t threads = options.threads != 0 ? options.threads : MachineThreads();
    info_.id = "cpu:0";
    info_.kind = DeviceKind::kCpu;
    info_.artifact_kind = ArtifactKind::kCpuImage;
    info_.name =
        ProcessorName() + ", " + std::to_string(threads) + (threads == 1 ? " thread" : " threads") + VectorName();
    info_.silicon = "cpu";
    info_.compute_units = threads;
    info_.memory_bytes = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    info_.allocation_bytes_max = info_.memory_bytes;
    info_.host_visible = true;
    info_.runs_inline = true;
    const cpu::ProcessorSpeed speed = cpu::SpeedOf(threads);
    info_.operations_per_second = speed.operations_per_second;
    info_.bytes_per_second = speed.bytes_per_second;
    info_.launch_ns = speed.launch_ns;
  }

  const DeviceInfo& info() const override { return info_; }

  Support Supports(const KernelNeeds& needs) const override {
    if (needs.kind != ArtifactKind::kCpuImage) {
      return {false, "The CPU runs images of machine code only."};
    }
    uint64_t instances = 0;
    const bool fits = Multiply(needs.group, &instances) && instances <= ir::kGroupInstancesMax;
    if ((needs.uses_barrier || needs.uses_group_memory) && !fits) {
      return {false, "A group whose instances share state has at most " + std::to_string(ir::kGroupInstancesMax) +
                         " instances on the CPU."};
    }
    return {};
  }

  StatusOr<std::unique_ptr<Executable>> Load(Artifact artifact, const Patience&) override {
    return CpuExecutable::Load(std::move(artifact),
                               {ProcessorName() + VectorName(), options_.tuning, pool_.threads(), options_.variant});
  }
  StatusOr<std::unique_ptr<Buffer>> Allocate(const BufferSpec& spec) override {
    return backends::AllocateHostBuffer(spec, info_.allocation_bytes_max);
  }
  Status Submit(const Submission& submission) override {
    queue_.Submit(submission);
    return absl::OkStatus();
  }

 private:
  Status Run(const Command& command, const Submission& submission, backends::CommandRecord* record) override {
    if (const auto* dispatch = std::get_if<DispatchCommand>(&command)) [[likely]] {
      return Dispatch(*dispatch, submission, record);
    }
    if (const auto* copy = std::get_if<CopyCommand>(&command)) {
      return backends::RunCopy(*copy, submission);
    }
    return backends::RunFill(std::get<FillCommand>(command), submission);
  }

  Status RunList(const Submission& submission) override {
    return submission.commands->order != nullptr && pool_.Allowed() > 1
               ? cpu::RunOrdered(pool_, *this, submission, this)
               : backends::CommandTarget::RunList(submission);
  }

  Status Dispatch(const DispatchCommand& dispatch, const Submission& submission, backends::CommandRecord* record);

  const CpuDeviceOptions options_;
  const backends::Ticks& ticks_;
  DeviceInfo info_;
  cpu::Pool pool_;
  backends::HostQueue queue_;  // Last member, so that it stops before the members that it uses are destroyed.
};

// Slow path, for the error message or for buffers that do not fit in one address space.
Status PlaceSeparately(const ir::Module& outline, std::span<ir::CpuArgument> resolved, CpuLaunch* launch) {
  std::vector<ir::Argument> arguments;
  for (const ir::CpuArgument& argument : resolved) {
    arguments.push_back({argument.data, argument.bytes, 0});
  }
  HPVMD_ASSIGN_OR_RETURN(const ir::AddressSpace space, ir::AssignAddresses(outline, arguments));
  for (size_t i = 0; i < resolved.size(); ++i) {
    if (outline.params[i].is_buffer) {
      resolved[i].base = space.base[i];
    }
  }
  launch->group_base = space.group_base;
  launch->separate = space.separate;
  return absl::OkStatus();
}

// Fills `into` with the dispatch's arguments, at the addresses given by ir::AssignAddresses. Allocates nothing unless
// they do not fit in one address space.
Status ResolveArguments(const DispatchCommand& dispatch, const Submission& submission, const CpuExecutable& executable,
                        ir::CpuArgument* into, CpuLaunch* launch) {
  const ir::Module& outline = executable.outline();
  const DispatchArgument* arguments = submission.commands->arguments.data() + dispatch.first_argument;
  cpu::AddressCursor cursor(outline);
  for (size_t i = 0; i < outline.params.size(); ++i) {
    const DispatchArgument& argument = arguments[i];
    if (!outline.params[i].is_buffer) {
      into[i] = {nullptr, 0, argument.slot == kNoSlot ? argument.scalar : submission.scalars[argument.slot],
                 ir::kCpuScalar};
      continue;
    }
    uint8_t* data = submission.buffers[argument.slot]->host() + argument.offset;
    into[i] = {data, argument.bytes, cursor.Place(argument.bytes), outline.params[i].is_writable ? 1u : 0u};
  }
  launch->group_base = outline.uses_group_memory ? cursor.Place(ir::kGroupMemoryBytesMax) : 0;
  launch->arguments = {into, outline.params.size()};
  return cursor.exhausted() ? PlaceSeparately(outline, {into, outline.params.size()}, launch) : absl::OkStatus();
}

Status CpuDevice::Dispatch(const DispatchCommand& dispatch, const Submission& submission,
                           backends::CommandRecord* record) {
  HPVMD_RETURN_IF_ERROR(backends::CheckDispatch(dispatch, submission));
  auto& executable = static_cast<CpuExecutable&>(*dispatch.executable);
  CpuLaunch launch;
  // Not initialised, because a kernel uses only a few words of these 8 KiB.
  ir::CpuArgument arguments[limits::kKernelParamsMax];
  HPVMD_RETURN_IF_ERROR(ResolveArguments(dispatch, submission, executable, arguments, &launch));
  launch.extent = dispatch.extent;
  launch.group = dispatch.group;
  if (!backends::IsPlain(dispatch)) [[unlikely]] {
    HPVMD_ASSIGN_OR_RETURN(const backends::LaunchPart part, backends::PartOf(dispatch, submission));
    if (part.is_empty) {
      return absl::OkStatus();
    }
    launch.extent = part.extent;
    launch.is_whole = part.is_whole;
    launch.part = {part.from, part.to};
  }
  LaunchPrinter printer(submission.log, dispatch.node, executable.artifact());
  launch.print = submission.log != nullptr ? &printer : nullptr;
  launch.stop = submission.stop != nullptr ? submission.stop : &kNeverStopped;
  uint64_t instances, group_instances;
  if (!Multiply(launch.extent, &instances) || !Multiply(dispatch.group, &group_instances) || group_instances == 0) {
    return Internal("The extents or the group of a dispatch of kernel \"" + executable.artifact().entry +
                    "\" are out of range.");
  }
  if (executable.has_groups() && group_instances > ir::kGroupInstancesMax) {
    return Internal("Group size (" + std::to_string(group_instances) + ") is larger than the limit (" +
                    std::to_string(ir::kGroupInstancesMax) + ").");
  }
  if (instances == 0) {
    return absl::OkStatus();
  }
  if (!pool_.Granted() && !pool_.WaitForGrant(submission.stop)) {
    return Cancelled("The launch was stopped.");
  }
  cpu::DispatchEnd end = cpu::RunDispatch(executable, launch, pool_, ticks_, record->start_ticks);
  record->end_ticks = end.ticks;
  record->variant = static_cast<uint8_t>(end.variant);  // At most limits::kCpuVariantsMax.
  record->is_settled = end.is_settled;
  if (end.trap.code != ir::TrapCode::kNone) [[unlikely]] {
    record->trap = end.trap;
    return backends::TrapStatus(end.trap, DescribeTrap(end.trap, executable.artifact()));
  }
  return end.status;
}

}  // namespace

std::unique_ptr<Device> CreateCpuDevice(Hub& hub, const CpuDeviceOptions& options) {
  return std::make_unique<CpuDevice>(hub, options);
}

const DeviceFamily kCpuFamily = {
    .name = "cpu",
    .open = [](std::string_view, Hub& hub, const DeviceOptions& options) -> StatusOr<std::unique_ptr<Device>> {
      return CreateCpuDevice(
          hub, {options.cpu_threads, options.cpu_grant, options.tuning, options.cpu_variant, options.gate});
    }};

}  // namespace hpvm
