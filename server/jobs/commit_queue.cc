// SPDX-License-Identifier: Apache-2.0
// Method: each tenant has a lane with a list for each kind of write. A batch takes the oldest write of one lane
// after another, beginning after the tenant served last; steps of large arrays alternate with batches.
// Invariants: no lane is empty; count_ and inserts_ are the sums over the lanes. Within a tenant the kinds that a
// batch takes leave in the order of Add: an array with steps left blocks its lane. A broken queue stays broken, and
// every write is answered once. On a full disk inserts are refused, and drops go before other writes.
// A batch has at least one write and, beyond that, at most group_max rows and 32 MiB. With a DiskRoom, a batch that
// found no room and no reserve is tried again with about a quarter of its writes.
#include "server/jobs/commit_queue.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <type_traits>
#include <utility>

#include "base/failpoint.h"
#include "server/events/events.h"
#include "server/jobs/blobs/disk_room.h"
#include "server/jobs/rows/job_rules.h"

namespace hpvm::server {
namespace {

// Maximum number of bytes in one transaction, which is held in memory until its commit.
constexpr size_t kBatchBytesMax = size_t{32} << 20;
// On a full disk the log must find room for all of a transaction: a small one may still fit.
constexpr size_t kFullGroupMax = 16;

// Sets of kinds of writes: a bit for each alternative of JobWrite.
constexpr unsigned kInserts = 1, kDrops = 4, kAny = 15;
static_assert(std::is_same_v<std::variant_alternative_t<0, JobWrite>, InsertJobs>);
static_assert(std::is_same_v<std::variant_alternative_t<2, JobWrite>, DropJob>);
static_assert(std::variant_size_v<JobWrite> == 4);

bool IsInsert(const JobWrite& write) { return std::holds_alternative<InsertJobs>(write); }

size_t WriteBytes(const JobWrite& write) {
  if (const auto* insert = std::get_if<InsertJobs>(&write)) {
    constexpr size_t kJobBytes = 1'024;  // An estimate; exact counts are not worth their time.
    return insert->request.size() + insert->jobs.size() * kJobBytes +
           (insert->shared.has_value() ? insert->shared->ByteSizeLong() : 0);
  }
  const auto* change = std::get_if<ChangeJob>(&write);
  return change != nullptr && change->results.has_value() ? change->results->ByteSizeLong() : 0;
}

size_t RowsOf(const JobWrite& write) {
  const auto* insert = std::get_if<InsertJobs>(&write);
  return insert != nullptr ? insert->jobs.size() : 1;
}

WriteResult Refusal(const Status& status) {
  WriteResult result;
  result.status = status;
  return result;
}

}  // namespace

CommitQueue::CommitQueue(CommitQueueOptions options)
    : options_(std::move(options)),
      clock_(options_.clock != nullptr ? *options_.clock : RealClock()),
      full_group_(FullGroupMax()) {}

// Without DiskRoom there is no reserve for which a group could be too large.
size_t CommitQueue::FullGroupMax() const {
  return options_.room == nullptr ? options_.group_max : std::min(options_.group_max, kFullGroupMax);
}

void CommitQueue::Add(JobWrite write, JobStore::WriteDone done) {
  const size_t rows = RowsOf(write), bytes = WriteBytes(write);
  std::lock_guard lock(mutex_);
  AddLocked({std::move(write), std::move(done), 0, rows, bytes});
}

void CommitQueue::AddMany(std::vector<JobStore::Pending> writes) {
  std::vector<std::pair<size_t, size_t>> sizes;
  for (const JobStore::Pending& pending : writes) {
    sizes.emplace_back(RowsOf(pending.write), WriteBytes(pending.write));
  }
  std::lock_guard lock(mutex_);
  for (size_t i = 0; i < writes.size(); ++i) {
    AddLocked({std::move(writes[i].write), std::move(writes[i].done), 0, sizes[i].first, sizes[i].second});
  }
}

void CommitQueue::AddLocked(Waiting waiting) {
  waiting.sequence = ++added_;
  ++count_;
  inserts_ += IsInsert(waiting.write) ? 1 : 0;
  std::list<Waiting>& list = waiting_[std::string(TenantOf(waiting.write))].by_kind[waiting.write.index()];
  list.push_back(std::move(waiting));
}

bool CommitQueue::Lane::empty() const {
  return std::all_of(by_kind.begin(), by_kind.end(), [](const auto& list) { return list.empty(); });
}

std::list<CommitQueue::Waiting>* CommitQueue::Lane::Next(unsigned kinds) {
  std::list<Waiting>* oldest = nullptr;
  for (size_t kind = 0; kind < by_kind.size(); ++kind) {
    std::list<Waiting>& list = by_kind[kind];
    if ((kinds >> kind & 1) != 0 && !list.empty() &&
        (oldest == nullptr || list.front().sequence < oldest->front().sequence)) {
      oldest = &list;
    }
  }
  return oldest;
}

size_t CommitQueue::size() const {
  std::lock_guard lock(mutex_);
  return count_;
}

Time CommitQueue::NextTime() const {
  std::lock_guard lock(mutex_);
  if (failure_.ok() || IsBroken()) {
    return waiting_.empty() && (removals_.empty() || IsBroken()) ? kNever : Time{0};
  }
  return inserts_ > 0 ? Time{0} : retry_at_;
}

JobStoreHealth CommitQueue::Health() const {
  std::lock_guard lock(mutex_);
  const Status full = Fullness();
  JobStoreHealth health;
  health.pending_writes = count_;
  health.accepts_writes = full.ok();
  health.is_transient = !full.ok() && !IsBroken();
  health.reason = Message(full);
  health.reserve_bytes = options_.room != nullptr ? options_.room->reserve_bytes() : 0;
  return health;
}

Status CommitQueue::Fullness() const {
  if (IsBroken() || options_.room == nullptr) {
    return failure_;
  }
  const std::string why = options_.room->Why();
  return why.empty() ? failure_ : ResourceExhausted(why);
}

bool CommitQueue::IsBroken() const { return absl::IsDataLoss(failure_); }

void CommitQueue::Break(const Status& status) {
  {
    std::lock_guard lock(mutex_);
    if (IsBroken()) {
      return;
    }
    failure_ = absl::IsDataLoss(status) ? status : DataLoss(Message(status));
  }
  if (options_.on_broken) {
    options_.on_broken(status);
  }
}

std::vector<CommitAnswer> CommitQueue::CommitSome() {
  std::vector<CommitAnswer> answers;
  // After each step of an array, other writes have their turn.
  was_step_ = !was_step_ && StepArrays(&answers);
  if (was_step_) {
    return answers;
  }
  Batch batch = TakeBatch(&answers);
  if (batch.writes.empty() && !batch.is_probe) {
    return answers;
  }
  std::vector<WriteResult> results;
  const Status status = Commit(batch, &results);
  if (!status.ok()) {
    PutBack(std::move(batch), status, &answers);
    return answers;
  }
  SettleBlobs(batch, results);
  auto waiting = batch.waiting.begin();
  for (size_t i = 0; i < results.size(); ++i, ++waiting) {
    answers.push_back({std::string(TenantOf(batch.writes[i])), std::move(waiting->done), std::move(results[i])});
    if (!answers.back().result.status.ok()) {
      RemoveRows(std::move(batch.writes[i]));
    }
  }
  std::lock_guard lock(mutex_);
  if (!IsBroken()) {
    failure_ = absl::OkStatus();
    full_group_ = FullGroupMax();
  }
  return answers;
}

bool CommitQueue::NeedsSteps(const Waiting& waiting) const {
  return waiting.rows > options_.stage_rows && !waiting.is_staged && IsInsert(waiting.write) &&
         options_.database->stages();
}

CommitQueue::Waiting* CommitQueue::NextWithSteps() {
  const auto first_of = [this](Lane& lane) -> Waiting* {
    std::list<Waiting>* list = lane.Next(kAny);
    return list != nullptr && NeedsSteps(list->front()) ? &list->front() : nullptr;
  };
  Waiting* first = nullptr;
  for (auto& [tenant, lane] : waiting_) {
    Waiting* const found = first == nullptr || tenant > last_stepped_ ? first_of(lane) : nullptr;
    if (found != nullptr && tenant > last_stepped_) {
      return found;
    }
    first = first == nullptr ? found : first;
  }
  return first;
}

bool CommitQueue::StepArrays(std::vector<CommitAnswer>* answers) {
  Waiting* next = nullptr;
  {
    std::lock_guard lock(mutex_);
    if (!failure_.ok()) {
      return false;
    }
    next = Fullness().ok() ? NextWithSteps() : nullptr;
    last_stepped_ = next != nullptr ? TenantOf(next->write) : "";
  }
  if (next == nullptr) {
    return StepRemoval();
  }
  auto& insert = std::get<InsertJobs>(next->write);
  const size_t before = insert.staged.rows;
  const Time start = clock_.Now();
  Status status = HPVMD_FAILPOINT("store.stage.before");
  status = status.ok() ? options_.database->Stage(&insert, options_.stage_rows) : status;
  if (options_.observer != nullptr) {
    options_.observer->On(events::Committed{1, clock_.Now() - start, status});
  }
  if (status.ok()) {
    next->is_staged = insert.staged.rows == before;
    next->rows = insert.jobs.size() - insert.staged.rows;
    return true;
  }
  Batch batch;
  {
    std::lock_guard lock(mutex_);
    const auto lane = waiting_.find(std::string(TenantOf(next->write)));
    Take(&batch, lane, lane->second.Next(kAny));
  }
  PutBack(std::move(batch), status, answers);
  return true;
}

void CommitQueue::RemoveRows(JobWrite write) {
  auto* insert = std::get_if<InsertJobs>(&write);
  if (insert != nullptr && insert->staged.rows > 0) {
    removals_.push_back(std::move(*insert));
  }
}

bool CommitQueue::StepRemoval() {
  if (removals_.empty()) {  // No other thread adds to them.
    return false;
  }
  InsertJobs& insert = removals_.front();
  const StatusOr<std::vector<Sha256>> unused = options_.database->Unstage(&insert, options_.stage_rows);
  if (!unused.ok() && !absl::IsResourceExhausted(unused.status())) {
    Break(unused.status());
    return true;
  }
  for (const Sha256& hash : unused.value_or(std::vector<Sha256>())) {
    if (options_.blobs != nullptr) {
      options_.blobs->Release(insert.jobs.front().tenant(), hash);
    }
  }
  std::lock_guard lock(mutex_);
  if (!unused.ok()) {
    failure_ = unused.status();
    retry_at_ = clock_.Now() + options_.retry_every;
  } else if (insert.staged.rows == 0) {
    removals_.pop_front();
  }
  return true;
}

// Writes that are refused now go to `answers`.
CommitQueue::Batch CommitQueue::TakeBatch(std::vector<CommitAnswer>* answers) {
  std::lock_guard lock(mutex_);
  Batch batch;
  if (IsBroken()) {
    Clear(answers);
  } else if (const Status full = Fullness(); full.ok()) {
    Move(&batch, kAny, options_.group_max, kBatchBytesMax);
  } else if (failure_.ok()) {
    RefuseInserts(full, answers);
    MoveWhatMust(&batch);
  } else if (clock_.Now() < retry_at_) {
    RefuseInserts(full, answers);
  } else {
    // If no other write waits, an insert finds out whether there is room; if none waits at all, an empty commit does.
    MoveWhatMust(&batch);
    if (batch.writes.empty() && (options_.room == nullptr || !options_.room->is_full())) {
      Move(&batch, kAny, options_.group_max, 0);
    }
    batch.is_probe = true;
  }
  return batch;
}

// On a full disk, takes writes that make room before writes that need it, otherwise in order. No other waiting write
// concerns a job that is dropped, since that job has ended on disk.
void CommitQueue::MoveWhatMust(Batch* batch) {
  if (options_.room != nullptr) {
    Move(batch, kDrops, full_group_, kBatchBytesMax);
  }
  if (batch->writes.empty()) {
    Move(batch, kAny & ~kInserts, full_group_, kBatchBytesMax);
  }
}

// Takes at least one write of the given kinds, then more up to the limits: one of each tenant, then another of each,
// beginning after the tenant served last. The remaining writes keep their order.
void CommitQueue::Move(Batch* batch, unsigned kinds, size_t rows_max, size_t bytes_max) {
  using LaneIterator = Lanes::iterator;
  std::vector<LaneIterator> turns;
  const LaneIterator first = waiting_.upper_bound(last_);
  for (LaneIterator lane = first; lane != waiting_.end(); ++lane) {
    turns.push_back(lane);
  }
  for (LaneIterator lane = waiting_.begin(); lane != first; ++lane) {
    turns.push_back(lane);
  }
  bool is_full = false;
  while (!turns.empty() && !is_full) {
    std::vector<LaneIterator> again;
    for (const LaneIterator turn : turns) {
      std::list<Waiting>* list = turn->second.Next(kinds);
      if (list == nullptr) {
        continue;
      }
      const Waiting& next = list->front();
      if (NeedsSteps(next)) {
        continue;
      }
      is_full =
          !batch->writes.empty() && (batch->rows + next.rows > rows_max || batch->bytes + next.bytes >= bytes_max);
      if (is_full) {
        break;
      }
      last_ = turn->first;
      if (Take(batch, turn, list)) {
        again.push_back(turn);
      }
    }
    turns = std::move(again);
  }
}

bool CommitQueue::Take(Batch* batch, Lanes::iterator lane, std::list<Waiting>* list) {
  Waiting& next = list->front();
  batch->rows += next.rows;
  batch->bytes += next.bytes;
  --count_;
  inserts_ -= IsInsert(next.write) ? 1 : 0;
  batch->writes.push_back(std::move(next.write));
  batch->waiting.splice(batch->waiting.end(), *list, list->begin());
  const bool has_more = !lane->second.empty();
  if (!has_more) {
    waiting_.erase(lane);
  }
  return has_more;
}

// Answers all writes of a broken queue.
void CommitQueue::Clear(std::vector<CommitAnswer>* answers) {
  for (auto& [tenant, lane] : waiting_) {
    while (std::list<Waiting>* list = lane.Next(kAny)) {
      answers->push_back({tenant, std::move(list->front().done), Refusal(failure_)});
      list->pop_front();
    }
  }
  waiting_.clear();
  count_ = inserts_ = 0;
}

void CommitQueue::RefuseInserts(const Status& why, std::vector<CommitAnswer>* answers) {
  for (auto lane = waiting_.begin(); inserts_ > 0 && lane != waiting_.end();) {
    while (std::list<Waiting>* list = lane->second.Next(kInserts)) {
      answers->push_back({lane->first, std::move(list->front().done), Refusal(why)});
      RemoveRows(std::move(list->front().write));
      list->pop_front();
      --count_;
      --inserts_;
    }
    lane = lane->second.empty() ? waiting_.erase(lane) : std::next(lane);
  }
}

Status CommitQueue::Commit(const Batch& batch, std::vector<WriteResult>* results) {
  const Time start = clock_.Now();
  Status status = HPVMD_FAILPOINT("store.commit.before");
  if (status.ok()) {
    status = options_.database->Commit(batch.writes, results);
  }
  if (status.ok()) {
    // Simulates a crash at this point: the batch is on disk, but not acknowledged.
    const Status after = HPVMD_FAILPOINT("store.commit.after");
    status = after.ok() ? status : DataLoss(Message(after));
  }
  if (options_.observer != nullptr && !batch.writes.empty()) {
    options_.observer->On(events::Committed{batch.writes.size(), clock_.Now() - start, status});
  }
  return status;
}

// Called before any answer: the pins of inserted blobs are still held, and no dropped blob is needed again yet.
void CommitQueue::SettleBlobs(const Batch& batch, const std::vector<WriteResult>& results) {
  if (options_.blobs == nullptr) {
    return;
  }
  const auto keep = [this](const StoredJob& job) {
    for (const Sha256& hash : BlobsOf(job)) {
      options_.blobs->Keep(job.tenant(), hash);
    }
  };
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i].status.ok()) {
      continue;
    }
    if (const auto* insert = std::get_if<InsertJobs>(&batch.writes[i])) {
      std::for_each(insert->jobs.begin(), insert->jobs.end(), keep);
    } else if (const auto* change = std::get_if<ChangeJob>(&batch.writes[i])) {
      keep(change->job);
    }
  }
  for (size_t i = 0; i < results.size(); ++i) {
    const auto* drop = std::get_if<DropJob>(&batch.writes[i]);
    const auto* change = std::get_if<ChangeJob>(&batch.writes[i]);
    for (const Sha256& hash : results[i].unused_blobs) {
      options_.blobs->Release(drop != nullptr ? drop->tenant : change->tenant, hash);
    }
  }
}

