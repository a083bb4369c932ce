// SPDX-License-Identifier: Apache-2.0
// A thread that looks at the daemon each second: whether its threads move, how full it is, how it should report itself.
#ifndef HPVMD_SERVER_OBSERVE_WATCH_H_
#define HPVMD_SERVER_OBSERVE_WATCH_H_

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/round_thread.h"
#include "server/config/config_print.h"
#include "server/core/state/core_snapshot.h"
#include "server/observe/health.h"
#include "server/observe/prometheus_observer.h"

namespace hpvm::server {

// A loop that owes a beat now and then. Any thread.
class Heart {
 public:
  explicit Heart(const Clock& clock) : clock_(clock) {}
  // By the loop, each round.
  void Beat();
  // Asks for a beat unless one is owed. Answers how long the last one took, or for how long one has been owed.
  Duration Ask();
  Duration owes() const;

 private:
  const Clock& clock_;
  std::atomic<int64_t> asked_ns_{0};  // 0: nothing is owed.
  std::atomic<int64_t> answered_in_ns_{0};
};

// What is watched. Called on the watch's thread, until Unwatch has returned.
struct WatchedParts {
  std::function<CoreSnapshot(bool with_tenants)> snapshot;
  std::function<std::shared_ptr<const Config>()> config;
  std::function<void()> wake_timer;                       // Makes the timer's loop go round, and beat.
  std::function<void(bool live, bool ready)> set_health;  // When either has changed, and at first.
  std::string store_folder;                               // With jobs.db; empty: none.
  // Whether whoever shows these credentials ("Bearer …") may see metrics that name tenants; empty: nobody showed any.
  // kUnauthenticated when they are wrong. On the endpoint's thread. Without it nobody may.
  std::function<StatusOr<bool>(std::string_view authorization)> may_see_tenants;
  std::function<ConfigFacts()> in_force;  // Of the configuration, for the metrics. On the endpoint's thread.
  bool wants_tenants = false;             // Once a second; they are walked over with the core held.
};

class Watch {
 public:
  // What there is to know, a second old at most: nobody who looks makes the watch, or the core, do anything.
  struct View {
    HealthFacts facts;
    HealthReport report;
    bool is_congested = false;
    uint64_t desired_workers = 1;
    Duration loop_stall_max{0};  // Of the last minute.
    uint64_t queued_max = 0;
  };

  // Borrows what it is given.
  Watch(const Clock& clock, const PrometheusObserver& metrics, Heart& heart);
  void Start(WatchedParts parts);
  void Stop();

  // Any thread; waits for nothing.
  View Look();

 private:
  // Each second or sooner; answers when next.
  Duration Round();
  // Returns whether the daemon is ready.
  bool Assess(bool with_tenants);
  Duration StoreOwes(const JobStoreHealth& store);
  HealthFacts FactsNow() const;

  const Clock& clock_;
  const PrometheusObserver& metrics_;
  Heart& heart_;
  WatchedParts parts_;

  // The thread's own.
  std::optional<std::pair<bool, bool>> told_;
  Time periodic_{0}, store_pending_since_ = kNever, store_commit_seen_{0};

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  bool has_started_ = false;
  std::shared_ptr<const CoreSnapshot> snapshot_;
  Time asked_core_ = kNever;
  Duration store_owes_{0};
  Congestion congestion_;
  uint64_t desired_workers_ = 1, queued_max_ = 0;
  MinuteMax stalls_;
  std::optional<RoundThread> thread_;  // Once there is something to watch.
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_OBSERVE_WATCH_H_
