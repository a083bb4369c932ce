// SPDX-License-Identifier: Apache-2.0
#include "server/jobs/testing/memory_job_database.h"

#include <algorithm>
#include <iterator>
#include <tuple>

#include "server/jobs/rows/job_rules.h"

namespace hpvm::server {
namespace {

bool IsListed(const std::vector<v1::JobState>& states, v1::JobState state) {
  return states.empty() || std::find(states.begin(), states.end(), state) != states.end();
}

}  // namespace

Status MemoryJobDatabase::Commit(std::span<const JobWrite> writes, std::vector<WriteResult>* results) {
  std::lock_guard lock(mutex_);
  results->clear();
  if (broken_) {
    return DataLoss("An earlier commit failed; the store takes no more writes.");
  }
  Status status = faults_.before_commit ? faults_.before_commit(writes) : absl::OkStatus();
  if (status.ok()) {
    results->resize(writes.size());
    for (size_t i = 0; i < writes.size(); ++i) {
      std::visit([&](const auto& write) { Apply(write, &(*results)[i]); }, writes[i]);
    }
    ForgetBlobsInUse(writes, results);
    status = faults_.after_commit ? faults_.after_commit(writes) : absl::OkStatus();
  }
  if (!status.ok()) {
    results->clear();
    broken_ = absl::IsDataLoss(status);
  }
  return status;
}

void MemoryJobDatabase::Reopen() {
  std::lock_guard lock(mutex_);
  broken_ = false;
}

MemoryJobDatabase::Row* MemoryJobDatabase::FindRow(std::string_view tenant, std::string_view id) {
  const auto found = sequence_of_.find(std::string(id));
  if (found == sequence_of_.end()) {
    return nullptr;
  }
  Row& row = rows_.at(found->second);
  return row.job.tenant() == tenant ? &row : nullptr;
}

void MemoryJobDatabase::Apply(const InsertJobs& insert, WriteResult* result) {
  result->status = CheckInsert(insert);
  if (!result->status.ok()) {
    return;
  }
  Tenant& tenant = tenants_[insert.jobs.front().tenant()];
  if (const auto known = tenant.keys.find(insert.idempotency_key);
      !insert.idempotency_key.empty() && known != tenant.keys.end()) {
    result->known = known->second.record;
    result->status = KeyIsKnown();
    return;
  }
  for (const StoredJob& job : insert.jobs) {
    if (sequence_of_.count(job.job().id()) != 0) {
      result->status = Internal("The id \"" + job.job().id() + "\" is taken.");
      return;
    }
  }
  const uint64_t first = next_sequence_;
  for (const StoredJob& job : insert.jobs) {
    const uint64_t sequence = next_sequence_++;
    Row& row = rows_[sequence];
    row.job = job;
    if (insert.shared.has_value()) {
      row.shares = true;
      AddShared(*insert.shared, &row.job).IgnoreError();  // CheckInsert found that it is this array's.
    }
    row.job.set_sequence(sequence);
    row.request = first;
    row.key = insert.idempotency_key;
    sequence_of_[job.job().id()] = sequence;
    tenant.sequences.insert(sequence);
    tenant.use.jobs += 1;
    tenant.use.live += 1;
    tenant.use.stored_bytes += job.stored_bytes();
    SetBlobs(tenant, StoredJob(), row.job, result);
    result->sequences.push_back(sequence);
  }
  requests_[first] = {insert.request, insert.jobs.size()};
  if (!insert.idempotency_key.empty()) {
    Key& key = tenant.keys[insert.idempotency_key];
    const v1::Job& job = insert.jobs.front().job();
    key.record = {job.id(), insert.request_hash, v1::JOB_STATE_UNSPECIFIED, job.array_id()};
    key.created_unix_ns = job.created_unix_ns();
    key.rows = insert.jobs.size();
  }
}

void MemoryJobDatabase::Apply(const ChangeJob& change, WriteResult* result) {
  Row* row = FindRow(change.tenant, change.id);
  if (row == nullptr) {
    result->status = NoSuchJob(change.id);
    return;
  }
  result->status = CheckChange(
      {row->job.job().state(), row->job.job().attempt(), row->job.lease(), row->job.job().array_id()}, change);
  if (!result->status.ok()) {
    return;
  }
  StoredJob next = change.job;
  if (next.shares()) {
    AddShared(SharedOf(row->job), &next).IgnoreError();  // CheckChange found that it is this array's.
  }
  Replace(*row, std::move(next), result);
  if (change.results.has_value()) {
    row->results = *change.results;
  }
}

void MemoryJobDatabase::Apply(const DropJob& drop, WriteResult* result) {
  Row* row = FindRow(drop.tenant, drop.id);
  result->status = row == nullptr ? NoSuchJob(drop.id) : CheckDrop(row->job.job().state(), drop.id);
  if (!result->status.ok()) {
    return;
  }
  const TenantUse& use = tenants_.at(drop.tenant).use;
  const uint64_t before = use.stored_bytes;
  if (!row->job.job().dropped()) {
    DropPayload(*row, result);
  }
  if (drop.forget) {
    Forget(*row);
  }
  result->stored_bytes_change = static_cast<int64_t>(use.stored_bytes - before);
}

void MemoryJobDatabase::Apply(const ForgetKeys& forget, WriteResult* result) {
  for (auto& [name, tenant] : tenants_) {
    std::erase_if(tenant.keys, [&, &name = name](const auto& entry) {
      return (forget.tenant.empty() || forget.tenant == name) && entry.second.rows == 0 &&
             entry.second.created_unix_ns < forget.before_unix_ns;
    });
  }
}

// Replaces the row, and updates its indexes.
void MemoryJobDatabase::Replace(Row& row, StoredJob job, WriteResult* result) {
  Tenant& tenant = tenants_.at(row.job.tenant());
  job.set_sequence(row.job.sequence());
  SetBlobs(tenant, row.job, job, result);
  const bool was_finished = IsTerminal(row.job.job().state()), is_finished = IsTerminal(job.job().state());
  tenant.use.stored_bytes += job.stored_bytes() - row.job.stored_bytes();
  tenant.use.finished_bytes += (is_finished ? job.stored_bytes() : 0) - (was_finished ? row.job.stored_bytes() : 0);
  if (!was_finished && is_finished) {
    tenant.use.live -= 1;
    tenant.finished.emplace(job.job().ended_unix_ns(), job.sequence());
  }
  row.job = std::move(job);
}

void MemoryJobDatabase::DropPayload(Row& row, WriteResult* result) {
  const auto request = requests_.find(row.request);
  if (--request->second.users == 0) {
    requests_.erase(request);
  }
  row.results.Clear();
  Replace(row, DroppedForm(row.job), result);
}

void MemoryJobDatabase::Forget(Row& row) {
  const uint64_t sequence = row.job.sequence();
  Tenant& tenant = tenants_.at(row.job.tenant());
  if (const auto key = tenant.keys.find(row.key); key != tenant.keys.end()) {
    key->second.rows -= 1;
    if (key->second.record.job_id == row.job.job().id()) {
      key->second.record.state = row.job.job().state();
    }
  }
  tenant.use.jobs -= 1;
  tenant.use.stored_bytes -= row.job.stored_bytes();
  tenant.use.finished_bytes -= row.job.stored_bytes();
  tenant.sequences.erase(sequence);
  tenant.finished.erase({row.job.job().ended_unix_ns(), sequence});
  sequence_of_.erase(row.job.job().id());
  rows_.erase(sequence);
}

void MemoryJobDatabase::SetBlobs(Tenant& tenant, const StoredJob& before, const StoredJob& after, WriteResult* result) {
  const std::vector<Sha256> old_blobs = BlobsOf(before), new_blobs = BlobsOf(after);
  for (const Sha256& hash : new_blobs) {
    tenant.blob_users[hash] += std::binary_search(old_blobs.begin(), old_blobs.end(), hash) ? 0 : 1;
  }
  for (const Sha256& hash : old_blobs) {
    if (std::binary_search(new_blobs.begin(), new_blobs.end(), hash)) {
      continue;
    }
    const auto users = tenant.blob_users.find(hash);
    if (--users->second == 0) {
      tenant.blob_users.erase(users);
      result->unused_blobs.push_back(hash);
    }
  }
}

// A blob that one write of the batch left unused may be used by a later one.
void MemoryJobDatabase::ForgetBlobsInUse(std::span<const JobWrite> writes, std::vector<WriteResult>* results) const {
  for (size_t i = 0; i < writes.size(); ++i) {
    if (!(*results)[i].unused_blobs.empty()) {
      const Tenant& tenant = tenants_.at(std::string(TenantOf(writes[i])));
      std::erase_if((*results)[i].unused_blobs, [&](const Sha256& hash) { return tenant.blob_users.count(hash) != 0; });
    }
  }
}

StatusOr<StoredJob> MemoryJobDatabase::Find(std::string_view tenant, std::string_view id) {
  std::lock_guard lock(mutex_);
  const Row* row = FindRow(tenant, id);
  return row == nullptr ? StatusOr<StoredJob>(NoSuchJob(id)) : row->job;
}

StatusOr<KeyRecord> MemoryJobDatabase::FindKey(std::string_view tenant, std::string_view key) {
  std::lock_guard lock(mutex_);
  const auto owner = tenants_.find(tenant);
  if (owner != tenants_.end()) {
    if (const auto found = owner->second.keys.find(key); found != owner->second.keys.end()) {
      return found->second.record;
    }
  }
  return NoSuchKey();
}

StatusOr<StoredRequest> MemoryJobDatabase::ReadRequest(std::string_view tenant, std::string_view id) {
  std::lock_guard lock(mutex_);
  const Row* row = FindRow(tenant, id);
  if (row == nullptr) {
    return NoSuchJob(id);
  }
  StoredRequest request;
  if (row->job.job().dropped()) {
    return NoSuchRequest(id);
  }
  if (!request.ParseFromString(requests_.at(row->request).bytes)) {
    return DataLoss("The stored request of job \"" + std::string(id) + "\" cannot be read.");
  }
  return request;
}

StatusOr<StoredResults> MemoryJobDatabase::ReadResults(std::string_view tenant, std::string_view id) {
  std::lock_guard lock(mutex_);
  const Row* row = FindRow(tenant, id);
  return row == nullptr ? StatusOr<StoredResults>(NoSuchJob(id)) : row->results;
}

StatusOr<std::vector<StoredJob>> MemoryJobDatabase::ListSome(std::string_view tenant, JobFilter* filter) {
  std::lock_guard lock(mutex_);
  std::vector<StoredJob> jobs;
  const auto owner = tenants_.find(tenant);
  const std::set<uint64_t> none;
  const std::set<uint64_t>& sequences = owner == tenants_.end() ? none : owner->second.sequences;
  auto at = std::make_reverse_iterator(sequences.lower_bound(filter->before_sequence));
  for (size_t rows = 0; at != sequences.rend() && rows < filter->rows_max && jobs.size() < filter->count_max;
       ++at, ++rows) {
    const StoredJob& job = rows_.at(*at).job;
    filter->before_sequence = *at;
    if (IsListed(filter->states, job.job().state()) && MatchesLabels(job, *filter) &&
        (filter->array_id.empty() || filter->array_id == job.job().array_id())) {
      jobs.push_back(job);
    }
  }
  if (at == sequences.rend()) {
    filter->before_sequence = 0;
  }
  return jobs;
}

Status MemoryJobDatabase::LoadLive(const std::function<void(LiveRow)>& each, std::vector<DamagedJob>* damaged) {
  std::lock_guard lock(mutex_);
  for (const auto& [sequence, row] : rows_) {
    if (!IsTerminal(row.job.job().state())) {
      each({row.job, row.shares});
    }
  }
  return absl::OkStatus();
}

StatusOr<std::vector<FinishedJob>> MemoryJobDatabase::ListFinished(std::string_view tenant, size_t count_max,
                                                                   bool with_dropped) {
  std::lock_guard lock(mutex_);
  std::vector<std::pair<int64_t, uint64_t>> ends;
  for (const auto& [name, owner] : tenants_) {
    if (tenant.empty() || tenant == name) {
      ends.insert(ends.end(), owner.finished.begin(), owner.finished.end());
    }
  }
  std::sort(ends.begin(), ends.end());
  if (!with_dropped) {
    std::erase_if(ends, [this](const auto& end) { return rows_.at(end.second).job.job().dropped(); });
  }
  ends.resize(std::min(ends.size(), count_max));
  std::vector<FinishedJob> jobs;
  for (const auto& [ended, sequence] : ends) {
    const StoredJob& job = rows_.at(sequence).job;
    jobs.push_back({job.tenant(), job.job().id(), ended, job.stored_bytes(), job.job().dropped()});
  }
  return jobs;
}

StatusOr<std::map<std::string, TenantUse>> MemoryJobDatabase::Use() {
  std::lock_guard lock(mutex_);
  std::map<std::string, TenantUse> use;
  for (const auto& [name, tenant] : tenants_) {
    if (tenant.use.jobs > 0) {
      use[name] = tenant.use;
    }
  }
  return use;
}

Status MemoryJobDatabase::ListBlobs(const std::function<void(const BlobUse&)>& each) {
  std::lock_guard lock(mutex_);
  for (const auto& [name, tenant] : tenants_) {
    for (const auto& [hash, users] : tenant.blob_users) {
      each({name, hash});
    }
  }
  return absl::OkStatus();
}

StatusOr<bool> MemoryJobDatabase::UsesBlob(std::string_view tenant, const Sha256& hash) {
  std::lock_guard lock(mutex_);
  if (broken_) {
    return DataLoss("The store failed; the blobs that it names are known after the next start.");
  }
  const auto owner = tenants_.find(tenant);
  return owner != tenants_.end() && owner->second.blob_users.count(hash) != 0;
}

StatusOr<uint64_t> MemoryJobDatabase::NextLease() {
  std::lock_guard lock(mutex_);
  return ++lease_;
}

Status MemoryJobDatabase::BackUp(const std::string& path) {
  return Unimplemented("Jobs that are kept in memory have no backup.");
}

StatusOr<std::vector<std::string>> MemoryJobDatabase::Check() { return std::vector<std::string>(); }

}  // namespace hpvm::server
