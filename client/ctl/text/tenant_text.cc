// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/text/tenant_text.h"

#include <stdio.h>

#include <algorithm>
#include <map>

#include "client/ctl/text/quota_words.h"
#include "client/ctl/text/text.h"

namespace hpvm::ctl {
namespace {

using Rows = std::vector<std::vector<std::string>>;
using Usage = v1::ResourceUsage;

template <typename Items>
std::string Joined(const Items& items) {
  std::string text;
  for (const auto& item : items) {
    text += text.empty() ? "" : ", ";
    if constexpr (std::is_integral_v<std::decay_t<decltype(item)>>) {
      text += std::to_string(item);
    } else {
      text += item;
    }
  }
  return text;
}

// A limit that the server names but this program does not know is printed as a plain number.
std::string LimitText(const std::string& name, uint64_t limit) {
  for (const QuotaResource& resource : QuotaResources()) {
    if (resource.name == name) {
      return QuotaLimitText(limit, resource.unit, resource.period_ns);
    }
  }
  return std::to_string(limit);
}

std::string QuotasText(const v1::Tenant& tenant) {
  std::vector<std::string> parts;
  for (const auto& [name, limit] : std::map<std::string, uint64_t>(tenant.quota().begin(), tenant.quota().end())) {
    parts.push_back(name + "=" + LimitText(name, limit));
  }
  return Joined(parts);
}

// Names come from other users: several lines would look like several facts.
std::string OneLine(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::string StateOf(const v1::Tenant& tenant) {
  return tenant.deleting() ? "being deleted" : tenant.disabled() ? "disabled" : "enabled";
}

std::string AvailableText(const Usage& usage) {
  if (usage.limit() == 0) {
    return "-";
  }
  const uint64_t left = usage.limit() > usage.used() ? usage.limit() - usage.used() : 0;
  return QuotaText(usage.period_ns() != 0 ? usage.available() : left, usage.unit());
}

}  // namespace

std::string RoleText(v1::Role role) {
  switch (role) {
    case v1::ROLE_USER:
      return "user";
    case v1::ROLE_OPERATOR:
      return "operator";
    case v1::ROLE_ADMIN:
      return "admin";
    default:
      return "?";
  }
}

std::string TenantsTable(const std::vector<v1::Tenant>& tenants, bool wide) {
  Rows rows = {{"TENANT", "STATE", "WEIGHT", "SANDBOX", "CREATED"}};
  if (wide) {
    rows[0].insert(rows[0].end(), {"DEVICES", "USER IDS", "GROUP IDS", "CERTIFICATES", "QUOTA"});
  }
  for (const v1::Tenant& tenant : tenants) {
    std::vector<std::string> row = {tenant.name(), StateOf(tenant), std::to_string(tenant.weight()),
                                    std::to_string(tenant.sandbox_level_min()), TimeText(tenant.created_unix_ns())};
    if (wide) {
      const auto or_dash = [](const std::string& text) { return text.empty() ? std::string("-") : OneLine(text); };
      row.insert(row.end(), {tenant.devices().empty() ? "all" : or_dash(Joined(tenant.devices())),
                             or_dash(Joined(tenant.uids())), or_dash(Joined(tenant.gids())),
                             or_dash(Joined(tenant.certificate_names())), or_dash(QuotasText(tenant))});
    }
    rows.push_back(std::move(row));
  }
  return Table(rows);
}

std::string TenantText(const v1::Tenant& tenant) {
  Rows rows = {
      {"  state", StateOf(tenant)},
      {"  weight", std::to_string(tenant.weight())},
      {"  sandbox", "at least level " + std::to_string(tenant.sandbox_level_min())},
      {"  devices", tenant.devices().empty() ? "all" : OneLine(Joined(tenant.devices()))},
      {"  user ids", tenant.uids().empty() ? "none" : Joined(tenant.uids())},
      {"  group ids", tenant.gids().empty() ? "none" : Joined(tenant.gids())},
      {"  certificates", tenant.certificate_names().empty() ? "none" : OneLine(Joined(tenant.certificate_names()))},
      {"  created", TimeText(tenant.created_unix_ns())},
  };
  if (!tenant.disabled_reason().empty()) {
    rows.insert(rows.begin() + 1, {"  reason", OneLine(tenant.disabled_reason())});
  }
  const std::string quotas = QuotasText(tenant);
  rows.push_back({"  quota", quotas.empty() ? "the server's defaults" : OneLine(quotas)});
  return Printable(OneLine(tenant.name())) + "\n" + Table(rows);
}

std::string TokenState(const v1::Token& token, int64_t now_ns) {
  return token.revoked_unix_ns() != 0 ? "revoked" : token.expires_unix_ns() <= now_ns ? "expired" : "valid";
}

std::string TokensTable(const std::vector<v1::Token>& tokens, int64_t now_ns) {
  Rows rows = {{"TOKEN", "TENANT", "ROLE", "STATE", "EXPIRES", "CREATED", "BY", "NAME"}};
  for (const v1::Token& token : tokens) {
    rows.push_back({token.id(), token.tenant(), RoleText(token.role()), TokenState(token, now_ns),
                    TimeText(token.expires_unix_ns()), TimeText(token.created_unix_ns()), OneLine(token.created_by()),
                    OneLine(token.name())});
  }
  return Table(rows);
}

std::string UsageTable(const v1::GetUsageResponse& usage) {
  Rows rows = {{"RESOURCE", "USED", "LIMIT", "AVAILABLE", "PEAK", "REFUSED"}};
  for (const Usage& one : usage.resources()) {
    rows.push_back({one.resource(), QuotaText(one.used(), one.unit()),
                    QuotaLimitText(one.limit(), one.unit(), one.period_ns()), AvailableText(one),
                    one.period_ns() != 0 ? "-" : QuotaText(one.peak(), one.unit()), std::to_string(one.refused())});
  }
  char share[32];
  snprintf(share, sizeof(share), "%.0f %%", usage.dominant_share() * 100);
  return Printable("tenant " + OneLine(usage.tenant()) + ", weight " + std::to_string(usage.weight()) +
                   ", share of what it uses most " + share) +
         "\n" + Table(rows);
}

std::string_view SandboxMeaning(uint32_t level) {
  switch (level) {
    case 0:
      return "a process of its own with limits; nothing else keeps kernels from what the daemon's user may do";
    case 1:
      return "system calls by a list, no new privileges; files that the daemon's user may read are not out of reach";
    case 2:
      return "also no files, no TCP, and no signals to other processes";
    case 3:
      return "also a user or a control group of its own, and no capabilities";
    case 4:
      return "also namespaces of its own: no network, no other process in sight";
    default:
      return "higher than this program knows";
  }
}

std::string SandboxText(const v1::Sandbox& sandbox) {
  const std::string least = sandbox.level_min() == 0 ? "" : ", at least " + std::to_string(sandbox.level_min());
  if (!sandbox.known()) {
    return "sandbox: not known until an executor has started" + least + "\n";
  }
  std::string text = "sandbox: level " + std::to_string(sandbox.level()) + " of 4" + least + ": " +
                     std::string(SandboxMeaning(sandbox.level())) + "\n";
  if (!sandbox.detail().empty()) {
    text += "  " + Printable(OneLine(sandbox.detail())) + "\n";
  }
  return text;
}

}  // namespace hpvm::ctl
