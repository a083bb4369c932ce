// SPDX-License-Identifier: Apache-2.0
#include "server/audit/audit_log.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "base/failpoint.h"
#include "base/thread_watch.h"
#include "server/audit/audit_backlog.h"
#include "server/audit/audit_files.h"
#include "server/process/log.h"

namespace hpvm::server {
namespace {

constexpr size_t kValueBytesMax = 256, kDetailBytesMax = 1'024;
constexpr Duration kRetryEvery = std::chrono::seconds(1);
// Records are written at once, so that the end of the daemon loses none. The disk's syncs, which the job store needs
// too, cover all records of this interval together, and a loss of power costs the records since the last sync.
constexpr Duration kSyncEvery = std::chrono::milliseconds(20);
// Interval at which file ages are checked, and minimum interval between two removals by age.
constexpr Duration kRetentionEvery = std::chrono::hours(1);

using Waiting = AuditBacklog::Record;

void AppendField(std::string& line, std::string_view key, std::string_view value, size_t bytes_max) {
  line += ",\"" + std::string(key) + "\":";
  AppendJson(line, value, bytes_max);
}

std::string FormatFields(const AuditRecord& record) {
  std::string fields;
  AppendField(fields, "who", record.who, kValueBytesMax);
  AppendField(fields, "peer", record.peer, kValueBytesMax);
  AppendField(fields, "tenant", record.tenant, kValueBytesMax);
  AppendField(fields, "method", record.method, kValueBytesMax);
  AppendField(fields, "object", record.object, kValueBytesMax);
  AppendField(fields, "verdict", record.verdict, kValueBytesMax);
  AppendField(fields, "detail", record.detail, kDetailBytesMax);
  return fields;
}

std::string FormatLine(const Waiting& waiting, uint64_t sequence, const std::string& previous) {
  return SealAuditLine("{\"seq\":" + std::to_string(sequence) + ",\"time\":\"" + UtcText(waiting.unix_ns, 6) +
                       "\",\"prev\":\"" + previous + '"' + waiting.fields);
}
AuditRecord Note(std::string method, std::string verdict, std::string detail) {
  return {.who = "hpvmd",
          .peer = "",
          .tenant = "",
          .method = std::move(method),
          .object = "",
          .verdict = std::move(verdict),
          .detail = std::move(detail),
          .payer = std::string(kAuditPayerDaemon)};
}

// Says in the record itself how many records are missing there.
std::string DescribeLost(std::string_view payer, uint64_t lost, int64_t since_unix_ns) {
  LogError("Audit records were lost", {{"payer", std::string(payer)}, {"records", std::to_string(lost)}});
  AuditRecord note = Note("audit overflow", "DATA_LOSS",
                          std::to_string(lost) + " records since " + UtcText(since_unix_ns, 6) +
                              " were not kept, because too many waited for the disk.");
  note.tenant = std::string(payer);
  return FormatFields(note);
}

class FileAuditLog final : public AuditLog {
 public:
  FileAuditLog(Disk& disk, std::string folder, uint64_t file_bytes_max, const Clock& clock)
      : disk_(disk), folder_(folder), file_bytes_max_(file_bytes_max), clock_(clock), files_(disk, std::move(folder)) {}

  Status Open() {
    HPVMD_ASSIGN_OR_RETURN(AuditFiles::Start start, files_.Open());
    head_ = std::move(start.head);
    if (!start.damage.empty()) {
      LogError("The audit is damaged or incomplete", {{"folder", folder_}, {"error", start.damage}});
      Append(Note("audit recovery", "DATA_LOSS", start.damage));
    }
    thread_ = std::thread([this] { Loop(); });
    return absl::OkStatus();
  }

  ~FileAuditLog() override {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
      wake_.notify_one();
    }
    if (thread_.joinable()) {
      thread_.join();
    }
    if (const uint64_t left = waiting_.size() + waiting_.lost() + group_.size(); left > 0) {
      LogError("Audit records were not written", {{"records", std::to_string(left)}, {"folder", folder_}});
    }
  }

