// SPDX-License-Identifier: Apache-2.0
// Tenants and tokens that hosts share, on a database in a file.
#include "server/hosts/shared_identity.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "base/io/disk.h"
#include "server/cluster/sqlite/sqlite_session.h"
#include "server/hosts/testing/shared_identity_promises.h"
#include "server/jobs/testing/temporary_folder.h"

namespace hpvm::server {
namespace {

// A session that ends when the number of losses changes.
class MortalSession final : public cluster::SqlSession {
 public:
  MortalSession(std::unique_ptr<cluster::SqlSession> session, const std::atomic<int>& losses)
      : session_(std::move(session)), losses_(losses) {}

  Status Begin() override { return is_lost() ? Lost() : session_->Begin(); }
  Status Commit() override { return is_lost() ? Lost() : session_->Commit(); }
  void Rollback() override { session_->Rollback(); }
  StatusOr<cluster::SqlRows> Run(const cluster::SqlStatement& statement,
                                 std::initializer_list<cluster::SqlValue> parameters = {}) override {
    return is_lost() ? Lost() : session_->Run(statement, parameters);
  }
  Status Execute(const std::string& statements) override { return session_->Execute(statements); }
  StatusOr<int64_t> WallNs() override { return session_->WallNs(); }
  Status Notify(const std::string&, const std::string&) override { return absl::OkStatus(); }
  StatusOr<bool> TryLock(int64_t name) override { return session_->TryLock(name); }
  StatusOr<bool> HasTable(const std::string& name) override { return session_->HasTable(name); }
  bool is_broken() const override { return found_lost_ || session_->is_broken(); }

 private:
  bool is_lost() const { return losses_ != losses_at_start_; }
  Status Lost() {
    found_lost_ = true;  // As on a socket, a call finds out.
    return Unavailable("The connection was lost.");
  }

  const std::unique_ptr<cluster::SqlSession> session_;
  const std::atomic<int>& losses_;
  const int losses_at_start_ = losses_;
  bool found_lost_ = false;
};

class SqliteDatabase final : public SharedDatabase {
 public:
  // Makes the file, which one process does at a time.
  SqliteDatabase() { EXPECT_TRUE(Connect().ok()); }
  StatusOr<std::unique_ptr<cluster::SqlSession>> Connect() override {
    if (is_away_) {
      return FailedPrecondition("The database is away.");
    }
    HPVMD_ASSIGN_OR_RETURN(auto session,
                           cluster::SqliteSession::Open(folder_.path() + "/shared.db", RealDisk(), RealClock()));
    return std::make_unique<MortalSession>(std::move(session), losses_);
  }
  void TakeAway() override {
    is_away_ = true;
    ++losses_;
  }
  void BringBack() override { is_away_ = false; }

 private:
  const TemporaryFolder folder_;
  std::atomic<bool> is_away_ = false;
  std::atomic<int> losses_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Sqlite, SharedIdentityPromises,
                         ::testing::Values(SharedDatabaseFactory([] { return std::make_unique<SqliteDatabase>(); })));

}  // namespace
}  // namespace hpvm::server
