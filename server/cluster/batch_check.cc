// SPDX-License-Identifier: Apache-2.0
// Method: Kahn's topological sort (CACM 5, 1962) over the jobs of the batch; jobs outside of it cannot come after them.
#include <map>
#include <utility>

#include "base/clean_text.h"
#include "server/cluster/cluster_store.h"

namespace hpvm::server::cluster {
namespace {

using Key = std::pair<std::string, std::string>;  // Tenant and id, or tenant and idempotency key.

std::string Quoted(const std::string& name) { return "\"" + name + "\""; }

// Jobs of one submit, and jobs that one comes after: a submit holds its tenant's row, and a thread that all share.
constexpr size_t kBatchJobsMax = 1000;
constexpr size_t kAfterMax = 1000;
// Bytes of a tenant's name, an id, a key or a word of needs.
constexpr size_t kNameBytesMax = 512;
// A record is read with every list.
constexpr size_t kRecordBytesMax = 256 * 1024, kHoldBytesMax = 2 * 1024, kHashBytesMax = 64;

Status CheckSize(const std::string& what, const std::string& bytes, size_t most) {
  return bytes.size() <= most ? absl::OkStatus()
                              : InvalidArgument(what + " has " + std::to_string(bytes.size()) +
                                                " bytes; the limit is " + std::to_string(most) + ".");
}

Status CheckJob(const NewJob& job) {
  HPVMD_RETURN_IF_ERROR(CheckName("The name of a tenant", job.tenant));
  HPVMD_RETURN_IF_ERROR(CheckName("The id of a job", job.id));
  HPVMD_RETURN_IF_ERROR(CheckName("The key of a job", KeyOf(job)));
  HPVMD_RETURN_IF_ERROR(CheckSize("The record of job " + Quoted(job.id), job.record, kRecordBytesMax));
  HPVMD_RETURN_IF_ERROR(CheckSize("The hash of a request", job.request_hash, kHashBytesMax));
  HPVMD_RETURN_IF_ERROR(CheckHold(job.hold));
  if (job.after.size() > kAfterMax) {
    return InvalidArgument("The job " + Quoted(job.id) + " comes after " + std::to_string(job.after.size()) +
                           " jobs; the limit is " + std::to_string(kAfterMax) + ".");
  }
  for (const Dependency& dependency : job.after) {
    HPVMD_RETURN_IF_ERROR(CheckName("The id of a job that another one comes after", dependency.job));
  }
  for (const std::set<std::string>& words : job.needs.any_of) {
    HPVMD_RETURN_IF_ERROR(CheckWords(words));
  }
  HPVMD_RETURN_IF_ERROR(CheckWords(job.needs.prefers));
  if (!job.needs.group.empty()) {
    HPVMD_RETURN_IF_ERROR(CheckName("The name of a group of jobs", job.needs.group));
  }
  if (!job.needs.host.empty()) {
    HPVMD_RETURN_IF_ERROR(CheckName("The name of a host", job.needs.host));
  }
  return job.attempts_max > 0
             ? absl::OkStatus()
             : InvalidArgument("The job " + Quoted(job.id) + " may have no attempt (0); it needs one.");
}

Status CheckKeys(const std::vector<NewJob>& jobs) {
  std::map<Key, const NewJob*> by_key, by_id;
  for (const NewJob& job : jobs) {
    const NewJob* const same_key = by_key.try_emplace({job.tenant, KeyOf(job)}, &job).first->second;
    const bool is_same =
        job.request_hash.empty() ? same_key->request == job.request : same_key->request_hash == job.request_hash;
    if (!is_same) {
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

Status CheckName(const std::string& what, const std::string& name) {
  if (name.empty() || name.size() > kNameBytesMax) {
    return InvalidArgument(what + " has " + std::to_string(name.size()) + " bytes; it has 1 to " +
                           std::to_string(kNameBytesMax) + ".");
  }
  return IsCleanText(name, /*lines=*/false) ? absl::OkStatus()
                                            : InvalidArgument(what + " is not UTF-8, or contains control characters.");
}

const std::string& KeyOf(const NewJob& job) { return job.idempotency_key.empty() ? job.id : job.idempotency_key; }

Status CheckNames(const std::string& tenant, const std::string& id) {
  HPVMD_RETURN_IF_ERROR(CheckName("The name of a tenant", tenant));
  return CheckName("The id of a job", id);
}

Status CheckWords(const std::set<std::string>& words) {
  for (const std::string& word : words) {
    HPVMD_RETURN_IF_ERROR(CheckName("A property of a host", word));
  }
  return absl::OkStatus();
}

Status CheckHold(const std::string& hold) { return CheckSize("The text of a hold", hold, kHoldBytesMax); }

Status CheckWorker(const Worker& worker) {
  HPVMD_RETURN_IF_ERROR(CheckName("The name of a host", worker.name));
  HPVMD_RETURN_IF_ERROR(CheckName("The name of a host's process", worker.process));
  return CheckWords(worker.has);
}

Status CheckFinish(const FinishRequest& request) {
  HPVMD_RETURN_IF_ERROR(CheckNames(request.job.tenant, request.job.id));
  HPVMD_RETURN_IF_ERROR(CheckSize("The record of job " + Quoted(request.job.id), request.record, kRecordBytesMax));
  switch (request.state) {
    case JobState::kWaiting:
    case JobState::kSucceeded:
    case JobState::kFailed:
    case JobState::kCancelled:
    case JobState::kExpired:
      break;
    case JobState::kRunning:
    case JobState::kDead:
      return InvalidArgument("A claim does not end as " + std::string(Name(request.state)) + ".");
  }
  return request.device_time >= Duration{0} ? absl::OkStatus()
                                            : InvalidArgument("The device time of a run is negative.");
}

Status CheckBatch(const std::vector<NewJob>& jobs) {
  if (jobs.size() > kBatchJobsMax) {
    return InvalidArgument("The batch has " + std::to_string(jobs.size()) + " jobs; the limit is " +
                           std::to_string(kBatchJobsMax) + ".");
  }
  for (const NewJob& job : jobs) {
    HPVMD_RETURN_IF_ERROR(CheckJob(job));
  }
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
