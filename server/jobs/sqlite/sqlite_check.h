// SPDX-License-Identifier: Apache-2.0
// Looks for damage and contradictions in a whole job database.
#ifndef HPVMD_SERVER_JOBS_SQLITE_SQLITE_CHECK_H_
#define HPVMD_SERVER_JOBS_SQLITE_SQLITE_CHECK_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "server/jobs/sqlite/sqlite_connection.h"

namespace hpvm::server {

// Every fault in a sentence, at most 1,000; empty: sound. One moment is read, whatever is written meanwhile.
StatusOr<std::vector<std::string>> CheckJobTables(SqliteConnection& connection);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_JOBS_SQLITE_SQLITE_CHECK_H_
