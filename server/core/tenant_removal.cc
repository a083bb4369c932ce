// SPDX-License-Identifier: Apache-2.0
#include "server/core/tenant_removal.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "base/failpoint.h"
#include "server/process/log.h"

namespace hpvm::server {
namespace {

constexpr Duration kSoon = std::chrono::milliseconds(50), kLater = std::chrono::seconds(2);
// Number of jobs removed at a time; other writes wait no longer than these take.
constexpr size_t kJobsMax = 256;
// Looks at a tenant that another host deleted and that was made anew since: what is idle goes 64 pieces at a time.
constexpr int kLooksMax = 20;

}  // namespace

void TenantRemoval::Remove(const std::string& name, Done done) {
  CoreScope scope(monitor_);
  if (names_.insert(name).second) {
    Schedule(scope, std::make_shared<Removal>(Removal{name, std::move(done), nullptr}), Duration{0});
  }
}

void TenantRemoval::Follow(const std::string& name, std::function<bool()> is_gone) {
  CoreScope scope(monitor_);
  Schedule(scope, std::make_shared<Removal>(Removal{name, nullptr, std::move(is_gone)}), Duration{0});
}

void TenantRemoval::Schedule(CoreScope& scope, const RemovalRef& removal, Duration after) {
  monitor_.AddTimer(scope, options_.clock->Now() + after, [this, removal](CoreScope&) {
    if (shutdown_.closed) {
      return;
    }
    options_.jobs->Post(removal->name, [this, removal] {
      Look(removal);
      return FairQueue::Step::kDone;
    });
  });
}

void TenantRemoval::Again(const RemovalRef& removal, Duration after) {
  CoreScope scope(monitor_);
  Schedule(scope, removal, after);
}

// Called in turn with the tenant's other work on the store's threads, without the mutex.
void TenantRemoval::Look(const RemovalRef& removal) {
  const bool is_empty = GiveUp(*removal);
  if (removal->done == nullptr) {
    if (!is_empty && (++removal->looks < kLooksMax || removal->is_gone())) {
      Again(removal, kSoon);
    }
    return;
  }
  StatusOr<std::vector<FinishedJob>> jobs = options_.jobs->database().ListFinished(removal->name, kJobsMax);
  if (const Status listed = HPVMD_FAILPOINT("core.tenant_removal.list"); !listed.ok()) {
    jobs = listed;
  }
  if (!jobs.ok()) {
    LogWarning("The jobs of a tenant that is being deleted cannot be listed",
               {{"tenant", removal->name}, {"error", Message(jobs.status())}});
    Again(removal, kLater);
  } else if (!jobs->empty()) {
    retention_.Forget(*jobs);
    Again(removal, kSoon);
  } else if (!is_empty) {
    Again(removal, kSoon);
  } else {
    options_.jobs->Write(ForgetKeys{INT64_MAX, removal->name},
                         [this, removal](const WriteResult& result) { Finish(removal, result.status); });
  }
}

// Returns true when nothing of the tenant is left in memory.
bool TenantRemoval::GiveUp(Removal& removal) {
  CoreScope scope(monitor_);
  const TenantRef tenant = tenants_.FindKnown(removal.name);
  if (tenant == nullptr) {
    return true;
  }
  if (!std::exchange(removal.cancelled, true)) {
    table_.EachLive(scope, tenant, [this](CoreScope& inner, const ExecutionRef& job) {
      lifecycle_.AskCancel(inner, job, [](CoreScope&, const Status&) {});
    });
  }
  return graphs_.GiveUp(scope, *tenant) && tenant->jobs.empty();
}

void TenantRemoval::Finish(const RemovalRef& removal, const Status& keys_are_gone) {
  const Status done = keys_are_gone.ok() ? removal->done() : keys_are_gone;
  if (!done.ok()) {
    LogWarning("A tenant could not be deleted yet; the deletion is tried again",
               {{"tenant", removal->name}, {"error", Message(done)}});
    Again(removal, kLater);
    return;
  }
  LogInfo("Tenant deleted", {{"tenant", removal->name}});
  CoreScope scope(monitor_);
  names_.erase(removal->name);
}

}  // namespace hpvm::server
