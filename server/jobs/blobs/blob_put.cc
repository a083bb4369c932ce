// SPDX-License-Identifier: Apache-2.0
// Writes blobs: BlobFolder::Put, PutMany, BeginPut and Pin.
#include <algorithm>
#include <optional>
#include <utility>

#include "base/failpoint.h"
#include "base/io/memfd.h"
#include "server/jobs/blobs/blob_folder.h"
#include "server/jobs/blobs/blob_folder_state.h"
#include "server/jobs/blobs/disk_room.h"

namespace hpvm::server {
namespace {

constexpr uint64_t kPieceBytes = 1 << 20, kStepBytes = 4 << 20;
constexpr uint64_t kUnsyncedBytesMax = 16 << 20;
constexpr size_t kRenamesPerStep = 16;
// Limit on tries of names that temporary files of an earlier process may have, until a Sweep removes them.
constexpr int kTemporaryNamesMax = 10'000;

uint64_t SourceBytes(const BlobSource& source) { return source.fd >= 0 ? source.fd_bytes : source.bytes.size(); }

// Copies the next piece of the source into our own memory, because its owner may change it while it is hashed and
// written.
Status ReadPiece(const BlobSource& source, uint64_t offset, std::span<uint8_t> into) {
  if (source.fd < 0) {
    std::copy_n(source.bytes.begin() + static_cast<ptrdiff_t>(offset), into.size(), into.begin());
    return absl::OkStatus();
  }
  if (Status read = ReadAt(source.fd, offset, into); !read.ok()) {
    return Internal("The bytes of a blob cannot be read at offset " + std::to_string(offset) + ": " + Message(read));
  }
  return absl::OkStatus();
}

// The destructor removes unfinished files.
class Putting final : public BlobPut {
 public:
  Putting(std::shared_ptr<BlobFolderState> state, std::string_view tenant, std::vector<BlobSource> sources)
      : state_(std::move(state)), tenant_(tenant), sources_(std::move(sources)) {}
  ~Putting() override {
    for (Blob& blob : blobs_) {
      Discard(blob);
    }
  }

  // Adds an existing blob, without its bytes.
  Status AddPresent(const Sha256& hash, uint64_t size_bytes) {
    blobs_.push_back({hash, size_bytes, MakePin(hash), {}});
    if (IsThere(blobs_.back())) {
      return absl::OkStatus();
    }
    return NotFound("The store has no blob " + ToHex(hash) + " of " + std::to_string(size_bytes) + " bytes.");
  }

  StatusOr<bool> Step() override {
    if (copied_ < sources_.size()) {
      HPVMD_RETURN_IF_ERROR(file_ == nullptr ? Begin(sources_[copied_]) : Copy(sources_[copied_]));
      return false;
    }
    if (placed_ < blobs_.size()) {
      HPVMD_RETURN_IF_ERROR(PlaceSome());
      return false;
    }
    if (!to_sync_.empty()) {
      HPVMD_RETURN_IF_ERROR(SyncOneFolder());
      return false;
    }
    HPVMD_RETURN_IF_ERROR(state_->CheckSound());
    std::lock_guard lock(state_->mutex);
    for (const Blob& blob : blobs_) {
      state_->unsynced_names.erase(BlobKey{tenant_, blob.hash});
    }
    state_->known_folders.insert(made_.begin(), made_.end());
    return true;
  }

  std::vector<PinnedBlob> Take() override {
    std::vector<PinnedBlob> taken;
    taken.reserve(blobs_.size());
    for (Blob& blob : blobs_) {
      taken.push_back({blob.hash, blob.size_bytes, std::move(blob.pin)});
    }
    return taken;
  }

 private:
  struct Blob {
    Sha256 hash;
    uint64_t size_bytes = 0;
    BlobPinRef pin;
    std::string temporary;  // Empty: the file has its name.
  };

  std::string tenant_folder() const { return state_->TenantFolder(tenant_); }
  BlobPinRef MakePin(const Sha256& hash) { return std::make_shared<const BlobPin>(state_, BlobKey{tenant_, hash}); }

