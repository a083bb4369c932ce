// SPDX-License-Identifier: Apache-2.0
// Watch is a thread that examines the daemon each second: whether its threads make progress, how full it is, and
// which health it reports.
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
#include "server/core/state/cluster_facts.h"
#include "server/core/state/core_snapshot.h"
#include "server/observe/health.h"
#include "server/observe/prometheus_observer.h"

namespace hpvm::server {

// Heart monitors a loop, which owes a beat after each request. Thread-safe.
class Heart {
 public:
  explicit Heart(const Clock& clock) : clock_(clock) {}
  // Called by the loop, each round.
  void Beat();
  // Requests a beat unless one is owed. Returns how long the last one took, or for how long one has been owed.
  Duration Ask();
  Duration owes() const;

 private:
  const Clock& clock_;
  std::atomic<int64_t> asked_ns_{0};  // 0 when nothing is owed.
  std::atomic<int64_t> answered_in_ns_{0};
};

// The watched objects. Called on the watch's thread, until Unwatch has returned.
struct WatchedParts {
  std::function<CoreSnapshot(bool with_tenants)> snapshot;
  std::function<std::shared_ptr<const Config>()> config;
  std::function<void()> wake_timer;                       // Makes the timer's loop run, and beat.
  std::function<void(bool live, bool ready)> set_health;  // Called at first, and when either has changed.
  std::string store_folder;                               // Holds jobs.db; empty when there is none.
  // Returns whether these credentials ("Bearer …"; empty when missing) allow metrics that name tenants.
  // kUnauthenticated when they are wrong, kUnavailable when that is not known now. Called on the endpoint's thread.
  // When unset, nobody may see them.
  std::function<StatusOr<bool>(std::string_view authorization)> may_see_tenants;
  // The configuration in force, for the metrics. Called on the endpoint's thread.
  std::function<ConfigFacts()> in_force;
  // Never blocks. Unset: the daemon is no host of a cluster.
  std::function<ClusterFacts()> cluster;
  bool wants_tenants = false;  // Lists tenants once a second, with the core's mutex held.
};

class Watch {
 public:
  // The latest state, at most a second old: reading it causes no work in the watch or the core.
  struct View {
    HealthFacts facts;
    HealthReport report;
    bool is_congested = false;
    uint64_t desired_workers = 1;
    Duration loop_stall_max{0};  // Maximum of the last minute.
    uint64_t queued_max = 0;
    std::optional<ClusterFacts> cluster;
  };

  // Borrows its arguments.
  Watch(const Clock& clock, const PrometheusObserver& metrics, Heart& heart);
  void Start(WatchedParts parts);
  void Stop();

  // Thread-safe; never blocks.
  View Look();

 private:
  // Runs each second or sooner; returns the time of the next round.
  Duration Round();
  // Returns whether the daemon is ready.
  bool Assess(bool with_tenants);
  Duration StoreOwes(const JobStoreHealth& store);
  HealthFacts FactsNow() const;

  const Clock& clock_;
  const PrometheusObserver& metrics_;
  Heart& heart_;
  WatchedParts parts_;

  // Used by the thread only.
  std::optional<std::pair<bool, bool>> told_;
  Time periodic_{0}, store_pending_since_ = kNever, store_commit_seen_{0};

  mutable std::mutex mutex_;
  // This and the following members are guarded by mutex_.
  bool has_started_ = false;
  std::shared_ptr<const CoreSnapshot> snapshot_;
  Time asked_core_ = kNever;
  Duration store_owes_{0};
  Congestion congestion_;
  uint64_t desired_workers_ = 1, queued_max_ = 0;
  std::optional<ClusterFacts> cluster_;
  MinuteMax stalls_;
  std::optional<RoundThread> thread_;  // Set once there is something to watch.
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_OBSERVE_WATCH_H_
