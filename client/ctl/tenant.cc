// SPDX-License-Identifier: Apache-2.0
// hpvmctl tenant create|list|show|set|quota|disable|enable|delete.
#include <grp.h>
#include <pwd.h>
#include <stdio.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "client/ctl/options.h"
#include "client/ctl/report.h"
#include "client/ctl/text/quota_words.h"
#include "client/ctl/text/tenant_text.h"
#include "client/ctl/text/text.h"

#include "base/number.h"
#include "base/status.h"
#include "graph/diagnostic_sink.h"
#include "hpvm/admin.h"

namespace hpvm::ctl {
namespace {

// A list of user or group ids as given on the command line: the complete list, or the changes.
struct Ids {
  std::vector<std::string> all, add, remove;
  bool IsEmpty() const { return all.empty() && add.empty() && remove.empty(); }
};

struct Options {
  std::string name, reason;
  uint32_t weight = 0, sandbox_min = 0;
  std::vector<std::string> quotas, resets;
  Ids uids, gids;
  std::vector<std::string> devices, certificates;  // Complete lists, when they are given.
  std::vector<std::string> add_certificates, remove_certificates;
  bool all_devices = false, disabled = false, yes = false, detach = false;
  // Tell whether these options were given, because their default values are meaningful, too.
  const CLI::Option* weight_given = nullptr;
  const CLI::Option* sandbox_given = nullptr;
};

// Parses a user id: a number, or a user's name on this machine.
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

// Parses a group id: a number, or a group's name on this machine.
StatusOr<uint32_t> ParseGid(const std::string& word) {
  if (const std::optional<uint32_t> gid = ParseNumber<uint32_t>(word)) {
    return *gid;
  }
  const group* found = getgrnam(word.c_str());
  if (found == nullptr) {
    return InvalidArgument(graph::Quoted(word) + " is neither a group id nor a group's name on this machine.");
  }
  return found->gr_gid;
}

using ParseId = StatusOr<uint32_t> (*)(const std::string&);
using IdList = google::protobuf::RepeatedField<uint32_t>;

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

// Fills `list` with the new list: the one that was given, or the present one with additions and removals.
Status FillIds(const Ids& ids, const IdList& now, ParseId parse, IdList* list) {
  std::vector<uint32_t> wanted;
  if (ids.all.empty()) {
    wanted.assign(now.begin(), now.end());
  }
  for (const auto* words : {&ids.all, &ids.add}) {
    for (const std::string& word : *words) {
      HPVMD_ASSIGN_OR_RETURN(const uint32_t id, parse(word));
      AddTo(&wanted, id);
    }
  }
  for (const std::string& word : ids.remove) {
    HPVMD_ASSIGN_OR_RETURN(const uint32_t id, parse(word));
    HPVMD_RETURN_IF_ERROR(RemoveFrom(&wanted, id, word));
  }
  list->Assign(wanted.begin(), wanted.end());
  return absl::OkStatus();
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
  HPVMD_RETURN_IF_ERROR(FillIds(options.uids, {}, ParseUid, tenant.mutable_uids()));
  HPVMD_RETURN_IF_ERROR(FillIds(options.gids, {}, ParseGid, tenant.mutable_gids()));
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
  if (!options.uids.add.empty() || !options.uids.remove.empty() || !options.gids.add.empty() ||
      !options.gids.remove.empty() || !options.add_certificates.empty() || !options.remove_certificates.empty()) {
    HPVMD_ASSIGN_OR_RETURN(now, Admin(*client).GetTenant(options.name));
  }
  if (!options.uids.IsEmpty()) {
    HPVMD_RETURN_IF_ERROR(FillIds(options.uids, now.uids(), ParseUid, request.mutable_uids()->mutable_values()));
  }
  if (!options.gids.IsEmpty()) {
    HPVMD_RETURN_IF_ERROR(FillIds(options.gids, now.gids(), ParseGid, request.mutable_gids()->mutable_values()));
  }
  HPVMD_RETURN_IF_ERROR(FillCertificates(options, now, &request));
  const bool is_empty = !request.has_weight() && !request.has_sandbox_level_min() && !request.has_devices() &&
                        !request.has_uids() && !request.has_gids() && !request.has_certificate_names();
  if (is_empty) {
    return InvalidArgument("No change is given; see `hpvmctl tenant set --help`.");
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

Status Delete(const Globals& globals, const Options& options) {
  if (!options.yes) {
    return InvalidArgument(
        "This deletes the tenant's jobs, buffers, modules and tokens for good; give --yes to confirm.");
  }
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, globals.Connect());
  Admin admin(*client);
  HPVMD_ASSIGN_OR_RETURN(const v1::Tenant tenant, admin.DeleteTenant(options.name));
  for (auto pause = std::chrono::milliseconds(20); !options.detach;) {
    const Status shown = admin.GetTenant(options.name).status();
    if (absl::IsNotFound(shown)) {
      break;
    }
    HPVMD_RETURN_IF_ERROR(shown);
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::milliseconds(1'000));
  }
  Print(tenant, globals.format);
  return absl::OkStatus();
}

void AddList(CLI::App& command, const char* name, std::vector<std::string>& values, const char* description) {
  AddWord(command, name, values, description)->allow_extra_args(false);
}

void AddName(CLI::App& command, Options& options, bool required = true) {
  AddWord(command, "tenant", options.name,
          required ? "Name of the tenant" : "Name of the tenant; default: the caller's own")
      ->required(required);
}

void AddTraits(CLI::App& command, Options& options) {
  options.weight_given =
      command
          .add_option("--weight", options.weight,
                      "The tenant's share of contended devices, relative to others'; new tenants have 100")
          ->check(CLI::Range(1, 10'000));
  options.sandbox_given = command
                              .add_option("--sandbox-min", options.sandbox_min,
                                          "The lowest sandbox level at which the tenant's kernels run")
                              ->check(CLI::Range(0, 4))
                              ->option_text("0|1|2|3|4");
  AddList(command, "--device", options.devices,
          "A device or family that the tenant may use: cpu, opencl, vulkan:0; may be repeated");
  AddList(command, "--uid", options.uids.all,
          "A user id or user name of this machine whose processes belong to this tenant; may be repeated");
  AddList(command, "--gid", options.gids.all,
          "A group id or group name of this machine whose members belong to this tenant unless another tenant has "
          "their user id; may be repeated");
  AddList(command, "--certificate-name", options.certificates,
          "The common name of a client certificate that identifies this tenant; may be repeated");
}

void AddCreate(Commands commands, CLI::App& tenant) {
  CLI::App& command = AddCommand(tenant, "create", "Make a tenant",
                                 "Examples:\n"
                                 "  hpvmctl tenant create blur --weight 200 --quota device-bytes=2GiB\n"
                                 "  hpvmctl tenant create lab --uid alice --uid bob --device cpu\n"
                                 "  hpvmctl tenant create users --gid users");
  Options& options = SetWork(commands, command, Create);
  AddName(command, options);
  AddTraits(command, options);
  AddList(command, "--quota", options.quotas, "RESOURCE=VALUE, see `hpvmctl tenant quota --help`; may be repeated");
  command.add_flag("--disabled", options.disabled, "Refuse the tenant's calls until `hpvmctl tenant enable`");
}

void AddSet(Commands commands, CLI::App& tenant) {
  CLI::App& command = AddCommand(tenant, "set", "Change a tenant; only the given properties change",
                                 "Examples:\n"
                                 "  hpvmctl tenant set blur --weight 50 --sandbox-min 3\n"
                                 "  hpvmctl tenant set lab --add-uid carol --remove-uid bob");
  Options& options = SetWork(commands, command, Set);
  AddName(command, options);
  AddTraits(command, options);
  command.add_flag("--all-devices", options.all_devices, "Let the tenant use every device")->excludes("--device");
  AddList(command, "--add-uid", options.uids.add, "As --uid, in addition to the tenant's user ids");
  AddList(command, "--remove-uid", options.uids.remove, "Remove this user id from the tenant");
  AddList(command, "--add-gid", options.gids.add, "As --gid, in addition to the tenant's group ids");
  AddList(command, "--remove-gid", options.gids.remove, "Remove this group id from the tenant");
  AddList(command, "--add-certificate-name", options.add_certificates,
          "As --certificate-name, in addition to the tenant's names");
  AddList(command, "--remove-certificate-name", options.remove_certificates, "Remove this common name from the tenant");
}

void AddDelete(Commands commands, CLI::App& tenant) {
  CLI::App& command =
      AddCommand(tenant, "delete", "Delete a disabled tenant with its jobs, buffers, modules and tokens",
                 "Nothing brings them back. The audit and the accounts keep the tenant's name.\n"
                 "Example:\n  hpvmctl tenant disable trial && hpvmctl tenant delete trial --yes");
  Options& options = SetWork(commands, command, Delete);
  AddName(command, options);
  command.add_flag("--yes", options.yes, "Confirm that all of it is deleted");
  command.add_flag("-d,--detach", options.detach, "Do not wait until the tenant is gone");
}

void AddQuotaOf(Commands commands, CLI::App& tenant) {
  CLI::App& command = AddCommand(tenant, "quota", "Set a tenant's quotas, and show what it uses of them",
                                 "Examples:\n"
                                 "  hpvmctl tenant quota blur device-bytes=2GiB device-seconds=1h requests=100\n"
                                 "  hpvmctl tenant quota blur requests=none --reset device-bytes");
  Options& options = SetWork(commands, command, Quota);
  AddName(command, options);
  command.add_option("quota", options.quotas,
                     "RESOURCE=VALUE; 0 or none: no limit. device-seconds and compile-seconds are per hour, requests "
                     "and request-bytes per second, and job-*-seconds hold for each job. There are " +
                         QuotaResourceNames());
  AddList(command, "--reset", options.resets,
          "RESOURCE that gets the limit of the server's configuration again; may be repeated");
}

}  // namespace

void AddTenant(Commands commands) {
  CLI::App* tenant =
      commands.app.add_subcommand("tenant", "Manage tenants: who may use the server, and how much of it");
  tenant->require_subcommand(1);
  AddCreate(commands, *tenant);
  SetWork(commands,
          AddCommand(*tenant, "list", "List all tenants, by name", "Examples:\n  hpvmctl tenant list -o wide"), List);
  CLI::App& show =
      AddCommand(*tenant, "show", "Show everything about a tenant", "Examples:\n  hpvmctl tenant show blur");
  AddName(show, SetWork(commands, show, Show), false);
  AddSet(commands, *tenant);
  AddQuotaOf(commands, *tenant);
  CLI::App& disable =
      AddCommand(*tenant, "disable", "Refuse a tenant's calls and end what it runs; its jobs wait until it is enabled",
                 "Examples:\n  hpvmctl tenant disable blur --reason \"unpaid\"");
  Options& options = SetWork(commands, disable, Disable);
  AddName(disable, options);
  disable.add_option("--reason", options.reason, "Reason, which the tenant sees");
  CLI::App& enable =
      AddCommand(*tenant, "enable", "Let a disabled tenant work again", "Examples:\n  hpvmctl tenant enable blur");
  AddName(enable, SetWork(commands, enable, Enable));
  AddDelete(commands, *tenant);
}

}  // namespace hpvm::ctl
