// SPDX-License-Identifier: Apache-2.0
#include "server/jobs/sqlite/sqlite_job_database.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/failpoint.h"
#include "server/jobs/sqlite/sqlite_check.h"
#include "server/sqlite/sqlite_connection.h"
#include "server/jobs/sqlite/sqlite_reader.h"
#include "server/jobs/sqlite/sqlite_schema.h"
#include "server/jobs/sqlite/sqlite_writer.h"

namespace hpvm::server {
namespace {

// SQLite's name of the memory that connections share.
constexpr char kMemoryVfs[] = "memdb";

SqliteJobDatabaseOptions Completed(SqliteJobDatabaseOptions options) {
  if (options.in_memory) {
    options.vfs = kMemoryVfs;
    options.read_connections = 1;
  }
  return options;
}

// ReaderPool lends readers, each to one thread at a time.
class ReaderPool {
 public:
  // `writing` is held during reads; null: reads run beside writes.
  explicit ReaderPool(std::mutex* writing) : writing_(writing) {}
  void Add(std::unique_ptr<SqliteReader> reader) { idle_.push_back(std::move(reader)); }

  template <typename Use>
  auto With(Use use) {
    const std::unique_lock turn = writing_ != nullptr ? std::unique_lock(*writing_) : std::unique_lock<std::mutex>();
    std::unique_ptr<SqliteReader> reader = Take();
    auto result = use(*reader);
    {
      std::lock_guard lock(mutex_);
      idle_.push_back(std::move(reader));
    }
    freed_.notify_one();
    return result;
  }

  // No reader may be lent.
  void SkipCheckpointAtClose() {
    for (const std::unique_ptr<SqliteReader>& reader : idle_) {
      reader->connection().SkipCheckpointAtClose();
    }
  }

 private:
  std::unique_ptr<SqliteReader> Take() {
    std::unique_lock lock(mutex_);
    freed_.wait(lock, [this] { return !idle_.empty(); });
    std::unique_ptr<SqliteReader> reader = std::move(idle_.back());
    idle_.pop_back();
    return reader;
  }

  std::mutex* const writing_;  // Belongs to the owner.
  std::mutex mutex_;
  std::condition_variable freed_;
  std::vector<std::unique_ptr<SqliteReader>> idle_;
};

class SqliteJobDatabase final : public JobDatabase {
 public:
  explicit SqliteJobDatabase(const SqliteJobDatabaseOptions& options)
      : options_(Completed(options)),
        disk_(options.disk != nullptr ? *options.disk : RealDisk()),
        readers_(options.in_memory ? &write_mutex_ : nullptr) {}

  ~SqliteJobDatabase() override {
    if (!failure_.ok()) {
      // The contents of the log are unknown: the next start reads it from the disk.
      writer_connection_->SkipCheckpointAtClose();
      readers_.SkipCheckpointAtClose();
      if (scrub_reader_ != nullptr) {
        scrub_reader_->connection().SkipCheckpointAtClose();
      }
    }
  }

  Status Open();

  Status Commit(std::span<const JobWrite> writes, std::vector<WriteResult>* results) override;
  bool stages() const override { return true; }
  Status Stage(InsertJobs* insert, size_t rows_max) override;
  StatusOr<std::vector<Sha256>> Unstage(InsertJobs* insert, size_t rows_max) override;
  Status EndDamaged(std::span<const DamagedJob> damaged, int64_t ended_unix_ns) override;
  StatusOr<uint64_t> MendKeys(std::span<const uint64_t> sequences) override;
  StatusOr<uint64_t> NextLease() override;
  StatusOr<bool> Shrink(int pages_max) override;
  StatusOr<ScrubbedRows> Scrub(uint64_t from, uint64_t bytes_max) override;
  Status BackUp(const std::string& path) override;
  StatusOr<std::vector<std::string>> Check() override;

