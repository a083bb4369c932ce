// SPDX-License-Identifier: Apache-2.0
// Watchers holds the watching calls, and wakes them when there is news.
//
// A change is recorded only as the fact that there is news, which costs as much for a thousand watchers as for one.
// Watchers are woken a few at a time in their own tenant's turns (JobStore::PostRead), and each then looks by itself:
// news that comes while they are being woken is reported once, and no caller waits for a watcher, or for another
// tenant's.
#ifndef HPVMD_SERVER_CORE_ROOMS_WATCHERS_H_
#define HPVMD_SERVER_CORE_ROOMS_WATCHERS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "base/fair_queue.h"
#include "server/core/state/core_context.h"

namespace hpvm::server {

class Watchers : private CoreRoom {
 public:
  // Bit flags.
  enum News : uint8_t { kJobs = 1, kDevices = 2, kAll = 3 };
  // Called without the mutex, from any thread, perhaps when there is no news; must not take long.
  using Wake = std::function<void()>;

  explicit Watchers(CoreContext& context) : CoreRoom(context) {}

  // The registration of a watcher.
  struct Registration {
    uint64_t key = 0;  // For Remove.
    // Time at which the watcher is woken to end, as a connection of its age would (limits.connection_age_ms).
    Time until{0};
  };

  // --- For clients; these lock the mutex ---
  // Returns kResourceExhausted at jobs.watchers_max and jobs.watchers_per_tenant_max.
  StatusOr<Registration> Add(const TenantRef& tenant, News news, Wake wake);
  void Remove(const TenantRef& tenant, uint64_t key);
  // Returns why the tenant's watchers must end, or OK.
  Status Refusal(const Tenant& tenant);
  // Does the work in the tenant's turn; at once when the server has stopped.
  void InTurn(const TenantRef& tenant, FairQueue::Work work);

  // --- For other rooms; the caller holds the mutex ---
  // Takes one of the registrations of jobs.watchers_max for a call that is woken by other means.
  Status TakePlace(Tenant& tenant);
  void Unregister(Tenant& tenant);
  size_t count() const { return count_; }
  void Tell(CoreScope& scope, const TenantRef& tenant, News news);
  // Tells all tenants.
  void TellAll(CoreScope& scope, News news);

 private:
  struct Watcher {
    News news = kJobs;
    Wake wake;
    Monitor::TimerKey timer{kNever, 0};
  };
  struct Watching {
    TenantRef tenant;
    std::map<uint64_t, Watcher> watchers;  // Keyed by the watcher's key.
    uint8_t due = 0;                       // News for which no round of waking has begun.
    uint8_t telling = 0;  // News of the round in progress; watchers with keys from `next` on have not been woken yet.
    uint64_t next = 0;
    bool is_telling = false;
  };
  FairQueue::Step TellSome(const TenantRef& tenant);

  std::map<std::string, Watching> tenants_;  // Tenants that have watchers, or whose watchers are being woken, by name.
  size_t count_ = 0;                         // Number of registrations.
  uint64_t next_key_ = 1;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_ROOMS_WATCHERS_H_
