// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "backends/registry.h"
#include "base/clock.h"
#include "engine/plan.h"
#include "executor/driver_environment.h"
#include "executor/launcher.h"
#include "executor/probe_output.h"
#include "proto/internal/protocol.h"
#include "sandbox/sandbox.h"

namespace hpvm::executor {
namespace {

constexpr unsigned kProbeSecondsMax = 10;

// Removed at the end, because no other process knows of it.
std::string private_folder;

constexpr uint64_t kTryBytes = 4096;

// Tests what every job needs of the device: memory, a submission, its completion, and its output.
Status TryOut(Device& device) {
  const Time deadline = RealClock().Now() + std::chrono::seconds(kProbeSecondsMax);
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<Buffer> buffer, device.Allocate({.bytes = kTryBytes}));
  std::vector<uint8_t> read_back(kTryBytes, 0);
  const std::unique_ptr<Buffer> host = engine::MakeHostView(read_back.data(), kTryBytes);
  const std::unique_ptr<Timeline> timeline = device.CreateTimeline();
  CommandList list;
  list.commands = {FillCommand{.target = 0, .bytes = kTryBytes, .value = 0xa5},
                   CopyCommand{.source = 0, .target = 1, .bytes = kTryBytes}};
  Buffer* const buffers[] = {buffer.get(), host.get()};
  const TimelinePoint done{timeline.get(), 1};
  Submission submission;
  submission.commands = &list;
  submission.buffers = buffers;
  submission.signals = {&done, 1};
  HPVMD_RETURN_IF_ERROR(device.Submit(submission));
  HPVMD_RETURN_IF_ERROR(timeline->Wait(1, deadline));
  const bool is_right = std::all_of(read_back.begin(), read_back.end(), [](uint8_t byte) { return byte == 0xa5; });
  return is_right ? absl::OkStatus() : Internal("The device does not return the bytes that were written to it.");
}

StatusOr<internal::Envelope> Probe(const std::string& backend) {
  sandbox::SandboxReport report;
  HPVMD_RETURN_IF_ERROR(sandbox::Isolate({}, &report));
  HPVMD_ASSIGN_OR_RETURN(const DriverSandbox sandbox,
                         PrepareSandbox(backends::HasDriver(backend), {}, /*has_nodes=*/true));
  private_folder = sandbox.folder.path;
  HPVMD_RETURN_IF_ERROR(sandbox::Confine(&report, sandbox.confine));
  std::vector<std::string> names = {backend};
  if (backends::HasDriver(backend) && backend.find(':') == std::string::npos) {
    HPVMD_ASSIGN_OR_RETURN(names, backends::ListDevices(backend));
  }
  internal::Envelope envelope;
  envelope.set_request_id(1);
  internal::Ready* ready = envelope.mutable_ready();
  ready->set_version(kExecutorProtocolVersion);
  ready->set_sandbox_level(static_cast<uint32_t>(report.level));
  ready->set_sandbox_detail(report.detail);
  Hub hub;
  for (size_t i = 0; i < std::min<size_t>(names.size(), kDevicesMax); ++i) {
    const StatusOr<std::unique_ptr<Device>> device = backends::CreateDevice(names[i], hub, {});
    Status status = device.status();
    if (device.ok() && backends::HasDriver(backend)) {
      status = TryOut(**device);
    }
    if (status.ok()) {
      Describe((*device)->info(), ready->add_devices());
    } else if (!backends::HasDriver(backend)) {
      return status;
    } else {
      *ready->add_broken() = BrokenDevice(names[i], status);
    }
  }
  return envelope;
}

std::string KindName(v1::Device::Kind kind) {
  constexpr const char* kNames[] = {"", "null", "interp", "cpu", "gpu", "fpga"};
  static_assert(std::size(kNames) == v1::Device::Kind_ARRAYSIZE);
  return kNames[kind];
}

void Print(const v1::Device& device) {
  const std::string line = "{\"id\":" + Quoted(device.id()) + ",\"kind\":" + Quoted(KindName(device.kind())) +
                           ",\"name\":" + Quoted(device.name()) + ",\"silicon\":" + Quoted(device.silicon()) +
                           ",\"compute_units\":" + std::to_string(device.compute_units()) +
                           ",\"memory_bytes\":" + std::to_string(device.memory_bytes()) +
                           ",\"allocation_bytes_max\":" + std::to_string(device.allocation_bytes_max()) +
                           ",\"emulated\":" + (device.emulated() ? "true" : "false") + "}";
  PutLine(line);
}

void PrintBroken(const v1::Device& broken) {
  PutLine("{\"id\":" + Quoted(broken.id()) + ",\"broken\":" + Quoted(broken.detail()) + "}");
}

}  // namespace

Status RunProbe(const std::string& backend) {
  alarm(kProbeSecondsMax);  // The process that started the probe has the same limit; this one holds without it.
  const bool has_socket = HasSocket();
  const StatusOr<internal::Envelope> devices = Probe(backend);
  internal::Envelope answer;
  if (devices.ok()) {
    answer = *devices;
    for (const internal::DeviceReport& report : answer.ready().devices()) {
      Print(report.device());
    }
    for (const v1::Device& broken : answer.ready().broken()) {
      PrintBroken(broken);
    }
  } else {
    SetStatus(devices.status(), answer.mutable_fatal()->mutable_status());
  }
  HPVMD_RETURN_IF_ERROR(has_socket ? SendAnswer(answer) : absl::OkStatus());
  if (!private_folder.empty()) {
    RemoveFolder(private_folder);
  }
  return devices.status();
}

}  // namespace hpvm::executor
