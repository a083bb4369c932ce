// SPDX-License-Identifier: Apache-2.0
// Method: an account of a held resource has the list of its leases; one of a spent resource is a bucket that fills
// evenly. Savings are kept as amount times period in 128 bits, so that one nanosecond earns exactly `limit`.
// Invariants: the balance of a held resource is the sum of its leases, and a total is the sum of the balances
// (CheckSums). Savings lie between -2^120 and SavedMost, and `since` never goes back. Every change is under the one
// mutex; no lease is destroyed or moved while it is held.
// An operation costs at most one lookup of the tenant; only CheckSums visits the leases.
#include "scheduler/share/ledger.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <mutex>

namespace hpvm::scheduler {
namespace {

using Wide = __int128;

constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
constexpr Wide kDebtMost = Wide{1} << 120;  // Far beyond what any tenant can spend, and far from overflow.

bool IsSpent(Resource resource) { return FactsOf(resource).period.count() > 0; }

Duration Clamped(Wide nanoseconds) {
  constexpr Wide kMax = std::numeric_limits<Duration::rep>::max();
  return Duration(static_cast<Duration::rep>(std::clamp<Wide>(nanoseconds, 0, kMax)));
}

// Formats seconds with at most three decimals, rounded up.
std::string Seconds(uint64_t nanoseconds) {
  constexpr uint64_t kMs = 1'000'000;
  const uint64_t ms = nanoseconds / kMs + (nanoseconds % kMs != 0);
  std::string text = std::to_string(ms / 1000);
  if (ms % 1000 != 0) {
    const std::string digits = std::to_string(1000 + ms % 1000);
    text += "." + digits.substr(1, digits.find_last_not_of('0'));
  }
  return text;
}

}  // namespace

// Use of one resource by all tenants.
struct LedgerTotal {
  Wide used = 0;
  uint64_t limit = 0;
  const size_t* tenants = nullptr;  // Number of tenants.

  bool Allows(uint64_t own, uint64_t more) const {
    if (limit == 0 || more == 0) {
      return true;
    }
    const Wide free = Wide{limit} - used - more;
    return free >= 0 && (*tenants <= 1 || Wide{own} + more <= 2 * free);
  }
  uint64_t Used() const { return static_cast<uint64_t>(std::min<Wide>(used, kMost)); }
  // The most that Allows accepts: with x more, own + x <= 2 (free - x).
  uint64_t RoomOf(uint64_t own) const {
    if (limit == 0) {
      return kMost;
    }
    const Wide free = Wide{limit} - used;
    return static_cast<uint64_t>(std::max<Wide>(0, *tenants <= 1 ? free : (2 * free - own) / 3));
  }
};

struct LedgerAccount {
  Resource resource = Resource::kDeviceTime;
  uint64_t used = 0, peak = 0, refused = 0, limit = 0;
  // For spent resources: the amount saved as of `since`, times the period in nanoseconds, so that a nanosecond earns
  // `limit` and nothing is ever rounded. Negative: a debt.
  Wide saved = 0;
  Time since{0};
  Lease* first = nullptr;
  LedgerTotal* total = nullptr;  // Belongs to the books.

