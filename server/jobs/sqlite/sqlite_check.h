// SPDX-License-Identifier: Apache-2.0
// Searches a whole job database for damage and contradictions.
#ifndef HPVMD_SERVER_JOBS_SQLITE_SQLITE_CHECK_H_
#define HPVMD_SERVER_JOBS_SQLITE_SQLITE_CHECK_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "server/sqlite/sqlite_connection.h"

namespace hpvm::server {

// Returns every fault in a sentence, at most 1,000; empty when the database is sound. Reads the state of one moment,
// whatever is written meanwhile.
StatusOr<std::vector<std::string>> CheckJobTables(SqliteConnection& connection);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_JOBS_SQLITE_SQLITE_CHECK_H_
