// SPDX-License-Identifier: Apache-2.0
// Who watches: the places that there are, and news for those who have one.
//
// What happens says only that there is news, which costs as much for a thousand watchers as for one. Watchers are told
// a few at a time in their own tenant's turns (JobStore::PostRead), and each then looks by itself: news that comes
// while they are being told is told once, and nobody waits for a watcher, or for another tenant's.
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
  // Bits.
  enum News : uint8_t { kJobs = 1, kDevices = 2, kAll = 3 };
  // Called without the mutex, from any thread, also when there is nothing new; must not take long.
  using Wake = std::function<void()>;

  explicit Watchers(CoreContext& context) : CoreRoom(context) {}

  // A watcher's.
  struct Place {
    uint64_t key = 0;  // For Remove.
    Time until{0};     // Then it is woken to end, as a connection of its age would (limits.connection_age_ms).
  };

  // --- For clients; these lock the mutex ---
  // kResourceExhausted at jobs.watchers_max and jobs.watchers_per_tenant_max.
  StatusOr<Place> Add(const TenantRef& tenant, News news, Wake wake);
  void Remove(const TenantRef& tenant, uint64_t key);
  // Why the tenant's watchers are to end, if they are.
  Status Refusal(const Tenant& tenant);
  // Does it in the tenant's turn, and after the server has stopped at once.
  void InTurn(const TenantRef& tenant, FairQueue::Work work);

  // --- For other rooms, with the mutex ---
  // A place among those of jobs.watchers_max, for calls that are woken otherwise.
  Status TakePlace(Tenant& tenant);
  void LeavePlace(Tenant& tenant);
  size_t count() const { return count_; }
  void Tell(CoreScope& scope, const TenantRef& tenant, News news);
  // All tenants.
  void TellAll(CoreScope& scope, News news);

 private:
  struct Watcher {
    News news = kJobs;
    Wake wake;
    Monitor::TimerKey timer{kNever, 0};
  };
  struct Watching {
    TenantRef tenant;
    std::map<uint64_t, Watcher> watchers;  // By key.
    uint8_t due = 0;                       // News that nobody is being told yet.
    uint8_t telling = 0;                   // That those are being told whose keys are `next` and larger.
    uint64_t next = 0;
    bool is_telling = false;
  };
  FairQueue::Step TellSome(const TenantRef& tenant);

  std::map<std::string, Watching> tenants_;  // By name: who has any, or is being told.
  size_t count_ = 0;                         // Of places.
  uint64_t next_key_ = 1;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_ROOMS_WATCHERS_H_
