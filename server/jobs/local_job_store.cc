// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <thread>
#include <utility>

#include "base/round_thread.h"
#include "base/thread_watch.h"
#include "server/jobs/blobs/disk_room.h"
#include "server/jobs/commit_queue.h"
#include "server/jobs/job_store.h"
#include "server/jobs/scrub.h"
#include "server/process/log.h"

namespace hpvm::server {
namespace {

constexpr Duration kLookEvery = std::chrono::seconds(1);
// Mostly they wait for the disk.
constexpr size_t kBlobThreads = 4;
constexpr size_t kReadThreads = 2;
// Number of answers given in one step: about a millisecond.
constexpr size_t kAnswersAtOnce = 16;
// Approximate time of a step of giving room back to the disk, and the time between two steps, which is for commits.
constexpr Duration kShrinkStep = std::chrono::milliseconds(4), kShrinkPause = std::chrono::milliseconds(40);
constexpr int kShrinkPagesMin = 8, kShrinkPagesMax = 512;

// ScrubThread runs the scrub on a thread, at its rate: reads one slice, then pauses for as long as the rate requires.
class ScrubThread {
 public:
  ScrubThread(JobDatabase& database, BlobFolder& blobs, const ScrubOptions& options)
      : options_(options), scrub_(database, blobs, [this](const JobDamage& damage) { Tell(damage); }) {
    if (options_.bytes_per_second > 0) {
      const Duration first = std::min(kFirst, options_.every);
      began_ = RealClock().Now() + first;
      thread_.emplace([this] { return Round(); }, first);
    }
  }

  void Stop() {
    if (thread_.has_value()) {
      thread_->Stop();
    }
  }

  void SetOnDamage(JobStore::OnDamage on_damage) {
    std::lock_guard lock(tell_mutex_);
    on_damage_ = std::move(on_damage);
    for (const JobDamage& damage : on_damage_ ? std::exchange(early_, {}) : std::vector<JobDamage>()) {
      on_damage_(damage);
    }
  }

  void AddTo(JobStoreHealth* health) const {
    health->scrubbed_bytes = bytes_;
    health->scrub_passes = passes_;
    health->damaged_jobs = damaged_jobs_;
  }

 private:
  // Large enough that a pause of some milliseconds follows, small enough that no other read waits long for the disk.
  static constexpr uint64_t kSliceBytes = 256 << 10;
  // The daemon has other data to read when it starts.
  static constexpr Duration kFirst = std::chrono::seconds(10);

  // Returns the length of the pause.
  Duration Round() {
    const uint64_t slice = std::min(kSliceBytes, options_.bytes_per_second);
    const uint64_t mended_before = scrub_.mended_keys();
    const StatusOr<uint64_t> got = scrub_.Step(slice);
    if (const uint64_t mended = scrub_.mended_keys() - mended_before; mended > 0) {
      LogError("Damaged idempotency keys in the store were restored from the jobs that have them",
               {{"keys", std::to_string(mended)}});
    }
    if (!got.ok()) {
      LogError("The scrub could not read a part of the job store", {{"error", Message(got.status())}});
    }
    bytes_ += got.value_or(slice);
    if (!got.ok() || *got != 0) {
      return Duration(static_cast<int64_t>(1e9 * static_cast<double>(got.value_or(slice)) /
                                           static_cast<double>(options_.bytes_per_second)));
    }
    ++passes_;
    LogInfo("The job store was read and compared with its checksums",
            {{"seconds", std::to_string((RealClock().Now() - began_) / std::chrono::seconds(1))},
             {"damaged_jobs", std::to_string(damaged_jobs_)}});
    const Duration pause =
        std::max(began_ + options_.every - RealClock().Now(), std::min<Duration>(options_.every, kFirst));
    began_ = RealClock().Now() + pause;
    return pause;
  }

  void Tell(const JobDamage& damage) {
    LogError("Job damaged: what the store has of it is not what was written",
             {{"tenant", damage.tenant}, {"job", damage.id}, {"error", Message(damage.what)}});
    ++damaged_jobs_;
    std::lock_guard lock(tell_mutex_);
    if (on_damage_) {
      on_damage_(damage);
    } else {
      early_.push_back(damage);
    }
  }

  const ScrubOptions options_;
  Scrub scrub_;
  std::atomic<uint64_t> bytes_{0}, passes_{0}, damaged_jobs_{0};

  std::mutex tell_mutex_;
  JobStore::OnDamage on_damage_;
  std::vector<JobDamage> early_;  // Found before a callback was set.

