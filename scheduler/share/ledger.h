// SPDX-License-Identifier: Apache-2.0
// Ledger keeps exact accounts of the resources that tenants hold and spend; a resource is entered before it is taken,
// and refused beyond the quota.
//
// A held amount is a Lease, which returns the amount on destruction; the sum of a tenant's leases is its balance at
// every moment (CheckSums verifies it, and the simulation calls it after every event). Spent resources are earned
// evenly and may be saved up to a bound, exactly, to the nanosecond; spending beyond the saved amount makes a debt,
// which later earnings pay before anything more may begin.
//
// No clock and no threads of its own. Thread-safe: one mutex, taken last, so that leases may end wherever the objects
// end that they pay for.
#ifndef HPVMD_SCHEDULER_SHARE_LEDGER_H_
#define HPVMD_SCHEDULER_SHARE_LEDGER_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "scheduler/share/resource.h"

namespace hpvm::scheduler {

using TenantKey = uint64_t;

// Details of a refusal. `retry_after`: when the missing amount of a spent resource is earned; 0 for held resources.
struct QuotaRefusal {
  Resource resource = Resource::kDeviceTime;
  uint64_t used = 0, wanted = 0, limit = 0;
  Duration retry_after{0};
  // The limit is that of all tenants together, not the tenant's quota; `used` is then also the total.
  bool of_all = false;
};
// Returns kResourceExhausted: "The tenant's quota of device-bytes (4096) does not allow 2048 more: 3000 are in use."
// "The tenant's quota of requests (10 a second) is spent: more is available in 0.1 s."
Status ToStatus(const QuotaRefusal& refusal);

struct LedgerAccount;
struct LedgerBooks;

// Lease is the amount of one resource that one tenant holds. Movable; may outlive the ledger, since objects may outlive
// the daemon's core. Used by one thread at a time.
class Lease {
 public:
  Lease() = default;
  Lease(Lease&& other) noexcept { *this = std::move(other); }
  Lease& operator=(Lease&& other) noexcept;
  ~Lease() { Release(); }
  void Release();
  uint64_t amount() const { return amount_; }
  // Returns a part of the amount.
  void ShrinkTo(uint64_t amount);
  // Sets the amount even beyond the limit, because it is already in use. Does nothing for a lease that was never given.
  void SetAnyway(uint64_t amount);
  // Moves a part, at most all of it, to the returned lease; the balance does not change.
  Lease Split(uint64_t amount);
  // Takes over the other lease, of the same tenant and resource, without a change of the balance in between. An empty
  // lease becomes the other.
  void Merge(Lease other);

 private:
  friend class Ledger;
  void Unlink();
  void LinkInto(LedgerAccount* account);

  // Changed only under the books' mutex; shared, so that the books live as long as the last lease.
  std::shared_ptr<LedgerBooks> books_;
  LedgerAccount* account_ = nullptr;
  Lease* next_ = nullptr;
  Lease* previous_ = nullptr;
  uint64_t amount_ = 0;
};

class Ledger {
 public:
  struct Balance {
    uint64_t used = 0;  // Held now, or spent since the tenant was created.
    uint64_t peak = 0;  // Largest amount held; equals `used` for spent resources.
    uint64_t refused = 0;
    uint64_t limit = 0;
    uint64_t available = 0;  // For spent resources: amount available now; 0 without a limit.
  };

  // The part of a spent resource's account that outlives the process.
  struct Spent {
    uint64_t used = 0;
    // Amount to be earned until savings are full, debts included; 0 without a limit.
    uint64_t missing = 0;
  };

  Ledger();
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  // The tenant begins with full savings. An existing tenant gets the new limits.
  void AddTenant(TenantKey tenant, const ResourceLimits& limits, Time now);
  // Held amounts beyond a smaller limit stay; the bound on savings shrinks at once; a debt stays.
  void SetLimits(TenantKey tenant, const ResourceLimits& limits, Time now);
  // Limits the total held by all tenants together; 0: no limit. While there are several tenants, each may hold at most
  // twice the amount that it leaves free, so that something remains for tenants that hold less. Amounts held beyond the
  // limit stay.
  void SetTotal(Resource resource, uint64_t limit);
  uint64_t TotalOf(Resource resource) const;

  // Takes a held resource. When refused, the refusal is counted and `lease` is unchanged; otherwise its earlier amount
  // is returned. Everything is refused for unknown tenants.
  std::optional<QuotaRefusal> Take(TenantKey tenant, Resource resource, uint64_t amount, Lease* lease);
  // Changes the amount of the same lease, as Take; shrinking never fails.
  std::optional<QuotaRefusal> Resize(Lease* lease, uint64_t amount);
  // Takes an amount that is already in use (restored jobs, outputs of a run that has ended), even beyond the limit.
  // Returns an empty lease for unknown tenants.
  Lease TakeAnyway(TenantKey tenant, Resource resource, uint64_t amount);

  // Spends a resource; refused when less than `amount` is available (for 0: when there is a debt). An amount larger
  // than the bound on savings is allowed when savings are full, and makes a debt.
  std::optional<QuotaRefusal> Spend(TenantKey tenant, Resource resource, uint64_t amount, Time now);
  // Like Spend of 0 followed by Charge of `amount`: for amounts that are known only once they are used.
  std::optional<QuotaRefusal> SpendAll(TenantKey tenant, Resource resource, uint64_t amount, Time now);
  // Records spending after the fact; may make a debt.
  void Charge(TenantKey tenant, Resource resource, uint64_t amount, Time now);
  // Returns how much more Take would allow.
  uint64_t RoomOf(TenantKey tenant, Resource resource) const;
  // Returns how long from now a Spend of 0 would be refused; 0 when it would not. Counts nothing.
  Duration DebtFor(TenantKey tenant, Resource resource, Time now) const;

  Balance BalanceOf(TenantKey tenant, Resource resource, Time now) const;
  Spent SpentOf(TenantKey tenant, Resource resource, Time now) const;
  // Restores what a newly added tenant had spent `ago`; it has earned since. Not for held resources.
  void RestoreSpent(TenantKey tenant, Resource resource, const Spent& spent, Duration ago, Time now);
  // Returns OK when balances equal the sums of live leases, otherwise a sentence. Linear in leases: for tests and
  // simulation.
  Status CheckSums() const;

 private:
  const std::shared_ptr<LedgerBooks> books_;
};

// One tenant's accounts, for objects that pay for themselves. Without a ledger nothing is counted or refused.
struct Account {
  Ledger* ledger = nullptr;  // Borrowed; outlives this object.
  TenantKey tenant = 0;

  std::optional<QuotaRefusal> Take(Resource resource, uint64_t amount, Lease* lease) const {
    return ledger == nullptr ? std::nullopt : ledger->Take(tenant, resource, amount, lease);
  }
  Lease TakeAnyway(Resource resource, uint64_t amount) const {
    return ledger == nullptr ? Lease() : ledger->TakeAnyway(tenant, resource, amount);
  }
  uint64_t Room(Resource resource) const { return ledger == nullptr ? ~uint64_t{0} : ledger->RoomOf(tenant, resource); }
  uint64_t Used(Resource resource) const {
    return ledger == nullptr ? 0 : ledger->BalanceOf(tenant, resource, Time{0}).used;
  }
};

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_SHARE_LEDGER_H_
