// SPDX-License-Identifier: Apache-2.0
#include "server/cluster/postgres/postgres_session.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <thread>

#include "server/cluster/postgres/testing/postgres_server.h"

namespace hpvm::server::cluster {
namespace {

using Code = absl::StatusCode;

TEST(RewriteParametersTest, LeavesQuotesAlone) {
  const struct {
    const char *statement, *want;
  } cases[] = {
      {"", ""},
      {"SELECT ?1, ?12", "SELECT $1, $12"},
      {"SELECT '?1', ?1", "SELECT '?1', $1"},
      {"SELECT 'it''s ?1' || ?2", "SELECT 'it''s ?1' || $2"},
      {"SELECT \"a?1\" FROM t WHERE b = ?1", "SELECT \"a?1\" FROM t WHERE b = $1"},
      {"SELECT '\"' || ?1 || '\"'", "SELECT '\"' || $1 || '\"'"},
      {"SELECT a ? b, ?0, ?", "SELECT a ? b, ?0, ?"},
      {"SELECT a FROM t WHERE b=?1 FOR UPDATE SKIP LOCKED", "SELECT a FROM t WHERE b=$1 FOR UPDATE SKIP LOCKED"},
  };
  for (const auto& test : cases) {
    EXPECT_EQ(RewriteParameters(test.statement), test.want);
  }
}

TEST(PostgresErrorTest, HasACodeForEachState) {
  const struct {
    const char* state;
    Code want;
  } cases[] = {
      {"", Code::kUnavailable},
      {"08006", Code::kUnavailable},
      {"57P01", Code::kUnavailable},
      {"57P02", Code::kUnavailable},
      {"57P03", Code::kUnavailable},
      {"53300", Code::kUnavailable},
      {"57014", Code::kUnavailable},
      {"25P03", Code::kUnavailable},
      {"25006", Code::kUnavailable},
      {"40001", Code::kAborted},
      {"40P01", Code::kAborted},
      {"55P03", Code::kAborted},
      {"23505", Code::kAlreadyExists},
      {"23503", Code::kAlreadyExists},
      {"53100", Code::kResourceExhausted},
      {"53200", Code::kResourceExhausted},
      {"54000", Code::kResourceExhausted},
      {"28P01", Code::kFailedPrecondition},
      {"28000", Code::kFailedPrecondition},
      {"3D000", Code::kFailedPrecondition},
      {"42601", Code::kDataLoss},
      {"XX001", Code::kDataLoss},
  };
  for (const auto& test : cases) {
    EXPECT_EQ(PostgresError(test.state, "do it", "x").code(), test.want) << test.state;
  }
}

// The message is one sentence on one line, without marks of the place in the statement or in the server.
TEST(PostgresErrorTest, IsASentence) {
  EXPECT_EQ(Message(PostgresError("42703", "run \"SELECT a\"",
                                  "ERROR:  column \"a\" does not exist\nLINE 1: SELECT a\n               ^\n"
                                  "LOCATION:  errorMissingColumn, parse_relation.c:3656\n")),
            "PostgreSQL cannot run \"SELECT a\" (error 42703): column \"a\" does not exist; LINE 1: SELECT a.");
}

TEST(CheckPostgresVersionTest, NamesTheVersion) {
  EXPECT_TRUE(CheckPostgresVersion(130000).ok());
  EXPECT_TRUE(CheckPostgresVersion(150004).ok());
  const Status old = CheckPostgresVersion(120022);
  EXPECT_EQ(old.code(), Code::kFailedPrecondition);
  EXPECT_EQ(Message(old), "The server is PostgreSQL 12.22; the cluster's store needs version 13 or later.");
}

TEST(PostgresDurabilityTest, WarnsOfEachLoss) {
  PostgresDurability durability;
  durability.synchronous_standby_names = "ANY 1 (a, b)";
  EXPECT_TRUE(durability.Warnings().empty());
  const auto has = [&](const std::string& text) {
    for (const std::string& warning : durability.Warnings()) {
      if (warning.find(text) != std::string::npos) {
        return true;
      }
    }
    return false;
  };
  durability.synchronous_commit = "remote_write";
  EXPECT_TRUE(has("synchronous_commit is remote_write"));
  durability.synchronous_commit = "local";
  EXPECT_TRUE(has("does not wait for its standbys"));
  durability.synchronous_commit = "off";
  EXPECT_TRUE(has("before a transaction is on its disk"));
  EXPECT_EQ(durability.Warnings().size(), 2u);
  durability = PostgresDurability();
  durability.has_fsync = durability.has_full_page_writes = false;
  EXPECT_TRUE(has("fsync is off"));
  EXPECT_TRUE(has("full_page_writes is off"));
  EXPECT_TRUE(has("waits for no standby"));
  EXPECT_EQ(durability.Warnings().size(), 3u);
}

// Each test has a database of its own, on one server.
class PostgresSessionTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!PostgresServer::IsInstalled()) {
      GTEST_SKIP() << "PostgreSQL is not installed.";
    }
    auto server = PostgresServer::Shared();
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *server;
    ASSERT_TRUE(server_->CreateDatabase("session_test").ok());
    options_.dsn = server_->dsn("session_test");
  }
  // Some tests change the server.
  void TearDown() override {
    if (server_ != nullptr) {
      EXPECT_TRUE(server_->Start().ok());
      EXPECT_TRUE(server_->Run({"ALTER SYSTEM RESET ALL", "SELECT pg_reload_conf()"}).ok());
    }
  }

  std::unique_ptr<PostgresSession> Open() { return Open(options_); }
  std::unique_ptr<PostgresSession> Open(const PostgresOptions& options) {
    auto session = PostgresSession::Open(options);
    EXPECT_TRUE(session.ok()) << session.status();
    return session.ok() ? *std::move(session) : nullptr;
  }
  // Makes a table t(id, value) with rows 1 to `rows`.
  std::unique_ptr<PostgresSession> OpenWithTable(int rows) {
    auto session = Open();
    EXPECT_TRUE(session->Execute("CREATE TABLE t(id BIGINT PRIMARY KEY, value BIGINT NOT NULL)").ok());
    for (int id = 1; id <= rows; ++id) {
      EXPECT_TRUE(session->Run(kInsert, {id, 0}).ok());
    }
    return session;
  }

  static constexpr SqlStatement kInsert{"INSERT INTO t(id, value) VALUES(?1, ?2)"};
  static constexpr SqlStatement kUpdate{"UPDATE t SET value = value + 1 WHERE id = ?1"};
  static constexpr SqlStatement kCount{"SELECT COUNT(*) FROM t"};
  static constexpr SqlStatement kSleep{"SELECT pg_sleep(10)"};

  PostgresServer* server_ = nullptr;
  PostgresOptions options_;
};

