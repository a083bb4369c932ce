// SPDX-License-Identifier: Apache-2.0
// Accounts counts the usage of tenants by day: device time, compile time and requests from the ledger, finished jobs
// and runs from events.
//
// Counting takes one short lock and allocates for a tenant's first event of a batch. The caller of Keep writes a
// batch every two seconds: a daemon that is killed loses at most the usage since then. While the file cannot be
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

// Returns the day of a wall clock; 0 before 1970.
uint32_t DayOf(int64_t unix_ns);

struct AccountsOptions {
  std::string path;                     // Path of the file.
  const Clock* clock = nullptr;         // Borrowed; must outlive this object.
  std::function<uint64_t()> keep_days;  // Called by Keep.
  SpentByTenant spent;                  // The ledger's initial totals, which this process must not count.
  Disk* disk = &RealDisk();             // Borrowed; must outlive this object.
  std::string vfs;                      // For tests; SQLite's default when empty.
};

class Accounts final : public Observer {
 public:
  explicit Accounts(AccountsOptions options);

  // Thread-safe.
  void On(const Event& event) override { Dispatch(*this, event); }
  void Take(const events::JobChanged& event);
  void Take(const events::RunEnded& event);

  // Writes the new amounts; `spent` holds each tenant's totals so far. Not thread-safe. A failure is logged once.
  void Keep(const SpentByTenant& spent);

 private:
  void Count(std::string_view tenant, AccountField field);
  void AddSpent(const SpentByTenant& spent);
  Status Write(uint32_t today);

  const AccountsOptions options_;
  std::mutex mutex_;
  std::map<std::string, AccountUse, std::less<>> counted_;  // Since the last Keep; guarded by the mutex.

  // This and the following members belong to the thread that calls Keep.
  using Totals = std::array<uint64_t, 4>;
  std::map<std::string, Totals> known_;  // Each tenant's totals at the last Keep.
  AccountUses waiting_;                  // Not in any batch yet.
  AccountUses batch_;                    // Being written as number `batch_number_`; its outcome may be unknown.
  uint64_t batch_number_ = 0;
  std::unique_ptr<AccountStore> store_;  // Null when it has to be opened.
  uint32_t pruned_day_ = 0;
  uint64_t pruned_to_ = 0;  // In days; 0 when not pruned so far.
  bool is_failing_ = false;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_ACCOUNTS_ACCOUNTS_H_
