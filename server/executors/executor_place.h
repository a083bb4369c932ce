// SPDX-License-Identifier: Apache-2.0
// What one executor process has of the machine for itself: a user id, a control group, a scratch folder. Given out
// before the process starts, taken back when nothing of it is left.
//
// A user id also stands for a group id. A tenant's cache folder belongs to the daemon, and to the group of the one
// process that serves the tenant now, which changes with the process; what lies in it was made by processes of earlier
// ids and is readable for whoever can enter the folder, which is that group. So no file of a tenant's ever changes
// hands.
#ifndef HPVMD_SERVER_EXECUTORS_EXECUTOR_PLACE_H_
#define HPVMD_SERVER_EXECUTORS_EXECUTOR_PLACE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "server/config/config.h"
#include "server/executors/executor_cgroup.h"
#include "server/executors/executor_ids.h"

namespace hpvm::server {

// One process's. Destroyed after the process has been reaped, on a thread that may wait: ends what the process left,
// for up to a second, and removes its folder.
class ExecutorPlace {
 public:
  ~ExecutorPlace();
  ExecutorPlace(const ExecutorPlace&) = delete;
  ExecutorPlace& operator=(const ExecutorPlace&) = delete;

  uint32_t uid() const { return uid_; }  // And group id; 0: the daemon's.
  const std::string& scratch() const { return scratch_; }
  ExecutorCgroup* cgroup() const { return cgroup_.get(); }  // Null: none.
  // For the message that tells how the process ended; empty: nothing to say. Any thread.
  std::string WhyEnded() const;

 private:
  friend class ExecutorPlaces;
  ExecutorPlace() = default;
  uint32_t uid_ = 0;
  std::string scratch_;
  std::unique_ptr<ExecutorCgroup> cgroup_;
  ExecutorIds* ids_ = nullptr;  // Null: none was taken.
};

// Any thread. Lives longer than every place of it.
class ExecutorPlaces {
 public:
  // What config.executor_uid_first and config.executor_cgroup ask for, as far as this process may; says in the log what
  // it may not. Removes scratch folders and control groups of an earlier daemon on the same state folder.
  // `program` is what the processes run.
  static StatusOr<std::unique_ptr<ExecutorPlaces>> Create(const Config& config, const std::string& state_folder,
                                                          const std::string& program);
  StatusOr<std::unique_ptr<ExecutorPlace>> Take(const CgroupLimits& limits);
  // The tenant's cache folder, for the process in `place` and no other.
  StatusOr<std::string> CacheFolder(const std::string& tenant, const ExecutorPlace& place) const;

 private:
  ExecutorPlaces() = default;
  Status PrepareFolders();

  std::string state_folder_;
  std::unique_ptr<ExecutorIds> ids_;
  std::unique_ptr<ExecutorCgroups> cgroups_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_EXECUTORS_EXECUTOR_PLACE_H_
