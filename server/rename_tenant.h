// SPDX-License-Identifier: Apache-2.0
// Renames a tenant in the state folder of a daemon that does not run.
#ifndef HPVMD_SERVER_RENAME_TENANT_H_
#define HPVMD_SERVER_RENAME_TENANT_H_

#include <cstdint>
#include <string>

#include "server/config/config.h"

namespace hpvm::server {

// The tenant's jobs, tokens, limits, and consumption follow; the audit and the accounts keep the old name. Returns
// the number of jobs. Called again after an interruption, it resumes. kFailedPrecondition while a daemon runs, for
// the default tenant, or for one that is being deleted; kNotFound, kAlreadyExists.
StatusOr<uint64_t> RenameTenantOffline(const Config& config, const std::string& tenant, const std::string& name);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_RENAME_TENANT_H_
