// SPDX-License-Identifier: Apache-2.0
#include "server/core/core.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/failpoint.h"
#include "server/core/state/batch_limits.h"
#include "server/jobs/rows/retry.h"
#include "server/process/log.h"

namespace hpvm::server {
Core::Core(CoreOptions options) : context_(std::move(options)), started_unix_ns_(context_.options.clock->WallNs()) {
  quotas_.SetTotals();
  devices_.SetOnSettled([this](CoreScope& scope) { executors_.SpawnAwaiting(scope); });
  devices_.SetOnClosed([this](CoreScope& scope) {
    arbiter_.WriteClosed();
    lifecycle_.OnDevices(scope);
  });
  devices_.SetOnChanged([this](CoreScope& scope) { watchers_.TellAll(scope, Watchers::kDevices); });
  const auto start = [this](CoreScope& scope, scheduler::JobKey key) {
    if (!runs_.OnTurn(scope, key)) {
      lifecycle_.OnTurn(scope, key);
    }
  };
  const auto refuse = [this](CoreScope& scope, scheduler::JobKey key, scheduler::RefuseJob::Limit limit) {
    runs_.OnRefused(scope, key, limit);
  };
  arbiter_.SetTurns({start, refuse});
}

Core::~Core() {
  // These members hold references to their tenant.
  for (const auto& [name, tenant] : tenants_.all()) {
    tenant->jobs.clear();
    tenant->by_sequence.clear();
    tenant->arrays.clear();
    tenant->pending_keys.clear();
    tenant->executor.waiting.clear();
    for (const auto& [key, preparation] : tenant->preparations) {
      preparation->waits.clear();
    }
  }
  table_.inserting.clear();
}

void Core::SetConfig(Config config) {
  CoreScope scope(context_.monitor);
  context_.config.Set(std::move(config));
  arbiter_.SetLimits();
  quotas_.SetTotals();
  tenants_.SetLimits();
  for (const auto& [name, tenant] : tenants_.all()) {
    ApplyPolicy(scope, TenantRef(tenant));
  }
  arbiter_.Tick(scope, {});  // A change of policies may let more runs start.
}

void Core::ServerInfo(const Tenant& tenant, v1::ServerInfoResponse* response) {
  const std::shared_ptr<const Config> held = context_.config.Get();
  const Config& config = *held;
  response->set_version(HPVMD_VERSION);
  response->set_api_version(1);
  for (const char* feature : {"run-log", "check", "job-arrays", "job-after", "job-retry", "register-buffer", "run-many",
                              "submit-many", "watch", "ring", "overview", "intake", "accounts", "config", "job-hold",
                              "list-all-tenants", "job-limits", "job-past", "device-pause"}) {
    response->add_features(feature);
  }
  if (context_.options.shared != nullptr) {
    response->add_features("cluster");
    response->add_features("durable-jobs");
    response->set_host(config.cluster_host);
  } else if (config.jobs_store == "sqlite") {
    response->add_features("durable-jobs");
  }
  response->set_tenant(tenant.name);
  response->set_started_unix_ns(started_unix_ns_);
  v1::Limits& limits = *response->mutable_limits();
  limits.set_message_bytes_max(config.limits_message_bytes_max);
  limits.set_inline_tensor_bytes_max(limits::kInlineTensorBytesMax);
  limits.set_chunk_bytes(limits::kChunkBytes);
  limits.set_module_bytes_max(config.limits_module_bytes_max);
  limits.set_document_bytes_max(config.limits_document_bytes_max);
  limits.set_buffer_bytes_max(config.limits_buffer_bytes_max);
  limits.set_buffers_bytes_max(config.limits_buffers_bytes_max);
  limits.set_buffers_max(static_cast<uint32_t>(config.limits_buffers_max));
  limits.set_job_deadline_default_ns(config.jobs_deadline_default_ms * 1'000'000);
  limits.set_job_deadline_max_ns(config.jobs_deadline_max_ms * 1'000'000);
  limits.set_prepared_graphs_max(static_cast<uint32_t>(config.limits_prepared_graphs_max));
  limits.set_job_array_max(static_cast<uint32_t>(config.jobs_array_max));
  limits.set_job_dependencies_max(static_cast<uint32_t>(config.jobs_dependencies_max));
  limits.set_job_attempts_max(kAttemptsMax);
  limits.set_stored_jobs_bytes_max(config.jobs_stored_bytes_max);
  limits.set_runs_per_call_max(kRunsPerCallMax);
  limits.set_submits_per_call_max(kSubmitsPerCallMax);
  CoreScope scope(context_.monitor);
  // 0 means that the tenant has no quota of its own: the server's queue is the limit.
  const uint64_t own_max = tenant.policy->limits[static_cast<size_t>(scheduler::Resource::kQueuedJobs)];
  limits.set_queued_jobs_max(
      static_cast<uint32_t>(own_max == 0 ? config.jobs_queued_max : std::min(own_max, config.jobs_queued_max)));
  response->set_state(context_.shutdown.draining ? v1::ServerInfoResponse::STATE_DRAINING
                                                 : v1::ServerInfoResponse::STATE_SERVING);
}

Status Core::Restore() {
  HPVMD_RETURN_IF_ERROR(restorer_.Restore());
  CoreScope scope(context_.monitor);
  retention_.ScheduleRetention(scope, std::chrono::seconds(10));
  return absl::OkStatus();
}

Time Core::OnTime() {
  const WatchedItem item("timer", "due");
  executors_.DestroyEnded();
  const Time now = context_.options.clock->Now();
  while (true) {
    CoreScope scope(context_.monitor);
    if (!context_.monitor.FireTimers(scope, now)) {
      continue;  // Lets other threads take the mutex.
    }
    if (arbiter_.due() <= now) {
      arbiter_.Tick(scope, {});
    }
    return context_.monitor.NextWake(arbiter_.due());
  }
}

void Core::Drain() {
  CoreScope scope(context_.monitor);
  if (context_.shutdown.draining) {
    return;
  }
  context_.shutdown.draining = true;
  lifecycle_.LeaveQueues(scope);
  devices_.LeaveQueues(scope);
}

void Core::SetIntake(Intake intake) {
  CoreScope scope(context_.monitor);
  const bool is_change = intake.closed != context_.shutdown.intake.closed;
  context_.shutdown.intake = std::move(intake);
  const Intake& now = context_.shutdown.intake;
  if (is_change) {
    LogInfo(now.closed ? "The server starts nothing from now on" : "The server starts work again",
            {{"reason", now.reason}, {"by", now.changed_by}});
    lifecycle_.OnIntake(scope);
  }
  devices_.SetPaused(scope, now.paused);
}

Intake Core::intake() {
  CoreScope scope(context_.monitor);
  return context_.shutdown.intake;
}

void Core::StopRunning() {
  CoreScope scope(context_.monitor);
  context_.shutdown.draining = context_.shutdown.breaking_off = true;
  devices_.LeaveQueues(scope);
  for (const auto& [key, run] : std::map(runs_.all())) {  // Iterates over a copy, because StopRun erases the run.
    if (run->stored != nullptr && run->stored->attempt != nullptr) {
      run->stored->attempt->broken_off = true;
    }
    runs_.StopRun(scope, run, Unavailable("The server stopped before the run ended."));
  }
}

size_t Core::operations() {
  CoreScope scope(context_.monitor);
  size_t runs = table_.submissions.size();
  for (const auto& [id, run] : runs_.all()) {
    runs += run->stored == nullptr ? 1 : 0;
  }
  for (const auto& [name, tenant] : tenants_.all()) {
    for (const auto& [id, job] : tenant->jobs) {
      runs += job->stored->writing || job->stored->attempt != nullptr ? 1 : 0;
    }
  }
  return runs;
}

void Core::Stop() {
  StopRunning();
  {
    CoreScope scope(context_.monitor);
    context_.shutdown.stopped = true;
    executors_.KillAll(scope);
  }
  executors_.AwaitEnd();
  std::vector<std::vector<PinnedBlob>> held;  // Released without the mutex, and before the store ends.
  CoreScope scope(context_.monitor);
  context_.shutdown.closed = true;
  lifecycle_.RefuseCommands(scope);
  for (const auto& [name, tenant] : tenants_.all()) {
    for (const auto& [key, preparation] : tenant->preparations) {
      held.push_back(std::exchange(preparation->stored, {}));
    }
  }
  reader_.WakeAll(scope);
  watchers_.TellAll(scope, Watchers::kAll);
}

CoreHealth Core::Health() {
  const JobStoreHealth store = context_.options.jobs->Health();
  CoreHealth health;
  const auto add = [&](std::string reason) {
    health.is_ready = false;
    health.reasons.push_back(std::move(reason));
  };
  if (!store.accepts_writes) {
    add(store.reason);
  }
  CoreScope scope(context_.monitor);
  if (context_.shutdown.draining) {
    add("The server is stopping.");
  }
  if (context_.shutdown.intake.closed) {
    add(context_.shutdown.intake.Sentence());
  }
  if (table_.lease == 0) {
    add("The stored jobs have not been read yet.");
  }
  if (!devices_.known()) {
    add("The devices are not known yet.");
  }
  return health;
}

CoreSnapshot Core::Snapshot(bool with_tenants) {
  CoreSnapshot snapshot;
  snapshot.store = context_.options.jobs->Health();
  CoreScope scope(context_.monitor);
  snapshot.devices_known = devices_.known();
  snapshot.sandbox = devices_.sandbox();
  snapshot.sandbox_level_min = static_cast<uint32_t>(context_.config->executor_sandbox_min);
  snapshot.draining = context_.shutdown.draining;
  snapshot.intake = context_.shutdown.intake;
  snapshot.executors = executors_.live();
  snapshot.watchers = watchers_.count();
  snapshot.devices = devices_.table().Describe();
  std::map<const Tenant*, TenantSnapshot> tenants;
  for (const auto& [id, run] : runs_.all()) {
    if (run->stored == nullptr) {
      ++snapshot.runs;
      if (with_tenants && (run->phase == Execution::Phase::kQueued || run->phase == Execution::Phase::kReady)) {
        ++tenants[run->tenant.get()].queued[PriorityClass(run->priority)];
      }
    }
  }
  uint64_t live = 0;
  for (const auto& [name, tenant] : tenants_.all()) {
    live += tenant->jobs.size();
    if (with_tenants) {
      arbiter_.SettleDeviceTime(*tenant);
      TenantSnapshot& one = tenants[tenant.get()];
      for (size_t i = 0; i < tenant->queued_jobs.size(); ++i) {
        one.queued[i] += tenant->queued_jobs[i];
      }
      one.name = name;
      one.running = arbiter_.share().running(tenant->key);
      one.buffer_bytes = tenant->buffers.bytes();
      one.stored_job_bytes = tenant->stored_job_bytes();
      for (const scheduler::ResourceFacts& facts : scheduler::Resources()) {
        one.quota[static_cast<size_t>(facts.resource)] =
            quotas_.ledger().BalanceOf(tenant->key, facts.resource, context_.options.clock->Now());
      }
      snapshot.tenants.push_back(std::move(one));
    }
  }
  snapshot.jobs_running = table_.running;
  snapshot.jobs_queued = table_.queued();
  snapshot.jobs_accepted = live - snapshot.jobs_running - snapshot.jobs_queued;
  return snapshot;
}

}  // namespace hpvm::server
