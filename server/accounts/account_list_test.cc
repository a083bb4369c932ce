// SPDX-License-Identifier: Apache-2.0
#include "server/accounts/account_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

namespace hpvm::server {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kToday = 20'787;

TEST(AccountQueryTest, DaysHaveDefaults) {
  v1::ListAccountsRequest request;
  AccountQuery query = *QueryOf(request, "ann", kToday);
  EXPECT_EQ(query.tenant, "ann");
  EXPECT_EQ(query.first_day, kToday - 29);
  EXPECT_EQ(query.last_day, kToday);
  EXPECT_EQ(query.count_max, 1'000u);
  EXPECT_EQ(QueryOf(request, "", 3)->first_day, 0u);
  request.set_first_day(5);
  EXPECT_EQ(QueryOf(request, "", kToday)->last_day, kToday);
  request.set_last_day(7);
  EXPECT_EQ(QueryOf(request, "", kToday)->last_day, 7u);
}

TEST(AccountQueryTest, RefusesWhatMeansNothing) {
  const auto refusal = [](uint32_t first, uint32_t last, uint32_t page, const std::string& token) {
    v1::ListAccountsRequest request;
    request.set_first_day(first);
    request.set_last_day(last);
    request.set_page_size(page);
    request.set_page_token(token);
    return Message(QueryOf(request, "", kToday).status());
  };
  EXPECT_THAT(refusal(9, 8, 0, ""), HasSubstr("The first day (9) is after the last one (8)."));
  EXPECT_THAT(refusal(kToday + 1, 0, 0, ""), HasSubstr("is after the last one"));
  EXPECT_THAT(refusal(0, 0, 10'001, ""), HasSubstr("(10001) is larger than the limit (10000)."));
  for (const char* token : {"x", "1", "1/", "/ann", "-1/ann", "99999999999/ann", "1/A", "1/ann/x", "1 /ann"}) {
    EXPECT_THAT(refusal(0, 0, 0, token),
                HasSubstr("The page token is not one that this server gave; begin with the first page."))
        << token;
  }
}

// Uses the machine's own disk, as the daemon does.
TEST(AccountListTest, PagesHaveEverythingOnce) {
  char folder[] = "/tmp/hpvmd-accounts-test-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string path = std::string(folder) + kAccountsFile;
  auto store = AccountStore::Open(path);
  ASSERT_TRUE(store.ok()) << store.status();
  AccountUses uses;
  for (uint32_t day = kToday - 2; day <= kToday; ++day) {
    for (const char* tenant : {"ann", "bob", "eve"}) {
      uses[{day, tenant}] = {1, 2, 3, 4, 5, 6, 7, 8};
    }
  }
  ASSERT_TRUE((*store)->Add(uses).ok());
  for (const uint32_t page : {1u, 2u, 3u, 8u, 9u, 10u}) {
    v1::ListAccountsRequest request;
    request.set_page_size(page);
    std::vector<std::string> found;
    do {
      v1::ListAccountsResponse response;
      ASSERT_TRUE(ListAccounts(path, *QueryOf(request, "", kToday), &response).ok());
      ASSERT_LE(response.accounts_size(), static_cast<int>(page));
      for (const v1::Account& account : response.accounts()) {
        found.push_back(std::to_string(account.day()) + account.tenant());
        EXPECT_EQ(account.device_ns() + account.compile_ns() * 10 + account.requests() * 100 +
                      account.request_bytes() * 1'000 + account.jobs_succeeded() * 10'000 +
                      account.jobs_failed() * 100'000 + account.jobs_cancelled() * 1'000'000 +
                      account.runs() * 10'000'000,
                  87'654'321u);
      }
      request.set_page_token(response.next_page_token());
    } while (!request.page_token().empty());
    EXPECT_EQ(found.size(), 9u);
    EXPECT_TRUE(std::is_sorted(found.begin(), found.end()));
  }
  const std::string copy = std::string(folder) + "/copy";
  std::filesystem::create_directory(copy);
  ASSERT_TRUE(BackUpAccounts(folder, copy).ok());
  v1::ListAccountsResponse response;
  ASSERT_TRUE(ListAccounts(copy + kAccountsFile, *QueryOf({}, "eve", kToday), &response).ok());
  EXPECT_EQ(response.accounts_size(), 3);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace hpvm::server
