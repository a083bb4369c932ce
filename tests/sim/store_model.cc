// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/store_model.h"

#include <algorithm>
#include <charconv>

#include "server/jobs/rows/job_rules.h"

namespace hpvm::server::sim {
namespace {

constexpr int64_t kDayNs = 86'400'000'000'000;

uint64_t TokenOfName(std::string_view name) {
  uint64_t token = 0;
  if (name.starts_with("t")) {
    std::from_chars(name.data() + 1, name.data() + name.size(), token);
  }
  return token;
}

std::string HexOf(const std::string& hash) {
  Sha256 sha;
  std::copy_n(hash.begin(), std::min(hash.size(), sha.bytes.size()), sha.bytes.begin());
  return ToHex(sha);
}

bool IsLive(const Row& row) { return !IsTerminal(row.state); }

}  // namespace

Row RowOf(const StoredJob& stored) {
  const v1::Job& job = stored.job();
  Row row;
  row.id = job.id();
  row.tenant = stored.tenant();
  row.state = job.state();
  row.attempt = job.attempt();
  row.spent = stored.attempts_spent();
  row.attempts_max = job.attempts_max();
  row.lease = stored.lease();
  row.sequence = stored.sequence();
  row.stored_bytes = stored.stored_bytes();
  row.cancel_requested = job.cancel_requested();
  row.in_place = stored.in_place();
  row.dropped = job.dropped();
  row.error_code = job.error().code();
  row.error = job.error().message();
  row.array_id = job.array_id();
  row.retry_of = job.retry_of();
  row.array_index = job.array_index();
  row.array_running_max = stored.array_running_max();
  row.after.assign(job.after().begin(), job.after().end());
  row.created_unix_ns = job.created_unix_ns();
  row.deadline_unix_ns = job.deadline_unix_ns();
  row.not_before_unix_ns = job.not_before_unix_ns();
  row.ended_unix_ns = job.ended_unix_ns();
  row.lost_unix_ns = job.lost_attempts().empty() ? 0 : job.lost_attempts().rbegin()->ended_unix_ns();
  row.token = TokenOfName(job.name());
  for (const internal::StoredBlob& blob : stored.blobs()) {
    row.blobs.insert(HexOf(blob.sha256()));
  }
  return row;
}

std::string Describe(const Row& row) {
  return Short(row.id) + " " + v1::JobState_Name(row.state).substr(10) + " attempt " + std::to_string(row.attempt) +
         " (" + std::to_string(row.spent) + " of " + std::to_string(row.attempts_max) + " spent) lease " +
         std::to_string(row.lease) + (row.cancel_requested ? " cancelled" : "") + (row.dropped ? " dropped" : "") +
         (row.error_code != 0 ? " error " + std::to_string(row.error_code) : "");
}

bool AreEqual(const Row& a, const Row& b) {
  const bool same_bytes =
      a.stored_bytes == kUnknownBytes || b.stored_bytes == kUnknownBytes || a.stored_bytes == b.stored_bytes;
  return a.id == b.id && a.tenant == b.tenant && a.state == b.state && a.attempt == b.attempt && a.spent == b.spent &&
         a.lease == b.lease && a.cancel_requested == b.cancel_requested && a.in_place == b.in_place &&
         a.dropped == b.dropped && a.error_code == b.error_code && a.array_id == b.array_id &&
         a.array_index == b.array_index && a.blobs == b.blobs && same_bytes;
}

const Row* StoreModel::Find(const std::string& id) const {
  const auto found = rows_.find(id);
  return found == rows_.end() ? nullptr : &found->second;
}

std::vector<const Row*> StoreModel::RowsOf(uint64_t token) const {
  std::vector<const Row*> rows;
  if (const auto found = by_token_.find(token); found != by_token_.end()) {
    for (const std::string& id : found->second) {
      if (const Row* row = Find(id)) {
        rows.push_back(row);
      }
    }
  }
  return rows;
}

StoreModel::Gone StoreModel::GoneOf(uint64_t token, uint64_t index) const {
  const auto found = gone_.find({token, index});
  return found == gone_.end() ? Gone() : found->second;
}

std::vector<const Row*> StoreModel::ElementsOf(const std::string& array_id) const {
  std::vector<const Row*> rows;
  if (const auto found = by_array_.find(array_id); found != by_array_.end()) {
    for (const std::string& id : found->second) {
      if (const Row* row = Find(id)) {
        rows.push_back(row);
      }
    }
  }
  return rows;
}

std::vector<const Row*> StoreModel::UnitRows(const std::string& id) const {
  std::vector<const Row*> rows;
  const auto add = [&](const std::string& job) {
    const auto gone = forgotten_.find(job);
    if (const Row* row = Find(job); row != nullptr) {
      rows.push_back(row);
    } else if (gone != forgotten_.end()) {
      rows.push_back(&gone->second);
    }
  };
  if (const auto elements = by_array_.find(id); elements != by_array_.end()) {
    for (const std::string& element : elements->second) {
      add(element);
    }
  } else {
    add(id);
  }
  return rows;
}

void StoreModel::OnDropped(const std::string& id, uint64_t stored_bytes) {
  if (const auto found = rows_.find(id); found != rows_.end() && found->second.stored_bytes == kUnknownBytes) {
    found->second.stored_bytes = stored_bytes;
  }
}

std::string StoreModel::DescribeWrite(const JobWrite& write) const {
  if (const auto* change = std::get_if<ChangeJob>(&write)) {
    const Row* row = Find(change->id);
    return "expected " + v1::JobState_Name(change->state).substr(10) + " attempt " + std::to_string(change->attempt) +
           " lease " + std::to_string(change->lease) + "; there is " + (row == nullptr ? "none" : Describe(*row)) + ".";
  }
  if (const auto* drop = std::get_if<DropJob>(&write)) {
    const Row* row = Find(drop->id);
    return "dropping " + (row == nullptr ? "nothing" : Describe(*row)) + ".";
  }
  return "";
}

void StoreModel::OnLease(uint64_t lease) {
  context_.Check(lease > lease_, "lease", [&] {
    return "A daemon got lease " + std::to_string(lease) + " after lease " + std::to_string(lease_) + ".";
  });
  lease_ = lease;
  unknown_.reset();
  before_unknown_.reset();
}

void StoreModel::OnCommit(std::span<const JobWrite> writes, const Status& status,
                          const std::vector<WriteResult>& results) {
  if (unknown_.has_value()) {
    context_.Fail("broken store", "A commit was tried after one had failed for good.");
    return;
  }
  if (!status.ok()) {
    context_.trace.Add(
        "store", "a commit of " + std::to_string(writes.size()) + " writes failed: " + std::string(status.message()));
    for (const JobWrite& write : writes) {
      context_.trace.Add("store", "  " + DescribeWrite(write));
    }
  }
  if (absl::IsResourceExhausted(status)) {
    return;  // Nothing was changed.
  }
  if (!status.ok()) {
    unknown_.emplace(writes.begin(), writes.end());
    for (const JobWrite& write : writes) {
      if (const auto* insert = std::get_if<InsertJobs>(&write); insert != nullptr && !insert->jobs.empty()) {
        tenants_.insert(insert->jobs.front().tenant());
      }
    }
    return;
  }
  if (!context_.Check(results.size() == writes.size(), "store", [&] {
        return std::to_string(results.size()) + " results for " + std::to_string(writes.size()) + " writes.";
      })) {
    return;
  }
  for (size_t i = 0; i < writes.size(); ++i) {
    const bool taken = Apply(writes[i], &results[i]);
    context_.Check(taken == results[i].status.ok(), "compare and set", [&] {
      return std::string("The store ") + (results[i].status.ok() ? "took" : "refused") + " write " + std::to_string(i) +
             " of kind " + std::to_string(writes[i].index()) + ", which by the rules is to be " +
             (taken ? "taken" : "refused") + ": " + DescribeWrite(writes[i]) + " " +
             std::string(results[i].status.message());
    });
  }
  for (size_t i = 0; i < writes.size(); ++i) {
    CheckUnused(writes[i], results[i]);
  }
}

bool StoreModel::Apply(const JobWrite& write, const WriteResult* result) {
  if (const auto* insert = std::get_if<InsertJobs>(&write)) {
    return Insert(*insert, result);
  }
  if (const auto* change = std::get_if<ChangeJob>(&write)) {
    return Change(*change);
  }
  if (const auto* drop = std::get_if<DropJob>(&write)) {
    return Drop(*drop);
  }
  Forget(std::get<ForgetKeys>(write));
  return true;
}

bool StoreModel::Insert(const InsertJobs& insert, const WriteResult* result) {
  if (insert.jobs.empty()) {
    return false;
  }
  const TenantKey key(insert.jobs.front().tenant(), insert.idempotency_key);
  if (!insert.idempotency_key.empty()) {
    if (const auto known = keys_.find(key); known != keys_.end()) {
      if (result != nullptr) {
        context_.Check(result->known.has_value() && result->known->job_id == known->second.job_id, "idempotency", [&] {
          return "The store does not know that key \"" + insert.idempotency_key + "\" stands for " +
                 known->second.job_id + ".";
        });
      }
      return false;
    }
    keys_[key] = {insert.jobs.front().job().id(), insert.jobs.front().job().created_unix_ns(), context_.clock.Now()};
  }
  for (size_t i = 0; i < insert.jobs.size(); ++i) {
    StoredJob whole = insert.jobs[i];
    context_.Check(!insert.shared.has_value() || AddShared(*insert.shared, &whole).ok(), "arrays",
                   [&] { return "Job " + whole.job().id() + " shares what another array has."; });
    Row row = RowOf(whole);
    row.changed = context_.clock.Now();
    if (result != nullptr && result->status.ok()) {
      // An array that is written in steps has its numbers before commits in between.
      const bool has_sequence = i < result->sequences.size() && sequences_.insert(result->sequences[i]).second;
      context_.Check(has_sequence, "sequence", [&] { return "Job " + row.id + " got no number of its own."; });
      row.sequence = has_sequence ? result->sequences[i] : 0;
    }
    context_.Check(row.state == v1::JOB_STATE_ACCEPTED && row.attempt == 0, "states",
                   [&] { return "A job was inserted as " + Describe(row) + "."; });
    row.index = row.array_id.empty() ? 0 : row.array_index;
    if (const auto earlier = indexes_.find(row.retry_of); earlier != indexes_.end()) {
      row.index = earlier->second;
    }
    indexes_[row.id] = row.index;
    by_token_[row.token].insert(row.id);
    if (!row.array_id.empty()) {
      by_array_[row.array_id].insert(row.id);
    }
    tenants_.insert(row.tenant);
    if (on_change_) {
      on_change_(nullptr, row);
    }
    rows_[row.id] = std::move(row);
  }
  return true;
}

bool StoreModel::Change(const ChangeJob& change) {
  const auto found = rows_.find(change.id);
  if (found == rows_.end() || found->second.tenant != change.tenant) {
    return false;
  }
  Row& row = found->second;
  if (!IsLive(row) || row.state != change.state || row.attempt != change.attempt || row.lease != change.lease) {
    return false;
  }
  Row after = RowOf(change.job);
  after.sequence = row.sequence;
  after.index = row.index;
  after.changed = context_.clock.Now();
  if (change.job.shares()) {
    after.after = row.after;
  }
  if (judges_) {
    CheckChange(row, after);
  }
  const Row before = std::exchange(row, std::move(after));
  if (on_change_) {
    on_change_(&before, row);
  }
  return true;
}

void StoreModel::CheckChange(const Row& before, const Row& after) {
  const auto check = [&](bool holds, std::string_view what) {
    context_.Check(holds, "states", [&] {
      return std::string(what) + " Before: " + Describe(before) + ". After: " + Describe(after) + ".";
    });
  };
  const bool runs = after.state == v1::JOB_STATE_RUNNING, ran = before.state == v1::JOB_STATE_RUNNING;
  check(IsLive(before), "A job left its terminal state.");
  check(after.state != v1::JOB_STATE_QUEUED, "QUEUED was stored.");
  check(after.id == before.id && after.tenant == before.tenant && after.token == before.token &&
            after.array_id == before.array_id && after.in_place == before.in_place &&
            after.attempts_max == before.attempts_max && after.after.size() == before.after.size() &&
            after.array_running_max == before.array_running_max && after.created_unix_ns == before.created_unix_ns &&
            after.deadline_unix_ns == before.deadline_unix_ns,
        "What a job keeps for life has changed.");
  check(after.cancel_requested || !before.cancel_requested, "A wish to cancel was forgotten.");
  check(after.spent <= after.attempts_max, "More attempts were spent than the policy allows.");
  check(after.attempt == before.attempt + (runs && !ran ? 1 : 0), "An attempt was miscounted.");
  if (runs && !ran) {
    check(after.spent == before.spent + 1, "An attempt began that is not spent.");
    check(after.lease == lease_, "An attempt began under a lease that is not the daemon's.");
  }
  check(after.state != v1::JOB_STATE_SUCCEEDED || ran, "A job succeeded that did not run.");
  check(after.state != v1::JOB_STATE_EXPIRED || after.attempt == 0, "A job expired that had started.");
  check(after.state != v1::JOB_STATE_DEAD || after.spent == after.attempts_max, "A job died with attempts left.");
  check(!IsTerminal(after.state) || after.ended_unix_ns != 0, "A job ended at no time.");
  if (ran && after.state == v1::JOB_STATE_ACCEPTED && after.spent == before.spent &&
      after.lost_unix_ns != before.lost_unix_ns) {
    constexpr int64_t kFirstNs = 100'000'000, kCapNs = 30'000'000'000;
    const int64_t whole = after.spent > 10 ? kCapNs : std::min<int64_t>(kCapNs, kFirstNs << (after.spent - 1));
    const int64_t wait = after.not_before_unix_ns - after.lost_unix_ns;
    check(wait >= whole / 2 && wait <= whole, "The wait after a lost attempt (" + std::to_string(wait) +
                                                  " ns) is not half to whole of " + std::to_string(whole) + " ns.");
  }
}

bool StoreModel::Drop(const DropJob& drop) {
  const auto found = rows_.find(drop.id);
  if (found == rows_.end() || found->second.tenant != drop.tenant) {
    return false;
  }
  context_.Check(!IsLive(found->second), "retention",
                 [&] { return "A job that lives was dropped: " + Describe(found->second) + "."; });
  if (IsLive(found->second)) {
    return false;
  }
  CheckEarly(found->second, drop.forget);
  if (drop.forget) {
    if (forgotten_.emplace(drop.id, found->second).second) {
      Gone& gone = gone_[{found->second.token, found->second.index}];
      gone.attempts += found->second.attempt;
      gone.in_place += found->second.in_place ? 1 : 0;
      ++gone.rows;
    }
    rows_.erase(found);
  } else {
    found->second.dropped = true;
    found->second.blobs.clear();
    found->second.stored_bytes = kUnknownBytes;
  }
  return true;
}

// Independent of the wall clock: within a day, finished jobs are deleted only to make room for others.
void StoreModel::CheckEarly(const Row& row, bool forget) {
  if (!judges_ || context_.clock.Now() - row.changed >= Duration(kDayNs)) {
    return;
  }
  uint64_t finished = 0, bytes = 0;
  for (const auto& [id, other] : rows_) {
    if (other.tenant == row.tenant && !IsLive(other)) {
      ++finished;
      bytes += other.stored_bytes == kUnknownBytes ? 0 : other.stored_bytes;
    }
  }
  const Config& config = context_.plan.config;
  context_.Check(forget ? finished > config.jobs_kept_max : bytes > config.jobs_kept_bytes_max, "retention", [&] {
    return "A job was dropped early, of " + std::to_string(finished) + " with " + std::to_string(bytes) +
           " bytes: " + Describe(row) + ".";
  });
}

void StoreModel::CheckUnused(const JobWrite& write, const WriteResult& result) {
  const auto* drop = std::get_if<DropJob>(&write);
  const auto* change = std::get_if<ChangeJob>(&write);
  const std::string tenant = drop != nullptr ? drop->tenant : change != nullptr ? change->tenant : "";
  if (drop != nullptr) {
    context_.trace.Add("commit", (drop->forget ? "forget " : "drop ") + Short(drop->id));
  }
  for (const Sha256& hash : result.unused_blobs) {
    const std::string hex = ToHex(hash);
    context_.trace.Add("blob", "unused " + tenant + " " + hex.substr(0, 8));
    for (const auto& [id, row] : rows_) {
      context_.Check(row.tenant != tenant || row.blobs.count(hex) == 0, "blobs", [&, &row = row] {
        return "The store lets go of blob " + hex + ", which " + Describe(row) + " needs.";
      });
    }
  }
}

void StoreModel::Forget(const ForgetKeys& forget) {
  for (auto at = keys_.begin(); at != keys_.end();) {
    const bool goes = at->second.created_unix_ns < forget.before_unix_ns && rows_.count(at->second.job_id) == 0 &&
                      (forget.tenant.empty() || forget.tenant == at->first.first);
    context_.Check(!goes || !judges_ || context_.clock.Now() - at->second.inserted >= Duration(kDayNs), "idempotency",
                   [&] { return "The key \"" + at->first.second + "\" is forgotten within a day."; });
    at = goes ? keys_.erase(at) : std::next(at);
  }
}

std::string StoreModel::Difference(const std::map<std::string, Row>& found, JobDatabase& database) const {
  for (const auto& [id, row] : rows_) {
    const auto there = found.find(id);
    if (there == found.end()) {
      return "A committed job is gone: " + Describe(row) + ".";
    }
    if (!AreEqual(row, there->second)) {
      return "The store has " + Describe(there->second) + "; committed was " + Describe(row) + ".";
    }
  }
  for (const auto& [id, row] : found) {
    if (rows_.count(id) == 0) {
      return "The store has a job that was not committed: " + Describe(row) + ".";
    }
  }
  return KeyDifference(database);
}

std::string StoreModel::KeyDifference(JobDatabase& database) const {
  for (const auto& [key, value] : keys_) {
    const StatusOr<KeyRecord> there = database.FindKey(key.first, key.second);
    if (!there.ok()) {
      return "The key \"" + key.second + "\" of " + key.first + " is gone: " + std::string(there.status().message());
    }
    if (there->job_id != value.job_id) {
      return "The key \"" + key.second + "\" stands for " + there->job_id + ", not for " + value.job_id + ".";
    }
  }
  return "";
}

void StoreModel::Compare(JobDatabase& database) {
  std::map<std::string, Row> found;
  for (const std::string& tenant : tenants_) {
    const StatusOr<std::vector<StoredJob>> jobs =
        database.List(tenant, {.states = {}, .labels = {}, .array_id = "", .count_max = 1'000'000});
    if (!context_.Check(jobs.ok(), "durability", [&] {
          return "Listing the jobs of " + tenant + ": " + std::string(jobs.status().message());
        })) {
      return;
    }
    for (const StoredJob& job : *jobs) {
      found[job.job().id()] = RowOf(job);
    }
  }
  if (before_unknown_.has_value()) {
    rows_ = before_unknown_->rows;
    keys_ = before_unknown_->keys;
    forgotten_ = before_unknown_->forgotten;
  }
  std::string difference = Difference(found, database);
  if (!difference.empty() && unknown_.has_value()) {
    context_.trace.Add("store", "the commit that was cut off is there");
    before_unknown_ = State{rows_, keys_, forgotten_};
    for (const JobWrite& write : *unknown_) {
      Apply(write, nullptr);
    }
    const std::string with_it = Difference(found, database);
    difference = with_it.empty() ? "" : difference + " With the commit that was cut off: " + with_it;
  }
  if (!context_.Check(difference.empty(), "durability", [&] { return difference; })) {
    return;
  }
  for (auto& [id, row] : rows_) {
    row.stored_bytes = found[id].stored_bytes;
    row.sequence = found[id].sequence;
    sequences_.insert(row.sequence);
  }
  CheckAround(database);
}

// Checks the data around the rows: live jobs, their requests, the sums, and the blobs.
void StoreModel::CheckAround(JobDatabase& database) {
  std::set<std::string> live;
  std::vector<DamagedJob> damaged;
  const Status loaded = database.LoadLive([&](const LiveRow& row) { live.insert(row.job.job().id()); }, &damaged);
  context_.Check(loaded.ok() && damaged.empty(), "durability", [&] {
    return damaged.empty() ? std::string(loaded.message()) : "A row is damaged: " + damaged.front().id + ".";
  });
  std::set<std::pair<std::string, std::string>> named;
  const Status listed = database.ListBlobs([&](const BlobUse& use) { named.emplace(use.tenant, ToHex(use.hash)); });
  context_.Check(listed.ok(), "durability", [&] { return "Listing blobs: " + std::string(listed.message()); });
  std::map<std::string, TenantUse> sums;
  for (const auto& [id, row] : rows_) {
    TenantUse& sum = sums[row.tenant];
    ++sum.jobs;
    sum.live += IsLive(row) ? 1 : 0;
    sum.stored_bytes += row.stored_bytes;
    context_.Check(live.count(id) == (IsLive(row) ? 1 : 0), "durability", [&, &row = row] {
      return "Among the live jobs there is " + std::string(IsLive(row) ? "no " : "") + Describe(row) + ".";
    });
    if (IsLive(row)) {
      const StatusOr<StoredRequest> request = database.ReadRequest(row.tenant, id);
      context_.Check(request.ok(), "durability", [&, &id = id] {
        return "The request of " + id + " is gone: " + std::string(request.status().message());
      });
    }
    for (const std::string& blob : row.blobs) {
      context_.Check(named.count({row.tenant, blob}) == 1, "blobs", [&, &row = row] {
        return "No row of the store needs blob " + blob + ", but " + Describe(row) + " does.";
      });
    }
  }
  const StatusOr<std::map<std::string, TenantUse>> uses = database.Use();
  context_.Check(uses.ok(), "quotas", [&] { return "Reading sums: " + std::string(uses.status().message()); });
  for (const auto& [tenant, sum] : sums) {
    const TenantUse use = uses.ok() && uses->count(tenant) != 0 ? uses->at(tenant) : TenantUse();
    context_.Check(use.jobs == sum.jobs && use.live == sum.live && use.stored_bytes == sum.stored_bytes, "quotas",
                   [&, &tenant = tenant, &sum = sum] {
                     return "The store says that " + tenant + " has " + std::to_string(use.jobs) + " jobs, " +
                            std::to_string(use.live) + " live, " + std::to_string(use.stored_bytes) +
                            " bytes; its rows say " + std::to_string(sum.jobs) + ", " + std::to_string(sum.live) +
                            ", " + std::to_string(sum.stored_bytes) + ".";
                   });
  }
}

}  // namespace hpvm::server::sim
