// SPDX-License-Identifier: Apache-2.0
#include "server/identity/authenticator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace hpvm::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kUnixPeer[] = "unix:", kLoopbackPeer[] = "ipv4:127.0.0.1:5", kFarPeer[] = "ipv4:10.1.2.3:5";
constexpr uint32_t kAnnUid = 1000, kDaemonUid = 77;

class AuthenticatorTest : public ::testing::Test {
 protected:
  AuthenticatorTest() : mint_(rng_) { Configure(true, true, true); }

  void Configure(bool tokens, bool certificates, bool peers) {
    config_.auth_tokens = tokens;
    config_.auth_certificates = certificates;
    config_.auth_peers = peers;
    DirectoryOptions options;
    options.clock = &clock_;
    options.rng = &rng_;
    options.is_open = !AsksForCredentials(config_);
    options.administrators = {0, kDaemonUid};
    directory_ = *Directory::Open(std::move(options));
    EXPECT_TRUE(directory_->EnsureTenant("local").ok());
    v1::Tenant ann;
    ann.set_name("ann");
    ann.add_uids(kAnnUid);
    ann.add_certificate_names("ann's laptop");
    EXPECT_TRUE(directory_->CreateTenant(ann, 10).ok());
    authenticator_ = std::make_unique<Authenticator>(config_, *directory_, mint_, clock_);
  }

  std::string TokenOf(const std::string& tenant, Role role) {
    Directory::TokenSpec spec;
    spec.tenant = tenant;
    spec.role = role;
    Directory::NewToken made = *directory_->CreateToken(spec);
    last_id_ = made.token.id();
    return "Bearer " + made.secret;
  }

  // Returns "TENANT ROLE WHO" ("ann 1 uid 1000"), or the refusal's message.
  std::string Who(const CallFacts& facts) const {
    const StatusOr<Principal> got = authenticator_->Authenticate(facts, config_);
    if (!got.ok()) {
      EXPECT_EQ(got.status().code(), absl::StatusCode::kUnauthenticated);
      return Message(got.status());
    }
    EXPECT_EQ(got->peer, facts.peer);
    return got->tenant + " " + std::to_string(static_cast<int>(got->role)) + " " + got->who;
  }

  ManualClock clock_;
  SeededRng rng_{7};
  Config config_;
  TicketMint mint_;
  std::unique_ptr<Directory> directory_;
  std::unique_ptr<Authenticator> authenticator_;
  std::string last_id_;
};

TEST_F(AuthenticatorTest, ReadsPeerAddresses) {
  struct Case {
    const char *peer, *host;
    bool is_unix, is_loopback;
  };
  const Case cases[] = {
      {"unix:/run/s", "unix", true, false},
      {"unix:", "unix", true, false},
      {"ipv4:127.0.0.1:5", "127.0.0.1", false, true},
      {"ipv4:127.9.9.9:5", "127.9.9.9", false, true},
      {"ipv4:128.0.0.1:5", "128.0.0.1", false, false},
      {"ipv4:10.127.0.1:5", "10.127.0.1", false, false},
      {"ipv6:%5B::1%5D:5", "::1", false, true},
      {"ipv6:[::1]:5", "::1", false, true},
      {"p:%5B:%5b:1%5D:4711", ":%5b:1", false, false},
      {"ipv6:[:[:1]:5", ":[:1", false, false},
      {"dns:[::1]:5", "::1", false, false},
      {"ipv6:%5B2001:db8::1%5D:5", "2001:db8::1", false, false},
      {"ipv6:%5B::127.0.0.1%5D:5", "::127.0.0.1", false, false},
      {"", "unknown", false, false},
      {"nonsense", "unknown", false, false},
      {"dns:127.0.0.1:5", "127.0.0.1", false, false},
  };
  for (const Case& c : cases) {
    const PeerAddress address(c.peer);
    EXPECT_EQ(address.host, c.host) << c.peer;
    EXPECT_EQ(address.is_unix, c.is_unix) << c.peer;
    EXPECT_EQ(address.is_loopback, c.is_loopback) << c.peer;
  }
}

// Without configured credentials the socket's permissions decide who administers, and no caller has to present any.
TEST_F(AuthenticatorTest, OpenDaemonsBelieveWhoeverComes) {
  Configure(false, false, false);
  EXPECT_EQ(Who({kUnixPeer, {}, {}, false, {}}), "local 3 anyone (unix)");
  EXPECT_EQ(Who({kLoopbackPeer, {}, {}, false, {}}), "local 1 anyone (loopback)");
  EXPECT_EQ(Who({kLoopbackPeer, {"Bearer nonsense"}, {}, false, {}}), "local 1 anyone (loopback)");
}

