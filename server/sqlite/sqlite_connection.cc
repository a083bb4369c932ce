// SPDX-License-Identifier: Apache-2.0
#include "server/sqlite/sqlite_connection.h"

#include <sqlite3.h>

#include "base/failpoint.h"

namespace hpvm::server {
namespace {

Status FromSqlite(sqlite3* db, int code, std::string_view doing) {
  std::string text(doing);
  text += " failed: ";
  text += db != nullptr ? sqlite3_errmsg(db) : sqlite3_errstr(code);
  text += " (SQLite's code " + std::to_string(db != nullptr ? sqlite3_extended_errcode(db) : code) + ").";
  switch (code & 0xff) {
    case SQLITE_FULL:
    case SQLITE_NOMEM:
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_INTERRUPT:
      return ResourceExhausted(text);
    case SQLITE_CONSTRAINT:
      return AlreadyExists(text);
    default:
      return DataLoss(text);
  }
}

// For every connection: nothing in the file may name functions of ours, and pages are checked for damage as they are
// read.
constexpr char kPragmas[] =
    "PRAGMA trusted_schema=OFF; PRAGMA cell_size_check=ON; PRAGMA mmap_size=0; PRAGMA temp_store=MEMORY;";
// Checkpoints are started by us, because SQLite would not report a failed one. auto_vacuum allows a new file to
// shrink, and must be set before its first page is written.
constexpr char kWriterPragmas[] =
    "PRAGMA auto_vacuum=INCREMENTAL; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=0; "
    "PRAGMA journal_size_limit=67108864; PRAGMA cache_size=-32768;";
constexpr char kReaderPragmas[] = "PRAGMA query_only=ON; PRAGMA cache_size=-4096;";
constexpr int kBusyMsMax = 5'000;
// Time that a commit waits for readers to release a log that has grown too long.
constexpr int kReadersMsMax = 100;

int NotePages(void* pages, sqlite3*, const char*, int count) {
  *static_cast<int*>(pages) = count;
  return SQLITE_OK;
}

}  // namespace

SqliteStatement& SqliteStatement::operator=(SqliteStatement&& other) noexcept {
  std::swap(db_, other.db_);
  std::swap(statement_, other.statement_);
  std::swap(bind_error_, other.bind_error_);
  return *this;
}

SqliteStatement::~SqliteStatement() { sqlite3_finalize(statement_); }

void SqliteStatement::Reset() {
  sqlite3_reset(statement_);
  bind_error_ = SQLITE_OK;
}

void SqliteStatement::Bind(int index, int64_t value) {
  const int code = sqlite3_bind_int64(statement_, index, value);
  bind_error_ = code != SQLITE_OK ? code : bind_error_;
}

void SqliteStatement::Bind(int index, double value) {
  const int code = sqlite3_bind_double(statement_, index, value);
  bind_error_ = code != SQLITE_OK ? code : bind_error_;
}

void SqliteStatement::Bind(int index, std::string_view text) {
  const char* data = text.data() != nullptr ? text.data() : "";
  const int code = sqlite3_bind_text64(statement_, index, data, text.size(), SQLITE_STATIC, SQLITE_UTF8);
  bind_error_ = code != SQLITE_OK ? code : bind_error_;
}

void SqliteStatement::Bind(int index, SqlBytes blob) {
  const char* data = blob.bytes.data() != nullptr ? blob.bytes.data() : "";
  const int code = sqlite3_bind_blob64(statement_, index, data, blob.bytes.size(), SQLITE_STATIC);
  bind_error_ = code != SQLITE_OK ? code : bind_error_;
}

void SqliteStatement::Bind(int index, SqlNull) {
  const int code = sqlite3_bind_null(statement_, index);
  bind_error_ = code != SQLITE_OK ? code : bind_error_;
}

StatusOr<bool> SqliteStatement::Next() {
  const int code = bind_error_ != SQLITE_OK ? bind_error_ : sqlite3_step(statement_);
  if (code == SQLITE_ROW) {
    return true;
  }
  Status status;
  if (code != SQLITE_DONE) {
    status = FromSqlite(db_, code, "A statement of the job database");
  }
  Reset();
  return status.ok() ? StatusOr<bool>(false) : status;
}

Status SqliteStatement::Finish() {
  while (true) {
    HPVMD_ASSIGN_OR_RETURN(const bool has_row, Next());
    if (!has_row) {
      return absl::OkStatus();
    }
  }
}

int SqliteStatement::columns() const { return sqlite3_column_count(statement_); }

SqliteStatement::ColumnType SqliteStatement::Type(int column) const {
  switch (sqlite3_column_type(statement_, column)) {
    case SQLITE_INTEGER:
      return ColumnType::kInteger;
    case SQLITE_FLOAT:
      return ColumnType::kReal;
    case SQLITE_TEXT:
      return ColumnType::kText;
    case SQLITE_BLOB:
      return ColumnType::kBlob;
    default:
      return ColumnType::kNull;
  }
}

double SqliteStatement::Real(int column) const { return sqlite3_column_double(statement_, column); }

int64_t SqliteStatement::Int(int column) const { return sqlite3_column_int64(statement_, column); }

std::string_view SqliteStatement::Bytes(int column) const {
  const auto* data = static_cast<const char*>(sqlite3_column_blob(statement_, column));
  return data == nullptr ? std::string_view()
                         : std::string_view(data, static_cast<size_t>(sqlite3_column_bytes(statement_, column)));
}

bool SqliteStatement::IsNull(int column) const { return sqlite3_column_type(statement_, column) == SQLITE_NULL; }

StatusOr<std::unique_ptr<SqliteConnection>> SqliteConnection::Open(const std::string& path, const std::string& vfs,
                                                                   Mode mode, const SqliteFormat* format) {
  std::unique_ptr<SqliteConnection> connection(new SqliteConnection);
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE |
                    (mode == Mode::kWriter ? SQLITE_OPEN_CREATE : 0);
  const int code = sqlite3_open_v2(path.c_str(), &connection->db_, flags, vfs.empty() ? nullptr : vfs.c_str());
  if (code != SQLITE_OK) {
    return FromSqlite(connection->db_, code, "Opening the job database \"" + path + "\"");
  }
  connection->has_remnant_ = mode == Mode::kWriter;  // The previous writer may have been killed.
  sqlite3_busy_timeout(connection->db_, kBusyMsMax);
  sqlite3_db_config(connection->db_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  HPVMD_RETURN_IF_ERROR(connection->Execute(kPragmas));
  if (format != nullptr) {
    // The last connection to close a file moves its log: a refused file stays as it is.
    connection->SkipCheckpointAtClose();
    HPVMD_RETURN_IF_ERROR(connection->ReadVersion(*format).status());
    sqlite3_db_config(connection->db_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, nullptr);
  }
  HPVMD_RETURN_IF_ERROR(connection->Execute(mode == Mode::kWriter ? kWriterPragmas : kReaderPragmas));
  HPVMD_RETURN_IF_ERROR(connection->Prepare("BEGIN IMMEDIATE", &connection->begin_));
  HPVMD_RETURN_IF_ERROR(connection->Prepare("COMMIT", &connection->commit_));
  sqlite3_wal_hook(connection->db_, NotePages, &connection->wal_pages_);
  return connection;
}

StatusOr<std::unique_ptr<SqliteConnection>> SqliteConnection::OpenOrCreate(const std::string& path, Disk& disk,
                                                                           const std::string& vfs,
                                                                           const SqliteFormat& format) {
  HPVMD_RETURN_IF_ERROR(disk.Open(path, Disk::Mode::kOpenOrCreate).status());
  HPVMD_RETURN_IF_ERROR(disk.SyncFolder(FolderOf(path)));
  StatusOr<std::unique_ptr<SqliteConnection>> connection = Open(path, vfs, Mode::kWriter, &format);
  HPVMD_RETURN_IF_ERROR(While(connection.status(), "opening \"" + path + "\""));
  return connection;
}

SqliteConnection::~SqliteConnection() {
  begin_ = SqliteStatement();
  commit_ = SqliteStatement();
  sqlite3_close_v2(db_);
}

Status SqliteConnection::Prepare(std::string_view sql, SqliteStatement* statement) {
  SqliteStatement made;
  made.db_ = db_;
  const int code = sqlite3_prepare_v3(db_, sql.data(), static_cast<int>(sql.size()), SQLITE_PREPARE_PERSISTENT,
                                      &made.statement_, nullptr);
  if (code != SQLITE_OK) {
    return FromSqlite(db_, code, "Preparing \"" + std::string(sql) + "\"");
  }
  *statement = std::move(made);
  return absl::OkStatus();
}

Status SqliteConnection::Execute(const std::string& sql) {
  const int code = sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : FromSqlite(db_, code, "Executing \"" + sql.substr(0, 80) + "\"");
}

StatusOr<int64_t> SqliteConnection::ReadVersion(const SqliteFormat& format) {
  HPVMD_ASSIGN_OR_RETURN(const int64_t application, QueryInt("PRAGMA application_id"));
  HPVMD_ASSIGN_OR_RETURN(const int64_t version, QueryInt("PRAGMA user_version"));
  HPVMD_ASSIGN_OR_RETURN(const int64_t tables, QueryInt("SELECT count(*) FROM sqlite_schema"));
  if (application != format.application_id && (tables != 0 || version != 0)) {
    return FailedPrecondition("The file is an SQLite database, but not a " + std::string(format.name) +
                              " (its application id is " + std::to_string(application) + ").");
  }
  if (version > format.newest) {
    return FailedPrecondition("The " + std::string(format.name) + " has version " + std::to_string(version) +
                              " of a later release; this release knows version " + std::to_string(format.newest) +
                              ". Start the later release, or restore a backup made before the upgrade.");
  }
  return version;
}

StatusOr<int64_t> SqliteConnection::QueryInt(std::string_view sql) {
  SqliteStatement statement;
  HPVMD_RETURN_IF_ERROR(Prepare(sql, &statement));
  HPVMD_ASSIGN_OR_RETURN(const bool has_row, statement.Next());
  return has_row ? statement.Int(0) : 0;
}

Status SqliteConnection::Begin() {
  if (has_remnant_) {
    HPVMD_RETURN_IF_ERROR(ClearLog());
    has_remnant_ = false;
  }
  return begin_.Run();
}

// SQLite's VFS returns SQLITE_FULL for a write that the disk had no room for: then the frame that makes the
// transaction valid is not there. After any other error it may be: in the log before a sync that failed, for example.
Status SqliteConnection::Commit() {
  sqlite3_stmt* statement = commit_.statement_;
  const int code = sqlite3_step(statement);
  Status status;
  if (code != SQLITE_DONE) {
    has_remnant_ = true;
    status = FromSqlite(db_, code, "Committing to the job database");
    const int primary = code & 0xff;
    if (primary != SQLITE_FULL && primary != SQLITE_BUSY) {
      status = DataLoss(Message(status));
    }
  }
  sqlite3_reset(statement);
  return status;
}

Status SqliteConnection::Rollback() {
  has_remnant_ = true;  // Large transactions reach the log before they are committed.
  // Some errors have rolled back already.
  return sqlite3_get_autocommit(db_) != 0 ? absl::OkStatus() : Execute("ROLLBACK");
}

int SqliteConnection::changes() const { return sqlite3_changes(db_); }

StatusOr<bool> SqliteConnection::Checkpoint(bool restart) {
  HPVMD_RETURN_IF_ERROR(HPVMD_FAILPOINT("store.checkpoint.before"));
  sqlite3_busy_timeout(db_, kReadersMsMax);
  const int code = sqlite3_wal_checkpoint_v2(
      db_, nullptr, restart ? SQLITE_CHECKPOINT_RESTART : SQLITE_CHECKPOINT_PASSIVE, nullptr, nullptr);
  sqlite3_busy_timeout(db_, kBusyMsMax);
  if (code == SQLITE_OK || (code & 0xff) == SQLITE_BUSY) {
    return code == SQLITE_OK;
  }
  return FromSqlite(db_, code, "Moving the job database's log into it");
}

Status SqliteConnection::ClearLog() {
  sqlite3_busy_timeout(db_, kReadersMsMax);
  const int code = sqlite3_wal_checkpoint_v2(db_, nullptr, SQLITE_CHECKPOINT_TRUNCATE, nullptr, nullptr);
  sqlite3_busy_timeout(db_, kBusyMsMax);
  return code == SQLITE_OK ? absl::OkStatus() : FromSqlite(db_, code, "Clearing the job database's log");
}

void SqliteConnection::SkipCheckpointAtClose() { sqlite3_db_config(db_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr); }

StatusOr<std::vector<std::string>> SqliteConnection::CheckIntegrity(bool quick, std::function<bool()> until) {
  struct Stop {
    std::function<bool()> until;
    bool stopped = false;
  } stop{std::move(until)};
  if (stop.until) {
    constexpr int kSteps = 1'000;
    const auto ask = [](void* context) {
      auto* asked = static_cast<Stop*>(context);
      asked->stopped = asked->until();
      return asked->stopped ? 1 : 0;
    };
    sqlite3_progress_handler(db_, kSteps, ask, &stop);
  }
  std::vector<std::string> faults;
  Status status;
  SqliteStatement check;
  status = Prepare(quick ? "PRAGMA quick_check(100)" : "PRAGMA integrity_check(100)", &check);
  while (status.ok()) {
    const StatusOr<bool> row = check.Next();
    status = row.status();
    if (!row.ok() || !*row) {
      break;
    }
    if (check.Bytes(0) != "ok") {
      faults.emplace_back(check.Bytes(0));
    }
  }
  sqlite3_progress_handler(db_, 0, nullptr, nullptr);
  if (!status.ok() && !stop.stopped) {
    return status;
  }
  return faults;
}

Status SqliteConnection::CopyTo(const std::string& path, const std::string& vfs) {
  sqlite3* target = nullptr;
  int code = sqlite3_open_v2(path.c_str(), &target, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_EXRESCODE,
                             vfs.empty() ? nullptr : vfs.c_str());
  Status status;
  if (code == SQLITE_OK) {
    sqlite3_backup* backup = sqlite3_backup_init(target, "main", db_, "main");
    // In one step, so that the copy is of one moment, and writers need not wait for it.
    code = backup == nullptr ? sqlite3_errcode(target) : sqlite3_backup_step(backup, -1);
    const int end = backup == nullptr ? SQLITE_OK : sqlite3_backup_finish(backup);
    code = code == SQLITE_DONE ? end : code;
  }
  if (code != SQLITE_OK) {
    status = FromSqlite(target, code, "Copying the job database to \"" + path + "\"");
  }
  const int closed = sqlite3_close(target);
  return status.ok() && closed != SQLITE_OK ? FromSqlite(nullptr, closed, "Closing \"" + path + "\"") : status;
}

Status BackUpSqliteFile(const std::string& from, const std::string& to) {
  if (const StatusOr<std::unique_ptr<DiskFile>> file = RealDisk().Open(from, Disk::Mode::kRead); !file.ok()) {
    return absl::IsNotFound(file.status()) ? absl::OkStatus() : file.status();
  }
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<SqliteConnection> connection,
                         SqliteConnection::Open(from, "", SqliteConnection::Mode::kReader));
  // Makes the file with mode 0600.
  HPVMD_RETURN_IF_ERROR(RealDisk().Open(to, Disk::Mode::kCreate).status());
  HPVMD_RETURN_IF_ERROR(connection->CopyTo(to, ""));
  return RealDisk().SyncFolder(to.substr(0, to.rfind('/')));
}

}  // namespace hpvm::server
