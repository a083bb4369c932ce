// SPDX-License-Identifier: Apache-2.0
#include "server/core/rooms/runs.h"

#include <algorithm>
#include <utility>

#include "base/failpoint.h"
#include "server/core/state/bindings.h"
#include "server/core/state/iteration.h"
#include "server/core/state/request_options.h"
#include "server/core/state/run_log.h"
#include "server/process/log.h"

namespace hpvm {
namespace {

constexpr uint32_t kRepeatMax = 1'000'000;
constexpr uint32_t kPlacementsMax = 1'000;
// Memory that is cleared at once, and in one step elsewhere.
constexpr uint64_t kClearedBytesMax = limits::kMiB, kClearedBytesPerStep = 64 * limits::kMiB;
// From the stop word to SIGKILL.
constexpr Duration kStopGrace = std::chrono::milliseconds(limits::kStopGraceMs);

// Puts inline bytes into memory of the tenant, for an output that is to be a buffer.
StatusOr<SegmentRef> Store(SegmentPool& pool, std::span<const uint8_t> data) {
  HPVMD_ASSIGN_OR_RETURN(SegmentRef segment, pool.Acquire(std::max<uint64_t>(1, data.size()), /*zero=*/false));
  HPVMD_RETURN_IF_ERROR(WriteAt(segment->fd.get(), 0, data));
  return segment;
}

// Memory behind outputs that turned out smaller than what they were given: it may hold the tenant's old bytes, and
// buffers are zeros behind what a run wrote.
class Tails {
 public:
  Tails(const RunOp& op, const RunReply& reply) {
    for (const internal::OutputTensor& output : reply.done.outputs()) {
      const auto plan = op.plans.find(output.name());
      if (plan != op.plans.end() && plan->second.segment != nullptr && output.bytes() < plan->second.segment_bytes) {
        ranges_.push_back({plan->second.segment, output.bytes(), plan->second.segment_bytes});
        bytes_ += plan->second.segment_bytes - output.bytes();
      }
    }
  }
  uint64_t bytes() const { return bytes_; }
  // Clears so much at most; true when all is clear.
  StatusOr<bool> Clear(uint64_t bytes_max) {
    while (!ranges_.empty() && bytes_max > 0) {
      Range& range = ranges_.back();
      const uint64_t count = std::min(range.end - range.at, bytes_max);
      HPVMD_RETURN_IF_ERROR(ZeroRange(range.segment->fd.get(), range.at, count));
      range.at += count;
      bytes_max -= count;
      if (range.at == range.end) {
        ranges_.pop_back();
      }
    }
    return ranges_.empty();
  }

