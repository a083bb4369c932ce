// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/device_run.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>

#include "backends/shared/host_buffer.h"
#include "compiler/back/back_ends.h"
#include "compiler/pass/pipeline.h"
#include "tests/audit.h"

namespace hpvm::gpu_test {
namespace {

// Host bytes that one buffer stands for.
struct Region {
  uint8_t* begin = nullptr;
  uint8_t* end = nullptr;
  std::unique_ptr<Buffer> buffer, host;
};

std::vector<Region> RegionsOf(const ir::Launch& launch) {
  std::vector<Region> regions;
  for (const ir::Argument& argument : launch.arguments) {
    if (argument.bytes > 0) {
      regions.push_back({argument.data, argument.data + argument.bytes, nullptr, nullptr});
    }
  }
  std::sort(regions.begin(), regions.end(), [](const Region& a, const Region& b) { return a.begin < b.begin; });
  std::vector<Region> merged;
  for (Region& region : regions) {
    if (!merged.empty() && region.begin < merged.back().end) {
      merged.back().end = std::max(merged.back().end, region.end);
    } else {
      merged.push_back(std::move(region));
    }
  }
  return merged;
}

Region& RegionOf(std::vector<Region>& regions, const uint8_t* data) {
  for (Region& region : regions) {
    if (data >= region.begin && data <= region.end) {
      return region;
    }
  }
  return regions.back();
}

std::vector<std::string> DevicesOf(const std::string& driver) {
  const StatusOr<std::vector<std::string>> devices = backends::ListDevices(driver);
  if (!devices.ok()) {
    std::fprintf(stderr, "%s: %s\n", driver.c_str(), Message(devices.status()).c_str());
  }
  HPVMD_CHECK(devices.ok());
  return *devices;
}

}  // namespace

std::vector<std::string> Devices() {
  std::vector<std::string> all;
  for (const char* driver : {"opencl", "vulkan"}) {
    const std::vector<std::string> devices = DevicesOf(driver);
    all.insert(all.end(), devices.begin(), devices.end());
  }
  return all;
}

bool HasDevice(const std::string& device) {
  const std::vector<std::string> devices = DevicesOf(device.substr(0, device.find(':')));
  return std::find(devices.begin(), devices.end(), device) != devices.end();
}

DeviceRun::DeviceRun(const std::string& backend, uint32_t variant) : forced_(variant) {
  DeviceOptions options;
  options.gpu_forced = &forced_;
  StatusOr<std::unique_ptr<Device>> device = backends::CreateDevice(backend, hub_, options);
  if (!device.ok()) {
    std::fprintf(stderr, "%s: %s\n", backend.c_str(), Message(device.status()).c_str());
  }
  HPVMD_CHECK(device.ok());
  device_ = std::move(*device);
}

StatusOr<Artifact> DeviceRun::Compile(ir::Module module, const std::vector<pass::GpuTile>& tiles) const {
  return CompileFor(info().gpu, std::move(module), tiles);
}

StatusOr<Artifact> DeviceRun::CompileFor(const GpuTarget& target, ir::Module module,
                                         const std::vector<pass::GpuTile>& tiles, bool fast_math) const {
  const gpu::BackEnd* const back = gpu::FindBackEnd(device_->artifact_kind());
  if (back == nullptr) {
    return Unimplemented("This build has no compiler for the device.");
  }
  HPVMD_RETURN_IF_ERROR(pass::RunGpuPipeline(module, {.verify_each = true, .fast_math = fast_math}));
  gpu::GpuOptions options;
  options.tiles = tiles;
  options.chooses_tiles = false;
  options.audits_proofs = TestsAuditProofs();
  options.fast_math = fast_math;
  Diagnostics diagnostics;
  const std::optional<Artifact> artifact = back->emit(module, target, options, diagnostics);
  if (!artifact.has_value()) {
    return FailedPrecondition(ToString(diagnostics));
  }
  return *artifact;
}

// Returns OK also when a kernel traps.
Status DeviceRun::Submit(const CommandList& commands, std::span<Buffer* const> buffers, ir::TrapReport* trap) {
  const std::unique_ptr<Timeline> timeline = device_->CreateTimeline();
  const TimelinePoint done{timeline.get(), 1};
  Failure failure;
  std::vector<NodeTiming> timings(1);
  Submission submission;
  submission.commands = &commands;
  submission.buffers = buffers;
  submission.signals = {&done, 1};
  submission.timings = timings;
  submission.failure = &failure;
  HPVMD_RETURN_IF_ERROR(device_->Submit(submission));
  const Status status = timeline->Wait(1, RealClock().Now() + std::chrono::seconds(60));
  *trap = failure.trap;
  return trap->code == ir::TrapCode::kNone ? status : absl::OkStatus();
}

StatusOr<ir::TrapReport> DeviceRun::Launch(Executable& executable, const ir::Launch& launch) {
  std::vector<Region> regions = RegionsOf(launch);
  CommandList commands;
  std::vector<Buffer*> buffers;
  for (Region& region : regions) {
    const auto bytes = static_cast<uint64_t>(region.end - region.begin);
    HPVMD_ASSIGN_OR_RETURN(region.buffer, device_->Allocate({.bytes = bytes}));
    HPVMD_ASSIGN_OR_RETURN(region.host, backends::AllocateHostBuffer({.bytes = bytes}, ~uint64_t{0}));
    std::memcpy(region.host->host(), region.begin, bytes);
    const auto slot = static_cast<SlotIndex>(buffers.size());
    buffers.push_back(region.buffer.get());
    buffers.push_back(region.host.get());
    commands.commands.emplace_back(CopyCommand{slot + 1, slot, 0, 0, bytes, /*has_indices=*/true});
  }
  DispatchCommand dispatch;
  dispatch.executable = &executable;
  dispatch.extent = launch.extent;
  dispatch.group = launch.group;
  dispatch.argument_count = static_cast<uint32_t>(launch.arguments.size());
  for (size_t k = 0; k < launch.arguments.size(); ++k) {
    const ir::Argument& argument = launch.arguments[k];
    DispatchArgument passed;
    passed.is_buffer = executable.artifact().params[k].is_buffer;
    passed.scalar = argument.scalar;
    if (passed.is_buffer && argument.bytes > 0) {
      Region& region = RegionOf(regions, argument.data);
      passed.slot = static_cast<SlotIndex>(2 * (&region - regions.data()));
      passed.offset = static_cast<uint64_t>(argument.data - region.begin);
      passed.bytes = argument.bytes;
    }
    if (passed.is_buffer && argument.bytes == 0) {
      passed.slot = 0;
    }
    commands.arguments.push_back(passed);
  }
  commands.commands.emplace_back(dispatch);
  ir::TrapReport trap;
  HPVMD_RETURN_IF_ERROR(Submit(commands, buffers, &trap));
  // Also after a trap: what was written is copied back before it is examined.
  CommandList back;
  for (SlotIndex slot = 0; slot < buffers.size(); slot += 2) {
    back.commands.emplace_back(CopyCommand{slot, slot + 1, 0, 0, buffers[slot]->bytes()});
  }
  ir::TrapReport none;
  HPVMD_RETURN_IF_ERROR(Submit(back, buffers, &none));
  for (Region& region : regions) {
    std::memcpy(region.begin, region.host->host(), static_cast<size_t>(region.end - region.begin));
  }
  return trap;
}

}  // namespace hpvm::gpu_test
