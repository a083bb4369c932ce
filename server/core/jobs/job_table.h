// SPDX-License-Identifier: Apache-2.0
// The jobs that have not ended, how many stand where, and how those stand that others come after.
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

  // --- Facts that the rooms of jobs change, with the mutex ---
  uint64_t lease = 0;    // This incarnation's; 0: not restored.
  bool has_room = true;  // On the store's disk.
  uint64_t waiting = 0;  // Of all tenants.
  uint64_t running = 0;  // With an attempt: RUNNING on disk.
  // Between the call and its answer.
  std::set<const Submission*> submissions;
  // By what waits in the place of their jobs, until those live.
  std::map<std::string, std::shared_ptr<Submission>> inserting;

  // --- For other rooms, with the mutex ---
  // Null: the key is not a queued job's.
  ExecutionRef FindQueued(scheduler::JobKey key) const;
  size_t queued() const { return queued_jobs_.size(); }
  // In slices, every job of the tenant that has not ended, oldest first; then, if it is given, `done`.
  void EachLive(CoreScope& scope, const TenantRef& tenant, std::function<void(CoreScope&, const ExecutionRef&)> look,
                std::function<void(CoreScope&)> done = nullptr);
  // Null for those that have ended, or are not on disk yet.
  static Execution* FindLive(Tenant& tenant, std::string_view id);
  void AddLive(const ExecutionRef& job);
  void SetWaiting(Execution& job, bool waits);
  void SetRunning(Execution& job, bool runs);
  void AddQueued(const ExecutionRef& job);
  void RemoveQueued(const Execution& job);
  static LiveArray* ArrayOf(const Execution& job);
  Status RefuseWithoutRoom() const;
  // Empty: the store must be asked (again).
  static std::optional<StoredUnit> StateOfUnit(const Tenant& tenant, const std::string& id, const StoredUnits& units);
  // As the units stand now.
  static Waits JudgeUnits(const Tenant& tenant, const std::vector<v1::JobDependency>& after, const StoredUnits& units);
  static void AddWaits(Tenant& tenant, Execution& job, const Waits& waits);

 private:
  static void JoinArray(const ExecutionRef& job);

  std::unordered_map<scheduler::JobKey, ExecutionRef> queued_jobs_;  // Never iterated.
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_JOBS_JOB_TABLE_H_
