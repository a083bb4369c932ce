// SPDX-License-Identifier: Apache-2.0
#include "server/accounts/accounts.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "scheduler/share/resource.h"
#include "server/process/log.h"

namespace hpvm::server {
namespace {

using scheduler::Resource;

constexpr int64_t kDayNs = 86'400'000'000'000;

// Maps the ledger's resources to fields of accounts.
constexpr std::pair<Resource, AccountField> kSpentFields[] = {{Resource::kDeviceTime, kDeviceNs},
                                                              {Resource::kCompileTime, kCompileNs},
                                                              {Resource::kRequests, kRequestCount},
                                                              {Resource::kRequestBytes, kRequestBytes}};

uint64_t UsedOf(const TenantSpent& spent, size_t field) {
  return spent.spent[static_cast<size_t>(kSpentFields[field].first)].used;
}

void AddTo(AccountUse& sum, const AccountUse& use) {
  for (size_t i = 0; i < kAccountFields; ++i) {
    sum[i] += use[i];
  }
}

}  // namespace

uint32_t DayOf(int64_t unix_ns) { return static_cast<uint32_t>(std::max<int64_t>(unix_ns, 0) / kDayNs); }

Accounts::Accounts(AccountsOptions options) : options_(std::move(options)) {
  static_assert(std::size(kSpentFields) == std::tuple_size_v<Totals>);
  for (const auto& [name, spent] : options_.spent) {
    Totals& totals = known_[name];
    for (size_t i = 0; i < totals.size(); ++i) {
      totals[i] = UsedOf(spent, i);
    }
  }
}

void Accounts::Count(std::string_view tenant, AccountField field) {
  std::lock_guard lock(mutex_);
  auto found = counted_.find(tenant);
  if (found == counted_.end()) {
    found = counted_.emplace(tenant, AccountUse{}).first;
  }
  ++found->second[field];
}

void Accounts::Take(const events::JobChanged& event) {
  switch (event.job.state()) {
    case v1::JOB_STATE_SUCCEEDED:
      return Count(event.tenant, kJobsSucceeded);
    case v1::JOB_STATE_CANCELLED:
      return Count(event.tenant, kJobsCancelled);
    case v1::JOB_STATE_FAILED:
    case v1::JOB_STATE_EXPIRED:
    case v1::JOB_STATE_DEAD:
      return Count(event.tenant, kJobsFailed);
    default:
      return;  // The job has not ended.
  }
}

void Accounts::Take(const events::RunEnded& event) {
  if (event.job_id.empty()) {
    Count(event.tenant, kRuns);
  }
}

// A total that shrank belongs to a tenant that was created anew and whose past was removed from the spent file.
void Accounts::AddSpent(const SpentByTenant& spent) {
  const uint32_t today = DayOf(options_.clock->WallNs());
  for (const auto& [name, tenant] : spent) {
    Totals& before = known_[name];
    AccountUse use{};
    for (size_t i = 0; i < before.size(); ++i) {
      const uint64_t now = UsedOf(tenant, i);
      use[kSpentFields[i].second] = now - std::min(now, before[i]);
      before[i] = now;
    }
    if (use != AccountUse{}) {
      AddTo(waiting_[{today, name}], use);
    }
  }
}

void Accounts::Keep(const SpentByTenant& spent) {
  decltype(counted_) counted;
  {
    std::lock_guard lock(mutex_);
    counted.swap(counted_);
  }
  const uint32_t today = DayOf(options_.clock->WallNs());
  for (const auto& [name, use] : counted) {
    AddTo(waiting_[{today, name}], use);
  }
  AddSpent(spent);
  const Status written = Write(today);
  if (!written.ok() && !is_failing_) {
    LogWarning("Tenants' usage could not be written to the accounts; it is kept in memory, and the write is retried",
               {{"error", Message(written)}});
  }
  is_failing_ = !written.ok();
}

Status Accounts::Write(uint32_t today) {
  const uint64_t keep_days = options_.keep_days();
  const bool is_pruned = pruned_day_ == today && pruned_to_ == keep_days;
  if (waiting_.empty() && batch_.empty() && is_pruned) {
    return absl::OkStatus();
  }
  if (store_ == nullptr) {
    HPVMD_ASSIGN_OR_RETURN(store_, AccountStore::Open(options_.path, *options_.disk, options_.vfs));
    if (!batch_.empty() && store_->batches() == batch_number_) {
      batch_.clear();  // It was written before the failure.
    }
  }
  for (AccountUses* part : {&batch_, &waiting_}) {
    if (part->empty()) {
      continue;
    }
    if (part == &waiting_) {
      batch_.swap(waiting_);
    }
    batch_number_ = store_->batches() + 1;
    if (const Status added = store_->Add(batch_); !added.ok()) {
      store_.reset();
      return added;
    }
    batch_.clear();
  }
  if (!is_pruned) {
    if (const Status pruned = store_->Prune(keep_days); !pruned.ok()) {
      store_.reset();
      return pruned;
    }
    pruned_day_ = today;
    pruned_to_ = keep_days;
  }
  return absl::OkStatus();
}

}  // namespace hpvm::server
