// SPDX-License-Identifier: Apache-2.0
#include "server/jobs/job_admin.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/io/fd.h"
#include "server/jobs/blobs/blob_folder.h"
#include "server/jobs/rows/job_rules.h"
#include "server/jobs/sqlite/sqlite_job_database.h"
#include "server/jobs/sqlite/sqlite_rename.h"

namespace hpvm::server {
namespace {

std::string DatabaseIn(const std::string& folder) { return folder + "/jobs.db"; }
std::string BlobsIn(const std::string& folder) { return folder + "/blobs"; }

StatusOr<std::unique_ptr<JobDatabase>> OpenForReading(const std::string& folder) {
  SqliteJobDatabaseOptions options;
  options.path = DatabaseIn(folder);
  options.read_only = true;
  HPVMD_RETURN_IF_ERROR(While(RealDisk().Open(options.path, Disk::Mode::kRead).status(), "opening a job store"));
  return OpenSqliteJobDatabase(options);
}

Status ForEachJob(JobDatabase& database, const std::function<Status(const StoredJob&)>& each) {
  HPVMD_ASSIGN_OR_RETURN(const auto uses, database.Use());
  for (const auto& [tenant, use] : uses) {
    JobFilter filter;
    while (true) {
      HPVMD_ASSIGN_OR_RETURN(const std::vector<StoredJob> page, database.List(tenant, filter));
      for (const StoredJob& job : page) {
        HPVMD_RETURN_IF_ERROR(each(job));
      }
      if (page.empty()) {
        break;
      }
      filter.before_sequence = page.back().sequence();
    }
  }
  return absl::OkStatus();
}

// Reads `source` to its end. kDataLoss when its contents do not match its name.
Status CheckBlob(BlobFolder& source, std::string_view tenant, const Sha256& hash, uint64_t size_bytes) {
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<DiskFile> file, source.Open(tenant, hash, size_bytes));
  constexpr size_t kPieceBytes = size_t{1} << 20;
  std::vector<uint8_t> piece(std::min<uint64_t>(kPieceBytes, size_bytes));
  Hasher hasher;
  for (uint64_t at = 0; at < size_bytes;) {
    HPVMD_ASSIGN_OR_RETURN(const size_t count, file->ReadAt(at, piece));
    if (count == 0) {
      break;
    }
    hasher.Add(std::span<const uint8_t>(piece.data(), count));
    at += count;
  }
  return hasher.Finish() == hash ? absl::OkStatus() : DataLoss("Blob " + ToHex(hash) + " is damaged.");
}

// --- Backup ---

class BackUp {
 public:
  BackUp(const std::string& from, std::string part)
      : part_(std::move(part)), source_(RealDisk(), BlobsIn(from)), target_(RealDisk(), BlobsIn(part_)) {}

  StatusOr<JobBackup> Make(JobDatabase& database);

 private:
  Status CopyBlobsOf(const StoredJob& job);
  Status CopyBlob(const std::string& tenant, const Sha256& hash, uint64_t size_bytes);
  void GiveUp(const StoredJob& job, const Status& why);

  const std::string part_;
  BlobFolder source_, target_;
  JobBackup backup_;
  std::map<std::pair<std::string, Sha256>, Status> copied_;
  std::vector<JobWrite> repairs_;
};

StatusOr<JobBackup> BackUp::Make(JobDatabase& database) {
  HPVMD_RETURN_IF_ERROR(RealDisk().MakeFolder(part_));
  HPVMD_RETURN_IF_ERROR(RealDisk().MakeFolder(BlobsIn(part_)));
  HPVMD_RETURN_IF_ERROR(database.BackUp(DatabaseIn(part_)));
  HPVMD_RETURN_IF_ERROR(HPVMD_FAILPOINT("store.backup.before_blobs"));
  {
    SqliteJobDatabaseOptions options;
    options.path = DatabaseIn(part_);
    HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<JobDatabase> copy, OpenSqliteJobDatabase(options));
    HPVMD_RETURN_IF_ERROR(ForEachJob(*copy, [this](const StoredJob& job) { return CopyBlobsOf(job); }));
    std::vector<WriteResult> results;
    HPVMD_RETURN_IF_ERROR(copy->Commit(repairs_, &results));
  }
  HPVMD_RETURN_IF_ERROR(RealDisk().SyncFolder(BlobsIn(part_)));
  HPVMD_RETURN_IF_ERROR(RealDisk().SyncFolder(part_));
  return std::move(backup_);
}

