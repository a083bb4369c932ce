// SPDX-License-Identifier: Apache-2.0
// Accounts of tenants by day, added up and written for people, for spreadsheets and for programs.
#ifndef HPVMD_CLIENT_CTL_TEXT_ACCOUNT_TEXT_H_
#define HPVMD_CLIENT_CTL_TEXT_ACCOUNT_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "hpvm/v1/operations.pb.h"

namespace hpvm::ctl {

enum class AccountsBy : uint8_t { kDay, kMonth, kTenant };

// A line of a report: a tenant's use in a period, "2026-11-30", "2026-11", or empty: all that was asked for. The
// account's day is of no meaning.
struct AccountLine {
  std::string period;
  v1::Account use;
};
// By period, then by tenant.
std::vector<AccountLine> AddUp(const std::vector<v1::Account>& accounts, AccountsBy by);
v1::Account TotalOf(const std::vector<AccountLine>& lines);

// "2026-11-30", of days since 1970.
std::string DayText(uint32_t day);

// With a line of totals at the end where there are several.
std::string AccountsTable(const std::vector<AccountLine>& lines);
// With a heading and without totals: numbers plain, times in seconds.
std::string AccountsCsv(const std::vector<AccountLine>& lines);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_TEXT_ACCOUNT_TEXT_H_
