// SPDX-License-Identifier: Apache-2.0
// Wrappers of SQLite's connections and prepared statements, with our errors.
//
//   kResourceExhausted  no room on the disk, no memory, or another holder of the lock: may succeed later
//   kAlreadyExists      a constraint
//   kDataLoss           everything else: a failed read, write or sync, a damaged file
#ifndef HPVMD_SERVER_SQLITE_SQLITE_CONNECTION_H_
#define HPVMD_SERVER_SQLITE_SQLITE_CONNECTION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/io/disk.h"
#include "base/status.h"

struct sqlite3;
struct sqlite3_stmt;

namespace hpvm::server {

// Binds bytes as a blob rather than a text.
struct SqlBytes {
  std::string_view bytes;
};
struct SqlNull {};

// SqliteStatement is prepared once and used often, by the thread that has its connection.
class SqliteStatement {
 public:
  SqliteStatement() = default;
  SqliteStatement(SqliteStatement&& other) noexcept { *this = std::move(other); }
  SqliteStatement& operator=(SqliteStatement&& other) noexcept;
  ~SqliteStatement();

  bool is_prepared() const { return statement_ != nullptr; }
  // Starts anew with these parameters, whose bytes are borrowed until the end.
  template <typename... Values>
  SqliteStatement& Start(const Values&... values) {
    Reset();
    int index = 0;
    (Bind(++index, values), ...);
    return *this;
  }
  // Returns true when there is a row. After false or an error the statement is reset.
  StatusOr<bool> Next();
  // Runs the statement to its end.
  template <typename... Values>
  Status Run(const Values&... values) {
    Start(values...);
    return Finish();
  }
  // Releases locks and bound values.
  void Reset();

  // Binds one parameter after Reset, for statements whose parameters are known only when the program runs.
  template <typename Value>
  void BindAt(int index, const Value& value) {
    Bind(index, value);
  }

  // Columns of the present row; views are valid until the next call.
  enum class ColumnType : uint8_t { kNull, kInteger, kReal, kText, kBlob };
  int columns() const;
  ColumnType Type(int column) const;
  int64_t Int(int column) const;
  double Real(int column) const;
  std::string_view Bytes(int column) const;
  bool IsNull(int column) const;

 private:
  friend class SqliteConnection;
  Status Finish();
  void Bind(int index, int64_t value);
  void Bind(int index, uint64_t value) { Bind(index, static_cast<int64_t>(value)); }
  void Bind(int index, int value) { Bind(index, static_cast<int64_t>(value)); }
  void Bind(int index, uint32_t value) { Bind(index, static_cast<int64_t>(value)); }
  void Bind(int index, double value);
  void Bind(int index, std::string_view text);
  void Bind(int index, SqlBytes blob);
  void Bind(int index, SqlNull);

  sqlite3* db_ = nullptr;
  sqlite3_stmt* statement_ = nullptr;
  int bind_error_ = 0;
};

// SqliteReset resets a statement at the end of a scope.
class SqliteReset {
 public:
  explicit SqliteReset(SqliteStatement& statement) : statement_(statement) {}
  ~SqliteReset() { statement_.Reset(); }
  SqliteReset(const SqliteReset&) = delete;

 private:
  SqliteStatement& statement_;
};

// SqliteFormat is the identity of a file in its header.
struct SqliteFormat {
  const char* name = nullptr;  // Used in sentences: "job database".
  int64_t application_id = 0;  // Files with another id are not touched.
  int newest = 0;              // The latest version that this release knows.
};

// Used by one thread at a time.
class SqliteConnection {
 public:
  enum class Mode : uint8_t { kWriter, kReader };
  // `vfs` empty: SQLite's default. `format` null: any file. kFailedPrecondition when the file is not of `format`, or
  // of a later version: then not a byte of it, nor of its log, was changed.
  static StatusOr<std::unique_ptr<SqliteConnection>> Open(const std::string& path, const std::string& vfs, Mode mode,
                                                          const SqliteFormat* format = nullptr);
  // Opens a writer on a file that is made with mode 0600 when it is missing, which SQLite's log and index then have,
  // too. Errors name the path.
  static StatusOr<std::unique_ptr<SqliteConnection>> OpenOrCreate(const std::string& path, Disk& disk,
                                                                  const std::string& vfs, const SqliteFormat& format);
  ~SqliteConnection();
  SqliteConnection(const SqliteConnection&) = delete;

  Status Prepare(std::string_view sql, SqliteStatement* statement);
  // Executes one or more statements, without results.
  Status Execute(const std::string& sql);
  // Returns the file's version; 0 when it is empty. kFailedPrecondition as for Open.
  StatusOr<int64_t> ReadVersion(const SqliteFormat& format);
  // Returns the first column of the first row.
  StatusOr<int64_t> QueryInt(std::string_view sql);

  // A writer's first Begin, and one after a commit that failed, clears the log before anything is appended: the
  // remains after the last whole transaction could, where a crash mixes them with bytes written over them, be read as
  // a transaction that was refused.
  // kResourceExhausted when that cannot be done now: no room, or readers that hold the log.
  Status Begin();
  // kResourceExhausted: certainly not committed. kDataLoss: unknown.
  Status Commit();
  Status Rollback();
  int changes() const;

  // Number of pages in the log after the last commit.
  int wal_pages() const { return wal_pages_; }
  // Moves the log's pages into the database, as far as readers allow; with `restart` waits for them, briefly. Returns
  // false when they did not release it.
  StatusOr<bool> Checkpoint(bool restart);
  // Keeps a failed connection from writing when it is closed.
  void SkipCheckpointAtClose();

  // Returns every fault found by SQLite itself, at most 100; none when `until` stops the check first.
  StatusOr<std::vector<std::string>> CheckIntegrity(bool quick, std::function<bool()> until);
  // Copies everything, as it is now, into a new file.
  Status CopyTo(const std::string& path, const std::string& vfs);

 private:
  SqliteConnection() = default;
  // Moves the whole log into the database and makes its file empty.
  Status ClearLog();

  sqlite3* db_ = nullptr;
  int wal_pages_ = 0;
  bool has_remnant_ = false;  // The log may have a part of a transaction after its end.
  SqliteStatement begin_, commit_;
};

// Copies the file, as of one moment, into a new one with mode 0600, synced; the file may be in use by a writer. Does
// nothing when there is no file.
Status BackUpSqliteFile(const std::string& from, const std::string& to);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_SQLITE_SQLITE_CONNECTION_H_
