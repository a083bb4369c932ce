// SPDX-License-Identifier: Apache-2.0
#include "server/rename_tenant.h"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "server/identity/identity.h"
#include "server/identity/identity_database.h"
#include "server/jobs/job_admin.h"
#include "server/process/spent_file.h"
#include "server/process/state_folder.h"

namespace hpvm::server {
namespace {

Status CheckRename(const Config& config, const IdentityContents& contents, const std::string& tenant,
                   const std::string& name) {
  if (!IsTenantName(name)) {
    return InvalidArgument("The name (\"" + name +
                           "\") is not 1 to 63 characters of a-z, 0-9, - and _ that start with a letter.");
  }
  if (tenant == config.tenants_default) {
    return FailedPrecondition("The tenant \"" + tenant +
                              "\" is the default one (tenants.default), which is made again at each start.");
  }
  for (const v1::Tenant& one : contents.tenants) {
    if (one.name() == name) {
      return AlreadyExists("There is a tenant \"" + name + "\" already.");
    }
    if (one.name() == tenant && one.deleting()) {
      return FailedPrecondition("The tenant \"" + tenant + "\" is being deleted.");
    }
  }
  const bool exists = std::any_of(contents.tenants.begin(), contents.tenants.end(),
                                  [&](const v1::Tenant& one) { return one.name() == tenant; });
  return exists ? absl::OkStatus()
                : NotFound("There is no tenant \"" + tenant + "\" in \"" + config.server_state_dir + "\".");
}

Status RenameSpent(const std::string& file, const std::string& tenant, const std::string& name) {
  StatusOr<SpentByTenant> spent = ReadSpent(file);
  if (!spent.ok()) {
    return absl::OkStatus();  // The daemon reports it when it starts, and forgets it.
  }
  auto node = spent->extract(tenant);
  if (node.empty()) {
    return absl::OkStatus();
  }
  node.key() = name;
  spent->erase(name);
  spent->insert(std::move(node));
  return WriteSpent(file, *spent);
}

}  // namespace

StatusOr<uint64_t> RenameTenantOffline(const Config& config, const std::string& tenant, const std::string& name) {
  if (!config.cluster_database.empty()) {
    return FailedPrecondition(
        "The tenants of a cluster are in its database (cluster.database), and cannot be renamed; this command renames "
        "tenants of a host's own state folder.");
  }
  const std::string identity = config.server_state_dir + "/identity.sqlite";
  // A wrong folder must not become a folder without tenants.
  HPVMD_RETURN_IF_ERROR(RealDisk().Open(identity, Disk::Mode::kRead).status());
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<StateFolder> folder, StateFolder::Open(config.server_state_dir));
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<IdentityDatabase> database, IdentityDatabase::Open(identity));
  HPVMD_ASSIGN_OR_RETURN(const IdentityContents contents, database->Load());
  HPVMD_RETURN_IF_ERROR(CheckRename(config, contents, tenant, name));
  // The tenant's record comes last: until then the same call can be resumed.
  HPVMD_ASSIGN_OR_RETURN(const uint64_t jobs, RenameTenantJobs(folder->path(), tenant, name));
  HPVMD_RETURN_IF_ERROR(RenameSpent(folder->path() + "/spent.json", tenant, name));
  HPVMD_RETURN_IF_ERROR(database->Rename(tenant, name));
  HPVMD_RETURN_IF_ERROR(NoteOffline(config, *folder,
                                    {.who = "uid " + std::to_string(getuid()) + " (hpvmd --rename-tenant)",
                                     .peer = "",
                                     .tenant = name,
                                     .method = "hpvmd --rename-tenant",
                                     .object = tenant,
                                     .verdict = "",
                                     .detail = "To " + name + "."}));
  return jobs;
}

}  // namespace hpvm::server
