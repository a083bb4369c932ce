// SPDX-License-Identifier: Apache-2.0
#include "server/hosts/blob_sweep.h"

#include <errno.h>
#include <sys/stat.h>

#include <optional>
#include <utility>
#include <vector>

#include "proto/internal/stored_job.pb.h"
#include "server/hosts/await.h"

namespace hpvm::server {
namespace {

constexpr uint32_t kJobsAtOnce = 500;

}  // namespace

StatusOr<uint64_t> BlobSweep::Run() {
  removed_ = 0;
  seen_.clear();
  HPVMD_ASSIGN_OR_RETURN(const std::vector<DiskEntry> tenants, disk_.List(options_.folder));
  Status failed;
  for (const DiskEntry& tenant : tenants) {
    if (tenant.is_folder) {
      failed.Update(SweepTenant(tenant.name));
    }
  }
  unused_ = std::move(seen_);
  HPVMD_RETURN_IF_ERROR(failed);
  return removed_;
}

// The list is read from the newest job to the oldest, so that none that was there before is missed.
StatusOr<BlobSweep::Used> BlobSweep::FindUsed(const std::string& tenant) {
  Used used;
  cluster::ListRequest request{.tenant = tenant, .states = {}, .before = 0, .most = kJobsAtOnce};
  do {
    HPVMD_ASSIGN_OR_RETURN(const cluster::JobPage page,
                           Await<cluster::JobPage>([&](auto done) { store_.List(request, std::move(done)); }));
    for (const cluster::JobView& view : page.jobs) {
      internal::StoredJob row;
      if (!row.ParseFromString(view.record)) {
        return DataLoss("The record of job " + view.id + " is damaged, so the files that it needs are not known.");
      }
      for (const internal::StoredBlob& blob : row.blobs()) {
        if (const std::optional<Sha256> hash = Sha256FromRaw(blob.sha256())) {
          used.insert(ToHex(*hash));
        }
      }
    }
    request.before = page.next;
  } while (request.before != 0);
  return used;
}

Status BlobSweep::SweepTenant(const std::string& tenant) {
  const std::string folder = options_.folder + "/" + tenant;
  HPVMD_ASSIGN_OR_RETURN(const Used used, FindUsed(tenant));
  HPVMD_ASSIGN_OR_RETURN(const std::vector<DiskEntry> entries, disk_.List(folder));
  for (const DiskEntry& entry : entries) {
    if (entry.is_folder) {
      HPVMD_RETURN_IF_ERROR(SweepFolder(folder + "/" + entry.name, used));
    }
  }
  return SweepFolder(folder, {});  // Files of hosts that ended while they wrote them.
}

Status BlobSweep::SweepFolder(const std::string& folder, const Used& used) {
  HPVMD_ASSIGN_OR_RETURN(const std::vector<DiskEntry> entries, disk_.List(folder));
  for (const DiskEntry& entry : entries) {
    const std::string path = folder + "/" + entry.name;
    if (entry.is_folder || used.contains(entry.name)) {
      continue;
    }
    HPVMD_ASSIGN_OR_RETURN(const bool is_old, IsOld(path));
    if (!is_old) {
      continue;
    }
    const auto before = unused_.find(path);
    const Time since = before == unused_.end() ? clock_.Now() : before->second;
    if (clock_.Now() - since < options_.between || before == unused_.end()) {
      seen_.emplace(path, since);
      continue;
    }
    if (const Status removed = disk_.Remove(path); removed.ok()) {
      ++removed_;
    } else if (!absl::IsNotFound(removed)) {  // Another host may have removed it.
      return removed;
    }
  }
  return absl::OkStatus();
}

// Opens the file, since network file systems then ask for its present times.
StatusOr<bool> BlobSweep::IsOld(const std::string& path) {
  const StatusOr<std::unique_ptr<DiskFile>> file = disk_.Open(path, Disk::Mode::kRead);
  if (absl::IsNotFound(file.status())) {
    return false;
  }
  HPVMD_RETURN_IF_ERROR(file.status());
  struct stat facts;
  if (fstat((*file)->fd(), &facts) != 0) {
    return FromErrno(errno, "Reading the times of \"" + path + "\"");
  }
  const int64_t changed = int64_t{facts.st_mtim.tv_sec} * 1'000'000'000 + facts.st_mtim.tv_nsec;
  return Duration(clock_.WallNs() - changed) >= options_.keep_unused;
}

}  // namespace hpvm::server
