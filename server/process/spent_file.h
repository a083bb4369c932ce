// SPDX-License-Identifier: Apache-2.0
// The tenants' consumption (device time, compile time, requests), kept in the state folder: a restart neither refills
// a quota nor forgets usage.
//
// The file is replaced as a whole, every two seconds while anything is consumed, and when the daemon stops: a daemon
// that is killed loses at most the consumption since then.
#ifndef HPVMD_SERVER_PROCESS_SPENT_FILE_H_
#define HPVMD_SERVER_PROCESS_SPENT_FILE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "base/io/disk.h"
#include "base/round_thread.h"
#include "base/status.h"
#include "scheduler/share/ledger.h"

namespace hpvm::server {

// A tenant's consumption by resource; resources that are held have zeros.
struct TenantSpent {
  int64_t unix_ns = 0;  // Time of these values.
  std::array<scheduler::Ledger::Spent, scheduler::kResourceCount> spent{};
};
using SpentByTenant = std::map<std::string, TenantSpent>;

// Maximum number of tenants in the file; those with the oldest consumption are left out first.
inline constexpr size_t kSpentTenantsMax = 10'000;

// Returns nothing when there is no such file; kDataLoss when it is damaged.
StatusOr<SpentByTenant> ReadSpent(const std::string& path, Disk& disk = RealDisk());
// Durable when it returns OK.
Status WriteSpent(const std::string& path, const SpentByTenant& spent, Disk& disk = RealDisk());

// SpentKeeper writes the file, on a thread of its own.
class SpentKeeper {
 public:
  // `known` is the file's contents; `look` returns the current values of the tenants seen since the start, and is
  // called on the keeper's thread and by the destructor.
  SpentKeeper(std::string path, SpentByTenant known, std::function<SpentByTenant()> look);
  ~SpentKeeper();  // Writes the new values.
  SpentKeeper(const SpentKeeper&) = delete;
  SpentKeeper& operator=(const SpentKeeper&) = delete;

 private:
  void Keep();

  const std::string path_;
  const std::function<SpentByTenant()> look_;
  // This and the next member are used by the thread; by the destructor once the thread has ended.
  SpentByTenant known_;
  bool is_failing_ = false;
  RoundThread thread_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_PROCESS_SPENT_FILE_H_
