// SPDX-License-Identifier: Apache-2.0
// SqliteSession is a SqlSession on a file of SQLite, or on memory for simulations.
#ifndef HPVMD_SERVER_CLUSTER_SQLITE_SQLITE_SESSION_H_
#define HPVMD_SERVER_CLUSTER_SQLITE_SQLITE_SESSION_H_

#include <map>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/io/disk.h"
#include "server/cluster/sql/sql_session.h"
#include "server/sqlite/sqlite_connection.h"

namespace hpvm::server::cluster {

// One process has one session on a file: SQLite's store is that of one host.
class SqliteSession final : public SqlSession {
 public:
  // Opens the file, which is made with mode 0600 when it is missing. Borrows the clock, whose WallNs is the database's.
  // kFailedPrecondition: the file is another program's, or a later release's.
  static StatusOr<std::unique_ptr<SqliteSession>> Open(const std::string& path, Disk& disk, const Clock& clock);
  // Opens a database that ends with the session.
  static StatusOr<std::unique_ptr<SqliteSession>> OpenInMemory(const Clock& clock);

  Status Begin() override;
  Status Commit() override;
  void Rollback() override;
  StatusOr<SqlRows> Run(const SqlStatement& statement, std::initializer_list<SqlValue> parameters = {}) override;
  Status Execute(const std::string& statements) override;
  StatusOr<int64_t> WallNs() override { return clock_.WallNs(); }
  Status Notify(const std::string&, const std::string&) override { return absl::OkStatus(); }
  StatusOr<bool> TryLock(int64_t) override { return true; }
  StatusOr<bool> HasTable(const std::string& name) override;
  bool is_broken() const override { return is_broken_; }

 private:
  SqliteSession(std::unique_ptr<SqliteConnection> connection, const Clock& clock)
      : connection_(std::move(connection)), clock_(clock) {}

  std::unique_ptr<SqliteConnection> connection_;
  const Clock& clock_;
  std::map<const char*, SqliteStatement> prepared_;  // Keyed by SqlStatement::text.
  bool is_broken_ = false;
};

}  // namespace hpvm::server::cluster

#endif  // HPVMD_SERVER_CLUSTER_SQLITE_SQLITE_SESSION_H_