  StatusOr<StoredJob> Find(std::string_view tenant, std::string_view id) override {
    return readers_.With([&](SqliteReader& reader) { return reader.Find(tenant, id); });
  }
  StatusOr<KeyRecord> FindKey(std::string_view tenant, std::string_view key) override {
    return readers_.With([&](SqliteReader& reader) { return reader.FindKey(tenant, key); });
  }
  StatusOr<StoredRequest> ReadRequest(std::string_view tenant, std::string_view id) override {
    return readers_.With([&](SqliteReader& reader) { return reader.ReadRequest(tenant, id); });
  }
  StatusOr<StoredResults> ReadResults(std::string_view tenant, std::string_view id) override {
    return readers_.With([&](SqliteReader& reader) { return reader.ReadResults(tenant, id); });
  }
  StatusOr<std::vector<StoredJob>> ListSome(std::string_view tenant, JobFilter* filter) override {
    return readers_.With([&](SqliteReader& reader) { return reader.ListSome(tenant, filter); });
  }
  Status LoadLive(const std::function<void(LiveRow)>& each, std::vector<DamagedJob>* damaged) override {
    return readers_.With([&](SqliteReader& reader) { return reader.LoadLive(each, damaged); });
  }
  Status ListDamaged(const std::function<void(const DamagedJob&)>& each) override {
    return readers_.With([&](SqliteReader& reader) { return reader.ListDamaged(each); });
  }
  StatusOr<std::vector<uint64_t>> ListKeyless() override {
    return readers_.With([](SqliteReader& reader) { return reader.ListKeyless(); });
  }
  StatusOr<std::vector<FinishedJob>> ListFinished(std::string_view tenant, size_t count_max,
                                                  bool with_dropped) override {
    return readers_.With([&](SqliteReader& reader) { return reader.ListFinished(tenant, count_max, with_dropped); });
  }
  Status ListBlobs(const std::function<void(const BlobUse&)>& each) override {
    return readers_.With([&](SqliteReader& reader) { return reader.ListBlobs(each); });
  }
  StatusOr<bool> UsesBlob(std::string_view tenant, const Sha256& hash) override {
    if (is_broken_.load()) {
      // A row that a failed commit left in the log is not visible here, but the next start sees it.
      return DataLoss("The job database failed; the blobs that it names are known after the next start.");
    }
    return readers_.With([&](SqliteReader& reader) { return reader.UsesBlob(tenant, hash); });
  }
  StatusOr<std::map<std::string, TenantUse>> Use() override {
    return readers_.With([](SqliteReader& reader) { return reader.Use(); });
  }

 private:
  Status OpenWriter();
  Status LetShrink();
  // Returns why the file cannot be rewritten now; empty when it can.
  StatusOr<std::string> WhyNotRewritten();
  StatusOr<std::unique_ptr<SqliteReader>> OpenReader();
  // Runs `change` as one transaction. After a failure whose outcome is unknown every later one fails in the same way.
  template <typename Change>
  Status Transact(Change change);
  // Does the same for a part of an insert, whose `staged` stays unchanged unless that succeeds.
  template <typename Change>
  Status TransactPart(InsertJobs* insert, Change change);
  // Moves the log if it has at least that many pages.
  Status MoveLog(int pages_max);

  const SqliteJobDatabaseOptions options_;
  Disk& disk_;

  std::mutex write_mutex_;
  Status failure_;
  std::atomic<bool> is_broken_{false};  // failure_ is set; for readers.
  std::unique_ptr<SqliteConnection> writer_connection_;
  std::unique_ptr<SqliteWriter> writer_;
  SqliteStatement give_back_;  // Not prepared when the file cannot shrink.
  bool has_shrunk_ = false;    // The shrinking is in the log, but not in the file yet.
  int await_pages_ = 0;        // Commits do not wait for readers of a log with fewer pages.