TEST_F(AuthenticatorTest, NothingShownIsRefused) {
  EXPECT_EQ(Who({kUnixPeer, {}, {}, false, {}}),
            "The call has no credentials: it needs a token or a ticket from the socket beside this one.");
  EXPECT_EQ(Who({kFarPeer, {}, {}, true, {}}),
            "The call has no credentials: it needs a token or a client certificate.");
  Configure(false, false, true);
  EXPECT_EQ(Who({kLoopbackPeer, {}, {}, false, {}}), "The call has no credentials; this address accepts none.");
}

TEST_F(AuthenticatorTest, TokensSayTenantAndRole) {
  const std::string user = TokenOf("ann", Role::kUser);
  EXPECT_EQ(Who({kFarPeer, {user}, {}, true, {}}), "ann 1 token " + last_id_);
  const std::string admin = TokenOf("local", Role::kAdmin);
  EXPECT_EQ(Who({kUnixPeer, {admin}, {}, false, {}}), "local 3 token " + last_id_);
  EXPECT_EQ(Who({kLoopbackPeer, {admin}, {}, false, {}}), "local 3 token " + last_id_);
  EXPECT_THAT(Who({kFarPeer, {admin}, {}, false, {}}), HasSubstr("over TLS only"));
  EXPECT_THAT(Who({kFarPeer, {admin, admin}, {}, true, {}}), HasSubstr("2 values"));
}

// Another credential that would suffice does not make up for a bad token.
TEST_F(AuthenticatorTest, BadTokensAreRefusedEvenWithAGoodCertificate) {
  const std::string right = TokenOf("ann", Role::kUser);
  for (const std::string& wrong : {std::string("Bearer hpvm_") + std::string(64, '0'), right + "0",
                                   std::string("Basic x"), std::string("Bearer x"), std::string()}) {
    const std::string refusal = Who({kFarPeer, {wrong}, {"ann's laptop"}, true, {}});
    EXPECT_THAT(refusal, testing::AnyOf("The token is not known.",
                                        "The metadata authorization does not have the form \"Bearer TOKEN\"."));
  }
}

TEST_F(AuthenticatorTest, TokensEnd) {
  const std::string token = TokenOf("ann", Role::kUser);
  const CallFacts facts{kUnixPeer, {token}, {}, false, {}};
  const int64_t lifetime = directory_->FindTokenById(last_id_)->token.expires_unix_ns() - clock_.WallNs();
  EXPECT_EQ(lifetime, int64_t{90} * 86'400 * 1'000'000'000);
  clock_.Advance(Duration(lifetime - 1));
  EXPECT_THAT(Who(facts), HasSubstr("ann 1"));
  clock_.Advance(Duration(1));
  EXPECT_EQ(Who(facts), "The token (" + last_id_ + ") has expired.");
  const std::string other = TokenOf("ann", Role::kUser);
  EXPECT_TRUE(directory_->RevokeToken(last_id_).ok());
  EXPECT_EQ(Who({kUnixPeer, {other}, {}, false, {}}), "The token (" + last_id_ + ") was revoked.");
}

TEST_F(AuthenticatorTest, TicketsSayAUserIdOnUnixSocketsOnly) {
  const std::string ann = "Bearer " + mint_.Issue({kAnnUid, std::nullopt}, clock_.Now());
  EXPECT_EQ(Who({kUnixPeer, {ann}, {}, false, {}}), "ann 1 uid 1000");
  EXPECT_THAT(Who({kLoopbackPeer, {ann}, {}, false, {}}), HasSubstr("Unix sockets only"));
  EXPECT_THAT(Who({kFarPeer, {ann}, {}, true, {}}), HasSubstr("Unix sockets only"));
  EXPECT_EQ(Who({kUnixPeer, {"Bearer " + mint_.Issue({0, std::nullopt}, clock_.Now())}, {}, false, {}}),
            "local 3 uid 0");
  EXPECT_EQ(Who({kUnixPeer, {"Bearer " + mint_.Issue({kDaemonUid, std::nullopt}, clock_.Now())}, {}, false, {}}),
            "local 3 uid 77");
  EXPECT_EQ(Who({kUnixPeer, {"Bearer " + mint_.Issue({5, std::nullopt}, clock_.Now())}, {}, false, {}}),
            "User id 5 belongs to no tenant.");
  // Removing the user id from a tenant takes effect at once.
  v1::UpdateTenantRequest update;
  update.set_name("ann");
  update.mutable_uids();
  EXPECT_TRUE(directory_->UpdateTenant(update).ok());
  EXPECT_EQ(Who({kUnixPeer, {ann}, {}, false, {}}), "User id 1000 belongs to no tenant.");
}

