// SPDX-License-Identifier: Apache-2.0
// Whether the daemon lives and takes work, and why not. Pure.
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
  bool has_started = false;              // Core and store stand.
  std::shared_ptr<const CoreSnapshot> snapshot;  // The last one, shared with the watch; null: none yet.
  // For how long the core has owed a snapshot, the timer's thread a round, the store a commit; 0: nothing is owed.
  Duration core_owes{0}, timer_owes{0}, store_owes{0};
  // Executors that failed to start since one did, and the last time.
  uint32_t spawn_failures = 0;
  Time last_spawn_failure{0};
};

// `reason` is one of: "core", "timer", "store_thread" (not alive); "starting", "draining", "store", "disk_full",
// "executors", "sandbox", "devices".
struct HealthReason {
  std::string reason, detail;
  friend bool operator==(const HealthReason&, const HealthReason&) = default;
};

struct HealthReport {
  bool live = true, ready = true;
  std::vector<HealthReason> reasons;  // Those of not being alive first.
  std::optional<SandboxFacts> sandbox;  // Of the executor that started last.
};
HealthReport Assess(const HealthFacts& facts);

// {"ready":false,"reasons":[{"reason":"draining","detail":"…"}]}; `key` is "ready" or "live". With what the last
// executor said of its sandbox: "sandbox":{"level":3,"detail":"…"}.
std::string ToJson(std::string_view key, bool value, const std::vector<HealthReason>& reasons,
                   const std::optional<SandboxFacts>& sandbox = std::nullopt);

// Whether queues are so full that clients should slow down: from 80 % on, until below 50 %.
class Congestion {
 public:
  bool Update(uint64_t queued, uint64_t queued_max);
  bool is_congested() const { return is_congested_; }

 private:
  bool is_congested_ = false;
};

// Daemons like this one that the present work would keep busy: all that runs or waits, over what one runs at a time.
uint64_t DesiredWorkers(uint64_t queued, uint64_t running, uint64_t running_max);

// The longest of the last 60 values, one a second.
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
