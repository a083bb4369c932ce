// SPDX-License-Identifier: Apache-2.0
// Tenants and tokens that two daemons share, on a database in a file.
#include "server/hosts/shared_identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/io/disk.h"
#include "server/cluster/sqlite/sqlite_session.h"
#include "server/identity/directory.h"
#include "server/identity/token.h"
#include "server/jobs/testing/temporary_folder.h"

namespace hpvm::server {
namespace {

using ::testing::HasSubstr;

class SharedIdentityTest : public ::testing::Test {
 protected:
  std::unique_ptr<Directory> OpenDirectory() {
    StatusOr<std::unique_ptr<SharedIdentity>> store = SharedIdentity::Open([this] { return Connect(); });
    EXPECT_TRUE(store.ok()) << store.status();
    DirectoryOptions options;
    options.database = *std::move(store);
    options.clock = &clock_;
    options.rng = &rng_;
    options.is_open = false;
    options.stale_after = std::chrono::seconds(60);
    StatusOr<std::unique_ptr<Directory>> directory = Directory::Open(std::move(options));
    EXPECT_TRUE(directory.ok()) << directory.status();
    return *std::move(directory);
  }
  StatusOr<std::unique_ptr<cluster::SqlSession>> Connect() {
    if (is_down_) {
      return Unavailable("The database is down.");
    }
    HPVMD_ASSIGN_OR_RETURN(auto session,
                           cluster::SqliteSession::Open(folder_.path() + "/shared.db", RealDisk(), RealClock()));
    return session;
  }
  static v1::Tenant Named(const std::string& name, uint32_t uid = 0) {
    v1::Tenant tenant;
    tenant.set_name(name);
    if (uid != 0) {
      tenant.add_uids(uid);
    }
    return tenant;
  }

  TemporaryFolder folder_;
  ManualClock clock_;
  SeededRng rng_{7};
  bool is_down_ = false;
};

TEST_F(SharedIdentityTest, AnotherHostSeesChanges) {
  const auto one = OpenDirectory(), two = OpenDirectory();
  ASSERT_TRUE(one->CreateTenant(Named("ann"), 10).ok());
  EXPECT_EQ(two->FindTenant("ann"), nullptr);
  EXPECT_EQ(*two->Refresh(), true);
  EXPECT_NE(two->FindTenant("ann"), nullptr);
  EXPECT_EQ(*two->Refresh(), false);
  const auto made = two->CreateToken({.tenant = "ann", .name = "n", .created_by = "test"});
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(*two->Refresh(), false);  // Its own change.
  ASSERT_TRUE(one->Refresh().ok());
  const Sha256 hash = *HashOfTokenSecret(made->secret);
  ASSERT_NE(one->FindToken(hash), nullptr);
  ASSERT_TRUE(one->RevokeToken(made->token.id()).ok());
  EXPECT_EQ(two->FindToken(hash)->token.revoked_unix_ns(), 0);
  ASSERT_TRUE(two->Refresh().ok());
  EXPECT_NE(two->FindToken(hash)->token.revoked_unix_ns(), 0);
}

// The checks are made again on what the other host has written.
TEST_F(SharedIdentityTest, OneUserIdGoesToOneTenant) {
  const auto one = OpenDirectory(), two = OpenDirectory();
  ASSERT_TRUE(one->CreateTenant(Named("ann", 1000), 10).ok());
  EXPECT_THAT(Message(two->CreateTenant(Named("bob", 1000), 10).status()), HasSubstr("belongs to tenant \"ann\""));
  EXPECT_TRUE(absl::IsAlreadyExists(two->CreateTenant(Named("ann", 1001), 10).status()));
  EXPECT_TRUE(two->CreateTenant(Named("bob", 1001), 10).ok());
  ASSERT_TRUE(one->EnsureTenant("bob").ok());  // It exists, as the second try finds.
  EXPECT_EQ(*one->TenantOfUid(1001), "bob");
}

TEST_F(SharedIdentityTest, ADeletedTenantIsGoneEverywhere) {
  const auto one = OpenDirectory(), two = OpenDirectory();
  v1::Tenant tenant = Named("ann");
  tenant.set_disabled(true);
  ASSERT_TRUE(one->CreateTenant(tenant, 10).ok());
  const auto made = one->CreateToken({.tenant = "ann", .name = "n", .created_by = "test"});
  ASSERT_TRUE(made.ok()) << made.status();
  ASSERT_TRUE(two->Refresh().ok());
  ASSERT_TRUE(two->BeginDelete("ann", "local").ok());
  ASSERT_TRUE(one->Refresh().ok());
  EXPECT_EQ(one->FindToken(*HashOfTokenSecret(made->secret)), nullptr);
  ASSERT_TRUE(one->ForgetTenant("ann").ok());
  ASSERT_TRUE(two->Refresh().ok());
  EXPECT_EQ(two->FindTenant("ann"), nullptr);
}

TEST_F(SharedIdentityTest, IdentitiesCountForAWhileWithoutTheDatabase) {
  SharedIdentity::Connect connect = [this] { return Connect(); };
  const auto one = OpenDirectory();
  ASSERT_TRUE(one->CreateTenant(Named("ann"), 10).ok());
  clock_.Advance(std::chrono::seconds(60));
  EXPECT_TRUE(one->CheckFresh().ok());
  clock_.Advance(std::chrono::seconds(1));
  EXPECT_THAT(Message(one->CheckFresh()), HasSubstr("last confirmed 61 s ago and are accepted for at most 60 s"));
  ASSERT_TRUE(one->Refresh().ok());
  EXPECT_TRUE(one->CheckFresh().ok());
}

TEST_F(SharedIdentityTest, DamagedRowsAreDataLoss) {
  OpenDirectory()->CreateTenant(Named("ann"), 10).IgnoreError();
  const auto session = Connect();
  ASSERT_TRUE((*session)->Execute("UPDATE cluster_identity_tenants SET record = 'x'").ok());
  const auto store = SharedIdentity::Open([this] { return Connect(); });
  EXPECT_TRUE(absl::IsDataLoss((*store)->Load().status()));
}

}  // namespace
}  // namespace hpvm::server
