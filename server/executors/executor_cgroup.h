// SPDX-License-Identifier: Apache-2.0
// Control groups of executors: limits on an executor, its compiler and its builders together, and a way to end all of
// them.
//
// Version 2 is used where the daemon's own group is delegated to it, else version 1's memory and pids controllers,
// each where it is writable. Within the daemon's own group, the names of executors' groups begin with a name of the
// state folder, so that the next daemon finds the groups that this one left.
#ifndef HPVMD_SERVER_EXECUTORS_EXECUTOR_CGROUP_H_
#define HPVMD_SERVER_EXECUTORS_EXECUTOR_CGROUP_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hpvm::server {

// CgroupPaths are the folders of the daemon's own groups; empty: none. Either `unified` is set, or some of the
// others.
struct CgroupPaths {
  std::string unified, memory, pids;
};
// Finds them in the texts of /proc/self/cgroup and /proc/self/mountinfo. Does not check whether they are writable.
CgroupPaths FindCgroups(std::string_view self_cgroup, std::string_view mountinfo);

struct CgroupLimits {
  uint64_t memory_bytes_max = 0;  // 0: no limit; the same holds for tasks_max.
  uint64_t tasks_max = 0;         // Number of threads and processes.
};

// ExecutorCgroup is the control group of one executor. Not thread-safe.
class ExecutorCgroup {
 public:
  // Takes groups that exist already; `folders` are its own, `unified` tells their version.
  ExecutorCgroup(std::vector<std::string> folders, bool unified);
  // Kills all processes left in the group, waits for their end, and removes it; takes at most a second.
  ~ExecutorCgroup();
  ExecutorCgroup(const ExecutorCgroup&) = delete;
  ExecutorCgroup& operator=(const ExecutorCgroup&) = delete;

  Status Limit(const CgroupLimits& limits);
  // Adds the process, with all processes that it starts from then on.
  Status Add(int pid) const;
  // Returns true when the kernel killed one of its processes because of the group's memory limit.
  bool RanOutOfMemory() const;
  uint64_t memory_bytes_max() const { return memory_bytes_max_; }

 private:
  const std::vector<std::string> folders_;
  const bool unified_;
  std::atomic<uint64_t> memory_bytes_max_{0};
};

// ExecutorCgroups makes control groups. Thread-safe.
class ExecutorCgroups {
 public:
  // `name` distinguishes this daemon from others. Kills and removes what an earlier daemon with that name left.
  // Returns an error with the reason when no group can be made.
  static StatusOr<std::unique_ptr<ExecutorCgroups>> Create(const CgroupPaths& paths, std::string_view name);
  StatusOr<std::unique_ptr<ExecutorCgroup>> Make(const CgroupLimits& limits);
  // Returns "version 2" or "version 1 (memory, pids)", for the log.
  std::string Describe() const;
  bool bounds_memory() const;

 private:
  ExecutorCgroups(CgroupPaths paths, std::string prefix) : paths_(std::move(paths)), prefix_(std::move(prefix)) {}
  Status UseUnified();
  Status TryOut();
  std::vector<std::string> Parents() const;
  void RemoveLeftovers() const;

  CgroupPaths paths_;
  const std::string prefix_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_EXECUTORS_EXECUTOR_CGROUP_H_
