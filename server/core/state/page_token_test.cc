// SPDX-License-Identifier: Apache-2.0
#include "server/core/state/page_token.h"

#include <set>

#include "gtest/gtest.h"

namespace hpvm::server {
namespace {

TEST(PageTokenTest, OpensWhatItSealed) {
  const PageTokens tokens(HashOf("key"));
  for (const uint64_t sequence : {uint64_t{0}, uint64_t{1}, uint64_t{42}, UINT64_MAX - 1, UINT64_MAX}) {
    EXPECT_EQ(tokens.Open("blue", tokens.Seal("blue", sequence)).value_or(7), sequence);
  }
  // The token is valid after a restart, too.
  EXPECT_EQ(PageTokens(HashOf("key")).Open("blue", tokens.Seal("blue", 9)).value_or(0), 9u);
}

TEST(PageTokenTest, ForgedAndForeignOnesAreRefused) {
  const PageTokens tokens(HashOf("key"));
  const std::string token = tokens.Seal("blue", 42);
  EXPECT_EQ(tokens.Open("red", token).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(PageTokens(HashOf("other")).Open("blue", token).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(tokens.Open("blue", "42").ok());
  EXPECT_FALSE(tokens.Open("blue", std::string(48, 'g')).ok());
  EXPECT_FALSE(tokens.Open("blue", token + "0").ok());
  for (size_t i = 0; i < token.size(); ++i) {
    std::string changed = token;
    changed[i] = changed[i] == '0' ? '1' : '0';
    EXPECT_FALSE(tokens.Open("blue", changed).ok()) << i;
  }
}

// Tokens of neighbouring numbers have nothing in common, neither within a tenant nor between two.
TEST(PageTokenTest, SaysNothingOfTheNumber) {
  const PageTokens tokens(HashOf("key"));
  std::set<std::string> heads, tails;
  for (uint64_t sequence = 1; sequence <= 100; ++sequence) {
    for (const char* tenant : {"blue", "red"}) {
      const std::string token = tokens.Seal(tenant, sequence);
      heads.insert(token.substr(0, 8));
      tails.insert(token.substr(40));
    }
  }
  EXPECT_EQ(heads.size(), 200u);
  EXPECT_EQ(tails.size(), 200u);
}

}  // namespace
}  // namespace hpvm::server
