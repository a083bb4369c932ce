// SPDX-License-Identifier: Apache-2.0
#include "server/identity/token.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

namespace hpvm::server {
namespace {

using ::testing::HasSubstr;

// BearerOf returns nothing unless exactly one credential follows "Bearer ".
TEST(TokenTest, ReadsBearerCredentials) {
  struct Case {
    const char* header;
    const char* want;  // Null when there is no credential.
  };
  const Case cases[] = {
      {"Bearer abc", "abc"},    {"bearer abc", "abc"},     {"BEARER abc", "abc"},
      {"Bearer ", nullptr},     {"Bearer", nullptr},       {"", nullptr},
      {"Basic abc", nullptr},   {"Bearer  abc", nullptr},  {"Bearer abc def", nullptr},
      {"Bearer abc ", nullptr}, {" Bearer abc", nullptr},  {"Bearer a\tb", nullptr},
      {"Bearer a\nb", nullptr}, {"Bearer a\x80", nullptr},
  };
  for (const Case& c : cases) {
    const std::optional<std::string_view> got = BearerOf(c.header);
    EXPECT_EQ(got.has_value(), c.want != nullptr) << c.header;
    if (got.has_value() && c.want != nullptr) {
      EXPECT_EQ(*got, c.want);
    }
  }
  EXPECT_TRUE(BearerOf("Bearer " + std::string(512, 'a')).has_value());
  EXPECT_FALSE(BearerOf("Bearer " + std::string(513, 'a')).has_value());
  EXPECT_FALSE(BearerOf(std::string_view("Bearer a\0b", 10)).has_value());
}

// Secrets have 256 random bits, so all secrets and all their hashes differ.
TEST(TokenTest, SecretsAreRandomAndHaveOneForm) {
  SeededRng rng(1);
  std::set<std::string> secrets;
  std::set<Sha256> hashes;
  for (int i = 0; i < 1'000; ++i) {
    const std::string secret = NewTokenSecret(rng);
    EXPECT_EQ(secret.size(), 69u);
    secrets.insert(secret);
    const std::optional<Sha256> hash = HashOfTokenSecret(secret);
    ASSERT_TRUE(hash.has_value());
    EXPECT_EQ(*hash, HashOf(secret));
    hashes.insert(*hash);
  }
  EXPECT_EQ(secrets.size(), 1'000u);
  EXPECT_EQ(hashes.size(), 1'000u);
  const std::string secret = NewTokenSecret(rng);
  for (const std::string& wrong :
       {std::string(), secret.substr(1), secret.substr(0, 68), secret + "0", "hpvm_" + std::string(64, 'A'),
        "hpvm_" + std::string(64, 'g'), "HPVM_" + std::string(64, 'a'), "hpvmt_" + std::string(64, 'a')}) {
    EXPECT_FALSE(HashOfTokenSecret(wrong).has_value()) << wrong;
  }
}

// A ticket is valid for one user id and one hour.
TEST(TokenTest, TicketsAreGoodForTheirTime) {
  SeededRng rng(1);
  const TicketMint mint(rng);
  const Time now = std::chrono::hours(5);
  for (const uint32_t uid : {0u, 1u, 1000u, 65'534u, 4'294'967'295u}) {
    const std::string ticket = mint.Issue({uid, std::nullopt}, now);
    EXPECT_TRUE(IsTicket(ticket));
    EXPECT_FALSE(HashOfTokenSecret(ticket).has_value());
    ASSERT_TRUE(mint.Check(ticket, now).ok());
    EXPECT_EQ(mint.Check(ticket, now)->uid, uid);
    EXPECT_EQ(mint.Check(ticket, now)->gid, std::nullopt);
    EXPECT_EQ(mint.Check(mint.Issue({uid, 4'000'000'000u}, now), now)->gid, 4'000'000'000u);
    EXPECT_EQ(mint.Check(mint.Issue({uid, 0}, now), now)->gid, 0u);
    EXPECT_TRUE(mint.Check(ticket, now + TicketMint::kLifetime - Duration(1)).ok());
    const Status late = mint.Check(ticket, now + TicketMint::kLifetime).status();
    EXPECT_EQ(late.code(), absl::StatusCode::kUnauthenticated);
    EXPECT_THAT(Message(late), HasSubstr("has expired"));
  }
}

// A ticket with one changed digit, and a ticket of another daemon, are refused.
TEST(TokenTest, TicketsCannotBeMade) {
  SeededRng rng(1);
  const TicketMint mint(rng), other(rng);
  const std::string ticket = mint.Issue({1000, 7}, Time(0));
  EXPECT_FALSE(other.Check(ticket, Time(0)).ok());
  for (size_t at = std::string("hpvmt_").size(); at < ticket.size(); ++at) {
    std::string changed = ticket;
    changed[at] = changed[at] == '0' ? '1' : '0';
    EXPECT_FALSE(mint.Check(changed, Time(0)).ok()) << at;
    EXPECT_FALSE(mint.Check(ticket.substr(0, at), Time(0)).ok()) << at;
  }
  EXPECT_FALSE(mint.Check(ticket + "00", Time(0)).ok());
  EXPECT_FALSE(mint.Check("", Time(0)).ok());
}

}  // namespace
}  // namespace hpvm::server
