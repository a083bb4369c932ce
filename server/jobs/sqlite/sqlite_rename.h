// SPDX-License-Identifier: Apache-2.0
// Gives a tenant's jobs another tenant's name.
#ifndef HPVMD_SERVER_JOBS_SQLITE_SQLITE_RENAME_H_
#define HPVMD_SERVER_JOBS_SQLITE_SQLITE_RENAME_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace hpvm::server {

// In the job database at `path`, on which no daemon may run: rows, keys and sums of `tenant` become those of `name`,
// all or none. Returns the number of jobs. A damaged row stays damaged. kAlreadyExists when both tenants have jobs or
// keys.
StatusOr<uint64_t> RenameTenantOfJobs(const std::string& path, std::string_view tenant, std::string_view name);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_JOBS_SQLITE_SQLITE_RENAME_H_
