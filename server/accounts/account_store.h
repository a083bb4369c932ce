// SPDX-License-Identifier: Apache-2.0
// AccountStore keeps the daily usage of tenants on disk: one SQLite file, written in batches and read by page.
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

// Kinds of usage, in the order of the file's columns. Times are in nanoseconds.
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

// Days since 1970 in UTC, and a tenant.
using AccountKey = std::pair<uint32_t, std::string>;
using AccountUses = std::map<AccountKey, AccountUse>;

// File name in the state folder.
inline constexpr char kAccountsFile[] = "/accounts.sqlite";

// Maximum number of entries (a tenant's day each); the oldest are deleted beyond it.
inline constexpr uint64_t kAccountsMax = 1'000'000;

// Selects entries by day and tenant, after the key `after`.
struct AccountQuery {
  std::string tenant;  // All tenants when empty.
  uint32_t first_day = 0, last_day = 0;
  AccountKey after;  // {0, ""} starts at the beginning.
  uint32_t count_max = 0;
};

// Not thread-safe.
class AccountStore {
 public:
  // Creates the file with mode 0600 when it is missing. kFailedPrecondition for a file of another application or of a
  // later release. An empty `vfs` is SQLite's default; others are for tests.
  static StatusOr<std::unique_ptr<AccountStore>> Open(const std::string& path, Disk& disk = RealDisk(),
                                                      const std::string& vfs = "");
  ~AccountStore();
  AccountStore(const AccountStore&) = delete;
  AccountStore& operator=(const AccountStore&) = delete;

  // Number of batches added since the file was made.
  uint64_t batches() const { return batches_; }
  // Adds the amounts to the file, all or none; they are on disk when it returns OK. After kDataLoss the outcome is
  // unknown: the batch is in the file if the reopened file counts one batch more.
  Status Add(const AccountUses& uses);
  // Keeps the latest `days_max` of the days that have entries, and the latest `entries_max` entries. Counts entries
  // instead of using a clock, so that a clock that jumps ahead deletes nothing.
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

// Thread-safe: uses a connection of its own, beside a store that writes. Returns nothing when there is no such file.
StatusOr<std::vector<std::pair<AccountKey, AccountUse>>> ReadAccounts(const std::string& path,
                                                                      const AccountQuery& query,
                                                                      Disk& disk = RealDisk(),
                                                                      const std::string& vfs = "");

// Copies a consistent state of the file from one folder into another; a daemon may be running on it. Does nothing
// when there is no file.
Status BackUpAccounts(const std::string& folder, const std::string& to);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_ACCOUNTS_ACCOUNT_STORE_H_