 private:
  struct Range {
    SegmentRef segment;
    uint64_t at = 0, end = 0;
  };
  std::vector<Range> ranges_;
  uint64_t bytes_ = 0;
};

// Gives outputs that the executor found too large to be inline memory of their own. Without the mutex: only the
// sender touches plans.
StatusOr<std::vector<std::pair<std::string, uint64_t>>> ProvideMemory(RunOp& op, const RunReply& reply) {
  uint64_t inline_bytes = 0;
  std::vector<std::pair<std::string, uint64_t>> large;
  for (const internal::OutputTensor& output : reply.done.outputs()) {
    OutputPlan& plan = op.plans[output.name()];
    const bool fits = plan.segment != nullptr && output.bytes() <= plan.segment_bytes;
    if (plan.kind == OutputPlan::Kind::kDiscard || (plan.kind == OutputPlan::Kind::kBuffer && fits)) {
      continue;
    }
    if (fits) {
      large.emplace_back(output.name(), output.bytes());
      continue;
    }
    if (plan.kind == OutputPlan::Kind::kBuffer) {
      return InvalidArgument("Output \"" + output.name() + "\" needs " + std::to_string(output.bytes()) +
                             " bytes; its buffer has " + std::to_string(plan.segment_bytes) + ".");
    }
    if (output.bytes() <= limits::kInlineTensorBytesMax &&
        inline_bytes + output.bytes() <= limits::kMessageBytesMax / 2) {
      inline_bytes += output.bytes();
      continue;
    }
    large.emplace_back(output.name(), output.bytes());
    HPVMD_ASSIGN_OR_RETURN(plan.segment, op.tenant->pool.Acquire(output.bytes(), /*zero=*/false));
    plan.segment_bytes = output.bytes();
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
  const Preparation& known = *op.preparation;
  if (known.large_outputs.empty() || known.last_inputs != op.input_shapes || known.last_symbols != op.input.symbols) {
    return absl::OkStatus();
  }
  for (const auto& [name, bytes] : known.large_outputs) {
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
  uint64_t beside_bytes = reply.done.log().ByteSizeLong();
  for (const v1::NodePlacement& node : reply.done.nodes()) {
    beside_bytes += node.node().size() + node.device().size() + 64;
  }
  uint64_t inline_bytes = beside_bytes > kRoomBytes ? beside_bytes - kRoomBytes : 0;
  for (internal::OutputTensor& from : *reply.done.mutable_outputs()) {
    const auto planned = op.plans.find(from.name());
    const OutputPlan plan = planned == op.plans.end() ? OutputPlan() : planned->second;
    if (plan.kind == OutputPlan::Kind::kDiscard) {
      continue;
    }
    const std::span<const uint8_t> data = reply.DataOf(from);
    RunOutput to;
    to.name = std::move(*from.mutable_name());
    to.type = static_cast<ElementType>(from.type());
    to.shape.assign(from.shape().begin(), from.shape().end());
    to.bytes = from.bytes();
    to.buffer_id = plan.buffer_id;
    to.in_new_buffer = plan.kind == OutputPlan::Kind::kNewBuffer;
    if (plan.segment != nullptr) {
      if (to.bytes > plan.segment_bytes) {
        return Internal("The executor says that output \"" + to.name + "\" is larger than its memory.");
      }
      to.segment = plan.segment;
    } else if (data.size() != to.bytes) {
      return Internal("The executor sent " + std::to_string(data.size()) + " of the " + std::to_string(to.bytes) +
                      " bytes of output \"" + to.name + "\".");
    } else if (plan.kind == OutputPlan::Kind::kNewBuffer ||
               inline_bytes + to.bytes > limits::kMessageBytesMax - 64 * limits::kKiB) {
      HPVMD_ASSIGN_OR_RETURN(to.segment, Store(op.tenant->pool, data));
    } else {
      inline_bytes += to.bytes;
      to.data = data;
    }
    outputs.push_back(std::move(to));
  }
  return outputs;
}

}  // namespace

// All of the tenant's, of jobs too, and then its executor.
void Runs::StopRuns(CoreScope& scope, const TenantRef& tenant, const Status& why) {
  std::vector<std::shared_ptr<RunOp>> running;  // Stopping one takes it out of ops_.
  for (const auto& [id, op] : ops_) {
    if (op->tenant == tenant) {
      running.push_back(op);
    }
  }
  monitor_.InSlices(scope, tenant, [this, tenant, why, running = std::move(running)](CoreScope& inner) mutable {
    for (int i = 0; i < Monitor::kJobsAtOnce && !running.empty(); ++i) {
      const std::shared_ptr<RunOp> op = std::move(running.back());
      running.pop_back();
      StopRun(inner, op, op->job_id.empty() ? why : Unavailable(Message(why)));
    }
    if (running.empty()) {
      executors_.KillExecutor(inner, *tenant, Message(why));
    }
    return running.empty();
  });
}

Outcome Runs::PayForRun(CoreScope& scope, RunOp& op) {
  Tenant& tenant = *op.tenant;
  if (const auto refusal =
          quotas_.ledger().Spend(tenant.key, scheduler::Resource::kDeviceTime, 0, options_.clock->Now())) {
    return QuotaOutcome(*refusal);
  }
  uint64_t bytes = 0;
  for (const InputTensor& input : op.input.inputs) {
    bytes += input.bytes.size();
  }
  if (bytes == 0) {
    return {};
  }
  graphs_.MakeRoom(scope, tenant, bytes);
  const auto refusal = tenant.account.Take(scheduler::Resource::kHostBytes, bytes, &op.host_bytes);
  return refusal.has_value() ? QuotaOutcome(*refusal) : Outcome();
}

Status Runs::SetOptions(RunOp& op, const v1::RequestOptions& options, uint32_t repeat) {
  if (repeat > kRepeatMax) {
    return InvalidArgument("The repeat count (" + std::to_string(repeat) + ") is larger than the limit (1000000).");
  }
  const uint64_t max_ns = config_->jobs_deadline_max_ms * 1'000'000;
  if (options.deadline_ns() > max_ns) {
    return InvalidArgument("The deadline (" + std::to_string(options.deadline_ns()) +
                           " ns) is larger than the limit (" + std::to_string(max_ns) + " ns).");
  }
  const uint64_t ns =
      options.deadline_ns() != 0 ? options.deadline_ns() : config_->jobs_deadline_default_ms * 1'000'000;
  op.received = options_.clock->Now();
  op.deadline = op.received + Duration(static_cast<int64_t>(ns));
  op.priority = options.priority();
  op.input.options.set_repeat(std::max<uint32_t>(1, repeat));
  return absl::OkStatus();
}

uint64_t Runs::Run(const TenantRef& tenant, const v1::RunRequest& request, RunDone done) {
  auto op = std::make_shared<RunOp>();
  op->tenant = tenant;
  op->done = std::move(done);
  // What only the request's size bounds is looked at before the mutex.
  Status shape = CheckBindings(request.inputs(), request.outputs());
  shape = shape.ok() ? CheckCount("symbols", request.symbols_size()) : shape;
  shape = shape.ok() ? SetIteration(request, &op->input.options) : shape;
  CoreScope scope(monitor_);
  const auto prepare = [&]() -> Outcome {
    HPVMD_RETURN_IF_ERROR(shape);
    HPVMD_RETURN_IF_ERROR(shutdown_.RefuseWork());
    HPVMD_RETURN_IF_ERROR(CheckRequestOptions(request.options(), /*key_honoured=*/false));
    HPVMD_RETURN_IF_ERROR(SetOptions(*op, request.options(), request.repeat()));
    HPVMD_ASSIGN_OR_RETURN(op->preparation, graphs_.UseHandle(*tenant, request.handle()));
    op->input.symbols.insert(request.symbols().begin(), request.symbols().end());
    op->input.options.set_node_records_max(std::min(request.placements_max(), kPlacementsMax));
    op->input.options.set_log(request.log());
    op->traceparent = request.options().traceparent();
    HPVMD_RETURN_IF_ERROR(ResolveBindings(*tenant, *op, request.inputs(), request.outputs()));
    return PayForRun(scope, *op);
  };
  if (Outcome prepared = prepare(); !prepared.ok()) {
    RefuseRequest(scope, op, std::move(prepared));
    return 0;
  }
  Start(scope, op);
  return op->id;
}

void Runs::RefuseRequest(CoreScope& scope, const std::shared_ptr<RunOp>& op, Outcome outcome) {
  options_.observer->On(events::Rejected{op->tenant->name, "run", outcome.status});
  if (absl::IsUnavailable(outcome.status) && !outcome.detail.has_value()) {
    outcome.detail.emplace().set_retryable(true);
  }
  scope.Defer([op, outcome = std::move(outcome)] {
    RunOutcome refused;
    refused.outcome = outcome;
    op->done(std::move(refused));
  });
}

uint64_t Runs::RunItem(const TenantRef& tenant, PreparationRef preparation, const StreamItem& item, RunDone done) {
  auto op = std::make_shared<RunOp>();
  op->tenant = tenant;
  op->done = std::move(done);
  op->preparation = std::move(preparation);
  op->input.symbols.insert(item.open->symbols().begin(), item.open->symbols().end());
  op->input.options.set_node_records_max(0);
  op->input.options.set_log(item.open->log());
  op->traceparent = item.open->options().traceparent();
  const Status shape = CheckBindings(item.item->inputs(), item.item->outputs());
  CoreScope scope(monitor_);
  const auto prepare = [&]() -> Outcome {
    HPVMD_RETURN_IF_ERROR(shape);
    HPVMD_RETURN_IF_ERROR(shutdown_.breaking_off ? shutdown_.RefuseWork() : SetOptions(*op, item.open->options(), 1));
    HPVMD_RETURN_IF_ERROR(Tenants::RefuseTenant(*tenant));
    HPVMD_RETURN_IF_ERROR(ResolveBindings(*tenant, *op, item.item->inputs(), item.item->outputs()));
    return PayForRun(scope, *op);
  };
  if (Outcome prepared = prepare(); !prepared.ok()) {
    RefuseRequest(scope, op, std::move(prepared));
    return 0;
  }
  Start(scope, op);
  return op->id;
}

void Runs::Start(CoreScope& scope, const std::shared_ptr<RunOp>& op) {
  op->id = arbiter_.NextKey();
  ops_.emplace(op->id, op);
  ++op->tenant->active;
  op->timers.push_back(monitor_.AddTimer(scope, op->deadline, [this, op](CoreScope& inner) {
    StopRun(inner, op, DeadlineExceeded("The run did not end within its deadline."));
  }));
  const auto go_on = [this, op](CoreScope& inner, const Outcome& outcome) {
    if (op->state != RunOp::State::kPreparing) {
      return;  // Stopped meanwhile.
    }
    if (!outcome.ok()) {
      RunOutcome failed;
      failed.outcome = outcome;
      Finish(inner, op, std::move(failed));
      return;
    }
    op->state = RunOp::State::kQueued;
    op->devices = arbiter_.ShareDevices(*op->preparation);
    arbiter_.Tick(inner,
                  {scheduler::JobQueued{
                      .tenant = op->tenant->key, .job = op->id, .priority = op->priority, .devices = op->devices}});
  };
  graphs_.WithPrepared(scope, op->tenant, op->preparation, go_on, [op] { return op->state != RunOp::State::kDone; });
}

void Runs::StartAttempt(CoreScope& scope, const std::shared_ptr<RunOp>& op) {
  op->state = RunOp::State::kQueued;  // It has its turn.
  ops_.emplace(op->id, op);
  ++op->tenant->active;
  SendRun(scope, op);
}

bool Runs::OnTurn(CoreScope& scope, scheduler::JobKey key) {
  const auto found = ops_.find(key);
  if (found == ops_.end()) {
    return false;
  }
  SendRun(scope, std::shared_ptr<RunOp>(found->second));
  return true;
}

std::vector<std::shared_ptr<RunOp>> Runs::List() const {
  std::vector<std::shared_ptr<RunOp>> list;
  for (const auto& [key, op] : ops_) {
    list.push_back(op);
  }
  return list;
}

void Runs::SendRun(CoreScope& scope, const std::shared_ptr<RunOp>& op) {
  if (op->state != RunOp::State::kQueued) {
    return;
  }
  if (op->job_id.empty()) {
    op->running = op->tenant->account.TakeAnyway(scheduler::Resource::kRunningJobs, 1);
    // Others of the tenant may have spent what was left while it waited.
    if (const auto refusal =
            quotas_.ledger().Spend(op->tenant->key, scheduler::Resource::kDeviceTime, 0, options_.clock->Now())) {
      RunOutcome refused;
      refused.outcome = QuotaOutcome(*refusal);
      Finish(scope, op, std::move(refused));
      return;
    }
  }
  // Usually at once; not when the executor ended while the run waited for its turn, which it keeps.
  const auto go_on = [this, op](CoreScope& inner, const Outcome& outcome) {
    if (op->state != RunOp::State::kQueued) {
      return;
    }
    if (!outcome.ok()) {
      RunOutcome failed;
      failed.outcome = outcome;
      Finish(inner, op, std::move(failed));
      return;
    }
    if (Outcome refused = executors_.WhyNoModule(*op->tenant, *op->preparation); !refused.ok()) {
      RunOutcome failed;
      failed.outcome = std::move(refused);
      Finish(inner, op, std::move(failed));
      return;
    }
    // Known only now of a job; and a new executor may have others.
    const uint64_t before = std::exchange(op->devices, arbiter_.ShareDevices(*op->preparation));
    if (op->devices != before) {
      arbiter_.UseDevices(inner, *op, op->devices);
    }
    op->state = RunOp::State::kSent;
    ++op->tenant->executor.sent_runs;
    op->sent = options_.clock->Now();
    op->port = op->tenant->executor.port;
    op->epoch = op->tenant->executor.epoch;
    op->input.handle = op->preparation->link_handle;
    if (const Status memory = ProvideKnownMemory(*op); !memory.ok()) {
      RunOutcome failed;
      failed.outcome = memory;
      Finish(inner, op, std::move(failed));
      return;
    }
    inner.Defer([this, op, port = op->port] {
      executors_.ForgetFreed(*op->tenant, *port);
      Transmit(op);
    });
  };
  graphs_.WithPrepared(scope, op->tenant, op->preparation, go_on, [op] { return op->state != RunOp::State::kDone; });
}

void Runs::Transmit(const std::shared_ptr<RunOp>& op) {
  FillTargets(*op);
  if (const Status sent = HPVMD_FAILPOINT("core.run.send"); !sent.ok()) {
    OnRunReply(op, sent);
    return;
  }
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

void Runs::OnRunReply(const std::shared_ptr<RunOp>& op, StatusOr<RunReply> reply) {
  WatchedItem::SetCurrentTenant(op->tenant->name);
  RunOutcome outcome;
  outcome.was_sent = true;
  if (const Status received = HPVMD_FAILPOINT("core.run.reply"); !received.ok()) {
    reply = received;
  }
  if (!reply.ok()) {
    outcome.outcome = reply.status();
    if (reply.status().code() == absl::StatusCode::kUnavailable) {
      outcome.outcome.detail.emplace().set_retryable(true);
    }
  } else if (reply->done.needs_memory() && op->sends < RunOp::kSendsMax && !op->stop.load()) {
    auto large = ProvideMemory(*op, *reply);
    if (large.ok()) {
      {
        CoreScope scope(monitor_);
        op->preparation->last_inputs = op->input_shapes;
        op->preparation->last_symbols = op->input.symbols;
        op->preparation->large_outputs = *std::move(large);
      }
      Transmit(op);
      return;
    }
    outcome.outcome = large.status();
  } else if (RunAgainWithMemory(op, *reply)) {
    return;
  } else {
    outcome.outcome = reply->status();
    outcome.reply = *std::move(reply);
  }
  const bool has_died = !reply.ok() && absl::IsUnavailable(reply.status());
  Tails tails(*op, outcome.reply);
  if (!outcome.outcome.ok() || tails.bytes() <= kClearedBytesMax) {
    const StatusOr<bool> cleared = outcome.outcome.ok() ? tails.Clear(UINT64_MAX) : StatusOr<bool>(true);
    if (!cleared.ok()) {
      outcome.outcome = cleared.status();
    }
    TakeOutcome(op, std::move(outcome), has_died);
    return;
  }
  // Not on the thread that brings every executor's answers. The executor is done with it.
  {
    CoreScope scope(monitor_);
    op->port.reset();
  }
  auto moved = std::make_shared<std::pair<Tails, RunOutcome>>(std::move(tails), std::move(outcome));
  options_.jobs->Post(op->tenant->name, [this, op, moved] {
    auto& [left, late] = *moved;
    const StatusOr<bool> cleared = left.Clear(kClearedBytesPerStep);
    if (cleared.ok() && !*cleared) {
      return FairQueue::Step::kAgain;
    }
    if (!cleared.ok()) {
      late.outcome = cleared.status();
    }
    TakeOutcome(op, std::move(late), /*has_died=*/false);
    return FairQueue::Step::kDone;
  });
}

// What a run brought, or why it did not: takes its outputs in, and ends it.
void Runs::TakeOutcome(const std::shared_ptr<RunOp>& op, RunOutcome outcome, bool has_died) {
  if (outcome.outcome.ok()) {
    StatusOr<std::vector<RunOutput>> outputs = Collect(*op, outcome.reply);
    if (outputs.ok()) {
      outcome.outputs = *std::move(outputs);
    } else {
      outcome.outcome = outputs.status();
    }
  }
  CoreScope scope(monitor_);
  if (!outcome.outcome.ok() && op->stop.load()) {
    outcome.outcome = op->stop_reason;
    if (absl::IsUnavailable(op->stop_reason)) {
      outcome.outcome.detail.emplace().set_retryable(true);
    }
  }
  if (ExecutorSlot& slot = op->tenant->executor; has_died && slot.epoch == op->epoch) {
    slot.in_flight.insert(op->preparation->native.begin(), op->preparation->native.end());
  }
  const internal::RunDone& done = outcome.reply.done;
  const std::vector<std::string> lost(done.lost_devices().begin(), done.lost_devices().end());
  TakeLosses(scope, *op, has_died, has_died ? devices_.DriverDevices(*op->preparation) : lost, outcome.outcome);
  TakeLeft(scope, *op, {done.left_devices().begin(), done.left_devices().end()});
  if (outcome.outcome.ok() && op->job_id.empty()) {
    outcome.outcome = buffers_.Publish(*op->tenant, outcome.outputs);
  }
  const Duration in_executor(static_cast<int64_t>(outcome.timing().queue_ns()));
  outcome.SetTotals(op->sent - op->received + in_executor, options_.clock->Now() - op->received);
  Finish(scope, op, std::move(outcome));
}

// After a run that lost devices, or whose executor ended: they are tried out before others get them, and what is left
// of the executor goes, since its drivers are in no state to go on with.
void Runs::TakeLosses(CoreScope& scope, RunOp& op, bool has_died, const std::vector<std::string>& lost,
                      Outcome& outcome) {
  if (lost.empty() || outcome.ok()) {
    return;
  }
  std::string list;
  for (const std::string& id : lost) {
    list += (list.empty() ? "" : ", ") + id;
  }
  devices_.FenceDevices(scope, lost, has_died ? "An executor ended while it used the device." : "A run lost it.",
                        Message(outcome.status));
  if (has_died) {
    outcome.status = While(outcome.status, "running nodes on " + list);
  } else if (op.tenant->executor.epoch == op.epoch) {
    executors_.KillExecutor(scope, *op.tenant, "It lost " + list + ": " + Message(outcome.status));
  }
  if (absl::IsUnavailable(outcome.status)) {
    outcome.detail.emplace().set_retryable(true);
  }
}

// After a run that went on without devices that failed in it. The executor goes on, too, unless nobody would notice:
// the next one has the devices again, if they answer.
void Runs::TakeLeft(CoreScope& scope, RunOp& op, const std::vector<std::string>& left) {
  if (left.empty()) {
    return;
  }
  devices_.FenceDevices(scope, left, "A run went on without it.", "");
  if (op.tenant->active <= 1 && op.tenant->executor.epoch == op.epoch) {
    executors_.KillExecutor(scope, *op.tenant, "It lost " + left.front() + "; a run went on without it.");
  }
}

void Runs::Finish(CoreScope& scope, const std::shared_ptr<RunOp>& op, RunOutcome outcome) {
  if (op->state == RunOp::State::kDone) {
    return;
  }
  const bool was_queued = op->state != RunOp::State::kPreparing;
  if (op->state != RunOp::State::kSent) {
    // Whoever waits for the executor on its behalf still holds it, perhaps for as long as a process takes to start.
    op->pins.clear();
    op->plans.clear();
  } else {
    --op->tenant->executor.sent_runs;
  }
  op->state = RunOp::State::kDone;
  op->running.Release();
  op->host_bytes.Release();
  op->port.reset();
  for (Monitor::TimerKey& timer : op->timers) {
    monitor_.DropTimer(timer);
  }
  op->timers.clear();
  ops_.erase(op->id);
  --op->tenant->active;
  op->tenant->executor.last_used = options_.clock->Now();
  if (was_queued && op->job_id.empty()) {
    arbiter_.Tick(scope, {scheduler::JobEnded{op->tenant->key, op->id}});
  } else if (was_queued) {
    arbiter_.UseDevices(scope, *op, 0);  // Its turn ends with its write to the store.
  }
  arbiter_.SettleDeviceTime(*op->tenant);
  for (const InputTensor& input : op->input.inputs) {
    outcome.input_bytes += input.memory.has_value() ? input.memory->bytes : input.bytes.size();
  }
  options_.observer->On(
      events::RunEnded{op->tenant->name, op->job_id, op->preparation->summary.name(), op->traceparent, outcome});
  // std::function wants copyable captures, and the outcome is large: it travels by pointer.
  auto moved = std::make_shared<RunOutcome>(std::move(outcome));
  scope.Defer([op, moved] { op->done(std::move(*moved)); });
}

void Runs::CancelRun(uint64_t id) {
  CoreScope scope(monitor_);
  if (const auto found = ops_.find(id); found != ops_.end()) {
    StopRun(scope, std::shared_ptr<RunOp>(found->second), Cancelled("The run was cancelled."));
  }
}

void Runs::StopRun(CoreScope& scope, const std::shared_ptr<RunOp>& op, Status why) {
  if (op->state == RunOp::State::kDone || op->stop.load()) {
    return;
  }
  op->stop_reason = std::move(why);
  op->stop.store(true);
  if (op->state != RunOp::State::kSent) {
    RunOutcome outcome;
    outcome.outcome = op->stop_reason;
    outcome.SetTotals(options_.clock->Now() - op->received, options_.clock->Now() - op->received);
    Finish(scope, op, std::move(outcome));
    graphs_.StopUnwanted(scope, *op->tenant, *op->preparation);
    return;
  }
  if (op->port == nullptr) {
    return;  // It has answered, and memory behind its outputs is being cleared.
  }
  scope.Defer([op, port = op->port] {
    for (const std::atomic<RequestId>& request : op->requests) {
      if (const RequestId id = request.load(); id != 0) {
        port->Cancel(id);
      }
    }
  });
  const Duration grace = devices_.StopGrace(devices_.DriverDevices(*op->preparation));
  const StopPatience patience(options_.clock->Now(), grace, op->port->CpuTime());
  ArmStop(scope, op, patience, patience.end());
}

// Ends the executor of a run that has not stopped by `when`, unless the machine did not let it.
void Runs::ArmStop(CoreScope& scope, const std::shared_ptr<RunOp>& op, const StopPatience& patience, Time when) {
  op->timers.push_back(monitor_.AddTimer(scope, when, [this, op, patience](CoreScope& inner) {
    if (op->state != RunOp::State::kSent || op->tenant->executor.epoch != op->epoch || op->port == nullptr) {
      return;
    }
    const Time now = options_.clock->Now();
    if (const std::optional<Time> longer = patience.Longer(now, op->port->CpuTime())) {
      ArmStop(inner, op, patience, *longer);
      return;
    }
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now - patience.asked()).count();
    executors_.KillExecutor(inner, *op->tenant,
                            "A run did not stop within " + std::to_string(ms) + " ms of being asked to.");
  }));
}

void Runs::OnRefused(CoreScope& scope, scheduler::JobKey key, scheduler::RefuseJob::Limit limit) {
  const auto found = ops_.find(key);
  if (found == ops_.end()) {
    return;
  }
  const std::shared_ptr<RunOp> op = found->second;
  const bool own = limit == scheduler::RefuseJob::Limit::kTenantQueue;
  std::string text;
  if (limit == scheduler::RefuseJob::Limit::kShed) {
    text = "The server's queue is full (" + std::to_string(config_->jobs_queued_max) +
           " runs wait), and the tenant has most of it for its weight: its last one made room for another tenant's.";
  } else {
    text = std::string(own ? "The tenant's" : "The server's") + " queue is full (" +
           std::to_string(own ? config_->jobs_queued_per_tenant_max : config_->jobs_queued_max) + " runs wait).";
  }
  RunOutcome outcome;
  outcome.outcome = ResourceExhausted(std::move(text));
  outcome.outcome.detail.emplace().set_retryable(true);
  outcome.outcome.detail->set_retry_after_ns(static_cast<uint64_t>(kQueueFullPause.count()));
  options_.observer->On(events::Rejected{op->tenant->name, "run", outcome.outcome.status});
  Finish(scope, op, std::move(outcome));
}

}  // namespace hpvm
