// SPDX-License-Identifier: Apache-2.0
#include "bench/service_sqlite.h"

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

// Rows of a table that came since the last look.
struct Table {
  std::string name;
  std::vector<Row> rows;
};

std::string Quoted(const std::string& name) { return "\"" + name + "\""; }

class Copy final : public SqliteRaw {
 public:
  Status Start(const std::string& path, const std::string& source) {
    sqlite3* opened = nullptr;
    if (sqlite3_open(path.c_str(), &opened) != SQLITE_OK) {
      return Unavailable("SQLite cannot make \"" + path + "\".");
    }
    database_.reset(opened);
    sqlite3_busy_timeout(database_.get(), 10'000);
    HPVMD_RETURN_IF_ERROR(Do("ATTACH '" + source + "' AS source"));
    HPVMD_ASSIGN_OR_RETURN(std::vector<std::string> size, Texts("PRAGMA source.page_size"));
    HPVMD_RETURN_IF_ERROR(Do("PRAGMA main.page_size = " + size.at(0)));
    HPVMD_RETURN_IF_ERROR(Do("PRAGMA main.journal_mode = WAL"));
    HPVMD_RETURN_IF_ERROR(Do("PRAGMA main.synchronous = FULL"));
    HPVMD_ASSIGN_OR_RETURN(
        std::vector<std::string> schema,
        Texts(
            "SELECT sql FROM source.sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY rowid"));
    for (const std::string& sql : schema) {
      HPVMD_RETURN_IF_ERROR(Do(sql));
    }
    HPVMD_ASSIGN_OR_RETURN(
        std::vector<std::string> names,
        Texts(
            "SELECT name FROM source.sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY rowid"));
    for (const std::string& name : names) {
      HPVMD_RETURN_IF_ERROR(Do("INSERT INTO main." + Quoted(name) + " SELECT * FROM source." + Quoted(name)));
      Table table;
      table.name = name;
      tables_.push_back(std::move(table));
    }
    return absl::OkStatus();
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
      HPVMD_ASSIGN_OR_RETURN(std::vector<std::string> missing,
                             Texts("SELECT (SELECT count(*) FROM source." + Quoted(table.name) +
                                   ") - (SELECT count(*) FROM main." + Quoted(table.name) + ")"));
      if (missing.at(0) != "0") {
        return Internal("SQLite's own copy lacks " + missing.at(0) + " rows of table " + table.name + ".");
      }
    }
    return absl::OkStatus();
  }

  std::string Describe() const override { return description_; }

 private:
  Status Failure(const std::string& what) {
    return Internal("SQLite, " + what.substr(0, 100) + ": " + sqlite3_errmsg(database_.get()) + ".");
  }

  Status Do(const std::string& sql) {
    return sqlite3_exec(database_.get(), sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK ? absl::OkStatus()
                                                                                              : Failure(sql);
  }

  StatusOr<Statement> Prepare(const std::string& sql) {
    sqlite3_stmt* statement = nullptr;
    if (sqlite3_prepare_v2(database_.get(), sql.c_str(), -1, &statement, nullptr) != SQLITE_OK) {
      return Failure(sql);
    }
    return Statement(statement);
  }

  StatusOr<std::vector<std::string>> Texts(const std::string& sql) {
    HPVMD_ASSIGN_OR_RETURN(Statement statement, Prepare(sql));
    std::vector<std::string> texts;
    while (sqlite3_step(statement.get()) == SQLITE_ROW) {
      texts.emplace_back(reinterpret_cast<const char*>(sqlite3_column_text(statement.get(), 0)));
    }
    return texts;
  }

  // In the order in which the daemon wrote them, as far as it can be known: by rowid, or, in a table that is its own
  // index, in no order when the key is text (ids are random), else by key.
  Status ReadNew(Table& table) {
    table.rows.clear();
    const std::string source = "source." + Quoted(table.name), main = "main." + Quoted(table.name);
    StatusOr<Statement> statement = Prepare(
        "SELECT * FROM " + source + " WHERE rowid > (SELECT ifnull(max(rowid), 0) FROM " + main + ") ORDER BY rowid");
    const bool has_rowid = statement.ok();
    if (!has_rowid) {
      HPVMD_ASSIGN_OR_RETURN(statement, Prepare("SELECT * FROM " + source + " EXCEPT SELECT * FROM " + main));
    }
    int code = SQLITE_ROW;
    while ((code = sqlite3_step(statement->get())) == SQLITE_ROW) {
      Row row;
      for (int i = 0; i < sqlite3_column_count(statement->get()); ++i) {
        row.emplace_back(sqlite3_value_dup(sqlite3_column_value(statement->get(), i)));
      }
      table.rows.push_back(std::move(row));
    }
    if (code != SQLITE_DONE) {
      return Failure("reading table " + table.name);
    }
    if (!has_rowid && !table.rows.empty() && sqlite3_value_type(table.rows[0][0].get()) == SQLITE_TEXT) {
      SeededRng rng(table.rows.size());
      for (size_t i = table.rows.size() - 1; i > 0; --i) {
        std::swap(table.rows[i], table.rows[rng.Below(i + 1)]);
      }
    }
    return absl::OkStatus();
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
      // What the daemon changes in place, a counter for instance, replaces the row of before.
      HPVMD_ASSIGN_OR_RETURN(statement,
                             Prepare("INSERT OR REPLACE INTO main." + Quoted(table.name) + " VALUES (" + places + ")"));
    }
    for (uint64_t i = first; i < end; ++i) {
      for (size_t column = 0; column < table.rows[i].size(); ++column) {
        sqlite3_bind_value(statement.get(), static_cast<int>(column) + 1, table.rows[i][column].get());
      }
      if (sqlite3_step(statement.get()) != SQLITE_DONE) {
        return Failure("writing table " + table.name);
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

  Database database_;
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
