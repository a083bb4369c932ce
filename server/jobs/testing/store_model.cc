// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "google/protobuf/util/message_differencer.h"

#include "server/jobs/rows/job_rules.h"
#include "server/jobs/testing/store_script.h"

namespace hpvm::server {
namespace {

using absl::StatusCode;
using google::protobuf::util::MessageDifferencer;

Sha256 HashFrom(const std::string& bytes) {
  Sha256 hash;
  std::memcpy(hash.bytes.data(), bytes.data(), std::min(bytes.size(), hash.bytes.size()));
  return hash;
}

std::string Name(const StoreModel::Id& id) { return id.first + "/" + id.second; }

}  // namespace

StatusCode StoreModel::Apply(const JobWrite& write) {
  if (const auto* insert = std::get_if<InsertJobs>(&write)) {
    return Insert(*insert);
  }
  if (const auto* change = std::get_if<ChangeJob>(&write)) {
    return Change(*change);
  }
  if (const auto* drop = std::get_if<DropJob>(&write)) {
    return Drop(*drop);
  }
  const auto& forget = std::get<ForgetKeys>(write);
  std::erase_if(keys_, [&](const auto& key) {
    return key.second.rows == 0 && key.second.created_unix_ns < forget.before_unix_ns &&
           (forget.tenant.empty() || forget.tenant == key.first.first);
  });
  return StatusCode::kOk;
}

StatusCode StoreModel::Insert(const InsertJobs& insert) {
  const std::string& tenant = insert.jobs.front().tenant();
  const Id key_id{tenant, insert.idempotency_key};
  if (!insert.idempotency_key.empty()) {
    if (keys_.contains(key_id)) {
      return StatusCode::kAlreadyExists;
    }
    keys_ever_.insert(key_id);
    keys_[key_id] = {insert.jobs.front().job().id(), insert.request_hash, insert.jobs.size(),
                     insert.jobs.front().job().created_unix_ns()};
  }
  for (const StoredJob& job : insert.jobs) {
    StoredJob whole = job;
    if (insert.shared.has_value()) {
      AddShared(*insert.shared, &whole).IgnoreError();  // The database checks the owner.
    }
    rows_[{tenant, job.job().id()}] = {whole, insert.request, std::nullopt, insert.idempotency_key, false};
  }
  return StatusCode::kOk;
}

StatusCode StoreModel::Change(const ChangeJob& change) {
  auto found = rows_.find({change.tenant, change.id});
  if (found == rows_.end()) {
    return StatusCode::kNotFound;
  }
  Row& row = found->second;
  if (IsTerminal(row.job.job().state()) || row.job.job().state() != change.state ||
      row.job.job().attempt() != change.attempt || row.job.lease() != change.lease) {
    return StatusCode::kFailedPrecondition;
  }
  const uint64_t sequence = row.job.sequence();
  row.job = change.job;
  row.job.set_sequence(sequence);
  row.results = change.results;
  return StatusCode::kOk;
}

StatusCode StoreModel::Drop(const DropJob& drop) {
  auto found = rows_.find({drop.tenant, drop.id});
  if (found == rows_.end()) {
    return StatusCode::kNotFound;
  }
  Row& row = found->second;
  if (!IsTerminal(row.job.job().state())) {
    return StatusCode::kFailedPrecondition;
  }
  if (drop.forget) {
    if (auto key = keys_.find({drop.tenant, row.key}); key != keys_.end()) {
      --key->second.rows;
    }
    rows_.erase(found);
  } else if (!row.is_dropped) {
    row.job = DroppedForm(row.job);
    row.is_dropped = true;
    row.results.reset();
  }
  return StatusCode::kOk;
}

void StoreModel::SetSequences(const InsertJobs& insert, const std::vector<uint64_t>& sequences) {
  for (size_t i = 0; i < std::min(insert.jobs.size(), sequences.size()); ++i) {
    rows_[{insert.jobs[i].tenant(), insert.jobs[i].job().id()}].job.set_sequence(sequences[i]);
  }
}

std::set<std::pair<std::string, Sha256>> StoreModel::Blobs() const {
  std::set<std::pair<std::string, Sha256>> blobs;
  for (const auto& [id, row] : rows_) {
    for (const internal::StoredBlob& blob : row.job.blobs()) {
      blobs.emplace(id.first, HashFrom(blob.sha256()));
    }
  }
  return blobs;
}

std::string StoreModel::CompareRow(const Id& id, Row* row, JobDatabase& database, BlobFolder* blobs) {
  StatusOr<StoredJob> job = database.Find(id.first, id.second);
  if (!job.ok()) {
    return "Job " + Name(id) + " is lost: " + Message(job.status()) + "\n";
  }
  if (row->job.sequence() == 0) {
    row->job.set_sequence(job->sequence());
  }
  std::string wrong;
  if (!MessageDifferencer::Equals(*job, row->job)) {
    wrong +=
        "Job " + Name(id) + " is " + job->ShortDebugString() + "\n  instead of " + row->job.ShortDebugString() + "\n";
  }
  StatusOr<StoredRequest> request = database.ReadRequest(id.first, id.second);
  StoredRequest expected;
  if (row->is_dropped ? !absl::IsNotFound(request.status())
                      : !request.ok() || !expected.ParseFromString(row->request) ||
                            !MessageDifferencer::Equals(*request, expected)) {
    wrong += "The request of " + Name(id) + " is wrong: " + Message(request.status()) + "\n";
  }
  StatusOr<StoredResults> results = database.ReadResults(id.first, id.second);
  if (!row->is_dropped &&
      (!results.ok() || !MessageDifferencer::Equals(*results, row->results.value_or(StoredResults())))) {
    wrong += "The results of " + Name(id) + " are wrong: " + Message(results.status()) + "\n";
  }
  for (const internal::StoredBlob& blob : row->job.blobs()) {
    if (blobs == nullptr) {
      break;
    }
    StatusOr<std::string> bytes = blobs->Read(id.first, HashFrom(blob.sha256()), blob.size_bytes());
    if (!bytes.ok()) {
      wrong += "A blob of " + Name(id) + " is lost: " + Message(bytes.status()) + "\n";
    }
  }
  return wrong;
}

std::string StoreModel::CompareUse(JobDatabase& database) const {
  std::map<std::string, TenantUse> expected;
  for (const auto& [id, row] : rows_) {
    TenantUse& use = expected[id.first];
    ++use.jobs;
    use.live += IsTerminal(row.job.job().state()) ? 0 : 1;
    use.stored_bytes += row.job.stored_bytes();
  }
  StatusOr<std::map<std::string, TenantUse>> use = database.Use();
  if (!use.ok()) {
    return "Use fails: " + Message(use.status()) + "\n";
  }
  auto equals = [](const auto& a, const auto& b) {
    return a.first == b.first && a.second.jobs == b.second.jobs && a.second.live == b.second.live &&
           a.second.stored_bytes == b.second.stored_bytes;
  };
  return std::equal(use->begin(), use->end(), expected.begin(), expected.end(), equals)
             ? ""
             : "What tenants use is counted wrong.\n";
}

std::string StoreModel::Compare(JobDatabase& database, BlobFolder& blobs, bool deep) {
  std::string wrong;
  std::map<std::string, size_t> counts;
  std::set<std::string> tenants;
  size_t live = 0;
  for (auto& [id, row] : rows_) {
    wrong += CompareRow(id, &row, database, deep ? &blobs : nullptr);
    ++counts[id.first];
    live += IsTerminal(row.job.job().state()) ? 0 : 1;
  }
  for (const std::string tenant : {"blue", "green", "red"}) {
    JobFilter filter;
    filter.count_max = 10'000;
    StatusOr<std::vector<StoredJob>> jobs = database.List(tenant, filter);
    if (!jobs.ok() || jobs->size() != counts[tenant]) {
      wrong += "Tenant " + tenant + " has " + (jobs.ok() ? std::to_string(jobs->size()) : Message(jobs.status())) +
               " jobs instead of " + std::to_string(counts[tenant]) + ".\n";
    }
  }
  std::vector<DamagedJob> damaged;
  size_t loaded = 0;
  const Status load = database.LoadLive([&](const LiveRow&) { ++loaded; }, &damaged);
  if (!load.ok() || loaded != live || !damaged.empty()) {
    wrong += std::to_string(loaded) + " live jobs instead of " + std::to_string(live) + ": " + Message(load) + "\n";
  }
  for (const Id& id : keys_ever_) {
    auto key = keys_.find(id);
    StatusOr<KeyRecord> record = database.FindKey(id.first, id.second);
    if (key == keys_.end() ? !absl::IsNotFound(record.status())
                           : !record.ok() || record->job_id != key->second.job_id ||
                                 record->request_hash != key->second.request_hash) {
      wrong += "Key " + Name(id) + " is wrong: " + Message(record.status()) + "\n";
    }
  }
  wrong += CompareUse(database);
  if (deep) {
    StatusOr<std::vector<std::string>> faults = database.Check();
    if (!faults.ok() || !faults->empty()) {
      wrong += "The database is unsound: " + (faults.ok() ? faults->front() : Message(faults.status())) + "\n";
    }
  }
  return wrong;
}

}  // namespace hpvm::server
