// SPDX-License-Identifier: Apache-2.0
// What the parts of one simulated world share: its time, its events, its trace, and the first promise that was broken.
//
// A world is single-threaded and knows nothing of the machine's time: the clock moves to whatever is due next. Every
// choice comes from the seed, by a stream of random numbers for each purpose, so that a change in one part leaves the
// others' choices as they were.
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

// A hash of every line, and the last lines for whoever must explain a failure.
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

// What is to happen, in order of time, then of arrival.
class EventQueue {
 public:
  explicit EventQueue(ManualClock& clock) : clock_(clock) {}
  // `owner`: 0 for the world, else a daemon's incarnation, whose events go with it.
  void After(Duration delay, uint64_t owner, std::function<void()> action);
  // Owners below this are gone.
  void ForgetOwnersBelow(uint64_t owner) { first_owner_ = owner; }
  // kNever when there is none.
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
  // Only the first counts.
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
  // The largest that was configured so far.
  uint64_t queued_per_tenant_max = plan.config.jobs_queued_per_tenant_max;
  uint64_t incarnation = 0;  // Of the daemon that lives, or lived last.
  std::optional<Failure> failure;
};

// Whether something that happens in so many of 1,000 cases happens now.
inline bool Chance(Rng& rng, uint32_t per_mille) { return per_mille != 0 && rng.Below(1'000) < per_mille; }
// Uniform in [low, high].
inline uint64_t Between(Rng& rng, uint64_t low, uint64_t high) { return low + rng.Below(high - low + 1); }
inline Duration Microseconds(uint64_t us) { return Duration(static_cast<int64_t>(us) * 1'000); }
inline Duration Milliseconds(uint64_t ms) { return Duration(static_cast<int64_t>(ms) * 1'000'000); }
// "job-1a2b3c4d…" as people can tell ids apart in a trace.
inline std::string Short(std::string_view id) { return std::string(id.substr(0, id.find('-') + 19)); }

}  // namespace hpvm::server::sim

#endif  // HPVMD_TESTS_SIM_CONTEXT_H_
