// SPDX-License-Identifier: Apache-2.0
#include "server/identity/directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

#include "server/identity/identity_database.h"
#include "server/identity/tenant_rules.h"
#include "server/identity/token.h"

namespace hpvm::server {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;

class DirectoryTest : public ::testing::Test {
 protected:
  DirectoryTest() {
    char folder[] = "/tmp/hpvmd-directory-test-XXXXXX";
    folder_ = mkdtemp(folder);
    Reopen();
  }
  ~DirectoryTest() override {
    directory_.reset();
    std::filesystem::remove_all(folder_);
  }

  // Opens the directory again, as a restarted daemon does.
  void Reopen(bool is_open = false, bool is_kept = true) {
    directory_.reset();
    DirectoryOptions options;
    if (is_kept) {
      auto database = IdentityDatabase::Open(folder_ + "/identity.sqlite");
      ASSERT_TRUE(database.ok()) << database.status();
      options.database = *std::move(database);
    }
    options.clock = &clock_;
    options.rng = &rng_;
    options.is_open = is_open;
    options.administrators = {0, 77};
    auto directory = Directory::Open(std::move(options));
    ASSERT_TRUE(directory.ok()) << directory.status();
    directory_ = *std::move(directory);
  }

  Status Create(const std::string& name, const std::function<void(v1::Tenant*)>& change = nullptr) {
    v1::Tenant tenant;
    tenant.set_name(name);
    if (change) {
      change(&tenant);
    }
    return directory_->CreateTenant(tenant, 100).status();
  }
  StatusOr<Directory::NewToken> Token(const std::string& tenant, uint64_t lifetime_ns = 0) {
    Directory::TokenSpec spec;
    spec.tenant = tenant;
    spec.lifetime_ns = lifetime_ns;
    spec.created_by = "the test";
    return directory_->CreateToken(spec);
  }

  std::string folder_;
  ManualClock clock_;
  SeededRng rng_{3};
  Config config_;
  std::unique_ptr<Directory> directory_;
};

// A restarted daemon finds every acknowledged change, byte for byte.
TEST_F(DirectoryTest, OutlivesTheDaemon) {
  ASSERT_TRUE(Create("ann", [](v1::Tenant* tenant) {
                tenant->set_weight(250);
                (*tenant->mutable_quota())["device-bytes"] = 4096;
                tenant->add_devices("opencl:0");
                tenant->add_uids(1000);
                tenant->add_certificate_names("ann's laptop");
                tenant->set_sandbox_level_min(3);
              }).ok());
  const Directory::NewToken kept = *Token("ann"), revoked = *Token("ann");
  ASSERT_TRUE(directory_->RevokeToken(revoked.token.id()).ok());
  const std::string before = directory_->FindTenant("ann")->SerializeAsString();
  Reopen();
  EXPECT_EQ(directory_->FindTenant("ann")->SerializeAsString(), before);
  EXPECT_EQ(directory_->TenantOfUid(1000), "ann");
  EXPECT_EQ(directory_->TenantOfCertificate("ann's laptop"), "ann");
  const TokenRecordRef found = directory_->FindToken(*HashOfTokenSecret(kept.secret));
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->token.SerializeAsString(), kept.token.SerializeAsString());
  EXPECT_NE(directory_->FindToken(*HashOfTokenSecret(revoked.secret))->token.revoked_unix_ns(), 0);
  EXPECT_EQ(directory_->ListTokens("ann").size(), 2u);
}

// No file of the folder contains the first or last 16 characters of a secret, and only the owner may access the files.
TEST_F(DirectoryTest, KeepsNoSecret) {
  ASSERT_TRUE(Create("ann").ok());
  const std::string secret = Token("ann")->secret;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    std::stringstream bytes;
    bytes << std::ifstream(entry.path(), std::ios::binary).rdbuf();
    EXPECT_EQ(bytes.str().find(secret.substr(0, 16)), std::string::npos) << entry.path();
    EXPECT_EQ(bytes.str().find(secret.substr(secret.size() - 16)), std::string::npos) << entry.path();
    EXPECT_EQ(entry.status().permissions() & std::filesystem::perms(077), std::filesystem::perms::none) << entry.path();
  }
}