  // Returns true when the blob's file exists, which then stays as long as the pin is held. A name that a crash could
  // take back is synced with the others.
  bool IsThere(const Blob& blob) {
    const BlobKey key{tenant_, blob.hash};
    auto file = state_->disk.Open(state_->Path(key), Disk::Mode::kRead);
    if (!file.ok()) {
      return false;
    }
    auto size = (*file)->Size();
    if (!size.ok() || *size != blob.size_bytes || !state_->MarkUsed(**file)) {
      return false;  // Damaged, or perhaps removed soon: overwritten.
    }
    std::lock_guard lock(state_->mutex);
    if (!state_->is_swept || state_->unsynced_names.contains(key)) {
      to_sync_.insert({state_->root, tenant_folder(), state_->Folder(key)});
    }
    return true;
  }

  Status MakeFolder(const std::string& parent, const std::string& folder) {
    {
      std::lock_guard lock(state_->mutex);
      if (state_->known_folders.contains(folder)) {
        return absl::OkStatus();
      }
    }
    HPVMD_RETURN_IF_ERROR(state_->disk.MakeFolder(folder));
    to_sync_.insert(parent);
    made_.insert(folder);
    return absl::OkStatus();
  }

  StatusOr<std::unique_ptr<DiskFile>> CreateTemporary(Blob& blob) {
    for (int tries = 0; tries < kTemporaryNamesMax; ++tries) {
      std::string path = tenant_folder() + "/" + std::string(kTemporaryBlobPrefix) +
                         std::to_string(state_->next_temporary.fetch_add(1, std::memory_order_relaxed));
      {
        std::lock_guard lock(state_->mutex);
        state_->writing.insert(path);
      }
      auto file = state_->disk.Open(path, Disk::Mode::kCreate);
      if (file.ok()) {
        blob.temporary = std::move(path);
        return file;
      }
      std::lock_guard lock(state_->mutex);
      state_->writing.erase(path);
      if (!absl::IsAlreadyExists(file.status())) {
        return file.status();
      }
    }
    return ResourceExhausted("Every name for a temporary file in \"" + tenant_folder() + "\" is taken.");
  }

  Status Begin(const BlobSource& source) {
    blobs_.emplace_back();
    Blob& blob = blobs_.back();
    blob.size_bytes = SourceBytes(source);
    if (source.known_hash != nullptr) {
      blob.hash = *source.known_hash;
      blob.pin = MakePin(blob.hash);
      if (IsThere(blob)) {
        ++copied_;
        return absl::OkStatus();
      }
    }
    HPVMD_RETURN_IF_ERROR(MakeFolder(state_->root, tenant_folder()));
    HPVMD_RETURN_IF_ERROR(HPVMD_FAILPOINT("blob.write.before"));
    HPVMD_ASSIGN_OR_RETURN(file_, CreateTemporary(blob));
    hasher_.emplace();
    offset_ = unsynced_ = 0;
    return Copy(source);
  }

  // Copies a part of the present file; a large file is synced on the way, so that the last sync takes no longer than
  // the others.
  Status Copy(const BlobSource& source) {
    Blob& blob = blobs_.back();
    std::vector<uint8_t> piece;
    for (const uint64_t end = std::min(blob.size_bytes, offset_ + kStepBytes); offset_ < end; offset_ += piece.size()) {
      piece.resize(std::min(end - offset_, kPieceBytes));
      HPVMD_RETURN_IF_ERROR(ReadPiece(source, offset_, piece));
      hasher_->Add(piece);
      HPVMD_RETURN_IF_ERROR(file_->WriteAt(offset_, piece));
      unsynced_ += piece.size();
    }
    if (offset_ < blob.size_bytes) {
      return unsynced_ < kUnsyncedBytesMax ? absl::OkStatus() : (unsynced_ = 0, Sync(*file_));
    }
    blob.hash = hasher_->Finish();
    const std::unique_ptr<DiskFile> file = std::move(file_);
    ++copied_;
    blob.pin = MakePin(blob.hash);
    if (IsThere(blob)) {
      Discard(blob);
      return absl::OkStatus();
    }
    return Sync(*file);
  }

  // Gives some files their names.
  Status PlaceSome() {
    for (const size_t end = std::min(blobs_.size(), placed_ + kRenamesPerStep); placed_ < end; ++placed_) {
      Blob& blob = blobs_[placed_];
      if (!blob.temporary.empty()) {
        HPVMD_RETURN_IF_ERROR(Rename(blob, BlobKey{tenant_, blob.hash}));
      }
    }
    return absl::OkStatus();
  }

