// SPDX-License-Identifier: Apache-2.0
// Reads everything that a job store has, in small steps, and compares it with its checksums and hashes: what nobody
// reads for weeks would otherwise be found damaged only when it is needed. No thread of its own: LocalJobStore has one
// for it.
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

// One thread at a time, which may wait for the disk: never one that tenants wait for.
class Scrub {
 public:
  // Told of each job once, whatever of it is damaged and however often it is read.
  using OnDamage = std::function<void(const JobDamage&)>;
  // Borrows both.
  Scrub(JobDatabase& database, BlobFolder& blobs, OnDamage on_damage);
  ~Scrub();

  // Reads about so many bytes more: rows in their order, and behind each some the blobs that they name. Answers how
  // many it were; 0: this was the end, and the next step begins anew. A status is the disk's or the database's, of what
  // could not be read at all; the next step goes on behind it.
  StatusOr<uint64_t> Step(uint64_t bytes_max);

  uint64_t damaged_jobs() const { return told_.size(); }
  // Idempotency keys that the store had lost and knows again (JobDatabase::MendKeys).
  uint64_t mended_keys() const { return mended_keys_; }

 private:
  using BlobName = std::pair<std::string, Sha256>;  // The tenant's.
  struct Blob {
    BlobName name;
    uint64_t size_bytes = 0;
    std::vector<std::string> jobs;  // That name it, of the rows that were read last.
  };
  StatusOr<uint64_t> StepRows(uint64_t bytes_max);
  StatusOr<uint64_t> StepBlob(uint64_t bytes_max);
  void AddBlobsOf(const StoredJob& job);
  // It is not what its name says, unless its last row went meanwhile.
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
  std::unique_ptr<DiskFile> file_;  // Of the first that waits; null: not opened yet.
  std::optional<Hasher> hasher_;
  uint64_t at_ = 0;
  std::vector<uint8_t> piece_;
  std::map<BlobName, bool> seen_;                       // This time, and whether it is sound.
  std::set<std::pair<std::string, std::string>> told_;  // Tenant and job.
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_JOBS_SCRUB_H_
