// SPDX-License-Identifier: Apache-2.0
// Opens the job store of a daemon: the places of its files, and the checks before it is used.
#include <set>
#include <utility>

#include "server/jobs/job_store.h"
#include "server/jobs/sqlite/sqlite_job_database.h"
#include "server/process/log.h"

namespace hpvm::server {
namespace {

// A database of 10,000 jobs is checked in a fifth of that; a larger one as far as the time allows.
constexpr int64_t kCheckMsMax = 250;

Status MakeFolders(Disk& disk, const std::string& folder, const std::string& blobs) {
  HPVMD_RETURN_IF_ERROR(disk.MakeFolder(folder));
  HPVMD_RETURN_IF_ERROR(disk.MakeFolder(blobs));
  const size_t slash = folder.rfind('/');
  HPVMD_RETURN_IF_ERROR(disk.SyncFolder(slash == 0 || slash == std::string::npos ? "/" : folder.substr(0, slash)));
  return disk.SyncFolder(folder);
}

// Removes files that no row names, left by a daemon that ended between a blob and its row.
Status SweepBlobs(JobDatabase& database, BlobFolder& folder) {
  std::set<std::pair<std::string, Sha256>, std::less<>> used;
  HPVMD_RETURN_IF_ERROR(database.ListBlobs([&used](const BlobUse& blob) { used.emplace(blob.tenant, blob.hash); }));
  return folder
      .Sweep([&used](std::string_view tenant, const Sha256& hash) {
        return used.count(std::pair<std::string, Sha256>(tenant, hash)) != 0;
      })
      .status();
}

StatusOr<std::unique_ptr<JobStore>> Assemble(std::unique_ptr<JobDatabase> database, const std::string& blob_folder,
                                             std::function<void(const Status&)> on_broken, Observer* observer,
                                             DiskRoom* room, const ScrubOptions& scrub) {
  auto blobs = std::make_unique<BlobFolder>(RealDisk(), blob_folder);
  HPVMD_RETURN_IF_ERROR(While(SweepBlobs(*database, *blobs), "sweeping \"" + blob_folder + "\""));
  LocalJobStoreOptions options;
  options.database = std::move(database);
  options.blobs = std::move(blobs);
  options.on_broken = std::move(on_broken);
  options.observer = observer;
  options.room = room;
  options.scrub = scrub;
  return CreateLocalJobStore(std::move(options));
}

}  // namespace

StatusOr<std::unique_ptr<JobStore>> OpenLocalJobStore(const std::string& folder,
                                                      std::function<void(const Status&)> on_broken, Observer* observer,
                                                      DiskRoom* room, const ScrubOptions& scrub) {
  const std::string blobs = folder + "/blobs";
  HPVMD_RETURN_IF_ERROR(MakeFolders(RealDisk(), folder, blobs));
  SqliteJobDatabaseOptions options;
  options.path = folder + "/jobs.db";
  options.check_ms_max = kCheckMsMax;
  options.note = [](const std::string& note) { LogWarning(note); };
  // Makes the file with mode 0600, which SQLite's log and index inherit.
  HPVMD_RETURN_IF_ERROR(RealDisk().Open(options.path, Disk::Mode::kOpenOrCreate).status());
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<JobDatabase> database, OpenSqliteJobDatabase(options));
  return Assemble(std::move(database), blobs, std::move(on_broken), observer, room, scrub);
}

StatusOr<std::unique_ptr<JobStore>> OpenMemoryJobStore(const std::string& folder, Observer* observer, DiskRoom* room) {
  const std::string blobs = folder + "/blobs";
  HPVMD_RETURN_IF_ERROR(MakeFolders(RealDisk(), folder, blobs));
  SqliteJobDatabaseOptions options;
  options.path = folder + "/jobs.db";
  options.in_memory = true;
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<JobDatabase> database, OpenSqliteJobDatabase(options));
  return Assemble(std::move(database), blobs, nullptr, observer, room, {});
}

}  // namespace hpvm::server
