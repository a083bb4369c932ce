// SPDX-License-Identifier: Apache-2.0
#include "server/accounts/account_list.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "server/config/config.h"

namespace hpvm::server {
namespace {

constexpr uint32_t kPageDefault = 1'000, kPageMax = 10'000;
constexpr uint32_t kDaysDefault = 30;

// Parses "20787/blur", the last entry of a page.
std::optional<AccountKey> ReadToken(const std::string& token) {
  uint32_t day = 0;
  const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), day);
  if (error != std::errc() || end == token.data() + token.size() || *end != '/') {
    return std::nullopt;
  }
  std::string tenant(end + 1, token.data() + token.size());
  return IsTenantName(tenant) ? std::optional<AccountKey>({day, std::move(tenant)}) : std::nullopt;
}

v1::Account ToMessage(const AccountKey& key, const AccountUse& use) {
  v1::Account account;
  account.set_day(key.first);
  account.set_tenant(key.second);
  account.set_device_ns(use[kDeviceNs]);
  account.set_compile_ns(use[kCompileNs]);
  account.set_requests(use[kRequestCount]);
  account.set_request_bytes(use[kRequestBytes]);
  account.set_jobs_succeeded(use[kJobsSucceeded]);
  account.set_jobs_failed(use[kJobsFailed]);
  account.set_jobs_cancelled(use[kJobsCancelled]);
  account.set_runs(use[kRuns]);
  return account;
}

}  // namespace

StatusOr<AccountQuery> QueryOf(const v1::ListAccountsRequest& request, const std::string& tenant, uint32_t today) {
  AccountQuery query;
  query.tenant = tenant;
  query.last_day = request.last_day() == 0 ? today : request.last_day();
  query.first_day = request.first_day() == 0 && request.last_day() == 0
                        ? query.last_day - std::min(query.last_day, kDaysDefault - 1)
                        : request.first_day();
  if (query.first_day > query.last_day) {
    return InvalidArgument("The first day (" + std::to_string(query.first_day) + ") is after the last one (" +
                           std::to_string(query.last_day) + ").");
  }
  if (request.page_size() > kPageMax) {
    return InvalidArgument("The page size (" + std::to_string(request.page_size()) + ") is larger than the limit (" +
                           std::to_string(kPageMax) + ").");
  }
  query.count_max = request.page_size() == 0 ? kPageDefault : request.page_size();
  if (!request.page_token().empty()) {
    std::optional<AccountKey> after = ReadToken(request.page_token());
    if (!after.has_value()) {
      return InvalidArgument("The page token is not one that this server gave; begin with the first page.");
    }
    query.after = *std::move(after);
  }
  return query;
}

Status ListAccounts(const std::string& path, AccountQuery query, v1::ListAccountsResponse* response, Disk& disk,
                    const std::string& vfs) {
  const size_t page = query.count_max++;  // One extra entry shows whether there is another page.
  HPVMD_ASSIGN_OR_RETURN(const auto found, ReadAccounts(path, query, disk, vfs));
  for (size_t i = 0; i < std::min(page, found.size()); ++i) {
    *response->add_accounts() = ToMessage(found[i].first, found[i].second);
  }
  if (found.size() > page) {
    const AccountKey& last = found[page - 1].first;
    response->set_next_page_token(std::to_string(last.first) + "/" + last.second);
  }
  return absl::OkStatus();
}

}  // namespace hpvm::server
