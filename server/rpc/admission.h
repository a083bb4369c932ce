// SPDX-License-Identifier: Apache-2.0
// Which calls of Run are taken in when more come than can be carried out: early, cheaply, and without a queue that only
// makes every answer late.
//
// Two limits. Bytes: requests in progress are in memory, and their sum is bounded for the daemon and for each tenant.
// Messages of other calls count among them, too (Hold): those that wait in a stream in either direction, and requests
// that are answered later. A tenant may hold at most twice what stays free: so however many take all they may,
// something is free for those who hold less, and the newest requests of the heaviest are refused first.
//
// Waiting: a tenant may always have `calls_always` in progress; beyond that only as many as it got done in the last
// moments would be done within `wait_max`. How fast that is, is measured only while it matters, so a burst after
// silence is taken in first and measured then. Jobs have exact limits of their own (jobs.queued_*), in the core.
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
  // One tenant leaves room for the others.
  uint64_t bytes_per_tenant_max = 128 * limits::kMiB;
  // Clients with a call each, however slow their graphs are.
  uint32_t calls_always = 128;
  // Longer than this nobody should wait for a turn without having been told; and after an overload, about how long it
  // takes until new calls find nobody before them.
  Duration wait_max = std::chrono::seconds(2);
};

// Any thread.
class Admission {
 public:
  // Gives back what was taken when it is destroyed. Outlived by the Admission.
  class Ticket {
   public:
    Ticket() = default;
    Ticket(Ticket&& other) noexcept { *this = std::move(other); }
    Ticket& operator=(Ticket&& other) noexcept;
    ~Ticket() { Release(); }
    void Release();
    // The call has been answered: it does not count any more, but its request is still in memory.
    void EndCall();

   private:
    friend class Admission;
    Admission* admission_ = nullptr;
    void* tenant_ = nullptr;  // A Tenant of the Admission.
    uint64_t bytes_ = 0;
    bool in_progress_ = false;
  };

  Admission(const AdmissionLimits& limits, const Clock& clock) : limits_(limits), clock_(clock) {}

  // OK with a ticket, or kResourceExhausted, retryable, with a time to wait.
  Outcome Admit(std::string_view tenant, uint64_t bytes, Ticket* ticket);

  // Bytes in memory that are no call of their own, as Admit otherwise.
  Outcome Hold(std::string_view tenant, uint64_t bytes, Ticket* ticket);
  // For bytes that are in memory already: they count, even beyond the limits.
  Ticket HoldAnyway(std::string_view tenant, uint64_t bytes);
  // Whether Hold would take so many.
  bool HasRoom(std::string_view tenant, uint64_t bytes) const;

  // Of all tenants, now.
  uint64_t calls() const;
  uint64_t bytes() const;

 private:
  struct Tenant {
    std::string name;
    uint32_t tickets = 0;  // Not released.
    uint32_t calls = 0;    // Of them, not answered.
    uint64_t bytes = 0;
    // While `busy`: since calls_always were in progress, and until half of that.
    bool busy = false;
    Time window_start{0};
    uint64_t window_ended = 0;
    // Calls that ended in a second, smoothed; below 0: not measured yet.
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
  std::unordered_map<std::string, Tenant> tenants_;  // Those with calls in progress.
  uint64_t calls_ = 0, bytes_ = 0;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_RPC_ADMISSION_H_
