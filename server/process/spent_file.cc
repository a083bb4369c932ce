// SPDX-License-Identifier: Apache-2.0
#include "server/process/spent_file.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "server/process/log.h"
#include "server/process/whole_file.h"

namespace hpvm::server {
namespace {

using Json = nlohmann::json;
using scheduler::FactsOf;
using scheduler::Ledger;
using scheduler::Resource;

constexpr uint64_t kVersion = 1;
constexpr uint64_t kFileBytesMax = 16 << 20;
constexpr Duration kPause = std::chrono::seconds(2);

Status Damaged(const std::string& path, const std::string& why) {
  return DataLoss("The file \"" + path + "\" of the tenants' spent quotas " + why + ".");
}

std::optional<Ledger::Spent> ReadAmounts(const Json& json) {
  if (!json.is_object() || !json.contains("used") || !json.contains("missing") || !json["used"].is_number_unsigned() ||
      !json["missing"].is_number_unsigned()) {
    return std::nullopt;
  }
  return Ledger::Spent{json["used"].get<uint64_t>(), json["missing"].get<uint64_t>()};
}

std::optional<TenantSpent> ReadTenant(const Json& json) {
  if (!json.is_object() || !json.contains("unix_ns") || !json["unix_ns"].is_number_integer()) {
    return std::nullopt;
  }
  TenantSpent tenant{.unix_ns = json["unix_ns"].get<int64_t>()};
  for (const auto& [name, amounts] : json.items()) {
    const std::optional<Resource> resource = scheduler::ResourceNamed(name);
    if (!resource.has_value()) {
      continue;  // The time, or a resource of a later release.
    }
    const std::optional<Ledger::Spent> spent = ReadAmounts(amounts);
    if (!spent.has_value()) {
      return std::nullopt;
    }
    tenant.spent[static_cast<size_t>(*resource)] = *spent;
  }
  return tenant;
}

Json ToJson(const TenantSpent& tenant) {
  Json json = {{"unix_ns", tenant.unix_ns}};
  for (size_t i = 0; i < scheduler::kResourceCount; ++i) {
    if (tenant.spent[i].used != 0) {
      json[FactsOf(static_cast<Resource>(i)).name] = {{"used", tenant.spent[i].used},
                                                      {"missing", tenant.spent[i].missing}};
    }
  }
  return json;
}

// Removes the oldest tenants.
void Shorten(SpentByTenant& spent) {
  if (spent.size() <= kSpentTenantsMax) {
    return;
  }
  std::vector<std::pair<int64_t, std::string>> by_age;
  for (const auto& [name, tenant] : spent) {
    by_age.emplace_back(tenant.unix_ns, name);
  }
  std::sort(by_age.begin(), by_age.end());
  by_age.resize(spent.size() - kSpentTenantsMax);
  for (const auto& [unix_ns, name] : by_age) {
    spent.erase(name);
  }
}

bool IsSameUse(const TenantSpent& a, const TenantSpent& b) {
  return std::equal(a.spent.begin(), a.spent.end(), b.spent.begin(),
                    [](const Ledger::Spent& one, const Ledger::Spent& other) { return one.used == other.used; });
}

}  // namespace

StatusOr<SpentByTenant> ReadSpent(const std::string& path, Disk& disk) {
  HPVMD_ASSIGN_OR_RETURN(const std::optional<std::string> text, ReadWholeFile(path, kFileBytesMax, disk));
  if (!text.has_value()) {
    return SpentByTenant();
  }
  const Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("version") || json["version"] != kVersion || !json.contains("tenants") ||
      !json["tenants"].is_object()) {
    return Damaged(path, "is incomplete, or of another release");
  }
  SpentByTenant spent;
  for (const auto& [name, tenant] : json["tenants"].items()) {
    const std::optional<TenantSpent> read = ReadTenant(tenant);
    if (!read.has_value()) {
      return Damaged(path, "has a line that cannot be read, of tenant \"" + EscapeForLog(name) + "\"");
    }
    spent.emplace(name, *read);
  }
  return spent;
}

Status WriteSpent(const std::string& path, const SpentByTenant& spent, Disk& disk) {
  Json tenants = Json::object();
  for (const auto& [name, tenant] : spent) {
    tenants[name] = ToJson(tenant);
  }
  const std::string text =
      Json{{"version", kVersion}, {"tenants", std::move(tenants)}}.dump(1, ' ', false, Json::error_handler_t::replace);
  return ReplaceWholeFile(path, text, disk);
}

SpentKeeper::SpentKeeper(std::string path, SpentByTenant known, std::function<SpentByTenant()> look)
    : path_(std::move(path)),
      look_(std::move(look)),
      known_(std::move(known)),
      thread_(
          [this] {
            Keep();
            return kPause;
          },
          kPause) {}

SpentKeeper::~SpentKeeper() {
  thread_.Stop();
  Keep();
}

void SpentKeeper::Keep() {
  SpentByTenant next = known_;
  bool is_new = false;
  for (auto& [name, tenant] : look_()) {
    const auto known = next.find(name);
    if (!IsSameUse(tenant, known == next.end() ? TenantSpent() : known->second)) {
      next.insert_or_assign(name, tenant);
      is_new = true;
    }
  }
  if (!is_new) {
    return;
  }
  Shorten(next);
  const Status written = WriteSpent(path_, next);
  if (written.ok()) {
    known_ = std::move(next);
  } else if (!is_failing_) {
    LogWarning("The tenants' spent quotas could not be written; the write is retried", {{"error", Message(written)}});
  }
  is_failing_ = !written.ok();
}

}  // namespace hpvm::server
