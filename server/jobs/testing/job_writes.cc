// SPDX-License-Identifier: Apache-2.0
#include "server/jobs/testing/job_writes.h"

#include <algorithm>
#include <utility>

#include "server/jobs/rows/job_rules.h"

namespace hpvm::server {

StoredJob MakeStoredJob(std::string_view tenant, std::string_view id, int64_t created_unix_ns) {
  StoredJob stored;
  stored.set_tenant(std::string(tenant));
  stored.set_request_hash(std::string(32, 'h'));
  v1::Job& job = *stored.mutable_job();
  job.set_id(std::string(id));
  job.set_state(v1::JOB_STATE_ACCEPTED);
  job.set_name("a job with a name");
  job.set_graph_sha256(std::string(64, 'a'));
  job.set_graph_name("a-graph");
  (*job.mutable_labels())["team"] = "blue";
  (*job.mutable_labels())["pipeline"] = std::string(180, 'p');
  job.set_created_unix_ns(created_unix_ns);
  job.set_deadline_unix_ns(created_unix_ns + 600'000'000'000);
  job.set_attempts_max(3);
  job.set_traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
  *stored.add_blobs() = MakeStoredBlob(0);
  stored.set_stored_bytes(1'000);
  return stored;
}

std::string MakeStoredRequest(std::string_view name) {
  StoredRequest request;
  request.mutable_request()->set_name(std::string(name));
  request.mutable_request()->mutable_document()->set_graph_sha256(std::string(64, 'a'));
  for (int i = 0; i < 4; ++i) {
    v1::InputBinding& input = *request.mutable_request()->add_inputs();
    input.set_name("input-" + std::to_string(i));
    input.mutable_tensor()->set_data(std::string(64, 'x'));
  }
  return request.SerializeAsString();
}

InsertJobs MakeInsert(std::string_view tenant, std::string_view id, std::string_view key, int64_t created_unix_ns) {
  InsertJobs insert;
  insert.jobs.push_back(MakeStoredJob(tenant, id, created_unix_ns));
  insert.jobs.back().mutable_job()->set_idempotency_key(std::string(key));
  insert.request = MakeStoredRequest(id);
  insert.idempotency_key = key;
  insert.request_hash = HashOf(insert.request);
  insert.jobs.back().set_request_hash(insert.request_hash.bytes.data(), insert.request_hash.bytes.size());
  return insert;
}

void ShareInArray(InsertJobs* insert) {
  StoredJob first = insert->jobs.front();
  (*first.mutable_job()->mutable_labels())["shared"] = std::string(200, 's');
  first.mutable_job()->add_after()->set_job_id("job-before-all");
  insert->shared = SharedOf(first);
  for (StoredJob& job : insert->jobs) {
    RemoveShared(&job);
  }
}

ChangeJob MakeChange(const StoredJob& present, v1::JobState state) {
  ChangeJob change;
  change.tenant = present.tenant();
  change.id = present.job().id();
  change.state = present.job().state();
  change.attempt = present.job().attempt();
  change.lease = present.lease();
  change.job = present;
  v1::Job& job = *change.job.mutable_job();
  job.set_state(state);
  if (state == v1::JOB_STATE_RUNNING) {
    job.set_attempt(job.attempt() + 1);
    change.job.set_lease(7);
  }
  if (IsTerminal(state)) {
    job.set_ended_unix_ns(job.created_unix_ns() + 1'000);
  }
  return change;
}

Sha256 BlobHash(uint64_t number) { return HashOf("blob " + std::to_string(number)); }

internal::StoredBlob MakeStoredBlob(uint64_t number) {
  const Sha256 hash = BlobHash(number);
  internal::StoredBlob blob;
  blob.set_sha256(hash.bytes.data(), hash.bytes.size());
  blob.set_size_bytes(100 + number);
  return blob;
}

const std::vector<std::string>& JobWriteGenerator::Tenants() {
  static const std::vector<std::string> kTenants = {"blue", "green", "red"};
  return kTenants;
}

std::string JobWriteGenerator::AnyId() { return "job-" + std::to_string(rng_.Below(made_ + 2)); }

std::string JobWriteGenerator::AnyKey() { return "key-" + std::to_string(rng_.Below(40)); }

void JobWriteGenerator::AddBlobs(StoredJob* job) {
  for (uint64_t i = rng_.Below(3); i > 0; --i) {
    *job->add_blobs() = MakeStoredBlob(rng_.Below(12));
  }
}

JobWrite JobWriteGenerator::NextInsert() {
  const std::string tenant = Tenants()[rng_.Below(Tenants().size())];
  const std::string key = rng_.Below(2) == 0 ? AnyKey() : "";
  now_unix_ns_ += static_cast<int64_t>(rng_.Below(1'000'000));
  // One in twenty takes an id that may exist.
  const auto new_id = [&] { return rng_.Below(20) == 0 ? AnyId() : "job-" + std::to_string(made_++); };
  InsertJobs insert = MakeInsert(tenant, new_id(), key, now_unix_ns_);
  if (rng_.Below(10) == 0) {
    insert.request.clear();
  }
  if (rng_.Below(4) == 0) {
    const std::string array = "array-" + std::to_string(made_);
    for (uint64_t i = rng_.Below(5); i > 0; --i) {
      insert.jobs.push_back(MakeStoredJob(tenant, new_id(), now_unix_ns_));
    }
    for (StoredJob& job : insert.jobs) {
      job.mutable_job()->set_array_id(array);
    }
  }
  for (StoredJob& job : insert.jobs) {
    AddBlobs(&job);
    job.set_stored_bytes(rng_.Below(10'000));
    (*job.mutable_job()->mutable_labels())["parity"] = rng_.Below(2) == 0 ? "even" : "odd";
    jobs_.emplace_back(tenant, job.job().id());
  }
  if (!insert.jobs.front().job().array_id().empty() && rng_.Below(2) == 0) {
    ShareInArray(&insert);
  }
  return insert;
}

JobWrite JobWriteGenerator::NextChange(JobDatabase& database) {
  const auto& [tenant, id] = jobs_[rng_.Below(jobs_.size())];
  const StatusOr<StoredJob> present = database.Find(tenant, id);
  StoredJob job = present.ok() ? *present : MakeStoredJob(tenant, id, now_unix_ns_);
  constexpr v1::JobState kStates[] = {v1::JOB_STATE_ACCEPTED, v1::JOB_STATE_RUNNING, v1::JOB_STATE_SUCCEEDED,
                                      v1::JOB_STATE_CANCELLED, v1::JOB_STATE_DEAD};
  ChangeJob change = MakeChange(job, kStates[rng_.Below(std::size(kStates))]);
  now_unix_ns_ += static_cast<int64_t>(rng_.Below(1'000'000));
  if (IsTerminal(change.job.job().state())) {
    change.job.mutable_job()->set_ended_unix_ns(now_unix_ns_);
    if (rng_.Below(2) == 0) {
      change.results.emplace();  // Empty results take no bytes.
    }
    if (rng_.Below(2) == 0) {
      change.results.emplace().add_outputs()->set_data(std::string(rng_.Below(500), 'r'));
    }
  }
  change.job.set_stored_bytes(rng_.Below(10'000));
  if (rng_.Below(3) == 0) {
    change.job.clear_blobs();
  }
  AddBlobs(&change.job);
  change.attempt += rng_.Below(10) == 0 ? 1 : 0;
  change.lease += rng_.Below(10) == 0 ? 1 : 0;
  return change;
}

JobWrite JobWriteGenerator::Next(JobDatabase& database) {
  const uint64_t kind = rng_.Below(100);
  if (kind < 40 || jobs_.empty()) {
    return NextInsert();
  }
  if (kind < 80) {
    return NextChange(database);
  }
  if (kind < 98) {
    const auto& [tenant, id] = jobs_[rng_.Below(jobs_.size())];
    return DropJob{rng_.Below(10) == 0 ? "stranger" : tenant, id, rng_.Below(2) == 0};
  }
  const int64_t before = now_unix_ns_ - static_cast<int64_t>(rng_.Below(10'000'000));
  return ForgetKeys{before, rng_.Below(3) == 0 && !jobs_.empty() ? jobs_[rng_.Below(jobs_.size())].first : ""};
}

}  // namespace hpvm::server