TEST_F(AuthenticatorTest, TicketsSayAGroupToo) {
  const std::string carol = "Bearer " + mint_.Issue({1'234, 50}, clock_.Now());
  const std::string ann = "Bearer " + mint_.Issue({kAnnUid, 50}, clock_.Now());
  EXPECT_EQ(Who({kUnixPeer, {carol}, {}, false, {}}), "User id 1234 belongs to no tenant.");
  v1::Tenant lab;
  lab.set_name("lab");
  lab.add_gids(50);
  ASSERT_TRUE(directory_->CreateTenant(lab, 10).ok());
  EXPECT_EQ(Who({kUnixPeer, {carol}, {}, false, {}}), "lab 1 uid 1234");
  EXPECT_EQ(Who({kUnixPeer, {ann}, {}, false, {}}), "ann 1 uid 1000");  // The user id takes precedence.
  // Root administers whatever its group is.
  EXPECT_EQ(Who({kUnixPeer, {"Bearer " + mint_.Issue({0, 50}, clock_.Now())}, {}, false, {}}), "local 3 uid 0");
  v1::UpdateTenantRequest update;
  update.set_name("lab");
  update.mutable_gids();
  EXPECT_TRUE(directory_->UpdateTenant(update).ok());
  EXPECT_EQ(Who({kUnixPeer, {carol}, {}, false, {}}), "User id 1234 belongs to no tenant.");
}

TEST_F(AuthenticatorTest, CertificatesSayATenant) {
  EXPECT_EQ(Who({kFarPeer, {}, {"ann's laptop"}, true, {}}), "ann 1 certificate cn=ann's laptop");
  EXPECT_THAT(Who({kFarPeer, {}, {"Ann's laptop"}, true, {}}), HasSubstr("belongs to no tenant"));
  EXPECT_THAT(Who({kFarPeer, {}, {"ann's laptop", "ann's laptop"}, true, {}}), HasSubstr("exactly one common name"));
  EXPECT_THAT(Who({kFarPeer, {}, {""}, true, {}}), HasSubstr("exactly one common name"));
  EXPECT_THAT(Who({kFarPeer, {}, {std::string_view("ann's laptop\0x", 14)}, true, {}}),
              HasSubstr("belongs to no tenant"));
  // A refusal shows a name without its control characters.
  EXPECT_THAT(Who({kFarPeer, {}, {"\x1b[2J\n"}, true, {}}), Not(HasSubstr("\x1b")));
}

// Credentials of a kind that is not configured are refused.
TEST_F(AuthenticatorTest, EachWayHasItsSwitch) {
  Configure(false, true, true);
  EXPECT_THAT(Who({kUnixPeer, {TokenOf("ann", Role::kUser)}, {}, false, {}}), HasSubstr("accepts no tokens"));
  Configure(true, false, true);
  EXPECT_THAT(Who({kFarPeer, {}, {"ann's laptop"}, true, {}}), HasSubstr("no credential"));
  Configure(true, true, false);
  EXPECT_THAT(Who({kUnixPeer, {"Bearer " + mint_.Issue({kAnnUid, std::nullopt}, clock_.Now())}, {}, false, {}}),
              HasSubstr("with auth.peers"));
}

// Only administrators act on behalf of another tenant, and the refusal does not reveal whether that tenant exists.
TEST_F(AuthenticatorTest, OnlyAdministratorsActForOthers) {
  const auto acts = [&](Role role, std::vector<std::string_view> wanted) {
    const StatusOr<std::string> got =
        authenticator_->ActsFor({"ann", role, "x", ""}, {kUnixPeer, {}, {}, false, std::move(wanted)}, config_);
    return got.ok() ? *got : std::string(absl::StatusCodeToString(got.status().code()));
  };
  for (const Role role : {Role::kUser, Role::kOperator}) {
    EXPECT_EQ(acts(role, {}), "ann");
    EXPECT_EQ(acts(role, {"ann"}), "ann");
    EXPECT_EQ(acts(role, {"local"}), "PERMISSION_DENIED");
    EXPECT_EQ(acts(role, {"nobody"}), "PERMISSION_DENIED");
  }
  EXPECT_EQ(acts(Role::kAdmin, {"local"}), "local");
  EXPECT_EQ(acts(Role::kAdmin, {"nobody"}), "NOT_FOUND");
  EXPECT_EQ(acts(Role::kAdmin, {"No Name"}), "INVALID_ARGUMENT");
  EXPECT_EQ(acts(Role::kAdmin, {"ann", "ann"}), "INVALID_ARGUMENT");
  // Only open daemons accept new names from metadata.
  config_.tenants_from_metadata = true;
  EXPECT_EQ(acts(Role::kUser, {"new"}), "PERMISSION_DENIED");
  Configure(false, false, false);
  EXPECT_EQ(acts(Role::kUser, {"new"}), "new");
  config_.tenants_from_metadata = false;
  EXPECT_EQ(acts(Role::kUser, {"local"}), "PERMISSION_DENIED");
  EXPECT_EQ(acts(Role::kAdmin, {"local"}), "local");
}

}  // namespace
}  // namespace hpvm::server