  void Append(AuditRecord record) override {
    std::string fields = FormatFields(record);
    const int64_t now = clock_.WallNs();
    std::lock_guard lock(mutex_);
    ++appended_;
    if (!waiting_.Add({.payer = std::move(record.payer), .fields = std::move(fields), .unix_ns = now})) {
      LogError("Too many audit records wait for the disk; new records of a payer are only counted from now on",
               {{"waiting", std::to_string(waiting_.size())}, {"folder", folder_}});
    }
    wake_.notify_one();
  }

  void SetRetention(AuditRetention retention) override {
    std::lock_guard lock(mutex_);
    retention_ = retention;
    is_retention_due_ = true;
  }

  Status Flush() override { return SyncNow(); }

  void FlushThen(std::function<void(const Status&)> done) override {
    std::lock_guard lock(mutex_);
    flushes_.push_back({appended_, tries_, std::move(done)});
    is_hurried_ = true;
    wake_.notify_one();
  }

  Status Healthy() const override {
    std::lock_guard lock(mutex_);
    return HealthLocked();
  }

  Status Read(uint64_t from_sequence, const std::function<bool(std::string_view line)>& each) const override {
    SyncNow().IgnoreError();  // Then the files are read.
    uint64_t to = 0;
    {
      std::lock_guard lock(mutex_);
      to = head_.last;
    }
    return AuditFiles::Read(disk_, folder_, from_sequence, to, each);
  }

 private:
  // The caller holds the mutex.
  Status HealthLocked() const {
    if (!failure_.ok()) {
      return failure_;
    }
    if (waiting_.LostOf(std::string(kAuditPayerDaemon)) > 0 || waiting_.IsHalfFull()) {
      return ResourceExhausted("Too many audit records (" + std::to_string(waiting_.size() + waiting_.lost()) +
                               ") wait for the disk.");
    }
    return absl::OkStatus();
  }

  Status SyncNow() const {
    std::unique_lock lock(mutex_);
    const uint64_t target = appended_, tries = tries_;
    ++waiters_;
    is_hurried_ = true;
    wake_.notify_one();
    // A try that was in progress when this call came may not have included our records; its failure counts
    // nevertheless.
    settled_.wait(lock, [&] { return IsSettled(target, tries); });
    --waiters_;
    return OutcomeOf(target);
  }
  // The caller holds the mutex.
  bool IsSettled(uint64_t target, uint64_t tries) const {
    return settled_count_ >= target || (tries_ != tries && !failure_.ok());
  }
  Status OutcomeOf(uint64_t target) const {
    return settled_count_ >= target && waiting_.lost() == 0 ? absl::OkStatus() : HealthLocked();
  }

  // Answers the flushes whose records have been written, or could not be; with `is_last`, all of them.
  void AnswerFlushes(std::unique_lock<std::mutex>& lock, bool is_last) {
    std::vector<std::pair<std::function<void(const Status&)>, Status>> answers;
    std::erase_if(flushes_, [&](Flushing& flush) {
      const bool is_settled = is_last || IsSettled(flush.target, flush.tries);
      if (is_settled) {
        answers.emplace_back(std::move(flush.done), OutcomeOf(flush.target));
      }
      return is_settled;
    });
    lock.unlock();
    for (const auto& [done, status] : answers) {
      done(status);
    }
    lock.lock();
  }

  // --- The thread ---
  void Loop() {
    std::unique_lock lock(mutex_);
    while (true) {
      AwaitWork(lock);
      const bool is_last_try = stop_, is_wanted = stop_ || waiters_ > 0 || !flushes_.empty();
      const bool is_full = TakeGroup();
      lock.unlock();
      const WatchedItem item("audit", "group");
      Status status = WriteGroup();
      const bool is_due = is_wanted || is_full || (!group_.empty() && RealClock().Now() >= sync_at_);
      if (status.ok() && is_due && !group_.empty()) {
        status = SyncGroup();
      }
      if (is_synced_) {
        RemoveOldFiles();
      }
      lock.lock();
      Settle(status);
      const bool is_last = is_last_try && (!status.ok() || (waiting_.empty() && group_.empty()));
      AnswerFlushes(lock, is_last);
      if (is_last) {
        return;
      }
    }
  }

