// SPDX-License-Identifier: Apache-2.0
// What tenants have spent (device time, compile time, requests), kept in the state folder: a restart neither refills a
// quota nor forgets what was used.
//
// The file is replaced as a whole, every two seconds while something is spent, and when the daemon stops: a daemon that
// is killed forgets at most what was spent since.
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

// What one tenant has spent, by resource; resources that are held have zeros.
struct TenantSpent {
  int64_t unix_ns = 0;  // When it was so.
  std::array<scheduler::Ledger::Spent, scheduler::kResourceCount> spent{};
};
using SpentByTenant = std::map<std::string, TenantSpent>;

// Tenants beyond so many are left out of the file, those that spent something the longest ago first.
inline constexpr size_t kSpentTenantsMax = 10'000;

// Nothing when there is no such file. kDataLoss for one that is not whole.
StatusOr<SpentByTenant> ReadSpent(const std::string& path, Disk& disk = RealDisk());
// On disk when it returns.
Status WriteSpent(const std::string& path, const SpentByTenant& spent, Disk& disk = RealDisk());

// Writes the file, on a thread of its own.
class SpentKeeper {
 public:
  // `known` is what the file held; `look` says what stands where now, of the tenants that came since the start, and is
  // called on the keeper's thread and by the destructor.
  SpentKeeper(std::string path, SpentByTenant known, std::function<SpentByTenant()> look);
  ~SpentKeeper();  // Writes what is new.
  SpentKeeper(const SpentKeeper&) = delete;
  SpentKeeper& operator=(const SpentKeeper&) = delete;

 private:
  void Keep();

  const std::string path_;
  const std::function<SpentByTenant()> look_;
  SpentByTenant known_;  // The thread's own, as is the next; the destructor's once that has ended.
  bool is_failing_ = false;
  RoundThread thread_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_PROCESS_SPENT_FILE_H_
