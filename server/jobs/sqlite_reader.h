// SPDX-License-Identifier: Apache-2.0
// Reads from the job database's tables: one connection with its prepared statements.
#ifndef HPVMD_SERVER_JOBS_SQLITE_READER_H_
#define HPVMD_SERVER_JOBS_SQLITE_READER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/jobs/job_database.h"
#include "server/jobs/sqlite_connection.h"

namespace hpvm {

// One thread at a time. Methods are JobDatabase's.
class SqliteReader {
 public:
  static StatusOr<std::unique_ptr<SqliteReader>> Create(std::unique_ptr<SqliteConnection> connection);

  StatusOr<StoredJob> Find(std::string_view tenant, std::string_view id);
  StatusOr<KeyRecord> FindKey(std::string_view tenant, std::string_view key);
  StatusOr<StoredRequest> ReadRequest(std::string_view tenant, std::string_view id);
  StatusOr<StoredResults> ReadResults(std::string_view tenant, std::string_view id);
  StatusOr<std::vector<StoredJob>> List(std::string_view tenant, const JobFilter& filter);
  Status LoadLive(const std::function<void(StoredJob)>& each, std::vector<DamagedJob>* damaged);
  Status ListDamaged(const std::function<void(const DamagedJob&)>& each);
  StatusOr<std::vector<FinishedJob>> ListFinished(std::string_view tenant, size_t count_max, bool with_dropped);
  StatusOr<std::map<std::string, TenantUse>> Use();
  Status ListBlobs(const std::function<void(const BlobUse&)>& each);
  StatusOr<bool> UsesBlob(std::string_view tenant, const Sha256& hash);

  SqliteConnection& connection() { return *connection_; }

 private:
  Status PrepareAll();

  std::unique_ptr<SqliteConnection> connection_;
  SqliteStatement find_, find_key_, read_request_, read_results_, list_, list_array_, load_live_, load_stray_,
      list_all_;
  SqliteStatement list_finished_, list_finished_all_, use_, list_blobs_, uses_blob_;
};

}  // namespace hpvm

#endif  // HPVMD_SERVER_JOBS_SQLITE_READER_H_