// Handles a commit that failed: refuses the inserts; the other writes wait for room, or are refused when the store is
// broken.
void CommitQueue::PutBack(Batch batch, const Status& status, std::vector<CommitAnswer>* answers) {
  if (!absl::IsResourceExhausted(status)) {
    Break(status);
    std::lock_guard lock(mutex_);
    for (size_t i = 0; Waiting & waiting : batch.waiting) {
      answers->push_back({std::string(TenantOf(batch.writes[i++])), std::move(waiting.done), Refusal(failure_)});
    }
    return;
  }
  const bool has_more = options_.room != nullptr && options_.room->GiveUp();
  std::lock_guard lock(mutex_);
  const size_t before = answers->size();
  size_t again = 0;
  for (size_t i = batch.writes.size(); i-- > 0;) {  // Backwards, each to the front.
    const auto last = std::prev(batch.waiting.end());
    const std::string tenant(TenantOf(batch.writes[i]));
    if (IsInsert(batch.writes[i])) {
      answers->push_back({tenant, std::move(last->done), Refusal(status)});
      RemoveRows(std::move(batch.writes[i]));
      batch.waiting.erase(last);
    } else {
      last->write = std::move(batch.writes[i]);
      std::list<Waiting>& list = waiting_[tenant].by_kind[last->write.index()];
      list.splice(list.begin(), batch.waiting, last);
      ++again;
    }
  }
  std::reverse(answers->begin() + static_cast<ptrdiff_t>(before), answers->end());
  count_ += again;
  // A smaller batch may still fit.
  const bool fits_less = options_.room != nullptr && again > 1;
  const bool try_now = again > 0 && (has_more || fits_less || (failure_.ok() && again < batch.writes.size()));
  full_group_ = fits_less && !has_more ? again / 4 + 1 : FullGroupMax();
  if (!IsBroken()) {
    failure_ = status;
    retry_at_ = clock_.Now() + (try_now ? Duration{0} : options_.retry_every);
  }
}

}  // namespace hpvm::server
