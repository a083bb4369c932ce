// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/sim_job_store.h"

#include <algorithm>
#include <utility>

namespace hpvm::server::sim {

SimJobStore::SimJobStore(Context& context, SeededRng& rng, JobDatabase& database, BlobFolder& blobs,
                         std::function<void(const Status&)> on_broken)
    : context_(context),
      rng_(rng),
      database_(database),
      blobs_(blobs),
      queue_({.database = &database,
              .blobs = &blobs,
              .clock = &context.clock,
              .stage_rows = 2,
              .on_broken = std::move(on_broken)}),
      incarnation_(context.incarnation) {
  blobs_.SetIsUsed([&context, &database](std::string_view tenant, const Sha256& hash) {
    const StatusOr<bool> used = database.UsesBlob(tenant, hash);
    context.trace.Add("blob", ToHex(hash).substr(0, 8) + " is " + (used.value_or(true) ? "used" : "not used"));
    return !used.ok() || *used;
  });
}

void SimJobStore::Write(JobWrite write, WriteDone done) {
  if (abandoned_) {
    return;
  }
  queue_.Add(std::move(write), std::move(done));
  ScheduleCommit();
}

void SimJobStore::ScheduleCommit() {
  const Time next = queue_.NextTime();
  if (commit_scheduled_ || abandoned_ || next == kNever) {
    return;
  }
  commit_scheduled_ = true;
  // Occasionally the disk is slow.
  const bool is_slow = context_.faults_on && Chance(rng_, context_.plan.slow_commits);
  const Duration takes = is_slow ? Milliseconds(Between(rng_, 5, 3'000)) : Microseconds(Between(rng_, 50, 2'000));
  context_.events.After(std::max(next - context_.clock.Now(), Duration{0}) + takes, incarnation_, [this] {
    commit_scheduled_ = false;
    CommitNow();
    ScheduleCommit();
  });
}

void SimJobStore::CommitNow() {
  for (CommitAnswer& answer : queue_.CommitSome()) {
    answers_.push_back(std::move(answer));
    // In order, each a little later, so that other events may come between.
    answers_until_ = std::max(answers_until_, context_.clock.Now()) + Microseconds(rng_.Below(300));
    context_.events.After(answers_until_ - context_.clock.Now(), incarnation_, [this] { GiveAnswer(); });
  }
}

void SimJobStore::Shrink() {
  const StatusOr<bool> more = database_.Shrink(8);
  context_.trace.Add("store",
                     "shrinks: " + std::string(more.status().message()) + (more.value_or(false) ? "more" : ""));
  if (absl::IsDataLoss(more.status())) {
    queue_.Break(more.status());
  }
}

void SimJobStore::GiveAnswer() {
  if (answers_.empty()) {
    return;
  }
  const CommitAnswer answer = std::move(answers_.front());
  answers_.pop_front();
  answer.Give();
}

void SimJobStore::PutBlobs(std::string tenant, std::vector<BlobInput> blobs, PutDone done) {
  Push(Kind::kBlob, [this, tenant = std::move(tenant), blobs = std::move(blobs), done = std::move(done)] {
    PutNow(tenant, blobs, done);
    return FairQueue::Step::kDone;
  });
}

void SimJobStore::PutNow(const std::string& tenant, const std::vector<BlobInput>& blobs, const PutDone& done) {
  std::vector<BlobSource> sources;
  for (const BlobInput& blob : blobs) {
    sources.push_back(blob.source);
  }
  StatusOr<std::vector<PinnedBlob>> pinned = blobs_.PutMany(tenant, sources);
  if (absl::IsDataLoss(pinned.status())) {
    queue_.Break(pinned.status());
  }
  for (const PinnedBlob& blob : pinned.ok() ? *pinned : std::vector<PinnedBlob>()) {
    context_.trace.Add("blob", "put " + tenant + " " + ToHex(blob.hash).substr(0, 8));
  }
  done(std::move(pinned));
}

void SimJobStore::Post(std::string, FairQueue::Work work) { Push(Kind::kBlob, std::move(work)); }
void SimJobStore::PostRead(std::string, FairQueue::Work work) { Push(Kind::kRead, std::move(work)); }

void SimJobStore::Push(Kind kind, FairQueue::Work work) {
  if (abandoned_ || (kind == Kind::kRead ? readers_have_ended_ : blobs_have_ended_)) {
    return;
  }
  work_.push_back({kind, std::move(work)});
  work_until_ = std::max(work_until_, context_.clock.Now()) + Microseconds(Between(rng_, 1, 1'000));
  context_.events.After(work_until_ - context_.clock.Now(), incarnation_, [this] { DoWork(); });
}

void SimJobStore::DoWork() {
  if (work_.empty()) {
    return;
  }
  Task task = std::move(work_.front());
  work_.pop_front();
  if (task.work() == FairQueue::Step::kAgain) {
    Push(task.kind, std::move(task.work));  // Others may come between.
  }
}

void SimJobStore::FlushKind(Kind kind) {
  const auto next = [&] { return std::ranges::find(work_, kind, &Task::kind); };
  for (auto task = next(); task != work_.end(); task = next()) {
    FairQueue::Work work = std::move(task->work);
    work_.erase(task);
    while (work() == FairQueue::Step::kAgain) {
    }
  }
}

void SimJobStore::Flush() {
  context_.trace.Add("store", "flushes " + std::to_string(work_.size()) + " tasks, " + std::to_string(answers_.size()) +
                                  " answers, " + std::to_string(queue_.size()) + " writes");
  FlushKind(Kind::kRead);
  readers_have_ended_ = true;
  FlushKind(Kind::kBlob);
  blobs_have_ended_ = true;
  while (!answers_.empty() || queue_.NextTime() <= context_.clock.Now()) {
    if (answers_.empty()) {
      CommitNow();
    }
    while (!answers_.empty()) {
      GiveAnswer();
    }
  }
}

void SimJobStore::Abandon() {
  abandoned_ = true;
  // Swapped out first, because destroying them may call back.
  const auto work = std::exchange(work_, {});
  const auto answers = std::exchange(answers_, {});
}

}  // namespace hpvm::server::sim
