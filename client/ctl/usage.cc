// SPDX-License-Identifier: Apache-2.0
// hpvmctl usage: usage of tenants, by day, by month or in total.

#include <chrono>
#include <memory>

#include "client/ctl/options.h"
#include "client/ctl/report.h"
#include "client/ctl/text/account_text.h"
#include "client/ctl/text/parse_args.h"
#include "nlohmann/json.hpp"

#include "base/status.h"
#include "hpvm/admin.h"

namespace hpvm::ctl {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  bool all_tenants = false;
  uint32_t days = 0;  // 0 when not given.
  std::string from, to;
  AccountsBy by = AccountsBy::kDay;
  bool csv = false;
};

uint32_t Today() {
  const auto now = std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now());
  return static_cast<uint32_t>(now.time_since_epoch().count());
}

StatusOr<v1::ListAccountsRequest> RequestOf(const Globals& globals, const Options& options) {
  if (options.all_tenants && !globals.tenant.empty()) {
    return InvalidArgument("--all-tenants and --tenant exclude each other.");
  }
  if (options.days != 0 && !(options.from.empty() && options.to.empty())) {
    return InvalidArgument("--days excludes --from and --to.");
  }
  v1::ListAccountsRequest request;
  request.set_tenant(options.all_tenants ? "*" : globals.tenant);
  uint32_t last = Today();
  if (!options.to.empty()) {
    HPVMD_ASSIGN_OR_RETURN(last, While(ParseDay(options.to), "reading --to"));
  }
  const uint32_t days = options.days == 0 ? 30 : options.days;
  uint32_t first = last - std::min(last, days - 1);
  if (!options.from.empty()) {
    HPVMD_ASSIGN_OR_RETURN(first, While(ParseDay(options.from), "reading --from"));
  }
  if (first > last) {
    return InvalidArgument("The first day (" + DayText(first) + ") is after the last one (" + DayText(last) + ").");
  }
  request.set_first_day(first);
  request.set_last_day(last);
  return request;
}

Json ToJson(const v1::Account& use) {
  return {{"device_ns", use.device_ns()},
          {"compile_ns", use.compile_ns()},
          {"requests", use.requests()},
          {"request_bytes", use.request_bytes()},
          {"runs", use.runs()},
          {"jobs_succeeded", use.jobs_succeeded()},
          {"jobs_failed", use.jobs_failed()},
          {"jobs_cancelled", use.jobs_cancelled()}};
}

Json ToJson(const v1::ListAccountsRequest& request, const std::vector<AccountLine>& lines) {
  Json json = {{"first_day", DayText(request.first_day())},
               {"last_day", DayText(request.last_day())},
               {"accounts", Json::array()},
               {"total", ToJson(TotalOf(lines))}};
  for (const AccountLine& line : lines) {
    Json one = {{"period", line.period}, {"tenant", line.use.tenant()}};
    one.update(ToJson(line.use));
    json["accounts"].push_back(std::move(one));
  }
  return json;
}

Status Use(const Globals& globals, const Options& options) {
  HPVMD_ASSIGN_OR_RETURN(const v1::ListAccountsRequest request, RequestOf(globals, options));
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, globals.Connect());
  HPVMD_ASSIGN_OR_RETURN(const std::vector<v1::Account> accounts, Admin(*client).ListAccounts(request));
  const std::vector<AccountLine> lines = AddUp(accounts, options.by);
  if (options.csv) {
    fputs(AccountsCsv(lines).c_str(), stdout);
  } else if (globals.format == Format::kJson) {
    PrintData(ToJson(request, lines), globals.format);
  } else {
    fputs(AccountsTable(lines).c_str(), stdout);
  }
  return absl::OkStatus();
}

}  // namespace

void AddUsage(Commands commands) {
  CLI::App& usage =
      AddCommand(commands.app, "usage", "Show what your tenant used, by day",
                 "Days are in UTC; the last two seconds may be missing. JOBS counts the jobs that succeeded.\n"
                 "Examples:\n"
                 "  hpvmctl usage --days 7\n"
                 "  hpvmctl usage --all-tenants --from 2026-11-01 --to 2026-11-30 --by tenant\n"
                 "  hpvmctl usage --all-tenants --days 365 --by month --csv > year.csv");
  Options& options = SetWork(commands, usage, Use);
  usage.add_flag("--all-tenants", options.all_tenants, "Show the usage of all tenants; for administrators");
  usage.add_option("--days", options.days, "Show this many days, the last of which is today; default: 30")
      ->check(CLI::Range(1, 100'000));
  AddWord(usage, "--from", options.from, "The first day, YYYY-MM-DD; default: 29 days before the last one");
  AddWord(usage, "--to", options.to, "The last day, YYYY-MM-DD; default: today");
  AddChoice<AccountsBy>(usage, "--by", options.by,
                        {{"day", AccountsBy::kDay}, {"month", AccountsBy::kMonth}, {"tenant", AccountsBy::kTenant}},
                        "How to add up: a line for each tenant and day, for each tenant and month, or for each tenant");
  usage.add_flag("--csv", options.csv, "Comma-separated values, times in seconds");
}

}  // namespace hpvm::ctl
