// SPDX-License-Identifier: Apache-2.0
// Peer "sqlite_raw": the rows that the daemon wrote, written again by plain SQLite in one process.
//
// Tables, indexes, triggers and every value are copied from the daemon's database, so that both write the same bytes;
// each transaction holds the rows of as many jobs as there were clients, and is synced (WAL, synchronous=FULL).
#ifndef HPVMD_BENCH_SERVICE_SERVICE_SQLITE_H_
#define HPVMD_BENCH_SERVICE_SERVICE_SQLITE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace hpvm::bench {

class SqliteRaw {
 public:
  // `path` must not exist; `source` is the daemon's database. Its present contents are copied and not timed.
  static StatusOr<std::unique_ptr<SqliteRaw>> Open(const std::string& path, const std::string& source);
  virtual ~SqliteRaw() = default;

  // Writes the new rows, of `jobs` jobs, `group` jobs per transaction. Only that is timed.
  virtual StatusOr<Duration> WriteNew(uint64_t jobs, uint64_t group) = 0;
  // Checks that every table has as many rows as the source.
  virtual Status Verify() = 0;
  // Returns "jobs 1, job_requests 1": rows per job in each table, and bytes of their values.
  virtual std::string Describe() const = 0;
};

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_SERVICE_SERVICE_SQLITE_H_
