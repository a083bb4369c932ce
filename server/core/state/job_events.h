// SPDX-License-Identifier: Apache-2.0
// JobEvents keeps the history of one job for WatchJob: changes of state, phases, and the last placements.
#ifndef HPVMD_SERVER_CORE_STATE_JOB_EVENTS_H_
#define HPVMD_SERVER_CORE_STATE_JOB_EVENTS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "hpvm/v1/job.pb.h"

namespace hpvm::server {

inline constexpr size_t kPlacementsKeptMax = 1'000;
// Limit on states, phases and progress, without which a job that is retried without end would grow.
inline constexpr size_t kOtherEventsKeptMax = 256;

// Limits on the lines that kernels print while they run: the size of one log, of which the oldest lines are dropped.
inline constexpr size_t kLiveLogBytesKeptMax = 64 * 1024;
inline constexpr size_t kLiveLogsKeptMax = 256;

// Guarded by the core's mutex.
class JobEvents {
 public:
  void Add(v1::JobEvent event, int64_t now_unix_ns);
  // Returns at most `count_max` events with a sequence larger than `sequence`, in order.
  std::vector<v1::JobEvent> After(uint64_t sequence, size_t count_max) const;
  // Drops all lines that kernels printed.
  void DropLogs();
  size_t size() const { return placements_.size() + others_.size(); }  // Excludes logs.
  uint64_t last_sequence() const { return next_sequence_ - 1; }

  // Registers a watcher, whose `wake` is called, without the core's mutex, when there is an event to read. Returns the
  // key for Unwatch.
  using Wake = std::function<void()>;
  uint64_t Watch(Wake wake);
  void Unwatch(uint64_t key) { watchers_.erase(key); }
  const std::map<uint64_t, Wake>& watchers() const { return watchers_; }

 private:
  std::deque<v1::JobEvent> placements_, others_, logs_;  // Each in order of sequence.
  size_t log_bytes_ = 0;                                 // Bytes of `logs_`.
  uint64_t next_sequence_ = 1, next_watcher_ = 1;
  std::map<uint64_t, Wake> watchers_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_STATE_JOB_EVENTS_H_
