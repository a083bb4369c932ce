// SPDX-License-Identifier: Apache-2.0
// Tenants and tokens that hosts share, on a real PostgreSQL.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

#include "base/round_thread.h"
#include "server/cluster/postgres/postgres_listener.h"
#include "server/cluster/postgres/postgres_session.h"
#include "server/cluster/postgres/testing/postgres_server.h"
#include "server/cluster/sql/cluster_schema.h"
#include "server/hosts/shared_identity.h"
#include "server/hosts/testing/shared_identity_promises.h"
#include "server/identity/token.h"

namespace hpvm::server {
namespace {

using cluster::PostgresListener;
using cluster::PostgresOptions;
using cluster::PostgresServer;
using cluster::PostgresSession;
using cluster::SqlStatement;
using ::testing::HasSubstr;

PostgresServer& Server() {
  StatusOr<PostgresServer*> server = PostgresServer::Shared();
  HPVMD_CHECK(server.ok());
  return **server;
}

class PostgresDatabase final : public SharedDatabase {
 public:
  PostgresDatabase() {
    HPVMD_CHECK(server_.CreateDatabase("identity").ok());
    options_.dsn = server_.dsn("identity");
  }
  StatusOr<std::unique_ptr<cluster::SqlSession>> Connect() override { return PostgresSession::Open(options_); }
  void TakeAway() override { server_.Kill(); }
  void BringBack() override { HPVMD_CHECK(server_.Start().ok()); }
  const PostgresOptions& options() const { return options_; }

 private:
  PostgresServer& server_ = Server();
  PostgresOptions options_;
};

INSTANTIATE_TEST_SUITE_P(Postgres, SharedIdentityPromises,
                         ::testing::Values(SharedDatabaseFactory([] { return std::make_unique<PostgresDatabase>(); })));

// A revocation reaches another host by a notification, long before the host polls.
TEST(SharedIdentityPostgresTest, NotificationsTellOfRevocations) {
  PostgresDatabase database;
  const auto one = OpenHostOn([&] { return database.Connect(); }, RealClock());
  const auto two = OpenHostOn([&] { return database.Connect(); }, RealClock());
  ASSERT_TRUE(one->EnsureTenant("ann").ok());
  RoundThread refreshes([&two]() -> Duration {
    EXPECT_TRUE(two->Refresh().ok());
    return std::chrono::hours(1);
  });
  const auto listener =
      PostgresListener::Start(database.options(), {kIdentityChannel},
                              {.on_notice = [&](const std::string&, const std::string&) { refreshes.Wake(); },
                               .on_gap = [&] { refreshes.Wake(); }});
  ASSERT_TRUE(listener.ok()) << listener.status();
  Duration longest{0};
  for (int round = 0; round < 20; ++round) {
    const auto made = one->CreateToken({.tenant = "ann", .name = "n", .created_by = "the test"});
    ASSERT_TRUE(made.ok()) << made.status();
    const auto is_good = [&] {
      const TokenRecordRef found = two->FindToken(*HashOfTokenSecret(made->secret));
      return found != nullptr && found->token.revoked_unix_ns() == 0;
    };
    const auto wait_until = [&](bool wanted) {
      const Time began = RealClock().Now();
      while (is_good() != wanted && RealClock().Now() < began + std::chrono::seconds(30)) {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
      EXPECT_EQ(is_good(), wanted);
      return RealClock().Now() - began;
    };
    wait_until(true);
    ASSERT_TRUE(one->RevokeToken(made->token.id()).ok());
    longest = std::max<Duration>(longest, wait_until(false));
  }
  std::printf("A revocation reached the other host after at most %.1f ms.\n",
              std::chrono::duration<double, std::milli>(longest).count());
  EXPECT_LT(longest, std::chrono::seconds(5));
}

// A stolen password of an agent reads no hash of a token, and changes nothing.
TEST(SharedIdentityPostgresTest, AgentsReachNoTenantsOrTokens) {
  PostgresDatabase database;
  const auto host = OpenHostOn([&] { return database.Connect(); }, RealClock());
  ASSERT_TRUE(host->EnsureTenant("ann").ok());
  const auto owner = *PostgresSession::Open(database.options());
  ASSERT_TRUE(MigrateClusterSchema(*owner).ok());
  (void)owner->Execute("CREATE ROLE agent LOGIN").ok();  // An earlier run of this test may have made it.
  ASSERT_TRUE(GrantToAgents(*owner, "agent").ok());
  PostgresOptions as_agent = database.options();
  as_agent.dsn += " user=agent";
  EXPECT_TRUE((*PostgresSession::Open(as_agent))->Execute("SELECT 1 FROM cluster_meta").ok());
  for (const char* statement :
       {"SELECT value FROM cluster_identity", "SELECT value FROM cluster_identity FOR UPDATE",
        "UPDATE cluster_identity SET value = value + 1", "SELECT record FROM cluster_identity_tenants",
        "DELETE FROM cluster_identity_tenants", "SELECT id FROM cluster_identity_tokens",
        "SELECT secret_sha256 FROM cluster_identity_tokens", "DELETE FROM cluster_identity_tokens",
        "INSERT INTO cluster_identity_tokens(id, tenant, secret_sha256, record, sum) VALUES('a', 'b', '', '', 1)",
        "DROP TABLE cluster_identity_tokens"}) {
    const Status refused = (*PostgresSession::Open(as_agent))->Execute(statement);
    EXPECT_FALSE(refused.ok()) << statement;
    EXPECT_THAT(Message(refused), ::testing::AnyOf(HasSubstr("permission denied"), HasSubstr("must be owner")));
  }
  EXPECT_FALSE(SharedIdentity::Open([&] { return PostgresSession::Open(as_agent); }).ok());
}

}  // namespace
}  // namespace hpvm::server

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  if (!hpvm::server::cluster::PostgresServer::IsInstalled()) {
    std::puts("PostgreSQL is not installed; nothing is tested.");
    return 0;
  }
  return RUN_ALL_TESTS();
}
