// SPDX-License-Identifier: Apache-2.0
// Dependencies tracks which jobs of one tenant wait for which others, and the effect of a job's end on its waiters. It
// does no I/O.
//
// A waiter waits for a job or a whole array, each one unit. All waiters for a unit with the same condition have the
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

// Number of jobs of a unit by state.
struct UnitState {
  uint64_t live = 0, succeeded = 0, failed = 0;  // failed: ended, but not as SUCCEEDED.
  friend bool operator==(const UnitState&, const UnitState&) = default;
};
// Returns the state of one job.
UnitState UnitOf(v1::JobState state);

enum class Verdict : uint8_t { kPending, kMet, kNever };
Verdict Judge(v1::JobDependency::Condition condition, const UnitState& unit);
// WaitSentence returns "Waits for job-… to succeed."; NeverSentence the text for FAILED_PRECONDITION: "The job comes
// after job-…, which was to succeed and did not; …".
std::string WaitSentence(const v1::JobDependency& dependency);
std::string NeverSentence(const v1::JobDependency& dependency);

class Dependencies {
 public:
  // Makes `waiter` wait for all of `on`, which are pending now. The same dependency twice counts once.
  void Add(const std::string& waiter, const std::vector<v1::JobDependency>& on);
  // Removes the waiter with all of its dependencies.
  void Remove(const std::string& waiter);

  struct Change {
    std::string waiter;
    Verdict verdict = Verdict::kMet;  // kMet: all dependencies are met; or kNever, because of:
    v1::JobDependency because;
  };
  // Reports the present state of a unit. Returns the waiters that changed, which are removed. Visits at most
  // `count_max` waiters: `*more` says whether others are left, for another call.
  std::vector<Change> OnState(const std::string& unit, const UnitState& state, size_t count_max, bool* more);

  // Returns the dependencies for which `waiter` still waits; empty: none.
  std::vector<v1::JobDependency> PendingOf(const std::string& waiter) const;
  bool IsWaitedFor(const std::string& unit) const;
  bool IsWaiting(const std::string& waiter) const { return pending_.contains(waiter); }
  size_t size() const { return pending_.size(); }

 private:
  using Requirement = std::pair<std::string, int>;  // Unit and condition.
  void Drop(const Requirement& requirement, const std::string& waiter);

  std::map<std::string, std::set<Requirement>> pending_;  // Keyed by waiter.
  std::map<Requirement, std::set<std::string>> waiters_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_JOBS_ROWS_DEPENDENCIES_H_