  Wide Period() const { return FactsOf(resource).period.count(); }
  Wide SavedMost() const {
    const bool is_rate = FactsOf(resource).period == std::chrono::seconds(1);
    return Wide{limit} * Period() * (is_rate ? 2 : 1);
  }
  Wide SavedAt(Time now) const {
    if (now <= since || limit == 0) {
      return saved;
    }
    // `saved` is at most SavedMost, and the missing amount may exceed a product of two 64-bit numbers.
    const Wide missing = SavedMost() - saved;
    const Wide elapsed = Wide{now.count()} - since.count();
    return elapsed >= missing / limit + 1 ? SavedMost() : saved + std::min(missing, elapsed * limit);
  }
  void Settle(Time now) {
    saved = SavedAt(now);
    since = std::max(since, now);
  }
  void SetLimit(uint64_t next, Time now) {
    Settle(now);
    const bool is_new = limit == 0;
    limit = next;
    saved = limit == 0 ? 0 : is_new ? SavedMost() : std::min(saved, SavedMost());
  }
  void Charge(uint64_t amount) {
    used = used > kMost - amount ? kMost : used + amount;
    peak = used;
    if (limit != 0) {
      saved = std::max(saved - Wide{amount} * Period(), -kDebtMost);
    }
  }
  // Returns how long from `now` (settled) until `wanted` may be spent; nullopt: now.
  std::optional<Duration> WaitFor(uint64_t wanted) const {
    const Wide needed = std::min(Wide{wanted} * Period(), SavedMost());
    if (limit == 0 || saved >= needed) {
      return std::nullopt;
    }
    return Clamped((needed - saved + limit - 1) / limit);
  }
  QuotaRefusal Refuse(uint64_t wanted, Duration retry_after) {
    refused += 1;
    return {.resource = resource, .used = used, .wanted = wanted, .limit = limit, .retry_after = retry_after};
  }
  // For a held resource, after Allows returned false.
  QuotaRefusal RefuseToHold(uint64_t wanted) {
    QuotaRefusal refusal = Refuse(wanted, Duration{0});
    if (AllowsOwn(wanted)) {
      refusal.used = total->Used();
      refusal.limit = total->limit;
      refusal.of_all = true;
    }
    return refusal;
  }
  // Returns true when `more` of a held resource fits.
  bool Allows(uint64_t more) const { return AllowsOwn(more) && total->Allows(used, more); }
  bool AllowsOwn(uint64_t more) const {
    if (more > kMost - used) {
      return false;
    }
    const uint64_t most = limit == 0 ? kMost : limit;
    return more == 0 || used + more <= most;
  }
  void Hold(uint64_t more) {
    used += more;
    total->used += more;
    peak = std::max(peak, used);
  }
  void GiveBack(uint64_t amount) {
    used -= amount;
    total->used -= amount;
  }
};

struct LedgerBooks {
  using Accounts = std::array<LedgerAccount, kResourceCount>;

  std::mutex mutex;
  std::map<TenantKey, Accounts> tenants;
  size_t tenant_count = 0;
  std::array<LedgerTotal, kResourceCount> totals;

