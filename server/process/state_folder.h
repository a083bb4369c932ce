// SPDX-License-Identifier: Apache-2.0
// StateFolder is the daemon's own folder: it admits one daemon at a time, and records the processes that the daemon
// started.
//
//   lock                  locked as long as a daemon runs; holds its process id, for people
//   executors/PID         one link per process: facts that must match before the next daemon ends it
//   cache/TENANT/         compiled kernels
//   jobs.db, blobs/       the job store
//   identity.sqlite       tenants and tokens
//   audit/                who changed what
//   spent.json            the tenants' consumption
//   intake.json           whether an administrator lets work be started
//   accounts.sqlite       the tenants' usage, by day
//
// Executors, compilers and drivers' builders die with their parents by themselves. This class makes sure: a daemon
// that requeues a job must know that the earlier attempt has ended, even when a process was stopped, or hung in a
// driver.
#ifndef HPVMD_SERVER_PROCESS_STATE_FOLDER_H_
#define HPVMD_SERVER_PROCESS_STATE_FOLDER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/io/fd.h"
#include "base/status.h"

namespace hpvm::server {

// Thread-safe, except EndLeftovers.
class StateFolder {
 public:
  // Creates the folder (mode 0700) if it is missing, takes its lock, and removes the permissions of others.
  // kFailedPrecondition naming the process that holds the lock.
  static StatusOr<std::unique_ptr<StateFolder>> Open(const std::string& path);
  StateFolder(const StateFolder&) = delete;
  StateFolder& operator=(const StateFolder&) = delete;

  const std::string& path() const { return path_; }
  // Number of files and folders whose permissions Open restricted, for example after a backup was restored by hand.
  uint64_t tightened() const { return tightened_; }

  struct Leftovers {
    uint64_t processes = 0;  // Ended.
    uint64_t files = 0;      // Removed: partial and private files of those processes.
    Duration took{0};
  };
  // Ends the processes that an earlier daemon left and waits until they are gone; to be called before anything is
  // started. kUnavailable naming a process that still exists after `within`.
  StatusOr<Leftovers> EndLeftovers(Duration within = std::chrono::seconds(10));

  // Records a child of this process until Forget, before it receives any request.
  Status Record(int pid);
  void Forget(int pid);

 private:
  StateFolder(std::string path, UniqueFd lock, uint64_t tightened)
      : path_(std::move(path)), lock_(std::move(lock)), tightened_(tightened) {}
  const std::string path_;
  const UniqueFd lock_;
  const uint64_t tightened_;
};

// Makes a state folder for one daemon's lifetime: /tmp/hpvmd-dev-XXXXXX. Folders of killed daemons are removed first,
// with their processes.
StatusOr<std::string> MakeTemporaryStateFolder();
// Removes the folder with all its contents.
void RemoveTemporaryStateFolder(const std::string& path);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_PROCESS_STATE_FOLDER_H_
