// SPDX-License-Identifier: Apache-2.0
#include "proto/internal/protocol.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace hpvm {
namespace {

using internal::Envelope;

using DeviceIds = std::span<const std::string>;

// Checks the rules of one message. The first violated rule ends the check, because callers return its error.
class Checker {
 public:
  Checker(const char* message, size_t body_bytes) : message_(message), body_bytes_(body_bytes) {}

  Status Fail(std::string_view what) const { return InvalidArgument(std::string(message_) + ": " + std::string(what)); }
  Status Count(const char* field, uint64_t count, uint64_t max) const {
    if (count <= max) {
      return absl::OkStatus();
    }
    return Fail(std::string(field) + " (" + std::to_string(count) + ") exceeds the limit (" + std::to_string(max) +
                ").");
  }
  Status Text(const char* field, std::string_view text, size_t bytes_max, bool lines = false) const {
    HPVMD_RETURN_IF_ERROR(Count(field, text.size(), bytes_max));
    return IsCleanText(text, lines) ? absl::OkStatus()
                                    : Fail(std::string(field) + " is not valid UTF-8 without control characters.");
  }
  Status Name(const char* field, std::string_view text) const {
    return text.empty() ? Fail(std::string(field) + " is empty.") : Text(field, text, kNameBytesMax);
  }
  Status Hash(const char* field, const std::string& hash) const {
    return hash.size() == 32 ? absl::OkStatus() : Fail(std::string(field) + " does not have 32 bytes.");
  }
  Status NotZero(const char* field, uint64_t value) const {
    return value != 0 ? absl::OkStatus() : Fail(std::string(field) + " is 0.");
  }
  // Rejects fields that only the daemon sets.
  Status Unset(const char* field, bool is_set) const {
    return is_set ? Fail(std::string(field) + " is set, but only the daemon may set it.") : absl::OkStatus();
  }
  Status Device(const char* field, std::string_view id, DeviceIds devices) const {
    return std::find(devices.begin(), devices.end(), id) != devices.end()
               ? absl::OkStatus()
               : Fail(std::string(field) + " names a device that Ready did not list.");
  }
  // Requires the range to be inside the body and aligned, and records it for Overlaps.
  Status Take(const char* field, const internal::Range& range) {
    const uint64_t end = uint64_t{range.offset()} + range.bytes();
    if (end > body_bytes_ || range.offset() % kRangeAlignment != 0) {
      return Fail(std::string(field) + " [" + std::to_string(range.offset()) + ", " + std::to_string(end) +
                  ") is not an aligned range of the body (" + std::to_string(body_bytes_) + " bytes).");
    }
    if (range.bytes() != 0) {
      ranges_.emplace_back(range.offset(), end);
    }
    return absl::OkStatus();
  }
  Status Overlaps() {
    std::sort(ranges_.begin(), ranges_.end());
    for (size_t i = 1; i < ranges_.size(); ++i) {
      if (ranges_[i].first < ranges_[i - 1].second) {
        return Fail("two ranges of the body overlap.");
      }
    }
    return absl::OkStatus();
  }
  Status Memory(const char* field, const internal::MemoryRange& range) const {
    HPVMD_RETURN_IF_ERROR(NotZero(field, range.memory_id()));
    uint64_t end = 0;
    if (range.offset() % kRangeAlignment != 0 || __builtin_add_overflow(range.offset(), range.bytes(), &end)) {
      return Fail(std::string(field) + " is not an aligned range of memory.");
    }
    return absl::OkStatus();
  }

