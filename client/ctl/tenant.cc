// SPDX-License-Identifier: Apache-2.0
// hpvmctl tenant create|list|show|set|quota|disable|enable.
#include <pwd.h>
#include <stdio.h>

#include <algorithm>
#include <memory>

#include "client/ctl/options.h"
#include "client/ctl/report.h"
#include "client/ctl/text/quota_words.h"
#include "client/ctl/text/tenant_text.h"
#include "client/ctl/text/text.h"

#include "base/number.h"
#include "base/status.h"
#include "graph/faults.h"
#include "hpvm/admin.h"

namespace hpvm::ctl {
namespace {

struct Options {
  std::string name, reason;
  uint32_t weight = 0, sandbox_min = 0;
  std::vector<std::string> quotas, resets;
  std::vector<std::string> devices, uids, certificates;  // The whole of each list, when it is given.
  std::vector<std::string> add_uids, remove_uids, add_certificates, remove_certificates;
  bool all_devices = false, disabled = false;
  // Options that were given, of those whose default would mean something.
  const CLI::Option* weight_given = nullptr;
  const CLI::Option* sandbox_given = nullptr;
};

// A number, or a user's name on this machine.
StatusOr<uint32_t> ParseUid(const std::string& word) {
  if (const std::optional<uint32_t> uid = ParseNumber<uint32_t>(word)) {
    return *uid;
  }
  const passwd* user = getpwnam(word.c_str());
  if (user == nullptr) {
    return InvalidArgument(graph::Quoted(word) + " is neither a user id nor a user's name on this machine.");
  }
  return user->pw_uid;
}

template <typename Value>
void AddTo(std::vector<Value>* list, const Value& value) {
  if (std::find(list->begin(), list->end(), value) == list->end()) {
    list->push_back(value);
  }
}

template <typename Value>
Status RemoveFrom(std::vector<Value>* list, const Value& value, const std::string& word) {
  if (std::erase(*list, value) == 0) {
    return NotFound("The tenant has no " + graph::Quoted(word) + " to remove.");
  }
  return absl::OkStatus();
}

void Print(const v1::Tenant& tenant, const Format& format) {
  PrintOne(tenant, format, tenant.name(), [&] { return TenantText(tenant); });
}

Status Create(const Globals& globals, const Options& options) {
  v1::Tenant tenant;
  tenant.set_name(options.name);
  tenant.set_weight(options.weight);
  tenant.set_sandbox_level_min(options.sandbox_min);
  tenant.set_disabled(options.disabled);
  HPVMD_ASSIGN_OR_RETURN(const auto quotas, ParseQuotas(options.quotas));
  tenant.mutable_quota()->insert(quotas.begin(), quotas.end());
  tenant.mutable_devices()->Add(options.devices.begin(), options.devices.end());
  tenant.mutable_certificate_names()->Add(options.certificates.begin(), options.certificates.end());
  for (const std::string& word : options.uids) {
    HPVMD_ASSIGN_OR_RETURN(const uint32_t uid, ParseUid(word));
    tenant.add_uids(uid);
  }
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, globals.Connect());
  HPVMD_ASSIGN_OR_RETURN(const v1::Tenant created, Admin(*client).CreateTenant(tenant));
  Print(created, globals.format);
  return absl::OkStatus();
}

Status List(const Globals& globals, const Options&) {
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, globals.Connect());
  HPVMD_ASSIGN_OR_RETURN(const std::vector<v1::Tenant> tenants, Admin(*client).ListTenants());
  PrintList(tenants, globals.format, &v1::Tenant::name,
            [&] { return TenantsTable(tenants, globals.format == Format::kWide); });
  return absl::OkStatus();
}

Status Show(const Globals& globals, const Options& options) {
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, globals.Connect());
  HPVMD_ASSIGN_OR_RETURN(const v1::Tenant tenant, Admin(*client).GetTenant(options.name));
  Print(tenant, globals.format);
  return absl::OkStatus();
}

Status Update(const Globals& globals, Client& client, const v1::UpdateTenantRequest& request) {
  HPVMD_ASSIGN_OR_RETURN(const v1::Tenant tenant, Admin(client).UpdateTenant(request));
  Print(tenant, globals.format);
  return absl::OkStatus();
}

