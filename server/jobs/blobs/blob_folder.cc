// SPDX-License-Identifier: Apache-2.0
#include "server/jobs/blobs/blob_folder.h"

#include <sys/stat.h>

#include <utility>

#include "base/failpoint.h"
#include "server/jobs/blobs/blob_folder_state.h"

namespace hpvm::server {
namespace {

constexpr size_t kTenantBytesMax = 128;

}  // namespace

Status CheckBlobTenant(std::string_view tenant) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyz0123456789_-";
  if (tenant.empty() || tenant.size() > kTenantBytesMax || tenant.find_first_not_of(kAllowed) != tenant.npos) {
    return InvalidArgument("The tenant's name cannot be the name of a folder: it has " + std::to_string(tenant.size()) +
                           " bytes; 1 to " + std::to_string(kTenantBytesMax) + " in [a-z0-9_-] are allowed.");
  }
  return absl::OkStatus();
}

void BlobFolderState::Pin(const BlobKey& key) {
  std::unique_lock lock(mutex);
  settled.wait(lock, [&] {
    auto found = entries.find(key);
    return found == entries.end() || !found->second.is_settling;
  });
  ++entries[key].pins;
}

void BlobFolderState::Unpin(const BlobKey& key) {
  {
    std::lock_guard lock(mutex);
    auto found = entries.find(key);
    if (--found->second.pins > 0) {
      return;
    }
    // Without a query to the database a new blob stays: the next Sweep decides.
    if (!found->second.is_released && (!found->second.is_new || is_used == nullptr)) {
      entries.erase(found);
      return;
    }
    found->second.is_settling = true;
  }
  EndSettling(key, is_used != nullptr && is_used(key.tenant, key.hash));
}

bool BlobFolderState::BeginSettling(const BlobKey& key, bool is_release) {
  std::unique_lock lock(mutex);
  settled.wait(lock, [&] {
    auto found = entries.find(key);
    return found == entries.end() || !found->second.is_settling;
  });
  Entry& entry = entries[key];
  if (entry.pins > 0) {
    entry.is_released = entry.is_released || is_release;
    return false;
  }
  entry.is_settling = true;
  return true;
}

bool BlobFolderState::EndSettling(const BlobKey& key, bool used) {
  bool removed = false;
  if (!used && HPVMD_FAILPOINT("blob.remove.before").ok()) {
    // A file that cannot be removed now is removed by the next Sweep.
    removed = disk.Remove(Path(key)).ok();
    (void)HPVMD_FAILPOINT("blob.remove.after");
  }
  std::lock_guard lock(mutex);
  auto found = entries.find(key);
  found->second.is_settling = false;
  if (found->second.pins == 0) {
    entries.erase(found);
  }
  if (removed) {
    unsynced_names.erase(key);
  }
  settled.notify_all();
  return removed;
}

BlobFolder::BlobFolder(Disk& disk, std::string root)
    : state_(std::make_shared<BlobFolderState>(disk, std::move(root))) {}
BlobFolder::~BlobFolder() = default;

void BlobFolder::SetIsUsed(IsUsed is_used) { state_->is_used = std::move(is_used); }

void BlobFolder::SetRoom(const DiskRoom* room) { state_->room = room; }

void BlobFolder::SetShared() { state_->is_shared = true; }

bool BlobFolderState::MarkUsed(DiskFile& file) const { return !is_shared || futimens(file.fd(), nullptr) == 0; }

StatusOr<std::unique_ptr<DiskFile>> BlobFolder::Open(std::string_view tenant, const Sha256& hash, uint64_t size_bytes) {
  HPVMD_RETURN_IF_ERROR(CheckBlobTenant(tenant));
  const BlobKey key{std::string(tenant), hash};
  auto file = state_->disk.Open(state_->Path(key), Disk::Mode::kRead);
  if (!file.ok()) {
    return absl::IsNotFound(file.status()) ? NotFound("The store has no blob " + ToHex(hash) + ".") : file.status();
  }
  HPVMD_ASSIGN_OR_RETURN(uint64_t size, (*file)->Size());
  if (size != size_bytes) {
    return DataLoss("The blob " + ToHex(hash) + " is damaged: its file has " + std::to_string(size) +
                    " bytes instead of " + std::to_string(size_bytes) + ".");
  }
  return file;
}

StatusOr<std::string> BlobFolder::Read(std::string_view tenant, const Sha256& hash, uint64_t size_bytes) {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<DiskFile> file, Open(tenant, hash, size_bytes));
  std::string bytes(size_bytes, '\0');
  std::span<uint8_t> into(reinterpret_cast<uint8_t*>(bytes.data()), bytes.size());
  HPVMD_ASSIGN_OR_RETURN(size_t got, file->ReadAt(0, into));
  if (got != size_bytes || HashOf(bytes) != hash) {
    return DataLoss("The blob " + ToHex(hash) + " is damaged: its bytes have another hash.");
  }
  return bytes;
}

void BlobFolder::Release(std::string_view tenant, const Sha256& hash) {
  if (!CheckBlobTenant(tenant).ok()) {
    return;
  }
  const BlobKey key{std::string(tenant), hash};
  if (state_->BeginSettling(key, /*is_release=*/true)) {
    state_->EndSettling(key, state_->is_used != nullptr && state_->is_used(tenant, hash));
  }
}

void BlobFolder::Keep(std::string_view tenant, const Sha256& hash) {
  std::lock_guard lock(state_->mutex);
  auto found = state_->entries.find(BlobKey{std::string(tenant), hash});
  if (found != state_->entries.end()) {
    found->second.is_new = false;
    found->second.is_released = false;
  }
}

}  // namespace hpvm::server
