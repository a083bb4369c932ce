// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/text/account_text.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hpvm::ctl {
namespace {

using testing::HasSubstr;
using testing::Not;

v1::Account Of(uint32_t day, const std::string& tenant, uint64_t runs) {
  v1::Account account;
  account.set_day(day);
  account.set_tenant(tenant);
  account.set_device_ns(runs * 1'500'000'000);
  account.set_compile_ns(runs);
  account.set_requests(runs * 10);
  account.set_request_bytes(runs << 20);
  account.set_jobs_succeeded(runs * 2);
  account.set_jobs_failed(runs * 3);
  account.set_jobs_cancelled(runs * 4);
  account.set_runs(runs);
  return account;
}

// The last day of October, and the first two of November 2026.
const std::vector<v1::Account> kAccounts = {Of(20'757, "ann", 1), Of(20'758, "ann", 10), Of(20'758, "bob", 100),
                                            Of(20'759, "ann", 1'000)};

std::string Summary(AccountsBy by) {
  std::string text;
  for (const AccountLine& line : AddUp(kAccounts, by)) {
    text += line.period + " " + line.use.tenant() + " " + std::to_string(line.use.runs()) + "\n";
  }
  return text;
}

TEST(AccountText, AddsUp) {
  EXPECT_EQ(Summary(AccountsBy::kDay),
            "2026-10-31 ann 1\n2026-11-01 ann 10\n2026-11-01 bob 100\n2026-11-02 ann 1000\n");
  EXPECT_EQ(Summary(AccountsBy::kMonth), "2026-10 ann 1\n2026-11 ann 1010\n2026-11 bob 100\n");
  EXPECT_EQ(Summary(AccountsBy::kTenant), " ann 1011\n bob 100\n");
  const v1::Account total = TotalOf(AddUp(kAccounts, AccountsBy::kTenant));
  EXPECT_EQ(total.runs(), 1'111u);
  EXPECT_EQ(total.device_ns(), uint64_t{1'111} * 1'500'000'000);
  EXPECT_EQ(total.compile_ns(), 1'111u);
  EXPECT_EQ(total.requests(), 11'110u);
  EXPECT_EQ(total.request_bytes(), uint64_t{1'111} << 20);
  EXPECT_EQ(total.jobs_succeeded() + total.jobs_failed() + total.jobs_cancelled(), 9'999u);
}

TEST(AccountText, TablesHaveTotals) {
  const std::string days = AccountsTable(AddUp(kAccounts, AccountsBy::kDay));
  EXPECT_THAT(days, HasSubstr("PERIOD"));
  EXPECT_THAT(days, HasSubstr("total"));
  EXPECT_THAT(days, HasSubstr("27.8 min"));  // 1,111 times 1.5 s.
  const std::string tenants = AccountsTable(AddUp(kAccounts, AccountsBy::kTenant));
  EXPECT_THAT(tenants, Not(HasSubstr("PERIOD")));
  EXPECT_THAT(tenants, HasSubstr("total"));
  EXPECT_THAT(AccountsTable(AddUp({kAccounts[0]}, AccountsBy::kDay)), Not(HasSubstr("total")));
  EXPECT_THAT(AccountsTable({}), testing::StartsWith("TENANT"));
}

TEST(AccountText, CsvIsForSpreadsheets) {
  EXPECT_EQ(AccountsCsv(AddUp({Of(20'757, "ann", 1)}, AccountsBy::kMonth)),
            "period,tenant,device_seconds,compile_seconds,requests,request_bytes,runs,jobs_succeeded,jobs_failed,"
            "jobs_cancelled\n2026-10,ann,1.500000000,0.000000001,10,1048576,1,2,3,4\n");
  EXPECT_THAT(AccountsCsv({{"", Of(0, "a,\"b\"\x1b", 0)}}), HasSubstr("\n,\"a,\"\"b\"\"\\x1b\",0.0"));
}

}  // namespace
}  // namespace hpvm::ctl
