// SPDX-License-Identifier: Apache-2.0
// Stores jobs in one SQLite file, or in memory: the store of a daemon. WAL, synchronous=FULL, one writer, a few
// readers beside it.
//
// A commit is durable when it returns. The log is moved into the database by Commit itself, after the commit that made
// it long, so that a failed sync there is reported as well. Each payload has a checksum that reads verify. Shrink
// makes the file smaller (SQLite's incremental vacuum).
#ifndef HPVMD_SERVER_JOBS_SQLITE_SQLITE_JOB_DATABASE_H_
#define HPVMD_SERVER_JOBS_SQLITE_SQLITE_JOB_DATABASE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/io/disk.h"
#include "base/limits.h"
#include "base/status.h"
#include "server/jobs/rows/job_database.h"

namespace hpvm::server {

// One step of the file's schema, from version `to_version` - 1.
struct SqliteMigration {
  int to_version = 0;
  const char* sql = nullptr;
};
// Returns the steps of this release, the oldest first.
std::span<const SqliteMigration> SqliteMigrations();

struct SqliteJobDatabaseOptions {
  std::string path;  // Absolute.
  // Nothing is on disk: `path` is a name in this process, and the data is destroyed with the database. Reads and
  // commits take turns, since SQLite has no log in memory that would allow concurrent reads.
  bool in_memory = false;
  std::string vfs;               // SQLite's name of the file system; empty: its default.
  Disk* disk = nullptr;          // The same disk, for operations outside SQLite; null: the real one.
  int read_connections = 5;      // Number of concurrent reads; more wait.
  const Clock* clock = nullptr;  // Times the release of reads' snapshots; borrowed. Null: the machine's.
  int log_pages_max = 4'096;     // Pages of 4 KiB in the log at which it is moved into the database.
  int spare_pages = 256;         // Free pages that stay; at least an eighth of the file does.
  // An older file is rewritten once, so that it can shrink, unless more than this many bytes of it are in use: all of
  // them are held in memory and in the log meanwhile. `note` is told why it was not.
  uint64_t rewrite_bytes_max = 256 * limits::kMiB;
  std::function<void(const std::string&)> note;
  // Time limit of checking the file's structure before it is used; 0: no check.
  int64_t check_ms_max = 0;
  // For inspecting the file of a daemon, running or not: it must exist and be of this version; Commit and NextLease
  // are refused with kFailedPrecondition.
  bool read_only = false;
  std::span<const SqliteMigration> migrations = SqliteMigrations();
};

// Makes the file when there is none. kFailedPrecondition: a newer release wrote it, or it is no job database.
// kDataLoss: it is damaged.
StatusOr<std::unique_ptr<JobDatabase>> OpenSqliteJobDatabase(const SqliteJobDatabaseOptions& options);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_JOBS_SQLITE_SQLITE_JOB_DATABASE_H_
