// SPDX-License-Identifier: Apache-2.0
// An executor's messages as tests write them.
#ifndef HPVMD_SUPERVISOR_TESTING_MESSAGES_H_
#define HPVMD_SUPERVISOR_TESTING_MESSAGES_H_

#include <array>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/internal/protocol.h"
#include "supervisor/executor_process.h"

namespace hpvm::supervisor::testing {

// Adapts `done` of ExecutorProcess::Ask to an answer of one kind.
template <typename Message>
std::function<void(StatusOr<Message>)> Answering(ExecutorProcess::AskDone done,
                                                 Message* (internal::Envelope::*message)()) {
  return [done = std::move(done), message](StatusOr<Message> answer) {
    internal::Envelope said;
    if (answer.ok()) {
      *(said.*message)() = *std::move(answer);
    }
    done(answer.ok() ? StatusOr<internal::Envelope>(std::move(said)) : answer.status());
  };
}

inline v1::PortSummary Port(const std::string& name, ElementType type, std::initializer_list<std::string> shape) {
  v1::PortSummary port;
  port.set_name(name);
  port.set_type(static_cast<v1::ElementType>(type));
  port.mutable_shape()->Assign(shape.begin(), shape.end());
  return port;
}

// A graph that the executor accepts.
inline internal::Prepared AcceptedGraph(const std::string& name, std::initializer_list<v1::PortSummary> inputs,
                                        std::initializer_list<v1::PortSummary> outputs) {
  internal::Prepared prepared;
  prepared.mutable_summary()->set_name(name);
  prepared.mutable_summary()->mutable_inputs()->Assign(inputs.begin(), inputs.end());
  prepared.mutable_summary()->mutable_outputs()->Assign(outputs.begin(), outputs.end());
  return prepared;
}

inline internal::Prepared FailedPrepare(const Status& status) {
  internal::Prepared prepared;
  SetStatus(status, prepared.mutable_status());
  return prepared;
}

// Adds an error or a warning to the executor's diagnostics.
inline void AddDiagnostic(internal::Prepared& prepared, const std::string& place, const std::string& message,
                          v1::Diagnostic::Severity severity = v1::Diagnostic::SEVERITY_ERROR) {
  v1::Diagnostic& item = *prepared.mutable_diagnostics()->add_items();
  item.set_severity(severity);
  item.set_place(place);
  item.set_message(message);
}

inline internal::NativeNode Native(const std::string& name, const std::string& module,
                                   std::initializer_list<std::string> devices) {
  internal::NativeNode node;
  node.set_name(name);
  node.set_module(module);
  node.mutable_devices()->Assign(devices.begin(), devices.end());
  return node;
}

inline v1::NodePlacement Placement(const std::string& node, const std::string& device, uint64_t start_ns,
                                   uint64_t end_ns) {
  v1::NodePlacement placement;
  placement.set_node(node);
  placement.set_device(device);
  placement.set_start_ns(start_ns);
  placement.set_end_ns(end_ns);
  placement.set_math("exact");
  return placement;
}

// Adds an output without data: in memory that came with the run, or only its size.
inline internal::OutputTensor& AddOutput(RunReply& reply, const std::string& name, ElementType type,
                                         const std::vector<uint64_t>& shape, uint64_t bytes) {
  internal::OutputTensor& output = *reply.done.add_outputs();
  output.set_name(name);
  output.set_type(static_cast<uint32_t>(type));
  output.mutable_shape()->Assign(shape.begin(), shape.end());
  output.set_bytes(bytes);
  return output;
}

// Adds an inline output.
inline void AddInline(RunReply& reply, const std::string& name, ElementType type, const std::vector<uint64_t>& shape,
                      std::string_view data) {
  internal::Range& range = *AddOutput(reply, name, type, shape, data.size()).mutable_body();
  reply.body.resize((reply.body.size() + kRangeAlignment - 1) / kRangeAlignment * kRangeAlignment);
  range.set_offset(static_cast<uint32_t>(reply.body.size()));
  range.set_bytes(static_cast<uint32_t>(data.size()));
  reply.body.insert(reply.body.end(), data.begin(), data.end());
}

inline RunReply FailedRun(const Status& status) {
  RunReply reply;
  SetStatus(status, reply.done.mutable_status());
  return reply;
}

inline void AddLine(v1::RunLog& log, const std::string& node, const std::string& text,
                    const std::array<uint64_t, 3>& instance = {}) {
  v1::LogLine& line = *log.add_lines();
  line.set_node(node);
  line.set_text(text);
  line.mutable_instance()->set_x(instance[0]);
  line.mutable_instance()->set_y(instance[1]);
  line.mutable_instance()->set_z(instance[2]);
}

inline internal::Usage DeviceUsage(std::initializer_list<uint64_t> bytes, std::initializer_list<uint64_t> idle_bytes) {
  internal::Usage usage;
  usage.mutable_device_bytes()->Assign(bytes.begin(), bytes.end());
  usage.mutable_idle_device_bytes()->Assign(idle_bytes.begin(), idle_bytes.end());
  return usage;
}

inline v1::Device FoundDevice(const std::string& id, const std::string& silicon, uint64_t memory_bytes = 0) {
  v1::Device device;
  device.set_id(id);
  device.set_kind(id.starts_with("cpu") ? v1::Device::KIND_CPU : v1::Device::KIND_GPU);
  device.set_name(id);
  device.set_silicon(silicon);
  device.set_memory_bytes(memory_bytes);
  device.set_state(v1::Device::STATE_READY);
  return device;
}

inline v1::Device BrokenDevice(const std::string& id, const std::string& detail) {
  v1::Device device;
  device.set_id(id);
  device.set_detail(detail);
  device.set_state(v1::Device::STATE_BROKEN);
  return device;
}

// Returns a probe's answer.
inline internal::Ready Found(std::initializer_list<v1::Device> devices, std::initializer_list<v1::Device> broken = {}) {
  internal::Ready ready;
  for (const v1::Device& device : devices) {
    internal::DeviceReport& report = *ready.add_devices();
    *report.mutable_device() = device;
    report.set_has_driver(device.kind() != v1::Device::KIND_CPU);
  }
  ready.mutable_broken()->Assign(broken.begin(), broken.end());
  return ready;
}

}  // namespace hpvm::supervisor::testing

#endif  // HPVMD_SUPERVISOR_TESTING_MESSAGES_H_
