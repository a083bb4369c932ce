// SPDX-License-Identifier: Apache-2.0
// Runs: from a request's bindings to the executor and back.
#include <algorithm>
#include <utility>

#include "server/core.h"
#include "server/log.h"
#include "server/object_id.h"
#include "server/request_options.h"
#include "server/run_log.h"

namespace hpvm {
namespace {

constexpr uint32_t kRepeatMax = 1'000'000;
constexpr uint32_t kPlacementsMax = 1'000;
// From the stop word to SIGKILL.
constexpr Duration kStopGrace = std::chrono::milliseconds(limits::kStopGraceMs);

std::span<const uint8_t> BytesOf(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

MemorySlice SliceOf(const Segment& segment, uint64_t bytes) {
  return {.memory_id = segment.id, .fd = segment.fd.get(), .memory_bytes = segment.capacity_bytes, .writable = true,
          .offset = 0, .bytes = bytes};
}

Status ResolveTensor(const v1::Tensor& tensor, const std::string& place, InputTensor& input) {
  input.shape.assign(tensor.shape().begin(), tensor.shape().end());
  HPVMD_ASSIGN_OR_RETURN(const uint64_t bytes,
                         CheckedTensorBytes(static_cast<uint32_t>(tensor.type()), input.shape, place));
  if (tensor.data().size() > limits::kInlineTensorBytesMax) {
    return InvalidArgument(place + " has " + std::to_string(tensor.data().size()) + " inline bytes; the limit is " +
                           std::to_string(limits::kInlineTensorBytesMax) + ". Larger data travels through a buffer.");
  }
  if (bytes != tensor.data().size()) {
    return InvalidArgument(place + " has " + std::to_string(tensor.data().size()) + " bytes; its shape needs " +
                           std::to_string(bytes) + ".");
  }
  input.type = static_cast<ElementType>(tensor.type());
  input.bytes = BytesOf(tensor.data());
  return absl::OkStatus();
}

Status ResolveView(BufferStore& buffers, const v1::BufferView& view, const std::string& place, InputTensor& input,
                   std::vector<SegmentRef>& pins) {
  HPVMD_ASSIGN_OR_RETURN(const BufferRecord* record, buffers.Find(view.buffer_id()));
  if (view.generation() != 0 && view.generation() != record->generation) {
    return FailedPrecondition(place + " asks for generation " + std::to_string(view.generation()) +
                              " of its buffer, which has generation " + std::to_string(record->generation) + ".");
  }
  if (record->lost) {
    return DataLoss(place + "'s buffer was lost with the device that held it; write it again.");
  }
  uint32_t type = static_cast<uint32_t>(view.type());
  if (type == 0) {
    type = record->shape.type;
    input.shape = record->shape.extents;
  } else {
    input.shape.assign(view.shape().begin(), view.shape().end());
  }
  if (type == 0) {
    return InvalidArgument(place + "'s buffer has no element type; the view must give one.");
  }
  HPVMD_ASSIGN_OR_RETURN(const uint64_t bytes, CheckedTensorBytes(type, input.shape, place));
  if (bytes > record->size_bytes) {
    return InvalidArgument(place + "'s shape needs " + std::to_string(bytes) + " bytes; its buffer has " +
                           std::to_string(record->size_bytes) + ".");
  }
  input.type = static_cast<ElementType>(type);
  if (bytes > 0) {
    input.memory = SliceOf(*record->segment, bytes);
    pins.push_back(record->segment);
  }
  return absl::OkStatus();
}

Status ResolveOutput(BufferStore& buffers, const v1::OutputBinding& binding, OutputPlan& plan) {
  switch (binding.target_case()) {
    case v1::OutputBinding::kBufferId: {
      HPVMD_ASSIGN_OR_RETURN(const BufferRecord* record, buffers.Find(binding.buffer_id()));
      plan.kind = OutputPlan::Kind::kBuffer;
      plan.buffer_id = binding.buffer_id();
      plan.buffer_bytes = record->size_bytes;
      break;
    }
    case v1::OutputBinding::kNewBuffer:
      plan.kind = binding.new_buffer() ? OutputPlan::Kind::kNewBuffer : OutputPlan::Kind::kAuto;
      break;
    case v1::OutputBinding::kDiscard:
      plan.kind = binding.discard() ? OutputPlan::Kind::kDiscard : OutputPlan::Kind::kAuto;
      break;
    case v1::OutputBinding::TARGET_NOT_SET:
      break;
  }
  return absl::OkStatus();
}

// Puts inline bytes into memory of the tenant, for an output that is to be a buffer.
StatusOr<SegmentRef> Store(SegmentPool& pool, std::span<const uint8_t> data) {
  HPVMD_ASSIGN_OR_RETURN(SegmentRef segment, pool.Acquire(std::max<uint64_t>(1, data.size()), /*zero=*/false));
  HPVMD_RETURN_IF_ERROR(WriteAt(segment->fd.get(), 0, data));
  return segment;
}

Status ClearTail(const OutputPlan& plan, uint64_t used_bytes) {
  std::vector<uint8_t> zeros(std::min<uint64_t>(plan.segment_bytes - used_bytes, 256 * limits::kKiB));
  for (uint64_t at = used_bytes; at < plan.segment_bytes; at += zeros.size()) {
    const size_t count = std::min<uint64_t>(zeros.size(), plan.segment_bytes - at);
    HPVMD_RETURN_IF_ERROR(WriteAt(plan.segment->fd.get(), at, {zeros.data(), count}));
  }
  return absl::OkStatus();
}

// Gives outputs that the executor found too large to be inline memory of their own. Without the mutex: only the
// sender touches plans.
StatusOr<std::vector<std::pair<std::string, uint64_t>>> ProvideMemory(RunOp& op, const RunReply& reply) {
  uint64_t inline_bytes = 0;
  std::vector<std::pair<std::string, uint64_t>> large;
  for (const OutputTensor& output : reply.outputs) {
    OutputPlan& plan = op.plans[output.name];
    if (plan.segment != nullptr || plan.kind == OutputPlan::Kind::kDiscard) {
      continue;
    }
    if (output.bytes <= limits::kInlineTensorBytesMax && inline_bytes + output.bytes <= limits::kMessageBytesMax / 2) {
      inline_bytes += output.bytes;
      continue;
    }
    large.emplace_back(output.name, output.bytes);
    HPVMD_ASSIGN_OR_RETURN(plan.segment, op.tenant->pool.Acquire(output.bytes, /*zero=*/false));
    plan.segment_bytes = output.bytes;
  }
  return large;
}

// Memory for outputs whose place or size is known before the run.
Status ProvideKnownMemory(RunOp& op) {
  for (auto& [name, plan] : op.plans) {
    if (plan.kind == OutputPlan::Kind::kBuffer && plan.segment == nullptr) {
      HPVMD_ASSIGN_OR_RETURN(plan.segment, op.tenant->pool.Acquire(plan.buffer_bytes, /*zero=*/false));
      plan.segment_bytes = plan.buffer_bytes;
    }
  }
  if (op.preparation->large_outputs.empty() || op.preparation->last_inputs != op.input_shapes) {
    return absl::OkStatus();
  }
  for (const auto& [name, bytes] : op.preparation->large_outputs) {
    OutputPlan& plan = op.plans[name];
    if (plan.segment == nullptr && plan.kind != OutputPlan::Kind::kDiscard) {
      HPVMD_ASSIGN_OR_RETURN(plan.segment, op.tenant->pool.Acquire(bytes, /*zero=*/false));
      plan.segment_bytes = bytes;
    }
  }
  return absl::OkStatus();
}

void FillTargets(RunOp& op) {
  op.input.outputs.clear();
  for (const auto& [name, plan] : op.plans) {
    OutputTarget target;
    target.name = name;
    if (plan.kind == OutputPlan::Kind::kDiscard) {
      target.kind = OutputTarget::Kind::kDiscard;
    } else if (plan.segment != nullptr) {
      target.kind = OutputTarget::Kind::kMemory;
      target.memory = SliceOf(*plan.segment, plan.segment_bytes);
    }
    op.input.outputs.push_back(std::move(target));
  }
}

// What came back, with inline outputs that must be buffers already in memory. Everything here is the executor's word:
// names and sizes are compared with what was asked.
StatusOr<std::vector<RunOutput>> Collect(RunOp& op, RunReply& reply) {
  std::vector<RunOutput> outputs;
  // One message also holds where the nodes ran and what they said; for a little of it there is always room.
  constexpr uint64_t kRoomBytes = 32 * limits::kKiB;
  uint64_t beside_bytes = MessageBytes(reply.log);
  for (const ExecutorNodeRecord& node : reply.nodes) {
    beside_bytes += node.path.size() + node.device.size() + 64;
  }
  uint64_t inline_bytes = beside_bytes > kRoomBytes ? beside_bytes - kRoomBytes : 0;
  for (OutputTensor& from : reply.outputs) {
    const auto planned = op.plans.find(from.name);
    const OutputPlan plan = planned == op.plans.end() ? OutputPlan() : planned->second;
    if (plan.kind == OutputPlan::Kind::kDiscard) {
      continue;
    }
    RunOutput to;
    to.name = std::move(from.name);
    to.type = from.type;
    to.shape = std::move(from.shape);
    to.bytes = from.bytes;
    to.buffer_id = plan.buffer_id;
    if (plan.segment != nullptr) {
      if (from.bytes > plan.segment_bytes) {
        return Internal("The executor says that output \"" + to.name + "\" is larger than its memory.");
      }
      HPVMD_RETURN_IF_ERROR(ClearTail(plan, from.bytes));
      to.segment = plan.segment;
    } else if (from.data.size() != from.bytes) {
      return Internal("The executor sent " + std::to_string(from.data.size()) + " of the " +
                      std::to_string(from.bytes) + " bytes of output \"" + to.name + "\".");
    } else if (plan.kind == OutputPlan::Kind::kNewBuffer ||
               inline_bytes + from.bytes > limits::kMessageBytesMax - 64 * limits::kKiB) {
      HPVMD_ASSIGN_OR_RETURN(to.segment, Store(op.tenant->pool, from.data));
    } else {
      inline_bytes += from.bytes;
      to.data = from.data;
    }
    outputs.push_back(std::move(to));
  }
  return outputs;
}

}  // namespace

Status Core::SetOptions(RunOp& op, const v1::RequestOptions& options, uint32_t repeat) {
  if (repeat > kRepeatMax) {
    return InvalidArgument("The repeat count (" + std::to_string(repeat) + ") is larger than the limit (1000000).");
  }
  const uint64_t max_ns = options_.config.jobs_deadline_max_ms * 1'000'000;
  if (options.deadline_ns() > max_ns) {
    return InvalidArgument("The deadline (" + std::to_string(options.deadline_ns()) +
                           " ns) is larger than the limit (" + std::to_string(max_ns) + " ns).");
  }
  const uint64_t ns =
      options.deadline_ns() != 0 ? options.deadline_ns() : options_.config.jobs_deadline_default_ms * 1'000'000;
  op.received = options_.clock->Now();
  op.deadline = op.received + Duration(static_cast<int64_t>(ns));
  op.priority = options.priority();
  op.input.repeat = std::max<uint32_t>(1, repeat);
  op.input.inline_bytes_max = limits::kInlineTensorBytesMax;
  return absl::OkStatus();
}

Status Core::ResolveBindings(Tenant& tenant, RunOp& op,
                             const google::protobuf::RepeatedPtrField<v1::InputBinding>& inputs,
                             const google::protobuf::RepeatedPtrField<v1::OutputBinding>& outputs) {
  op.input.inputs.resize(static_cast<size_t>(inputs.size()));
  op.input_shapes.reserve(op.input.inputs.size());
  for (int i = 0; i < inputs.size(); ++i) {
    const v1::InputBinding& binding = inputs[i];
    InputTensor& input = op.input.inputs[static_cast<size_t>(i)];
    input.name = binding.name();
    const std::string place = "Input \"" + binding.name() + "\"";
    if (binding.has_tensor()) {
      HPVMD_RETURN_IF_ERROR(ResolveTensor(binding.tensor(), place, input));
    } else if (binding.has_buffer()) {
      HPVMD_RETURN_IF_ERROR(ResolveView(tenant.buffers, binding.buffer(), place, input, op.pins));
    } else {
      return InvalidArgument(place + " is bound to neither a tensor nor a buffer.");
    }
    op.input_shapes.push_back({static_cast<uint8_t>(input.type), input.shape});
  }
  for (const v1::OutputBinding& binding : outputs) {
    const auto [plan, is_new] = op.plans.try_emplace(binding.name());
    if (!is_new) {
      return InvalidArgument("Output \"" + binding.name() + "\" is bound twice.");
    }
    HPVMD_RETURN_IF_ERROR(ResolveOutput(tenant.buffers, binding, plan->second));
  }
  return absl::OkStatus();
}

uint64_t Core::Run(const TenantRef& tenant, const v1::RunRequest& request, RunDone done) {
  auto op = std::make_shared<RunOp>();
  op->tenant = tenant;
  op->done = std::move(done);
  CoreScope scope(*this);
  const auto prepare = [&]() -> Status {
    HPVMD_RETURN_IF_ERROR(RefuseWhenDraining());
    HPVMD_RETURN_IF_ERROR(CheckRequestOptions(request.options(), /*key_honoured=*/false));
    HPVMD_RETURN_IF_ERROR(SetOptions(*op, request.options(), request.repeat()));
    const auto handle = tenant->handles.find(request.handle());
    if (handle == tenant->handles.end()) {
      return NotFound("There is no prepared graph \"" + request.handle().substr(0, 80) + "\".");
    }
    op->preparation = handle->second;
    op->input.symbols.insert(request.symbols().begin(), request.symbols().end());
    op->input.node_records_max = std::min(request.placements_max(), kPlacementsMax);
    op->input.log = request.log();
    return ResolveBindings(*tenant, *op, request.inputs(), request.outputs());
  };
  if (Status status = prepare(); !status.ok()) {
    scope.Defer([op, status] { op->done(RunOutcome{.outcome = status, .outputs = {}, .reply = {}}); });
    return 0;
  }
  Start(scope, op);
  return op->id;
}

uint64_t Core::RunItem(const TenantRef& tenant, PreparationRef preparation, const StreamItem& item, RunDone done) {
  auto op = std::make_shared<RunOp>();
  op->tenant = tenant;
  op->done = std::move(done);
  op->preparation = std::move(preparation);
  op->input.symbols.insert(item.open->symbols().begin(), item.open->symbols().end());
  op->input.node_records_max = 0;
  op->input.log = item.open->log();
  CoreScope scope(*this);
  Status status = stopped_ ? RefuseWhenDraining() : SetOptions(*op, item.open->options(), 1);
  if (status.ok()) {
    status = ResolveBindings(*tenant, *op, item.item->inputs(), item.item->outputs());
  }
  if (!status.ok()) {
    scope.Defer([op, status] { op->done(RunOutcome{.outcome = status, .outputs = {}, .reply = {}}); });
    return 0;
  }
  Start(scope, op);
  return op->id;
}

void Core::Start(CoreScope& scope, const std::shared_ptr<RunOp>& op) {
  op->id = next_op_++;
  ops_.emplace(op->id, op);
  ++op->tenant->active;
  op->timers.push_back(AddTimer(scope, op->deadline, [this, op](CoreScope& inner) {
    StopRun(inner, op, DeadlineExceeded("The run did not end within its deadline."));
  }));
  WithPrepared(scope, op->tenant, op->preparation, [this, op](CoreScope& inner, const Outcome& outcome) {
    if (op->state != RunOp::State::kPreparing) {
      return;   // Stopped meanwhile.
    }
    if (!outcome.ok()) {
      RunOutcome failed;
      failed.outcome = outcome;
      Finish(inner, op, std::move(failed));
      return;
    }
    op->state = RunOp::State::kQueued;
    Tick(inner, {scheduler::JobQueued{.tenant = op->tenant->key, .job = op->id, .priority = op->priority}});
  });
}

void Core::SendRun(CoreScope& scope, const std::shared_ptr<RunOp>& op) {
  if (op->state != RunOp::State::kQueued) {
    return;
  }
  // Usually at once; not when the executor ended while the run waited for its turn, which it keeps.
  WithPrepared(scope, op->tenant, op->preparation, [this, op](CoreScope& inner, const Outcome& outcome) {
    if (op->state != RunOp::State::kQueued) {
      return;
    }
    if (!outcome.ok()) {
      RunOutcome failed;
      failed.outcome = outcome;
      Finish(inner, op, std::move(failed));
      return;
    }
    op->state = RunOp::State::kSent;
    op->sent = options_.clock->Now();
    op->port = op->tenant->executor.port;
    op->epoch = op->tenant->executor.epoch;
    op->input.handle = op->preparation->link_handle;
    if (op->on_started) {
      op->on_started(inner);
    }
    if (const Status memory = ProvideKnownMemory(*op); !memory.ok()) {
      RunOutcome failed;
      failed.outcome = memory;
      Finish(inner, op, std::move(failed));
      return;
    }
    inner.Defer([this, op, port = op->port] {
      ForgetFreed(*op->tenant, *port);
      Transmit(op);
    });
  });
}

void Core::Transmit(const std::shared_ptr<RunOp>& op) {
  FillTargets(*op);
  op->input.within = std::max<Duration>(op->deadline - options_.clock->Now(), std::chrono::milliseconds(1));
  const std::shared_ptr<ExecutorProcess> port = op->port;
  const uint32_t send = op->sends++;
  const RequestId id = port->Run(op->input, [this, op](StatusOr<RunReply> reply) { OnRunReply(op, std::move(reply)); });
  // StopRun sets `stop` and then looks here; one of the two sees the other.
  op->requests[send].store(id);
  if (op->stop.load() && id != 0) {
    port->Cancel(id);
  }
}

void Core::OnRunReply(const std::shared_ptr<RunOp>& op, StatusOr<RunReply> reply) {
  RunOutcome outcome;
  if (!reply.ok()) {
    outcome.outcome = reply.status();
    if (reply.status().code() == absl::StatusCode::kUnavailable) {
      outcome.outcome.detail.emplace().set_retryable(true);
    }
  } else if (reply->needs_memory && op->sends < RunOp::kSendsMax && !op->stop.load()) {
    auto large = ProvideMemory(*op, *reply);
    if (large.ok()) {
      {
        CoreScope scope(*this);
        op->preparation->last_inputs = op->input_shapes;
        op->preparation->large_outputs = *std::move(large);
      }
      Transmit(op);
      return;
    }
    outcome.outcome = large.status();
  } else {
    outcome.outcome = reply->status;
    outcome.reply = *std::move(reply);
  }
  if (outcome.outcome.ok()) {
    StatusOr<std::vector<RunOutput>> outputs = Collect(*op, outcome.reply);
    if (outputs.ok()) {
      outcome.outputs = *std::move(outputs);
    } else {
      outcome.outcome = outputs.status();
    }
  }
  CoreScope scope(*this);
  if (!outcome.outcome.ok() && op->stop.load()) {
    outcome.outcome = op->stop_reason;
  }
  const bool has_died = !reply.ok() && absl::IsUnavailable(reply.status());
  TakeLosses(scope, *op, has_died, has_died ? DriverDevices(*op->preparation) : outcome.reply.lost_devices,
             outcome.outcome);
  if (outcome.outcome.ok()) {
    outcome.outcome = Publish(*op, outcome.outputs);
  }
  outcome.queue = op->sent - op->received + outcome.reply.queue;
  outcome.total = options_.clock->Now() - op->received;
  Finish(scope, op, std::move(outcome));
}

// After a run that lost devices, or whose executor ended: they are tried out before others get them, and what is left
// of the executor goes, since its drivers are in no state to go on with.
void Core::TakeLosses(CoreScope& scope, RunOp& op, bool has_died, const std::vector<std::string>& lost,
                      Outcome& outcome) {
  if (lost.empty() || outcome.ok()) {
    return;
  }
  std::string list;
  for (const std::string& id : lost) {
    list += (list.empty() ? "" : ", ") + id;
  }
  FenceDevices(scope, lost, Message(outcome.status));
  if (has_died) {
    outcome.status = While(outcome.status, "running nodes on " + list);
  } else if (op.tenant->executor.epoch == op.epoch) {
    KillExecutor(scope, *op.tenant, "It lost " + list + ": " + Message(outcome.status));
  }
  if (absl::IsUnavailable(outcome.status)) {
    outcome.detail.emplace().set_retryable(true);
  }
}

Status Core::Publish(RunOp& op, std::vector<RunOutput>& outputs) {
  BufferStore& buffers = op.tenant->buffers;
  std::vector<std::string> made;
  for (RunOutput& output : outputs) {
    if (output.segment == nullptr || !output.buffer_id.empty() || op.keep_outputs) {
      continue;
    }
    BufferRecord record;
    record.id = NewObjectId("buf", *options_.rng);
    record.size_bytes = std::max<uint64_t>(1, output.bytes);
    record.shape = {static_cast<uint8_t>(output.type), output.shape};
    record.segment = output.segment;
    output.buffer_id = record.id;
    output.generation = record.generation;
    if (const Status inserted = buffers.Insert(std::move(record)); !inserted.ok()) {
      for (const std::string& id : made) {
        buffers.Erase(id).IgnoreError();
      }
      return While(inserted, "making a buffer for output \"" + output.name + "\"");
    }
    made.push_back(output.buffer_id);
  }
  // Nothing can fail from here on: all existing buffers change together.
  for (RunOutput& output : outputs) {
    if (output.segment == nullptr || output.generation != 0 || output.buffer_id.empty()) {
      continue;
    }
    if (const StatusOr<BufferRecord*> record = buffers.Find(output.buffer_id); record.ok()) {
      buffers.Publish(**record, output.segment, {static_cast<uint8_t>(output.type), output.shape},
                      (*record)->size_bytes);
      output.generation = (*record)->generation;
    }
  }
  return absl::OkStatus();
}

void Core::Finish(CoreScope& scope, const std::shared_ptr<RunOp>& op, RunOutcome outcome) {
  if (op->state == RunOp::State::kDone) {
    return;
  }
  const bool was_queued = op->state != RunOp::State::kPreparing;
  op->state = RunOp::State::kDone;
  op->port.reset();
  for (const TimerKey& timer : op->timers) {
    timers_.erase(timer);
  }
  op->timers.clear();
  ops_.erase(op->id);
  --op->tenant->active;
  op->tenant->executor.last_used = options_.clock->Now();
  if (was_queued) {
    Tick(scope, {scheduler::JobEnded{op->tenant->key, op->id}});
  }
  // std::function wants copyable captures, and the outcome is large: it travels by pointer.
  auto moved = std::make_shared<RunOutcome>(std::move(outcome));
  scope.Defer([op, moved] { op->done(std::move(*moved)); });
}

void Core::CancelRun(uint64_t id) {
  CoreScope scope(*this);
  if (const auto found = ops_.find(id); found != ops_.end()) {
    StopRun(scope, std::shared_ptr<RunOp>(found->second), Cancelled("The run was cancelled."));
  }
}

void Core::StopRun(CoreScope& scope, const std::shared_ptr<RunOp>& op, Status why) {
  if (op->state == RunOp::State::kDone || op->stop.load()) {
    return;
  }
  op->stop_reason = std::move(why);
  op->stop.store(true);
  if (op->state != RunOp::State::kSent) {
    RunOutcome outcome;
    outcome.outcome = op->stop_reason;
    outcome.queue = outcome.total = options_.clock->Now() - op->received;
    Finish(scope, op, std::move(outcome));
    return;
  }
  scope.Defer([op, port = op->port] {
    for (const std::atomic<RequestId>& request : op->requests) {
      if (const RequestId id = request.load(); id != 0) {
        port->Cancel(id);
      }
    }
  });
  const Duration grace = StopGrace(DriverDevices(*op->preparation));
  op->timers.push_back(AddTimer(scope, options_.clock->Now() + grace, [this, op, grace](CoreScope& inner) {
    if (op->state == RunOp::State::kSent && op->tenant->executor.epoch == op->epoch) {
      const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(grace).count();
      KillExecutor(inner, *op->tenant, "A run did not stop within " + std::to_string(ms) + " ms of being asked to.");
    }
  }));
}

}  // namespace hpvm
