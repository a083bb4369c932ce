// SPDX-License-Identifier: Apache-2.0
#include "scheduler/share/ledger.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace hpvm::scheduler {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();

ResourceLimits With(Resource resource, uint64_t limit) {
  ResourceLimits limits{};
  limits[static_cast<size_t>(resource)] = limit;
  return limits;
}

// Every resource has a unique name, by which it is found.
TEST(ResourceTest, NamesAreUnique) {
  for (const ResourceFacts& facts : Resources()) {
    EXPECT_EQ(ResourceNamed(facts.name), facts.resource) << facts.name;
    EXPECT_EQ(FactsOf(facts.resource).name, facts.name);
  }
  EXPECT_EQ(ResourceNamed("device-second"), std::nullopt);
}

// One below, at and one above the limit, in one piece and in two.
TEST(LedgerTest, AllowsExactlyTheLimit) {
  for (const uint64_t limit : {uint64_t{1}, uint64_t{2}, uint64_t{4096}, kMost - 1, kMost}) {
    Ledger ledger;
    ledger.AddTenant(1, With(Resource::kHostBytes, limit), Time{0});
    Lease below, rest, more;
    EXPECT_EQ(ledger.Take(1, Resource::kHostBytes, limit - 1, &below), std::nullopt);
    EXPECT_EQ(ledger.Take(1, Resource::kHostBytes, 1, &rest), std::nullopt);
    EXPECT_EQ(ledger.BalanceOf(1, Resource::kHostBytes, Time{0}).used, limit);
    const auto refusal = ledger.Take(1, Resource::kHostBytes, 1, &more);
    ASSERT_TRUE(refusal.has_value());
    EXPECT_EQ(refusal->used, limit);
    EXPECT_EQ(refusal->limit, limit);
    EXPECT_EQ(refusal->retry_after, Duration{0});
    below.Release();
    rest.Release();
    if (limit != kMost) {
      EXPECT_TRUE(ledger.Take(1, Resource::kHostBytes, limit + 1, &more).has_value());
    }
    EXPECT_EQ(ledger.Take(1, Resource::kHostBytes, limit, &more), std::nullopt);
    EXPECT_EQ(ledger.BalanceOf(1, Resource::kHostBytes, Time{0}).refused, limit == kMost ? 1u : 2u);
    EXPECT_TRUE(ledger.CheckSums().ok());
  }
}

// A refused lease keeps its amount; the refusal is counted once, and for that tenant alone.
TEST(LedgerTest, RefusalChangesNothing) {
  Ledger ledger;
  ledger.AddTenant(1, With(Resource::kDiskBytes, 100), Time{0});
  ledger.AddTenant(2, With(Resource::kDiskBytes, 100), Time{0});
  Lease lease;
  ASSERT_EQ(ledger.Take(1, Resource::kDiskBytes, 60, &lease), std::nullopt);
  EXPECT_TRUE(ledger.Take(1, Resource::kDiskBytes, 41, &lease).has_value());
  EXPECT_EQ(lease.amount(), 60u);
  EXPECT_TRUE(ledger.Resize(&lease, 101).has_value());
  EXPECT_EQ(lease.amount(), 60u);
  EXPECT_EQ(ledger.Resize(&lease, 100), std::nullopt);
  EXPECT_EQ(lease.amount(), 100u);
  EXPECT_EQ(ledger.BalanceOf(1, Resource::kDiskBytes, Time{0}).refused, 2u);
  EXPECT_EQ(ledger.BalanceOf(2, Resource::kDiskBytes, Time{0}).refused, 0u);
  lease.ShrinkTo(7);
  EXPECT_EQ(ledger.BalanceOf(1, Resource::kDiskBytes, Time{0}).used, 7u);
  EXPECT_EQ(ledger.BalanceOf(1, Resource::kDiskBytes, Time{0}).peak, 100u);
}