 private:
  const char* message_;
  size_t body_bytes_;
  std::vector<std::pair<uint64_t, uint64_t>> ranges_;
};

Status CheckStatus(const Checker& check, const internal::Status& status) {
  HPVMD_RETURN_IF_ERROR(check.Count("status.code", status.code(), 16));
  return check.Text("status.message", status.message(), kStatusTextBytesMax, true);
}

// Checks the type and shape of a tensor and returns its size in bytes.
StatusOr<uint64_t> CheckTensor(const Checker& check, uint32_t type,
                               const google::protobuf::RepeatedField<uint64_t>& shape) {
  if (type < 1 || type > kElementTypes.size()) {
    return check.Fail("type (" + std::to_string(type) + ") is not an element type.");
  }
  const std::optional<uint64_t> bytes =
      TensorBytes(static_cast<ElementType>(type), {shape.data(), static_cast<size_t>(shape.size())});
  if (!bytes.has_value()) {
    return check.Fail("shape has too many dimensions or its size overflows.");
  }
  return *bytes;
}

// Returns the number of descriptors that belong to `hello`: the rings, the daemon's bell, and those that its fields
// announce.
size_t DescriptorsOf(const internal::Hello& hello) {
  return 2 + (hello.has_grant_page() ? 1 : 0) + (hello.has_spill_file() ? 1 : 0);
}

Status CheckHello(const internal::Hello& hello, size_t fds) {
  Checker check("Hello", 0);
  HPVMD_RETURN_IF_ERROR(check.Hash("artifact_key", hello.artifact_key()));
  HPVMD_RETURN_IF_ERROR(check.Text("cache_folder", hello.cache_folder(), 4096));
  HPVMD_RETURN_IF_ERROR(check.Text("compiler_program", hello.compiler_program(), 4096));
  HPVMD_RETURN_IF_ERROR(check.Text("scratch_folder", hello.scratch_folder(), 4096));
  HPVMD_RETURN_IF_ERROR(check.Count("sandbox_level_max_plus_1", hello.sandbox_level_max_plus_1(), 5));
  HPVMD_RETURN_IF_ERROR(check.Count("sandbox_level_min", hello.sandbox_level_min(), 4));
  HPVMD_RETURN_IF_ERROR(check.Count("backends", static_cast<uint64_t>(hello.backends_size()), kDevicesMax));
  HPVMD_RETURN_IF_ERROR(check.NotZero("the number of backends", static_cast<uint64_t>(hello.backends_size())));
  for (const std::string& backend : hello.backends()) {
    HPVMD_RETURN_IF_ERROR(check.Name("backends", backend));
  }
  HPVMD_RETURN_IF_ERROR(
      check.Count("emitted_refused", static_cast<uint64_t>(hello.emitted_refused_size()), kDevicesMax));
  for (const internal::RefusedDevice& refused : hello.emitted_refused()) {
    HPVMD_RETURN_IF_ERROR(check.Name("emitted_refused.id", refused.id()));
    HPVMD_RETURN_IF_ERROR(check.Text("emitted_refused.reason", refused.reason(), kTextBytesMax));
  }
  HPVMD_RETURN_IF_ERROR(check.Count("cpu_threads", hello.cpu_threads(), 1024));
  HPVMD_RETURN_IF_ERROR(check.Count("jobs_max", hello.jobs_max(), 64));
  if (fds != DescriptorsOf(hello)) {
    return check.Fail("the number of descriptors does not match has_grant_page and has_spill_file.");
  }
  return absl::OkStatus();
}

Status CheckPutModule(const internal::PutModule& put, size_t body_bytes, size_t fds) {
  Checker check("PutModule", body_bytes);
  HPVMD_RETURN_IF_ERROR(check.Hash("sha256", put.sha256()));
  HPVMD_RETURN_IF_ERROR(check.NotZero("bytes", put.bytes()));
  HPVMD_RETURN_IF_ERROR(check.Count("bytes", put.bytes(), limits::kModuleBytesMax));
  if (put.has_body()) {
    HPVMD_RETURN_IF_ERROR(check.Take("body", put.body()));
    if (put.body().bytes() != put.bytes()) {
      return check.Fail("the range does not have the module's size.");
    }
  }
  return fds == (put.has_body() ? 0u : 1u) ? absl::OkStatus() : check.Fail("there is no source, or more than one.");
}

}  // namespace

Status CheckPrepare(const internal::PrepareGraph& prepare, size_t body_bytes, size_t fds) {
  Checker check("PrepareGraph", body_bytes);
  HPVMD_RETURN_IF_ERROR(check.NotZero("handle", prepare.handle()));
  HPVMD_RETURN_IF_ERROR(check.Count("modules", static_cast<uint64_t>(prepare.modules_size()), kModulesMax));
  for (const internal::NamedModule& module : prepare.modules()) {
    HPVMD_RETURN_IF_ERROR(check.Text("modules.name", module.name(), kNameBytesMax));
    HPVMD_RETURN_IF_ERROR(check.Hash("modules.sha256", module.sha256()));
  }
  if (prepare.has_document()) {
    HPVMD_RETURN_IF_ERROR(check.Take("document", prepare.document()));
    if (prepare.document().bytes() != prepare.document_bytes()) {
      return check.Fail("the range does not have the document's size.");
    }
  }
  return fds == (prepare.has_document() ? 0u : 1u) ? absl::OkStatus()
                                                   : check.Fail("there is no source, or more than one.");
}

namespace {

Status CheckInput(Checker& check, const internal::Binding& input) {
  HPVMD_RETURN_IF_ERROR(check.Name("inputs.name", input.name()));
  HPVMD_ASSIGN_OR_RETURN(const uint64_t bytes, CheckTensor(check, input.type(), input.shape()));
  uint64_t given = 0;
  if (input.has_body()) {
    HPVMD_RETURN_IF_ERROR(check.Take("inputs.body", input.body()));
    given = input.body().bytes();
  } else if (input.has_memory()) {
    HPVMD_RETURN_IF_ERROR(check.Memory("inputs.memory", input.memory()));
    given = input.memory().bytes();
  } else {
    return check.Fail("an input has neither inline data nor memory.");
  }
  if (given != bytes) {
    return check.Fail("the data of input \"" + input.name() + "\" (" + std::to_string(given) +
                      " bytes) does not have its shape's size (" + std::to_string(bytes) + ").");
  }
  return absl::OkStatus();
}

Status CheckOptions(const Checker& check, const internal::RunOptions& options) {
  HPVMD_RETURN_IF_ERROR(check.NotZero("repeat", options.repeat()));
  HPVMD_RETURN_IF_ERROR(check.Count("node_records_max", options.node_records_max(), kNodeRecordsMax));
  HPVMD_RETURN_IF_ERROR(check.Count("inline_bytes_max", options.inline_bytes_max(), kInlineBytesMax));
  HPVMD_RETURN_IF_ERROR(check.Count("rotations", static_cast<uint64_t>(options.rotations_size()), kPortsMax));
  for (const v1::Rotation& rotation : options.rotations()) {
    HPVMD_RETURN_IF_ERROR(check.Name("rotations.output", rotation.output()));
    HPVMD_RETURN_IF_ERROR(check.Name("rotations.input", rotation.input()));
  }
  return options.until().empty() ? absl::OkStatus() : check.Name("until", options.until());
}

}  // namespace

