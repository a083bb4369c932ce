// SPDX-License-Identifier: Apache-2.0
// The promises of SharedIdentity as tests for each database: a test program adds a line with INSTANTIATE_TEST_SUITE_P.
#ifndef HPVMD_SERVER_HOSTS_TESTING_SHARED_IDENTITY_PROMISES_H_
#define HPVMD_SERVER_HOSTS_TESTING_SHARED_IDENTITY_PROMISES_H_

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "server/cluster/sql/sql_session.h"
#include "server/hosts/shared_identity.h"
#include "server/identity/directory.h"

namespace hpvm::server {

// An empty database that several hosts share, and that can fail.
class SharedDatabase {
 public:
  virtual ~SharedDatabase() = default;
  virtual StatusOr<std::unique_ptr<cluster::SqlSession>> Connect() = 0;
  // Ends all sessions, and lets none begin until BringBack.
  virtual void TakeAway() = 0;
  virtual void BringBack() = 0;
};
using SharedDatabaseFactory = std::function<std::unique_ptr<SharedDatabase>()>;

class SharedIdentityPromises : public ::testing::TestWithParam<SharedDatabaseFactory> {
 protected:
  // Opens the directory of a host.
  std::unique_ptr<Directory> OpenHost();
  std::unique_ptr<cluster::SqlSession> Session();
  Directory::NewToken MakeToken(Directory& directory, const std::string& tenant);
  // Returns whether a host's directory has the token and knows of no revocation.
  static bool IsGood(const Directory& directory, const Directory::NewToken& token);

  const std::unique_ptr<SharedDatabase> database_ = GetParam()();
  ManualClock clock_;
};

// Returns a tenant for CreateTenant; `uid` 0: it has no user ids.
v1::Tenant TenantWith(const std::string& name, uint32_t uid = 0);

// Opens the directory of a host on the database that `connect` opens. Borrows the clock.
std::unique_ptr<Directory> OpenHostOn(SharedIdentity::Connect connect, const Clock& clock);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_HOSTS_TESTING_SHARED_IDENTITY_PROMISES_H_