// All tenants together have a limit, and a tenant that holds much leaves something free for the others.
TEST(LedgerTest, TenantsShareATotal) {
  Ledger ledger;
  ledger.SetTotal(Resource::kHostBytes, 900);
  ledger.AddTenant(1, {}, Time(0));
  Lease alone, first, second, third;
  EXPECT_FALSE(ledger.Take(1, Resource::kHostBytes, 900, &alone).has_value());  // There is no other tenant.
  EXPECT_TRUE(ledger.Take(1, Resource::kHostBytes, 1, &first).has_value());
  alone.Release();
  ledger.AddTenant(2, {}, Time(0));
  EXPECT_EQ(ledger.RoomOf(1, Resource::kHostBytes), 600u);
  const auto refusal = ledger.Take(1, Resource::kHostBytes, 601, &first);
  ASSERT_TRUE(refusal.has_value());
  EXPECT_TRUE(refusal->of_all);
  EXPECT_EQ(
      Message(ToStatus(*refusal)),
      "The limit of all tenants together for host-bytes (900) leaves no room for 601 more now; one tenant may hold "
      "at most twice the amount that stays free.");
  EXPECT_FALSE(ledger.Take(1, Resource::kHostBytes, 600, &first).has_value());
  EXPECT_EQ(ledger.RoomOf(1, Resource::kHostBytes), 0u);
  EXPECT_EQ(ledger.RoomOf(2, Resource::kHostBytes), 200u);
  EXPECT_TRUE(ledger.Take(2, Resource::kHostBytes, 201, &second).has_value());
  EXPECT_FALSE(ledger.Take(2, Resource::kHostBytes, 200, &second).has_value());
  EXPECT_TRUE(ledger.Resize(&second, 300).has_value());
  EXPECT_EQ(ledger.TotalOf(Resource::kHostBytes), 800u);
  EXPECT_FALSE(ledger.Take(2, Resource::kDeviceBytes, 1'000, &third).has_value());  // Has no total.
  EXPECT_EQ(ledger.CheckSums(), absl::OkStatus());
  // TakeAnyway goes beyond the limit; no tenant gets more until that amount is returned.
  const Lease anyway = ledger.TakeAnyway(1, Resource::kHostBytes, 500);
  EXPECT_EQ(ledger.TotalOf(Resource::kHostBytes), 1'300u);
  EXPECT_EQ(ledger.RoomOf(2, Resource::kHostBytes), 0u);
  EXPECT_TRUE(ledger.Take(2, Resource::kHostBytes, 1, &third).has_value());
  EXPECT_EQ(ledger.CheckSums(), absl::OkStatus());
}

TEST(LedgerTest, TakesAnyway) {
  Ledger ledger;
  ledger.AddTenant(1, With(Resource::kDeviceBytes, 10), Time{0});
  Lease there = ledger.TakeAnyway(1, Resource::kDeviceBytes, 25);
  Lease more;
  EXPECT_TRUE(ledger.Take(1, Resource::kDeviceBytes, 1, &more).has_value());
  EXPECT_EQ(ledger.Take(1, Resource::kDeviceBytes, 0, &more), std::nullopt);
  there.SetAnyway(kMost);
  EXPECT_EQ(ledger.BalanceOf(1, Resource::kDeviceBytes, Time{0}).used, kMost);
  Lease beyond = ledger.TakeAnyway(1, Resource::kDeviceBytes, 5);
  EXPECT_EQ(beyond.amount(), 0u) << "More than 64 bits hold is not counted, so that sums stay exact.";
  EXPECT_TRUE(ledger.CheckSums().ok());
  there.SetAnyway(9);
  EXPECT_EQ(ledger.Take(1, Resource::kDeviceBytes, 1, &more), std::nullopt);
  EXPECT_EQ(ledger.BalanceOf(1, Resource::kDeviceBytes, Time{0}).used, 10u);
}

// A moved lease remains one lease, and ends with its last owner.
TEST(LedgerTest, LeasesMove) {
  Ledger ledger;
  ledger.AddTenant(1, {}, Time{0});
  {
    std::vector<Lease> leases;
    for (uint64_t i = 1; i <= 100; ++i) {
      Lease lease;
      ASSERT_EQ(ledger.Take(1, Resource::kModules, i, &lease), std::nullopt);
      leases.push_back(std::move(lease));
      EXPECT_EQ(lease.amount(), 0u);
    }
    EXPECT_EQ(ledger.BalanceOf(1, Resource::kModules, Time{0}).used, 5050u);
    EXPECT_TRUE(ledger.CheckSums().ok());
    leases[3] = std::move(leases[99]);
    EXPECT_EQ(ledger.BalanceOf(1, Resource::kModules, Time{0}).used, 5046u);
    Lease& self = leases[5];
    leases[5] = std::move(self);
    EXPECT_EQ(leases[5].amount(), 6u);
    leases[3].Release();
    leases[3].Release();
    EXPECT_EQ(ledger.BalanceOf(1, Resource::kModules, Time{0}).used, 4946u);
    EXPECT_TRUE(ledger.CheckSums().ok());
  }
  EXPECT_EQ(ledger.BalanceOf(1, Resource::kModules, Time{0}).used, 0u);
}

// Two leases become one, without a change of balance or peak.
TEST(LedgerTest, LeasesMerge) {
  Ledger ledger;
  ledger.AddTenant(1, With(Resource::kDiskBytes, 100), Time{0});
  Lease rows, job;
  ASSERT_EQ(ledger.Take(1, Resource::kDiskBytes, 30, &job), std::nullopt);
  rows.Merge(std::move(job));
  EXPECT_EQ(rows.amount(), 30u);
  ASSERT_EQ(ledger.Take(1, Resource::kDiskBytes, 70, &job), std::nullopt);
  EXPECT_EQ(ledger.RoomOf(1, Resource::kDiskBytes), 0u);
  rows.Merge(std::move(job));
  rows.Merge(Lease());
  EXPECT_EQ(rows.amount(), 100u);
  EXPECT_EQ(ledger.BalanceOf(1, Resource::kDiskBytes, Time{0}).peak, 100u);
  EXPECT_TRUE(ledger.CheckSums().ok());
  {
    const Lease part = rows.Split(40);
    EXPECT_EQ(part.amount(), 40u);
    EXPECT_EQ(rows.amount(), 60u);
    EXPECT_EQ(rows.Split(100).amount(), 60u);
    EXPECT_EQ(ledger.BalanceOf(1, Resource::kDiskBytes, Time{0}).used, 40u);
    EXPECT_TRUE(ledger.CheckSums().ok());
  }
  rows.Release();
  EXPECT_EQ(ledger.BalanceOf(1, Resource::kDiskBytes, Time{0}).used, 0u);
  EXPECT_EQ(ledger.RoomOf(1, Resource::kDiskBytes), 100u);
  EXPECT_EQ(ledger.RoomOf(1, Resource::kHostBytes), kMost);
  EXPECT_EQ(ledger.RoomOf(2, Resource::kHostBytes), 0u);
}

// An object that pays for itself may outlive the ledger.
TEST(LedgerTest, LeasesOutliveTheLedger) {
  Lease lease;
  {
    Ledger ledger;
    ledger.AddTenant(1, {}, Time{0});
    lease = ledger.TakeAnyway(1, Resource::kHostBytes, 5);
  }
  EXPECT_EQ(lease.amount(), 5u);
  lease.ShrinkTo(2);
  Lease other = std::move(lease);
  other.Release();
}

// Ten per second: twenty at once, then one each tenth of a second, to the nanosecond.
TEST(LedgerTest, EarnsEvenly) {
  Ledger ledger;
  ledger.AddTenant(1, With(Resource::kRequests, 10), Time{0});
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(ledger.Spend(1, Resource::kRequests, 1, Time{0}), std::nullopt) << i;
  }
  auto refusal = ledger.Spend(1, Resource::kRequests, 1, Time{0});
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->retry_after, milliseconds(100));
  EXPECT_TRUE(ledger.Spend(1, Resource::kRequests, 1, milliseconds(100) - Duration{1}).has_value());
  EXPECT_EQ(ledger.Spend(1, Resource::kRequests, 1, milliseconds(100)), std::nullopt);
  EXPECT_EQ(ledger.BalanceOf(1, Resource::kRequests, hours(1)).available, 20u);
  EXPECT_EQ(ledger.BalanceOf(1, Resource::kRequests, hours(1)).used, 21u);
  EXPECT_EQ(ledger.BalanceOf(1, Resource::kRequests, hours(1)).refused, 2u);
}

// A third of a nanosecond is not lost at each query: 7 per hour queried a million times remain 7 per hour.
TEST(LedgerTest, EarnsExactly) {
  Ledger ledger;
  ledger.AddTenant(1, With(Resource::kDeviceTime, 7), Time{0});
  ledger.Charge(1, Resource::kDeviceTime, 14, Time{0});  // 7 were saved, so the debt is 7.
  Time now{0};
  for (int i = 1; i < 1'000'000; ++i) {
    now = Duration(hours(1)) / 1'000'000 * i;
    ASSERT_TRUE(ledger.Spend(1, Resource::kDeviceTime, 0, now).has_value()) << i;
  }
  EXPECT_EQ(ledger.DebtFor(1, Resource::kDeviceTime, now), hours(1) - now);
  EXPECT_EQ(ledger.Spend(1, Resource::kDeviceTime, 0, hours(1)), std::nullopt);
}

// A debt is paid before anything begins, and the refusal says when it will be paid.
TEST(LedgerTest, DebtIsPaidFirst) {
  Ledger ledger;
  const auto second = static_cast<uint64_t>(Duration(seconds(1)).count());
  ledger.AddTenant(1, With(Resource::kDeviceTime, 60 * second), Time{0});
  EXPECT_EQ(ledger.Spend(1, Resource::kDeviceTime, 0, Time{0}), std::nullopt);
  ledger.Charge(1, Resource::kDeviceTime, 90 * second, Time{0});
  const auto refusal = ledger.Spend(1, Resource::kDeviceTime, 0, Time{0});
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->retry_after, minutes(30));
  EXPECT_EQ(ledger.DebtFor(1, Resource::kDeviceTime, Time{0}), minutes(30));
  EXPECT_EQ(ledger.BalanceOf(1, Resource::kDeviceTime, Time{0}).available, 0u);
  EXPECT_EQ(Message(ToStatus(*refusal)),
            "The tenant's quota of device-seconds (60 an hour) is spent: more is available in 1800 s.");
  EXPECT_EQ(ledger.Spend(1, Resource::kDeviceTime, 0, minutes(30)), std::nullopt);
  EXPECT_EQ(ledger.BalanceOf(1, Resource::kDeviceTime, hours(3)).available, 60 * second);
}

