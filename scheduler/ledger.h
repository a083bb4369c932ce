// SPDX-License-Identifier: Apache-2.0
// Exact accounts of what tenants hold and spend: taken before the resource is, refused beyond the quota.
//
// What is held is a Lease, which gives back by itself what it holds; the sum of a tenant's leases is its balance at
// every moment (CheckSums says so, and the simulation asks after every event). What is spent is a token bucket:
// spending beyond what is there makes a debt, which later earnings pay before anything more is begun.
//
// Pure: no clock, no threads (the owner's mutex guards it, and that of its leases).
#ifndef HPVMD_SCHEDULER_LEDGER_H_
#define HPVMD_SCHEDULER_LEDGER_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "scheduler/resource.h"

namespace hpvm::scheduler {

using TenantKey = uint64_t;

// What a refusal was for. `retry_after`: when what is spent has been earned; 0 for what is held.
struct QuotaRefusal {
  Resource resource = Resource::kDeviceTime;
  uint64_t used = 0, wanted = 0, limit = 0;
  Duration retry_after{0};
};
// "The tenant's quota of device-bytes (4096) does not allow 2048 more: 3000 are in use."
Status ToStatus(const QuotaRefusal& refusal);

class Ledger;

// What is held of one resource by one tenant. Movable; outlived by the ledger.
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

 private:
  friend class Ledger;
  Ledger* ledger_ = nullptr;
  TenantKey tenant_ = 0;
  Resource resource_ = Resource::kHostBytes;
  uint64_t amount_ = 0;
};

class Ledger {
 public:
  struct Balance {
    uint64_t used = 0;        // Held now, or spent since the tenant came.
    uint64_t peak = 0;
    uint64_t refused = 0;
    uint64_t limit = 0;
    uint64_t available = 0;   // Of what is spent, now.
  };

  void AddTenant(TenantKey tenant, const ResourceLimits& limits, Time now);
  // What is held beyond a smaller limit stays; what may be saved shrinks at once.
  void SetLimits(TenantKey tenant, const ResourceLimits& limits, Time now);
  // Its leases may end later.
  void RemoveTenant(TenantKey tenant);

  // Held resources. The refusal is counted.
  std::optional<QuotaRefusal> Take(TenantKey tenant, Resource resource, uint64_t amount, Lease* lease);
  // What exists already (restored jobs, outputs of a run that has ended): taken even beyond the limit.
  Lease TakeAnyway(TenantKey tenant, Resource resource, uint64_t amount);

  // Spent resources: refused when less than `amount` is there (0: when there is debt).
  std::optional<QuotaRefusal> Spend(TenantKey tenant, Resource resource, uint64_t amount, Time now);
  // After the fact: may make a debt.
  void Charge(TenantKey tenant, Resource resource, uint64_t amount, Time now);

  Balance BalanceOf(TenantKey tenant, Resource resource, Time now) const;
  // Whether balances are the sums of live leases; a sentence otherwise. Linear in leases: for tests and simulation.
  Status CheckSums() const;

 private:
  friend class Lease;
  struct Account {
    uint64_t used = 0, peak = 0, refused = 0, limit = 0;
    // Spent resources: what is saved, negative in debt, as of `since`.
    int64_t saved = 0;
    Time since{0};
  };
  struct Tenant {
    std::array<Account, kResourceCount> accounts;
    bool removed = false;
    uint64_t leases = 0;
  };
  std::map<TenantKey, Tenant> tenants_;
  std::map<std::pair<TenantKey, Resource>, std::map<const Lease*, uint64_t>> leases_;
};

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_LEDGER_H_
