// SPDX-License-Identifier: Apache-2.0
// JobRestorer starts a new daemon on an existing store: every job that has not ended continues from its state on disk.
#ifndef HPVMD_SERVER_CORE_JOBS_JOB_RESTORER_H_
#define HPVMD_SERVER_CORE_JOBS_JOB_RESTORER_H_

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/core/jobs/job_lifecycle.h"
#include "server/core/jobs/job_table.h"
#include "server/core/rooms/tenants.h"
#include "server/core/state/core_context.h"

namespace hpvm::server {

class JobRestorer : private CoreRoom {
 public:
  JobRestorer(CoreContext& context, Tenants& tenants, JobTable& table, JobLifecycle& lifecycle)
      : CoreRoom(context), tenants_(tenants), table_(table), lifecycle_(lifecycle) {}

  // --- For clients; these lock the mutex ---
  // Takes over the jobs in the store as a new incarnation. Called once, before any other call about jobs and before
  // serving. Jobs that were running when the earlier incarnation ended have lost that attempt.
  Status Restore();

 private:
  struct RestoredUnits;                                       // job_restorer.cc
  using DamagedUnits = std::optional<std::set<std::string>>;  // Read once, and only if needed.
  using StoredUnits = JobTable::StoredUnits;
  // Returns true when the clock is more than an hour from the newest time in the store.
  bool DoubtsClock(const std::vector<LiveRow>& live, const std::map<std::string, TenantUse>& uses);
  // Fields that elements share, by tenant and array.
  using SharedRows = std::map<std::pair<std::string, std::string>, std::shared_ptr<const StoredJob>>;
  ExecutionRef TakeUp(CoreScope& scope, LiveRow row, bool doubts_clock, SharedRows* shared);
  Status EndDamaged(const std::vector<DamagedJob>& damaged);
  Status MendKeys();
  std::set<std::string> ReadDamagedUnits();
  StatusOr<StoredUnit> ReadUnit(const Tenant& tenant, const std::string& id);
  bool MayBeDamaged(const std::string& unit, DamagedUnits& damaged);
  void CountArrays(const std::vector<ExecutionRef>& taken, DamagedUnits& damaged);
  void ReadForRestore(const std::vector<ExecutionRef>& taken, DamagedUnits& damaged,
                      std::map<Tenant*, RestoredUnits>* units);
  void RestoreDependencies(Execution& job, const RestoredUnits& units, bool doubts_clock);

  Tenants& tenants_;
  JobTable& table_;
  JobLifecycle& lifecycle_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_JOBS_JOB_RESTORER_H_