// An amount larger than the bound on savings waits until savings are full, and is paid off later.
TEST(LedgerTest, LargerThanTheBucket) {
  Ledger ledger;
  ledger.AddTenant(1, With(Resource::kRequestBytes, 100), Time{0});
  EXPECT_EQ(ledger.Spend(1, Resource::kRequestBytes, 1, Time{0}), std::nullopt);
  const auto refusal = ledger.Spend(1, Resource::kRequestBytes, 1000, Time{0});
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->retry_after, milliseconds(10));
  EXPECT_EQ(ledger.Spend(1, Resource::kRequestBytes, 1000, milliseconds(10)), std::nullopt);
  EXPECT_EQ(ledger.DebtFor(1, Resource::kRequestBytes, milliseconds(10)), seconds(8));
  EXPECT_TRUE(ledger.SpendAll(1, Resource::kRequestBytes, 1, seconds(8)).has_value());
  EXPECT_EQ(ledger.SpendAll(1, Resource::kRequestBytes, 1, seconds(9)), std::nullopt);
}

// Spending carried over to another ledger allows at each later moment what the first one would have.
TEST(LedgerTest, SpentIsCarriedOver) {
  const auto hour = With(Resource::kDeviceTime, 3'600'000'000'000 / 10);  // 360 s per hour: a tenth of the time.
  for (const uint64_t charged :
       {uint64_t{0}, uint64_t{1}, uint64_t{100'000'000'001}, uint64_t{720'000'000'000}, kMost}) {
    Ledger before, after;
    before.AddTenant(1, hour, Time{0});
    before.Charge(1, Resource::kDeviceTime, charged, Time{0});
    const Ledger::Spent spent = before.SpentOf(1, Resource::kDeviceTime, Time{seconds(10)});
    EXPECT_EQ(spent.used, charged);
    // The other process's clock has another zero, and 20 s have passed.
    after.AddTenant(7, hour, Time{seconds(5)});
    after.RestoreSpent(7, Resource::kDeviceTime, spent, seconds(20), Time{seconds(5)});
    EXPECT_EQ(after.BalanceOf(7, Resource::kDeviceTime, Time{seconds(5)}).used, charged);
    for (const Duration later : {Duration{0}, Duration{minutes(1)}, Duration{hours(3)}}) {
      const Time then = Time{seconds(30)} + later, now = Time{seconds(5)} + later;
      const uint64_t want = before.BalanceOf(1, Resource::kDeviceTime, then).available;
      const uint64_t available = after.BalanceOf(7, Resource::kDeviceTime, now).available;
      EXPECT_LE(available, want) << charged;
      EXPECT_GE(available + 1, want) << charged;  // The missing amount is rounded up.
      if (charged != kMost) {                     // The missing amount exceeds the range of its type.
        const Duration debt = before.DebtFor(1, Resource::kDeviceTime, then);
        EXPECT_LE(after.DebtFor(7, Resource::kDeviceTime, now) - debt, Duration{10}) << charged;
        EXPECT_GE(after.DebtFor(7, Resource::kDeviceTime, now), debt) << charged;
      }
    }
    EXPECT_TRUE(after.CheckSums().ok());
  }
}

