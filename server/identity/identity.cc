// SPDX-License-Identifier: Apache-2.0
#include "server/identity/identity.h"

#include <sys/types.h>
#include <unistd.h>

#include <utility>

#include "base/io/disk.h"
#include "server/audit/audit_log.h"
#include "server/identity/identity_database.h"
#include "server/identity/methods.h"
#include "server/identity/tenant_rules.h"
#include "server/process/state_folder.h"

namespace hpvm::server {
namespace {

constexpr size_t kTenantsNamedMax = 8;  // Number of tenants that an error message lists.

StatusOr<Role> RoleNamed(const std::string& name) {
  for (const Role role : {Role::kUser, Role::kOperator, Role::kAdmin}) {
    if (name == NameOf(role)) {
      return role;
    }
  }
  return InvalidArgument("The role (\"" + name.substr(0, 40) + "\") is none of user, operator and admin.");
}

}  // namespace

Status NoteOffline(const Config& config, const StateFolder& folder, AuditRecord record) {
  if (!config.audit_enabled) {
    return absl::OkStatus();
  }
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<AuditLog> audit,
                         OpenAuditLog(RealDisk(), folder.path() + "/audit", config.audit_file_bytes_max, RealClock()));
  record.verdict = "ok";
  audit->Append(std::move(record));
  return audit->Flush();
}

StatusOr<std::unique_ptr<Identity>> Identity::Open(const Config& config, const std::string& folder, const Clock& clock,
                                                   Rng& rng, const OpenIdentityStore& shared) {
  DirectoryOptions options;
  if (shared != nullptr) {
    HPVMD_ASSIGN_OR_RETURN(options.database, While(shared(), "opening the tenants of the cluster"));
    options.stale_after = std::chrono::milliseconds(config.identity_stale_ms);
  } else {
    HPVMD_ASSIGN_OR_RETURN(options.database, IdentityDatabase::Open(folder + "/identity.sqlite"));
  }
  options.clock = &clock;
  options.rng = &rng;
  options.is_open = !AsksForCredentials(config);
  options.administrators = {0, static_cast<uint32_t>(geteuid())};
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Directory> directory, Directory::Open(std::move(options)));
  HPVMD_RETURN_IF_ERROR(directory->EnsureTenant(config.tenants_default));
  return std::unique_ptr<Identity>(new Identity(config, std::move(directory), clock, rng));
}

Status Identity::OpenTicketSockets(const Config& config, const std::vector<std::string>& service_paths) {
  if (!config.auth_peers || service_paths.empty()) {
    return absl::OkStatus();
  }
  HPVMD_ASSIGN_OR_RETURN(tickets_, TicketSocket::Start(service_paths, static_cast<mode_t>(config.server_socket_mode),
                                                       [this](const LocalPeer& peer) {
                                                         return TicketLineFor(peer, *directory_, mint_, clock_.Now());
                                                       }));
  return absl::OkStatus();
}

StatusOr<Directory::NewToken> CreateTokenOffline(const Config& config, const std::string& tenant,
                                                 const std::string& role, const OpenIdentityStore& shared) {
  Directory::TokenSpec spec;
  HPVMD_ASSIGN_OR_RETURN(spec.role, RoleNamed(role));
  spec.tenant = tenant;
  spec.name = "made by hpvmd --create-token";
  spec.created_by = "uid " + std::to_string(getuid()) + " (hpvmd --create-token)";
  v1::Tenant checked;
  checked.set_name(tenant);
  checked.set_weight(kWeightDefault);
  HPVMD_RETURN_IF_ERROR(CheckTenant(checked));
  // Fails when a daemon has the folder open, because a running daemon would not see the change.
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<StateFolder> folder, StateFolder::Open(config.server_state_dir));
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<Identity> identity,
                         Identity::Open(config, folder->path(), RealClock(), SystemRng(), shared));
  // A misspelt name must not create a tenant that has an administrator.
  if (identity->directory().FindTenant(tenant) == nullptr) {
    std::string names;
    for (const TenantRecordRef& known : identity->directory().ListTenants("", kTenantsNamedMax)) {
      names += (names.empty() ? "" : ", ") + known->name();
    }
    return NotFound("There is no tenant \"" + tenant + "\" in \"" + config.server_state_dir + "\" (the tenants are: " +
                    names + "); start the daemon, and create the tenant with `hpvmctl tenant create`.");
  }
  HPVMD_ASSIGN_OR_RETURN(Directory::NewToken made, identity->directory().CreateToken(spec));
  HPVMD_RETURN_IF_ERROR(NoteOffline(config, *folder,
                                    {.who = spec.created_by,
                                     .peer = "",
                                     .tenant = tenant,
                                     .method = "hpvmd --create-token",
                                     .object = made.token.id(),
                                     .verdict = "",
                                     .detail = "Role " + role + "."}));
  return made;
}

StatusOr<uint64_t> RevokeAllTokensOffline(const Config& config, const OpenIdentityStore& shared) {
  // In a wrong folder Identity::Open would create an empty database, and no token would be revoked.
  if (shared == nullptr) {
    HPVMD_RETURN_IF_ERROR(RealDisk().Open(config.server_state_dir + "/identity.sqlite", Disk::Mode::kRead).status());
  }
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<StateFolder> folder, StateFolder::Open(config.server_state_dir));
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<Identity> identity,
                         Identity::Open(config, folder->path(), RealClock(), SystemRng(), shared));
  Directory& directory = identity->directory();
  uint64_t revoked = 0;
  for (const TenantRecordRef& tenant : directory.ListTenants("", SIZE_MAX)) {
    for (const v1::Token& token : directory.ListTokens(tenant->name())) {
      if (token.revoked_unix_ns() == 0) {
        HPVMD_RETURN_IF_ERROR(directory.RevokeToken(token.id()));
        ++revoked;
      }
    }
  }
  HPVMD_RETURN_IF_ERROR(NoteOffline(config, *folder,
                                    {.who = "uid " + std::to_string(getuid()) + " (hpvmd --revoke-all-tokens)",
                                     .peer = "",
                                     .tenant = "",
                                     .method = "hpvmd --revoke-all-tokens",
                                     .object = "",
                                     .verdict = "",
                                     .detail = std::to_string(revoked) + " tokens were revoked."}));
  return revoked;
}

}  // namespace hpvm::server
