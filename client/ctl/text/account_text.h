// SPDX-License-Identifier: Apache-2.0
// Accounts of tenants by day: sums, and formats for people, spreadsheets and programs.
#ifndef HPVMD_CLIENT_CTL_TEXT_ACCOUNT_TEXT_H_
#define HPVMD_CLIENT_CTL_TEXT_ACCOUNT_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "hpvm/v1/operations.pb.h"

namespace hpvm::ctl {

enum class AccountsBy : uint8_t { kDay, kMonth, kTenant };

// AccountLine is a line of a report: a tenant's usage in a period, which is "2026-11-30", "2026-11", or empty for the
// whole request. The account's day is unused.
struct AccountLine {
  std::string period;
  v1::Account use;
};
// Returns the sums by period, then by tenant.
std::vector<AccountLine> AddUp(const std::vector<v1::Account>& accounts, AccountsBy by);
v1::Account TotalOf(const std::vector<AccountLine>& lines);

// Formats days since 1970 as "2026-11-30".
std::string DayText(uint32_t day);

// Ends with a line of totals when there are several lines.
std::string AccountsTable(const std::vector<AccountLine>& lines);
// Has a heading and no totals; numbers are plain, times are in seconds.
std::string AccountsCsv(const std::vector<AccountLine>& lines);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_TEXT_ACCOUNT_TEXT_H_
