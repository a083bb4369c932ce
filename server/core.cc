// SPDX-License-Identifier: Apache-2.0
#include "server/core.h"

#include <algorithm>
#include <chrono>

#include "server/log.h"

namespace hpvm {
namespace {

constexpr Duration kExpireEvery = std::chrono::seconds(10);
// A tenant's memory that waits for use again.
constexpr uint64_t kIdleBytesMax = 512 * limits::kMiB;

scheduler::FairShareLimits ShareLimits(const Config& config) {
  scheduler::FairShareLimits limits;
  limits.tenants_max = static_cast<uint32_t>(config.tenants_max);
  limits.queued_per_tenant_max = static_cast<uint32_t>(config.jobs_queued_per_tenant_max);
  limits.queued_max = static_cast<uint32_t>(config.jobs_queued_max);
  limits.running_per_tenant_max = static_cast<uint32_t>(config.jobs_running_per_tenant_max);
  limits.running_max = static_cast<uint32_t>(config.jobs_running_max);
  return limits;
}

}  // namespace

CoreScope::~CoreScope() {
  std::function<void()> wake = wake_timer_ ? core_.wake_ : nullptr;
  lock_.unlock();
  for (const std::function<void()>& action : actions_) {
    action();
  }
  if (wake) {
    wake();
  }
}

Core::Core(CoreOptions options)
    : options_(std::move(options)), started_unix_ns_(options_.clock->WallNs()),
      share_(ShareLimits(options_.config), {.devices = 1}),
      devices_(options_.config.devices_backends), devices_known_(!options_.awaits_devices) {}

Core::~Core() = default;

StatusOr<TenantRef> Core::FindTenant(std::string_view name) {
  CoreScope scope(*this);
  if (const auto found = tenants_.find(std::string(name)); found != tenants_.end()) {
    return found->second;
  }
  if (!IsTenantName(name)) {
    return InvalidArgument("The tenant's name (\"" + std::string(name.substr(0, 80)) +
                           "\") is not 1 to 63 characters of a-z, 0-9, - and _ that start with a letter.");
  }
  const Config& config = options_.config;
  if (tenants_.size() >= config.tenants_max) {
    return ResourceExhausted("The server has as many tenants as it may (" + std::to_string(config.tenants_max) + ").");
  }
  const BufferLimits buffers{config.limits_buffer_bytes_max, config.limits_buffers_bytes_max,
                             config.limits_buffers_max};
  auto tenant = std::make_shared<Tenant>(std::string(name), tenants_.size() + 1, config.limits_stored_bytes_max,
                                         buffers, std::min(kIdleBytesMax, config.limits_buffers_bytes_max));
  tenants_.emplace(name, tenant);
  tenants_by_key_.emplace(tenant->key, tenant);
  Tick(scope, {scheduler::TenantArrives{tenant->key}});
  LogInfo("Tenant arrives tenant=" + tenant->name);
  return tenant;
}

void Core::ServerInfo(const Tenant& tenant, v1::ServerInfoResponse* response) {
  const Config& config = options_.config;
  response->set_version(HPVMD_VERSION);
  response->set_api_version(1);
  for (const char* feature : {"run-log", "check"}) {
    response->add_features(feature);
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

Tenant* Core::TenantByKey(scheduler::TenantKey key) {
  const auto found = tenants_by_key_.find(key);
  return found == tenants_by_key_.end() ? nullptr : found->second.get();
}

void Core::Tick(CoreScope& scope, std::initializer_list<scheduler::Event> events) {
  const std::vector<scheduler::Decision> decisions =
      share_.Tick(options_.clock->Now(), {events.begin(), events.size()});
  for (const scheduler::Decision& decision : decisions) {
    Apply(scope, decision);
  }
  tick_due_ = share_.NextTick();
  if (tick_due_ < next_wake_) {
    next_wake_ = tick_due_;
    scope.WakeTimer();
  }
}

void Core::Apply(CoreScope& scope, const scheduler::Decision& decision) {
  if (const auto* start = std::get_if<scheduler::StartJob>(&decision)) {
    if (const auto op = ops_.find(start->job); op != ops_.end()) {
      SendRun(scope, op->second);
    }
  } else if (const auto* refuse = std::get_if<scheduler::RefuseJob>(&decision)) {
    if (const auto op = ops_.find(refuse->job); op != ops_.end()) {
      const bool own = refuse->limit == scheduler::RefuseJob::Limit::kTenantQueue;
      const uint64_t limit = own ? options_.config.jobs_queued_per_tenant_max : options_.config.jobs_queued_max;
      RunOutcome outcome;
      outcome.outcome = ResourceExhausted(std::string(own ? "The tenant's" : "The server's") + " queue is full (" +
                                          std::to_string(limit) + " runs wait).");
      outcome.outcome.detail.emplace().set_retryable(true);
      Finish(scope, std::shared_ptr<RunOp>(op->second), std::move(outcome));
    }
  } else if (const auto* grant = std::get_if<scheduler::Grant>(&decision)) {
    WriteGrant(scope, grant->tenant, GrantState::kGranted, grant->contended, 0);
  } else if (const auto* revoke = std::get_if<scheduler::Revoke>(&decision)) {
    WriteGrant(scope, revoke->tenant, GrantState::kRevoked, true, revoke->grant);
  } else if (const auto* contended = std::get_if<scheduler::SetContended>(&decision)) {
    WriteGrant(scope, contended->tenant, GrantState::kGranted, contended->contended, 0);
  } else if (const auto* overdue = std::get_if<scheduler::GrantOverdue>(&decision)) {
    if (const Tenant* tenant = TenantByKey(overdue->tenant)) {
      LogWarning("A tenant's executor holds the CPU beyond its grant tenant=" + tenant->name);
    }
  }
}

void Core::WriteGrant(CoreScope& scope, scheduler::TenantKey key, GrantState state, bool contended, uint64_t grant) {
  Tenant* tenant = TenantByKey(key);
  if (tenant == nullptr) {
    return;
  }
  ExecutorSlot& slot = tenant->executor;
  slot.grant_state = state;
  slot.contended = contended;
  if (slot.grant_page.data() == nullptr) {
    return;   // Written when the executor starts.
  }
  const uint32_t epoch = slot.WriteGrantPage(options_.cpu_threads);
  if (slot.port == nullptr) {
    return;
  }
  std::function<void(Status)> done;
  if (grant != 0) {
    done = [this, key, grant](const Status& status) {
      if (status.ok()) {
        CoreScope inner(*this);
        Tick(inner, {scheduler::GrantReturned{key, 0, grant}});
      }
    };
  }
  scope.Defer([port = slot.port, epoch, done = std::move(done)] { port->GrantChanged(0, epoch, done); });
}

uint32_t ExecutorSlot::WriteGrantPage(uint32_t cpu_threads) {
  // Safety: the page was mapped with kGrantPageBytes, zeroed, and both processes use atomics only.
  auto* page = reinterpret_cast<GrantPage*>(grant_page.data());
  GrantEntry& entry = page->entries[0];
  entry.state.store(static_cast<uint32_t>(grant_state), std::memory_order_relaxed);
  entry.cpu_threads.store(cpu_threads, std::memory_order_relaxed);
  entry.contended.store(contended ? 1 : 0, std::memory_order_relaxed);
  page->version.store(1, std::memory_order_relaxed);
  page->count.store(1, std::memory_order_relaxed);
  return entry.epoch.fetch_add(1, std::memory_order_release) + 1;
}

Time Core::OnTime() {
  DestroyEnded();
  CoreScope scope(*this);
  const Time now = options_.clock->Now();
  while (!timers_.empty() && timers_.begin()->first.first <= now) {
    const auto action = std::move(timers_.begin()->second);
    timers_.erase(timers_.begin());
    action(scope);
  }
  if (tick_due_ <= now) {
    Tick(scope, {});
  }
  if (expire_due_ <= now) {
    ExpireJobs();
    expire_due_ = now + kExpireEvery;
  }
  next_wake_ = std::min({expire_due_, tick_due_, timers_.empty() ? kNever : timers_.begin()->first.first});
  return next_wake_;
}

void Core::SetWake(std::function<void()> wake) { wake_ = std::move(wake); }

void Core::Drain() {
  CoreScope scope(*this);
  draining_ = true;
}

size_t Core::operations() const {
  std::lock_guard lock(mutex_);
  return ops_.size() + submits_;
}

void Core::Stop() {
  {
    CoreScope scope(*this);
    draining_ = stopped_ = true;
    std::vector<std::shared_ptr<RunOp>> waiting;
    for (const auto& [id, op] : ops_) {
      if (op->state != RunOp::State::kSent) {
        waiting.push_back(op);
      }
    }
    for (const std::shared_ptr<RunOp>& op : waiting) {
      RunOutcome outcome;
      outcome.outcome = Unavailable("The server stopped before the run started.");
      Finish(scope, op, std::move(outcome));
    }
    for (const auto& [name, tenant] : tenants_) {
      KillExecutor(scope, *tenant, "The server stopped.");
    }
  }
  // What runs fails as its executor ends; the last to let go of an executor puts it into graves_.
  while (live_ports_.load() > 0) {
    DestroyEnded();
    std::unique_lock lock(graves_mutex_);
    graves_changed_.wait_for(lock, std::chrono::milliseconds(20), [&] { return !graves_.empty(); });
  }
}

void Core::ExpireJobs() {
  const JobLimits limits{options_.config.jobs_kept_max, options_.config.jobs_kept_ms * 1'000'000};
  for (const auto& [tenant_name, id] : options_.jobs->Expire(limits, options_.clock->WallNs())) {
    if (const auto tenant = tenants_.find(tenant_name); tenant != tenants_.end()) {
      if (const auto job = tenant->second->jobs.find(id); job != tenant->second->jobs.end()) {
        tenant->second->buffers.Unreserve(job->second->reserved_bytes);
        tenant->second->jobs.erase(job);
      }
    }
  }
}

}  // namespace hpvm