Status CheckRun(const internal::Run& run, size_t body_bytes) {
  Checker check("Run", body_bytes);
  HPVMD_RETURN_IF_ERROR(check.NotZero("handle", run.handle()));
  HPVMD_RETURN_IF_ERROR(CheckOptions(check, run.options()));
  HPVMD_RETURN_IF_ERROR(check.Count("inputs", static_cast<uint64_t>(run.inputs_size()), kPortsMax));
  for (const internal::Binding& input : run.inputs()) {
    HPVMD_RETURN_IF_ERROR(CheckInput(check, input));
  }
  HPVMD_RETURN_IF_ERROR(check.Count("symbols", static_cast<uint64_t>(run.symbols_size()), kPortsMax));
  for (const auto& [name, value] : run.symbols()) {
    HPVMD_RETURN_IF_ERROR(check.Name("symbols.name", name));
  }
  HPVMD_RETURN_IF_ERROR(check.Count("outputs", static_cast<uint64_t>(run.outputs_size()), kPortsMax));
  for (const internal::Target& target : run.outputs()) {
    HPVMD_RETURN_IF_ERROR(check.Name("outputs.name", target.name()));
    if (target.has_memory()) {
      HPVMD_RETURN_IF_ERROR(check.Memory("outputs.memory", target.memory()));
    } else if (!target.inline_() && !target.discard()) {
      return check.Fail("an output has no target.");
    }
  }
  return check.Overlaps();
}

