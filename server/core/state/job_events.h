// SPDX-License-Identifier: Apache-2.0
// What happened to one job, for WatchJob: every change of state, each phase, and the last placements.
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
// States, phases and progress: a job that is retried without end would grow without this.
inline constexpr size_t kOtherEventsKeptMax = 256;

// Guarded by the core's mutex.
class JobEvents {
 public:
  void Add(v1::JobEvent event, int64_t now_unix_ns);
  // At most `count_max` events with a larger sequence, in order.
  std::vector<v1::JobEvent> After(uint64_t sequence, size_t count_max) const;
  size_t size() const { return placements_.size() + others_.size(); }
  uint64_t last_sequence() const { return next_sequence_ - 1; }

  // Watchers are told that there is something to read; each is called without the core's mutex. The key is for Unwatch.
  using Wake = std::function<void()>;
  uint64_t Watch(Wake wake);
  void Unwatch(uint64_t key) { watchers_.erase(key); }
  const std::map<uint64_t, Wake>& watchers() const { return watchers_; }

 private:
  std::deque<v1::JobEvent> placements_, others_;  // Each in order of sequence.
  uint64_t next_sequence_ = 1, next_watcher_ = 1;
  std::map<uint64_t, Wake> watchers_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_STATE_JOB_EVENTS_H_
