// SPDX-License-Identifier: Apache-2.0
// SqliteReader reads the job database's tables: one connection with its prepared statements.
#ifndef HPVMD_SERVER_JOBS_SQLITE_SQLITE_READER_H_
#define HPVMD_SERVER_JOBS_SQLITE_SQLITE_READER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "server/jobs/rows/job_database.h"
#include "server/sqlite/sqlite_connection.h"

namespace hpvm::server {

// Used by one thread at a time. Methods are JobDatabase's. Those that read many rows release their snapshot every
// kSnapshotMax, whatever is done with each row, and continue after the last one, because a snapshot keeps the log from
// starting anew. So rows of one answer may be of different moments; each is there once.
class SqliteReader {
 public:
  static constexpr Duration kSnapshotMax = std::chrono::milliseconds(10);

  // `clock` is borrowed.
  static StatusOr<std::unique_ptr<SqliteReader>> Create(std::unique_ptr<SqliteConnection> connection,
                                                        const Clock& clock);
  explicit SqliteReader(const Clock& clock) : clock_(clock) {}

  StatusOr<StoredJob> Find(std::string_view tenant, std::string_view id);
  StatusOr<KeyRecord> FindKey(std::string_view tenant, std::string_view key);
  StatusOr<StoredRequest> ReadRequest(std::string_view tenant, std::string_view id);
  StatusOr<StoredResults> ReadResults(std::string_view tenant, std::string_view id);
  StatusOr<std::vector<StoredJob>> ListSome(std::string_view tenant, JobFilter* filter);
  Status LoadLive(const std::function<void(LiveRow)>& each, std::vector<DamagedJob>* damaged);
  Status ListDamaged(const std::function<void(const DamagedJob&)>& each);
  StatusOr<std::vector<uint64_t>> ListKeyless();
  StatusOr<std::vector<FinishedJob>> ListFinished(std::string_view tenant, size_t count_max, bool with_dropped);
  StatusOr<std::map<std::string, TenantUse>> Use();
  Status ListBlobs(const std::function<void(const BlobUse&)>& each);
  StatusOr<bool> UsesBlob(std::string_view tenant, const Sha256& hash);
  StatusOr<ScrubbedRows> Scrub(uint64_t from, uint64_t bytes_max);

  SqliteConnection& connection() { return *connection_; }

 private:
  Status PrepareAll();
  // `start` starts the statement after the last row that `each` has seen; `each` returns false when it wants no more.
  Status ForEachRow(SqliteStatement& statement, const std::function<void()>& start, const std::function<bool()>& each);

  const Clock& clock_;
  std::unique_ptr<SqliteConnection> connection_;
  SqliteStatement find_, find_key_, read_request_, read_results_, list_, list_array_, load_live_, load_stray_,
      list_all_, list_keyless_, scrub_;
  SqliteStatement list_finished_, list_finished_all_, use_, list_blobs_, uses_blob_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_JOBS_SQLITE_SQLITE_READER_H_
