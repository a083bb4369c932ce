// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/text/account_text.h"

#include <stdio.h>

#include <chrono>
#include <map>
#include <utility>

#include "client/ctl/text/quota_words.h"
#include "client/ctl/text/text.h"

namespace hpvm::ctl {
namespace {

using Usage = v1::ResourceUsage;

void AddTo(v1::Account& sum, const v1::Account& more) {
  sum.set_device_ns(sum.device_ns() + more.device_ns());
  sum.set_compile_ns(sum.compile_ns() + more.compile_ns());
  sum.set_requests(sum.requests() + more.requests());
  sum.set_request_bytes(sum.request_bytes() + more.request_bytes());
  sum.set_jobs_succeeded(sum.jobs_succeeded() + more.jobs_succeeded());
  sum.set_jobs_failed(sum.jobs_failed() + more.jobs_failed());
  sum.set_jobs_cancelled(sum.jobs_cancelled() + more.jobs_cancelled());
  sum.set_runs(sum.runs() + more.runs());
}

std::string PeriodText(uint32_t day, AccountsBy by) {
  return by == AccountsBy::kTenant ? "" : by == AccountsBy::kMonth ? DayText(day).substr(0, 7) : DayText(day);
}

std::vector<std::string> Cells(const std::string& period, const std::string& tenant, const v1::Account& use) {
  return {period,
          tenant,
          QuotaText(use.device_ns(), Usage::UNIT_NANOSECONDS),
          QuotaText(use.compile_ns(), Usage::UNIT_NANOSECONDS),
          std::to_string(use.requests()),
          BytesText(use.request_bytes()),
          std::to_string(use.runs()),
          std::to_string(use.jobs_succeeded()),
          std::to_string(use.jobs_failed()),
          std::to_string(use.jobs_cancelled())};
}

std::string SecondsText(uint64_t ns) {
  char text[64];
  snprintf(text, sizeof(text), "%llu.%09llu", static_cast<unsigned long long>(ns / 1'000'000'000),
           static_cast<unsigned long long>(ns % 1'000'000'000));
  return text;
}

// Formats a field of the server's text, quoted where necessary.
std::string CsvField(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) {
    return Printable(text);
  }
  std::string quoted = "\"";
  for (const char c : Printable(text)) {
    quoted += c == '"' ? "\"\"" : std::string(1, c);
  }
  return quoted + "\"";
}

}  // namespace

std::string DayText(uint32_t day) {
  const std::chrono::year_month_day date{std::chrono::sys_days(std::chrono::days(day))};
  char text[64];
  snprintf(text, sizeof(text), "%04d-%02u-%02u", static_cast<int>(date.year()), static_cast<unsigned>(date.month()),
           static_cast<unsigned>(date.day()));
  return text;
}

std::vector<AccountLine> AddUp(const std::vector<v1::Account>& accounts, AccountsBy by) {
  std::map<std::pair<std::string, std::string>, v1::Account> sums;
  for (const v1::Account& account : accounts) {
    AddTo(sums[{PeriodText(account.day(), by), account.tenant()}], account);
  }
  std::vector<AccountLine> lines;
  for (auto& [key, use] : sums) {
    use.set_tenant(key.second);
    lines.push_back({key.first, std::move(use)});
  }
  return lines;
}

v1::Account TotalOf(const std::vector<AccountLine>& lines) {
  v1::Account total;
  for (const AccountLine& line : lines) {
    AddTo(total, line.use);
  }
  return total;
}

std::string AccountsTable(const std::vector<AccountLine>& lines) {
  std::vector<std::vector<std::string>> rows = {
      {"PERIOD", "TENANT", "DEVICE", "COMPILE", "REQUESTS", "BYTES", "RUNS", "JOBS", "FAILED", "CANCELLED"}};
  for (const AccountLine& line : lines) {
    rows.push_back(Cells(line.period, line.use.tenant(), line.use));
  }
  if (lines.size() > 1) {
    rows.push_back(Cells("total", "", TotalOf(lines)));
  }
  const bool has_periods = !lines.empty() && !lines.front().period.empty();
  if (!has_periods) {
    if (lines.size() > 1) {
      rows.back()[1] = "total";
    }
    for (auto& row : rows) {
      row.erase(row.begin());
    }
  }
  return Table(rows);
}

std::string AccountsCsv(const std::vector<AccountLine>& lines) {
  std::string text =
      "period,tenant,device_seconds,compile_seconds,requests,request_bytes,runs,jobs_succeeded,jobs_failed,"
      "jobs_cancelled\n";
  for (const auto& [period, use] : lines) {
    text += period + "," + CsvField(use.tenant()) + "," + SecondsText(use.device_ns()) + "," +
            SecondsText(use.compile_ns());
    for (const uint64_t value : {use.requests(), use.request_bytes(), use.runs(), use.jobs_succeeded(),
                                 use.jobs_failed(), use.jobs_cancelled()}) {
      text += "," + std::to_string(value);
    }
    text += "\n";
  }
  return text;
}

}  // namespace hpvm::ctl
