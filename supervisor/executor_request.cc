// SPDX-License-Identifier: Apache-2.0
#include "supervisor/executor_request.h"

#include <string.h>

#include <algorithm>
#include <utility>

namespace hpvm {
namespace {

uint64_t AlignUp(uint64_t value) { return (value + kRangeAlignment - 1) / kRangeAlignment * kRangeAlignment; }

Status CheckCount(std::string_view what, uint64_t count, uint64_t max) {
  if (count <= max) {
    return absl::OkStatus();
  }
  return InvalidArgument("The number of " + std::string(what) + " (" + std::to_string(count) + ") exceeds the limit (" +
                         std::to_string(max) + ").");
}

Status CheckSlice(const std::string& port, const MemorySlice& slice) {
  uint64_t end = 0;
  if (slice.memory_id == 0 || slice.offset % kRangeAlignment != 0 ||
      __builtin_add_overflow(slice.offset, slice.bytes, &end) || end > slice.memory_bytes) {
    return InvalidArgument("Port \"" + port + "\": The memory's range does not lie inside it.");
  }
  return absl::OkStatus();
}

void SetMemory(const MemorySlice& slice, internal::MemoryRange* range) {
  range->set_memory_id(slice.memory_id);
  range->set_offset(slice.offset);
  range->set_bytes(slice.bytes);
}

void SetTensor(const InputTensor& input, internal::Binding* binding) {
  binding->set_name(input.name);
  binding->set_type(static_cast<uint32_t>(input.type));
  binding->mutable_shape()->Add(input.shape.begin(), input.shape.end());
}

template <typename Message>
void SetSymbols(const std::map<std::string, int64_t>& symbols, Message* message) {
  for (const auto& [name, value] : symbols) {
    internal::Symbol* symbol = message->add_symbols();
    symbol->set_name(name);
    symbol->set_value(value);
  }
}

Status EncodeInput(const InputTensor& input, uint64_t* body_bytes, internal::Binding* binding) {
  const std::optional<uint64_t> bytes = TensorBytes(input.type, input.shape);
  const uint64_t given = input.memory.has_value() ? input.memory->bytes : input.bytes.size();
  if (!bytes.has_value() || *bytes != given) {
    return InvalidArgument("Port \"" + input.name + "\": The data (" + std::to_string(given) +
                           " bytes) does not have the size that its shape needs" +
                           (bytes.has_value() ? " (" + std::to_string(*bytes) + ")." : "."));
  }
  SetTensor(input, binding);
  if (input.memory.has_value()) {
    HPVMD_RETURN_IF_ERROR(CheckSlice(input.name, *input.memory));
    SetMemory(*input.memory, binding->mutable_memory());
    return absl::OkStatus();
  }
  const uint64_t offset = AlignUp(*body_bytes);
  if (offset + given > kBodyBytesMax) {
    return InvalidArgument("The inline inputs together (" + std::to_string(offset + given) +
                           " bytes) exceed the limit (" + std::to_string(kBodyBytesMax) + ").");
  }
  binding->mutable_body()->set_offset(static_cast<uint32_t>(offset));
  binding->mutable_body()->set_bytes(static_cast<uint32_t>(given));
  *body_bytes = offset + given;
  return absl::OkStatus();
}

// Lays the inline inputs out as their ranges say.
void FillBody(const RunInput& input, uint64_t body_bytes, EncodedRequest* request) {
  if (body_bytes == 0) {
    return;
  }
  const internal::Run& run = request->envelope.run();
  for (size_t i = 0; i < input.inputs.size(); ++i) {
    const std::span<const uint8_t> bytes = input.inputs[i].bytes;
    const internal::Binding& binding = run.inputs(static_cast<int>(i));
    if (!binding.has_body() || bytes.empty()) {
      continue;
    }
    if (bytes.size() == body_bytes) {
      request->body = bytes;  // The only one: sent from where it is.
      return;
    }
    request->storage.resize(body_bytes);
    memcpy(request->storage.data() + binding.body().offset(), bytes.data(), bytes.size());
  }
  request->body = request->storage;
}

std::vector<ExecutorPort> DecodePorts(const google::protobuf::RepeatedPtrField<internal::Port>& ports) {
  std::vector<ExecutorPort> decoded;
  for (const internal::Port& port : ports) {
    decoded.push_back({port.name(), static_cast<ElementType>(port.type()), {port.shape().begin(), port.shape().end()}});
  }
  return decoded;
}

Duration Nanoseconds(uint64_t ns) { return Duration(static_cast<int64_t>(ns)); }

}  // namespace

Status EncodeRun(const RunInput& input, EncodedRequest* request) {
  HPVMD_RETURN_IF_ERROR(CheckCount("inputs", input.inputs.size(), kPortsMax));
  HPVMD_RETURN_IF_ERROR(CheckCount("outputs", input.outputs.size(), kPortsMax));
  HPVMD_RETURN_IF_ERROR(CheckCount("symbols", input.symbols.size(), kPortsMax));
  internal::Run* run = request->envelope.mutable_run();
  run->set_handle(input.handle);
  uint64_t body_bytes = 0;
  for (const InputTensor& tensor : input.inputs) {
    HPVMD_RETURN_IF_ERROR(EncodeInput(tensor, &body_bytes, run->add_inputs()));
  }
  for (const OutputTarget& output : input.outputs) {
    internal::Target* target = run->add_outputs();
    target->set_name(output.name);
    switch (output.kind) {
      case OutputTarget::Kind::kInline:
        target->set_inline_(true);
        break;
      case OutputTarget::Kind::kDiscard:
        target->set_discard(true);
        break;
      case OutputTarget::Kind::kMemory:
        HPVMD_RETURN_IF_ERROR(CheckSlice(output.name, output.memory));
        if (!output.memory.writable) {
          return InvalidArgument("Port \"" + output.name + "\": The output's memory is read-only.");
        }
        SetMemory(output.memory, target->mutable_memory());
        break;
    }
  }
  SetSymbols(input.symbols, run);
  run->set_repeat(input.repeat);
  HPVMD_RETURN_IF_ERROR(CheckCount("rotations", input.rotations.size(), kPortsMax));
  for (const RotationInput& rotation : input.rotations) {
    internal::Rotation* added = run->add_rotations();
    added->set_output(rotation.output);
    added->set_input(rotation.input);
  }
  run->set_until(input.until);
  run->set_is_last_chance(input.is_last_chance);
  run->set_deadline_ns(static_cast<uint64_t>(std::max<int64_t>(input.within.count(), 0)));
  run->set_node_records_max(std::min(input.node_records_max, kNodeRecordsMax));
  run->set_inline_bytes_max(std::min(input.inline_bytes_max, kInlineBytesMax));
  run->set_events(input.on_started != nullptr);
  run->set_log(input.log);
  FillBody(input, body_bytes, request);
  return absl::OkStatus();
}

Status EncodeOutputShapes(uint64_t handle, const std::vector<InputTensor>& inputs,
                          const std::map<std::string, int64_t>& symbols, EncodedRequest* request) {
  HPVMD_RETURN_IF_ERROR(CheckCount("inputs", inputs.size(), kPortsMax));
  HPVMD_RETURN_IF_ERROR(CheckCount("symbols", symbols.size(), kPortsMax));
  internal::OutputShapes* shapes = request->envelope.mutable_output_shapes();
  shapes->set_handle(handle);
  for (const InputTensor& tensor : inputs) {
    SetTensor(tensor, shapes->add_inputs());
  }
  SetSymbols(symbols, shapes);
  return absl::OkStatus();
}

internal::Envelope EncodeHello(const ExecutorOptions& options) {
  internal::Envelope envelope;
  internal::Hello* hello = envelope.mutable_hello();
  hello->set_version(kExecutorProtocolVersion);
  hello->set_artifact_key(options.artifact_key.data(), options.artifact_key.size());
  hello->set_cache_folder(options.cache_folder);
  hello->set_compiler_program(options.compiler_program);
  for (const std::string& backend : options.backends) {
    hello->add_backends(backend);
  }
  hello->set_cpu_threads(options.cpu_threads);
  hello->set_lock_down(options.lock_down);
  hello->set_uid(options.uid);
  hello->set_gid(options.gid);
  hello->set_has_grant_page(options.grant_page >= 0);
  hello->set_document_bytes_max(options.document_bytes_max);
  hello->set_nodes_max(options.nodes_max);
  hello->set_edges_max(options.edges_max);
  hello->set_jobs_max(options.jobs_max);
  hello->set_sandbox_level_max_plus_1(options.sandbox_level_max + 1);
  hello->set_sandbox_level_min(options.sandbox_level_min);
  hello->set_scratch_folder(options.scratch_folder);
  hello->set_tasks_max(options.tasks_max);
  hello->set_has_cgroup(options.has_cgroup);
  hello->set_without_device_nodes(options.without_device_nodes);
  hello->set_has_spill_file(options.spill_fd >= 0);
  hello->set_spill_bytes_max(options.spill_bytes_max);
  hello->set_host_bytes_max(options.host_bytes_max);
  hello->set_device_bytes_max(options.device_bytes_max);
  for (const BrokenDevice& refused : options.emitted_refused) {
    internal::RefusedDevice* to = hello->add_emitted_refused();
    to->set_id(refused.id);
    to->set_reason(refused.detail);
  }
  return envelope;
}

ExecutorReady DecodeReady(const internal::Ready& ready) {
  ExecutorReady decoded;
  for (const internal::DeviceInfo& device : ready.devices()) {
    decoded.devices.push_back({device.id(), device.kind(), device.name(), device.silicon(), device.compute_units(),
                               device.memory_bytes(), device.allocation_bytes_max(), device.is_emulated(),
                               device.gpu_target()});
  }
  for (const internal::BrokenDevice& broken : ready.broken()) {
    decoded.broken.push_back({broken.id(), broken.detail()});
  }
  decoded.sandbox_level = ready.sandbox_level();
  decoded.sandbox_detail = ready.sandbox_detail();
  return decoded;
}

PrepareReply DecodePrepared(const internal::Prepared& prepared) {
  PrepareReply reply;
  reply.status = GetStatus(prepared.status());
  for (const internal::Diagnostic& item : prepared.diagnostics()) {
    Diagnostic diagnostic;
    diagnostic.severity = item.warning() ? Severity::kWarning : Severity::kError;
    diagnostic.place = item.place();
    if (item.has_offset()) {
      diagnostic.offset = item.offset();
    }
    diagnostic.message = item.message();
    reply.diagnostics.push_back(std::move(diagnostic));
  }
  reply.diagnostics_omitted = prepared.diagnostics_omitted();
  reply.compile_cpu_ns = prepared.compile_cpu_ns();
  if (!prepared.has_summary()) {
    return reply;
  }
  const internal::Summary& from = prepared.summary();
  ExecutorSummary& summary = reply.summary.emplace();
  summary.name = from.name();
  summary.inputs = DecodePorts(from.inputs());
  summary.outputs = DecodePorts(from.outputs());
  summary.symbols.assign(from.symbols().begin(), from.symbols().end());
  summary.leaf_nodes = from.leaf_nodes();
  summary.internal_nodes = from.internal_nodes();
  summary.edges = from.edges();
  summary.devices.assign(from.devices().begin(), from.devices().end());
  summary.streaming = from.streaming();
  summary.fast_math_nodes.assign(from.fast_math_nodes().begin(), from.fast_math_nodes().end());
  for (const internal::NativeNode& node : from.native_nodes()) {
    summary.native_nodes.push_back({node.name(), node.module(), {node.devices().begin(), node.devices().end()}});
  }
  summary.parse = Nanoseconds(from.parse_ns());
  summary.compile = Nanoseconds(from.compile_ns());
  summary.load = Nanoseconds(from.load_ns());
  summary.compiled = from.compiled();
  summary.from_cache = from.from_cache();
  return reply;
}

std::vector<OutputTensor> DecodeOutputs(const google::protobuf::RepeatedPtrField<internal::OutputTensor>& outputs,
                                        std::span<const uint8_t> body) {
  std::vector<OutputTensor> decoded;
  decoded.reserve(static_cast<size_t>(outputs.size()));
  for (const internal::OutputTensor& output : outputs) {
    OutputTensor& tensor = decoded.emplace_back();
    tensor.name = output.name();
    tensor.type = static_cast<ElementType>(output.type());
    tensor.shape.assign(output.shape().begin(), output.shape().end());
    tensor.bytes = output.bytes();
    if (output.has_body()) {
      tensor.data = body.subspan(output.body().offset(), output.body().bytes());
    }
  }
  return decoded;
}

namespace {

ExecutorLog::InstanceId DecodeInstance(const internal::InstanceId& id) { return {id.x(), id.y(), id.z()}; }

ExecutorLog DecodeLog(const internal::Log& from) {
  ExecutorLog log;
  for (const internal::LogLine& line : from.lines()) {
    log.lines.push_back({from.nodes(static_cast<int>(line.node())), DecodeInstance(line.instance()), line.text()});
  }
  log.lines_dropped = from.lines_dropped();
  for (const internal::Finding& item : from.findings()) {
    ExecutorLog::Finding& finding = log.findings.emplace_back();
    finding.node = from.nodes(static_cast<int>(item.node()));
    finding.kind = item.kind();
    finding.message = item.message();
    finding.buffer = item.buffer();
    finding.place = item.place();
    for (const internal::InstanceId& id : item.instances()) {
      finding.instances.push_back(DecodeInstance(id));
    }
    finding.count = item.count();
  }
  log.findings_dropped = from.findings_dropped();
  log.check_incomplete = from.check_incomplete();
  return log;
}

}  // namespace

namespace {

// Devices that a run says are lost.
StatusOr<std::vector<std::string>> DecodeDevices(const google::protobuf::RepeatedField<uint32_t>& indices,
                                                 std::span<const ExecutorDevice> devices) {
  std::vector<std::string> ids;
  for (const uint32_t index : indices) {
    if (index >= devices.size()) {
      return InvalidArgument("RunDone: device " + std::to_string(index) + " of " + std::to_string(devices.size()) +
                             " is lost.");
    }
    ids.push_back(devices[index].id);
  }
  return ids;
}

}  // namespace

StatusOr<RunReply> DecodeRunDone(const internal::RunDone& done, std::vector<uint8_t> body,
                                 std::span<const ExecutorDevice> devices) {
  RunReply reply;
  reply.status = GetStatus(done.status());
  reply.body = std::move(body);
  reply.outputs = DecodeOutputs(done.outputs(), reply.body);
  reply.needs_memory = done.needs_memory();
  reply.queue = Nanoseconds(done.queue_ns());
  reply.bind = Nanoseconds(done.bind_ns());
  reply.copy_in = Nanoseconds(done.copy_in_ns());
  reply.run = Nanoseconds(done.run_ns());
  reply.copy_out = Nanoseconds(done.copy_out_ns());
  reply.nodes.reserve(static_cast<size_t>(done.nodes_size()));
  for (const internal::NodeRecord& node : done.nodes()) {
    const bool is_checker = node.device() == kCheckerDevice;
    if (!is_checker && node.device() >= devices.size()) {
      return InvalidArgument("RunDone: a node ran on device " + std::to_string(node.device()) + " of " +
                             std::to_string(devices.size()) + ".");
    }
    reply.nodes.push_back({.path = node.path(),
                           .device = is_checker ? kCheckerName : devices[node.device()].id,
                           .start_ns = node.start_ns(),
                           .end_ns = node.end_ns(),
                           .fast_math = node.fast_math(),
                           .is_estimate = node.is_estimate(),
                           .first = node.first(),
                           .count = node.count(),
                           .total_ns = node.total_ns(),
                           .runs = node.runs(),
                           .variant = node.variant()});
  }
  HPVMD_ASSIGN_OR_RETURN(reply.lost_devices, DecodeDevices(done.lost_devices(), devices));
  HPVMD_ASSIGN_OR_RETURN(reply.left_devices, DecodeDevices(done.left_devices(), devices));
  reply.repetitions = done.repetitions();
  reply.is_converged = done.converged();
  reply.moved_bytes = done.moved_bytes();
  reply.spilled_bytes = done.spilled_bytes();
  reply.nodes_run = done.nodes_run();
  for (const uint64_t ns : done.device_ns()) {
    reply.device_time.push_back(Nanoseconds(ns));
  }
  if (done.short_entry_plus_1() != 0) {
    reply.short_entry = done.short_entry_plus_1() - 1;
    reply.short_bytes = done.short_bytes();
  }
  reply.log = DecodeLog(done.log());
  return reply;
}

StatusOr<ExecutorCosts> DecodeCostList(const internal::Costs& costs, std::span<const ExecutorDevice> devices) {
  ExecutorCosts decoded;
  decoded.more = costs.more();
  for (const internal::KernelCost& kernel : costs.kernels()) {
    if (kernel.device() >= devices.size()) {
      return InvalidArgument("Costs: a kernel has costs on device " + std::to_string(kernel.device()) + " of " +
                             std::to_string(devices.size()) + ".");
    }
    decoded.kernels.push_back({.kernel = kernel.kernel(),
                               .device = devices[kernel.device()].id,
                               .instances = kernel.instances(),
                               .estimate_ns = kernel.estimate_ns(),
                               .measured_ns = kernel.measured_ns(),
                               .samples = kernel.samples(),
                               .error = kernel.error(),
                               .handle = kernel.handle()});
  }
  const auto id = [&](uint32_t plus_1) { return plus_1 == 0 ? std::string() : devices[plus_1 - 1].id; };
  for (const internal::TransferCost& transfer : costs.transfers()) {
    if (transfer.source_plus_1() > devices.size() || transfer.target_plus_1() > devices.size()) {
      return InvalidArgument("Costs: a transfer has an end that is none of the " + std::to_string(devices.size()) +
                             " devices.");
    }
    decoded.transfers.push_back({.source = id(transfer.source_plus_1()),
                                 .target = id(transfer.target_plus_1()),
                                 .start_ns = transfer.start_ns(),
                                 .bytes_per_second = transfer.bytes_per_second(),
                                 .is_estimate = transfer.is_estimate()});
  }
  return decoded;
}

}  // namespace hpvm
