// SPDX-License-Identifier: Apache-2.0
// SqlSession is one connection to a database, in the little that the cluster's store needs of SQLite and PostgreSQL
// alike. Its statements are written once, in the SQL that both understand.
//
// Differences between the two are left to the sessions:
//   - parameters are written ?1, ?2 ...; PostgreSQL's session writes them $1, $2 ...
//   - "FOR UPDATE" at the end of a SELECT locks its rows; SQLite's session leaves it out, as its transactions exclude
//     each other.
//   - types of columns: BIGINT, DOUBLE PRECISION, TEXT, BYTEA and BIGSERIAL PRIMARY KEY.
#ifndef HPVMD_SERVER_CLUSTER_SQL_SQL_SESSION_H_
#define HPVMD_SERVER_CLUSTER_SQL_SQL_SESSION_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"

namespace hpvm::server::cluster {

// A column of type BYTEA, or a parameter for one.
struct SqlBlob {
  std::string bytes;
};

// A parameter, or a column of a row.
class SqlValue {
 public:
  SqlValue() = default;  // NULL
  SqlValue(int64_t number) : value_(number) {}
  SqlValue(int number) : value_(int64_t{number}) {}
  SqlValue(uint32_t number) : value_(int64_t{number}) {}
  // Numbers above INT64_MAX become INT64_MAX: the columns that may have them are limits.
  SqlValue(uint64_t number);
  SqlValue(bool is_true) : value_(int64_t{is_true}) {}
  SqlValue(double number) : value_(number) {}
  SqlValue(std::string text) : value_(std::move(text)) {}
  SqlValue(const char* text) : value_(std::string(text)) {}
  SqlValue(SqlBlob blob) : value_(std::move(blob)) {}

  const std::variant<std::monostate, int64_t, double, std::string, SqlBlob>& value() const { return value_; }

 private:
  std::variant<std::monostate, int64_t, double, std::string, SqlBlob> value_;
};

// A row of an answer. Reading a column as another type than it has gives the type's zero.
class SqlRow {
 public:
  explicit SqlRow(std::vector<SqlValue> columns) : columns_(std::move(columns)) {}
  size_t size() const { return columns_.size(); }
  bool IsNull(size_t column) const;
  int64_t Int(size_t column) const;
  uint64_t Unsigned(size_t column) const { return static_cast<uint64_t>(Int(column)); }
  double Real(size_t column) const;
  const std::string& Text(size_t column) const;
  const std::string& Blob(size_t column) const;

 private:
  std::vector<SqlValue> columns_;
};
using SqlRows = std::vector<SqlRow>;

// A statement's text. Sessions prepare it once and find it again by its address, so every statement is a constant.
struct SqlStatement {
  const char* text;
};

// Used by one thread at a time. Errors:
//   kUnavailable        the connection was lost, or the database does not answer. Inside Commit it is unknown whether
//                       the transaction had an effect. The session has to be replaced (is_broken).
//   kAborted            the transaction was undone because of another one; it may be tried again.
//   kAlreadyExists      a constraint
//   kResourceExhausted  no room or memory
//   kDataLoss           everything else
// After any error inside a transaction only Rollback is allowed, or a statement that goes back to a savepoint.
class SqlSession {
 public:
  virtual ~SqlSession() = default;
  // Starts a transaction that reads and writes. PostgreSQL: READ COMMITTED.
  virtual Status Begin() = 0;
  virtual Status Commit() = 0;
  virtual void Rollback() = 0;
  virtual StatusOr<SqlRows> Run(const SqlStatement& statement, std::initializer_list<SqlValue> parameters = {}) = 0;
  // Runs statements without parameters or answers, separated by semicolons.
  virtual Status Execute(const std::string& statements) = 0;
  // Nanoseconds since the Unix epoch by the database's clock, which may jump.
  virtual StatusOr<int64_t> WallNs() = 0;
  // Tells subscribers of the database, when the transaction commits. SQLite: nothing.
  virtual Status Notify(const std::string& channel, const std::string& payload) = 0;
  // Takes a lock that ends with the transaction; false when another transaction has it. SQLite: true.
  virtual StatusOr<bool> TryLock(int64_t name) = 0;
  virtual StatusOr<bool> HasTable(const std::string& name) = 0;
  virtual bool is_broken() const = 0;
};

}  // namespace hpvm::server::cluster

#endif  // HPVMD_SERVER_CLUSTER_SQL_SQL_SESSION_H_
