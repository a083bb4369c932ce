// SPDX-License-Identifier: Apache-2.0
// What tenants may: their policies, what they pay for what they hold and spend, and what waits while they may not.
#include <algorithm>
#include <utility>

#include "server/core/core.h"
#include "server/core/submission.h"
#include "server/process/log.h"

namespace hpvm {
namespace {

using scheduler::Resource;

v1::ResourceUsage::Unit UnitOf(scheduler::ResourceUnit unit) {
  switch (unit) {
    case scheduler::ResourceUnit::kCount:
      return v1::ResourceUsage::UNIT_COUNT;
    case scheduler::ResourceUnit::kBytes:
      return v1::ResourceUsage::UNIT_BYTES;
    case scheduler::ResourceUnit::kNanoseconds:
      return v1::ResourceUsage::UNIT_NANOSECONDS;
  }
  return v1::ResourceUsage::UNIT_UNSPECIFIED;
}

}  // namespace

Status RefusalOf(std::string_view name, const TenantPolicy* policy) {
  if (policy == nullptr) {
    return NotFound("There is no tenant \"" + std::string(name) + "\".");
  }
  return MakeStatus(absl::StatusCode::kPermissionDenied,
                    "The tenant \"" + std::string(name) + "\" is disabled" +
                        (policy->disabled_reason.empty() ? "" : ": " + policy->disabled_reason) + ".");
}

Status Core::RefuseTenant(const Tenant& tenant) {
  return tenant.policy->disabled ? RefusalOf(tenant.name, tenant.is_known ? tenant.policy.get() : nullptr)
                                 : absl::OkStatus();
}

Outcome Core::Suspended(const Tenant& tenant) {
  Outcome outcome(Unavailable(Message(RefuseTenant(tenant))));
  outcome.detail.emplace().set_retryable(true);
  outcome.detail->set_retry_after_ns(1'000'000'000);
  return outcome;
}

void Core::SetPolicy(Tenant& tenant) {
  tenant.policy = options_.policies->Find(tenant.name, *config_);
  tenant.is_known = tenant.policy != nullptr;
  if (!tenant.is_known) {
    TenantPolicy gone = *DefaultPolicy(tenant.name, *config_);
    gone.disabled = true;
    tenant.policy = std::make_shared<const TenantPolicy>(std::move(gone));
  }
}

void Core::RestoreSpent(const Tenant& tenant) {
  const auto found = options_.spent.find(tenant.name);
  if (found == options_.spent.end()) {
    return;
  }
  const TenantSpent& before = found->second;
  const Duration ago(std::max<int64_t>(options_.clock->WallNs() - before.unix_ns, 0));
  for (size_t i = 0; i < scheduler::kResourceCount; ++i) {
    ledger_.RestoreSpent(tenant.key, static_cast<Resource>(i), before.spent[i], ago, options_.clock->Now());
  }
}

SpentByTenant Core::Spent() {
  CoreScope scope(*this);
  SpentByTenant spent;
  const Time now = options_.clock->Now();
  const int64_t unix_ns = options_.clock->WallNs();
  for (const auto& [name, tenant] : tenants_) {
    TenantSpent& one = spent[name];
    one.unix_ns = unix_ns;
    for (size_t i = 0; i < scheduler::kResourceCount; ++i) {
      one.spent[i] = ledger_.SpentOf(tenant->key, static_cast<Resource>(i), now);
    }
  }
  return spent;
}

void Core::OnPolicyChanged(std::string_view name) {
  CoreScope scope(*this);
  if (const auto found = tenants_.find(std::string(name)); found != tenants_.end()) {
    ApplyPolicy(scope, TenantRef(found->second));
  }
}

void Core::ApplyPolicy(CoreScope& scope, const TenantRef& tenant) {
  const bool was_disabled = tenant->policy->disabled;
  SetPolicy(*tenant);
  ledger_.SetLimits(tenant->key, tenant->policy->limits, options_.clock->Now());
  ShareSettings(scope, *tenant);
  if (tenant->policy->disabled) {
    if (!was_disabled) {
      Suspend(scope, tenant);
    }
    return;
  }
  // What waited for this, or for more to be earned, looks again.
  EachLive(scope, tenant, [this](CoreScope& inner, const LiveJobRef& job) { Settle(inner, job); });
}

// Runs fail, attempts are broken off without having counted, and jobs wait until the tenant is enabled.
void Core::Suspend(CoreScope& scope, const TenantRef& tenant) {
  LogInfo("Tenant disabled", {{"tenant", tenant->name}, {"reason", tenant->policy->disabled_reason}});
  const auto suspend = [this](CoreScope& inner, const LiveJobRef& job) {
    LeaveQueue(inner, job);
    if (job->attempt != nullptr && job->phase < LiveJob::Phase::kStoring) {
      job->attempt->broken_off = true;
    }
  };
  EachLive(scope, tenant, suspend,
           [this, tenant, why = RefuseTenant(*tenant)](CoreScope& inner) { StopRuns(inner, tenant, why); });
}

// All of the tenant's, of jobs too, and then its executor.
void Core::StopRuns(CoreScope& scope, const TenantRef& tenant, const Status& why) {
  std::vector<std::shared_ptr<RunOp>> running;  // Stopping one takes it out of ops_.
  for (const auto& [id, op] : ops_) {
    if (op->tenant == tenant) {
      running.push_back(op);
    }
  }
  InSlices(scope, tenant, [this, tenant, why, running = std::move(running)](CoreScope& inner) mutable {
    for (int i = 0; i < kJobsAtOnce && !running.empty(); ++i) {
      const std::shared_ptr<RunOp> op = std::move(running.back());
      running.pop_back();
      StopRun(inner, op, op->job_id.empty() ? why : Unavailable(Message(why)));
    }
    if (running.empty()) {
      KillExecutor(inner, *tenant, Message(why));
    }
    return running.empty();
  });
}

Status Core::Usage(std::string_view name, v1::GetUsageResponse* response) {
  CoreScope scope(*this);
  const auto found = tenants_.find(std::string(name));
  Tenant* tenant = found == tenants_.end() ? nullptr : found->second.get();
  if (tenant != nullptr) {
    SettleDeviceTime(*tenant);
  }
  const TenantPolicyRef policy = tenant != nullptr ? tenant->policy : options_.policies->Find(name, *config_);
  if (policy == nullptr) {
    return RefusalOf(name, nullptr);
  }
  response->set_tenant(std::string(name));
  response->set_weight(policy->weight);
  response->set_dominant_share(tenant == nullptr ? 0 : share_.DominantShare(tenant->key, options_.clock->Now()));
  const Time now = options_.clock->Now();
  for (const scheduler::ResourceFacts& facts : scheduler::Resources()) {
    scheduler::Ledger::Balance balance;
    balance.limit = policy->limits[static_cast<size_t>(facts.resource)];
    if (tenant != nullptr) {
      balance = ledger_.BalanceOf(tenant->key, facts.resource, now);
    } else if (facts.period.count() > 0) {
      balance.available = balance.limit;
    }
    v1::ResourceUsage& usage = *response->add_resources();
    usage.set_resource(std::string(facts.name));
    usage.set_unit(UnitOf(facts.unit));
    usage.set_used(balance.used);
    usage.set_limit(balance.limit);
    usage.set_period_ns(static_cast<uint64_t>(facts.period.count()));
    usage.set_available(balance.available);
    usage.set_refused(balance.refused);
    usage.set_peak(balance.peak);
  }
  return absl::OkStatus();
}

// Modules and documents that no prepared graph uses go first.
void Core::MakeRoom(CoreScope& scope, Tenant& tenant, uint64_t host_bytes) {
  while (tenant.account.Room(Resource::kHostBytes) < host_bytes &&
         (tenant.modules.DropOne() || tenant.graphs.DropOne() || DropOnePreparation(scope, tenant))) {
  }
}

StatusOr<scheduler::Lease> Core::HoldHostBytes(Tenant& tenant, uint64_t bytes) {
  CoreScope scope(*this);
  MakeRoom(scope, tenant, bytes);
  scheduler::Lease lease;
  if (const auto refusal = tenant.account.Take(Resource::kHostBytes, bytes, &lease)) {
    const Status refused = ToStatus(*refusal);
    options_.observer->OnRejected(tenant.name, "upload", refused);
    return refused;
  }
  return lease;
}

Outcome Core::AdmitCompile(const Tenant& tenant, const Preparation& preparation) {
  if (preparation.validated && preparation.ready_epoch == tenant.executor.epoch) {
    return {};
  }
  const auto refusal = ledger_.Spend(tenant.key, Resource::kCompileTime, 0, options_.clock->Now());
  return refusal.has_value() ? QuotaOutcome(*refusal) : Outcome();
}

Outcome Core::PayForRun(CoreScope& scope, RunOp& op) {
  Tenant& tenant = *op.tenant;
  if (const auto refusal = ledger_.Spend(tenant.key, Resource::kDeviceTime, 0, options_.clock->Now())) {
    return QuotaOutcome(*refusal);
  }
  uint64_t bytes = 0;
  for (const InputTensor& input : op.input.inputs) {
    bytes += input.bytes.size();
  }
  if (bytes == 0) {
    return {};
  }
  MakeRoom(scope, tenant, bytes);
  const auto refusal = tenant.account.Take(Resource::kHostBytes, bytes, &op.host_bytes);
  return refusal.has_value() ? QuotaOutcome(*refusal) : Outcome();
}

void Core::ChargeDeviceTime(Tenant& tenant, Duration held) {
  ledger_.Charge(tenant.key, Resource::kDeviceTime, static_cast<uint64_t>(std::max<int64_t>(0, held.count())),
                 options_.clock->Now());
}

void Core::ChargeCompileTime(Tenant& tenant, uint64_t said_ns, Duration wall) {
  const uint64_t threads = std::max<uint64_t>(1, options_.cpu_threads);
  const auto most = static_cast<uint64_t>(std::max<int64_t>(0, wall.count()));
  const uint64_t bound = most > UINT64_MAX / threads ? UINT64_MAX : most * threads;
  ledger_.Charge(tenant.key, Resource::kCompileTime, std::min(said_ns, bound), options_.clock->Now());
}

void Core::SetDeviceBytes(Tenant& tenant, uint64_t epoch, uint64_t bytes) {
  ExecutorSlot& slot = tenant.executor;
  if (slot.epoch != epoch || slot.state != ExecutorSlot::State::kUp) {
    return;
  }
  if (slot.device_bytes.amount() == 0) {
    slot.device_bytes = tenant.account.TakeAnyway(Resource::kDeviceBytes, bytes);
  } else {
    slot.device_bytes.SetAnyway(bytes);
  }
}

}  // namespace hpvm