// The lists as they are to be: what was given, or what is there with additions and removals.
Status FillUids(const Options& options, const v1::Tenant& now, v1::UpdateTenantRequest* request) {
  if (options.uids.empty() && options.add_uids.empty() && options.remove_uids.empty()) {
    return absl::OkStatus();
  }
  std::vector<uint32_t> uids;
  if (options.uids.empty()) {
    uids.assign(now.uids().begin(), now.uids().end());
  }
  for (const auto* words : {&options.uids, &options.add_uids}) {
    for (const std::string& word : *words) {
      HPVMD_ASSIGN_OR_RETURN(const uint32_t uid, ParseUid(word));
      AddTo(&uids, uid);
    }
  }
  for (const std::string& word : options.remove_uids) {
    HPVMD_ASSIGN_OR_RETURN(const uint32_t uid, ParseUid(word));
    HPVMD_RETURN_IF_ERROR(RemoveFrom(&uids, uid, word));
  }
  request->mutable_uids()->mutable_values()->Add(uids.begin(), uids.end());
  return absl::OkStatus();
}

Status FillCertificates(const Options& options, const v1::Tenant& now, v1::UpdateTenantRequest* request) {
  if (options.certificates.empty() && options.add_certificates.empty() && options.remove_certificates.empty()) {
    return absl::OkStatus();
  }
  std::vector<std::string> names = options.certificates;
  if (options.certificates.empty()) {
    names.assign(now.certificate_names().begin(), now.certificate_names().end());
  }
  for (const std::string& name : options.add_certificates) {
    AddTo(&names, name);
  }
  for (const std::string& name : options.remove_certificates) {
    HPVMD_RETURN_IF_ERROR(RemoveFrom(&names, name, name));
  }
  request->mutable_certificate_names()->mutable_values()->Add(names.begin(), names.end());
  return absl::OkStatus();
}

Status Set(const Globals& globals, const Options& options) {
  v1::UpdateTenantRequest request;
  request.set_name(options.name);
  if (options.weight_given->count() != 0) {
    request.set_weight(options.weight);
  }
  if (options.sandbox_given->count() != 0) {
    request.set_sandbox_level_min(options.sandbox_min);
  }
  if (options.all_devices || !options.devices.empty()) {
    request.mutable_devices()->mutable_values()->Add(options.devices.begin(), options.devices.end());
  }
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, globals.Connect());
  v1::Tenant now;
  if (!options.add_uids.empty() || !options.remove_uids.empty() || !options.add_certificates.empty() ||
      !options.remove_certificates.empty()) {
    HPVMD_ASSIGN_OR_RETURN(now, Admin(*client).GetTenant(options.name));
  }
  HPVMD_RETURN_IF_ERROR(FillUids(options, now, &request));
  HPVMD_RETURN_IF_ERROR(FillCertificates(options, now, &request));
  const bool is_empty = !request.has_weight() && !request.has_sandbox_level_min() && !request.has_devices() &&
                        !request.has_uids() && !request.has_certificate_names();
  if (is_empty) {
    return InvalidArgument("Nothing is to be set; see `hpvmctl tenant set --help`.");
  }
  return Update(globals, *client, request);
}

Status Quota(const Globals& globals, const Options& options) {
  v1::UpdateTenantRequest request;
  request.set_name(options.name);
  HPVMD_ASSIGN_OR_RETURN(const auto quotas, ParseQuotas(options.quotas));
  request.mutable_set_quota()->insert(quotas.begin(), quotas.end());
  for (const std::string& name : options.resets) {
    HPVMD_RETURN_IF_ERROR(CheckQuotaResource(name));
    request.add_reset_quota(name);
  }
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, globals.Connect());
  if (!quotas.empty() || !options.resets.empty()) {
    HPVMD_RETURN_IF_ERROR(Admin(*client).UpdateTenant(request).status());
  }
  HPVMD_ASSIGN_OR_RETURN(const v1::GetUsageResponse usage, Admin(*client).GetUsage(options.name));
  PrintUsage(usage, globals.format);
  return absl::OkStatus();
}

Status SetDisabled(const Globals& globals, const Options& options, bool is_disabled) {
  v1::UpdateTenantRequest request;
  request.set_name(options.name);
  request.set_disabled(is_disabled);
  if (is_disabled) {
    request.set_disabled_reason(options.reason);
  }
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, globals.Connect());
  return Update(globals, *client, request);
}
Status Disable(const Globals& globals, const Options& options) { return SetDisabled(globals, options, true); }
Status Enable(const Globals& globals, const Options& options) { return SetDisabled(globals, options, false); }

void AddList(CLI::App& command, const char* name, std::vector<std::string>& values, const char* description) {
  AddWord(command, name, values, description)->allow_extra_args(false);
}

void AddName(CLI::App& command, Options& options, bool required = true) {
  AddWord(command, "tenant", options.name, required ? "Its name" : "Its name; without it the caller's own")
      ->required(required);
}