  LedgerAccount* Find(TenantKey tenant, Resource resource) {
    const auto found = tenants.find(tenant);
    return found == tenants.end() ? nullptr : &found->second[static_cast<size_t>(resource)];
  }
};

Status ToStatus(const QuotaRefusal& refusal) {
  const ResourceFacts& facts = FactsOf(refusal.resource);
  const bool is_time = facts.unit == ResourceUnit::kNanoseconds;
  const auto number = [&](uint64_t value) { return is_time ? Seconds(value) : std::to_string(value); };
  if (refusal.of_all) {  // A refusal does not tell how much other tenants use.
    return ResourceExhausted("The limit of all tenants together for " + std::string(facts.name) + " (" +
                             number(refusal.limit) + ") leaves no room for " + number(refusal.wanted) +
                             " more now; one tenant may hold at most twice the amount that stays free.");
  }
  std::string text = "The tenant's quota of " + std::string(facts.name) + " (" + number(refusal.limit);
  if (facts.period.count() == 0) {
    return ResourceExhausted(text + ") does not allow " + number(refusal.wanted) + " more: " + number(refusal.used) +
                             (refusal.used == 1 ? " is" : " are") + " in use.");
  }
  text += facts.period == std::chrono::hours(1) ? " an hour" : " a second";
  return ResourceExhausted(text + ") is spent: more is available in " +
                           Seconds(static_cast<uint64_t>(std::max<int64_t>(0, refusal.retry_after.count()))) + " s.");
}

void Lease::Unlink() {
  (previous_ != nullptr ? previous_->next_ : account_->first) = next_;
  if (next_ != nullptr) {
    next_->previous_ = previous_;
  }
  next_ = previous_ = nullptr;
}

void Lease::LinkInto(LedgerAccount* account) {
  account_ = account;
  previous_ = nullptr;
  next_ = account->first;
  if (next_ != nullptr) {
    next_->previous_ = this;
  }
  account->first = this;
}

Lease& Lease::operator=(Lease&& other) noexcept {
  if (this == &other) {
    return *this;
  }
  Release();
  if (other.books_ == nullptr) {
    return *this;
  }
  books_ = std::move(other.books_);
  std::lock_guard lock(books_->mutex);
  other.Unlink();
  LinkInto(std::exchange(other.account_, nullptr));
  amount_ = std::exchange(other.amount_, 0);
  return *this;
}

void Lease::Release() {
  if (books_ == nullptr) {
    return;
  }
  const std::shared_ptr<LedgerBooks> books = std::move(books_);
  std::lock_guard lock(books->mutex);
  Unlink();
  LedgerAccount* account = std::exchange(account_, nullptr);
  account->GiveBack(std::exchange(amount_, 0));
}

void Lease::ShrinkTo(uint64_t amount) {
  if (books_ == nullptr || amount >= amount_) {
    return;
  }
  std::lock_guard lock(books_->mutex);
  account_->GiveBack(amount_ - amount);
  amount_ = amount;
}

void Lease::SetAnyway(uint64_t amount) {
  if (books_ == nullptr || amount <= amount_) {
    return ShrinkTo(amount);
  }
  std::lock_guard lock(books_->mutex);
  const uint64_t more = std::min(amount - amount_, kMost - account_->used);
  account_->Hold(more);
  amount_ += more;
}

Lease Lease::Split(uint64_t amount) {
  Lease part;
  if (books_ != nullptr) {
    std::lock_guard lock(books_->mutex);
    part.books_ = books_;
    part.LinkInto(account_);
    part.amount_ = std::min(amount, amount_);
    amount_ -= part.amount_;
  }
  return part;
}

void Lease::Merge(Lease other) {
  if (books_ == nullptr || other.books_ == nullptr) {
    if (other.books_ != nullptr) {
      *this = std::move(other);
    }
    return;
  }
  std::lock_guard lock(books_->mutex);
  if (account_ == other.account_) {
    amount_ += std::exchange(other.amount_, 0);
  }
}

Ledger::Ledger() : books_(std::make_shared<LedgerBooks>()) {
  for (LedgerTotal& total : books_->totals) {
    total.tenants = &books_->tenant_count;
  }
}
Ledger::~Ledger() = default;

void Ledger::AddTenant(TenantKey tenant, const ResourceLimits& limits, Time now) {
  {
    std::lock_guard lock(books_->mutex);
    const auto [added, is_new] = books_->tenants.try_emplace(tenant);
    for (size_t i = 0; is_new && i < kResourceCount; ++i) {
      added->second[i].resource = static_cast<Resource>(i);
      added->second[i].since = now;
      added->second[i].total = &books_->totals[i];
    }
    books_->tenant_count += is_new ? 1 : 0;
  }
  SetLimits(tenant, limits, now);
}

void Ledger::SetLimits(TenantKey tenant, const ResourceLimits& limits, Time now) {
  std::lock_guard lock(books_->mutex);
  const auto found = books_->tenants.find(tenant);
  if (found == books_->tenants.end()) {
    return;
  }
  for (size_t i = 0; i < kResourceCount; ++i) {
    found->second[i].SetLimit(limits[i], now);
  }
}

void Ledger::SetTotal(Resource resource, uint64_t limit) {
  std::lock_guard lock(books_->mutex);
  books_->totals[static_cast<size_t>(resource)].limit = limit;
}

uint64_t Ledger::TotalOf(Resource resource) const {
  std::lock_guard lock(books_->mutex);
  return books_->totals[static_cast<size_t>(resource)].Used();
}

std::optional<QuotaRefusal> Ledger::Take(TenantKey tenant, Resource resource, uint64_t amount, Lease* lease) {
  Lease taken;
  {
    std::lock_guard lock(books_->mutex);
    LedgerAccount* account = books_->Find(tenant, resource);
    if (account == nullptr) {
      return QuotaRefusal{.resource = resource, .wanted = amount};
    }
    if (!account->Allows(amount)) {
      return account->RefuseToHold(amount);
    }
    account->Hold(amount);
    taken.books_ = books_;
    taken.LinkInto(account);
    taken.amount_ = amount;
  }
  *lease = std::move(taken);
  return std::nullopt;
}

std::optional<QuotaRefusal> Ledger::Resize(Lease* lease, uint64_t amount) {
  if (lease->books_ == nullptr || amount <= lease->amount_) {
    lease->ShrinkTo(amount);
    return std::nullopt;
  }
  std::lock_guard lock(books_->mutex);
  const uint64_t more = amount - lease->amount_;
  if (!lease->account_->Allows(more)) {
    return lease->account_->RefuseToHold(more);
  }
  lease->account_->Hold(more);
  lease->amount_ = amount;
  return std::nullopt;
}

Lease Ledger::TakeAnyway(TenantKey tenant, Resource resource, uint64_t amount) {
  Lease lease;
  {
    // Released before the lease is returned, because moving the lease takes the mutex.
    std::lock_guard lock(books_->mutex);
    if (LedgerAccount* account = books_->Find(tenant, resource); account != nullptr) {
      lease.books_ = books_;
      lease.LinkInto(account);
      lease.amount_ = std::min(amount, kMost - account->used);
      account->Hold(lease.amount_);
    }
  }
  return lease;
}

std::optional<QuotaRefusal> Ledger::Spend(TenantKey tenant, Resource resource, uint64_t amount, Time now) {
  std::lock_guard lock(books_->mutex);
  LedgerAccount* account = books_->Find(tenant, resource);
  if (account == nullptr) {
    return QuotaRefusal{.resource = resource, .wanted = amount};
  }
  account->Settle(now);
  if (const auto wait = account->WaitFor(amount)) {
    return account->Refuse(amount, *wait);
  }
  account->Charge(amount);
  return std::nullopt;
}

std::optional<QuotaRefusal> Ledger::SpendAll(TenantKey tenant, Resource resource, uint64_t amount, Time now) {
  std::lock_guard lock(books_->mutex);
  LedgerAccount* account = books_->Find(tenant, resource);
  if (account == nullptr) {
    return QuotaRefusal{.resource = resource, .wanted = amount};
  }
  account->Settle(now);
  if (const auto wait = account->WaitFor(0)) {
    return account->Refuse(amount, *wait);
  }
  account->Charge(amount);
  return std::nullopt;
}

void Ledger::Charge(TenantKey tenant, Resource resource, uint64_t amount, Time now) {
  std::lock_guard lock(books_->mutex);
  LedgerAccount* account = books_->Find(tenant, resource);
  if (account != nullptr) {
    account->Settle(now);
    account->Charge(amount);
  }
}

uint64_t Ledger::RoomOf(TenantKey tenant, Resource resource) const {
  std::lock_guard lock(books_->mutex);
  const LedgerAccount* account = books_->Find(tenant, resource);
  if (account == nullptr) {
    return 0;
  }
  const uint64_t most = account->limit == 0 ? kMost : account->limit;
  const uint64_t own = most > account->used ? most - account->used : 0;
  return std::min(own, account->total->RoomOf(account->used));
}

Duration Ledger::DebtFor(TenantKey tenant, Resource resource, Time now) const {
  std::lock_guard lock(books_->mutex);
  const LedgerAccount* account = books_->Find(tenant, resource);
  if (account == nullptr) {
    return Duration{0};
  }
  LedgerAccount settled = *account;
  settled.Settle(now);
  return settled.WaitFor(0).value_or(Duration{0});
}

Ledger::Balance Ledger::BalanceOf(TenantKey tenant, Resource resource, Time now) const {
  std::lock_guard lock(books_->mutex);
  const auto found = books_->tenants.find(tenant);
  if (found == books_->tenants.end()) {
    return {};
  }
  const LedgerAccount& account = found->second[static_cast<size_t>(resource)];
  Balance balance{.used = account.used, .peak = account.peak, .refused = account.refused, .limit = account.limit};
  if (IsSpent(resource) && account.limit != 0) {
    const Wide available = std::max<Wide>(0, account.SavedAt(now)) / account.Period();
    balance.available = static_cast<uint64_t>(std::min<Wide>(available, kMost));
  }
  return balance;
}

Ledger::Spent Ledger::SpentOf(TenantKey tenant, Resource resource, Time now) const {
  if (!IsSpent(resource)) {
    return {};
  }
  std::lock_guard lock(books_->mutex);
  const LedgerAccount* account = books_->Find(tenant, resource);
  if (account == nullptr) {
    return {};
  }
  Spent spent{.used = account->used};
  if (account->limit != 0) {
    const Wide missing = account->SavedMost() - account->SavedAt(now);
    spent.missing = static_cast<uint64_t>(std::min<Wide>((missing + account->Period() - 1) / account->Period(), kMost));
  }
  return spent;
}

void Ledger::RestoreSpent(TenantKey tenant, Resource resource, const Spent& spent, Duration ago, Time now) {
  std::lock_guard lock(books_->mutex);
  LedgerAccount* account = books_->Find(tenant, resource);
  if (account == nullptr || !IsSpent(resource)) {
    return;
  }
  account->used = account->peak = spent.used;
  if (account->limit != 0) {
    account->saved = std::max(account->SavedMost() - Wide{spent.missing} * account->Period(), -kDebtMost);
    account->since = now - std::max(ago, Duration{0});
    account->Settle(now);
  }
}

Status Ledger::CheckSums() const {
  std::lock_guard lock(books_->mutex);
  std::array<Wide, kResourceCount> totals{};
  for (const auto& [key, accounts] : books_->tenants) {
    for (const LedgerAccount& account : accounts) {
      uint64_t sum = 0;
      for (const Lease* lease = account.first; lease != nullptr; lease = lease->next_) {
        sum += lease->amount_;
        if (lease->account_ != &account || (lease->next_ != nullptr && lease->next_->previous_ != lease)) {
          return Internal("A lease of tenant " + std::to_string(key) + " is in the list of another account.");
        }
      }
      const std::string name(FactsOf(account.resource).name);
      if (IsSpent(account.resource) ? account.first != nullptr : sum != account.used) {
        return Internal("The balance of " + name + " of tenant " + std::to_string(key) + " (" +
                        std::to_string(account.used) + ") is not the sum of its leases (" + std::to_string(sum) + ").");
      }
      totals[static_cast<size_t>(account.resource)] += account.used;
      if (account.peak < account.used) {
        return Internal("The peak of " + name + " of tenant " + std::to_string(key) + " (" +
                        std::to_string(account.peak) + ") is below its use (" + std::to_string(account.used) + ").");
      }
    }
  }
  for (size_t i = 0; i < kResourceCount; ++i) {
    if (!IsSpent(static_cast<Resource>(i)) && totals[i] != books_->totals[i].used) {
      return Internal("The amount that all tenants hold of " + std::string(FactsOf(static_cast<Resource>(i)).name) +
                      " (" + std::to_string(books_->totals[i].Used()) + ") is not the sum of their balances.");
    }
  }
  return absl::OkStatus();
}

}  // namespace hpvm::scheduler
