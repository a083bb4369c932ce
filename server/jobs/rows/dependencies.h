// SPDX-License-Identifier: Apache-2.0
// Which job waits for which, and what an end means for those that wait. One tenant's; pure.
//
// What is waited for is a job or a whole array, each one unit. Whoever waits for a unit with the same condition has the
// same verdict, so an array's element that ends costs nothing as long as it decides nothing.
#ifndef HPVMD_SERVER_JOBS_ROWS_DEPENDENCIES_H_
#define HPVMD_SERVER_JOBS_ROWS_DEPENDENCIES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "hpvm/v1/job.pb.h"

namespace hpvm::server {

// How the jobs of a unit stand.
struct UnitState {
  uint64_t live = 0, succeeded = 0, failed = 0;  // failed: ended, but not as SUCCEEDED.
  friend bool operator==(const UnitState&, const UnitState&) = default;
};
// Of one job.
UnitState UnitOf(v1::JobState state);

enum class Verdict : uint8_t { kPending, kMet, kNever };
Verdict Judge(v1::JobDependency::Condition condition, const UnitState& unit);
// "Waits for job-… to succeed.", and for FAILED_PRECONDITION: "Job job-… did not succeed, …".
std::string WaitSentence(const v1::JobDependency& dependency);
std::string NeverSentence(const v1::JobDependency& dependency);

class Dependencies {
 public:
  // `waiter` waits for all of `on`, which are pending now. The same dependency twice counts once.
  void Add(const std::string& waiter, const std::vector<v1::JobDependency>& on);
  // It waits no longer, whatever for.
  void Remove(const std::string& waiter);

  struct Change {
    std::string waiter;
    Verdict verdict = Verdict::kMet;  // All that it waited for is met; or kNever:
    v1::JobDependency because;
  };
  // A unit stands like this now. Waiters that changed; those are removed. Looks at `count_max` waiters at most:
  // `*more` says whether others are left, for another call.
  std::vector<Change> OnState(const std::string& unit, const UnitState& state, size_t count_max, bool* more);

  // What `waiter` still waits for; empty: nothing.
  std::vector<v1::JobDependency> PendingOf(const std::string& waiter) const;
  bool IsWaitedFor(const std::string& unit) const;
  bool IsWaiting(const std::string& waiter) const { return pending_.contains(waiter); }
  size_t size() const { return pending_.size(); }

 private:
  using Wish = std::pair<std::string, int>;  // Of a unit, a condition.
  void Drop(const Wish& wish, const std::string& waiter);

  std::map<std::string, std::set<Wish>> pending_;  // By waiter.
  std::map<Wish, std::set<std::string>> waiters_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_JOBS_ROWS_DEPENDENCIES_H_
