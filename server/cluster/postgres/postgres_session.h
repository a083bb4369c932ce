// SPDX-License-Identifier: Apache-2.0
// PostgresSession is one connection to a PostgreSQL server (version 13 or later), by libpqxx.
//
// The server may be reached through a proxy that keeps a connection for one client (session pooling). A proxy that
// gives each transaction another connection breaks prepared statements, and LISTEN.
#ifndef HPVMD_SERVER_CLUSTER_POSTGRES_POSTGRES_SESSION_H_
#define HPVMD_SERVER_CLUSTER_POSTGRES_POSTGRES_SESSION_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "server/cluster/sql/sql_session.h"

struct pg_conn;  // PGconn of libpq.

namespace hpvm::server::cluster {

struct PostgresOptions {
  // A connection string of libpq: "host=a,b dbname=hpvm user=hpvm" or "postgresql://hpvm@a,b/hpvm". The first host
  // whose server accepts writes is taken. The settings target_session_attrs, keepalives..., tcp_user_timeout and
  // application_name have defaults here, and may be given; connect_timeout is not used.
  std::string dsn;
  // The schemas in which tables are looked up, such as "hpvm, public". Empty: as the server says.
  std::string search_path;
  Duration connect_timeout = std::chrono::seconds(5);  // For each host.
  // The server ends statements and waits for locks that take longer, and sessions that do nothing in a transaction.
  Duration statement_timeout = std::chrono::seconds(10);
  Duration lock_timeout = std::chrono::seconds(5);
  Duration idle_timeout = std::chrono::seconds(15);
  // The session ends its connection when a call has no answer for so long. The server's own limits do not help when its
  // machine hangs, nor for a COMMIT that waits for a synchronous standby. Longer than statement_timeout.
  Duration answer_timeout = std::chrono::seconds(20);
};

// The server's settings that decide whether a committed transaction can be lost.
struct PostgresDurability {
  std::string synchronous_commit = "on";
  std::string synchronous_standby_names;
  bool has_fsync = true;
  bool has_full_page_writes = true;

  // Returns a sentence for each loss that the settings allow, for the log of the daemon.
  std::vector<std::string> Warnings() const;
};

class PostgresSession final : public SqlSession {
 public:
  // kUnavailable: no server answers that accepts writes; a later try may succeed. kFailedPrecondition: the connection
  // string, the user, the password, the database, its encoding or the server's version is wrong. No message contains
  // the password.
  static StatusOr<std::unique_ptr<PostgresSession>> Open(const PostgresOptions& options);
  ~PostgresSession() override;

  const PostgresDurability& durability() const { return durability_; }

  Status Begin() override;
  Status Commit() override;
  void Rollback() override;
  // Columns: integers, booleans and whole numbers of type NUMERIC (a SUM of BIGINT) are int64_t; other numbers are
  // double; BYTEA is SqlBlob; everything else is text. kDataLoss: a text has a zero byte.
  StatusOr<SqlRows> Run(const SqlStatement& statement, std::initializer_list<SqlValue> parameters = {}) override;
  Status Execute(const std::string& statements) override;
  StatusOr<int64_t> WallNs() override;
  // The payload has fewer than 8000 bytes.
  Status Notify(const std::string& channel, const std::string& payload) override;
  StatusOr<bool> TryLock(int64_t name) override;
  StatusOr<bool> HasTable(const std::string& name) override;
  bool is_broken() const override { return is_broken_; }

 private:
  struct Parts;  // The objects of libpqxx.

  explicit PostgresSession(std::unique_ptr<Parts> parts);
  Status SetUp(const PostgresOptions& options);
  // Every call of libpqxx is made inside `call`. `doing` completes "PostgreSQL cannot ...".
  Status Guard(std::string_view doing, const std::function<void()>& call);
  // Turns the exception that is being handled into a status.
  Status Caught(std::string_view doing);

  std::unique_ptr<Parts> parts_;
  PostgresDurability durability_;
  bool is_open_ = false;     // A transaction is.
  bool has_failed_ = false;  // A statement of the open transaction has.
  bool is_broken_ = false;
};

// The parts below are for this folder and its tests.

struct PostgresHandleEnd {
  void operator()(pg_conn* connection) const;
};
using PostgresHandle = std::unique_ptr<pg_conn, PostgresHandleEnd>;

// Connects to the first host of the options that accepts writes. Errors are those of PostgresSession::Open, and
// kCancelled: `stop_fd` became readable. -1 means that there is none.
StatusOr<PostgresHandle> ConnectPostgres(const PostgresOptions& options, int stop_fd);

// Writes $1 for each ?1 that does not stand in quotes.
std::string RewriteParameters(std::string_view statement);

// Returns the status for an error of the server: its five-character state (empty when unknown) and its text. `doing`
// completes "PostgreSQL cannot ...".
Status PostgresError(std::string_view state, std::string_view doing, std::string_view text);

// `version` is as libpq has it: 150004 for 15.4. kFailedPrecondition: it is too old.
Status CheckPostgresVersion(int version);

}  // namespace hpvm::server::cluster

#endif  // HPVMD_SERVER_CLUSTER_POSTGRES_POSTGRES_SESSION_H_
