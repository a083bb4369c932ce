// SPDX-License-Identifier: Apache-2.0
// State shared by the parts of one simulated world: its time, its events, its trace, and the first broken promise.
//
// A world is single-threaded and independent of real time: the clock jumps to the next due event. Every choice comes
// from the seed, with a separate stream of random numbers for each purpose, so that a change in one part leaves the
// others' choices unchanged.
#ifndef HPVMD_TESTS_SIM_CONTEXT_H_
#define HPVMD_TESTS_SIM_CONTEXT_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "tests/sim/plan.h"

namespace hpvm::server::sim {

// A hash of all lines, and the last lines, to explain a failure.
class Trace {
 public:
  Trace(const ManualClock& clock, bool prints) : clock_(clock), prints_(prints) {}
  void Add(std::string_view who, std::string_view what);
  uint64_t hash() const { return hash_; }
  uint64_t lines() const { return lines_; }
  const std::deque<std::string>& last() const { return last_; }

 private:
  static constexpr size_t kKept = 120;
  const ManualClock& clock_;
  const bool prints_;
  uint64_t hash_ = 0xcbf29ce484222325u, lines_ = 0;
  std::deque<std::string> last_;
};

// Future events, in order of time, then of insertion.
class EventQueue {
 public:
  explicit EventQueue(ManualClock& clock) : clock_(clock) {}
  // `owner` is 0 for the world, otherwise a daemon's incarnation, whose events are dropped with it.
  void After(Duration delay, uint64_t owner, std::function<void()> action);
  // Drops the events of owners below this one.
  void ForgetOwnersBelow(uint64_t owner) { first_owner_ = owner; }
  // Returns kNever when there is none.
  Time next();
  // Moves the clock to the next event and runs it.
  void RunNext();

 private:
  struct Event {
    Time when{0};
    uint64_t number = 0, owner = 0;
    std::function<void()> action;
  };
  static bool IsLater(const Event& a, const Event& b) {
    return a.when != b.when ? a.when > b.when : a.number > b.number;
  }
  void DropForgotten();

  ManualClock& clock_;
  uint64_t next_number_ = 1, first_owner_ = 0;
  std::vector<Event> heap_;
};

struct Failure {
  std::string checker;  // "durability", "liveness" ...
  std::string sentence;
};

struct Context {
  Context(uint64_t seed, bool prints) : seed(seed), plan(DrawPlan(seed)), events(clock), trace(clock, prints) {}
  Context(const Context&) = delete;

  // A stream of random numbers for one purpose.
  SeededRng RngFor(std::string_view purpose) const;
  // Only the first failure counts.
  void Fail(std::string_view checker, std::string sentence);
  bool Check(bool holds, std::string_view checker, const std::function<std::string()>& sentence) {
    if (!holds) {
      Fail(checker, sentence());
    }
    return holds;
  }

  const uint64_t seed;
  const Plan plan;
  ManualClock clock;
  EventQueue events;
  Trace trace;
  bool faults_on = true;
  // The largest limit configured so far.
  uint64_t queued_per_tenant_max = plan.config.jobs_queued_per_tenant_max;
  uint64_t incarnation = 0;  // Incarnation of the running daemon, or the last one.
  std::optional<Failure> failure;
};

// Returns true in `per_mille` of 1,000 cases.
inline bool Chance(Rng& rng, uint32_t per_mille) { return per_mille != 0 && rng.Below(1'000) < per_mille; }
// Uniform in [low, high].
inline uint64_t Between(Rng& rng, uint64_t low, uint64_t high) { return low + rng.Below(high - low + 1); }
inline Duration Microseconds(uint64_t us) { return Duration(static_cast<int64_t>(us) * 1'000); }
inline Duration Milliseconds(uint64_t ms) { return Duration(static_cast<int64_t>(ms) * 1'000'000); }
// Shortens "job-1a2b3c4d…" to a distinguishable prefix for a trace.
inline std::string Short(std::string_view id) { return std::string(id.substr(0, id.find('-') + 19)); }

}  // namespace hpvm::server::sim

#endif  // HPVMD_TESTS_SIM_CONTEXT_H_
