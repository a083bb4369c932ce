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

namespace hpvm::server {

using Phase = Execution::Phase;

namespace {

constexpr uint32_t kRepeatMax = 1'000'000;
// Limits on the memory that is cleared at once, and in one step elsewhere.
constexpr uint64_t kClearedBytesMax = limits::kMiB, kClearedBytesPerStep = 64 * limits::kMiB;

// Copies inline bytes into memory of the tenant, for an output that is to be a buffer.
StatusOr<SegmentRef> Store(SegmentPool& pool, std::span<const uint8_t> data) {
  HPVMD_ASSIGN_OR_RETURN(SegmentRef segment, pool.Acquire(std::max<uint64_t>(1, data.size()), /*zero=*/false));
  HPVMD_RETURN_IF_ERROR(WriteAt(segment->fd.get(), 0, data));
  return segment;
}

// Tails is the memory after outputs that turned out smaller than their memory: it may hold the tenant's old bytes, and
// a buffer must be zero after the bytes that a run wrote. In registered memory the rest belongs to the client and is
// left alone.
class Tails {
 public:
  Tails(const Sending& sending, const supervisor::RunReply& reply) {
    for (const internal::OutputTensor& output : reply.done.outputs()) {
      const auto plan = sending.plans.find(output.name());
      if (plan != sending.plans.end() && plan->second.segment != nullptr && !plan->second.segment->registered &&
          output.bytes() < plan->second.segment_bytes) {
        ranges_.push_back({plan->second.segment, output.bytes(), plan->second.segment_bytes});
        bytes_ += plan->second.segment_bytes - output.bytes();
      }
    }
  }
  uint64_t bytes() const { return bytes_; }
  // Clears at most `bytes_max` bytes; returns true when all is clear.
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

// Gives outputs that the executor found too large to be inline memory of their own. Called without the mutex: only the
// sender accesses plans.
StatusOr<std::vector<std::pair<std::string, uint64_t>>> ProvideMemory(Sending& sending, SegmentPool& pool,
                                                                      const supervisor::RunReply& reply) {
  uint64_t inline_bytes = 0;
  std::vector<std::pair<std::string, uint64_t>> large;
  for (const internal::OutputTensor& output : reply.done.outputs()) {
    OutputPlan& plan = sending.plans[output.name()];
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
    HPVMD_ASSIGN_OR_RETURN(plan.segment, pool.Acquire(output.bytes(), /*zero=*/false));
    plan.segment_bytes = output.bytes();
  }
  return large;
}

// Provides memory for outputs whose place or size is known before the run.
Status ProvideKnownMemory(Execution& run) {
  Sending& sending = *run.sending;
  for (auto& [name, plan] : sending.plans) {
    if (plan.kind == OutputPlan::Kind::kBuffer && plan.segment == nullptr) {
      HPVMD_ASSIGN_OR_RETURN(plan.segment, run.tenant->pool.Acquire(plan.buffer_bytes, /*zero=*/false));
      plan.segment_bytes = plan.buffer_bytes;
    }
  }
  const Preparation& known = *run.preparation;
  if (known.large_outputs.empty() || known.last_inputs != sending.input_shapes ||
      known.last_symbols != sending.input.symbols) {
    return absl::OkStatus();
  }
  for (const auto& [name, bytes] : known.large_outputs) {
    OutputPlan& plan = sending.plans[name];
    if (plan.segment == nullptr && plan.kind != OutputPlan::Kind::kDiscard) {
      HPVMD_ASSIGN_OR_RETURN(plan.segment, run.tenant->pool.Acquire(bytes, /*zero=*/false));
      plan.segment_bytes = bytes;
    }
  }
  return absl::OkStatus();
}

void FillTargets(Sending& sending) {
  sending.input.outputs.clear();
  for (const auto& [name, plan] : sending.plans) {
    supervisor::OutputTarget target;
    target.name = name;
    if (plan.kind == OutputPlan::Kind::kDiscard) {
      target.kind = supervisor::OutputTarget::Kind::kDiscard;
    } else if (plan.segment != nullptr) {
      target.kind = supervisor::OutputTarget::Kind::kMemory;
      target.memory = SliceOf(*plan.segment, plan.segment_bytes);
    }
    sending.input.outputs.push_back(std::move(target));
  }
}

// Returns the outputs of a run; inline outputs that must be buffers are copied into memory. The reply is not trusted:
// names and sizes are compared with the request.
StatusOr<std::vector<RunOutput>> Collect(const Sending& sending, SegmentPool& pool, supervisor::RunReply& reply) {
  std::vector<RunOutput> outputs;
  // The same message also holds the placements of nodes and the log, for a small part of which there is always room.
  constexpr uint64_t kRoomBytes = 32 * limits::kKiB;
  uint64_t beside_bytes = reply.done.log().ByteSizeLong();
  for (const v1::NodePlacement& node : reply.done.nodes()) {
    beside_bytes += node.node().size() + node.device().size() + 64;
  }
  uint64_t inline_bytes = beside_bytes > kRoomBytes ? beside_bytes - kRoomBytes : 0;
  for (internal::OutputTensor& from : *reply.done.mutable_outputs()) {
    const auto planned = sending.plans.find(from.name());
    const OutputPlan plan = planned == sending.plans.end() ? OutputPlan() : planned->second;
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
      HPVMD_ASSIGN_OR_RETURN(to.segment, Store(pool, data));
    } else {
      inline_bytes += to.bytes;
      to.data = data;
    }
    outputs.push_back(std::move(to));
  }
  return outputs;
}

}  // namespace

ExecutionRef Runs::NewRun(const TenantRef& tenant, RunDone done) {
  auto run = std::make_shared<Execution>();
  run->tenant = tenant;
  run->sending = std::make_shared<Sending>();
  run->done = std::move(done);
  return run;
}

// Stops all of the tenant's runs, including those of jobs, and then its executor.
void Runs::StopRuns(CoreScope& scope, const TenantRef& tenant, const Status& why) {
  std::vector<ExecutionRef> running;  // StopRun erases from runs_.
  for (const auto& [id, run] : runs_) {
    if (run->tenant == tenant) {
      running.push_back(run);
    }
  }
  monitor_.InSlices(scope, tenant, [this, tenant, why, running = std::move(running)](CoreScope& inner) mutable {
    for (int i = 0; i < Monitor::kJobsAtOnce && !running.empty(); ++i) {
      const ExecutionRef run = std::move(running.back());
      running.pop_back();
      StopRun(inner, run, run->stored == nullptr ? why : Unavailable(Message(why)));
    }
    if (running.empty()) {
      executors_.KillExecutor(inner, *tenant, Message(why));
    }
    return running.empty();
  });
}

Outcome Runs::PayForRun(CoreScope& scope, Execution& run) {
  Tenant& tenant = *run.tenant;
  if (const auto refusal =
          quotas_.ledger().Spend(tenant.key, scheduler::Resource::kDeviceTime, 0, options_.clock->Now())) {
    return QuotaOutcome(*refusal);
  }
  uint64_t bytes = 0;
  for (const supervisor::InputTensor& input : run.sending->input.inputs) {
    bytes += input.bytes.size();
  }
  if (bytes == 0) {
    return {};
  }
  graphs_.MakeRoom(scope, tenant, bytes);
  const auto refusal = tenant.account.Take(scheduler::Resource::kHostBytes, bytes, &run.sending->host_bytes);
  return refusal.has_value() ? QuotaOutcome(*refusal) : Outcome();
}

Status Runs::SetOptions(Execution& run, const v1::RequestOptions& options, uint32_t repeat) {
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
  run.received = options_.clock->Now();
  run.deadline = run.received + Duration(static_cast<int64_t>(ns));
  run.priority = options.priority();
  run.sending->input.options.set_repeat(std::max<uint32_t>(1, repeat));
  return absl::OkStatus();
}

uint64_t Runs::Run(const TenantRef& tenant, const v1::RunRequest& request, RunDone done) {
  const ExecutionRef run = NewRun(tenant, std::move(done));
  // Checks whose cost depends on the request's size are done before locking the mutex.
  Status shape = CheckBindings(request.inputs(), request.outputs());
  shape = shape.ok() ? CheckCount("symbols", request.symbols_size()) : shape;
  shape = shape.ok() ? SetIteration(request, &run->sending->input.options) : shape;
  CoreScope scope(monitor_);
  const auto prepare = [&]() -> Outcome {
    HPVMD_RETURN_IF_ERROR(shape);
    HPVMD_RETURN_IF_ERROR(shutdown_.RefuseRun());
    HPVMD_RETURN_IF_ERROR(CheckRequestOptions(request.options(), /*key_honoured=*/false));
    HPVMD_RETURN_IF_ERROR(SetOptions(*run, request.options(), request.repeat()));
    HPVMD_ASSIGN_OR_RETURN(run->preparation, graphs_.UseHandle(*tenant, request.handle()));
    run->sending->input.symbols.insert(request.symbols().begin(), request.symbols().end());
    run->sending->input.options.set_node_records_max(std::min(request.placements_max(), kPlacementsMax));
    run->sending->input.options.set_log(request.log());
    run->traceparent = request.options().traceparent();
    HPVMD_RETURN_IF_ERROR(ResolveBindings(*tenant, *run->sending, request.inputs(), request.outputs()));
    return PayForRun(scope, *run);
  };
  return Start(scope, run, prepare());
}

uint64_t Runs::RunItem(const TenantRef& tenant, PreparationRef preparation, const StreamItem& item, RunDone done) {
  const ExecutionRef run = NewRun(tenant, std::move(done));
  run->preparation = std::move(preparation);
  run->sending->input.symbols.insert(item.open->symbols().begin(), item.open->symbols().end());
  run->sending->input.options.set_node_records_max(0);
  run->sending->input.options.set_log(item.open->log());
  run->traceparent = item.open->options().traceparent();
  const Status shape = CheckBindings(item.item->inputs(), item.item->outputs());
  CoreScope scope(monitor_);
  const auto prepare = [&]() -> Outcome {
    HPVMD_RETURN_IF_ERROR(shape);
    HPVMD_RETURN_IF_ERROR(shutdown_.breaking_off ? shutdown_.RefuseWork() : SetOptions(*run, item.open->options(), 1));
    HPVMD_RETURN_IF_ERROR(shutdown_.intake.closed ? shutdown_.RefuseRun() : Tenants::RefuseTenant(*tenant));
    HPVMD_RETURN_IF_ERROR(ResolveBindings(*tenant, *run->sending, item.item->inputs(), item.item->outputs()));
    return PayForRun(scope, *run);
  };
  return Start(scope, run, prepare());
}

uint64_t Runs::Start(CoreScope& scope, const ExecutionRef& run, Outcome prepared) {
  if (!prepared.ok()) {
    options_.observer->On(events::Rejected{run->tenant->name, "run", prepared.status});
    prepared = LaterIfUnavailable(std::move(prepared));
    scope.Defer([run, prepared = std::move(prepared)] { run->done(prepared); });
    return 0;
  }
  run->key = arbiter_.NextKey();
  runs_.emplace(run->key, run);
  ++run->tenant->active;
  run->deadline_timer = monitor_.AddTimer(scope, run->deadline, [this, run](CoreScope& inner) {
    StopRun(inner, run, DeadlineExceeded("The run did not end within its deadline."));
  });
  const auto is_wanted = [run] { return run->phase == Phase::kPreparing; };  // The run was not stopped since.
  const auto go_on = [this, run, is_wanted](CoreScope& inner, const Outcome& outcome) {
    if (!is_wanted()) {
      return;
    }
    if (!outcome.ok()) {
      Finish(inner, run, outcome);
      return;
    }
    run->phase = Phase::kQueued;
    run->sending->devices = arbiter_.ShareDevices(*run->preparation);
    arbiter_.Tick(
        inner,
        {scheduler::JobQueued{
            .tenant = run->tenant->key, .job = run->key, .priority = run->priority, .devices = run->sending->devices}});
  };
  graphs_.WithPrepared(scope, run->tenant, run->preparation, go_on, is_wanted);
  return run->key;
}

void Runs::StartAttempt(CoreScope& scope, const ExecutionRef& run, RunDone done) {
  run->done = std::move(done);
  runs_.emplace(run->key, run);
  ++run->tenant->active;
  SendRun(scope, run);
}

bool Runs::OnTurn(CoreScope& scope, scheduler::JobKey key) {
  const auto found = runs_.find(key);
  if (found == runs_.end()) {
    return false;
  }
  if (found->second->phase == Phase::kQueued) {
    SendRun(scope, ExecutionRef(found->second));
  }
  return true;
}

void Runs::SendRun(CoreScope& scope, const ExecutionRef& run) {
  run->phase = Phase::kReady;
  if (run->stored == nullptr) {
    run->running = run->tenant->account.TakeAnyway(scheduler::Resource::kRunningJobs, 1);
    // Other runs of the tenant may have spent the balance while this one waited.
    if (const auto refusal =
            quotas_.ledger().Spend(run->tenant->key, scheduler::Resource::kDeviceTime, 0, options_.clock->Now())) {
      Finish(scope, run, QuotaOutcome(*refusal));
      return;
    }
  }
  // The graph usually is prepared; not when the executor ended while the run waited for its turn, which it keeps.
  const auto is_wanted = [run, key = run->key] { return run->StandsAt(key, Phase::kReady); };
  const auto go_on = [this, run, is_wanted](CoreScope& inner, Outcome outcome) {
    if (!is_wanted()) {
      return;
    }
    outcome = outcome.ok() ? executors_.WhyNoModule(*run->tenant, *run->preparation) : outcome;
    if (const std::string closed = devices_.table().WhyAllClosed(run->preparation->needs);
        outcome.ok() && !closed.empty()) {
      outcome = Later(Unavailable(closed));
    }
    if (!outcome.ok()) {
      Finish(inner, run, std::move(outcome));
      return;
    }
    // For a job they are known only now; and a new executor may have other devices.
    Sending& sending = *run->sending;
    const uint64_t before = std::exchange(sending.devices, arbiter_.ShareDevices(*run->preparation));
    if (sending.devices != before) {
      arbiter_.UseDevices(inner, *run, sending.devices);
    }
    run->phase = Phase::kSent;
    ++run->tenant->executor.sent_runs;
    sending.sent = options_.clock->Now();
    sending.port = run->tenant->executor.port;
    sending.epoch = run->tenant->executor.epoch;
    sending.input.handle = run->preparation->link_handle;
    if (Status memory = ProvideKnownMemory(*run); !memory.ok()) {
      Finish(inner, run, std::move(memory));
      return;
    }
    inner.Defer([this, run, port = sending.port] {
      executors_.ForgetFreed(*run->tenant, *port);
      Transmit(run);
    });
  };
  graphs_.WithPrepared(scope, run->tenant, run->preparation, go_on, is_wanted);
}

void Runs::Transmit(const ExecutionRef& run) {
  const std::shared_ptr<Sending> sending = run->sending;  // The answer may come before Run returns.
  FillTargets(*sending);
  if (const Status sent = HPVMD_FAILPOINT("core.run.send"); !sent.ok()) {
    OnRunReply(run, sent);
    return;
  }
  sending->input.within = std::max<Duration>(run->deadline - options_.clock->Now(), std::chrono::milliseconds(1));
  const std::shared_ptr<supervisor::ExecutorProcess> port = sending->port;
  const uint32_t at = sending->count++;
  const supervisor::RequestId id = port->Run(
      sending->input, [this, run](StatusOr<supervisor::RunReply> reply) { OnRunReply(run, std::move(reply)); });
  sending->OnSent(*port, at, id);
}

void Runs::OnRunReply(const ExecutionRef& run, StatusOr<supervisor::RunReply> reply) {
  WatchedItem::SetCurrentTenant(run->tenant->name);
  Sending& sending = *run->sending;
  RunOutcome outcome;
  outcome.was_sent = true;
  if (const Status received = HPVMD_FAILPOINT("core.run.reply"); !received.ok()) {
    reply = received;
  }
  if (!reply.ok()) {
    outcome.outcome = LaterIfUnavailable(reply.status());
  } else if (reply->done.needs_memory() && sending.count < Sending::kRequestsMax && !sending.stop.load()) {
    auto large = ProvideMemory(sending, run->tenant->pool, *reply);
    if (large.ok()) {
      {
        CoreScope scope(monitor_);
        run->preparation->last_inputs = sending.input_shapes;
        run->preparation->last_symbols = sending.input.symbols;
        run->preparation->large_outputs = *std::move(large);
      }
      Transmit(run);
      return;
    }
    outcome.outcome = large.status();
  } else if (RunAgainWithMemory(run, *reply)) {
    return;
  } else {
    outcome.outcome = reply->status();
    outcome.reply = *std::move(reply);
  }
  const bool has_died = !reply.ok() && absl::IsUnavailable(reply.status());
  Tails tails(sending, outcome.reply);
  if (!outcome.outcome.ok() || tails.bytes() <= kClearedBytesMax) {
    const StatusOr<bool> cleared = outcome.outcome.ok() ? tails.Clear(UINT64_MAX) : StatusOr<bool>(true);
    if (!cleared.ok()) {
      outcome.outcome = cleared.status();
    }
    TakeOutcome(run, std::move(outcome), has_died);
    return;
  }
  // Large tails are not cleared on the thread that receives every executor's answers. The executor has finished with
  // the run.
  {
    CoreScope scope(monitor_);
    sending.port.reset();
  }
  auto moved = std::make_shared<std::pair<Tails, RunOutcome>>(std::move(tails), std::move(outcome));
  options_.jobs->Post(run->tenant->name, [this, run, moved] {
    auto& [left, late] = *moved;
    const StatusOr<bool> cleared = left.Clear(kClearedBytesPerStep);
    if (cleared.ok() && !*cleared) {
      return FairQueue::Step::kAgain;
    }
    if (!cleared.ok()) {
      late.outcome = cleared.status();
    }
    TakeOutcome(run, std::move(late), /*has_died=*/false);
    return FairQueue::Step::kDone;
  });
}

// Takes in the outputs or the failure of a run, and ends it.
void Runs::TakeOutcome(const ExecutionRef& run, RunOutcome outcome, bool has_died) {
  if (outcome.outcome.ok()) {
    StatusOr<std::vector<RunOutput>> outputs = Collect(*run->sending, run->tenant->pool, outcome.reply);
    if (outputs.ok()) {
      outcome.outputs = *std::move(outputs);
    } else {
      outcome.outcome = outputs.status();
    }
  }
  CoreScope scope(monitor_);
  const Sending& sending = *run->sending;
  if (!outcome.outcome.ok() && sending.stop.load()) {
    outcome.outcome = LaterIfUnavailable(sending.stop_reason);
  }
  if (ExecutorSlot& slot = run->tenant->executor; has_died && slot.epoch == sending.epoch) {
    slot.in_flight.insert(run->preparation->native.begin(), run->preparation->native.end());
  }
  const internal::RunDone& done = outcome.reply.done;
  const std::vector<std::string> lost(done.lost_devices().begin(), done.lost_devices().end());
  TakeLosses(scope, *run, has_died, has_died ? devices_.DriverDevices(*run->preparation) : lost, outcome.outcome);
  TakeLeft(scope, *run, {done.left_devices().begin(), done.left_devices().end()});
  if (outcome.outcome.ok() && run->stored == nullptr) {
    outcome.outcome = buffers_.Publish(*run->tenant, outcome.outputs);
  }
  const Duration in_executor(static_cast<int64_t>(outcome.timing().queue_ns()));
  outcome.SetTotals(sending.sent - run->received + in_executor, options_.clock->Now() - run->received);
  Finish(scope, run, std::move(outcome));
}

// Handles a run that lost devices, or whose executor ended: the devices are probed before others get them, and an
// executor that still lives is killed, since its drivers are in no state to go on.
void Runs::TakeLosses(CoreScope& scope, Execution& run, bool has_died, const std::vector<std::string>& lost,
                      Outcome& outcome) {
  if (lost.empty() || outcome.ok()) {
    return;
  }
  std::string list;
  for (const std::string& id : lost) {
    list += (list.empty() ? "" : ", ") + id;
  }
  devices_.FenceDevices(scope, lost,
                        has_died ? "An executor ended while it used the device." : "A run lost the device.",
                        Message(outcome.status));
  if (has_died) {
    outcome.status = While(outcome.status, "running nodes on " + list);
  } else if (run.tenant->executor.epoch == run.sending->epoch) {
    executors_.KillExecutor(scope, *run.tenant, "The executor lost " + list + ": " + Message(outcome.status));
  }
  if (absl::IsUnavailable(outcome.status)) {
    outcome = Later(outcome.status);
  }
}

// Handles a run that went on without devices that failed in it. The executor is kept while it has other work;
// otherwise it is killed, so that the next one has the devices again, if they answer.
void Runs::TakeLeft(CoreScope& scope, Execution& run, const std::vector<std::string>& left) {
  if (left.empty()) {
    return;
  }
  devices_.FenceDevices(scope, left, "A run went on without the device.", "");
  if (run.tenant->active <= 1 && run.tenant->executor.epoch == run.sending->epoch) {
    executors_.KillExecutor(scope, *run.tenant, "The executor lost " + left.front() + "; a run went on without it.");
  }
}

void Runs::Finish(CoreScope& scope, const ExecutionRef& run, RunOutcome outcome) {
  if (run->sending == nullptr) {
    return;
  }
  // Taken from the run, so that callers that wait for the executor on its behalf do not hold it.
  const std::shared_ptr<Sending> sending = std::exchange(run->sending, nullptr);
  const bool was_queued = run->phase != Phase::kPreparing;
  run->tenant->executor.sent_runs -= run->phase == Phase::kSent ? 1 : 0;
  for (Monitor::TimerKey& timer : sending->timers) {
    monitor_.DropTimer(timer);
  }
  sending->host_bytes.Release();
  sending->port.reset();
  runs_.erase(run->key);
  --run->tenant->active;
  run->tenant->executor.last_used = options_.clock->Now();
  if (run->stored != nullptr) {
    // Not the job's fault: it waits for the device.
    run->stored->attempt->broken_off |=
        absl::IsUnavailable(outcome.outcome.status) && !devices_.table().WhyAllClosed(run->preparation->needs).empty();
    run->phase = Phase::kAnswered;
    arbiter_.UseDevices(scope, *run, 0);  // A job's turn ends with its write to the store.
  } else {
    run->phase = Phase::kDone;
    run->running.Release();
    monitor_.DropTimer(run->deadline_timer);
    if (was_queued) {
      arbiter_.Tick(scope, {scheduler::JobEnded{run->tenant->key, run->key}});
    }
  }
  arbiter_.SettleDeviceTime(*run->tenant);
  for (const supervisor::InputTensor& input : sending->input.inputs) {
    outcome.input_bytes += input.memory.has_value() ? input.memory->bytes : input.bytes.size();
  }
  const v1::Job& job = run->stored != nullptr ? run->shown() : v1::Job::default_instance();
  options_.observer->On(events::RunEnded{run->tenant->name, job.id(), run->preparation->summary.name(),
                                         run->stored != nullptr ? job.traceparent() : run->traceparent, outcome});
  // std::function requires copyable captures, and the outcome is large: it is passed by pointer.
  auto moved = std::make_shared<RunOutcome>(std::move(outcome));
  scope.Defer([done = std::exchange(run->done, nullptr), run, sending, moved] { done(std::move(*moved)); });
}

void Runs::CancelRun(uint64_t id) {
  CoreScope scope(monitor_);
  if (const auto found = runs_.find(id); found != runs_.end()) {
    StopRun(scope, ExecutionRef(found->second), Cancelled("The run was cancelled."));
  }
}

void Runs::StopRun(CoreScope& scope, const ExecutionRef& run, Status why) {
  const std::shared_ptr<Sending> sending = run->sending;
  if (sending == nullptr || sending->stop.load()) {
    return;
  }
  Sending::Stop(scope, sending, std::move(why));
  if (run->phase != Phase::kSent) {
    RunOutcome outcome(sending->stop_reason);
    outcome.SetTotals(options_.clock->Now() - run->received, options_.clock->Now() - run->received);
    Finish(scope, run, std::move(outcome));
    graphs_.StopUnwanted(scope, *run->preparation);
    return;
  }
  if (sending->port == nullptr) {
    return;  // The executor has answered, and the memory after its outputs is being cleared.
  }
  const Duration grace = devices_.StopGrace(devices_.DriverDevices(*run->preparation));
  const supervisor::KillGrace patience(options_.clock->Now(), grace, sending->port->CpuTime());
  ArmStop(scope, run, patience, patience.end());
}

// Kills the executor of a run that has not stopped by `when`, unless the machine gave it too little processor time.
void Runs::ArmStop(CoreScope& scope, const ExecutionRef& run, const supervisor::KillGrace& patience, Time when) {
  run->sending->timers.push_back(monitor_.AddTimer(scope, when, [this, run, patience](CoreScope& inner) {
    if (run->phase != Phase::kSent || run->tenant->executor.epoch != run->sending->epoch ||
        run->sending->port == nullptr) {
      return;
    }
    const Time now = options_.clock->Now();
    if (const std::optional<Time> longer = patience.Longer(now, run->sending->port->CpuTime())) {
      ArmStop(inner, run, patience, *longer);
      return;
    }
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now - patience.asked()).count();
    executors_.KillExecutor(inner, *run->tenant,
                            "A run did not stop within " + std::to_string(ms) + " ms of being asked to.");
  }));
}

void Runs::OnRefused(CoreScope& scope, scheduler::JobKey key, scheduler::RefuseJob::Limit limit) {
  const auto found = runs_.find(key);
  if (found == runs_.end()) {
    return;
  }
  const ExecutionRef run = found->second;
  const bool own = limit == scheduler::RefuseJob::Limit::kTenantQueue;
  std::string text;
  if (limit == scheduler::RefuseJob::Limit::kShed) {
    text = "The server's queue is full (" + std::to_string(config_->jobs_queued_max) +
           " runs wait), and the tenant has most of it for its weight: the last run of its queue made room for a run "
           "of another tenant.";
  } else {
    text = std::string(own ? "The tenant's" : "The server's") + " queue is full (" +
           std::to_string(own ? config_->jobs_queued_per_tenant_max : config_->jobs_queued_max) + " runs wait).";
  }
  RunOutcome outcome(Later(ResourceExhausted(text), kQueueFullPause));
  options_.observer->On(events::Rejected{run->tenant->name, "run", outcome.outcome.status});
  Finish(scope, run, std::move(outcome));
}

}  // namespace hpvm::server
