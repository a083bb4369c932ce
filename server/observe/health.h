// SPDX-License-Identifier: Apache-2.0
// Health: whether the daemon is live and ready, and the reasons if not. Pure.
#ifndef HPVMD_SERVER_OBSERVE_HEALTH_H_
#define HPVMD_SERVER_OBSERVE_HEALTH_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "server/core/state/core_snapshot.h"

namespace hpvm::server {

struct HealthFacts {
  Time now{0};
  bool has_started = false;  // Core and store are running.
  // The latest snapshot, shared with the watch; null when there is none yet.
  std::shared_ptr<const CoreSnapshot> snapshot;
  // Time for which the core has owed a snapshot, the timer's thread a round, and the store a commit; 0 when nothing
  // is owed.
  Duration core_owes{0}, timer_owes{0}, store_owes{0};
  // Number of executors that failed to start since the last successful start, and the time of the last failure.
  uint32_t spawn_failures = 0;
  Time last_spawn_failure{0};
};

// `reason` is "core", "timer" or "store_thread" (not live), or "starting", "draining", "closed", "disk_full", "store",
// "executors", "sandbox" or "devices" (not ready).
struct HealthReason {
  std::string reason, detail;
  friend bool operator==(const HealthReason&, const HealthReason&) = default;
};

struct HealthReport {
  bool live = true, ready = true;
  std::vector<HealthReason> reasons;    // Reasons for not being live come first.
  std::optional<SandboxFacts> sandbox;  // Sandbox of the executor that started last.
};
HealthReport Assess(const HealthFacts& facts);

// Formats {"ready":false,"reasons":[{"reason":"draining","detail":"…"}]}; `key` is "ready" or "live". Adds the
// sandbox of the last executor: "sandbox":{"level":3,"detail":"…"}.
std::string ToJson(std::string_view key, bool value, const std::vector<HealthReason>& reasons,
                   const std::optional<SandboxFacts>& sandbox = std::nullopt);

// Congestion decides whether queues are so full that clients should slow down: from 80 % on, until below 50 %.
class Congestion {
 public:
  bool Update(uint64_t queued, uint64_t queued_max);
  bool is_congested() const { return is_congested_; }

 private:
  bool is_congested_ = false;
};

// Returns the number of daemons like this one that the present work would keep busy: running and waiting work over
// the maximum that one runs at a time.
uint64_t DesiredWorkers(uint64_t queued, uint64_t running, uint64_t running_max);

// MinuteMax is the maximum of the last 60 values, one per second.
class MinuteMax {
 public:
  void Push(Duration value);
  Duration max() const;

 private:
  std::array<Duration, 60> values_{};
  size_t next_ = 0;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_OBSERVE_HEALTH_H_