// User ids and certificate names belong to one tenant at a time.
TEST_F(DirectoryTest, NamesUidsAndCertificatesBelongToOneTenant) {
  const auto with_both = [](v1::Tenant* tenant) {
    tenant->add_uids(1000);
    tenant->add_certificate_names("c");
  };
  ASSERT_TRUE(Create("ann", with_both).ok());
  EXPECT_EQ(Create("ann").code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(Create("bob", [](v1::Tenant* t) { t->add_uids(1000); }).code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(Create("bob", [](v1::Tenant* t) { t->add_certificate_names("c"); }).code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(Create("bob", [](v1::Tenant* t) { t->add_uids(77); }).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(directory_->FindTenant("bob"), nullptr);
  ASSERT_TRUE(Create("bob").ok());
  v1::UpdateTenantRequest update;
  update.set_name("bob");
  update.mutable_uids()->add_values(1000);
  EXPECT_EQ(directory_->UpdateTenant(update).status().code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(directory_->FindTenant("bob")->uids_size(), 0);
  // A user id is free once its tenant has given it up.
  v1::UpdateTenantRequest give;
  give.set_name("ann");
  give.mutable_uids();
  ASSERT_TRUE(directory_->UpdateTenant(give).ok());
  EXPECT_TRUE(directory_->UpdateTenant(update).ok());
  EXPECT_EQ(directory_->TenantOfUid(1000), "bob");
}

TEST_F(DirectoryTest, GroupsBelongToOneTenant) {
  ASSERT_TRUE(Create("lab", [](v1::Tenant* t) { t->add_gids(50), t->add_gids(51); }).ok());
  EXPECT_EQ(directory_->TenantOfGid(51), "lab");
  EXPECT_EQ(directory_->TenantOfUid(51), std::nullopt);
  EXPECT_EQ(Create("shop", [](v1::Tenant* t) { t->add_gids(50); }).code(), StatusCode::kAlreadyExists);
  v1::UpdateTenantRequest update;
  update.set_name("lab");
  update.mutable_gids()->add_values(51);
  ASSERT_TRUE(directory_->UpdateTenant(update).ok());
  EXPECT_EQ(directory_->TenantOfGid(50), std::nullopt);
  EXPECT_TRUE(Create("shop", [](v1::Tenant* t) { t->add_gids(50); }).ok());
  // A tenant that is being deleted has no groups.
  v1::UpdateTenantRequest disable;
  disable.set_name("lab");
  disable.set_disabled(true);
  ASSERT_TRUE(directory_->UpdateTenant(disable).ok());
  ASSERT_TRUE(directory_->BeginDelete("lab", "local").ok());
  EXPECT_EQ(directory_->TenantOfGid(51), std::nullopt);
}

TEST_F(DirectoryTest, ChecksEveryField) {
  struct Case {
    const char* name;
    std::function<void(v1::Tenant*)> change;
    const char* want;  // Part of the error's message; null when the tenant is valid.
  };
  const Case cases[] = {
      {"Name", [](v1::Tenant* t) { t->set_name("A"); }, "is not 1 to 63 characters"},
      {"NameTooLong", [](v1::Tenant* t) { t->set_name(std::string(64, 'a')); }, "is not 1 to 63 characters"},
      {"Weight", [](v1::Tenant* t) { t->set_weight(10'000); }, nullptr},
      {"WeightTooLarge", [](v1::Tenant* t) { t->set_weight(10'001); }, "The weight (10001) is not from 1 to 10000."},
      {"Level", [](v1::Tenant* t) { t->set_sandbox_level_min(4); }, nullptr},
      {"LevelTooHigh", [](v1::Tenant* t) { t->set_sandbox_level_min(5); }, "larger than the limit (4)"},
      {"Quota", [](v1::Tenant* t) { (*t->mutable_quota())["requests"] = 0; }, nullptr},
      {"QuotaUnknown", [](v1::Tenant* t) { (*t->mutable_quota())["gold"] = 1; }, "The quota \"gold\" is none of "},
      {"QuotaTooLarge", [](v1::Tenant* t) { (*t->mutable_quota())["requests"] = (1ull << 60) + 1; }, "is larger than"},
      {"Device", [](v1::Tenant* t) { t->add_devices("vulkan"); }, nullptr},
      {"DeviceUnknown", [](v1::Tenant* t) { t->add_devices("gpu"); }, "The device \"gpu\" is none of"},
      {"DeviceList", [](v1::Tenant* t) { t->add_devices("cpu,opencl"); }, "is none of"},
      {"Root", [](v1::Tenant* t) { t->add_uids(0); }, "root, which is an administrator"},
      {"NoUid", [](v1::Tenant* t) { t->add_uids(4'294'967'295u); }, "is not a user id"},
      {"UidTwice", [](v1::Tenant* t) { t->add_uids(5), t->add_uids(5); }, "named twice"},
      {"RootsGroup", [](v1::Tenant* t) { t->add_gids(0); }, "Group id 0 is root's"},
      {"NoGid", [](v1::Tenant* t) { t->add_gids(4'294'967'295u); }, "is not a group id"},
      {"GidTwice", [](v1::Tenant* t) { t->add_gids(5), t->add_gids(5); }, "named twice"},
      {"CertificateEmpty", [](v1::Tenant* t) { t->add_certificate_names(""); }, "is not 1 to 255 bytes"},
      {"CertificateLong", [](v1::Tenant* t) { t->add_certificate_names(std::string(255, 'a')); }, nullptr},
      {"CertificateTooLong", [](v1::Tenant* t) { t->add_certificate_names(std::string(256, 'a')); }, "(256 bytes)"},
      {"CertificateControl", [](v1::Tenant* t) { t->add_certificate_names("a\nb"); }, "without control characters"},
      {"CertificateTwice", [](v1::Tenant* t) { t->add_certificate_names("a"), t->add_certificate_names("a"); },
       "given twice"},
      {"Reason", [](v1::Tenant* t) { t->set_disabled_reason(std::string(256, 'a')); }, "is longer than 255 bytes"},
  };
  int made = 0;
  for (const Case& c : cases) {
    const Status status = Create("t" + std::to_string(made++), c.change);
    EXPECT_EQ(status.ok(), c.want == nullptr) << c.name << ": " << status;
    if (c.want != nullptr) {
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << c.name;
      EXPECT_THAT(Message(status), HasSubstr(c.want)) << c.name;
    }
  }
  for (int i = 0; i < kTenantUidsMax + 2; i += kTenantUidsMax + 1) {
    const Status many = Create("many" + std::to_string(i), [i](v1::Tenant* t) {
      for (int k = 0; k < kTenantUidsMax + (i > 0 ? 1 : 0); ++k) {
        t->add_uids(static_cast<uint32_t>(100'000 + k));
      }
    });
    EXPECT_EQ(many.ok(), i == 0) << many;
  }
}

TEST_F(DirectoryTest, TenantsHaveALimit) {
  for (const char* name : {"a", "b"}) {
    v1::Tenant tenant;
    tenant.set_name(name);
    EXPECT_TRUE(directory_->CreateTenant(tenant, 2).ok());
  }
  v1::Tenant third;
  third.set_name("c");
  EXPECT_EQ(directory_->CreateTenant(third, 2).status().code(), StatusCode::kResourceExhausted);
}

// An update changes only the fields that it names. Quotas that are reset follow the configuration again.
TEST_F(DirectoryTest, UpdatesWhatIsNamedOnly) {
  ASSERT_TRUE(Create("ann", [](v1::Tenant* t) {
                t->set_weight(7);
                (*t->mutable_quota())["device-bytes"] = 1;
                (*t->mutable_quota())["modules"] = 2;
              }).ok());
  v1::UpdateTenantRequest update;
  update.set_name("ann");
  update.add_reset_quota("modules");
  (*update.mutable_set_quota())["host-bytes"] = 3;
  update.set_disabled(true);
  update.set_disabled_reason("unpaid");
  const v1::Tenant changed = *directory_->UpdateTenant(update);
  EXPECT_EQ(changed.weight(), 7u);
  EXPECT_EQ(changed.quota().size(), 2u);
  EXPECT_EQ(changed.quota().at("device-bytes"), 1u);
  EXPECT_EQ(changed.quota().at("host-bytes"), 3u);
  EXPECT_TRUE(changed.disabled());
  config_.quota_modules_max = 9;
  const TenantPolicyRef policy = directory_->Find("ann", config_);
  EXPECT_EQ(policy->limits[static_cast<size_t>(scheduler::Resource::kModules)], 9u);
  EXPECT_EQ(policy->limits[static_cast<size_t>(scheduler::Resource::kHostBytes)], 3u);
  EXPECT_EQ(policy->disabled_reason, "unpaid");
  update.Clear();
  update.set_name("ann");
  update.set_disabled(false);
  EXPECT_EQ(directory_->UpdateTenant(update)->disabled_reason(), "");
  update.add_reset_quota("gold");
  EXPECT_EQ(directory_->UpdateTenant(update).status().code(), StatusCode::kInvalidArgument);
  update.set_name("nobody");
  update.clear_reset_quota();
  EXPECT_EQ(directory_->UpdateTenant(update).status().code(), StatusCode::kNotFound);
}

// Without credentials every named tenant exists, if names from metadata are accepted; with credentials only created
// tenants do.
TEST_F(DirectoryTest, SaysWhoExists) {
  ASSERT_TRUE(directory_->EnsureTenant("local").ok());
  EXPECT_NE(directory_->Find("local", config_), nullptr);
  config_.tenants_from_metadata = true;
  EXPECT_EQ(directory_->Find("new", config_), nullptr);
  Reopen(/*is_open=*/true);
  EXPECT_NE(directory_->Find("new", config_), nullptr);
  config_.tenants_from_metadata = false;
  EXPECT_EQ(directory_->Find("new", config_), nullptr);
  EXPECT_NE(directory_->Find("local", config_), nullptr);
}

TEST_F(DirectoryTest, TokensHaveALimitAndMakeRoom) {
  Reopen(/*is_open=*/false, /*is_kept=*/false);  // A thousand syncs to disk would take long.
  ASSERT_TRUE(Create("ann").ok());
  EXPECT_EQ(Token("nobody").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Token("ann", kTokenLifetimeMaxNs + 1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(Token("ann", kTokenLifetimeMaxNs).ok());
  constexpr uint64_t kSecond = 1'000'000'000;
  for (size_t i = 1; i < kTokensPerTenantMax; ++i) {
    ASSERT_TRUE(Token("ann", kSecond).ok()) << i;
  }
  EXPECT_EQ(Token("ann").status().code(), StatusCode::kResourceExhausted);
  clock_.Advance(std::chrono::seconds(1));
  EXPECT_TRUE(Token("ann").ok());
  // The 100 newest of the tokens that are no longer valid are kept.
  EXPECT_EQ(directory_->ListTokens("ann").size(), 102u);
}

TEST_F(DirectoryTest, RevokingIsForEver) {
  ASSERT_TRUE(Create("ann").ok());
  const Directory::NewToken made = *Token("ann");
  EXPECT_EQ(directory_->RevokeToken("tok-x").code(), StatusCode::kNotFound);
  ASSERT_TRUE(directory_->RevokeToken(made.token.id()).ok());
  const int64_t when = directory_->FindTokenById(made.token.id())->token.revoked_unix_ns();
  clock_.Advance(std::chrono::seconds(5));
  EXPECT_TRUE(directory_->RevokeToken(made.token.id()).ok());
  EXPECT_EQ(directory_->FindTokenById(made.token.id())->token.revoked_unix_ns(), when);
}

// Readers see a consistent state, from before or after a write, while writers run.
TEST_F(DirectoryTest, ReadersNeedNoWriter) {
  ASSERT_TRUE(Create("ann").ok());
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    while (!stop) {
      for (const TenantRecordRef& tenant : directory_->ListTenants("", 100)) {
        ASSERT_EQ(directory_->FindTenant(tenant->name())->name(), tenant->name());
      }
    }
  });
  for (int i = 0; i < 30; ++i) {
    EXPECT_TRUE(Create("t" + std::to_string(i)).ok());
  }
  stop = true;
  reader.join();
  EXPECT_EQ(directory_->ListTenants("", 100).size(), 31u);
  EXPECT_EQ(directory_->ListTenants("t8", 100).front()->name(), "t9");
}

// After BeginDelete none of the tenant's credentials work, even after a restart, until its record is removed.
TEST_F(DirectoryTest, DeletesTenants) {
  ASSERT_TRUE(Create("ann", [](v1::Tenant* tenant) {
                tenant->add_uids(1'000);
                tenant->add_certificate_names("laptop");
              }).ok());
  ASSERT_TRUE(Create("bob").ok());
  const StatusOr<Directory::NewToken> token = directory_->CreateToken({"ann", "", "", Role::kUser, 0});
  ASSERT_TRUE(directory_->CreateToken({"bob", "", "", Role::kUser, 0}).ok());
  EXPECT_THAT(Message(directory_->BeginDelete("ann", "local").status()), HasSubstr("not disabled"));
  v1::UpdateTenantRequest disable;
  disable.set_name("ann");
  disable.set_disabled(true);
  ASSERT_TRUE(directory_->UpdateTenant(disable).ok());
  EXPECT_THAT(Message(directory_->BeginDelete("ann", "ann").status()), HasSubstr("default"));
  EXPECT_TRUE(absl::IsNotFound(directory_->BeginDelete("eve", "local").status()));
  EXPECT_TRUE(directory_->ForgetTenant("ann").ok());
  EXPECT_NE(directory_->FindTenant("ann"), nullptr);  // It is not being deleted.
  ASSERT_TRUE(directory_->BeginDelete("ann", "local").ok());
  for (const bool is_reopened : {false, true}) {
    if (is_reopened) {
      Reopen();
    }
    EXPECT_EQ(directory_->Deleting(), std::vector<std::string>{"ann"});
    EXPECT_EQ(directory_->FindToken(*HashOfTokenSecret(token->secret)), nullptr);
    EXPECT_FALSE(directory_->TenantOfUid(1'000).has_value());
    EXPECT_FALSE(directory_->TenantOfCertificate("laptop").has_value());
    EXPECT_EQ(directory_->UpdateTenant(disable).status().code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(directory_->CreateToken({"ann", "", "", Role::kUser, 0}).status().code(),
              StatusCode::kFailedPrecondition);
    EXPECT_EQ(Create("ann").code(), StatusCode::kAlreadyExists);
    EXPECT_TRUE(directory_->BeginDelete("ann", "local")->deleting());
  }
  ASSERT_TRUE(directory_->ForgetTenant("ann").ok());
  EXPECT_EQ(directory_->FindTenant("ann"), nullptr);
  EXPECT_EQ(directory_->ListTokens("bob").size(), 1u);
  EXPECT_TRUE(Create("ann", [](v1::Tenant* tenant) { tenant->add_uids(1'000); }).ok());
  EXPECT_FALSE(directory_->FindTenant("ann")->deleting());
}

}  // namespace
}  // namespace hpvm::server
