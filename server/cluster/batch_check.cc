// SPDX-License-Identifier: Apache-2.0
// Method: Kahn's topological sort (CACM 5, 1962) over the jobs of the batch; jobs outside of it cannot come after them.
#include <map>
#include <utility>

#include "server/cluster/cluster_store.h"

namespace hpvm::server::cluster {
namespace {

using Key = std::pair<std::string, std::string>;  // Tenant and id, or tenant and idempotency key.

std::string Quoted(const std::string& name) { return "\"" + name + "\""; }

Status CheckKeys(const std::vector<NewJob>& jobs) {
  std::map<Key, const NewJob*> by_key, by_id;
  for (const NewJob& job : jobs) {
    const NewJob* const same_key = by_key.try_emplace({job.tenant, KeyOf(job)}, &job).first->second;
    if (same_key->request != job.request) {
      return FailedPrecondition("The batch uses the key " + Quoted(KeyOf(job)) + " for two requests.");
    }
    const NewJob* const same_id = by_id.try_emplace({job.tenant, job.id}, &job).first->second;
    if (KeyOf(*same_id) != KeyOf(job)) {
      return AlreadyExists("The batch has two jobs with the id " + Quoted(job.id) + ".");
    }
  }
  return absl::OkStatus();
}

}  // namespace

const std::string& KeyOf(const NewJob& job) { return job.idempotency_key.empty() ? job.id : job.idempotency_key; }

Status CheckBatch(const std::vector<NewJob>& jobs) {
  HPVMD_RETURN_IF_ERROR(CheckKeys(jobs));
  std::map<Key, std::vector<Key>> dependents;
  std::map<Key, size_t> pending;
  for (const NewJob& job : jobs) {
    pending.try_emplace({job.tenant, job.id}, 0);
  }
  for (const NewJob& job : jobs) {
    for (const Dependency& dependency : job.after) {
      if (pending.contains({job.tenant, dependency.job})) {
        dependents[{job.tenant, dependency.job}].emplace_back(job.tenant, job.id);
        ++pending[{job.tenant, job.id}];
      }
    }
  }
  std::vector<Key> ready;
  for (const auto& [job, count] : pending) {
    if (count == 0) {
      ready.push_back(job);
    }
  }
  while (!ready.empty()) {
    const Key job = ready.back();
    ready.pop_back();
    pending.erase(job);
    for (const Key& dependent : dependents[job]) {
      if (--pending[dependent] == 0) {
        ready.push_back(dependent);
      }
    }
  }
  if (!pending.empty()) {
    return InvalidArgument("The job " + Quoted(pending.begin()->first.second) +
                           " comes after itself, perhaps by way of other jobs of the batch.");
  }
  return absl::OkStatus();
}

}  // namespace hpvm::server::cluster