// The quota was added, removed or changed in between; held resources are not restored.
TEST(LedgerTest, SpentUnderAnotherQuota) {
  Ledger ledger;
  ledger.AddTenant(1, {}, Time{0});
  ledger.RestoreSpent(1, Resource::kDeviceTime, {.used = 50, .missing = 40}, seconds(0), Time{0});
  EXPECT_EQ(ledger.BalanceOf(1, Resource::kDeviceTime, Time{0}).used, 50u);
  EXPECT_EQ(ledger.SpentOf(1, Resource::kDeviceTime, Time{0}).missing, 0u);
  ledger.AddTenant(2, With(Resource::kDeviceTime, 30), Time{0});
  ledger.RestoreSpent(2, Resource::kDeviceTime, {.used = 50, .missing = 40}, -seconds(9), Time{0});
  EXPECT_EQ(ledger.BalanceOf(2, Resource::kDeviceTime, Time{0}).available, 0u);
  EXPECT_GT(ledger.DebtFor(2, Resource::kDeviceTime, Time{0}), Duration{0});
  ledger.AddTenant(3, With(Resource::kDiskBytes, 30), Time{0});
  ledger.RestoreSpent(3, Resource::kDiskBytes, {.used = 50, .missing = 40}, seconds(0), Time{0});
  EXPECT_EQ(ledger.BalanceOf(3, Resource::kDiskBytes, Time{0}).used, 0u);
}

