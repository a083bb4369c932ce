// SPDX-License-Identifier: Apache-2.0
// Scrub reads everything in a job store, in small steps, and compares it with its checksums and hashes, because damage
// of data that is not read for weeks would otherwise be found only when the data is needed. It has no thread of its
// own: LocalJobStore provides one.
#ifndef HPVMD_SERVER_JOBS_SCRUB_H_
#define HPVMD_SERVER_JOBS_SCRUB_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/io/disk.h"
#include "base/status.h"
#include "server/jobs/blobs/blob_folder.h"
#include "server/jobs/rows/job_database.h"

namespace hpvm::server {

// Used by one thread at a time, which may wait for the disk: never one that tenants wait for.
class Scrub {
 public:
  // Called once for each job, whatever of it is damaged and however often it is read.
  using OnDamage = std::function<void(const JobDamage&)>;
  // Both are borrowed.
  Scrub(JobDatabase& database, BlobFolder& blobs, OnDamage on_damage);
  ~Scrub();

  // Reads about `bytes_max` more bytes: rows in their order, and after some rows the blobs that they name. Returns the
  // number of bytes; 0 at the end, after which the next step begins anew. An error of the disk or the database is
  // about data that could not be read at all; the next step continues after it.
  StatusOr<uint64_t> Step(uint64_t bytes_max);

  uint64_t damaged_jobs() const { return told_.size(); }
  // Number of idempotency keys that the store had lost and knows again (JobDatabase::MendKeys).
  uint64_t mended_keys() const { return mended_keys_; }

 private:
  using BlobName = std::pair<std::string, Sha256>;  // Tenant and hash.
  struct Blob {
    BlobName name;
    uint64_t size_bytes = 0;
    std::vector<std::string> jobs;  // Jobs that name the blob, among the rows read last.
  };
  StatusOr<uint64_t> StepRows(uint64_t bytes_max);
  StatusOr<uint64_t> StepBlob(uint64_t bytes_max);
  void AddBlobsOf(const StoredJob& job);
  // Ends the check of the first blob: unless `status` is OK, the blob is damaged, if a row still needs it.
  Status Judge(const Status& status);
  bool IsNeeded(const BlobName& name);
  void TellOf(const BlobName& name, const std::string& job);
  void Tell(const JobDamage& damage);

  JobDatabase& database_;
  BlobFolder& blobs_;
  const OnDamage on_damage_;
  uint64_t next_row_ = 0;
  bool are_rows_done_ = false;
  uint64_t mended_keys_ = 0;
  std::deque<Blob> waiting_;
  std::unique_ptr<DiskFile> file_;  // File of the first waiting blob; null: not opened yet.
  std::optional<Hasher> hasher_;
  uint64_t at_ = 0;
  std::vector<uint8_t> piece_;
  std::map<BlobName, bool> seen_;                       // Blobs of this pass, and whether each is sound.
  std::set<std::pair<std::string, std::string>> told_;  // Tenant and job.
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_JOBS_SCRUB_H_
