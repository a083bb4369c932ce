// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/scrape_access.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "server/identity/identity.h"
#include "server/identity/identity_database.h"

namespace hpvm::server {
namespace {

constexpr char kSecret[] = "0123456789abcdef0123";

class ScrapeAccessTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/hpvm-scrape-XXXXXX";
    folder_ = mkdtemp(name);
    config_.server_state_dir = folder_;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void UseTokens() { config_.auth_tokens = true; }
  void UseFile(const std::string& secret) {
    config_.metrics_token_file = folder_ + "/scrape";
    std::ofstream(config_.metrics_token_file) << secret << "\n";
  }
  std::string Token(const char* role) {
    StatusOr<Directory::NewToken> token = CreateTokenOffline(config_, config_.tenants_default, role);
    return token.ok() ? token->secret : Message(token.status());
  }
  StatusOr<bool> Ask(const std::string& authorization) {
    const auto identity = Identity::Open(config_, folder_, RealClock(), SystemRng());
    return identity.ok()
               ? MaySeeTenants(authorization, config_, (*identity)->authenticator(), (*identity)->directory().is_open())
               : identity.status();
  }

  std::string folder_;
  Config config_;
};

// With [auth] in force, nobody without a credential sees a tenant's name.
TEST_F(ScrapeAccessTest, AdministratorsOnly) {
  UseTokens();
  const std::string admin = Token("admin"), user = Token("user");
  EXPECT_EQ(Ask("").value_or(true), false);
  EXPECT_EQ(Ask("Bearer " + admin).value_or(false), true);
  EXPECT_EQ(Ask("Bearer " + user).value_or(true), false);
  EXPECT_EQ(Ask("Bearer hpvm_nothing").status().code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(Ask("Basic eDp5").status().code(), absl::StatusCode::kUnauthenticated);
}

// A token that a cluster's database does not confirm is not called wrong.
TEST_F(ScrapeAccessTest, OldIdentities) {
  UseTokens();
  const std::string authorization = "Bearer " + Token("admin");
  ManualClock clock;
  const auto identity =
      Identity::Open(config_, folder_, clock, SystemRng(), [this]() -> StatusOr<std::unique_ptr<IdentityStore>> {
        return IdentityDatabase::Open(folder_ + "/identity.sqlite");
      });
  ASSERT_TRUE(identity.ok()) << identity.status();
  const auto ask = [&] { return MaySeeTenants(authorization, config_, (*identity)->authenticator(), false); };
  EXPECT_EQ(ask().value_or(false), true);
  clock.Advance(std::chrono::milliseconds(config_.identity_stale_ms + 1));
  EXPECT_TRUE(absl::IsUnavailable(ask().status())) << ask().status();
}

// A scraper does not need an administrator's token.
TEST_F(ScrapeAccessTest, SecretOfTheScraper) {
  UseTokens();
  UseFile(kSecret);
  const std::string admin = Token("admin");
  EXPECT_EQ(Ask(std::string("Bearer ") + kSecret).value_or(false), true);
  EXPECT_EQ(Ask("Bearer " + admin).value_or(false), true);
  EXPECT_FALSE(Ask(std::string("Bearer ") + kSecret + "4").ok());
  EXPECT_FALSE(Ask("Bearer ").ok());
  UseFile("another secret, as long");
  EXPECT_FALSE(Ask(std::string("Bearer ") + kSecret).ok());
  EXPECT_EQ(Ask("Bearer another secret, as long").value_or(false), true);
  UseFile("short");
  EXPECT_FALSE(Ask("Bearer short").ok());
  std::filesystem::remove(config_.metrics_token_file);
  EXPECT_FALSE(Ask("Bearer ").ok());
}

TEST_F(ScrapeAccessTest, WithoutAnyCredentials) {
  EXPECT_EQ(Ask("").value_or(false), true);
  UseFile(kSecret);
  EXPECT_EQ(Ask("").value_or(true), false);
  EXPECT_EQ(Ask(std::string("Bearer ") + kSecret).value_or(false), true);
  EXPECT_FALSE(Ask("Bearer nothing").ok());
}

}  // namespace
}  // namespace hpvm::server