  // Runs now and then, after something was written: an idle daemon's files do not grow.
  void RemoveOldFiles() {
    AuditRetention retention;
    bool is_due = std::exchange(has_rotated_, false) || clock_.Now() >= retention_at_;
    {
      std::lock_guard lock(mutex_);
      retention = retention_;
      is_due |= std::exchange(is_retention_due_, false);
    }
    if (!is_due || (retention.keep_days == 0 && retention.bytes_max == 0)) {
      return;
    }
    retention_at_ = clock_.Now() + kRetentionEvery;
    const int64_t age_ns = static_cast<int64_t>(retention.keep_days) * 86'400'000'000'000;
    bool may_be_old = retention.keep_days != 0 && clock_.Now() >= aged_at_;
    std::vector<AuditRecord> notes;
    while (true) {
      const StatusOr<std::optional<AuditFiles::Removed>> removed =
          files_.RemoveOldest(retention.bytes_max, may_be_old ? UtcText(clock_.WallNs() - age_ns, 6) : "");
      if (!removed.ok()) {
        LogWarning("The audit's oldest file could not be removed",
                   {{"folder", folder_}, {"error", Message(removed.status())}});
        break;
      }
      if (!removed->has_value()) {
        break;
      }
      const AuditFiles::Removed& gone = **removed;
      if (!gone.for_bytes) {
        may_be_old = false;
        aged_at_ = clock_.Now() + kRetentionEvery;
      }
      notes.push_back(Note("audit retention", "ok",
                           "Records " + std::to_string(gone.head.first) + " to " + std::to_string(gone.head.last) +
                               " were removed, because " + (gone.for_bytes ? "audit.bytes_max" : "audit.keep_days") +
                               " says so. The head was " + std::to_string(gone.head.last) + ":" + gone.head.hash +
                               "."));
      notes.back().object = gone.name;
    }
    for (AuditRecord& note : notes) {
      Append(std::move(note));
    }
  }

  void AwaitWork(std::unique_lock<std::mutex>& lock) {
    const auto is_woken = [this] { return stop_ || std::exchange(is_hurried_, false); };
    const auto has_work = [&] { return !waiting_.empty() || is_woken(); };
    if (!failure_.ok()) {
      wake_.wait_for(lock, kRetryEvery, is_woken);
    } else if (!group_.empty()) {
      wake_.wait_for(lock, std::max(sync_at_ - RealClock().Now(), Duration(0)), has_work);
    } else {
      wake_.wait(lock, has_work);
    }
  }

  // Adds records to the group that is synced together; returns true when more remain than fit.
  bool TakeGroup() {
    while (!waiting_.empty() && group_bytes_ + waiting_.front().bytes() <= kAuditGroupBytesMax) {
      group_bytes_ += waiting_.front().bytes();
      group_.push_back(waiting_.Pop());
    }
    return !waiting_.empty();
  }

  // Writes the records of the group that are not in the file yet.
  Status WriteGroup() {
    if (written_ == group_.size()) {
      return absl::OkStatus();
    }
    if (written_ == 0) {
      group_head_ = head_;  // Only this thread changes it.
      sync_at_ = RealClock().Now() + kSyncEvery;
    }
    const uint64_t first = group_head_.last + 1;
    std::string lines;
    for (; written_ < group_.size(); ++written_) {
      const std::string line = FormatLine(group_[written_], ++group_head_.last, group_head_.hash);
      group_head_.hash = ParseAuditLine(line)->hash;
      lines += line;
      lines += '\n';
    }
    HPVMD_RETURN_IF_ERROR(HPVMD_FAILPOINT("audit.write.before"));
    return files_.Write(first, lines);
  }

  Status SyncGroup() {
    HPVMD_RETURN_IF_ERROR(files_.Sync());
    is_synced_ = true;
    if (files_.file_bytes() >= file_bytes_max_) {
      files_.Rotate();
      has_rotated_ = true;
    }
    (void)HPVMD_FAILPOINT("audit.write.after");
    return absl::OkStatus();
  }

