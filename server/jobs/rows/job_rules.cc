// SPDX-License-Identifier: Apache-2.0
#include "server/jobs/rows/job_rules.h"

#include <algorithm>
#include <set>
#include <string>

#include "server/jobs/rows/job_state_name.h"

namespace hpvm::server {
namespace {

std::string Text(std::string_view before, std::string_view name, std::string_view after) {
  std::string text(before);
  text += name;
  text += after;
  return text;
}

// SQLite's rows are limited to 1,000,000,000 bytes.
constexpr size_t kRequestBytesMax = size_t{512} << 20;

bool HasShared(const StoredJob& job) { return job.job().labels_size() > 0 || job.job().after_size() > 0; }

}  // namespace

bool IsTerminal(v1::JobState state) { return state >= v1::JOB_STATE_SUCCEEDED; }

std::string_view TenantOf(const JobWrite& write) {
  if (const auto* insert = std::get_if<InsertJobs>(&write)) {
    return insert->jobs.empty() ? std::string_view() : insert->jobs.front().tenant();
  }
  if (const auto* change = std::get_if<ChangeJob>(&write)) {
    return change->tenant;
  }
  const auto* drop = std::get_if<DropJob>(&write);
  return drop != nullptr ? std::string_view(drop->tenant) : "";
}

Status CheckInsert(const InsertJobs& insert) {
  if (insert.jobs.empty()) {
    return InvalidArgument("An insert has no jobs.");
  }
  if (insert.request.size() > kRequestBytesMax) {
    return InvalidArgument("A request of " + std::to_string(insert.request.size()) + " bytes is beyond the limit of " +
                           std::to_string(kRequestBytesMax) + ".");
  }
  const std::string& tenant = insert.jobs.front().tenant();
  const std::string& array = insert.jobs.front().job().array_id();
  std::set<std::string_view> ids;
  for (const StoredJob& stored : insert.jobs) {
    const std::string& id = stored.job().id();
    if (id.empty() || stored.tenant().empty() || stored.tenant() != tenant) {
      return InvalidArgument(Text("Job \"", id, "\" has no id, or not the tenant of its array."));
    }
    if (stored.job().array_id() != array || (insert.jobs.size() > 1 && (array.empty() || !ids.insert(id).second))) {
      return InvalidArgument(Text("Job \"", id, "\" stands twice in its array, or in another array."));
    }
    if (IsTerminal(stored.job().state())) {
      return InvalidArgument(Text("Job \"", id, "\" has ended before it is stored."));
    }
    if (stored.shares() != insert.shared.has_value() ||
        (stored.shares() && (insert.shared->tenant() != tenant || insert.shared->job().array_id() != array ||
                             array.empty() || HasShared(stored)))) {
      return InvalidArgument(
          Text("Job \"", id, "\" has fields that its array shares, or shares them with another array."));
    }
  }
  return absl::OkStatus();
}

Status CheckChange(const PresentJob& present, const ChangeJob& change) {
  if (change.job.job().id() != change.id || change.job.tenant() != change.tenant ||
      change.job.job().array_id() != present.array_id ||
      (change.results.has_value() && !IsTerminal(change.job.job().state()))) {
    return InvalidArgument(Text("The change of job \"", change.id, "\" holds another job."));
  }
  if (IsTerminal(present.state) || present.state != change.state || present.attempt != change.attempt ||
      present.lease != change.lease) {
    return FailedPrecondition("Job \"" + change.id + "\" is in state " + StateName(present.state) + ", attempt " +
                              std::to_string(present.attempt) + ", lease " + std::to_string(present.lease) +
                              "; the change expects " + StateName(change.state) + ", attempt " +
                              std::to_string(change.attempt) + ", lease " + std::to_string(change.lease) + ".");
  }
  return absl::OkStatus();
}

Status CheckDrop(v1::JobState present, std::string_view id) {
  if (!IsTerminal(present)) {
    return FailedPrecondition(Text("Job \"", id, "\" has not ended; its data stays."));
  }
  return absl::OkStatus();
}

StoredJob SharedOf(const StoredJob& job) {
  StoredJob shared;
  shared.set_tenant(job.tenant());
  shared.mutable_job()->set_array_id(job.job().array_id());
  *shared.mutable_job()->mutable_labels() = job.job().labels();
  *shared.mutable_job()->mutable_after() = job.job().after();
  return shared;
}

void RemoveShared(StoredJob* job) {
  job->mutable_job()->clear_labels();
  job->mutable_job()->clear_after();
  job->set_shares(true);
}

Status AddShared(const StoredJob& shared, StoredJob* job) {
  if (shared.tenant() != job->tenant() || shared.job().array_id() != job->job().array_id() || HasShared(*job)) {
    return DataLoss(Text("The shared record of the array of job \"", job->job().id(), "\" belongs to another array."));
  }
  *job->mutable_job()->mutable_labels() = shared.job().labels();
  *job->mutable_job()->mutable_after() = shared.job().after();
  job->clear_shares();
  return absl::OkStatus();
}

StoredJob DroppedForm(StoredJob job) {
  v1::Job& shown = *job.mutable_job();
  shown.set_dropped(true);
  for (v1::OutputValue& output : *shown.mutable_outputs()) {
    if (output.has_tensor()) {
      output.clear_value();
    }
  }
  job.clear_blobs();
  job.set_stored_bytes(0);
  job.set_stored_bytes(job.ByteSizeLong());
  return job;
}

bool MatchesLabels(const StoredJob& job, const JobFilter& filter) {
  const auto& labels = job.job().labels();
  return std::all_of(filter.labels.begin(), filter.labels.end(), [&](const auto& wanted) {
    const auto found = labels.find(wanted.first);
    return found != labels.end() && found->second == wanted.second;
  });
}

std::vector<Sha256> BlobsOf(const StoredJob& job) {
  std::vector<Sha256> hashes;
  for (const internal::StoredBlob& blob : job.blobs()) {
    if (const std::optional<Sha256> hash = Sha256FromRaw(blob.sha256())) {
      hashes.push_back(*hash);
    }
  }
  std::sort(hashes.begin(), hashes.end());
  hashes.erase(std::unique(hashes.begin(), hashes.end()), hashes.end());
  return hashes;
}

StatusOr<Sha256> BlobNamedBy(std::string_view who, std::string_view raw) {
  const std::optional<Sha256> hash = Sha256FromRaw(raw);
  return hash.has_value()
             ? StatusOr<Sha256>(*hash)
             : DataLoss(Text(who, " names a blob by ", std::to_string(raw.size())) + " bytes; a hash has 32.");
}

Status NoSuchJob(std::string_view id) { return NotFound(Text("There is no job \"", id, "\".")); }

Status NoSuchRequest(std::string_view id) { return NotFound(Text("The request of job \"", id, "\" was dropped.")); }

Status NoSuchKey() { return NotFound("The idempotency key is not known."); }

Status KeyIsKnown() { return AlreadyExists("The idempotency key is known."); }

}  // namespace hpvm::server
