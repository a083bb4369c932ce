// SPDX-License-Identifier: Apache-2.0
// ClockedSession gives a session the time of a test's clock in place of the database's.
#ifndef HPVMD_SERVER_CLUSTER_TESTING_CLOCKED_SESSION_H_
#define HPVMD_SERVER_CLUSTER_TESTING_CLOCKED_SESSION_H_

#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "server/cluster/sql/sql_session.h"

namespace hpvm::server::cluster {

class ClockedSession final : public SqlSession {
 public:
  // Borrows the clock.
  ClockedSession(std::unique_ptr<SqlSession> session, const Clock& clock)
      : session_(std::move(session)), clock_(clock) {}

  Status Begin() override { return session_->Begin(); }
  Status Commit() override { return session_->Commit(); }
  void Rollback() override { session_->Rollback(); }
  StatusOr<SqlRows> Run(const SqlStatement& statement, std::initializer_list<SqlValue> parameters = {}) override {
    return session_->Run(statement, parameters);
  }
  Status Execute(const std::string& statements) override { return session_->Execute(statements); }
  StatusOr<int64_t> WallNs() override { return clock_.WallNs(); }
  Status Notify(const std::string& channel, const std::string& payload) override {
    return session_->Notify(channel, payload);
  }
  StatusOr<bool> TryLock(int64_t name) override { return session_->TryLock(name); }
  StatusOr<bool> HasTable(const std::string& name) override { return session_->HasTable(name); }
  bool is_broken() const override { return session_->is_broken(); }

 private:
  const std::unique_ptr<SqlSession> session_;
  const Clock& clock_;
};

}  // namespace hpvm::server::cluster

#endif  // HPVMD_SERVER_CLUSTER_TESTING_CLOCKED_SESSION_H_
