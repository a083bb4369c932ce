// SPDX-License-Identifier: Apache-2.0
// Control groups of executors: what one of them, its compiler and its builders may take together, and their common end.
//
// Version 2 where the daemon's own group is delegated to it, else version 1's memory and pids controllers, each where
// it may be written. In a daemon's own group every executor's has a name that begins with one of the state folder, so
// that the next daemon finds what this one left.
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

// The daemon's own groups, as folders; empty: none. `unified`, or some of the others.
struct CgroupPlaces {
  std::string unified, memory, pids;
};
// From the texts of /proc/self/cgroup and /proc/self/mountinfo. Says where they are, not whether they can be written.
CgroupPlaces FindCgroups(std::string_view self_cgroup, std::string_view mountinfo);

struct CgroupLimits {
  uint64_t memory_bytes_max = 0;  // 0: none, as below.
  uint64_t tasks_max = 0;         // Threads and processes.
};

// One executor's. Not for several threads at once.
class ExecutorCgroup {
 public:
  // Made already; `folders` are its own, `unified` says of which version.
  ExecutorCgroup(std::vector<std::string> folders, bool unified);
  // Kills whatever is left in it, waits for that, and removes it; at most a second.
  ~ExecutorCgroup();
  ExecutorCgroup(const ExecutorCgroup&) = delete;
  ExecutorCgroup& operator=(const ExecutorCgroup&) = delete;

  Status Limit(const CgroupLimits& limits);
  // With everything that it starts from then on.
  Status Add(int pid) const;
  // Whether the kernel ended one of its processes for the group's memory.
  bool RanOutOfMemory() const;
  uint64_t memory_bytes_max() const { return memory_bytes_max_; }

 private:
  const std::vector<std::string> folders_;
  const bool unified_;
  std::atomic<uint64_t> memory_bytes_max_{0};
};

// Makes them. Any thread.
class ExecutorCgroups {
 public:
  // `name` tells this daemon's from others'. Ends and removes what an earlier daemon of the name left. A status saying
  // why when no group can be made.
  static StatusOr<std::unique_ptr<ExecutorCgroups>> Create(const CgroupPlaces& places, std::string_view name);
  StatusOr<std::unique_ptr<ExecutorCgroup>> Make(const CgroupLimits& limits);
  // "version 2", "version 1 (memory, pids)": for the log.
  std::string Describe() const;
  bool bounds_memory() const;

 private:
  ExecutorCgroups(CgroupPlaces places, std::string prefix) : places_(std::move(places)), prefix_(std::move(prefix)) {}
  Status UseUnified();
  Status TryOut();
  std::vector<std::string> Parents() const;
  void RemoveLeftovers() const;

  CgroupPlaces places_;
  const std::string prefix_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_EXECUTORS_EXECUTOR_CGROUP_H_
