// SPDX-License-Identifier: Apache-2.0
#include "server/cluster/sql/cluster_calls.h"

namespace hpvm::server::cluster {
namespace {

constexpr SqlStatement kListWaiting{"SELECT id FROM cluster_jobs WHERE tenant = ?1 AND state = 0 LIMIT ?2"};
// The hosts learn it from their next renewals.
constexpr SqlStatement kCancelRunning{
    "UPDATE cluster_jobs SET cancel_requested = 1 WHERE tenant = ?1 AND state = 1 AND cancel_requested = 0"};
// Jobs that come after one learn of its end first (sweep_call.cc).
constexpr SqlStatement kForgetEnded{
    "DELETE FROM cluster_jobs WHERE sequence IN (SELECT sequence FROM cluster_jobs WHERE tenant = ?1 AND state >= 2 "
    "AND NOT EXISTS (SELECT 1 FROM cluster_ended WHERE cluster_ended.tenant = cluster_jobs.tenant "
    "AND cluster_ended.job = cluster_jobs.id) LIMIT ?2) RETURNING sequence"};
constexpr SqlStatement kFindAny{"SELECT sequence FROM cluster_jobs WHERE tenant = ?1 LIMIT 1"};
constexpr SqlStatement kDropEvents{"DELETE FROM cluster_events WHERE tenant = ?1"};

}  // namespace

StatusOr<SweepResult> PurgeIn(ClusterTransaction& transaction, const std::string& tenant, uint32_t most) {
  HPVMD_RETURN_IF_ERROR(transaction.LockTenant(tenant).status());
  HPVMD_ASSIGN_OR_RETURN(const SqlRows forgotten, transaction.Run(kForgetEnded, {tenant, most}));
  HPVMD_ASSIGN_OR_RETURN(const SqlRows waiting, transaction.Run(kListWaiting, {tenant, most}));
  for (const SqlRow& row : waiting) {
    HPVMD_ASSIGN_OR_RETURN(std::optional<JobRow> job, transaction.FindJob(tenant, row.Text(0)));
    if (!job.has_value()) {
      return DataLoss("The job \"" + row.Text(0) + "\" is missing under its tenant's lock.");
    }
    job->view.cancel_requested = true;
    HPVMD_RETURN_IF_ERROR(transaction.End(*job, JobState::kCancelled, kEndedByCancel));
  }
  HPVMD_RETURN_IF_ERROR(transaction.Run(kCancelRunning, {tenant}).status());
  HPVMD_ASSIGN_OR_RETURN(const SqlRows left, transaction.Run(kFindAny, {tenant}));
  if (left.empty()) {
    HPVMD_RETURN_IF_ERROR(transaction.Run(kDropEvents, {tenant}).status());
  }
  return SweepResult{.changes = forgotten.size() + waiting.size(), .has_more = !left.empty()};
}

}  // namespace hpvm::server::cluster