TEST(LedgerTest, HugeNumbers) {
  Ledger ledger;
  ledger.AddTenant(1, With(Resource::kCompileTime, kMost), Time{0});
  ledger.Charge(1, Resource::kCompileTime, kMost, Time{0});
  ledger.Charge(1, Resource::kCompileTime, kMost, Time{0});
  EXPECT_EQ(ledger.BalanceOf(1, Resource::kCompileTime, Time{0}).used, kMost);
  EXPECT_EQ(ledger.DebtFor(1, Resource::kCompileTime, Time{0}), hours(1));
  EXPECT_EQ(ledger.BalanceOf(1, Resource::kCompileTime, kNever).available, kMost);
  ledger.SetLimits(1, With(Resource::kCompileTime, 1), kNever);
  for (int i = 0; i < 1000; ++i) {
    ledger.Charge(1, Resource::kCompileTime, kMost, kNever);
  }
  EXPECT_EQ(ledger.DebtFor(1, Resource::kCompileTime, kNever), Duration::max());
  EXPECT_TRUE(ledger.CheckSums().ok());
}

// A smaller limit reduces savings and leaves held amounts; no limit forgives the debt.
TEST(LedgerTest, LimitsChange) {
  Ledger ledger;
  ledger.AddTenant(1, With(Resource::kRequests, 100), Time{0});
  ledger.SetLimits(1, With(Resource::kRequests, 10), Time{0});
  EXPECT_EQ(ledger.BalanceOf(1, Resource::kRequests, Time{0}).available, 20u);
  ledger.SetLimits(1, With(Resource::kRequests, 100), Time{0});
  EXPECT_EQ(ledger.BalanceOf(1, Resource::kRequests, Time{0}).available, 20u);
  ledger.Charge(1, Resource::kRequests, 50, Time{0});
  EXPECT_EQ(ledger.DebtFor(1, Resource::kRequests, Time{0}), milliseconds(300));
  ledger.SetLimits(1, {}, Time{0});
  EXPECT_EQ(ledger.Spend(1, Resource::kRequests, 1'000'000, Time{0}), std::nullopt);
}

