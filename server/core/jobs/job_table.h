// SPDX-License-Identifier: Apache-2.0
// JobTable holds the jobs that have not ended, their counts by state, and the states of jobs and arrays that others
// depend on.
#ifndef HPVMD_SERVER_CORE_JOBS_JOB_TABLE_H_
#define HPVMD_SERVER_CORE_JOBS_JOB_TABLE_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "server/core/state/core_context.h"
#include "server/core/state/execution.h"
#include "server/core/state/outcome.h"
#include "server/jobs/unit_reader.h"

namespace hpvm::server {

struct Submission;

class JobTable : private CoreRoom {
 public:
  using StoredUnits = std::map<std::string, StoredUnit>;
  struct Waits {
    std::vector<v1::JobDependency> pending;
    std::optional<v1::JobDependency> failed;
  };
  explicit JobTable(CoreContext& context) : CoreRoom(context) {}

  // --- State that the rooms of jobs change; guarded by the mutex ---
  uint64_t lease = 0;    // Lease of this incarnation; 0: not restored.
  bool has_room = true;  // The store's disk has room.
  uint64_t waiting = 0;  // Number for all tenants.
  uint64_t running = 0;  // Number of jobs with an attempt: RUNNING on disk.
  // Submissions between the call and its answer.
  std::set<const Submission*> submissions;
  // Submissions whose jobs do not live yet, by the id under which they wait in the jobs' place.
  std::map<std::string, std::shared_ptr<Submission>> inserting;

  // --- For other rooms; the caller holds the mutex ---
  // Returns null when the key is not a queued job's.
  ExecutionRef FindQueued(scheduler::JobKey key) const;
  size_t queued() const { return queued_jobs_.size(); }
  // Visits every job of the tenant that has not ended, in slices, oldest first; then calls `done`, if given.
  void EachLive(CoreScope& scope, const TenantRef& tenant, std::function<void(CoreScope&, const ExecutionRef&)> look,
                std::function<void(CoreScope&)> done = nullptr);
  // Returns null for jobs that have ended, or are not on disk yet.
  static Execution* FindLive(Tenant& tenant, std::string_view id);
  void AddLive(const ExecutionRef& job);
  void SetWaiting(Execution& job, bool waits);
  void SetRunning(Execution& job, bool runs);
  void AddQueued(const ExecutionRef& job);
  void RemoveQueued(const Execution& job);
  static LiveArray* ArrayOf(const Execution& job);
  Status RefuseWithoutRoom() const;
  // Returns nothing when the store must be read (again).
  std::optional<StoredUnit> StateOfUnit(const Tenant& tenant, const std::string& id, const StoredUnits& units) const;
  // Judges the dependencies by the present state of the units.
  Waits JudgeUnits(const Tenant& tenant, const std::vector<v1::JobDependency>& after, const StoredUnits& units) const;
  static void AddWaits(Tenant& tenant, Execution& job, const Waits& waits);

 private:
  static void JoinArray(const ExecutionRef& job);

  std::unordered_map<scheduler::JobKey, ExecutionRef> queued_jobs_;  // Never iterated.
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_JOBS_JOB_TABLE_H_