  ReaderPool readers_;
  std::unique_ptr<SqliteReader> scrub_reader_;  // Made when needed; used by the scrub only.
};

Status SqliteJobDatabase::Open() {
  if (!options_.read_only) {
    HPVMD_RETURN_IF_ERROR(OpenWriter());
  }
  for (int i = 0; i < std::max(1, options_.read_connections); ++i) {
    HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<SqliteReader> reader, OpenReader());
    readers_.Add(std::move(reader));
  }
  return absl::OkStatus();
}

Status SqliteJobDatabase::OpenWriter() {
  const SqliteFormat format = JobFormat(options_.migrations);
  StatusOr<std::unique_ptr<SqliteConnection>> connection =
      SqliteConnection::Open(options_.path, options_.vfs, SqliteConnection::Mode::kWriter, &format);
  HPVMD_RETURN_IF_ERROR(While(connection.status(), "opening " + options_.path));
  writer_connection_ = *std::move(connection);
  if (options_.check_ms_max > 0) {
    const Time end = RealClock().Now() + std::chrono::milliseconds(options_.check_ms_max);
    HPVMD_ASSIGN_OR_RETURN(const std::vector<std::string> faults,
                           writer_connection_->CheckIntegrity(true, [end] { return RealClock().Now() >= end; }));
    if (!faults.empty()) {
      return DataLoss("The job database \"" + options_.path + "\" is damaged (" + std::to_string(faults.size()) +
                      " faults; the first: " + faults.front() + "). Restore a backup.");
    }
  }
  HPVMD_RETURN_IF_ERROR(While(Migrate(*writer_connection_, options_.migrations), "opening " + options_.path));
  HPVMD_RETURN_IF_ERROR(While(LetShrink(), "opening " + options_.path));
  if (!options_.in_memory) {
    HPVMD_RETURN_IF_ERROR(disk_.SyncFolder(FolderOf(options_.path)));
  }
  HPVMD_ASSIGN_OR_RETURN(writer_, SqliteWriter::Create(*writer_connection_));
  const Status removed = Transact([this] { return writer_->RemoveStaged(); });
  writer_->Settle(removed.ok());
  return While(removed, "opening " + options_.path);
}

// Files of older releases can shrink only once they have been rewritten. A daemon that cannot rewrite its file goes on
// without.
Status SqliteJobDatabase::LetShrink() {
  constexpr int64_t kIncremental = 2;
  HPVMD_ASSIGN_OR_RETURN(int64_t kind, writer_connection_->QueryInt("PRAGMA auto_vacuum"));
  if (kind != kIncremental) {
    HPVMD_RETURN_IF_ERROR(HPVMD_FAILPOINT("store.rewrite.before"));
    HPVMD_ASSIGN_OR_RETURN(std::string why_not, WhyNotRewritten());
    if (why_not.empty()) {
      const Status rewritten = writer_connection_->Execute("PRAGMA auto_vacuum=INCREMENTAL; VACUUM");
      if (!rewritten.ok() && !absl::IsResourceExhausted(rewritten)) {
        return rewritten;
      }
      why_not = rewritten.ok() ? "" : Message(rewritten);
    }
    if (!why_not.empty()) {
      if (options_.note) {
        options_.note("The job database \"" + options_.path +
                      "\" was not rewritten, so it does not shrink: " + why_not);
      }
      return absl::OkStatus();
    }
    HPVMD_RETURN_IF_ERROR(MoveLog(0));
  }
  return writer_connection_->Prepare("PRAGMA incremental_vacuum", &give_back_);
}

StatusOr<std::string> SqliteJobDatabase::WhyNotRewritten() {
  HPVMD_ASSIGN_OR_RETURN(const int64_t page_bytes, writer_connection_->QueryInt("PRAGMA page_size"));
  HPVMD_ASSIGN_OR_RETURN(const int64_t pages, writer_connection_->QueryInt("PRAGMA page_count"));
  HPVMD_ASSIGN_OR_RETURN(const int64_t free_pages, writer_connection_->QueryInt("PRAGMA freelist_count"));
  const auto used = static_cast<uint64_t>((pages - free_pages) * page_bytes);
  if (used > options_.rewrite_bytes_max) {
    return "The database has " + std::to_string(used) + " bytes in use; up to " +
           std::to_string(options_.rewrite_bytes_max) +
           " are rewritten at a start. Stop the daemon and run sqlite3 on the file with \"PRAGMA "
           "auto_vacuum=INCREMENTAL; "
           "VACUUM\".";
  }
  // The log takes all of it, with some overhead, and the file may grow by as much again.
  const uint64_t needed = used * 2 + limits::kMiB;
  const StatusOr<DiskSpace> space = disk_.Space(FolderOf(options_.path));
  if (space.ok() && space->free_bytes < needed) {
    return "Rewriting it needs " + std::to_string(needed) + " bytes of the disk, of which " +
           std::to_string(space->free_bytes) + " are free. The next start tries again.";
  }
  return "";
}

StatusOr<std::unique_ptr<SqliteReader>> SqliteJobDatabase::OpenReader() {
  const SqliteFormat format = JobFormat(options_.migrations);
  StatusOr<std::unique_ptr<SqliteConnection>> connection =
      SqliteConnection::Open(options_.path, options_.vfs, SqliteConnection::Mode::kReader, &format);
  HPVMD_RETURN_IF_ERROR(While(connection.status(), "opening " + options_.path));
  HPVMD_RETURN_IF_ERROR(While(CheckVersion(**connection, format), "opening " + options_.path));
  return SqliteReader::Create(*std::move(connection), options_.clock != nullptr ? *options_.clock : RealClock());
}

template <typename Change>
Status SqliteJobDatabase::Transact(Change change) {
  HPVMD_RETURN_IF_ERROR(failure_);
  if (writer_connection_ == nullptr) {
    return FailedPrecondition("The job database was opened for reading.");
  }
  Status status = writer_connection_->Begin();
  if (status.ok()) {
    status = change();
  }
  if (status.ok()) {
    status = HPVMD_FAILPOINT("store.transaction.before_commit");
  }
  if (status.ok()) {
    status = writer_connection_->Commit();
  }
  if (status.ok()) {
    return status;
  }
  const Status undone = writer_connection_->Rollback();
  if (absl::IsResourceExhausted(status) && undone.ok()) {
    return status;
  }
  failure_ = absl::IsDataLoss(status) ? status : DataLoss(Message(status));
  is_broken_.store(true);
  return failure_;
}

Status SqliteJobDatabase::Commit(std::span<const JobWrite> writes, std::vector<WriteResult>* results) {
  std::lock_guard lock(write_mutex_);
  results->clear();
  const Status status = Transact([&] { return writes.empty() ? writer_->Probe() : writer_->Apply(writes, results); });
  if (writer_ != nullptr) {
    writer_->Settle(status.ok());
  }
  if (status.ok()) {
    return MoveLog(options_.log_pages_max);
  }
  results->clear();
  return status;
}

template <typename Change>
Status SqliteJobDatabase::TransactPart(InsertJobs* insert, Change change) {
  std::lock_guard lock(write_mutex_);
  const StagedRows before = insert->staged;
  const Status status = Transact(change);
  if (writer_ != nullptr) {
    writer_->Settle(status.ok());
  }
  if (!status.ok()) {
    insert->staged = before;
    return status;
  }
  return MoveLog(options_.log_pages_max);
}

Status SqliteJobDatabase::Stage(InsertJobs* insert, size_t rows_max) {
  return TransactPart(insert, [&] { return writer_->Stage(insert, rows_max); });
}

StatusOr<std::vector<Sha256>> SqliteJobDatabase::Unstage(InsertJobs* insert, size_t rows_max) {
  std::vector<Sha256> unused;
  HPVMD_RETURN_IF_ERROR(TransactPart(insert, [&]() -> Status {
    HPVMD_ASSIGN_OR_RETURN(unused, writer_->Unstage(insert, rows_max));
    return absl::OkStatus();
  }));
  return unused;
}

// A log that is not moved for want of room only grows; one that failed to be synced cannot be trusted any more, nor
// can any commit since it was last moved: the caller must not acknowledge more.
Status SqliteJobDatabase::MoveLog(int pages_max) {
  const int pages = writer_connection_->wal_pages();
  if (pages < pages_max) {
    return absl::OkStatus();
  }
  // Readers that never pause keep the log from starting anew, so they are waited for. A reader that stays, as a backup
  // or a check by another process does, is not waited for by each commit, but only after the log has grown some more.
  const bool is_long = pages / 4 >= pages_max;
  await_pages_ = is_long ? await_pages_ : 0;
  const bool awaits = is_long && pages >= await_pages_;
  const StatusOr<bool> moved = writer_connection_->Checkpoint(awaits);
  if (moved.ok() && awaits) {
    await_pages_ = *moved ? 0 : pages + pages_max / 4;
  }
  if (moved.ok() || absl::IsResourceExhausted(moved.status())) {
    return absl::OkStatus();
  }
  failure_ = absl::IsDataLoss(moved.status()) ? moved.status() : DataLoss(Message(moved.status()));
  is_broken_.store(true);
  return failure_;
}

Status SqliteJobDatabase::EndDamaged(std::span<const DamagedJob> damaged, int64_t ended_unix_ns) {
  std::lock_guard lock(write_mutex_);
  return Transact([&]() -> Status {
    // After damage to the file, indexes may differ from the row: without a new index, changing the row would report a
    // malformed file.
    if (const Status indexed = writer_connection_->Execute("REINDEX jobs"); !absl::IsAlreadyExists(indexed)) {
      HPVMD_RETURN_IF_ERROR(indexed);
    }
    return writer_->EndDamaged(damaged, ended_unix_ns);
  });
}

StatusOr<uint64_t> SqliteJobDatabase::MendKeys(std::span<const uint64_t> sequences) {
  if (sequences.empty()) {
    return uint64_t{0};
  }
  std::lock_guard lock(write_mutex_);
  uint64_t mended = 0;
  HPVMD_RETURN_IF_ERROR(Transact([&]() -> Status {
    HPVMD_ASSIGN_OR_RETURN(mended, writer_->MendKeys(sequences));
    return absl::OkStatus();
  }));
  return mended;
}

StatusOr<bool> SqliteJobDatabase::Shrink(int pages_max) {
  std::lock_guard lock(write_mutex_);
  HPVMD_RETURN_IF_ERROR(failure_);
  if (!give_back_.is_prepared()) {
    return false;
  }
  HPVMD_ASSIGN_OR_RETURN(const int64_t pages, writer_connection_->QueryInt("PRAGMA page_count"));
  HPVMD_ASSIGN_OR_RETURN(const int64_t free_pages, writer_connection_->QueryInt("PRAGMA freelist_count"));
  const int64_t too_many = free_pages - std::max<int64_t>(options_.spare_pages, (pages - free_pages) / 8);
  if (too_many <= 0) {
    if (std::exchange(has_shrunk_, false)) {
      HPVMD_RETURN_IF_ERROR(MoveLog(0));  // Only this makes the file smaller.
    }
    return false;
  }
  HPVMD_RETURN_IF_ERROR(Transact([&]() -> Status {
    HPVMD_RETURN_IF_ERROR(HPVMD_FAILPOINT("store.shrink.before"));
    SqliteReset reset(give_back_);
    give_back_.Start();
    for (int64_t left = std::min<int64_t>(pages_max, too_many); left > 0; --left) {
      HPVMD_ASSIGN_OR_RETURN(const bool more, give_back_.Next());  // One page each.
      if (!more) {
        break;
      }
    }
    return absl::OkStatus();
  }));
  has_shrunk_ = true;
  HPVMD_RETURN_IF_ERROR(MoveLog(options_.log_pages_max));
  return true;
}

StatusOr<ScrubbedRows> SqliteJobDatabase::Scrub(uint64_t from, uint64_t bytes_max) {
  if (scrub_reader_ == nullptr) {
    HPVMD_ASSIGN_OR_RETURN(scrub_reader_, OpenReader());
  }
  return scrub_reader_->Scrub(from, bytes_max);
}

StatusOr<uint64_t> SqliteJobDatabase::NextLease() {
  std::lock_guard lock(write_mutex_);
  HPVMD_RETURN_IF_ERROR(Transact(
      [this] { return writer_connection_->Execute("UPDATE meta SET value = value + 1 WHERE name = 'lease'"); }));
  HPVMD_ASSIGN_OR_RETURN(const int64_t lease,
                         writer_connection_->QueryInt("SELECT value FROM meta WHERE name = 'lease'"));
  return static_cast<uint64_t>(lease);
}

Status SqliteJobDatabase::BackUp(const std::string& path) {
  if (options_.in_memory) {
    return Unimplemented("Jobs that are kept in memory have no backup.");
  }
  const std::string temporary = path + ".part";
  if (disk_.Open(path, Disk::Mode::kRead).ok()) {
    return AlreadyExists("\"" + path + "\" exists already.");
  }
  disk_.Remove(temporary).IgnoreError();
  HPVMD_RETURN_IF_ERROR(HPVMD_FAILPOINT("store.backup.before"));
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<SqliteConnection> source,
                         SqliteConnection::Open(options_.path, options_.vfs, SqliteConnection::Mode::kReader));
  // Makes the file with mode 0600 whatever the umask, which SQLite's log and index inherit.
  HPVMD_RETURN_IF_ERROR(disk_.Open(temporary, Disk::Mode::kCreate).status());
  HPVMD_RETURN_IF_ERROR(source->CopyTo(temporary, options_.vfs));
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<DiskFile> copy, disk_.Open(temporary, Disk::Mode::kReadWrite));
  HPVMD_RETURN_IF_ERROR(copy->Sync());
  HPVMD_RETURN_IF_ERROR(disk_.Rename(temporary, path));
  return disk_.SyncFolder(FolderOf(path));
}

StatusOr<std::vector<std::string>> SqliteJobDatabase::Check() {
  const std::unique_lock turn = options_.in_memory ? std::unique_lock(write_mutex_) : std::unique_lock<std::mutex>();
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<SqliteConnection> connection,
                         SqliteConnection::Open(options_.path, options_.vfs, SqliteConnection::Mode::kReader));
  return CheckJobTables(*connection);
}

}  // namespace

StatusOr<std::unique_ptr<JobDatabase>> OpenSqliteJobDatabase(const SqliteJobDatabaseOptions& options) {
  auto database = std::make_unique<SqliteJobDatabase>(options);
  HPVMD_RETURN_IF_ERROR(database->Open());
  return database;
}

}  // namespace hpvm::server