TEST(LedgerTest, Sentences) {
  EXPECT_EQ(Message(ToStatus({.resource = Resource::kDeviceBytes, .used = 3000, .wanted = 2048, .limit = 4096})),
            "The tenant's quota of device-bytes (4096) does not allow 2048 more: 3000 are in use.");
  EXPECT_EQ(Message(ToStatus({.resource = Resource::kModules, .used = 1, .wanted = 1, .limit = 1})),
            "The tenant's quota of modules (1) does not allow 1 more: 1 is in use.");
  EXPECT_EQ(Message(ToStatus(
                {.resource = Resource::kRequests, .used = 7, .wanted = 1, .limit = 10, .retry_after = Duration{1}})),
            "The tenant's quota of requests (10 a second) is spent: more is available in 0.001 s.");
}

// A straightforward model of one tenant and one resource: leases in a list, rates by plain arithmetic.
struct NaiveAccount {
  uint64_t limit = 0, refused = 0, used = 0, peak = 0;
  __int128 saved = 0;
  int64_t since = 0;
};

class Model {
 public:
  explicit Model(uint64_t seed) : rng_(seed) {}

  void Step() {
    now_ += Duration(static_cast<int64_t>(rng_.Below(3) == 0 ? rng_.Below(50'000'000) : 0));
    const TenantKey tenant = 1 + rng_.Below(3);
    const uint64_t what = rng_.Below(100);
    if (what < 1) {
      Change(tenant);
    } else if (what < 45) {
      Hold(tenant);
    } else if (what < 75) {
      GiveBack();
    } else {
      Spend(tenant);
    }
  }

  // Compares every balance with the ledger.
  void Compare() {
    ASSERT_EQ(ledger_.CheckSums(), absl::OkStatus());
    for (TenantKey tenant = 1; tenant <= 3; ++tenant) {
      for (const ResourceFacts& facts : Resources()) {
        NaiveAccount& books = BooksOf(tenant, facts.resource);
        const Ledger::Balance balance = ledger_.BalanceOf(tenant, facts.resource, now_);
        ASSERT_EQ(balance.used, books.used) << facts.name;
        ASSERT_EQ(balance.peak, books.peak) << facts.name;
        ASSERT_EQ(balance.refused, books.refused) << facts.name;
        ASSERT_EQ(balance.limit, books.limit) << facts.name;
        if (facts.period.count() > 0) {
          Earn(books, facts);
          const __int128 left = books.saved < 0 ? 0 : books.saved / facts.period.count();
          ASSERT_EQ(balance.available, static_cast<uint64_t>(books.limit == 0 ? 0 : left)) << facts.name;
        }
      }
    }
  }

 private:
  struct Held {
    Lease lease;
    TenantKey tenant = 0;
    Resource resource = Resource::kHostBytes;
    uint64_t amount = 0;
  };

  NaiveAccount& BooksOf(TenantKey tenant, Resource resource) { return books_[{tenant, resource}]; }
  static __int128 Most(const NaiveAccount& books, const ResourceFacts& facts) {
    return __int128{books.limit} * facts.period.count() * (facts.period == seconds(1) ? 2 : 1);
  }
  void Earn(NaiveAccount& books, const ResourceFacts& facts) {
    if (books.limit != 0) {
      books.saved = std::min(Most(books, facts), books.saved + __int128{now_.count() - books.since} * books.limit);
    }
    books.since = now_.count();
  }

  void Change(TenantKey tenant) {
    ResourceLimits limits{};
    for (const ResourceFacts& facts : Resources()) {
      const uint64_t limit = rng_.Below(4) == 0 ? 0 : 1 + rng_.Below(1000);
      limits[static_cast<size_t>(facts.resource)] = limit;
      NaiveAccount& books = BooksOf(tenant, facts.resource);
      Earn(books, facts);
      const bool had = std::exchange(books.limit, limit) != 0;
      books.saved = limit == 0 ? 0 : had ? std::min(books.saved, Most(books, facts)) : Most(books, facts);
    }
    if (known_.insert({tenant, true}).second) {
      ledger_.AddTenant(tenant, limits, now_);
    } else {
      ledger_.SetLimits(tenant, limits, now_);
    }
  }

