// SPDX-License-Identifier: Apache-2.0
#include "server/jobs/rows/dependencies.h"

#include "server/jobs/rows/job_database.h"

namespace hpvm::server {
namespace {

v1::JobDependency MakeDependency(const std::string& unit, int condition) {
  v1::JobDependency dependency;
  dependency.set_job_id(unit);
  dependency.set_condition(static_cast<v1::JobDependency::Condition>(condition));
  return dependency;
}

}  // namespace

UnitState UnitOf(v1::JobState state) {
  UnitState unit;
  (state == v1::JOB_STATE_SUCCEEDED ? unit.succeeded : IsTerminal(state) ? unit.failed : unit.live) = 1;
  return unit;
}

Verdict Judge(v1::JobDependency::Condition condition, const UnitState& unit) {
  if (unit == UnitState()) {
    return Verdict::kNever;  // A condition on unknown jobs cannot be met.
  }
  if (condition == v1::JobDependency::CONDITION_ENDED) {
    return unit.live == 0 ? Verdict::kMet : Verdict::kPending;
  }
  const uint64_t against = condition == v1::JobDependency::CONDITION_FAILED ? unit.succeeded : unit.failed;
  if (against > 0) {
    return Verdict::kNever;
  }
  return unit.live == 0 ? Verdict::kMet : Verdict::kPending;
}

std::string WaitSentence(const v1::JobDependency& dependency) {
  const char* requirement = dependency.condition() == v1::JobDependency::CONDITION_ENDED    ? " to end."
                            : dependency.condition() == v1::JobDependency::CONDITION_FAILED ? " to fail."
                                                                                            : " to succeed.";
  return "Waits for " + dependency.job_id() + requirement;
}

std::string NeverSentence(const v1::JobDependency& dependency) {
  const bool wants_failure = dependency.condition() == v1::JobDependency::CONDITION_FAILED;
  return "The job comes after " + dependency.job_id() + ", which was to " + (wants_failure ? "fail" : "succeed") +
         " and did not; it was not started.";
}

void Dependencies::Add(const std::string& waiter, const std::vector<v1::JobDependency>& on) {
  for (const v1::JobDependency& dependency : on) {
    const Requirement requirement{dependency.job_id(), dependency.condition()};
    pending_[waiter].insert(requirement);
    waiters_[requirement].insert(waiter);
  }
}

void Dependencies::Drop(const Requirement& requirement, const std::string& waiter) {
  if (const auto waiters = waiters_.find(requirement); waiters != waiters_.end()) {
    waiters->second.erase(waiter);
    if (waiters->second.empty()) {
      waiters_.erase(waiters);
    }
  }
}

void Dependencies::Remove(const std::string& waiter) {
  const auto found = pending_.find(waiter);
  if (found == pending_.end()) {
    return;
  }
  for (const Requirement& requirement : found->second) {
    Drop(requirement, waiter);
  }
  pending_.erase(found);
}

bool Dependencies::IsWaitedFor(const std::string& unit) const {
  const auto found = waiters_.lower_bound(Requirement{unit, 0});
  return found != waiters_.end() && found->first.first == unit;
}

std::vector<Dependencies::Change> Dependencies::OnState(const std::string& unit, const UnitState& state,
                                                        size_t count_max, bool* more) {
  std::vector<Change> changes;
  size_t looked_at = 0;
  *more = false;
  for (int condition = 0; condition < v1::JobDependency::Condition_ARRAYSIZE; ++condition) {
    const Requirement requirement{unit, condition};
    const v1::JobDependency dependency = MakeDependency(unit, condition);
    const Verdict verdict = Judge(dependency.condition(), state);
    if (verdict == Verdict::kPending) {
      continue;
    }
    for (auto found = waiters_.find(requirement); found != waiters_.end(); found = waiters_.find(requirement)) {
      if (looked_at++ == count_max) {
        *more = true;
        return changes;
      }
      const std::string waiter = *found->second.begin();
      const auto pending = pending_.find(waiter);
      if (verdict == Verdict::kNever) {
        Remove(waiter);
        changes.push_back({waiter, verdict, dependency});
        continue;
      }
      Drop(requirement, waiter);
      pending->second.erase(requirement);
      if (pending->second.empty()) {
        pending_.erase(pending);
        changes.push_back({waiter, verdict, dependency});
      }
    }
  }
  return changes;
}

std::vector<v1::JobDependency> Dependencies::PendingOf(const std::string& waiter) const {
  std::vector<v1::JobDependency> pending;
  if (const auto found = pending_.find(waiter); found != pending_.end()) {
    for (const auto& [unit, condition] : found->second) {
      pending.push_back(MakeDependency(unit, condition));
    }
  }
  return pending;
}

}  // namespace hpvm::server
