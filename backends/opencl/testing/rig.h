// SPDX-License-Identifier: Apache-2.0
// Artifacts for OpenCL devices, and synchronous submissions to a device.
#ifndef HPVMD_BACKENDS_OPENCL_TESTING_RIG_H_
#define HPVMD_BACKENDS_OPENCL_TESTING_RIG_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "backends/opencl/device.h"
#include "backends/opencl/pocl.h"
#include "backends/shared/host_buffer.h"

namespace hpvm::opencl {

inline Time Soon() { return RealClock().Now() + std::chrono::seconds(60); }

inline GpuArgument Arg(GpuArgument::Kind kind, uint32_t index = 0, uint8_t bytes = 4) {
  GpuArgument argument;
  argument.kind = kind;
  argument.index = index;
  argument.bytes = bytes;
  return argument;
}

inline ir::KernelParam BufferParam(std::string name) {
  ir::KernelParam param;
  param.name = std::move(name);
  param.is_buffer = param.is_writable = true;
  return param;
}

inline ir::KernelParam ScalarParam(std::string name, ir::Type type = ir::Type::kI32) {
  ir::KernelParam param;
  param.name = std::move(name);
  param.is_buffer = false;
  param.type = type;
  return param;
}

// A kernel as a tenant writes it: one argument per parameter.
inline Artifact Native(std::string_view text, std::string entry, std::vector<ir::KernelParam> params) {
  Artifact artifact;
  artifact.kind = ArtifactKind::kOpenCl;
  artifact.module_name = "m";
  artifact.entry = entry;
  artifact.params = std::move(params);
  artifact.code.assign(text.begin(), text.end());
  artifact.gpu.format = GpuFormat::kOpenClC;
  artifact.gpu.is_native = true;
  GpuVariant variant;
  variant.entry = std::move(entry);
  variant.can_trap = false;
  for (uint32_t i = 0; i < artifact.params.size(); ++i) {
    const ir::KernelParam& param = artifact.params[i];
    variant.arguments.push_back(Arg(param.is_buffer ? GpuArgument::Kind::kBuffer : GpuArgument::Kind::kScalar, i,
                                    static_cast<uint8_t>(ir::Bytes(param.type))));
    variant.arguments.back().is_writable = param.is_buffer;
  }
  artifact.gpu.variants.push_back(std::move(variant));
  return artifact;
}

inline constexpr std::string_view kScale =
    "__kernel void scale(__global uint* x, uint by) { x[get_global_id(0)] *= by; }\n"
    "__kernel void other(__global float* y) { y[get_global_id(0)] = 1.0f; }\n";

// Arguments are passed as in emitted code; instances whose value is `bad` trap.
inline constexpr std::string_view kChecked = R"(
struct Record { uint state, code, x, y, z, source, function, address; };
__kernel void checked(__global uchar* x, ulong x_bytes, ulong x_start, uint bad, uint first, uint extent,
                      __global struct Record* records, uint index) {
  uint i = first + (uint)get_global_id(0);
  __global uint* data = (__global uint*)(x + x_start);
  if ((ulong)i * 4 + 4 > x_bytes || data[i] == bad) {
    if (atomic_cmpxchg((volatile __global uint*)&records[index].state, 0u, 1u) == 0u) {
      records[index].code = (ulong)i * 4 + 4 > x_bytes ? (4u << 16 | 2u) : 3u;
      records[index].x = i;
      records[index].y = records[index].z = 0;
      records[index].source = 77;
      records[index].function = 0;
      records[index].address = i * 4;
    }
    return;
  }
  data[i] = data[i] * 2 + extent;
}
)";

inline Artifact Checked() {
  using Kind = GpuArgument::Kind;
  Artifact artifact = Native(kChecked, "checked", {BufferParam("x"), ScalarParam("bad")});
  artifact.gpu.is_native = false;
  artifact.function_names = {"checked"};
  GpuVariant& variant = artifact.gpu.variants[0];
  variant.can_trap = true;
  variant.arguments = {Arg(Kind::kBuffer),
                       Arg(Kind::kBufferBytes, 0, 8),
                       Arg(Kind::kBufferStart, 0, 8),
                       Arg(Kind::kScalar, 1),
                       Arg(Kind::kFirst),
                       Arg(Kind::kExtent),
                       Arg(Kind::kTrapRecord),
                       Arg(Kind::kTrapIndex)};
  variant.arguments[0].is_writable = true;
  return artifact;
}

// A device with synchronous submissions.
class Rig {
 public:
  explicit Rig(const std::string& name, OpenClOptions options = {}) {
    StatusOr<std::unique_ptr<Device>> device = CreateOpenClDevice(name, hub, options);
    HPVMD_CHECK(device.ok());
    device_ = *std::move(device);
  }

