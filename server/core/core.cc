// SPDX-License-Identifier: Apache-2.0
#include "server/core/core.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/failpoint.h"
#include "server/jobs/rows/retry.h"
#include "server/process/log.h"

namespace hpvm {
namespace {

// A tenant's memory that waits for use again.
constexpr uint64_t kIdleBytesMax = 512 * limits::kMiB;
// That fire under one hold of the mutex.
constexpr int kTimersAtOnce = 8;

BufferLimits BufferLimitsOf(const Config& config) {
  return {config.limits_buffer_bytes_max, config.limits_buffers_bytes_max, config.limits_buffers_max};
}

}  // namespace

CoreScope::~CoreScope() {
  std::function<void()> wake = wake_timer_ ? core_.wake_ : nullptr;
  hold_.End();
  lock_.unlock();
  for (const std::function<void()>& action : actions_) {
    action();
  }
  if (wake) {
    wake();
  }
}

Core::Core(CoreOptions options)
    : options_(std::move(options)),
      page_tokens_(options_.page_key),
      started_unix_ns_(options_.clock->WallNs()),
      config_(std::make_shared<const Config>(std::move(options_.config))),
      meter_(ledger_, *options_.clock),
      share_(ShareLimits(*config_), {.devices = 0}),
      devices_(config_->devices_backends),
      devices_known_(!options_.awaits_devices) {
  ShareDevice("cpu");  // Device 0, which every machine has.
  SetTotals();
}

Core::~Core() {
  // They hold their tenants.
  for (const auto& [name, tenant] : tenants_) {
    tenant->jobs.clear();
    tenant->by_sequence.clear();
    tenant->arrays.clear();
    tenant->pending_keys.clear();
    tenant->executor.waiting.clear();
    for (const auto& [key, preparation] : tenant->preparations) {
      preparation->waits.clear();
    }
  }
  inserting_.clear();
}

std::shared_ptr<const Config> Core::config() const {
  std::lock_guard lock(config_mutex_);
  return config_;
}

void Core::SetTotals() {
  const auto set = [this](scheduler::Resource resource, uint64_t configured, uint64_t otherwise) {
    ledger_.SetTotal(resource, configured != 0 ? configured : otherwise);
  };
  set(scheduler::Resource::kHostBytes, config_->limits_host_bytes_max, options_.host_bytes_max);
  set(scheduler::Resource::kDiskBytes, config_->jobs_disk_bytes_max, options_.disk_bytes_max);
}

void Core::SetConfig(Config config) {
  CoreScope scope(*this);
  {
    auto next = std::make_shared<const Config>(std::move(config));
    std::lock_guard lock(config_mutex_);
    config_.swap(next);
  }
  share_.SetLimits(ShareLimits(*config_));
  SetTotals();
  for (const auto& [name, tenant] : tenants_) {
    tenant->buffers.SetLimits(BufferLimitsOf(*config_));
    tenant->modules.SetLimit(config_->limits_stored_bytes_max);
    tenant->graphs.SetLimit(config_->limits_stored_bytes_max);
    ApplyPolicy(scope, TenantRef(tenant));
  }
  Tick(scope, {});  // More may run now.
}

StatusOr<TenantRef> Core::FindTenant(std::string_view name, bool also_disabled) {
  CoreScope scope(*this);
  if (const auto found = tenants_.find(std::string(name)); found != tenants_.end()) {
    const Tenant& tenant = *found->second;
    HPVMD_RETURN_IF_ERROR(also_disabled && tenant.is_known ? absl::OkStatus() : RefuseTenant(tenant));
    return found->second;
  }
  if (!IsTenantName(name)) {
    return InvalidArgument("The tenant's name (\"" + std::string(name.substr(0, 80)) +
                           "\") is not 1 to 63 characters of a-z, 0-9, - and _ that start with a letter.");
  }
  const TenantPolicyRef policy = options_.policies->Find(name, *config_);
  if (policy == nullptr || (policy->disabled && !also_disabled)) {
    return RefusalOf(name, policy.get());
  }
  if (tenants_.size() >= config_->tenants_max) {
    return ResourceExhausted("The server has as many tenants as it may (" + std::to_string(config_->tenants_max) +
                             ").");
  }
  return AddTenant(scope, std::string(name));
}

TenantRef Core::AddTenant(CoreScope& scope, const std::string& name) {
  const Config& config = *config_;
  auto tenant = std::make_shared<Tenant>(name, scheduler::Account{&ledger_, tenants_.size() + 1},
                                         config.limits_stored_bytes_max, BufferLimitsOf(config),
                                         std::min(kIdleBytesMax, config.limits_buffers_bytes_max), options_.clock);
  SetPolicy(*tenant);
  ledger_.AddTenant(tenant->key, tenant->policy->limits, options_.clock->Now());
  RestoreSpent(*tenant);
  tenants_.emplace(name, tenant);
  tenants_by_key_.emplace(tenant->key, tenant);
  Tick(scope, {scheduler::TenantArrives{tenant->key}});
  ShareSettings(scope, *tenant);
  LogInfo("Tenant arrives", {{"tenant", tenant->name}});
  return tenant;
}

void Core::ServerInfo(const Tenant& tenant, v1::ServerInfoResponse* response) {
  const std::shared_ptr<const Config> held = this->config();
  const Config& config = *held;
  response->set_version(HPVMD_VERSION);
  response->set_api_version(1);
  for (const char* feature : {"run-log", "check", "job-arrays", "job-after", "job-retry"}) {
    response->add_features(feature);
  }
  if (config.jobs_store == "sqlite") {
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
  limits.set_queued_jobs_max(static_cast<uint32_t>(config.jobs_queued_per_tenant_max));
  limits.set_job_deadline_default_ns(config.jobs_deadline_default_ms * 1'000'000);
  limits.set_job_deadline_max_ns(config.jobs_deadline_max_ms * 1'000'000);
  limits.set_prepared_graphs_max(static_cast<uint32_t>(config.limits_prepared_graphs_max));
  limits.set_job_array_max(static_cast<uint32_t>(config.jobs_array_max));
  limits.set_job_dependencies_max(static_cast<uint32_t>(config.jobs_dependencies_max));
  limits.set_job_attempts_max(kAttemptsMax);
  limits.set_stored_jobs_bytes_max(config.jobs_stored_bytes_max);
  CoreScope scope(*this);
  response->set_state(draining_ ? v1::ServerInfoResponse::STATE_DRAINING : v1::ServerInfoResponse::STATE_SERVING);
}

Status Core::RefuseWhenDraining() const {
  return draining_ ? Unavailable("The server is stopping and takes no new work.") : absl::OkStatus();
}

Core::TimerKey Core::AddTimer(CoreScope& scope, Time when, std::function<void(CoreScope&)> action) {
  const TimerKey key(when, next_timer_++);
  timers_.emplace(key, std::move(action));
  if (when < next_wake_) {
    next_wake_ = when;
    scope.WakeTimer();
  }
  return key;
}

void Core::DropTimer(TimerKey& timer) {
  timers_.erase(timer);
  timer = {kNever, 0};
}

Tenant* Core::TenantByKey(scheduler::TenantKey key) {
  const auto found = tenants_by_key_.find(key);
  return found == tenants_by_key_.end() ? nullptr : found->second.get();
}

void Core::Tick(CoreScope& scope, std::vector<scheduler::Event> events) {
  if (is_ticking_) {
    // A decision that is being carried out makes events of its own: they come after the other decisions, and no
    // number of them makes the stack deeper.
    more_events_.insert(more_events_.end(), events.begin(), events.end());
    return;
  }
  is_ticking_ = true;
  do {
    const Time start = options_.clock->Now();
    const std::vector<scheduler::Decision> decisions = share_.Tick(start, events);
    options_.observer->OnDecision(options_.clock->Now() - start);
    for (const scheduler::Decision& decision : decisions) {
      Apply(scope, decision);
    }
    events = std::exchange(more_events_, {});
  } while (!events.empty());
  is_ticking_ = false;
  tick_due_ = share_.NextTick();
  if (tick_due_ < next_wake_) {
    next_wake_ = tick_due_;
    scope.WakeTimer();
  }
}

void Core::PostRead(const Tenant& tenant, FairQueue::Work work) {
  options_.jobs->PostRead(tenant.name, std::move(work));
}

void Core::InSlices(CoreScope& scope, const TenantRef& tenant, std::function<bool(CoreScope&)> slice) {
  if (!slice(scope)) {
    InLaterSlice(scope, tenant, std::move(slice));
  }
}

void Core::InLaterSlice(CoreScope& scope, const TenantRef& tenant, std::function<bool(CoreScope&)> slice) {
  if (closed_) {  // The store ends, and its threads with it.
    while (!slice(scope)) {
    }
    return;
  }
  options_.jobs->PostRead(tenant->name, [this, tenant, slice = std::move(slice)] {
    CoreScope inner(*this);
    return slice(inner) ? FairQueue::Step::kDone : FairQueue::Step::kAgain;
  });
}

void Core::EachLive(CoreScope& scope, const TenantRef& tenant, std::function<void(CoreScope&, const LiveJobRef&)> look,
                    std::function<void(CoreScope&)> done) {
  InSlices(scope, tenant,
           [tenant, look = std::move(look), done = std::move(done), next = uint64_t{0}](CoreScope& inner) mutable {
             for (int i = 0; i < kJobsAtOnce; ++i) {
               const auto found = tenant->by_sequence.lower_bound(next);
               if (found == tenant->by_sequence.end()) {
                 if (done) {
                   done(inner);
                 }
                 return true;
               }
               const LiveJobRef job = found->second;
               next = found->first + 1;
               look(inner, job);
             }
             return false;
           });
}

Time Core::OnTime() {
  const WatchedItem item("timer", "due");
  DestroyEnded();
  const Time now = options_.clock->Now();
  while (true) {
    CoreScope scope(*this);
    int fired = 0;
    for (auto timer = timers_.begin(); timer != timers_.end() && timer->first.first <= now && fired < kTimersAtOnce;
         timer = timers_.begin(), ++fired) {
      const auto action = std::move(timer->second);
      timers_.erase(timer);
      action(scope);
    }
    if (fired == kTimersAtOnce) {
      continue;  // Others get the mutex.
    }
    if (tick_due_ <= now) {
      Tick(scope, {});
    }
    next_wake_ = std::min(tick_due_, timers_.empty() ? kNever : timers_.begin()->first.first);
    return next_wake_;
  }
}

void Core::SetWake(std::function<void()> wake) { wake_ = std::move(wake); }

void Core::Drain() {
  CoreScope scope(*this);
  if (draining_) {
    return;
  }
  draining_ = true;
  LeaveQueues(scope);
}

void Core::StopRunning() {
  CoreScope scope(*this);
  draining_ = breaking_off_ = true;
  std::vector<std::shared_ptr<RunOp>> running;  // Stopping one takes it out of ops_.
  for (const auto& [id, op] : ops_) {
    running.push_back(op);
  }
  for (const std::shared_ptr<RunOp>& op : running) {
    if (const auto job = op->tenant->jobs.find(op->job_id); job != op->tenant->jobs.end() && job->second->attempt) {
      job->second->attempt->broken_off = true;
    }
    StopRun(scope, op, Unavailable("The server stopped before the run ended."));
  }
}

size_t Core::operations() const {
  std::lock_guard lock(mutex_);
  size_t runs = submissions_.size();
  for (const auto& [id, op] : ops_) {
    runs += op->job_id.empty() ? 1 : 0;
  }
  for (const auto& [name, tenant] : tenants_) {
    for (const auto& [id, job] : tenant->jobs) {
      runs += job->writing || job->attempt != nullptr ? 1 : 0;
    }
  }
  return runs;
}

void Core::Stop() {
  StopRunning();
  {
    CoreScope scope(*this);
    stopped_ = true;
    for (const auto& [name, tenant] : tenants_) {
      KillExecutor(scope, *tenant, "The server stopped.");
    }
    for (const auto& [tenant, epoch] : std::exchange(awaiting_devices_, {})) {
      RefuseWaiting(scope, *tenant);  // No probe answers any more.
    }
  }
  // What runs fails as its executor ends; the last to let go of an executor puts it into graves_.
  DestroyEnded();
  while (live_ports_.load() > 0) {
    {
      std::unique_lock lock(graves_mutex_);
      graves_changed_.wait_for(lock, std::chrono::milliseconds(20), [&] { return !graves_.empty(); });
    }
    DestroyEnded();
  }
  std::vector<std::vector<PinnedBlob>> held;  // Let go of without the mutex, and before the store ends.
  CoreScope scope(*this);
  closed_ = true;
  RefuseCancels(scope);
  for (const auto& [name, tenant] : tenants_) {
    for (const auto& [key, preparation] : tenant->preparations) {
      held.push_back(std::exchange(preparation->stored, {}));
    }
  }
  for (const auto& [key, watcher] : watching_) {
    for (const auto& [own, wake] : watcher.events->watchers()) {
      scope.Defer(wake);
    }
  }
}

CoreHealth Core::Health() {
  const JobStoreHealth store = options_.jobs->Health();
  CoreHealth health;
  const auto add = [&](std::string reason) {
    health.is_ready = false;
    health.reasons.push_back(std::move(reason));
  };
  if (!store.accepts_writes) {
    add(store.reason);
  }
  CoreScope scope(*this);
  if (draining_) {
    add("The server is stopping.");
  }
  if (lease_ == 0) {
    add("The stored jobs have not been read yet.");
  }
  if (!devices_known_) {
    add("The devices are not known yet.");
  }
  return health;
}

CoreSnapshot Core::Snapshot(bool with_tenants) {
  CoreSnapshot snapshot;
  snapshot.store = options_.jobs->Health();
  CoreScope scope(*this);
  snapshot.devices_known = devices_known_;
  snapshot.sandbox = sandbox_;
  snapshot.sandbox_level_min = static_cast<uint32_t>(config_->executor_sandbox_min);
  snapshot.draining = draining_;
  snapshot.executors = live_ports_.load();
  snapshot.watchers = watching_.size();
  snapshot.devices = devices_.Describe();
  std::map<const Tenant*, TenantSnapshot> tenants;
  for (const auto& [id, op] : ops_) {
    if (op->job_id.empty()) {
      ++snapshot.runs;
      if (with_tenants && op->state == RunOp::State::kQueued) {
        ++tenants[op->tenant.get()].queued[PriorityClass(op->priority)];
      }
    }
  }
  uint64_t live = 0;
  for (const auto& [name, tenant] : tenants_) {
    live += tenant->jobs.size();
    if (with_tenants) {
      SettleDeviceTime(*tenant);
      TenantSnapshot& one = tenants[tenant.get()];
      for (size_t i = 0; i < tenant->queued_jobs.size(); ++i) {
        one.queued[i] += tenant->queued_jobs[i];
      }
      one.name = name;
      one.running = share_.running(tenant->key);
      one.buffer_bytes = tenant->buffers.bytes();
      one.stored_job_bytes = tenant->stored_job_bytes();
      for (const scheduler::ResourceFacts& facts : scheduler::Resources()) {
        one.quota[static_cast<size_t>(facts.resource)] =
            ledger_.BalanceOf(tenant->key, facts.resource, options_.clock->Now());
      }
      snapshot.tenants.push_back(std::move(one));
    }
  }
  snapshot.jobs_running = running_jobs_;
  snapshot.jobs_queued = queued_jobs_.size();
  snapshot.jobs_accepted = live - snapshot.jobs_running - snapshot.jobs_queued;
  return snapshot;
}

}  // namespace hpvm
