// SPDX-License-Identifier: Apache-2.0
// ExecutorConfinement is one executor process's share of the machine: a user id, a control group, a scratch folder,
// processors. It is assigned before the process starts, and taken back when nothing of the process is left.
//
// A user id is also used as a group id. A tenant's cache folder belongs to the daemon, and to the group of the one
// process that serves the tenant now, which changes with the process. Files in it were made by processes with earlier
// ids, and are readable for everyone who can enter the folder, which is that group. So no file of a tenant ever
// changes its owner.
#ifndef HPVMD_SERVER_EXECUTORS_EXECUTOR_CONFINEMENT_H_
#define HPVMD_SERVER_EXECUTORS_EXECUTOR_CONFINEMENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "server/config/config.h"
#include "server/executors/executor_cgroup.h"
#include "server/executors/executor_ids.h"
#include "server/process/processors.h"

namespace hpvm::server {

// Destroyed after the process has been reaped, on a thread that may block: kills the processes that it left, for up to
// a second, and removes its folder.
class ExecutorConfinement {
 public:
  ~ExecutorConfinement();
  ExecutorConfinement(const ExecutorConfinement&) = delete;
  ExecutorConfinement& operator=(const ExecutorConfinement&) = delete;

  uint32_t uid() const { return uid_; }  // Also the group id; 0: the daemon's.
  const std::string& scratch() const { return scratch_; }
  ExecutorCgroup* cgroup() const { return cgroup_.get(); }             // Null: none.
  const std::vector<uint32_t>& cpus() const { return cpus_->cpus(); }  // Processors to run on; empty: the daemon's.
  // Returns a text for the message about the process's end; empty when there is nothing to add. Thread-safe.
  std::string WhyEnded() const;

 private:
  friend class ConfinementPool;
  ExecutorConfinement() = default;
  uint32_t uid_ = 0;
  std::string scratch_;
  std::unique_ptr<ExecutorCgroup> cgroup_;
  std::unique_ptr<CpuPartition::Share> cpus_;
  ExecutorIds* ids_ = nullptr;  // Null: no id was taken.
};

// Returns the plan for this machine's processors according to config.cpu_reserved_cores and config.cpu_numa.
StatusOr<std::unique_ptr<CpuPartition>> PartitionCpus(const Config& config);

// Thread-safe. Outlives all of its confinements.
class ConfinementPool {
 public:
  // Follows config.executor_uid_first and config.executor_cgroup, as far as this process may, and logs what it may
  // not. Removes scratch folders and control groups of an earlier daemon on the same state folder.
  // `program` is the program of the processes.
  static StatusOr<std::unique_ptr<ConfinementPool>> Create(const Config& config, const std::string& state_folder,
                                                           const std::string& program);
  StatusOr<std::unique_ptr<ExecutorConfinement>> Take(const CgroupLimits& limits);
  // Returns the tenant's cache folder, made accessible to the process in `confinement` and to no other.
  StatusOr<std::string> CacheFolder(const std::string& tenant, const ExecutorConfinement& confinement) const;

 private:
  ConfinementPool() = default;
  Status PrepareFolders();

  std::string state_folder_;
  std::unique_ptr<ExecutorIds> ids_;
  std::unique_ptr<ExecutorCgroups> cgroups_;
  std::unique_ptr<CpuPartition> cpus_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_EXECUTORS_EXECUTOR_CONFINEMENT_H_