namespace {

Status CheckShareMemory(const internal::ShareMemory& share, size_t fds) {
  Checker check("ShareMemory", 0);
  HPVMD_RETURN_IF_ERROR(check.NotZero("memory_id", share.memory_id()));
  HPVMD_RETURN_IF_ERROR(check.NotZero("bytes", share.bytes()));
  return fds == 1 ? absl::OkStatus() : check.Fail("there is no descriptor.");
}

// Messages whose frames may carry neither a body nor descriptors.
Status CheckBare(const char* message, size_t body_bytes, size_t fds) {
  if (body_bytes == 0 && fds == 0) {
    return absl::OkStatus();
  }
  return InvalidArgument(std::string(message) + ": the frame has a body or descriptors.");
}

Status CheckMath(const Checker& check, const std::string& math) {
  return math == "exact" || math == "fast" ? absl::OkStatus() : check.Fail("math is neither exact nor fast.");
}

Status CheckDevice(const Checker& check, const v1::Device& device, v1::Device::State state) {
  HPVMD_RETURN_IF_ERROR(check.NotZero("the length of devices.id", device.id().size()));
  HPVMD_RETURN_IF_ERROR(check.Text("devices.id", device.id(), 64));
  HPVMD_RETURN_IF_ERROR(check.Text("devices.name", device.name(), kNameBytesMax));
  HPVMD_RETURN_IF_ERROR(check.Text("devices.silicon", device.silicon(), kNameBytesMax));
  HPVMD_RETURN_IF_ERROR(check.Text("devices.detail", device.detail(), kTextBytesMax));
  HPVMD_RETURN_IF_ERROR(check.Unset("devices.memory_shared_with", !device.memory_shared_with().empty()));
  HPVMD_RETURN_IF_ERROR(check.Unset("devices.defects", device.defects_size() != 0));
  HPVMD_RETURN_IF_ERROR(check.Unset("devices.paused", device.has_paused()));
  HPVMD_RETURN_IF_ERROR(check.Text("devices.health.uuid", device.health().uuid(), kDeviceIdBytesMax));
  HPVMD_RETURN_IF_ERROR(check.Text("devices.health.bus", device.health().bus(), kDeviceIdBytesMax));
  v1::DeviceHealth known = device.health();
  known.clear_uuid();
  known.clear_bus();
  HPVMD_RETURN_IF_ERROR(check.Unset("devices.health", known.ByteSizeLong() != 0));
  if (device.state() != state) {
    return check.Fail("devices.state does not match the list that the device is in.");
  }
  if (state == v1::Device::STATE_READY &&
      (device.kind() == v1::Device::KIND_UNSPECIFIED || !v1::Device::Kind_IsValid(device.kind()))) {
    return check.Fail("devices.kind is unknown.");
  }
  return absl::OkStatus();
}

Status CheckReady(const internal::Ready& ready) {
  Checker check("Ready", 0);
  if (ready.version() != kExecutorProtocolVersion) {
    return check.Fail("the version (" + std::to_string(ready.version()) + ") is not " +
                      std::to_string(kExecutorProtocolVersion) + ".");
  }
  HPVMD_RETURN_IF_ERROR(check.Count("devices", static_cast<uint64_t>(ready.devices_size()), kDevicesMax));
  HPVMD_RETURN_IF_ERROR(check.Count("broken", static_cast<uint64_t>(ready.broken_size()), kDevicesMax));
  for (const v1::Device& broken : ready.broken()) {
    HPVMD_RETURN_IF_ERROR(CheckDevice(check, broken, v1::Device::STATE_BROKEN));
  }
  for (int i = 0; i < ready.devices_size(); ++i) {
    const internal::DeviceReport& report = ready.devices(i);
    HPVMD_RETURN_IF_ERROR(CheckDevice(check, report.device(), v1::Device::STATE_READY));
    if (report.gpu_target().size() > kNameBytesMax) {
      return check.Fail("devices.gpu_target has " + std::to_string(report.gpu_target().size()) +
                        " bytes; the limit is " + std::to_string(kNameBytesMax) + ".");
    }
    for (int j = 0; j < i; ++j) {
      if (ready.devices(j).device().id() == report.device().id()) {
        return check.Fail("two devices have the same id.");
      }
    }
  }
  HPVMD_RETURN_IF_ERROR(check.Count("defects", static_cast<uint64_t>(ready.defects_size()), kDefectsMax));
  for (const v1::DriverDefect& defect : ready.defects()) {
    HPVMD_RETURN_IF_ERROR(check.NotZero("the length of defects.name", defect.name().size()));
    HPVMD_RETURN_IF_ERROR(check.Text("defects.name", defect.name(), 64));
    HPVMD_RETURN_IF_ERROR(check.Text("defects.reason", defect.reason(), kTextBytesMax));
  }
  HPVMD_RETURN_IF_ERROR(check.Count("sandbox_level", ready.sandbox_level(), 4));
  return check.Text("sandbox_detail", ready.sandbox_detail(), kTextBytesMax);
}

template <typename Ports>
Status CheckPorts(const Checker& check, const Ports& ports) {
  HPVMD_RETURN_IF_ERROR(check.Count("ports", static_cast<uint64_t>(ports.size()), kPortsMax));
  for (const v1::PortSummary& port : ports) {
    HPVMD_RETURN_IF_ERROR(check.Name("ports.name", port.name()));
    if (port.type() < 1 || static_cast<size_t>(port.type()) > kElementTypes.size()) {
      return check.Fail("ports.type (" + std::to_string(port.type()) + ") is not an element type.");
    }
    HPVMD_RETURN_IF_ERROR(check.Count("ports.shape", static_cast<uint64_t>(port.shape_size()), limits::kTensorRankMax));
    for (const std::string& extent : port.shape()) {
      HPVMD_RETURN_IF_ERROR(check.Text("ports.shape", extent, kTextBytesMax));
    }
  }
  return absl::OkStatus();
}

Status CheckSummary(const Checker& check, const v1::GraphSummary& summary) {
  HPVMD_RETURN_IF_ERROR(check.Unset("summary.defects", summary.defects_size() != 0));
  HPVMD_RETURN_IF_ERROR(check.Text("summary.name", summary.name(), kTextBytesMax));
  HPVMD_RETURN_IF_ERROR(CheckPorts(check, summary.inputs()));
  HPVMD_RETURN_IF_ERROR(CheckPorts(check, summary.outputs()));
  HPVMD_RETURN_IF_ERROR(check.Count("summary.symbols", static_cast<uint64_t>(summary.symbols_size()), kPortsMax));
  for (const std::string& symbol : summary.symbols()) {
    HPVMD_RETURN_IF_ERROR(check.Name("summary.symbols", symbol));
  }
  HPVMD_RETURN_IF_ERROR(check.Count("summary.devices", static_cast<uint64_t>(summary.devices_size()), kDevicesMax));
  for (const std::string& device : summary.devices()) {
    HPVMD_RETURN_IF_ERROR(check.Name("summary.devices", device));
  }
  HPVMD_RETURN_IF_ERROR(check.Count("summary.math", static_cast<uint64_t>(summary.math_size()), kFastNodesMax));
  for (const v1::NodeMath& node : summary.math()) {
    HPVMD_RETURN_IF_ERROR(check.Text("summary.math.node", node.node(), kTextBytesMax));
    HPVMD_RETURN_IF_ERROR(CheckMath(check, node.math()));
  }
  return absl::OkStatus();
}

Status CheckPrepared(const internal::Prepared& prepared) {
  Checker check("Prepared", 0);
  HPVMD_RETURN_IF_ERROR(CheckStatus(check, prepared.status()));
  const v1::Diagnostics& diagnostics = prepared.diagnostics();
  HPVMD_RETURN_IF_ERROR(
      check.Count("diagnostics", static_cast<uint64_t>(diagnostics.items_size()), limits::kDiagnosticsMax));
  bool errors = false;
  for (const v1::Diagnostic& diagnostic : diagnostics.items()) {
    HPVMD_RETURN_IF_ERROR(check.Text("diagnostics.place", diagnostic.place(), kTextBytesMax));
    HPVMD_RETURN_IF_ERROR(check.Text("diagnostics.message", diagnostic.message(), kMessageTextBytesMax, true));
    const bool is_error = diagnostic.severity() == v1::Diagnostic::SEVERITY_ERROR;
    if (!is_error && diagnostic.severity() != v1::Diagnostic::SEVERITY_WARNING) {
      return check.Fail("diagnostics.severity is unknown.");
    }
    errors = errors || is_error;
  }
  const bool usable = prepared.status().code() == 0 && !errors;
  if (prepared.has_summary() != usable) {
    return check.Fail("the summary contradicts the status and the diagnostics.");
  }
  HPVMD_RETURN_IF_ERROR(CheckSummary(check, prepared.summary()));
  HPVMD_RETURN_IF_ERROR(
      check.Count("native_nodes", static_cast<uint64_t>(prepared.native_nodes_size()), kFastNodesMax));
  for (const internal::NativeNode& node : prepared.native_nodes()) {
    HPVMD_RETURN_IF_ERROR(check.Text("native_nodes.name", node.name(), kTextBytesMax));
    HPVMD_RETURN_IF_ERROR(check.Text("native_nodes.module", node.module(), kNameBytesMax));
    HPVMD_RETURN_IF_ERROR(check.Count("native_nodes.devices", static_cast<uint64_t>(node.devices_size()), kDevicesMax));
    for (const std::string& device : node.devices()) {
      HPVMD_RETURN_IF_ERROR(check.Name("native_nodes.devices", device));
    }
  }
  HPVMD_RETURN_IF_ERROR(check.Count("needs", static_cast<uint64_t>(prepared.needs_size()), kNeedsMax));
  for (const std::string& devices : prepared.needs()) {
    HPVMD_RETURN_IF_ERROR(check.Text("needs", devices, kTextBytesMax));
  }
  return absl::OkStatus();
}

template <typename Outputs>
Status CheckOutputs(Checker& check, const Outputs& outputs, bool may_hold_data) {
  HPVMD_RETURN_IF_ERROR(check.Count("outputs", static_cast<uint64_t>(outputs.size()), kPortsMax));
  for (const internal::OutputTensor& output : outputs) {
    HPVMD_RETURN_IF_ERROR(check.Name("outputs.name", output.name()));
    HPVMD_ASSIGN_OR_RETURN(const uint64_t bytes, CheckTensor(check, output.type(), output.shape()));
    if (bytes != output.bytes()) {
      return check.Fail("an output's bytes (" + std::to_string(output.bytes()) + ") do not match its shape (" +
                        std::to_string(bytes) + ").");
    }
    if (!output.has_body()) {
      continue;
    }
    HPVMD_RETURN_IF_ERROR(check.Take("outputs.body", output.body()));
    if (!may_hold_data || output.body().bytes() != bytes) {
      return check.Fail("an output's data does not have its size.");
    }
  }
  return check.Overlaps();
}

// Returns the total size of the log's texts, which share one limit.
uint64_t LogBytes(const v1::RunLog& log) {
  uint64_t bytes = 0;
  for (const v1::LogLine& line : log.lines()) {
    bytes += line.node().size() + line.text().size();
  }
  for (const v1::Finding& finding : log.findings()) {
    bytes += finding.node().size() + finding.kind().size() + finding.message().size() + finding.buffer().size() +
             finding.place().size();
  }
  return bytes;
}

Status CheckFinding(const Checker& check, const v1::Finding& finding) {
  HPVMD_RETURN_IF_ERROR(check.Text("log.findings.node", finding.node(), kTextBytesMax));
  HPVMD_RETURN_IF_ERROR(check.NotZero("the length of log.findings.kind", finding.kind().size()));
  HPVMD_RETURN_IF_ERROR(check.Text("log.findings.kind", finding.kind(), 64));
  HPVMD_RETURN_IF_ERROR(check.Text("log.findings.message", finding.message(), kTextBytesMax));
  HPVMD_RETURN_IF_ERROR(check.Count("log.findings.instances", static_cast<uint64_t>(finding.instances_size()), 2));
  HPVMD_RETURN_IF_ERROR(check.Text("log.findings.buffer", finding.buffer(), kNameBytesMax));
  HPVMD_RETURN_IF_ERROR(check.Text("log.findings.place", finding.place(), kTextBytesMax));
  return check.NotZero("log.findings.count", finding.count());
}

Status CheckLog(const Checker& check, const v1::RunLog& log) {
  HPVMD_RETURN_IF_ERROR(check.Count("log.lines", static_cast<uint64_t>(log.lines_size()), limits::kLogLinesMax));
  HPVMD_RETURN_IF_ERROR(check.Count("log.findings", static_cast<uint64_t>(log.findings_size()), limits::kFindingsMax));
  HPVMD_RETURN_IF_ERROR(check.Count("the bytes of the log", LogBytes(log), kLogHeadBytesMax));
  for (const v1::LogLine& line : log.lines()) {
    HPVMD_RETURN_IF_ERROR(check.Text("log.lines.node", line.node(), kTextBytesMax));
    HPVMD_RETURN_IF_ERROR(check.Text("log.lines.text", line.text(), limits::kLogLineBytesMax + 3, true));
    if (line.text().find('\n') != std::string::npos) {
      return check.Fail("log.lines.text has more than one line.");
    }
  }
  for (const v1::Finding& finding : log.findings()) {
    HPVMD_RETURN_IF_ERROR(CheckFinding(check, finding));
  }
  return absl::OkStatus();
}

Status CheckEvent(const internal::Event& event) {
  const Checker check("Event", 0);
  const v1::RunLog& log = event.log();
  switch (event.kind()) {
    case internal::Event::KIND_STARTED:
      return event.has_log() ? check.Fail("an event of this kind has no log.") : absl::OkStatus();
    case internal::Event::KIND_LOG:
      HPVMD_RETURN_IF_ERROR(check.NotZero("log.lines", static_cast<uint64_t>(log.lines_size())));
      if (log.lines_dropped() != 0 || log.findings_size() != 0 || log.findings_dropped() != 0 ||
          log.check_incomplete()) {
        return check.Fail("its log has fields other than lines.");
      }
      return CheckLog(check, log);
    default:
      return InvalidArgument("Event: the kind is unknown.");
  }
}

Status CheckPlacement(const Checker& check, const v1::NodePlacement& node, DeviceIds devices) {
  HPVMD_RETURN_IF_ERROR(check.Text("nodes.node", node.node(), kTextBytesMax));
  if (node.device() != kCheckerName) {
    HPVMD_RETURN_IF_ERROR(check.Device("nodes.device", node.device(), devices));
  }
  HPVMD_RETURN_IF_ERROR(check.Count("nodes.end_ns", node.end_ns(), INT64_MAX));
  HPVMD_RETURN_IF_ERROR(check.Count("nodes.total_ns", node.total_ns(), INT64_MAX));
  HPVMD_RETURN_IF_ERROR(check.Text("nodes.variant", node.variant(), kVariantBytesMax));
  HPVMD_RETURN_IF_ERROR(check.Text("nodes.whole", node.whole(), kVariantBytesMax));
  HPVMD_RETURN_IF_ERROR(CheckMath(check, node.math()));
  return node.start_ns() <= node.end_ns() ? absl::OkStatus() : check.Fail("a node ends before it starts.");
}

Status CheckTiming(const Checker& check, const v1::RunTiming& timing) {
  HPVMD_RETURN_IF_ERROR(check.Unset("timing.total_ns", timing.total_ns() != 0));
  for (const uint64_t ns :
       {timing.queue_ns(), timing.bind_ns(), timing.copy_in_ns(), timing.run_ns(), timing.copy_out_ns()}) {
    HPVMD_RETURN_IF_ERROR(check.Count("a time", ns, INT64_MAX));
  }
  return absl::OkStatus();
}

template <typename Ids>
Status CheckLost(const Checker& check, const char* field, const Ids& ids, DeviceIds devices) {
  HPVMD_RETURN_IF_ERROR(check.Count(field, static_cast<uint64_t>(ids.size()), kDevicesMax));
  for (const std::string& id : ids) {
    HPVMD_RETURN_IF_ERROR(check.Device(field, id, devices));
  }
  return absl::OkStatus();
}

Status CheckRunDone(const internal::RunDone& done, size_t body_bytes, DeviceIds devices) {
  Checker check("RunDone", body_bytes);
  HPVMD_RETURN_IF_ERROR(CheckStatus(check, done.status()));
  const bool ok = done.status().code() == 0;
  const bool is_short = done.status().code() == static_cast<uint32_t>(absl::StatusCode::kResourceExhausted);
  if (done.needs_memory() && !is_short) {
    return check.Fail("needs_memory contradicts the status.");
  }
  if (!ok && !done.needs_memory() && done.outputs_size() != 0) {
    return check.Fail("a failed run has outputs.");
  }
  HPVMD_RETURN_IF_ERROR(CheckOutputs(check, done.outputs(), ok));
  HPVMD_RETURN_IF_ERROR(CheckTiming(check, done.timing()));
  HPVMD_RETURN_IF_ERROR(check.Count("nodes", static_cast<uint64_t>(done.nodes_size()), kNodeRecordsMax));
  for (const v1::NodePlacement& node : done.nodes()) {
    HPVMD_RETURN_IF_ERROR(CheckPlacement(check, node, devices));
  }
  HPVMD_RETURN_IF_ERROR(check.Count("device_ns", static_cast<uint64_t>(done.device_ns_size()), kDevicesMax));
  for (const uint64_t ns : done.device_ns()) {
    HPVMD_RETURN_IF_ERROR(check.Count("device_ns", ns, INT64_MAX));
  }
  HPVMD_RETURN_IF_ERROR(check.Count("short_entry_plus_1", done.short_entry_plus_1(), kDevicesMax));
  if (done.short_entry_plus_1() != 0 && (done.needs_memory() || !is_short)) {
    return check.Fail("a shortage of device memory contradicts the status.");
  }
  HPVMD_RETURN_IF_ERROR(CheckLost(check, "lost_devices", done.lost_devices(), devices));
  if (ok && done.lost_devices_size() != 0) {
    return check.Fail("a run that succeeded has lost devices.");
  }
  HPVMD_RETURN_IF_ERROR(CheckLost(check, "left_devices", done.left_devices(), devices));
  if (done.traffic().lost_devices() != static_cast<uint32_t>(done.left_devices_size())) {
    return check.Fail("traffic.lost_devices is not the number of left_devices.");
  }
  return CheckLog(check, done.log());
}

Status CheckUsage(const internal::Usage& usage) {
  Checker check("Usage", 0);
  HPVMD_RETURN_IF_ERROR(check.Count("device_bytes", static_cast<uint64_t>(usage.device_bytes_size()), kDevicesMax));
  if (usage.idle_device_bytes_size() != usage.device_bytes_size()) {
    return check.Fail("device_bytes and idle_device_bytes differ in length.");
  }
  for (int i = 0; i < usage.device_bytes_size(); ++i) {
    HPVMD_RETURN_IF_ERROR(check.Count("device_bytes", usage.device_bytes(i), kDeviceBytesMax));
    if (usage.idle_device_bytes(i) > usage.device_bytes(i)) {
      return check.Fail("more bytes are idle than held.");
    }
  }
  return absl::OkStatus();
}

Status CheckFigure(const Checker& check, const char* field, double figure) {
  return std::isfinite(figure) && figure >= 0 && figure <= kCostFigureMax
             ? absl::OkStatus()
             : check.Fail(std::string(field) + " is not a finite number from 0 to the limit.");
}

Status CheckKernelCost(const Checker& check, const v1::KernelCost& kernel, DeviceIds devices) {
  HPVMD_RETURN_IF_ERROR(check.Unset("kernels.handle", !kernel.handle().empty()));
  HPVMD_RETURN_IF_ERROR(check.Text("kernels.kernel", kernel.kernel(), kTextBytesMax));
  HPVMD_RETURN_IF_ERROR(check.Device("kernels.device", kernel.device(), devices));
  HPVMD_RETURN_IF_ERROR(CheckFigure(check, "kernels.estimate_ns", kernel.estimate_ns()));
  HPVMD_RETURN_IF_ERROR(CheckFigure(check, "kernels.measured_ns", kernel.measured_ns()));
  return CheckFigure(check, "kernels.error", kernel.error());
}

Status CheckCosts(const internal::Costs& costs, DeviceIds devices) {
  Checker check("Costs", 0);
  HPVMD_RETURN_IF_ERROR(check.Count("graphs", static_cast<uint64_t>(costs.graphs_size()), kHandlesMax));
  uint64_t kernels = 0;
  for (const internal::GraphCosts& graph : costs.graphs()) {
    HPVMD_RETURN_IF_ERROR(check.NotZero("graphs.handle", graph.handle()));
    kernels += static_cast<uint64_t>(graph.kernels_size());
    HPVMD_RETURN_IF_ERROR(check.Count("kernels", kernels, kCostsMax));
    for (const v1::KernelCost& kernel : graph.kernels()) {
      HPVMD_RETURN_IF_ERROR(CheckKernelCost(check, kernel, devices));
    }
  }
  HPVMD_RETURN_IF_ERROR(check.Count("transfers", static_cast<uint64_t>(costs.transfers_size()), kTransferCostsMax));
  for (const v1::TransferCost& transfer : costs.transfers()) {
    for (const std::string& end : {transfer.source(), transfer.target()}) {
      HPVMD_RETURN_IF_ERROR(end == kHostName ? absl::OkStatus() : check.Device("transfers", end, devices));
    }
    HPVMD_RETURN_IF_ERROR(CheckFigure(check, "transfers.start_ns", transfer.start_ns()));
    HPVMD_RETURN_IF_ERROR(CheckFigure(check, "transfers.bytes_per_second", transfer.bytes_per_second()));
  }
  return absl::OkStatus();
}

// Requests that are answered, each with its answer.
constexpr struct {
  Envelope::MessageCase request, answer;
} kAnswers[] = {
    {Envelope::kHello, Envelope::kReady},   {Envelope::kPrepareGraph, Envelope::kPrepared},
    {Envelope::kRun, Envelope::kRunDone},   {Envelope::kGrantChanged, Envelope::kGrantAck},
    {Envelope::kReclaim, Envelope::kUsage}, {Envelope::kListCosts, Envelope::kCosts},
};

Status CheckAnswered(const Envelope& envelope, bool answered) {
  if ((envelope.request_id() != 0) == answered) {
    return absl::OkStatus();
  }
  return InvalidArgument("A message's request id (" + std::to_string(envelope.request_id()) +
                         ") does not fit its kind.");
}

Status CheckSent(const Envelope& envelope, size_t body_bytes, size_t fds) {
  HPVMD_RETURN_IF_ERROR(CheckAnswered(envelope, AnswerTo(envelope.message_case()) != Envelope::MESSAGE_NOT_SET));
  switch (envelope.message_case()) {
    case Envelope::kPutModule:
      return CheckPutModule(envelope.put_module(), body_bytes, fds);
    case Envelope::kPrepareGraph:
      return CheckPrepare(envelope.prepare_graph(), body_bytes, fds);
    case Envelope::kRun:
      HPVMD_RETURN_IF_ERROR(CheckBare("Run", 0, fds));
      return CheckRun(envelope.run(), body_bytes);
    case Envelope::kHello:
      return body_bytes == 0 ? CheckHello(envelope.hello(), fds) : CheckBare("Hello", body_bytes, 0);
    case Envelope::kShareMemory:
      HPVMD_RETURN_IF_ERROR(CheckBare("ShareMemory", body_bytes, 0));
      return CheckShareMemory(envelope.share_memory(), fds);
    default:
      break;
  }
  HPVMD_RETURN_IF_ERROR(CheckBare("A message without data", body_bytes, fds));
  switch (envelope.message_case()) {
    case Envelope::kSettle:
      return CheckHello(envelope.settle().known(), DescriptorsOf(envelope.settle().known()));
    case Envelope::kDropModule:
      return Checker("DropModule", 0).Hash("sha256", envelope.drop_module().sha256());
    case Envelope::kReclaim:
      return Checker("Reclaim", 0).Count("entry", envelope.reclaim().entry(), kDevicesMax - 1);
    case Envelope::kForgetMemory:
    case Envelope::kReleaseGraph:
    case Envelope::kCancel:
    case Envelope::kGrantChanged:
    case Envelope::kListCosts:
    case Envelope::kShutdown:
      return absl::OkStatus();
    default:
      return InvalidArgument("An Envelope to the executor holds no message that it takes.");
  }
}

Status CheckReceived(const Envelope& envelope, size_t body_bytes, size_t fds, DeviceIds devices) {
  HPVMD_RETURN_IF_ERROR(CheckBare("A message from the executor", 0, fds));
  if (envelope.message_case() != Envelope::kRunDone) {
    HPVMD_RETURN_IF_ERROR(CheckBare("A message without data", body_bytes, 0));
  }
  if (envelope.message_case() != Envelope::kUsage) {  // An executor also sends it unrequested.
    HPVMD_RETURN_IF_ERROR(CheckAnswered(envelope, envelope.message_case() != Envelope::kFatal));
  }
  switch (envelope.message_case()) {
    case Envelope::kReady:
      return CheckReady(envelope.ready());
    case Envelope::kPrepared:
      return CheckPrepared(envelope.prepared());
    case Envelope::kRunDone:
      return CheckRunDone(envelope.run_done(), body_bytes, devices);
    case Envelope::kGrantAck:
      return absl::OkStatus();
    case Envelope::kUsage:
      return CheckUsage(envelope.usage());
    case Envelope::kCosts:
      return CheckCosts(envelope.costs(), devices);
    case Envelope::kEvent:
      return CheckEvent(envelope.event());
    case Envelope::kFatal: {
      Checker check("Fatal", 0);
      HPVMD_RETURN_IF_ERROR(check.NotZero("status.code", envelope.fatal().status().code()));
      return CheckStatus(check, envelope.fatal().status());
    }
    default:
      return InvalidArgument("An Envelope from the executor holds no message that it sends.");
  }
}

// Records are forwarded to clients unchanged, so they must contain nothing that no check examines. Both ends are of
// one build, and neither sends unknown fields. The lite form, which forwards nothing, cannot drop them.
template <typename Message>
void DropUnknownFields(Message& message) {
  if constexpr (requires { message.DiscardUnknownFields(); }) {
    message.DiscardUnknownFields();
  }
}

}  // namespace

