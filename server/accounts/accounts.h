// SPDX-License-Identifier: Apache-2.0
// What tenants use, counted by day: device time, compile time and requests as the ledger has them, jobs that ended and
// runs as they happen.
//
// Counting takes one short lock and allocates for a tenant's first event of a batch. Batches are written by whoever
// calls Keep, every two seconds: a daemon that is killed forgets at most what came since. While the file cannot be
// written, the amounts wait in memory, by day and tenant, and the file is opened again.
#ifndef HPVMD_SERVER_ACCOUNTS_ACCOUNTS_H_
#define HPVMD_SERVER_ACCOUNTS_ACCOUNTS_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "server/accounts/account_store.h"
#include "server/events/events.h"
#include "server/process/spent_file.h"

namespace hpvm::server {

// Of a wall clock; 0 before 1970.
uint32_t DayOf(int64_t unix_ns);

struct AccountsOptions {
  std::string path;                     // Of the file.
  const Clock* clock = nullptr;         // Borrowed; lives longer.
  std::function<uint64_t()> keep_days;  // Asked by Keep.
  SpentByTenant spent;                  // What the ledger begins with: nothing of it is this process's.
  Disk* disk = &RealDisk();             // Borrowed; lives longer.
  std::string vfs;                      // For tests; empty: SQLite's default.
};

class Accounts final : public Observer {
 public:
  explicit Accounts(AccountsOptions options);

  // Any thread.
  void On(const Event& event) override { Dispatch(*this, event); }
  void Take(const events::JobChanged& event);
  void Take(const events::RunEnded& event);

  // Writes what is new, with what each tenant has spent by now. One thread at a time. A failure is logged, once.
  void Keep(const SpentByTenant& spent);

 private:
  void Count(std::string_view tenant, AccountField field);
  void AddSpent(const SpentByTenant& spent);
  Status Write(uint32_t today);

  const AccountsOptions options_;
  std::mutex mutex_;
  std::map<std::string, AccountUse, std::less<>> counted_;  // Since the last Keep; under the mutex.

  // Of the thread that keeps.
  using Totals = std::array<uint64_t, 4>;
  std::map<std::string, Totals> known_;  // What each tenant had spent at the last Keep.
  AccountUses waiting_;                  // In no batch yet.
  AccountUses batch_;                    // Being written, as number `batch_number_`; its outcome may be unknown.
  uint64_t batch_number_ = 0;
  std::unique_ptr<AccountStore> store_;  // Null: to be opened.
  uint32_t pruned_day_ = 0;
  uint64_t pruned_to_ = 0;  // Days; 0: not pruned so far.
  bool is_failing_ = false;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_ACCOUNTS_ACCOUNTS_H_
