// SPDX-License-Identifier: Apache-2.0
#include "bench/service/service_sqlite.h"

#include <sqlite3.h>

#include <algorithm>
#include <vector>

namespace hpvm::bench {
namespace {

struct CloseDatabase {
  void operator()(sqlite3* database) const { sqlite3_close(database); }
};
struct Finalize {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
struct FreeValue {
  void operator()(sqlite3_value* value) const { sqlite3_value_free(value); }
};
using Database = std::unique_ptr<sqlite3, CloseDatabase>;
using Statement = std::unique_ptr<sqlite3_stmt, Finalize>;
using Value = std::unique_ptr<sqlite3_value, FreeValue>;
using Row = std::vector<Value>;

// New rows of a table since the last call.
struct Table {
  std::string name;
  std::vector<Row> rows = {};
};

std::string Quoted(const std::string& name) { return "\"" + name + "\""; }

class Copy final : public SqliteRaw {
 public:
  Status Start(const std::string& path, const std::string& source) {
    // Separate from the peer's own connection: a transaction there would lock the daemon's database too.
    HPVMD_RETURN_IF_ERROR(OpenDatabase(source, SQLITE_OPEN_READONLY, &source_));
    HPVMD_RETURN_IF_ERROR(OpenDatabase(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, &database_));
    HPVMD_ASSIGN_OR_RETURN(std::vector<std::string> size, Texts(source_, "PRAGMA page_size"));
    for (const std::string& pragma : {"page_size = " + size.at(0), std::string("journal_mode = WAL"),
                                      std::string("synchronous = FULL"), std::string("cache_size = -32768")}) {
      HPVMD_RETURN_IF_ERROR(Do("PRAGMA " + pragma));
    }
    const std::string ours = " FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'";
    HPVMD_ASSIGN_OR_RETURN(std::vector<std::string> schema,
                           Texts(source_, "SELECT sql" + ours + " AND sql IS NOT NULL ORDER BY rowid"));
    for (const std::string& sql : schema) {
      HPVMD_RETURN_IF_ERROR(Do(sql));
    }
    HPVMD_ASSIGN_OR_RETURN(std::vector<std::string> names,
                           Texts(source_, "SELECT name" + ours + " AND type = 'table' ORDER BY rowid"));
    for (const std::string& name : names) {
      tables_.push_back({.name = name});
    }
    return WriteNew(1, 1).status();
  }

  StatusOr<Duration> WriteNew(uint64_t jobs, uint64_t group) override {
    for (Table& table : tables_) {
      HPVMD_RETURN_IF_ERROR(ReadNew(table));
    }
    const Time start = RealClock().Now();
    for (uint64_t first = 0; first < jobs; first += group) {
      HPVMD_RETURN_IF_ERROR(Do("BEGIN IMMEDIATE"));
      const uint64_t end = std::min(jobs, first + group);
      for (Table& table : tables_) {
        HPVMD_RETURN_IF_ERROR(Insert(table, table.rows.size() * first / jobs, table.rows.size() * end / jobs));
      }
      HPVMD_RETURN_IF_ERROR(Do("COMMIT"));
    }
    const Duration took = RealClock().Now() - start;
    Remember(jobs);
    return took;
  }

  Status Verify() override {
    for (const Table& table : tables_) {
      const std::string count = "SELECT count(*) FROM " + Quoted(table.name);
      HPVMD_ASSIGN_OR_RETURN(const std::vector<std::string> theirs, Texts(source_, count));
      HPVMD_ASSIGN_OR_RETURN(const std::vector<std::string> copied, Texts(database_, count));
      if (theirs.at(0) != copied.at(0)) {
        return Internal("SQLite's own table " + table.name + " has " + copied.at(0) + " rows; the daemon's has " +
                        theirs.at(0) + ".");
      }
    }
    return absl::OkStatus();
  }

  std::string Describe() const override { return description_; }

 private:
  static Status Failure(const Database& database, const std::string& what) {
    return Internal("SQLite, " + what.substr(0, 100) + ": " + sqlite3_errmsg(database.get()) + ".");
  }

