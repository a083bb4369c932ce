// SPDX-License-Identifier: Apache-2.0
// Removes unneeded files, at the start or later: BlobFolder::Sweep.
#include <algorithm>
#include <optional>

#include "base/failpoint.h"
#include "server/jobs/blobs/blob_folder.h"
#include "server/jobs/blobs/blob_folder_state.h"

namespace hpvm::server {
namespace {

// Sweeping is one run of Sweep.
class Sweeping {
 public:
  Sweeping(BlobFolderState& state, const BlobFolder::IsUsed& is_used) : state_(state), is_used_(is_used) {}

  StatusOr<uint64_t> Run() {
    HPVMD_ASSIGN_OR_RETURN(std::vector<DiskEntry> tenants, ListSorted(state_.root));
    for (const DiskEntry& tenant : tenants) {
      if (tenant.is_folder && CheckBlobTenant(tenant.name).ok()) {
        HPVMD_RETURN_IF_ERROR(SweepTenant(tenant.name));
      }
    }
    HPVMD_RETURN_IF_ERROR(SyncFolder(state_.root));
    std::lock_guard lock(state_.mutex);
    state_.known_folders.merge(seen_);
    state_.is_swept = true;
    return removed_;
  }

 private:
  // Sorted by name, so that simulations replay.
  StatusOr<std::vector<DiskEntry>> ListSorted(const std::string& folder) {
    HPVMD_ASSIGN_OR_RETURN(std::vector<DiskEntry> entries, state_.disk.List(folder));
    std::sort(entries.begin(), entries.end(), [](const DiskEntry& a, const DiskEntry& b) { return a.name < b.name; });
    return entries;
  }

  Status SyncFolder(const std::string& folder) {
    HPVMD_RETURN_IF_ERROR(HPVMD_FAILPOINT("blob.sweep.folder_sync"));
    return state_.SyncFolder(folder);
  }

  Status SweepTenant(const std::string& tenant) {
    const std::string folder = state_.TenantFolder(tenant);
    HPVMD_ASSIGN_OR_RETURN(std::vector<DiskEntry> entries, ListSorted(folder));
    for (const DiskEntry& entry : entries) {
      const std::string path = folder + "/" + entry.name;
      if (entry.is_folder && entry.name.size() == 2) {
        HPVMD_RETURN_IF_ERROR(SweepBlobs(tenant, path));
      } else if (!entry.is_folder && !IsBeingWritten(path)) {
        HPVMD_RETURN_IF_ERROR(Remove(path));
      }
    }
    seen_.insert(folder);
    return SyncFolder(folder);
  }

  Status SweepBlobs(const std::string& tenant, const std::string& folder) {
    HPVMD_ASSIGN_OR_RETURN(std::vector<DiskEntry> entries, ListSorted(folder));
    for (const DiskEntry& entry : entries) {
      const std::string path = folder + "/" + entry.name;
      std::optional<Sha256> hash = Sha256FromHex(entry.name);
      if (entry.is_folder) {
        continue;  // Not ours.
      }
      if (!hash || state_.Path({tenant, *hash}) != path) {
        HPVMD_RETURN_IF_ERROR(Remove(path));
        continue;
      }
      const BlobKey key{tenant, *hash};
      if (state_.BeginSettling(key, /*is_release=*/false)) {
        const bool used = is_used_(tenant, *hash);
        removed_ += state_.EndSettling(key, used) ? 1 : 0;
      }
    }
    seen_.insert(folder);
    return SyncFolder(folder);
  }

  bool IsBeingWritten(const std::string& path) {
    std::lock_guard lock(state_.mutex);
    return state_.writing.contains(path);
  }

  Status Remove(const std::string& path) {
    HPVMD_RETURN_IF_ERROR(HPVMD_FAILPOINT("blob.sweep.remove"));
    Status removed = state_.disk.Remove(path);
    if (removed.ok()) {
      ++removed_;
    }
    return absl::IsNotFound(removed) ? absl::OkStatus() : removed;
  }

  BlobFolderState& state_;
  const BlobFolder::IsUsed& is_used_;
  std::set<std::string> seen_;
  uint64_t removed_ = 0;
};

}  // namespace

StatusOr<uint64_t> BlobFolder::Sweep(const IsUsed& is_used) { return Sweeping(*state_, is_used).Run(); }

}  // namespace hpvm::server
