// SPDX-License-Identifier: Apache-2.0
// TenantRemoval deletes tenants.
//
// The policies call such a tenant disabled, for good. Its jobs are cancelled and then removed from the store, its
// objects in memory are released, its idempotency keys are forgotten, and then the caller is notified. All of it is
// done in small steps, so that other tenants wait for none of it; after a restart the caller requests the removal
// again.
#ifndef HPVMD_SERVER_CORE_TENANT_REMOVAL_H_
#define HPVMD_SERVER_CORE_TENANT_REMOVAL_H_

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "base/fair_queue.h"
#include "base/status.h"
#include "server/core/jobs/job_lifecycle.h"
#include "server/core/jobs/job_retention.h"
#include "server/core/jobs/job_table.h"
#include "server/core/rooms/graphs.h"
#include "server/core/rooms/tenants.h"
#include "server/core/state/core_context.h"

namespace hpvm::server {

class TenantRemoval : private CoreRoom {
 public:
  // Records that nothing of the tenant is left; called on a thread of the store, without the mutex. Called again later
  // when it fails.
  using Done = std::function<Status()>;
  TenantRemoval(CoreContext& context, Tenants& tenants, Graphs& graphs, JobTable& table, JobLifecycle& lifecycle,
                JobRetention& retention)
      : CoreRoom(context),
        tenants_(tenants),
        graphs_(graphs),
        table_(table),
        lifecycle_(lifecycle),
        retention_(retention) {}

  // Thread-safe. Has no effect for a name that is being removed.
  void Remove(const std::string& name, Done done);
  // Another host deletes the tenant: gives up what is in this process's memory. When `is_gone` is false, a tenant was
  // made anew under the name, and soon keeps what it has. Thread-safe; `is_gone` is called without the mutex.
  void Follow(const std::string& name, std::function<bool()> is_gone);

 private:
  struct Removal {
    std::string name;
    Done done;                      // Null: Follow.
    std::function<bool()> is_gone;  // For Follow.
    int looks = 0;
    bool cancelled = false;  // The tenant's jobs have been asked to cancel.
  };
  using RemovalRef = std::shared_ptr<Removal>;

  void Schedule(CoreScope& scope, const RemovalRef& removal, Duration after);
  void Again(const RemovalRef& removal, Duration after);
  void Look(const RemovalRef& removal);
  bool GiveUp(Removal& removal);
  void Finish(const RemovalRef& removal, const Status& keys_are_gone);

  Tenants& tenants_;
  Graphs& graphs_;
  JobTable& table_;
  JobLifecycle& lifecycle_;
  JobRetention& retention_;
  std::set<std::string> names_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_TENANT_REMOVAL_H_