  Device& device() { return *device_; }
  std::unique_ptr<Executable> Load(Artifact artifact) {
    StatusOr<std::unique_ptr<Executable>> executable = device_->Load(std::move(artifact));
    EXPECT_TRUE(executable.ok()) << executable.status();
    return executable.ok() ? *std::move(executable) : nullptr;
  }
  std::unique_ptr<Buffer> Allocate(uint64_t bytes) {
    StatusOr<std::unique_ptr<Buffer>> buffer = device_->Allocate({.bytes = bytes});
    HPVMD_CHECK(buffer.ok());
    return *std::move(buffer);
  }
  std::unique_ptr<Buffer> Host(std::vector<uint8_t>& data) {
    return *backends::AllocateHostBuffer({.bytes = data.size(), .import = data.data()}, data.size());
  }

  // The command list under construction.
  SlotIndex Slot(Buffer& buffer) {
    const auto found = std::find(buffers.begin(), buffers.end(), &buffer);
    if (found == buffers.end()) {
      buffers.push_back(&buffer);
      return static_cast<SlotIndex>(buffers.size() - 1);
    }
    return static_cast<SlotIndex>(found - buffers.begin());
  }
  void Copy(Buffer& source, Buffer& target, uint64_t bytes, uint64_t from = 0, uint64_t to = 0) {
    list.commands.emplace_back(CopyCommand{Slot(source), Slot(target), from, to, bytes});
  }
  void Dispatch(Executable& executable, uint64_t n, std::vector<DispatchArgument> arguments, uint64_t group = 1) {
    DispatchCommand dispatch;
    dispatch.executable = &executable;
    dispatch.extent = {n, 1, 1};
    dispatch.group = {group, 1, 1};
    dispatch.first_argument = static_cast<uint32_t>(list.arguments.size());
    dispatch.argument_count = static_cast<uint32_t>(arguments.size());
    dispatch.node = dispatches++;
    list.arguments.insert(list.arguments.end(), arguments.begin(), arguments.end());
    list.commands.emplace_back(dispatch);
  }
  DispatchArgument View(Buffer& buffer, uint64_t offset = 0, uint64_t bytes = ~uint64_t{0}) {
    DispatchArgument argument;
    argument.is_buffer = true;
    argument.slot = Slot(buffer);
    argument.offset = offset;
    argument.bytes = std::min(bytes, buffer.bytes() - offset);
    return argument;
  }
  static DispatchArgument Value(uint64_t bits) {
    DispatchArgument argument;
    argument.scalar = bits;
    return argument;
  }
  // Runs the commands added since the last run.
  Status Run() {
    std::unique_ptr<Timeline> timeline = device_->CreateTimeline();
    const TimelinePoint done{timeline.get(), 1};
    timings.assign(is_timed ? dispatches : 0, {});
    failure = {};
    Submission submission;
    submission.commands = &list;
    submission.buffers = buffers;
    submission.signals = {&done, 1};
    submission.timings = timings;
    submission.failure = &failure;
    submission.stop = stop;
    Status status = device_->Submit(submission);
    if (status.ok()) {
      status = timeline->Wait(1, Soon());
    }
    list = {};
    buffers.clear();
    dispatches = 0;
    return status;
  }
  template <typename T>
  std::vector<T> Read(Buffer& buffer) {
    std::vector<uint8_t> bytes(buffer.bytes());
    std::unique_ptr<Buffer> host = Host(bytes);
    Copy(buffer, *host, bytes.size());
    EXPECT_TRUE(Run().ok());
    std::vector<T> values(bytes.size() / sizeof(T));
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
    return values;
  }
  std::unique_ptr<Buffer> Upload(const std::vector<uint32_t>& values) {
    std::vector<uint8_t> bytes(values.size() * 4);
    std::memcpy(bytes.data(), values.data(), bytes.size());
    std::unique_ptr<Buffer> host = Host(bytes), buffer = Allocate(bytes.size());
    Copy(*host, *buffer, bytes.size());
    EXPECT_TRUE(Run().ok());
    return buffer;
  }

  Hub hub;
  CommandList list;
  std::vector<Buffer*> buffers;
  uint32_t dispatches = 0;
  bool is_timed = false;
  std::vector<NodeTiming> timings;
  Failure failure;
  const std::atomic<uint32_t>* stop = nullptr;

 private:
  std::unique_ptr<Device> device_;
};

// Returns the devices of this machine.
inline std::vector<std::string> Present() {
  hpvm::opencl::SetPoclEnvironment(/*keeps=*/true);  // As executors do.
  std::vector<std::string> names = ListOpenClDevices();
  if (names.empty()) {
    std::printf("SKIPPED: no OpenCL device is present.\n");
  }
  return names;
}

}  // namespace hpvm::opencl

#endif  // HPVMD_BACKENDS_OPENCL_TESTING_RIG_H_