  // The caller holds the mutex.
  void Settle(const Status& status) {
    tries_ += !status.ok() || is_synced_ ? 1 : 0;
    if (std::exchange(is_synced_, false)) {
      for (const Waiting& waiting : group_) {
        settled_count_ += waiting.stands_for;
      }
      head_ = group_head_;
      group_.clear();
      group_bytes_ = written_ = 0;
      if (!failure_.ok()) {
        LogInfo("The audit is being written again", {{"folder", folder_}});
      }
      failure_ = absl::OkStatus();
    } else if (!status.ok()) {
      written_ = 0;
      if (failure_.ok()) {
        LogError("The audit cannot be written; its records wait", {{"folder", folder_}, {"error", Message(status)}});
      }
      failure_ = While(status, "writing the audit");
    }
    waiting_.NoteLost(clock_.WallNs());
    settled_.notify_all();
  }

  Disk& disk_;
  const std::string folder_;
  const uint64_t file_bytes_max_;
  const Clock& clock_;

  // Used by the thread only, after Open.
  AuditFiles files_;
  std::vector<Waiting> group_;  // The group that is synced next; it is written again after a failure.
  size_t group_bytes_ = 0;
  size_t written_ = 0;    // Number of records of the group.
  AuditHead group_head_;  // The head after those.
  Time sync_at_{0};
  bool is_synced_ = false;
  bool has_rotated_ = false;  // Since the last check of the retention.
  Time retention_at_{0};      // The next check, if nothing requires one before.
  Time aged_at_{0};           // When the next file may be removed by age.

  mutable std::mutex mutex_;
  mutable std::condition_variable wake_, settled_;
  AuditBacklog waiting_{DescribeLost};
  // Numbers of records; settled ones are on disk, or were reported as lost.
  uint64_t appended_ = 0, settled_count_ = 0;
  uint64_t tries_ = 0;
  Status failure_;
  AuditHead head_;  // The head on disk.
  AuditRetention retention_;
  bool is_retention_due_ = false;
  mutable bool is_hurried_ = false;
  mutable int waiters_ = 0;
  struct Flushing {
    uint64_t target = 0, tries = 0;  // Numbers of appended records and of tries when the flush came.
    std::function<void(const Status&)> done;
  };
  std::vector<Flushing> flushes_;
  bool stop_ = false;
  std::thread thread_;
};

class NoLog final : public AuditLog {
 public:
  void FlushThen(std::function<void(const Status&)> done) override { done(absl::OkStatus()); }
  void Append(AuditRecord) override {}
  void SetRetention(AuditRetention) override {}
  Status Flush() override { return absl::OkStatus(); }
  Status Healthy() const override { return absl::OkStatus(); }
  Status Read(uint64_t, const std::function<bool(std::string_view line)>&) const override { return absl::OkStatus(); }
};

}  // namespace

StatusOr<std::unique_ptr<AuditLog>> OpenAuditLog(Disk& disk, std::string folder, uint64_t file_bytes_max,
                                                 const Clock& clock) {
  auto log = std::make_unique<FileAuditLog>(disk, std::move(folder), file_bytes_max, clock);
  HPVMD_RETURN_IF_ERROR(While(log->Open(), "opening the audit"));
  return log;
}

StatusOr<uint64_t> BackUpAudit(Disk& disk, const std::string& state, const std::string& to) {
  const std::string from = state + "/audit";
  if (const auto there = disk.List(from); absl::IsNotFound(there.status())) {
    return 0;
  }
  HPVMD_ASSIGN_OR_RETURN(const uint64_t files, AuditFiles::Copy(disk, from, to + "/audit"));
  HPVMD_RETURN_IF_ERROR(disk.SyncFolder(to));
  return files;
}

AuditLog& NoAuditLog() {
  static auto* const log = new NoLog();  // Never destroyed.
  return *log;
}

}  // namespace hpvm::server
