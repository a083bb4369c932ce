// SPDX-License-Identifier: Apache-2.0
// DiskVfs runs SQLite over a Disk, for tests and simulations: the daemon itself uses SQLite's own access to the
// kernel's files.
//
// Locks and the shared memory of WAL mode are kept in the process, by path: several connections work, several
// processes do not. Time and randomness come from the caller, so that a simulation replays; waiting for a lock takes
// no time.
//
// The order of a crash: SimDisk::PowerOffAfter(0), close every connection (they fail to write, as intended),
// SimDisk::Crash, open again. Locks and shared memory end with their connections.
#ifndef HPVMD_SERVER_JOBS_TESTING_DISK_VFS_H_
#define HPVMD_SERVER_JOBS_TESTING_DISK_VFS_H_

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/io/disk.h"
#include "base/status.h"

namespace hpvm::server {

// While it lives, databases may be opened by name(); close them first.
class DiskVfs {
 public:
  // All arguments are borrowed, and used from any thread that uses SQLite. Also seeds, from `rng`, the randomness that
  // SQLite keeps for the whole process: simulations in several threads of one process do not replay.
  static StatusOr<std::unique_ptr<DiskVfs>> Register(Disk& disk, const Clock& clock, Rng& rng);
  ~DiskVfs();
  DiskVfs(const DiskVfs&) = delete;
  DiskVfs& operator=(const DiskVfs&) = delete;

  // For sqlite3_open_v2; unique.
  const std::string& name() const;
  // Number of times that a connection waited for a lock, one for each interval.
  uint64_t sleeps() const;

  struct State;

 private:
  explicit DiskVfs(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_JOBS_TESTING_DISK_VFS_H_