  void Hold(TenantKey tenant) {
    const ResourceFacts& facts = Resources()[rng_.Below(kResourceCount)];
    if (facts.period.count() > 0) {
      return;
    }
    NaiveAccount& books = BooksOf(tenant, facts.resource);
    const uint64_t amount = rng_.Below(300);
    Held held{.lease = {}, .tenant = tenant, .resource = facts.resource, .amount = amount};
    if (!known_.contains(tenant)) {
      ASSERT_TRUE(ledger_.Take(tenant, facts.resource, amount, &held.lease).has_value());
      return;
    }
    const bool anyway = rng_.Below(5) == 0;
    const bool fits = amount == 0 || books.limit == 0 || books.used + amount <= books.limit;
    if (anyway) {
      held.lease = ledger_.TakeAnyway(tenant, facts.resource, amount);
    } else {
      const auto refusal = ledger_.Take(tenant, facts.resource, amount, &held.lease);
      ASSERT_EQ(!refusal.has_value(), fits);
      books.refused += fits ? 0 : 1;
    }
    if (anyway || fits) {
      books.used += amount;
      books.peak = std::max(books.peak, books.used);
      held_.push_back(std::move(held));
    }
  }

  void GiveBack() {
    if (held_.empty()) {
      return;
    }
    const size_t at = rng_.Below(held_.size());
    Held& held = held_[at];
    NaiveAccount& books = BooksOf(held.tenant, held.resource);
    const uint64_t left = rng_.Below(3) == 0 ? rng_.Below(held.amount + 1) : 0;
    books.used -= held.amount - left;
    if (left > 0) {
      held.lease.ShrinkTo(left);
      held.amount = left;
      return;
    }
    if (at + 1 != held_.size()) {
      held_[at] = std::move(held_.back());
    }
    held_.pop_back();
  }

  void Spend(TenantKey tenant) {
    const ResourceFacts& facts = Resources()[rng_.Below(kResourceCount)];
    if (facts.period.count() == 0 || !known_.contains(tenant)) {
      return;
    }
    NaiveAccount& books = BooksOf(tenant, facts.resource);
    Earn(books, facts);
    const uint64_t amount = rng_.Below(200), how = rng_.Below(3);
    const __int128 price = __int128{amount} * facts.period.count();
    const __int128 needed = how == 0 ? std::min(price, Most(books, facts)) : 0;
    const bool fits = books.limit == 0 || books.saved >= needed;
    if (how == 2) {
      ledger_.Charge(tenant, facts.resource, amount, now_);
    } else {
      const auto refusal = how == 0 ? ledger_.Spend(tenant, facts.resource, amount, now_)
                                    : ledger_.SpendAll(tenant, facts.resource, amount, now_);
      ASSERT_EQ(!refusal.has_value(), fits);
      if (!fits) {
        ++books.refused;
        ASSERT_EQ(refusal->retry_after.count(),
                  static_cast<int64_t>((needed - books.saved + books.limit - 1) / books.limit));
        return;
      }
    }
    books.used += amount;
    books.peak = books.used;
    books.saved -= books.limit == 0 ? 0 : price;
  }

  SeededRng rng_;
  Time now_{0};
  Ledger ledger_;
  std::map<TenantKey, bool> known_;
  std::map<std::pair<TenantKey, Resource>, NaiveAccount> books_;
  std::vector<Held> held_;
};

// A million random events, compared with the model.
TEST(LedgerTest, AgreesWithTheModel) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    Model model(seed);
    for (int i = 0; i < 100'000; ++i) {
      model.Step();
      if (HasFatalFailure()) {
        FAIL() << "Seed " << seed << ", event " << i << ".";
      }
      if (i % 50 == 0) {
        model.Compare();
        if (HasFatalFailure()) {
          FAIL() << "Seed " << seed << ", event " << i << ".";
        }
      }
    }
  }
}

// Concurrent threads that take and return leave nothing, and together never exceed the limit.
TEST(LedgerTest, ManyThreads) {
  Ledger ledger;
  ledger.AddTenant(1, With(Resource::kHostBytes, 100), Time{0});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20'000; ++i) {
        Lease first, second;
        ledger.Take(1, Resource::kHostBytes, 40, &first);
        ledger.Take(1, Resource::kHostBytes, 30, &second);
        first = std::move(second);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(ledger.BalanceOf(1, Resource::kHostBytes, Time{0}).used, 0u);
  EXPECT_LE(ledger.BalanceOf(1, Resource::kHostBytes, Time{0}).peak, 100u);
  EXPECT_TRUE(ledger.CheckSums().ok());
}

}  // namespace
}  // namespace hpvm::scheduler
