// SPDX-License-Identifier: Apache-2.0
#include "server/hosts/testing/shared_identity_promises.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "base/round_thread.h"
#include "server/identity/authenticator.h"
#include "server/identity/token.h"

namespace hpvm::server {
namespace {

using cluster::SqlBlob;
using cluster::SqlStatement;
using ::testing::HasSubstr;

constexpr Duration kStaleAfter = std::chrono::seconds(60);
constexpr uint32_t kDaemonUid = 77;

}  // namespace

v1::Tenant TenantWith(const std::string& name, uint32_t uid) {
  v1::Tenant tenant;
  tenant.set_name(name);
  if (uid != 0) {
    tenant.add_uids(uid);
  }
  return tenant;
}

std::unique_ptr<Directory> OpenHostOn(SharedIdentity::Connect connect, const Clock& clock) {
  StatusOr<std::unique_ptr<SharedIdentity>> store = SharedIdentity::Open(std::move(connect));
  EXPECT_TRUE(store.ok()) << store.status();
  DirectoryOptions options;
  options.database = *std::move(store);
  options.clock = &clock;
  options.rng = &SystemRng();
  options.is_open = false;
  options.stale_after = kStaleAfter;
  options.administrators = {0, kDaemonUid};
  StatusOr<std::unique_ptr<Directory>> directory = Directory::Open(std::move(options));
  EXPECT_TRUE(directory.ok()) << directory.status();
  return *std::move(directory);
}

std::unique_ptr<Directory> SharedIdentityPromises::OpenHost() {
  return OpenHostOn([this] { return database_->Connect(); }, clock_);
}

std::unique_ptr<cluster::SqlSession> SharedIdentityPromises::Session() {
  StatusOr<std::unique_ptr<cluster::SqlSession>> session = database_->Connect();
  EXPECT_TRUE(session.ok()) << session.status();
  return *std::move(session);
}

Directory::NewToken SharedIdentityPromises::MakeToken(Directory& directory, const std::string& tenant) {
  const StatusOr<Directory::NewToken> made =
      directory.CreateToken({.tenant = tenant, .name = "n", .created_by = "the test"});
  EXPECT_TRUE(made.ok()) << made.status();
  return *made;
}

bool SharedIdentityPromises::IsGood(const Directory& directory, const Directory::NewToken& token) {
  const TokenRecordRef found = directory.FindToken(*HashOfTokenSecret(token.secret));
  return found != nullptr && found->token.revoked_unix_ns() == 0;
}

TEST_P(SharedIdentityPromises, AnotherHostSeesChanges) {
  const auto one = OpenHost(), two = OpenHost();
  ASSERT_TRUE(one->CreateTenant(TenantWith("ann"), 10).ok());
  EXPECT_EQ(two->FindTenant("ann"), nullptr);
  EXPECT_EQ(*two->Refresh(), true);
  EXPECT_NE(two->FindTenant("ann"), nullptr);
  EXPECT_EQ(*two->Refresh(), false);
  const Directory::NewToken made = MakeToken(*two, "ann");
  EXPECT_EQ(*two->Refresh(), false);  // Its own change.
  ASSERT_TRUE(one->Refresh().ok());
  ASSERT_TRUE(IsGood(*one, made));
  ASSERT_TRUE(one->RevokeToken(made.token.id()).ok());
  EXPECT_TRUE(IsGood(*two, made));
  ASSERT_TRUE(two->Refresh().ok());
  EXPECT_FALSE(IsGood(*two, made));
  EXPECT_FALSE(IsGood(*OpenHost(), made));
}

// The checks are made again on what the other host has written.
TEST_P(SharedIdentityPromises, OneUserIdGoesToOneTenant) {
  const auto one = OpenHost(), two = OpenHost();
  ASSERT_TRUE(one->CreateTenant(TenantWith("ann", 1000), 10).ok());
  EXPECT_THAT(Message(two->CreateTenant(TenantWith("bob", 1000), 10).status()), HasSubstr("belongs to tenant \"ann\""));
  EXPECT_TRUE(absl::IsAlreadyExists(two->CreateTenant(TenantWith("ann", 1001), 10).status()));
  EXPECT_TRUE(two->CreateTenant(TenantWith("bob", 1001), 10).ok());
  ASSERT_TRUE(one->EnsureTenant("bob").ok());  // It exists, as the second try finds.
  EXPECT_EQ(*one->TenantOfUid(1001), "bob");
}

// Two hosts give each user id to a tenant at the same moment: one of them wins, and both know which.
TEST_P(SharedIdentityPromises, OneOfTwoHostsWins) {
  constexpr uint32_t kRounds = 20, kUidFirst = 1000;
  const auto one = OpenHost(), two = OpenHost();
  std::vector<absl::StatusCode> ones(kRounds), twos(kRounds);
  std::atomic<uint32_t> arrived = 0;
  const auto create = [&](Directory& directory, const std::string& name, std::vector<absl::StatusCode>& codes) {
    for (uint32_t round = 0; round < kRounds; ++round) {
      for (++arrived; arrived < 2 * (round + 1);) {
        std::this_thread::yield();
      }
      codes[round] =
          directory.CreateTenant(TenantWith(name + std::to_string(round), kUidFirst + round), 100).status().code();
    }
  };
  std::thread other([&] { create(*two, "two", twos); });
  create(*one, "one", ones);
  other.join();
  ASSERT_TRUE(one->Refresh().ok() && two->Refresh().ok());
  for (uint32_t round = 0; round < kRounds; ++round) {
    SCOPED_TRACE(round);
    const bool is_ones = ones[round] == absl::StatusCode::kOk;
    EXPECT_EQ((is_ones ? twos : ones)[round], absl::StatusCode::kAlreadyExists);
    EXPECT_EQ((is_ones ? ones : twos)[round], absl::StatusCode::kOk);
    const std::string owner = (is_ones ? "one" : "two") + std::to_string(round);
    EXPECT_EQ(one->TenantOfUid(kUidFirst + round), owner);
    EXPECT_EQ(two->TenantOfUid(kUidFirst + round), owner);
  }
}

TEST_P(SharedIdentityPromises, HostsThatStartTogetherMakeTheTablesOnce) {
  std::vector<std::thread> hosts;
  std::atomic<int> failed = 0;
  for (int i = 0; i < 4; ++i) {
    hosts.emplace_back([&] { failed += OpenHost()->EnsureTenant("local").ok() ? 0 : 1; });
  }
  for (std::thread& host : hosts) {
    host.join();
  }
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(OpenHost()->ListTenants("", 10).size(), 1u);
}

TEST_P(SharedIdentityPromises, ADeletedTenantIsGoneEverywhere) {
  const auto one = OpenHost(), two = OpenHost();
  v1::Tenant tenant = TenantWith("ann");
  tenant.set_disabled(true);
  ASSERT_TRUE(one->CreateTenant(tenant, 10).ok());
  const Directory::NewToken made = MakeToken(*one, "ann");
  ASSERT_TRUE(two->Refresh().ok());
  ASSERT_TRUE(two->BeginDelete("ann", "local").ok());
  ASSERT_TRUE(one->Refresh().ok());
  EXPECT_EQ(one->FindTokenById(made.token.id()), nullptr);
  EXPECT_THAT(one->TakeGone(), testing::ElementsAre("ann"));
  ASSERT_TRUE(one->ForgetTenant("ann").ok());
  ASSERT_TRUE(two->ForgetTenant("ann").ok());  // It learns that it comes second.
  EXPECT_EQ(two->FindTenant("ann"), nullptr);
  EXPECT_THAT(one->TakeGone(), testing::IsEmpty());
  EXPECT_THAT(two->TakeGone(), testing::IsEmpty());  // It deleted the tenant itself.
}

TEST_P(SharedIdentityPromises, ATenantThatIsMadeAnewIsAnother) {
  const auto one = OpenHost(), two = OpenHost();
  v1::Tenant tenant = TenantWith("ann");
  tenant.set_disabled(true);
  ASSERT_TRUE(one->CreateTenant(tenant, 10).ok());
  ASSERT_TRUE(two->Refresh().ok());
  ASSERT_TRUE(one->BeginDelete("ann", "local").ok());
  ASSERT_TRUE(one->ForgetTenant("ann").ok());
  clock_.Advance(std::chrono::seconds(1));
  ASSERT_TRUE(one->CreateTenant(tenant, 10).ok());
  ASSERT_TRUE(two->Refresh().ok());
  EXPECT_THAT(two->TakeGone(), testing::ElementsAre("ann"));
  ASSERT_TRUE(two->ForgetTenant("ann").ok());
  EXPECT_NE(two->FindTenant("ann"), nullptr);
}

// A host that only polls knows a revocation after the next poll.
TEST_P(SharedIdentityPromises, PollsFindRevocations) {
  const auto one = OpenHost(), two = OpenHost();
  ASSERT_TRUE(one->EnsureTenant("ann").ok());
  const Directory::NewToken made = MakeToken(*one, "ann");
  ASSERT_TRUE(two->Refresh().ok());
  ASSERT_TRUE(IsGood(*two, made));
  RoundThread polls([&two] {
    EXPECT_TRUE(two->Refresh().ok());
    return std::chrono::milliseconds(20);
  });
  ASSERT_TRUE(one->RevokeToken(made.token.id()).ok());
  const Time began = RealClock().Now();
  while (IsGood(*two, made) && RealClock().Now() < began + std::chrono::seconds(20)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_FALSE(IsGood(*two, made));
}

// Tokens, certificates and users count for a while without the database; administrators of the machine always.
TEST_P(SharedIdentityPromises, IdentitiesCountForAWhileWithoutTheDatabase) {
  const auto host = OpenHost();
  v1::Tenant tenant = TenantWith("ann", 1000);
  tenant.add_certificate_names("ann's laptop");
  ASSERT_TRUE(host->CreateTenant(tenant, 10).ok());
  Config config;
  config.auth_tokens = config.auth_certificates = config.auth_peers = true;
  const TicketMint mint(SystemRng());
  const Authenticator authenticator(config, *host, mint, clock_);
  const std::string token = "Bearer " + MakeToken(*host, "ann").secret,
                    unknown = "Bearer " + NewTokenSecret(SystemRng());
  const auto try_bearer = [&](const std::string& bearer) {
    CallFacts facts;
    facts.peer = "unix:";
    facts.authorization = {bearer};
    return authenticator.Authenticate(facts, config).status();
  };
  const auto try_uid = [&](uint32_t uid) {
    return try_bearer("Bearer " + mint.Issue(LocalUser{uid, std::nullopt}, clock_.Now()));
  };
  const auto try_certificate = [&] {
    CallFacts facts;
    facts.peer = "ipv4:10.1.2.3:5";
    facts.is_encrypted = true;
    facts.certificate_names = {"ann's laptop"};
    return authenticator.Authenticate(facts, config).status();
  };
  ASSERT_TRUE(host->Refresh().ok());
  database_->TakeAway();
  clock_.Advance(kStaleAfter);
  EXPECT_TRUE(absl::IsUnavailable(host->Refresh().status()));
  EXPECT_TRUE(try_bearer(token).ok() && try_uid(1000).ok() && try_certificate().ok());
  EXPECT_TRUE(absl::IsUnauthenticated(try_bearer(unknown)));
  clock_.Advance(std::chrono::seconds(1));
  EXPECT_TRUE(absl::IsUnavailable(host->Refresh().status()));
  for (const Status& refused : {try_bearer(token), try_bearer(unknown), try_uid(1000), try_certificate()}) {
    EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
    EXPECT_EQ(Message(refused),
              "The cluster's database cannot be reached; identities were last confirmed 61 s ago and are accepted for "
              "at most 60 s.");
  }
  EXPECT_TRUE(try_uid(kDaemonUid).ok());
  database_->BringBack();
  ASSERT_TRUE(host->Refresh().ok());
  EXPECT_TRUE(try_bearer(token).ok() && try_uid(1000).ok() && try_certificate().ok());
}

TEST_P(SharedIdentityPromises, NothingChangesWithoutTheDatabase) {
  const auto host = OpenHost();
  ASSERT_TRUE(host->EnsureTenant("ann").ok());
  database_->TakeAway();
  EXPECT_TRUE(absl::IsUnavailable(host->CreateTenant(TenantWith("bob"), 10).status()));
  EXPECT_TRUE(
      absl::IsUnavailable(host->CreateToken({.tenant = "ann", .name = "n", .created_by = "the test"}).status()));
  EXPECT_EQ(host->FindTenant("bob"), nullptr);
  EXPECT_TRUE(host->ListTokens("ann").empty());
  database_->BringBack();
  // The connection is opened anew.
  EXPECT_TRUE(host->CreateTenant(TenantWith("bob"), 10).ok());
}

// A host stores what it was told to revoke once the database is back, and accepts the token at no time between.
TEST_P(SharedIdentityPromises, ARevocationOutlastsALossOfTheDatabase) {
  const auto one = OpenHost(), two = OpenHost();
  ASSERT_TRUE(one->EnsureTenant("ann").ok());
  const Directory::NewToken made = MakeToken(*one, "ann");
  ASSERT_TRUE(two->Refresh().ok());
  database_->TakeAway();
  for (int tries = 0; tries < 2; ++tries) {
    const Status revoked = one->RevokeToken(made.token.id());
    EXPECT_TRUE(absl::IsUnavailable(revoked)) << revoked;
    EXPECT_THAT(Message(revoked), HasSubstr("this daemon refuses until it ends"));
    EXPECT_FALSE(IsGood(*one, made));
  }
  database_->BringBack();
  ASSERT_TRUE(two->EnsureTenant("bob").ok());
  EXPECT_TRUE(IsGood(*two, made));
  EXPECT_EQ(*one->Refresh(), true);
  EXPECT_FALSE(IsGood(*one, made));
  EXPECT_EQ(*two->Refresh(), true);
  EXPECT_FALSE(IsGood(*two, made));
  EXPECT_EQ(*one->Refresh(), false);
  EXPECT_TRUE(one->RevokeToken(made.token.id()).ok());
}

// A standby that takes over may lack the last change, whose number the next change has then.
TEST_P(SharedIdentityPromises, AChangeThatTheDatabaseLostIsNotTakenForThePresentOne) {
  static constexpr SqlStatement kVersion{"SELECT value, tag FROM cluster_identity WHERE name = 'version'"};
  static constexpr SqlStatement kReset{"UPDATE cluster_identity SET value = ?1, tag = ?2 WHERE name = 'version'"};
  static constexpr SqlStatement kLose{"DELETE FROM cluster_identity_tokens"};
  const auto one = OpenHost(), two = OpenHost();
  ASSERT_TRUE(one->EnsureTenant("ann").ok());
  ASSERT_TRUE(two->Refresh().ok());
  const auto session = Session();
  const cluster::SqlRows before = *session->Run(kVersion);
  const Directory::NewToken lost = MakeToken(*one, "ann");
  ASSERT_TRUE(session->Run(kLose).ok());
  ASSERT_TRUE(session->Run(kReset, {before[0].Int(0), before[0].Int(1)}).ok());
  ASSERT_TRUE(two->CreateTenant(TenantWith("bob"), 10).ok());
  EXPECT_TRUE(IsGood(*one, lost));
  EXPECT_EQ(*one->Refresh(), true);
  EXPECT_FALSE(IsGood(*one, lost));
  EXPECT_NE(one->FindTenant("bob"), nullptr);
}

// A row that another program has changed is rejected, be it a name, a role or a secret's hash. A running host keeps
// what it knew, and then refuses everybody.
TEST_P(SharedIdentityPromises, DamagedRowsAreDataLoss) {
  static constexpr SqlStatement kTenantName{"UPDATE cluster_identity_tenants SET tenant = 'eve'"},
      kTenantRecord{"UPDATE cluster_identity_tenants SET record = ?1"},
      kTokenHash{"UPDATE cluster_identity_tokens SET secret_sha256 = ?1"},
      kTokenTenant{"UPDATE cluster_identity_tokens SET tenant = 'eve'"},
      kTokenId{"UPDATE cluster_identity_tokens SET id = 'tok-2'"},
      kTokenRecord{"UPDATE cluster_identity_tokens SET record = ?1"},
      kTokenSum{"UPDATE cluster_identity_tokens SET sum = sum - 1"};
  const auto host = OpenHost();
  ASSERT_TRUE(host->CreateTenant(TenantWith("ann", 1000), 10).ok());
  const Directory::NewToken made = MakeToken(*host, "ann");
  v1::Tenant weighty = *host->FindTenant("ann");
  weighty.set_weight(weighty.weight() + 1);
  v1::Token mighty = made.token;
  mighty.set_role(v1::ROLE_ADMIN);
  const auto session = Session();
  const auto load = [this] {
    const auto store = SharedIdentity::Open([this] { return database_->Connect(); });
    return store.ok() ? (*store)->Load().status() : store.status();
  };
  const struct {
    const SqlStatement& statement;
    std::string bytes;
  } cases[] = {{kTenantName, ""},
               {kTenantRecord, "x"},
               {kTenantRecord, weighty.SerializeAsString()},
               {kTokenHash, std::string(32, 'x')},
               {kTokenHash, "x"},
               {kTokenTenant, ""},
               {kTokenId, ""},
               {kTokenRecord, mighty.SerializeAsString()},
               {kTokenSum, ""}};
  EXPECT_TRUE(load().ok());
  for (const auto& test : cases) {
    SCOPED_TRACE(test.statement.text);
    ASSERT_TRUE(session->Begin().ok());
    ASSERT_TRUE(
        (test.bytes.empty() ? session->Run(test.statement) : session->Run(test.statement, {SqlBlob{test.bytes}})).ok());
    ASSERT_TRUE(session->Commit().ok());
    const Status damaged = load();
    EXPECT_TRUE(absl::IsDataLoss(damaged)) << damaged;
    EXPECT_THAT(Message(damaged), HasSubstr("is damaged"));
    static constexpr SqlStatement kChange{"UPDATE cluster_identity SET tag = tag + 1 WHERE name = 'version'"};
    ASSERT_TRUE(session->Run(kChange).ok());
    EXPECT_TRUE(absl::IsDataLoss(host->Refresh().status()));
    EXPECT_TRUE(IsGood(*host, made));
    // Puts the rows back.
    ASSERT_TRUE(session->Execute("DELETE FROM cluster_identity_tenants; DELETE FROM cluster_identity_tokens").ok());
    const auto store = SharedIdentity::Open([this] { return database_->Connect(); });
    ASSERT_TRUE((*store)->Load().ok());
    ASSERT_TRUE((*store)->Put(*host->FindTenant("ann"), false).ok());
    ASSERT_TRUE((*store)->Put(*host->FindTokenById(made.token.id()), {}).ok());
    ASSERT_TRUE(host->Refresh().ok());
  }
  ASSERT_TRUE(session->Run(kTokenSum).ok());
  ASSERT_TRUE(session->Execute("UPDATE cluster_identity SET tag = tag + 1 WHERE name = 'version'").ok());
  clock_.Advance(kStaleAfter + std::chrono::seconds(1));
  EXPECT_TRUE(absl::IsDataLoss(host->Refresh().status()));
  EXPECT_TRUE(absl::IsUnavailable(host->CheckFresh()));
}

TEST_P(SharedIdentityPromises, TablesOfALaterReleaseAreLeftAlone) {
  OpenHost();
  ASSERT_TRUE(Session()->Execute("UPDATE cluster_identity SET value = 2 WHERE name = 'least_format'").ok());
  const Status refused = SharedIdentity::Open([this] { return database_->Connect(); }).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(Message(refused), HasSubstr("knows format 2; this one knows 1. Start the later release."));
}

}  // namespace hpvm::server
