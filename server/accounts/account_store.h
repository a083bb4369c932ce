// SPDX-License-Identifier: Apache-2.0
// What tenants used, by day, on disk: one SQLite file, written in batches and read a page at a time.
#ifndef HPVMD_SERVER_ACCOUNTS_ACCOUNT_STORE_H_
#define HPVMD_SERVER_ACCOUNTS_ACCOUNT_STORE_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/io/disk.h"
#include "base/status.h"

namespace hpvm::server {

class SqliteConnection;

// What a tenant used, in the order of the file's columns. Times in nanoseconds.
enum AccountField : uint8_t {
  kDeviceNs,
  kCompileNs,
  kRequestCount,
  kRequestBytes,
  kJobsSucceeded,
  kJobsFailed,
  kJobsCancelled,
  kRuns,
};
inline constexpr size_t kAccountFields = 8;
using AccountUse = std::array<uint64_t, kAccountFields>;

// A day since 1970 in UTC, and a tenant.
using AccountKey = std::pair<uint32_t, std::string>;
using AccountUses = std::map<AccountKey, AccountUse>;

// In the state folder.
inline constexpr char kAccountsFile[] = "/accounts.sqlite";

// Beyond so many entries, days of tenants, the oldest go.
inline constexpr uint64_t kAccountsMax = 1'000'000;

// Which entries to read: by day and tenant, behind `after`.
struct AccountQuery {
  std::string tenant;  // Empty: all.
  uint32_t first_day = 0, last_day = 0;
  AccountKey after;  // {0, ""}: from the beginning.
  uint32_t count_max = 0;
};

// One thread at a time.
class AccountStore {
 public:
  // Made with mode 0600 when it is missing. kFailedPrecondition for another application's file, or a later release's.
  // `vfs` empty: SQLite's default; for tests.
  static StatusOr<std::unique_ptr<AccountStore>> Open(const std::string& path, Disk& disk = RealDisk(),
                                                      const std::string& vfs = "");
  ~AccountStore();
  AccountStore(const AccountStore&) = delete;
  AccountStore& operator=(const AccountStore&) = delete;

  // How many batches were added since the file was made.
  uint64_t batches() const { return batches_; }
  // Adds the amounts to what the file has, all or none; on disk when it returns OK. After kDataLoss nobody knows which:
  // the batch is in the file that is opened next if that has one batch more.
  Status Add(const AccountUses& uses);
  // Keeps the latest `days_max` of the days that have entries, and the latest `entries_max` entries. By the entries and
  // not by a clock: one that jumps ahead takes nothing away.
  Status Prune(uint64_t days_max, uint64_t entries_max = kAccountsMax);

 private:
  explicit AccountStore(std::unique_ptr<SqliteConnection> connection);
  Status Migrate();
  template <typename Change>
  Status Transact(Change change);

  std::unique_ptr<SqliteConnection> connection_;
  uint64_t batches_ = 0;
  bool has_failed_ = false;
};

// Any thread, with a connection of its own; beside a store that writes. Nothing when there is no such file.
StatusOr<std::vector<std::pair<AccountKey, AccountUse>>> ReadAccounts(const std::string& path,
                                                                      const AccountQuery& query,
                                                                      Disk& disk = RealDisk(),
                                                                      const std::string& vfs = "");

// Copies the file, as it is at one moment, from one folder into another; a daemon may be running on it. Nothing to do
// when there is none.
Status BackUpAccounts(const std::string& folder, const std::string& to);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_ACCOUNTS_ACCOUNT_STORE_H_