constexpr SqlStatement kInsertTypes{"INSERT INTO types(i, d, s, b) VALUES(?1, ?2, ?3, ?4)"};
constexpr SqlStatement kSelectTypes{"SELECT i, d, s, b FROM types ORDER BY id"};

TEST_F(PostgresSessionTest, KeepsValuesOfEveryType) {
  auto session = Open();
  ASSERT_TRUE(session
                  ->Execute("CREATE TABLE types(id BIGSERIAL PRIMARY KEY, i BIGINT, d DOUBLE PRECISION, s TEXT, "
                            "b BYTEA); CREATE INDEX types_i ON types(i);")
                  .ok());
  std::string every_byte;
  for (int byte = 0; byte < 256; ++byte) {
    every_byte += static_cast<char>(byte);
  }
  const std::string text = "it's \"quoted\" \\ back\\x41 ?1 $1 \n\t {a,b} \xc3\xa4";
  const struct {
    int64_t number;
    double real;
    std::string text, blob;
  } cases[] = {
      {0, 0, "", ""},
      {INT64_MAX, std::numeric_limits<double>::max(), text, every_byte},
      {INT64_MIN, std::numeric_limits<double>::denorm_min(), "NULL", std::string(1, '\0')},
      {-1, 0.1 + 0.2, "\\x00", "\\x00'\"\\"},
      {1, -std::numeric_limits<double>::infinity(), " ", std::string(100'000, '\xff')},
  };
  for (const auto& test : cases) {
    const auto done = session->Run(kInsertTypes, {test.number, test.real, test.text, SqlBlob{test.blob}});
    ASSERT_TRUE(done.ok()) << done.status();
    EXPECT_TRUE(done->empty());
  }
  const auto rows = session->Run(kSelectTypes);
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->size(), std::size(cases));
  for (size_t at = 0; at < rows->size(); ++at) {
    const SqlRow& row = (*rows)[at];
    EXPECT_EQ(row.Int(0), cases[at].number);
    EXPECT_EQ(row.Real(1), cases[at].real);
    EXPECT_EQ(row.Text(2), cases[at].text);
    EXPECT_EQ(row.Blob(3), cases[at].blob);
    EXPECT_FALSE(row.IsNull(2) || row.IsNull(3));
  }
}

TEST_F(PostgresSessionTest, KeepsNulls) {
  auto session = Open();
  ASSERT_TRUE(session
                  ->Execute("CREATE TABLE types(id BIGSERIAL PRIMARY KEY, i BIGINT, d DOUBLE PRECISION, s TEXT, "
                            "b BYTEA)")
                  .ok());
  ASSERT_TRUE(session->Run(kInsertTypes, {SqlValue(), SqlValue(), SqlValue(), SqlValue()}).ok());
  ASSERT_TRUE(session->Run(kInsertTypes, {SqlValue(), 1.5, SqlValue(), SqlBlob{"b"}}).ok());
  const auto rows = session->Run(kSelectTypes);
  ASSERT_TRUE(rows.ok()) << rows.status();
  for (size_t column = 0; column < 4; ++column) {
    EXPECT_TRUE((*rows)[0].IsNull(column));
    EXPECT_EQ((*rows)[1].IsNull(column), column % 2 == 0);
  }
  EXPECT_EQ((*rows)[1].Blob(3), "b");
}

// The types that expressions have, which SQLite would give as integers and doubles too.
TEST_F(PostgresSessionTest, ReadsExpressions) {
  static constexpr SqlStatement kExpressions{
      "SELECT COUNT(*), SUM(x), AVG(x), true, 2::int4, 3::int2, 1.5::float4, NULL, 'a'::varchar, SUM(x) > 100 "
      "FROM (VALUES(1::bigint), (2::bigint)) AS v(x)"};
  auto session = Open();
  const auto rows = session->Run(kExpressions);
  ASSERT_TRUE(rows.ok()) << rows.status();
  const SqlRow& row = (*rows)[0];
  EXPECT_EQ(row.Int(0), 2);
  EXPECT_EQ(row.Int(1), 3);
  EXPECT_EQ(row.Real(2), 1.5);
  EXPECT_EQ(row.Int(3), 1);
  EXPECT_EQ(row.Int(4), 2);
  EXPECT_EQ(row.Int(5), 3);
  EXPECT_EQ(row.Real(6), 1.5);
  EXPECT_TRUE(row.IsNull(7));
  EXPECT_EQ(row.Text(8), "a");
  EXPECT_EQ(row.Int(9), 0);
}

TEST_F(PostgresSessionTest, RefusesTextsThatTheServerWouldCut) {
  static constexpr SqlStatement kEcho{"SELECT ?1::text"};
  auto session = Open();
  EXPECT_EQ(session->Run(kEcho, {std::string("a\0b", 3)}).status().code(), Code::kDataLoss);
  EXPECT_EQ(session->Run(kEcho, {"\xff"}).status().code(), Code::kDataLoss);
  EXPECT_TRUE(session->Run(kEcho, {"a"}).ok());
}

TEST_F(PostgresSessionTest, CommitsAndUndoes) {
  auto session = OpenWithTable(0);
  ASSERT_TRUE(session->Begin().ok());
  EXPECT_EQ(session->Begin().code(), Code::kInternal);
  ASSERT_TRUE(session->Run(kInsert, {1, 0}).ok());
  session->Rollback();
  session->Rollback();
  EXPECT_EQ((*session->Run(kCount))[0].Int(0), 0);
  ASSERT_TRUE(session->Begin().ok());
  ASSERT_TRUE(session->Run(kInsert, {1, 0}).ok());
  ASSERT_TRUE(session->Commit().ok());
  EXPECT_EQ((*Open()->Run(kCount))[0].Int(0), 1);
}

// PostgreSQL answers such a COMMIT with ROLLBACK, and without an error.
TEST_F(PostgresSessionTest, DoesNotCommitAfterAnError) {
  auto session = OpenWithTable(1);
  ASSERT_TRUE(session->Begin().ok());
  ASSERT_TRUE(session->Run(kInsert, {2, 0}).ok());
  const auto again = session->Run(kInsert, {1, 0});
  EXPECT_EQ(again.status().code(), Code::kAlreadyExists);
  EXPECT_NE(Message(again.status())
                .find("PostgreSQL cannot run \"INSERT INTO t(id, value) VALUES(?1, ?2)\" (error "
                      "23505): duplicate key value violates unique constraint \"t_pkey\""),
            std::string::npos)
      << again.status();
  EXPECT_EQ(session->Commit().code(), Code::kInternal);
  EXPECT_FALSE(session->is_broken());
  EXPECT_EQ((*session->Run(kCount))[0].Int(0), 1);
}

// As when the disk is full for one of several calls that share a transaction.
TEST_F(PostgresSessionTest, GoesOnFromASavepoint) {
  static constexpr SqlStatement kSavepoint{"SAVEPOINT step"}, kUndo{"ROLLBACK TO SAVEPOINT step"};
  auto session = OpenWithTable(1);
  ASSERT_TRUE(session->Begin().ok());
  ASSERT_TRUE(session->Run(kInsert, {2, 0}).ok());
  ASSERT_TRUE(session->Run(kSavepoint).ok());
  ASSERT_TRUE(session->Run(kInsert, {3, 0}).ok());
  EXPECT_EQ(session->Run(kInsert, {1, 0}).status().code(), Code::kAlreadyExists);
  ASSERT_TRUE(session->Run(kUndo).ok());
  ASSERT_TRUE(session->Run(kInsert, {4, 0}).ok());
  const Status committed = session->Commit();
  EXPECT_TRUE(committed.ok()) << committed;
  EXPECT_EQ((*session->Run(kCount))[0].Int(0), 3);
}

TEST_F(PostgresSessionTest, ReportsFaultyStatements) {
  static constexpr SqlStatement kFaulty{"SELECT nothing FROM nowhere"};
  auto session = Open();
  EXPECT_EQ(session->Run(kFaulty).status().code(), Code::kDataLoss);
  EXPECT_EQ(session->Run(kFaulty).status().code(), Code::kDataLoss);
  EXPECT_EQ(session->Execute("CREATE NONSENSE").code(), Code::kDataLoss);
  EXPECT_FALSE(session->is_broken());
}

TEST_F(PostgresSessionTest, AbortsOneOfADeadlock) {
  ASSERT_TRUE(server_->Run({"ALTER SYSTEM SET deadlock_timeout = '50ms'", "SELECT pg_reload_conf()"}).ok());
  auto one = OpenWithTable(2), two = Open();
  ASSERT_TRUE(one->Begin().ok() && two->Begin().ok());
  ASSERT_TRUE(one->Run(kUpdate, {1}).ok() && two->Run(kUpdate, {2}).ok());
  Status first, second;
  std::thread other([&] {
    second = two->Run(kUpdate, {1}).status();
    two->Rollback();
  });
  first = one->Run(kUpdate, {2}).status();
  one->Rollback();
  other.join();
  EXPECT_NE(first.ok(), second.ok());
  EXPECT_EQ((first.ok() ? second : first).code(), Code::kAborted) << first << second;
  EXPECT_FALSE(one->is_broken() || two->is_broken());
}

TEST_F(PostgresSessionTest, EndsLongStatements) {
  options_.statement_timeout = std::chrono::milliseconds(300);
  auto session = Open();
  const auto slept = session->Run(kSleep);
  EXPECT_EQ(slept.status().code(), Code::kUnavailable);
  EXPECT_NE(Message(slept.status()).find("57014"), std::string::npos);
  EXPECT_FALSE(session->is_broken());
  EXPECT_TRUE(session->WallNs().ok());
}

TEST_F(PostgresSessionTest, EndsLongWaitsForLocks) {
  static constexpr SqlStatement kLock{"SELECT value FROM t WHERE id = ?1 FOR UPDATE"};
  auto one = OpenWithTable(1);
  options_.lock_timeout = std::chrono::milliseconds(100);
  auto two = Open();
  ASSERT_TRUE(one->Begin().ok() && two->Begin().ok());
  ASSERT_TRUE(one->Run(kLock, {1}).ok());
  EXPECT_EQ(two->Run(kLock, {1}).status().code(), Code::kAborted);
  two->Rollback();
  EXPECT_FALSE(two->is_broken());
}

TEST_F(PostgresSessionTest, EndsIdleTransactions) {
  options_.idle_timeout = std::chrono::milliseconds(100);
  auto session = OpenWithTable(0);
  ASSERT_TRUE(session->Begin().ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  EXPECT_EQ(session->Run(kCount).status().code(), Code::kUnavailable);
  EXPECT_TRUE(session->is_broken());
}

TEST_F(PostgresSessionTest, IsBrokenOnAReadOnlyServer) {
  auto session = OpenWithTable(0);
  ASSERT_TRUE(session->Execute("SET default_transaction_read_only = on").ok());
  ASSERT_TRUE(session->Begin().ok());
  EXPECT_EQ(session->Run(kInsert, {1, 0}).status().code(), Code::kUnavailable);
  EXPECT_TRUE(session->is_broken());
  session->Rollback();
  EXPECT_EQ(session->Begin().code(), Code::kUnavailable);
}

TEST_F(PostgresSessionTest, IsBrokenWhenTheServerStops) {
  auto idle = OpenWithTable(0), open = Open();
  ASSERT_TRUE(open->Begin().ok());
  ASSERT_TRUE(open->Run(kInsert, {1, 0}).ok());
  server_->StopFast();
  EXPECT_EQ(idle->Begin().code(), Code::kUnavailable);
  EXPECT_TRUE(idle->is_broken());
  const Status committed = open->Commit();
  EXPECT_EQ(committed.code(), Code::kUnavailable);
  EXPECT_TRUE(Message(committed).ends_with("It is unknown whether the transaction had an effect.")) << committed;
  EXPECT_TRUE(open->is_broken());
  const auto refused = PostgresSession::Open(options_);
  EXPECT_EQ(refused.status().code(), Code::kUnavailable) << refused.status();
  // A broken session makes no new connection by itself.
  ASSERT_TRUE(server_->Start().ok());
  EXPECT_EQ(idle->Run(kCount).status().code(), Code::kUnavailable);
  EXPECT_EQ((*Open()->Run(kCount))[0].Int(0), 0);
}

TEST_F(PostgresSessionTest, KeepsCommittedRowsThroughACrash) {
  auto session = OpenWithTable(3);
  server_->Kill();
  EXPECT_EQ(session->Run(kCount).status().code(), Code::kUnavailable);
  EXPECT_TRUE(session->is_broken());
  ASSERT_TRUE(server_->Start().ok());
  EXPECT_EQ((*Open()->Run(kCount))[0].Int(0), 3);
}

TEST_F(PostgresSessionTest, DoesNotWaitForEverForAServerThatHangs) {
  static constexpr SqlStatement kPid{"SELECT pg_backend_pid()"};
  options_.answer_timeout = std::chrono::milliseconds(600);
  auto session = Open();
  const auto pid = static_cast<pid_t>((*session->Run(kPid))[0].Int(0));
  // A session that does nothing is not ended.
  std::this_thread::sleep_for(std::chrono::milliseconds(900));
  ASSERT_TRUE(session->Begin().ok());
  ASSERT_EQ(kill(pid, SIGSTOP), 0);
  const Status status = session->WallNs().status();
  kill(pid, SIGCONT);
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_NE(Message(status).find("there is no answer within 600 ms"), std::string::npos) << status;
  EXPECT_TRUE(session->is_broken());
}

// The transaction is on the server's disk, and its client cannot know whether it will be kept.
TEST_F(PostgresSessionTest, DoesNotWaitForEverForAStandby) {
  auto other = OpenWithTable(0);
  ASSERT_TRUE(server_->Run({"ALTER SYSTEM SET synchronous_standby_names = 'ghost'", "SELECT pg_reload_conf()"}).ok());
  options_.answer_timeout = std::chrono::milliseconds(1000);
  options_.statement_timeout = std::chrono::milliseconds(400);
  std::unique_ptr<PostgresSession> session;
  do {
    session = Open();
    ASSERT_NE(session, nullptr);
  } while (session->durability().synchronous_standby_names != "ghost");
  ASSERT_TRUE(session->Begin().ok());
  ASSERT_TRUE(session->Run(kInsert, {1, 0}).ok());
  const Status committed = session->Commit();
  EXPECT_EQ(committed.code(), Code::kUnavailable);
  EXPECT_NE(Message(committed).find("It is unknown whether"), std::string::npos) << committed;
  ASSERT_TRUE(server_->Run({"ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()"}).ok());
  for (int tries = 0; tries < 1000 && (*other->Run(kCount))[0].Int(0) == 0; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ((*other->Run(kCount))[0].Int(0), 1);
}

// PostgreSQL answers such a COMMIT with a warning, and without an error.
TEST_F(PostgresSessionTest, DoesNotBelieveAWaitForAStandbyThatWasCancelled) {
  static constexpr SqlStatement kPid{"SELECT pg_backend_pid()"};
  auto other = OpenWithTable(0);
  ASSERT_TRUE(server_->Run({"ALTER SYSTEM SET synchronous_standby_names = 'ghost'", "SELECT pg_reload_conf()"}).ok());
  std::unique_ptr<PostgresSession> session;
  do {
    session = Open();
    ASSERT_NE(session, nullptr);
  } while (session->durability().synchronous_standby_names != "ghost");
  const std::string pid = std::to_string((*session->Run(kPid))[0].Int(0));
  ASSERT_TRUE(session->Begin().ok());
  ASSERT_TRUE(session->Run(kInsert, {1, 0}).ok());
  std::thread canceller([&] {
    const std::string waits = "FROM pg_stat_activity WHERE pid = " + pid + " AND wait_event = 'SyncRep'";
    while (*server_->Ask("SELECT pg_cancel_backend(pid) " + waits) != "t") {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  const Status committed = session->Commit();
  canceller.join();
  EXPECT_EQ(committed.code(), Code::kUnavailable);
  EXPECT_NE(Message(committed).find("It is unknown whether"), std::string::npos) << committed;
  EXPECT_EQ((*other->Run(kCount))[0].Int(0), 1);
}

TEST_F(PostgresSessionTest, NamesAWrongDatabase) {
  options_.dsn = server_->dsn("nowhere");
  const auto session = PostgresSession::Open(options_);
  EXPECT_EQ(session.status().code(), Code::kFailedPrecondition);
  EXPECT_NE(Message(session.status()).find("database \"nowhere\" does not exist"), std::string::npos)
      << session.status();
}

TEST_F(PostgresSessionTest, RefusesAWrongPasswordWithoutShowingIt) {
  ASSERT_TRUE(server_->Run({"DROP ROLE IF EXISTS guarded", "CREATE ROLE guarded LOGIN PASSWORD 'open sesame'"}).ok());
  const std::string dsn = server_->dsn("session_test") + " user=guarded";
  options_.dsn = dsn + " password='open sesame'";
  EXPECT_NE(Open(), nullptr);
  for (const char* wrong : {" password=mellon", ""}) {
    options_.dsn = dsn + wrong;
    const auto session = PostgresSession::Open(options_);
    EXPECT_EQ(session.status().code(), Code::kFailedPrecondition) << session.status();
    EXPECT_EQ(Message(session.status()).find("mellon"), std::string::npos) << session.status();
    EXPECT_NE(Message(session.status()).find("password"), std::string::npos) << session.status();
  }
}

TEST_F(PostgresSessionTest, ShowsNoFaultyConnectionString) {
  for (const char* faulty : {"host=a password", "postgresql://a:mellon@b:c:d/", "password=mellon nonsense=1"}) {
    options_.dsn = faulty;
    const auto session = PostgresSession::Open(options_);
    EXPECT_FALSE(session.ok());
    EXPECT_EQ(Message(session.status()).find("mellon"), std::string::npos) << session.status();
  }
}

TEST_F(PostgresSessionTest, TakesTheHostThatAnswers) {
  const std::string folder = options_.dsn.substr(5, options_.dsn.find(' ') - 5);
  options_.dsn = "host=/nowhere," + folder + " port=5432 user=postgres dbname=session_test";
  EXPECT_NE(Open(), nullptr);
  options_.dsn = "host=/nowhere,/elsewhere port=1,2 user=postgres";
  const Status none = PostgresSession::Open(options_).status();
  EXPECT_EQ(none.code(), Code::kUnavailable);
  EXPECT_NE(Message(none).find("/nowhere/.s.PGSQL.1"), std::string::npos) << none;
  EXPECT_NE(Message(none).find("/elsewhere/.s.PGSQL.2"), std::string::npos) << none;
}

TEST_F(PostgresSessionTest, DoesNotOpenOnAServerThatRefusesItForNow) {
  ASSERT_TRUE(server_->Run({"DROP ROLE IF EXISTS crowd", "CREATE ROLE crowd LOGIN CONNECTION LIMIT 0"}).ok());
  const struct {
    std::string dsn, want;
  } cases[] = {{options_.dsn + " user=crowd", "(error 53300)"},
               {options_.dsn + " options='-c default_transaction_read_only=on'", "session is read-only"}};
  for (const auto& test : cases) {
    options_.dsn = test.dsn;
    const auto session = PostgresSession::Open(options_);
    EXPECT_EQ(session.status().code(), Code::kUnavailable) << session.status();
    EXPECT_NE(Message(session.status()).find(test.want), std::string::npos) << session.status();
  }
}

TEST_F(PostgresSessionTest, RefusesADatabaseOfAnotherEncoding) {
  ASSERT_TRUE(
      server_->Run({"DROP DATABASE IF EXISTS ascii", "CREATE DATABASE ascii TEMPLATE template0 ENCODING 'SQL_ASCII'"})
          .ok());
  options_.dsn = server_->dsn("ascii");
  EXPECT_EQ(PostgresSession::Open(options_).status().code(), Code::kFailedPrecondition);
}

TEST_F(PostgresSessionTest, SetsTheSessionUp) {
  static constexpr SqlStatement kSetting{"SELECT current_setting(?1)"};
  options_.search_path = "it's, public";
  auto session = Open();
  const struct {
    const char *name, *want;
  } cases[] = {{"statement_timeout", "10s"},
               {"lock_timeout", "5s"},
               {"idle_in_transaction_session_timeout", "15s"},
               {"application_name", "hpvmd"},
               {"standard_conforming_strings", "on"},
               {"transaction_isolation", "read committed"},
               {"client_encoding", "UTF8"},
               {"search_path", "it's, public"}};
  for (const auto& test : cases) {
    const auto rows = session->Run(kSetting, {test.name});
    ASSERT_TRUE(rows.ok()) << rows.status();
    EXPECT_EQ((*rows)[0].Text(0), test.want) << test.name;
  }
}

TEST_F(PostgresSessionTest, ReadsDurability) {
  const PostgresDurability durability = Open()->durability();
  EXPECT_EQ(durability.synchronous_commit, "on");
  EXPECT_EQ(durability.synchronous_standby_names, "");
  EXPECT_FALSE(durability.has_fsync);
  EXPECT_TRUE(durability.has_full_page_writes);
  EXPECT_EQ(durability.Warnings().size(), 2u);
}

TEST_F(PostgresSessionTest, WaitsForLockedRowsOrSkipsThem) {
  static constexpr SqlStatement kLock{"SELECT id, value FROM t WHERE id = ?1 FOR UPDATE"};
  static constexpr SqlStatement kSkip{"SELECT id FROM t ORDER BY id FOR UPDATE SKIP LOCKED"};
  auto one = OpenWithTable(3), two = Open(), three = Open();
  ASSERT_TRUE(one->Begin().ok() && two->Begin().ok() && three->Begin().ok());
  ASSERT_TRUE(one->Run(kLock, {2}).ok());
  const auto skipped = three->Run(kSkip);
  ASSERT_EQ(skipped->size(), 2u);
  EXPECT_EQ((*skipped)[1].Int(0), 3);
  three->Rollback();
  std::atomic<bool> has_lock = false;
  int64_t seen = 0;
  std::thread waiter([&] {
    const auto rows = two->Run(kLock, {2});
    has_lock = true;
    seen = rows.ok() ? (*rows)[0].Int(1) : -1;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_FALSE(has_lock);
  EXPECT_TRUE(one->Run(kUpdate, {2}).ok());
  EXPECT_TRUE(one->Commit().ok());
  waiter.join();
  EXPECT_EQ(seen, 1);  // READ COMMITTED: it sees what the other one wrote.
}

TEST_F(PostgresSessionTest, TakesNamedLocksForATransaction) {
  auto one = Open(), two = Open();
  ASSERT_TRUE(one->Begin().ok() && two->Begin().ok());
  EXPECT_TRUE(*one->TryLock(INT64_MIN));
  EXPECT_TRUE(*one->TryLock(INT64_MIN));
  EXPECT_FALSE(*two->TryLock(INT64_MIN));
  EXPECT_TRUE(*two->TryLock(7));
  EXPECT_TRUE(one->Commit().ok());
  EXPECT_TRUE(*two->TryLock(INT64_MIN));
}

TEST_F(PostgresSessionTest, FindsTables) {
  auto session = OpenWithTable(0);
  EXPECT_TRUE(*session->HasTable("t"));
  EXPECT_FALSE(*session->HasTable("T"));
  EXPECT_FALSE(*session->HasTable("a b\".c"));
}

// Several daemons that start at once look for tables, take a lock, and look again.
TEST_F(PostgresSessionTest, FindsTablesThatWereMadeMeanwhile) {
  auto one = OpenWithTable(0), two = Open();
  ASSERT_TRUE(one->Begin().ok());
  EXPECT_FALSE(*one->HasTable("later"));
  ASSERT_TRUE(two->Execute("CREATE TABLE later(id BIGINT)").ok());
  EXPECT_TRUE(*one->HasTable("later"));
  EXPECT_TRUE(one->Commit().ok());
}

TEST_F(PostgresSessionTest, ReadsTheClock) {
  auto session = Open();
  ASSERT_TRUE(session->Begin().ok());
  const int64_t first = *session->WallNs();
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  const int64_t second = *session->WallNs();
  EXPECT_GE(second - first, 2'000'000);  // It goes on inside a transaction.
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  EXPECT_LT(std::abs(second - std::chrono::nanoseconds(now).count()), 10'000'000'000);
}

}  // namespace
}  // namespace hpvm::server::cluster