  Time began_{0};                      // Used by the thread only.
  std::optional<RoundThread> thread_;  // Declared last, since it uses all other members.
};

// DatabaseAsked tells pins whether a row needs their blob; pins may outlive the store.
struct DatabaseAsked {
  std::shared_mutex mutex;
  JobDatabase* database = nullptr;

  bool UsesBlob(std::string_view tenant, const Sha256& hash) {
    std::shared_lock lock(mutex);
    if (database == nullptr) {
      return true;  // The next start's sweep finds out.
    }
    const StatusOr<bool> used = database->UsesBlob(tenant, hash);
    return !used.ok() || *used;
  }
};

// Answers are given on a thread of their own, fairly among tenants, so that the next commit runs meanwhile.
class LocalJobStore final : public JobStore {
 public:
  explicit LocalJobStore(LocalJobStoreOptions options)
      : database_(std::move(options.database)),
        blobs_(std::move(options.blobs)),
        room_(options.room),
        window_(options.group_window),
        queue_({.database = database_.get(),
                .blobs = blobs_.get(),
                .room = room_,
                .clock = nullptr,
                .observer = options.observer,
                .group_max = options.group_max,
                .on_broken = std::move(options.on_broken)}),
        scrub_(*database_, *blobs_, options.scrub),
        commit_thread_([this] { CommitLoop(); }) {
    asked_->database = database_.get();
    blobs_->SetIsUsed(
        [asked = asked_](std::string_view tenant, const Sha256& hash) { return asked->UsesBlob(tenant, hash); });
    blobs_->SetRoom(room_);
  }

  ~LocalJobStore() override {
    scrub_.Stop();
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    read_queue_.Stop();
    blob_queue_.Stop();
    {
      std::lock_guard lock(mutex_);
      committing_ends_ = true;
    }
    wake_.notify_one();
    commit_thread_.join();
    answer_queue_.Stop();
    std::unique_lock lock(asked_->mutex);
    asked_->database = nullptr;
  }

  void Write(JobWrite write, WriteDone done) override {
    queue_.Add(std::move(write), std::move(done));
    { std::lock_guard lock(mutex_); }
    wake_.notify_one();
  }

  void WriteMany(std::vector<Pending> writes) override {
    queue_.AddMany(std::move(writes));
    { std::lock_guard lock(mutex_); }
    wake_.notify_one();
  }

  void PutBlobs(std::string tenant, std::vector<BlobInput> blobs, PutDone done) override {
    auto put = std::make_shared<PutWork>(PutWork{tenant, std::move(blobs), std::move(done), nullptr});
    blob_queue_.Post(std::move(tenant), [this, put] {
      StatusOr<bool> step = StepPut(*put);
      if (step.ok() && !*step) {
        return FairQueue::Step::kAgain;
      }
      if (absl::IsDataLoss(step.status())) {
        queue_.Break(step.status());
      }
      StatusOr<std::vector<PinnedBlob>> pinned =
          step.ok() ? put->steps->Take() : StatusOr<std::vector<PinnedBlob>>(step.status());
      put->steps.reset();  // Removes unfinished files before the caller tries again.
      put->done(std::move(pinned));
      return FairQueue::Step::kDone;
    });
  }

  void Post(std::string tenant, FairQueue::Work work) override { blob_queue_.Post(std::move(tenant), std::move(work)); }

  void PostRead(std::string tenant, FairQueue::Work work) override {
    read_queue_.Post(std::move(tenant), std::move(work));
  }

  JobDatabase& database() override { return *database_; }
  BlobFolder& blobs() override { return *blobs_; }
  JobStoreHealth Health() override {
    JobStoreHealth health = queue_.Health();
    scrub_.AddTo(&health);
    return health;
  }

  void AwaitRoom(uint64_t bytes) override {
    if (room_ != nullptr) {
      room_->Await(bytes);
    }
  }

  void SetOnRoom(OnRoom on_room) override {
    std::lock_guard lock(room_mutex_);
    on_room_ = std::move(on_room);
    told_room_.reset();
  }

  void SetOnDamage(OnDamage on_damage) override { scrub_.SetOnDamage(std::move(on_damage)); }

 private:
  struct PutWork {
    std::string tenant;
    std::vector<BlobInput> blobs;
    PutDone done;
    std::unique_ptr<BlobPut> steps;  // Set by the first step.
  };
  // Returns true when the blobs are durable.
  StatusOr<bool> StepPut(PutWork& put) {
    {
      std::lock_guard lock(mutex_);
      if (stopping_) {
        return Unavailable("The job store stops.");
      }
    }
    if (put.steps == nullptr) {
      std::vector<BlobSource> sources;
      for (const BlobInput& blob : put.blobs) {
        sources.push_back(blob.source);
      }
      HPVMD_ASSIGN_OR_RETURN(put.steps, blobs_->BeginPut(put.tenant, std::move(sources)));
    }
    return put.steps->Step();
  }