void AddTraits(CLI::App& command, Options& options) {
  options.weight_given =
      command.add_option("--weight", options.weight, "Its share of contended devices against others'; 100 is usual")
          ->check(CLI::Range(1, 10'000));
  options.sandbox_given =
      command.add_option("--sandbox-min", options.sandbox_min, "The lowest sandbox level at which its kernels run")
          ->check(CLI::Range(0, 4))
          ->option_text("0|1|2|3|4");
  AddList(command, "--device", options.devices, "A device or family that it may use: cpu, opencl, vulkan:0; several");
  AddList(command, "--uid", options.uids, "A user id, or a user's name here, whose processes are this tenant; several");
  AddList(command, "--certificate-name", options.certificates,
          "The common name of a client certificate that is this tenant; several");
}

void AddCreate(Commands commands, CLI::App& tenant) {
  CLI::App& command = AddCommand(tenant, "create", "Make a tenant",
                                 "Examples:\n"
                                 "  hpvmctl tenant create blur --weight 200 --quota device-bytes=2GiB\n"
                                 "  hpvmctl tenant create lab --uid alice --uid bob --device cpu");
  Options& options = SetWork(commands, command, Create);
  AddName(command, options);
  AddTraits(command, options);
  AddList(command, "--quota", options.quotas, "RESOURCE=VALUE, see `hpvmctl tenant quota --help`; several");
  command.add_flag("--disabled", options.disabled, "Its calls are refused until `hpvmctl tenant enable`");
}

void AddSet(Commands commands, CLI::App& tenant) {
  CLI::App& command = AddCommand(tenant, "set", "Change what a tenant is; only what is named changes",
                                 "Examples:\n"
                                 "  hpvmctl tenant set blur --weight 50 --sandbox-min 3\n"
                                 "  hpvmctl tenant set lab --add-uid carol --remove-uid bob");
  Options& options = SetWork(commands, command, Set);
  AddName(command, options);
  AddTraits(command, options);
  command.add_flag("--all-devices", options.all_devices, "It may use every device")->excludes("--device");
  AddList(command, "--add-uid", options.add_uids, "As --uid, besides those that are there");
  AddList(command, "--remove-uid", options.remove_uids, "Not this one any more");
  AddList(command, "--add-certificate-name", options.add_certificates, "Besides those that are there");
  AddList(command, "--remove-certificate-name", options.remove_certificates, "Not this one any more");
}

void AddQuotaOf(Commands commands, CLI::App& tenant) {
  CLI::App& command = AddCommand(tenant, "quota", "Set a tenant's quotas, and show what it uses of them",
                                 "Examples:\n"
                                 "  hpvmctl tenant quota blur device-bytes=2GiB device-seconds=1h requests=100\n"
                                 "  hpvmctl tenant quota blur requests=none --reset device-bytes");
  Options& options = SetWork(commands, command, Quota);
  AddName(command, options);
  command.add_option("quota", options.quotas,
                     "RESOURCE=VALUE; 0 or none: no limit. device-seconds and compile-seconds are by the hour, "
                     "requests and request-bytes by the second. There are " +
                         QuotaResourceNames());
  AddList(command, "--reset", options.resets, "RESOURCE whose limit is as the server's configuration says; several");
}

}  // namespace

void AddTenant(Commands commands) {
  CLI::App* tenant = commands.app.add_subcommand("tenant", "Who may use the server, and how much of it");
  tenant->require_subcommand(1);
  AddCreate(commands, *tenant);
  SetWork(commands, AddCommand(*tenant, "list", "All tenants, by name", "Examples:\n  hpvmctl tenant list -o wide"),
          List);
  CLI::App& show = AddCommand(*tenant, "show", "Everything about a tenant", "Examples:\n  hpvmctl tenant show blur");
  AddName(show, SetWork(commands, show, Show), false);
  AddSet(commands, *tenant);
  AddQuotaOf(commands, *tenant);
  CLI::App& disable =
      AddCommand(*tenant, "disable", "Refuse a tenant's calls and end what it runs; its jobs wait until it is enabled",
                 "Examples:\n  hpvmctl tenant disable blur --reason \"unpaid\"");
  Options& options = SetWork(commands, disable, Disable);
  AddName(disable, options);
  disable.add_option("--reason", options.reason, "For people; shown to the tenant");
  CLI::App& enable = AddCommand(*tenant, "enable", "Let a tenant go on", "Examples:\n  hpvmctl tenant enable blur");
  AddName(enable, SetWork(commands, enable, Enable));
}

}  // namespace hpvm::ctl
