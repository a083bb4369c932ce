// SPDX-License-Identifier: Apache-2.0
#include "server/identity/token.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

namespace hpvm::server {
namespace {

using ::testing::HasSubstr;

// What is not exactly one credential after "Bearer " is none.
TEST(TokenTest, ReadsBearerCredentials) {
  struct Case {
    const char* header;
    const char* want;  // Null: none.
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

// 256 random bits, so none is made twice and each hash is another.
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

// A ticket says one user id for one hour.
TEST(TokenTest, TicketsAreGoodForTheirTime) {
  SeededRng rng(1);
  const TicketMint mint(rng);
  const Time now = std::chrono::hours(5);
  for (const uint32_t uid : {0u, 1u, 1000u, 65'534u, 4'294'967'295u}) {
    const std::string ticket = mint.Issue(uid, now);
    EXPECT_TRUE(IsTicket(ticket));
    EXPECT_FALSE(HashOfTokenSecret(ticket).has_value());
    ASSERT_TRUE(mint.Check(ticket, now).ok());
    EXPECT_EQ(*mint.Check(ticket, now), uid);
    EXPECT_TRUE(mint.Check(ticket, now + TicketMint::kLifetime - Duration(1)).ok());
    const Status late = mint.Check(ticket, now + TicketMint::kLifetime).status();
    EXPECT_EQ(late.code(), absl::StatusCode::kUnauthenticated);
    EXPECT_THAT(Message(late), HasSubstr("has expired"));
  }
}

// Not one digit of a ticket may be another one, and another daemon's is none.
TEST(TokenTest, TicketsCannotBeMade) {
  SeededRng rng(1);
  const TicketMint mint(rng), other(rng);
  const std::string ticket = mint.Issue(1000, Time(0));
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