StatusOr<Unchecked<Envelope>> ParseHead(std::string_view head) {
  Envelope envelope;
  if (head.size() > kHeadBytesMax || !envelope.ParseFromArray(head.data(), static_cast<int>(head.size()))) {
    return InvalidArgument("The head of a frame is not an Envelope.");
  }
  DropUnknownFields(envelope);
  return Unchecked<Envelope>(std::move(envelope));
}

StatusOr<Envelope> CheckToExecutor(Unchecked<Envelope> said, size_t body_bytes, size_t fds) {
  return std::move(said).Open([&](Envelope envelope) -> StatusOr<Envelope> {
    HPVMD_RETURN_IF_ERROR(CheckSent(envelope, body_bytes, fds));
    return envelope;
  });
}

StatusOr<Envelope> CheckFromExecutor(Unchecked<Envelope> said, size_t body_bytes, size_t fds, DeviceIds devices) {
  return std::move(said).Open([&](Envelope envelope) -> StatusOr<Envelope> {
    HPVMD_RETURN_IF_ERROR(CheckReceived(envelope, body_bytes, fds, devices));
    return envelope;
  });
}

Envelope::MessageCase AnswerTo(Envelope::MessageCase request) {
  const auto* found =
      std::find_if(std::begin(kAnswers), std::end(kAnswers), [&](const auto& pair) { return pair.request == request; });
  return found == std::end(kAnswers) ? Envelope::MESSAGE_NOT_SET : found->answer;
}

void SetStatus(const Status& status, internal::Status* message) {
  message->set_code(static_cast<uint32_t>(status.code()));
  if (!status.ok()) {
    message->set_message(CleanText(Message(status), kStatusTextBytesMax));
  }
}

Status GetStatus(const internal::Status& message) {
  return MakeStatus(static_cast<absl::StatusCode>(message.code()), message.message());
}

Diagnostics GetDiagnostics(const v1::Diagnostics& message) {
  Diagnostics diagnostics;
  for (const v1::Diagnostic& item : message.items()) {
    Diagnostic& diagnostic = diagnostics.emplace_back();
    diagnostic.severity = item.severity() == v1::Diagnostic::SEVERITY_WARNING ? Severity::kWarning : Severity::kError;
    diagnostic.place = item.place();
    if (item.has_offset()) {
      diagnostic.offset = item.offset();
    }
    diagnostic.message = item.message();
  }
  return diagnostics;
}

}  // namespace hpvm
