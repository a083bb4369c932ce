// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "backends/opencl/device.h"
#include "backends/registry.h"
#include "backends/shared/host_buffer.h"
#include "backends/vulkan/device.h"
#include "tests/conformance/conformance.h"

namespace hpvm::conformance {

Time Soon() { return RealClock().Now() + std::chrono::seconds(30); }

Status Await(Timeline& timeline, uint64_t value) {
  Status status = timeline.Wait(value, Soon());
  if (absl::IsDeadlineExceeded(status)) {
    const testing::TestInfo* const test = testing::UnitTest::GetInstance()->current_test_info();
    std::fflush(stdout);
    std::fprintf(stderr,
                 "%s: value %llu of a timeline was not reached in time. What is in flight cannot be called "
                 "back, so no further case runs.\n",
                 test == nullptr ? "No test" : test->name(), static_cast<unsigned long long>(value));
    std::_Exit(1);
  }
  return status;
}

SlotIndex Work::SlotOf(Buffer& buffer) {
  const auto found = std::find(buffers.begin(), buffers.end(), &buffer);
  if (found != buffers.end()) {
    return static_cast<SlotIndex>(found - buffers.begin());
  }
  buffers.push_back(&buffer);
  return static_cast<SlotIndex>(buffers.size() - 1);
}

void Work::Dispatch(Executable& executable, std::array<uint64_t, 3> extent, std::array<uint64_t, 3> group,
                    const std::vector<Arg>& args, const Box& box) {
  DispatchCommand dispatch;
  dispatch.executable = &executable;
  dispatch.extent = extent;
  dispatch.group = group;
  dispatch.first = box.first;
  dispatch.count = box.count;
  dispatch.first_argument = static_cast<uint32_t>(commands.arguments.size());
  dispatch.argument_count = static_cast<uint32_t>(args.size());
  dispatch.node = static_cast<uint32_t>(timings.size());
  timings.emplace_back();
  for (const Arg& arg : args) {
    DispatchArgument argument;
    argument.is_buffer = arg.buffer != nullptr;
    argument.slot = argument.is_buffer ? SlotOf(*arg.buffer) : arg.scalar_slot;
    argument.offset = arg.offset;
    argument.bytes = arg.bytes;
    argument.scalar = arg.scalar;
    commands.arguments.push_back(argument);
  }
  commands.commands.emplace_back(dispatch);
}

void Work::Copy(Buffer& source, uint64_t source_offset, Buffer& target, uint64_t target_offset, uint64_t bytes) {
  commands.commands.emplace_back(CopyCommand{SlotOf(source), SlotOf(target), source_offset, target_offset, bytes});
}

void Work::Fill(Buffer& target, uint64_t offset, uint64_t bytes, uint8_t value) {
  commands.commands.emplace_back(FillCommand{SlotOf(target), offset, bytes, value});
}

namespace {

StatusOr<std::unique_ptr<Device>> Create(std::string_view backend, Hub& hub) {
  if (!backend.ends_with(Bench::kLanes)) {
    return backends::CreateDevice(backend, hub, {});
  }
  backend.remove_suffix(Bench::kLanes.size());
  if (backend.starts_with("opencl")) {
    return CreateOpenClDevice(backend, hub, {.always_stage = true, .has_copy_lanes = true});
  }
  return CreateVulkanDevice(backend, hub, {.as_discrete = true});
}

}  // namespace

Bench::Bench(std::string_view backend) : backend_(backend) {
  StatusOr<std::unique_ptr<Device>> device = Create(backend, hub_);
  if (!device.ok()) {
    std::fprintf(stderr, "Device %s: %s\n", backend_.c_str(), Message(device.status()).c_str());
  }
  HPVMD_CHECK(device.ok());
  owned_ = *std::move(device);
  device_ = owned_.get();
}

bool Bench::is_driven() const { return IsGpuCode(device_->artifact_kind()); }

std::unique_ptr<Executable> Bench::Load(std::string_view kernel) {
  StatusOr<Artifact> artifact = CompileText(KernelText(kernel), *device_);
  if (!artifact.ok()) {
    ADD_FAILURE() << "Compiling " << kernel << ": " << artifact.status();
    return nullptr;
  }
  StatusOr<std::unique_ptr<Executable>> executable = device_->Load(*std::move(artifact));
  if (!executable.ok()) {
    ADD_FAILURE() << "Loading " << kernel << ": " << executable.status();
    return nullptr;
  }
  return *std::move(executable);
}

std::unique_ptr<Buffer> Bench::Allocate(uint64_t bytes) {
  BufferSpec spec;
  spec.bytes = bytes;
  StatusOr<std::unique_ptr<Buffer>> buffer = device_->Allocate(spec);
  HPVMD_CHECK(buffer.ok());
  return *std::move(buffer);
}

std::unique_ptr<Timeline> Bench::CreateTimeline() { return device_->CreateTimeline(); }

Status Bench::Submit(Work& work, std::span<const TimelinePoint> waits, std::span<const TimelinePoint> signals,
                     Lane lane) {
  Submission submission;
  submission.lane = lane;
  submission.waits = waits;
  submission.commands = &work.commands;
  submission.buffers = work.buffers;
  submission.scalars = work.scalars;
  submission.signals = signals;
  submission.stop = work.stop;
  submission.timings = work.timings;
  submission.failure = &work.failure;
  return device_->Submit(submission);
}

Status Bench::Run(Work& work) {
  std::unique_ptr<Timeline> timeline = CreateTimeline();
  const TimelinePoint done{timeline.get(), 1};
  HPVMD_RETURN_IF_ERROR(Submit(work, {}, {&done, 1}));
  return Await(*timeline, 1);
}

void Bench::WriteBytes(Buffer& buffer, uint64_t offset, const void* data, uint64_t bytes) {
  if (bytes == 0) {
    return;
  }
  if (buffer.host() != nullptr) {
    std::memcpy(buffer.host() + offset, data, bytes);
    return;
  }
  BufferSpec spec{bytes, static_cast<uint8_t*>(const_cast<void*>(data))};
  std::unique_ptr<Buffer> staging = *backends::AllocateHostBuffer(spec, bytes);
  Work work;
  work.Copy(*staging, 0, buffer, offset, bytes);
  const Status status = Run(work);
  EXPECT_TRUE(status.ok()) << status;
}

void Bench::ReadBytes(Buffer& buffer, uint64_t offset, void* data, uint64_t bytes) {
  if (bytes == 0) {
    return;
  }
  if (buffer.host() != nullptr) {
    std::memcpy(data, buffer.host() + offset, bytes);
    return;
  }
  BufferSpec spec{bytes, static_cast<uint8_t*>(data)};
  std::unique_ptr<Buffer> staging = *backends::AllocateHostBuffer(spec, bytes);
  Work work;
  work.Copy(buffer, offset, *staging, 0, bytes);
  const Status status = Run(work);
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace hpvm::conformance
