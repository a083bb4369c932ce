// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/defect_probe.h"

#include <memory>

#include "backends/shared/host_buffer.h"

namespace hpvm::gpu {
namespace {

constexpr uint64_t kWord = sizeof(uint64_t);

StatusOr<std::unique_ptr<Buffer>> Words(uint64_t words) {
  return backends::AllocateHostBuffer({.bytes = words * kWord}, words * kWord);
}

DispatchArgument View(SlotIndex slot, uint64_t bytes, bool is_output) {
  return {.slot = slot, .is_buffer = true, .is_output = is_output, .bytes = bytes};
}

// Slots 0 and 1 are host memory, 2 and 3 the device's: x, then out.
CommandList ListOf(const DefectProbe& probe, Executable& executable) {
  const uint64_t x_bytes = probe.x_words * kWord, out_bytes = probe.out_words * kWord;
  CommandList list;
  list.arguments = {View(2, x_bytes, false), View(3, out_bytes, false), DispatchArgument{}};
  DispatchCommand dispatch;
  dispatch.executable = &executable;
  dispatch.extent = {probe.instances, 1, 1};
  dispatch.group = {probe.group, 1, 1};
  dispatch.argument_count = 3;
  list.commands = {CopyCommand{.source = 0, .target = 2, .bytes = x_bytes}, dispatch,
                   CopyCommand{.source = 3, .target = 1, .bytes = out_bytes}};
  return list;
}

}  // namespace

bool Concerns(const DefectProbe& probe, const Device& device) {
  const Artifact artifact = probe.code();
  const GpuTarget& target = device.info().gpu;
  return artifact.kind == device.artifact_kind() &&
         (artifact.gpu.format != GpuFormat::kSpirBitcode || target.kernel_il == GpuFormat::kSpirBitcode);
}

StatusOr<bool> ComputesRightly(const DefectProbe& probe, Device& device, Time deadline) {
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<Executable> executable, device.Load(probe.code()));
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<Buffer> host_x, Words(probe.x_words));
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<Buffer> host_out, Words(probe.out_words));
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<Buffer> x, device.Allocate({.bytes = host_x->bytes()}));
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<Buffer> out, device.Allocate({.bytes = host_out->bytes()}));
  const std::unique_ptr<Timeline> timeline = device.CreateTimeline();
  auto* const words = reinterpret_cast<uint64_t*>(host_x->host());
  for (uint64_t i = 0; i < probe.x_words; ++i) {
    words[i] = i;
  }
  const CommandList list = ListOf(probe, *executable);
  Buffer* const buffers[] = {host_x.get(), host_out.get(), x.get(), out.get()};
  const TimelinePoint done{timeline.get(), 1};
  Submission submission;
  submission.commands = &list;
  submission.buffers = buffers;
  submission.signals = {&done, 1};
  HPVMD_RETURN_IF_ERROR(device.Submit(submission));
  HPVMD_RETURN_IF_ERROR(timeline->Wait(1, deadline));
  return probe.is_right({reinterpret_cast<const uint64_t*>(host_out->host()), probe.out_words});
}

}  // namespace hpvm::gpu