  Status Sync(DiskFile& file) {
    HPVMD_RETURN_IF_ERROR(HPVMD_FAILPOINT("blob.sync.before"));
    Status synced = file.Sync();
    if (!synced.ok()) {
      // Some file systems report a full disk here: another file may still be written, when there is room.
      return absl::IsResourceExhausted(synced) ? synced : state_->Break(synced);
    }
    return HPVMD_FAILPOINT("blob.sync.after");
  }

  Status Rename(Blob& blob, const BlobKey& key) {
    HPVMD_RETURN_IF_ERROR(MakeFolder(tenant_folder(), state_->Folder(key)));
    {
      std::lock_guard lock(state_->mutex);
      state_->unsynced_names.insert(key);
      state_->entries[key].is_new = true;
    }
    HPVMD_RETURN_IF_ERROR(HPVMD_FAILPOINT("blob.rename.before"));
    HPVMD_RETURN_IF_ERROR(state_->disk.Rename(blob.temporary, state_->Path(key)));
    {
      std::lock_guard lock(state_->mutex);
      state_->writing.erase(blob.temporary);
    }
    blob.temporary.clear();
    to_sync_.insert(state_->Folder(key));
    return HPVMD_FAILPOINT("blob.rename.after");
  }

  Status SyncOneFolder() {
    const std::string folder = *to_sync_.begin();
    HPVMD_RETURN_IF_ERROR(HPVMD_FAILPOINT("blob.folder_sync.before"));
    HPVMD_RETURN_IF_ERROR(state_->SyncFolder(folder));
    to_sync_.erase(to_sync_.begin());
    return HPVMD_FAILPOINT("blob.folder_sync.after");
  }

  void Discard(Blob& blob) {
    if (blob.temporary.empty()) {
      return;
    }
    (void)state_->disk.Remove(blob.temporary);  // On failure the next Sweep removes it.
    std::lock_guard lock(state_->mutex);
    state_->writing.erase(blob.temporary);
    blob.temporary.clear();
  }

  const std::shared_ptr<BlobFolderState> state_;
  const std::string tenant_;
  const std::vector<BlobSource> sources_;
  size_t copied_ = 0, placed_ = 0;  // Numbers of sources copied and of blobs renamed.
  std::unique_ptr<DiskFile> file_;  // File being copied, of the last blob.
  std::optional<Hasher> hasher_;
  uint64_t offset_ = 0, unsynced_ = 0;
  std::vector<Blob> blobs_;
  std::set<std::string> made_;
  std::set<std::string> to_sync_;  // Sorted, so that a folder comes before its contents.
};

}  // namespace

StatusOr<PinnedBlob> BlobFolder::Put(std::string_view tenant, const BlobSource& source) {
  HPVMD_ASSIGN_OR_RETURN(std::vector<PinnedBlob> blobs, PutMany(tenant, {&source, 1}));
  return std::move(blobs[0]);
}

StatusOr<std::vector<PinnedBlob>> BlobFolder::PutMany(std::string_view tenant, std::span<const BlobSource> sources) {
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<BlobPut> put, BeginPut(tenant, {sources.begin(), sources.end()}));
  bool is_done = false;
  while (!is_done) {
    HPVMD_ASSIGN_OR_RETURN(is_done, put->Step());
  }
  return put->Take();
}

StatusOr<std::unique_ptr<BlobPut>> BlobFolder::BeginPut(std::string_view tenant, std::vector<BlobSource> sources) {
  HPVMD_RETURN_IF_ERROR(CheckBlobTenant(tenant));
  if (state_->room != nullptr) {
    // Checked before the first byte, because half of a blob would only take the last room from others.
    uint64_t bytes = 0;
    for (const BlobSource& source : sources) {
      bytes += SourceBytes(source);
    }
    HPVMD_RETURN_IF_ERROR(state_->room->Admit(bytes));
  }
  return std::make_unique<Putting>(state_, tenant, std::move(sources));
}

StatusOr<PinnedBlob> BlobFolder::Pin(std::string_view tenant, const Sha256& hash, uint64_t size_bytes) {
  HPVMD_RETURN_IF_ERROR(CheckBlobTenant(tenant));
  Putting putting(state_, tenant, {});
  HPVMD_RETURN_IF_ERROR(putting.AddPresent(hash, size_bytes));
  bool is_done = false;
  while (!is_done) {
    HPVMD_ASSIGN_OR_RETURN(is_done, putting.Step());
  }
  return std::move(putting.Take()[0]);
}

}  // namespace hpvm::server