  static Status OpenDatabase(const std::string& path, int flags, Database* into) {
    sqlite3* opened = nullptr;
    const int code = sqlite3_open_v2(path.c_str(), &opened, flags, nullptr);
    into->reset(opened);
    sqlite3_busy_timeout(opened, 10'000);
    return code == SQLITE_OK ? absl::OkStatus() : Failure(*into, "opening \"" + path + "\"");
  }

  Status Do(const std::string& sql) {
    return sqlite3_exec(database_.get(), sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK ? absl::OkStatus()
                                                                                              : Failure(database_, sql);
  }

  static StatusOr<Statement> Prepare(const Database& database, const std::string& sql) {
    sqlite3_stmt* statement = nullptr;
    if (sqlite3_prepare_v2(database.get(), sql.c_str(), -1, &statement, nullptr) != SQLITE_OK) {
      return Failure(database, sql);
    }
    return Statement(statement);
  }

  static StatusOr<std::vector<std::string>> Texts(const Database& database, const std::string& sql) {
    HPVMD_ASSIGN_OR_RETURN(Statement statement, Prepare(database, sql));
    std::vector<std::string> texts;
    while (sqlite3_step(statement.get()) == SQLITE_ROW) {
      const unsigned char* text = sqlite3_column_text(statement.get(), 0);
      texts.emplace_back(text == nullptr ? "0" : reinterpret_cast<const char*>(text));
    }
    return texts;
  }

  // In the daemon's order. A table without an order holds values that are changed in place: a few counters, copied
  // completely each time.
  Status ReadNew(Table& table) {
    table.rows.clear();
    std::string newer;
    for (const char* order : {"sequence", "rowid"}) {
      const auto newest = Texts(database_, std::string("SELECT max(") + order + ") FROM main." + Quoted(table.name));
      if (newest.ok()) {
        newer = std::string(" WHERE ") + order + " > " + newest->at(0) + " ORDER BY " + order;
        break;
      }
    }
    HPVMD_ASSIGN_OR_RETURN(Statement statement, Prepare(source_, "SELECT * FROM " + Quoted(table.name) + newer));
    int code = SQLITE_ROW;
    while ((code = sqlite3_step(statement.get())) == SQLITE_ROW) {
      Row row;
      for (int i = 0; i < sqlite3_column_count(statement.get()); ++i) {
        row.emplace_back(sqlite3_value_dup(sqlite3_column_value(statement.get(), i)));
      }
      table.rows.push_back(std::move(row));
    }
    return code == SQLITE_DONE ? absl::OkStatus() : Failure(source_, "reading table " + table.name);
  }

  Status Insert(Table& table, uint64_t first, uint64_t end) {
    if (first == end) {
      return absl::OkStatus();
    }
    Statement& statement = inserts_[static_cast<size_t>(&table - tables_.data())];
    if (statement == nullptr) {
      std::string places;
      for (size_t i = 0; i < table.rows[0].size(); ++i) {
        places += i == 0 ? "?" : ",?";
      }
      // A counter replaces its old value.
      HPVMD_ASSIGN_OR_RETURN(statement, Prepare(database_, "INSERT OR REPLACE INTO main." + Quoted(table.name) +
                                                               " VALUES (" + places + ")"));
    }
    for (uint64_t i = first; i < end; ++i) {
      for (size_t column = 0; column < table.rows[i].size(); ++column) {
        sqlite3_bind_value(statement.get(), static_cast<int>(column) + 1, table.rows[i][column].get());
      }
      if (sqlite3_step(statement.get()) != SQLITE_DONE) {
        return Failure(database_, "writing table " + table.name);
      }
      sqlite3_reset(statement.get());
    }
    return absl::OkStatus();
  }

  void Remember(uint64_t jobs) {
    description_.clear();
    uint64_t bytes = 0;
    for (const Table& table : tables_) {
      if (table.rows.empty()) {
        continue;
      }
      description_ += (description_.empty() ? "" : ", ") + table.name + " " + std::to_string(table.rows.size());
      for (const Row& row : table.rows) {
        for (const Value& value : row) {
          bytes += static_cast<uint64_t>(sqlite3_value_bytes(value.get()));
        }
      }
    }
    description_ += "; " + std::to_string(bytes / std::max<uint64_t>(1, jobs)) + " bytes of values a job";
  }

  Database source_, database_;
  std::vector<Table> tables_;
  std::vector<Statement> inserts_ = std::vector<Statement>(64);
  std::string description_;
};

}  // namespace

StatusOr<std::unique_ptr<SqliteRaw>> SqliteRaw::Open(const std::string& path, const std::string& source) {
  auto copy = std::make_unique<Copy>();
  HPVMD_RETURN_IF_ERROR(copy->Start(path, source));
  return std::unique_ptr<SqliteRaw>(std::move(copy));
}

}  // namespace hpvm::bench
