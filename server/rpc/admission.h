// SPDX-License-Identifier: Apache-2.0
// Admission decides which calls of Run are accepted when more come than can be processed: early, cheaply, and without
// a queue that only makes every response late.
//
// Two limits. Bytes: requests in progress are in memory, and their sum is bounded for the daemon and for each tenant.
// Messages of other calls count too (Hold): those that wait in a stream in either direction, and requests that are
// answered later. A tenant may hold at most twice what stays free: so even when many tenants hold their maximum, some
// room is free for tenants that hold less, and the newest requests of the heaviest users are refused first.
//
// Waiting: a tenant may always have `calls_always` in progress; beyond that only as many as, at its recent rate,
// would finish within `wait_max`. The rate is measured only while it matters, so a burst after silence is accepted
// first and measured then. Jobs have exact limits of their own (jobs.queued_*), in the core.
#ifndef HPVMD_SERVER_RPC_ADMISSION_H_
#define HPVMD_SERVER_RPC_ADMISSION_H_

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/clock.h"
#include "base/limits.h"
#include "server/core/state/outcome.h"

namespace hpvm::server {

struct AdmissionLimits {
  // 60 messages of the largest size, or a million small ones.
  uint64_t bytes_max = 256 * limits::kMiB;
  // Each tenant leaves room for the others.
  uint64_t bytes_per_tenant_max = 128 * limits::kMiB;
  // Enough for clients with one call each, however slow their graphs are.
  uint32_t calls_always = 128;
  // Longest time that an accepted call should wait for its turn; and after an overload, about how long it takes until
  // new calls find no queue.
  Duration wait_max = std::chrono::seconds(2);
};

// Thread-safe.
class Admission {
 public:
  // Ticket returns what was taken when it is destroyed. The Admission must outlive it.
  class Ticket {
   public:
    Ticket() = default;
    Ticket(Ticket&& other) noexcept { *this = std::move(other); }
    Ticket& operator=(Ticket&& other) noexcept;
    ~Ticket() { Release(); }
    void Release();
    // Called when the call has been answered: it no longer counts as a call, but its request is still in memory.
    void EndCall();

   private:
    friend class Admission;
    Admission* admission_ = nullptr;
    void* tenant_ = nullptr;  // A Tenant of the Admission.
    uint64_t bytes_ = 0;
    bool in_progress_ = false;
  };

  Admission(const AdmissionLimits& limits, const Clock& clock) : limits_(limits), clock_(clock) {}

  // Returns OK with a ticket, or kResourceExhausted, retryable, with a delay.
  Outcome Admit(std::string_view tenant, uint64_t bytes, Ticket* ticket);

  // Like Admit, for bytes in memory that are not a call.
  Outcome Hold(std::string_view tenant, uint64_t bytes, Ticket* ticket);
  // For bytes that are in memory already: they count, even beyond the limits.
  Ticket HoldAnyway(std::string_view tenant, uint64_t bytes);
  // Returns true when Hold would accept so many bytes.
  bool HasRoom(std::string_view tenant, uint64_t bytes) const;

  // Totals of all tenants at present.
  uint64_t calls() const;
  uint64_t bytes() const;

 private:
  struct Tenant {
    std::string name;
    uint32_t tickets = 0;  // Not released.
    uint32_t calls = 0;    // Those not answered.
    uint64_t bytes = 0;
    // While `busy`, which lasts from when calls_always calls are in progress until half of that.
    bool busy = false;
    Time window_start{0};
    uint64_t window_ended = 0;
    // Calls that ended per second, smoothed; negative when not measured yet.
    double pace = -1;
  };

  Tenant& Find(std::string_view name);
  void ForgetIdle(Tenant& tenant);
  Ticket Issue(Tenant& tenant, uint64_t bytes);
  void TurnWindow(Tenant& tenant, Time now) const;
  Outcome CheckBytes(const Tenant& tenant, uint64_t bytes) const;
  Outcome CheckCalls(Tenant& tenant);
  void EndCall(Tenant& tenant);
  void Release(Tenant& tenant, uint64_t bytes);

  const AdmissionLimits limits_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Tenant> tenants_;  // Tenants with calls in progress.
  uint64_t calls_ = 0, bytes_ = 0;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_RPC_ADMISSION_H_