  // Returns false when the store ends.
  bool AwaitWork() {
    std::unique_lock lock(mutex_);
    while (true) {
      const Time now = RealClock().Now();
      const Time next = std::min({queue_.NextTime(), next_look_, next_shrink_});
      if (next <= now || committing_ends_) {
        break;
      }
      if (next == kNever) {
        wake_.wait(lock);
      } else {
        wake_.wait_for(lock, next - now);
      }
    }
    if (window_ > Duration{0} && queue_.size() == 1) {
      wake_.wait_for(lock, window_, [this] { return queue_.size() > 1 || committing_ends_; });
    }
    return !committing_ends_;
  }

  // Each second, checks whether the disk is full, and reports changes.
  void LookAtRoom() {
    const Time now = RealClock().Now();
    if (now < next_look_) {
      return;
    }
    next_look_ = now + kLookEvery;
    if (room_ != nullptr) {
      room_->Look();
    }
    const JobStoreHealth health = queue_.Health();
    answer_queue_.PostOnce("", [this, has_room = health.accepts_writes || !health.is_transient] {
      std::lock_guard lock(room_mutex_);
      if (on_room_ && std::exchange(told_room_, has_room) != std::optional(has_room)) {
        on_room_(has_room);
      }
    });
  }

  // Gives room that retention freed back to the disk in short steps between commits.
  void ShrinkSome() {
    const Time start = RealClock().Now();
    if (start < next_shrink_) {
      return;
    }
    const StatusOr<bool> more = database_->Shrink(shrink_pages_);
    if (absl::IsDataLoss(more.status())) {
      queue_.Break(more.status());
    }
    const Time end = RealClock().Now();
    next_shrink_ = end + (more.value_or(false) ? kShrinkPause : kLookEvery);
    if (more.value_or(false)) {
      shrink_pages_ = std::clamp(end - start > kShrinkStep ? shrink_pages_ / 2 : shrink_pages_ * 2, kShrinkPagesMin,
                                 kShrinkPagesMax);
    }
  }

  // Posts several answers of a tenant as one step of its turns: a step costs as much as some answers.
  void PostAnswers(std::vector<CommitAnswer> answers) {
    std::map<std::string, std::vector<CommitAnswer>> steps;
    const auto post = [this](const std::string& tenant, std::vector<CommitAnswer>& step) {
      answer_queue_.PostOnce(tenant, [step = std::move(step)] {
        for (const CommitAnswer& answer : step) {
          answer.Give();
        }
      });
      step.clear();
    };
    for (CommitAnswer& answer : answers) {
      auto& [tenant, step] = *steps.try_emplace(answer.tenant).first;
      step.push_back(std::move(answer));
      if (step.size() == kAnswersAtOnce) {
        post(tenant, step);
      }
    }
    for (auto& [tenant, step] : steps) {
      if (!step.empty()) {
        post(tenant, step);
      }
    }
  }

  void CommitLoop() {
    bool goes_on = true;
    while (goes_on) {
      goes_on = AwaitWork();
      {
        const WatchedItem item("commits", "room");
        LookAtRoom();
        ShrinkSome();
      }
      do {
        PostAnswers(queue_.CommitSome());
      } while (!goes_on && queue_.NextTime() == Time{0});
    }
  }

  const std::unique_ptr<JobDatabase> database_;
  const std::shared_ptr<DatabaseAsked> asked_ = std::make_shared<DatabaseAsked>();  // Shared with the folder's pins.
  const std::unique_ptr<BlobFolder> blobs_;
  DiskRoom* const room_;
  const Duration window_;
  CommitQueue queue_;
  Time next_look_{0}, next_shrink_{0};  // Used by the commit thread only, as is the next member.
  int shrink_pages_ = kShrinkPagesMin;

  std::mutex room_mutex_;
  OnRoom on_room_;
  std::optional<bool> told_room_;

  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;         // No more blobs are put.
  bool committing_ends_ = false;  // Committing ends after the queued writes.

  ScrubThread scrub_;
  FairQueue answer_queue_{"answers", "commit", 1};
  FairQueue read_queue_{"reads", "step", kReadThreads};
  FairQueue blob_queue_{"blobs", "step", kBlobThreads};
  std::thread commit_thread_;
};

}  // namespace

std::unique_ptr<JobStore> CreateLocalJobStore(LocalJobStoreOptions options) {
  return std::make_unique<LocalJobStore>(std::move(options));
}

}  // namespace hpvm::server
