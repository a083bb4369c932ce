// SPDX-License-Identifier: Apache-2.0
#include "server/cluster/sqlite/sqlite_session.h"

#include <chrono>
#include <thread>
#include <type_traits>
#include <utility>

namespace hpvm::server::cluster {
namespace {

// "hpvc", in the file's header: files with another id are not touched.
constexpr SqliteFormat kFormat{.name = "job database of a cluster", .application_id = 0x68707663, .newest = 1};
constexpr SqlStatement kFindTable{"SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1"};
// Pages of the log from which it is moved into the database.
constexpr int kWalPagesMax = 4000;
constexpr int kBeginTriesMax = 100;
constexpr std::chrono::milliseconds kBetweenBegins{10};

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// SQLite gives a numbered parameter its number, as PostgreSQL does.
std::string Rewritten(const std::string& sql) {
  return Replaced(Replaced(sql, "BIGSERIAL PRIMARY KEY", "INTEGER PRIMARY KEY AUTOINCREMENT"), " FOR UPDATE", "");
}

void Bind(SqliteStatement& statement, int index, const SqlValue& value) {
  std::visit(
      [&](const auto& bound) {
        using T = std::decay_t<decltype(bound)>;
        if constexpr (std::is_same_v<T, std::monostate>) {
          statement.BindAt(index, SqlNull());
        } else if constexpr (std::is_same_v<T, SqlBlob>) {
          statement.BindAt(index, SqlBytes{bound.bytes});
        } else if constexpr (std::is_same_v<T, std::string>) {
          statement.BindAt(index, std::string_view(bound));
        } else {
          statement.BindAt(index, bound);
        }
      },
      value.value());
}

SqlValue Column(const SqliteStatement& statement, int column) {
  switch (statement.Type(column)) {
    case SqliteStatement::ColumnType::kInteger:
      return statement.Int(column);
    case SqliteStatement::ColumnType::kReal:
      return statement.Real(column);
    case SqliteStatement::ColumnType::kText:
      return std::string(statement.Bytes(column));
    case SqliteStatement::ColumnType::kBlob:
      return SqlBlob{std::string(statement.Bytes(column))};
    case SqliteStatement::ColumnType::kNull:
      break;
  }
  return {};
}

}  // namespace

StatusOr<std::unique_ptr<SqliteSession>> SqliteSession::Open(const std::string& path, Disk& disk, const Clock& clock) {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<SqliteConnection> connection,
                         SqliteConnection::OpenOrCreate(path, disk, "", kFormat));
  HPVMD_RETURN_IF_ERROR(connection->Execute("PRAGMA application_id = " + std::to_string(kFormat.application_id) +
                                            "; PRAGMA user_version = " + std::to_string(kFormat.newest) + ";"));
  return std::unique_ptr<SqliteSession>(new SqliteSession(std::move(connection), clock));
}

StatusOr<std::unique_ptr<SqliteSession>> SqliteSession::OpenInMemory(const Clock& clock) {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<SqliteConnection> connection,
                         SqliteConnection::Open(":memory:", "", SqliteConnection::Mode::kWriter));
  return std::unique_ptr<SqliteSession>(new SqliteSession(std::move(connection), clock));
}

// A transaction after one that was undone first clears the log. That waits 100 ms for readers of other daemons, but not
// for a connection that clears the log, too.
Status SqliteSession::Begin() {
  Status begun = connection_->Begin();
  for (int tries = 1; absl::IsResourceExhausted(begun) && tries < kBeginTriesMax; ++tries) {
    std::this_thread::sleep_for(kBetweenBegins);
    begun = connection_->Begin();
  }
  return begun;
}

Status SqliteSession::Commit() {
  Status committed = connection_->Commit();
  if (absl::IsDataLoss(committed)) {
    is_broken_ = true;
    return Unavailable(Message(committed) + " It is unknown whether the transaction had an effect.");
  }
  if (committed.ok() && connection_->wal_pages() >= kWalPagesMax) {
    (void)connection_->Checkpoint(/*restart=*/false).ok();  // Otherwise the next commit tries it again.
  }
  return committed;
}

void SqliteSession::Rollback() { is_broken_ |= !connection_->Rollback().ok(); }

StatusOr<SqlRows> SqliteSession::Run(const SqlStatement& statement, std::initializer_list<SqlValue> parameters) {
  SqliteStatement& prepared = prepared_[statement.text];
  if (!prepared.is_prepared()) {
    HPVMD_RETURN_IF_ERROR(connection_->Prepare(Rewritten(statement.text), &prepared));
  }
  prepared.Reset();
  int index = 0;
  for (const SqlValue& value : parameters) {
    Bind(prepared, ++index, value);
  }
  const SqliteReset reset(prepared);
  SqlRows rows;
  while (true) {
    HPVMD_ASSIGN_OR_RETURN(const bool has_row, prepared.Next());
    if (!has_row) {
      return rows;
    }
    std::vector<SqlValue> columns;
    for (int column = 0; column < prepared.columns(); ++column) {
      columns.push_back(Column(prepared, column));
    }
    rows.emplace_back(std::move(columns));
  }
}

Status SqliteSession::Execute(const std::string& statements) { return connection_->Execute(Rewritten(statements)); }

StatusOr<bool> SqliteSession::HasTable(const std::string& name) {
  HPVMD_ASSIGN_OR_RETURN(const SqlRows rows, Run(kFindTable, {name}));
  return !rows.empty();
}

}  // namespace hpvm::server::cluster