Status BackUp::CopyBlobsOf(const StoredJob& job) {
  ++backup_.jobs;
  for (const internal::StoredBlob& blob : job.blobs()) {
    const StatusOr<Sha256> hash = BlobNamedBy("Job \"" + job.job().id() + "\"", blob.sha256());
    Status status = hash.status();
    if (hash.ok()) {
      const auto [copied, is_new] = copied_.try_emplace({job.tenant(), *hash});
      if (is_new) {
        copied->second = CopyBlob(job.tenant(), *hash, blob.size_bytes());
      }
      status = copied->second;
    }
    if (absl::IsNotFound(status) || absl::IsDataLoss(status)) {
      GiveUp(job, status);
      return absl::OkStatus();
    }
    HPVMD_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

Status BackUp::CopyBlob(const std::string& tenant, const Sha256& hash, uint64_t size_bytes) {
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<DiskFile> file, source_.Open(tenant, hash, size_bytes));
  BlobSource from;
  from.fd = file->fd();
  from.fd_bytes = size_bytes;
  HPVMD_ASSIGN_OR_RETURN(const PinnedBlob put, target_.Put(tenant, from));
  if (put.hash != hash) {
    target_.Release(tenant, put.hash);
    return DataLoss("Blob " + ToHex(hash) + " is damaged.");
  }
  target_.Keep(tenant, hash);
  ++backup_.blobs;
  backup_.blob_bytes += size_bytes;
  return absl::OkStatus();
}

// Drops a job that the backup cannot hold: the daemon dropped it meanwhile, or its data was lost before.
void BackUp::GiveUp(const StoredJob& job, const Status& why) {
  backup_.notes.push_back("Job \"" + job.job().id() + "\" of tenant \"" + job.tenant() +
                          "\" is dropped in the backup: " + Message(why));
  if (!IsTerminal(job.job().state())) {
    ChangeJob end{job.tenant(), job.job().id(), job.job().state(), job.job().attempt(), job.lease(), job, std::nullopt};
    v1::Job& ended = *end.job.mutable_job();
    ended.set_state(v1::JOB_STATE_FAILED);
    ended.set_ended_unix_ns(RealClock().WallNs());
    ended.mutable_error()->set_code(static_cast<int32_t>(absl::StatusCode::kDataLoss));
    ended.mutable_error()->set_message("A file that the job needs was missing when its backup was made.");
    repairs_.push_back(std::move(end));
  }
  repairs_.push_back(DropJob{job.tenant(), job.job().id(), false});
}

// --- Check ---

// The job may have been dropped since it was listed.
bool StillNeeds(JobDatabase& database, const StoredJob& job, const Sha256& hash) {
  const StatusOr<StoredJob> now = database.Find(job.tenant(), job.job().id());
  if (!now.ok()) {
    return false;
  }
  const std::vector<Sha256> blobs = BlobsOf(*now);
  return std::binary_search(blobs.begin(), blobs.end(), hash);
}

Status CheckBlobsOf(JobDatabase& database, BlobFolder& folder, const StoredJob& job,
                    std::set<std::pair<std::string, Sha256>>* checked, std::vector<std::string>* faults) {
  for (const internal::StoredBlob& blob : job.blobs()) {
    const StatusOr<Sha256> hash = BlobNamedBy("Job \"" + job.job().id() + "\"", blob.sha256());
    if (!hash.ok()) {
      faults->push_back(Message(hash.status()));
      continue;
    }
    if (!checked->emplace(job.tenant(), *hash).second) {
      continue;
    }
    const Status status = CheckBlob(folder, job.tenant(), *hash, blob.size_bytes());
    if ((absl::IsNotFound(status) && !StillNeeds(database, job, *hash)) || status.ok()) {
      continue;
    }
    if (!absl::IsNotFound(status) && !absl::IsDataLoss(status)) {
      return status;
    }
    faults->push_back("Job \"" + job.job().id() + "\" of tenant \"" + job.tenant() +
                      "\" lacks data that it needs: " + Message(status));
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<JobBackup> BackUpJobs(const std::string& folder, const std::string& to) {
  if (to.empty() || to.front() != '/' || folder.empty() || folder.front() != '/') {
    return InvalidArgument("A backup needs absolute paths, not \"" + folder + "\" and \"" + to + "\".");
  }
  const std::string parent = to.substr(0, std::max<size_t>(1, to.rfind('/')));
  HPVMD_ASSIGN_OR_RETURN(const std::vector<DiskEntry> beside, RealDisk().List(parent));
  const std::string name = to.substr(to.rfind('/') + 1), part = name + ".part";
  for (const DiskEntry& entry : beside) {
    if (entry.name == name || entry.name == part) {
      return AlreadyExists("\"" + parent + "/" + entry.name + "\" exists already.");
    }
  }
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<JobDatabase> database, OpenForReading(folder));
  BackUp backup(folder, to + ".part");
  StatusOr<JobBackup> made = backup.Make(*database);
  HPVMD_RETURN_IF_ERROR(While(made.status(), "making a backup in \"" + to + ".part\", which stays"));
  HPVMD_RETURN_IF_ERROR(RealDisk().Rename(to + ".part", to));
  HPVMD_RETURN_IF_ERROR(RealDisk().SyncFolder(parent));
  return made;
}

StatusOr<std::vector<std::string>> CheckJobs(const std::string& folder) {
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<JobDatabase> database, OpenForReading(folder));
  HPVMD_ASSIGN_OR_RETURN(std::vector<std::string> faults, database->Check());
  BlobFolder blobs(RealDisk(), BlobsIn(folder));
  std::set<std::pair<std::string, Sha256>> checked;
  const Status status = ForEachJob(
      *database, [&](const StoredJob& job) { return CheckBlobsOf(*database, blobs, job, &checked, &faults); });
  if (absl::IsDataLoss(status)) {
    faults.push_back(Message(status));
  } else {
    HPVMD_RETURN_IF_ERROR(status);
  }
  return faults;
}

// Files have both names until the database has changed, so that an interruption at any moment loses none: files that
// no row needs are removed by the next start's sweep.
StatusOr<uint64_t> RenameTenantJobs(const std::string& folder, const std::string& tenant, const std::string& name) {
  namespace fs = std::filesystem;
  if (!fs::exists(DatabaseIn(folder))) {
    return uint64_t{0};
  }
  const fs::path from = fs::path(BlobsIn(folder)) / tenant, to = fs::path(BlobsIn(folder)) / name;
  std::error_code error;
  if (fs::exists(from)) {
    fs::create_directories(to, error);
    fs::copy(from, to,
             fs::copy_options::recursive | fs::copy_options::create_hard_links | fs::copy_options::skip_existing,
             error);
    if (error) {
      return FromErrno(error.value(), "Linking the files of \"" + from.string() + "\" into \"" + to.string() + "\"");
    }
    const UniqueFd blobs(open(to.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!blobs.valid() || syncfs(blobs.get()) != 0) {
      return FromErrno(errno, "Writing \"" + to.string() + "\" to the disk");
    }
  }
  HPVMD_ASSIGN_OR_RETURN(const uint64_t jobs, RenameTenantOfJobs(DatabaseIn(folder), tenant, name));
  fs::remove_all(from, error);
  return jobs;
}

}  // namespace hpvm::server
