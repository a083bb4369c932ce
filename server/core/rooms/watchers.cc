// SPDX-License-Identifier: Apache-2.0
#include "server/core/rooms/watchers.h"

#include <utility>
#include <vector>

#include "server/core/rooms/tenants.h"

namespace hpvm::server {
namespace {

// Number of watchers visited under one hold of the mutex.
constexpr size_t kToldAtOnce = 16;

}  // namespace

Status Watchers::TakePlace(Tenant& tenant) {
  if (count_ >= config_->jobs_watchers_max) {
    return ResourceExhausted("The server has " + std::to_string(config_->jobs_watchers_max) +
                             " watching calls, which is the limit (jobs.watchers_max).");
  }
  if (tenant.watchers >= config_->jobs_watchers_per_tenant_max) {
    return ResourceExhausted("The tenant has " + std::to_string(config_->jobs_watchers_per_tenant_max) +
                             " watching calls, which is the limit (jobs.watchers_per_tenant_max).");
  }
  ++count_;
  ++tenant.watchers;
  return absl::OkStatus();
}

void Watchers::Unregister(Tenant& tenant) {
  --count_;
  --tenant.watchers;
}

StatusOr<Watchers::Registration> Watchers::Add(const TenantRef& tenant, News news, Wake wake) {
  CoreScope scope(monitor_);
  HPVMD_RETURN_IF_ERROR(TakePlace(*tenant));
  const Registration place{next_key_++,
                           options_.clock->Now() + std::chrono::milliseconds(config_->limits_connection_age_ms)};
  Watching& watching = tenants_[tenant->name];
  watching.tenant = tenant;
  Watcher& watcher = watching.watchers[place.key];
  watcher.timer = monitor_.AddTimer(scope, place.until, [wake](CoreScope& inner) { inner.Defer(wake); });
  watcher.news = news;
  watcher.wake = std::move(wake);
  return place;
}

void Watchers::Remove(const TenantRef& tenant, uint64_t key) {
  CoreScope scope(monitor_);
  Watching& watching = tenants_.at(tenant->name);
  monitor_.DropTimer(watching.watchers.at(key).timer);
  watching.watchers.erase(key);
  Unregister(*tenant);
  if (watching.watchers.empty() && !watching.is_telling) {
    tenants_.erase(tenant->name);
  }
}

Status Watchers::Refusal(const Tenant& tenant) {
  CoreScope scope(monitor_);
  if (shutdown_.stopped) {
    return Unavailable("The server is stopping; watch again when it has started again.");
  }
  return Tenants::RefuseTenant(tenant);
}

void Watchers::InTurn(const TenantRef& tenant, FairQueue::Work work) {
  CoreScope scope(monitor_);
  monitor_.Read(scope, tenant->name, std::move(work));
}

void Watchers::Tell(CoreScope& scope, const TenantRef& tenant, News news) {
  const auto found = tenants_.find(tenant->name);
  if (found == tenants_.end()) {
    return;
  }
  Watching& watching = found->second;
  watching.due |= news;
  if (!std::exchange(watching.is_telling, true)) {
    monitor_.Read(scope, tenant->name, [this, tenant] { return TellSome(tenant); });
  }
}

void Watchers::TellAll(CoreScope& scope, News news) {
  for (const auto& [name, watching] : tenants_) {
    Tell(scope, watching.tenant, news);
  }
}

FairQueue::Step Watchers::TellSome(const TenantRef& tenant) {
  std::vector<Wake> wakes;
  {
    CoreScope scope(monitor_);
    Watching& watching = tenants_.at(tenant->name);
    if (watching.next == 0) {  // All watchers have been woken for the last news.
      watching.telling = std::exchange(watching.due, 0);
      watching.next = 1;
    }
    if (watching.telling == 0 || watching.watchers.empty()) {
      watching.next = 0;
      watching.is_telling = false;
      if (watching.watchers.empty()) {
        tenants_.erase(tenant->name);
      }
      return FairQueue::Step::kDone;
    }
    auto at = watching.watchers.lower_bound(watching.next);
    for (size_t i = 0; i < kToldAtOnce && at != watching.watchers.end(); ++i, ++at) {
      if ((at->second.news & watching.telling) != 0) {
        wakes.push_back(at->second.wake);
      }
    }
    watching.next = at == watching.watchers.end() ? 0 : at->first;
  }
  for (const Wake& wake : wakes) {
    wake();
  }
  return FairQueue::Step::kAgain;
}

}  // namespace hpvm::server
