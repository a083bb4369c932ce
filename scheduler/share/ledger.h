// SPDX-License-Identifier: Apache-2.0
// Exact accounts of what tenants hold and spend: taken before the resource is, refused beyond the quota.
//
// What is held is a Lease, which gives back by itself what it holds; the sum of a tenant's leases is its balance at
// every moment (CheckSums says so, and the simulation asks after every event). What is spent is earned evenly and may
// be saved up to a bound, exactly, to the nanosecond; spending beyond what is there makes a debt, which later earnings
// pay before anything more is begun.
//
// No clock and no threads of its own. Any thread may call: one mutex, taken last, so that leases may end wherever the
// objects do that they pay for.
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

// What a refusal was for. `retry_after`: when what is spent has been earned; 0 for what is held.
struct QuotaRefusal {
  Resource resource = Resource::kDeviceTime;
  uint64_t used = 0, wanted = 0, limit = 0;
  Duration retry_after{0};
  bool of_all = false;  // Not the tenant's quota: what all of them may hold together, which `used` is of, too.
};
// kResourceExhausted: "The tenant's quota of device-bytes (4096) does not allow 2048 more: 3000 are in use."
// "The tenant's quota of requests (10 a second) is spent: more is earned in 0.1 s."
Status ToStatus(const QuotaRefusal& refusal);

struct LedgerAccount;
struct LedgerBooks;

// What is held of one resource by one tenant. Movable; may outlive the ledger, since objects may outlive the daemon's
// core. One thread at a time.
class Lease {
 public:
  Lease() = default;
  Lease(Lease&& other) noexcept { *this = std::move(other); }
  Lease& operator=(Lease&& other) noexcept;
  ~Lease() { Release(); }
  void Release();
  uint64_t amount() const { return amount_; }
  // Gives a part back.
  void ShrinkTo(uint64_t amount);
  // Makes it this much, even beyond the limit: what is so anyhow. Nothing for a lease that was never given.
  void SetAnyway(uint64_t amount);
  // Takes a part over, at most all of it; the balance stays.
  Lease Split(uint64_t amount);
  // Holds also what the other one does, of the same tenant and resource; nothing is given back or taken in between.
  // An empty one becomes the other.
  void Merge(Lease other);

 private:
  friend class Ledger;
  void Unlink();
  void LinkInto(LedgerAccount* account);

  // All changed under the books' mutex; shared, so that these live as long as the last lease.
  std::shared_ptr<LedgerBooks> books_;
  LedgerAccount* account_ = nullptr;
  Lease* next_ = nullptr;
  Lease* previous_ = nullptr;
  uint64_t amount_ = 0;
};

class Ledger {
 public:
  struct Balance {
    uint64_t used = 0;  // Held now, or spent since the tenant came.
    uint64_t peak = 0;  // The most that was held; of what is spent: as `used`.
    uint64_t refused = 0;
    uint64_t limit = 0;
    uint64_t available = 0;  // Of what is spent, now; without a limit 0.
  };

  // The part of a spent resource's account that outlives the process.
  struct Spent {
    uint64_t used = 0;
    uint64_t missing = 0;  // To be earned until as much is saved as may be, debts included; without a limit 0.
  };

  Ledger();
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  // Begins with all saved that may be. A tenant that is there already gets the limits.
  void AddTenant(TenantKey tenant, const ResourceLimits& limits, Time now);
  // What is held beyond a smaller limit stays; what may be saved shrinks at once; a debt stays.
  void SetLimits(TenantKey tenant, const ResourceLimits& limits, Time now);
  // All tenants together may hold so much of a resource; 0: any amount. While there are several, each may hold at most
  // twice of it what it leaves free, so that something is there for who holds less. What is held beyond it stays.
  void SetTotal(Resource resource, uint64_t limit);
  uint64_t TotalOf(Resource resource) const;

  // Held resources. The refusal is counted, and `lease` is then as it was; otherwise what it held before is given
  // back. Of unknown tenants everything is refused.
  std::optional<QuotaRefusal> Take(TenantKey tenant, Resource resource, uint64_t amount, Lease* lease);
  // More for the same lease, as Take; less never fails.
  std::optional<QuotaRefusal> Resize(Lease* lease, uint64_t amount);
  // What exists already (restored jobs, outputs of a run that has ended): taken even beyond the limit. Empty for
  // unknown tenants.
  Lease TakeAnyway(TenantKey tenant, Resource resource, uint64_t amount);

  // Spent resources: refused when less than `amount` is there (0: when there is debt). What is more than can ever be
  // saved is allowed when all is there that can be, and makes a debt.
  std::optional<QuotaRefusal> Spend(TenantKey tenant, Resource resource, uint64_t amount, Time now);
  // As Spend of 0, and then Charge of `amount`: for what is known when it is there already.
  std::optional<QuotaRefusal> SpendAll(TenantKey tenant, Resource resource, uint64_t amount, Time now);
  // After the fact: may make a debt.
  void Charge(TenantKey tenant, Resource resource, uint64_t amount, Time now);
  // How much more Take would allow.
  uint64_t RoomOf(TenantKey tenant, Resource resource) const;
  // How long from now a Spend of 0 would be refused; 0: it would not. Counts nothing.
  Duration DebtFor(TenantKey tenant, Resource resource, Time now) const;

  Balance BalanceOf(TenantKey tenant, Resource resource, Time now) const;
  Spent SpentOf(TenantKey tenant, Resource resource, Time now) const;
  // Tells that a tenant which came just now had spent that so long ago; it has earned since. Not for held resources.
  void RestoreSpent(TenantKey tenant, Resource resource, const Spent& spent, Duration ago, Time now);
  // Whether balances are the sums of live leases; a sentence otherwise. Linear in leases: for tests and simulation.
  Status CheckSums() const;

 private:
  const std::shared_ptr<LedgerBooks> books_;
};

// One tenant's accounts, for objects that pay for themselves. Without a ledger nothing is counted or refused.
struct Account {
  Ledger* ledger = nullptr;  // Borrowed; lives longer.
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
