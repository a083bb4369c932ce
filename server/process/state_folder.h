// SPDX-License-Identifier: Apache-2.0
// The daemon's own folder: one daemon at a time, and a record of the processes that it started.
//
//   lock                  locked as long as a daemon runs; holds its process id, for people
//   executors/PID         one link a process: what must agree before the next daemon ends it
//   cache/TENANT/         compiled kernels
//   jobs.db, blobs/       the job store
//   identity.sqlite       tenants and tokens
//   audit/                who changed what
//   spent.json            what tenants have spent
//   intake.json           whether an administrator lets work be started
//
// Executors, compilers and drivers' builders die with their parents by themselves. What this adds is certainty: a
// daemon that puts a job back into the queue must know that the earlier attempt has ended, also where a process was
// stopped, or sat in a driver.
#ifndef HPVMD_SERVER_PROCESS_STATE_FOLDER_H_
#define HPVMD_SERVER_PROCESS_STATE_FOLDER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/io/fd.h"
#include "base/status.h"

namespace hpvm::server {

// Any thread, but for EndLeftovers.
class StateFolder {
 public:
  // Makes the folder (mode 0700) if it is missing, takes its lock, and takes away what modes give to others.
  // kFailedPrecondition naming the process that holds the lock.
  static StatusOr<std::unique_ptr<StateFolder>> Open(const std::string& path);
  StateFolder(const StateFolder&) = delete;
  StateFolder& operator=(const StateFolder&) = delete;

  const std::string& path() const { return path_; }
  // Files and folders that others could have read, as after a backup was restored by hand: Open took that away.
  uint64_t tightened() const { return tightened_; }

  struct Leftovers {
    uint64_t processes = 0;  // Ended.
    uint64_t files = 0;      // Removed: half-written and private ones of those processes.
    Duration took{0};
  };
  // Ends what an earlier daemon left and waits until it is gone; to be called before anything is started.
  // kUnavailable naming the process that is still there after `within`.
  StatusOr<Leftovers> EndLeftovers(Duration within = std::chrono::seconds(10));

  // Remembers a child of this process until Forget, before it has been told anything.
  Status Record(int pid);
  void Forget(int pid);

 private:
  StateFolder(std::string path, UniqueFd lock, uint64_t tightened)
      : path_(std::move(path)), lock_(std::move(lock)), tightened_(tightened) {}
  const std::string path_;
  const UniqueFd lock_;
  const uint64_t tightened_;
};

// A state folder for one daemon's life: /tmp/hpvmd-dev-XXXXXX. Those of daemons that were killed are removed first,
// with their processes.
StatusOr<std::string> MakeTemporaryStateFolder();
// Removes it with all that is in it.
void RemoveTemporaryStateFolder(const std::string& path);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_PROCESS_STATE_FOLDER_H_
