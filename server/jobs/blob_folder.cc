// SPDX-License-Identifier: Apache-2.0
#include "server/jobs/blob_folder.h"

#include <algorithm>
#include <atomic>
#include <compare>
#include <condition_variable>
#include <set>
#include <utility>

#include "base/failpoint.h"
#include "base/memfd.h"

namespace hpvm {
namespace {

constexpr uint64_t kPieceBytes = 1 << 20;
constexpr size_t kTenantBytesMax = 128;
constexpr std::string_view kTemporaryPrefix = ".new-";
// Names taken by temporary files of an earlier process that no Sweep has removed yet.
constexpr int kTemporaryNamesMax = 10'000;

// A folder of its own below the root, whoever asks.
Status CheckTenant(std::string_view tenant) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyz0123456789_-";
  if (tenant.empty() || tenant.size() > kTenantBytesMax || tenant.find_first_not_of(kAllowed) != tenant.npos) {
    return InvalidArgument("The tenant's name cannot be the name of a folder: it has " + std::to_string(tenant.size()) +
                           " bytes, of which 1 to " + std::to_string(kTenantBytesMax) + " in [a-z0-9_-] are allowed.");
  }
  return absl::OkStatus();
}

struct Key {
  std::string tenant;
  Sha256 hash;
  friend auto operator<=>(const Key&, const Key&) = default;
};

uint64_t SourceBytes(const BlobSource& source) { return source.fd >= 0 ? source.fd_bytes : source.bytes.size(); }

// The next piece of the source, in our own memory: its owner may change it while it is hashed and written.
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

}  // namespace

using IsUsed = BlobFolder::IsUsed;

struct BlobFolderState {
  // What holds or removes a blob's file; absent when nobody does.
  struct Entry {
    uint32_t pins = 0;
    // Being removed, unless a row names it: new pins wait.
    bool is_settling = false;
    // No row has named it yet, as far as is known here.
    bool is_new = false;
    // No row named it when it was released.
    bool is_released = false;
  };

  Disk& disk;
  const std::string root;
  IsUsed is_used;
  std::atomic<uint64_t> next_temporary{0};

  std::mutex mutex;
  std::condition_variable settled;
  std::map<Key, Entry> entries;
  // Files that have their name without their folder having been synced since.
  std::set<Key> unsynced_names;
  // Folders that are there after a crash.
  std::set<std::string> known_folders;
  // Temporary files of this process.
  std::set<std::string> writing;
  // Every name that was there at the start is durable.
  bool is_swept = false;

  BlobFolderState(Disk& disk, std::string root) : disk(disk), root(std::move(root)) {}

  std::string TenantFolder(std::string_view tenant) const { return root + "/" + std::string(tenant); }
  std::string Folder(const Key& key) const { return TenantFolder(key.tenant) + "/" + ToHex(key.hash).substr(0, 2); }
  std::string Path(const Key& key) const { return Folder(key) + "/" + ToHex(key.hash); }

  void Pin(const Key& key);
  void Unpin(const Key& key);
  // Locks `key` against new pins; false when pins hold it, which is then marked if it is a release.
  bool BeginSettling(const Key& key, bool is_release);
  // Removes the file unless `used`; answers whether it did.
  bool EndSettling(const Key& key, bool used);
};

class BlobPin {
 public:
  BlobPin(std::shared_ptr<BlobFolderState> state, Key key) : state_(std::move(state)), key_(std::move(key)) {
    state_->Pin(key_);
  }
  ~BlobPin() { state_->Unpin(key_); }
  BlobPin(const BlobPin&) = delete;
  BlobPin& operator=(const BlobPin&) = delete;

  const Key& key() const { return key_; }

 private:
  std::shared_ptr<BlobFolderState> state_;
  const Key key_;
};

void BlobFolderState::Pin(const Key& key) {
  std::unique_lock lock(mutex);
  settled.wait(lock, [&] {
    auto found = entries.find(key);
    return found == entries.end() || !found->second.is_settling;
  });
  ++entries[key].pins;
}

void BlobFolderState::Unpin(const Key& key) {
  {
    std::lock_guard lock(mutex);
    auto found = entries.find(key);
    if (--found->second.pins > 0) {
      return;
    }
    // Without the database's word a new one stays: the next Sweep knows.
    if (!found->second.is_released && (!found->second.is_new || is_used == nullptr)) {
      entries.erase(found);
      return;
    }
    found->second.is_settling = true;
  }
  EndSettling(key, is_used != nullptr && is_used(key.tenant, key.hash));
}

bool BlobFolderState::BeginSettling(const Key& key, bool is_release) {
  std::unique_lock lock(mutex);
  settled.wait(lock, [&] {
    auto found = entries.find(key);
    return found == entries.end() || !found->second.is_settling;
  });
  Entry& entry = entries[key];
  if (entry.pins > 0 && !HPVMD_MUTANT("blob_release_ignores_pins")) {
    entry.is_released = entry.is_released || is_release;
    return false;
  }
  entry.is_settling = true;
  return true;
}

bool BlobFolderState::EndSettling(const Key& key, bool used) {
  bool removed = false;
  if (!used && HPVMD_FAILPOINT("blob.remove.before").ok()) {
    // What cannot be removed now is removed by the next Sweep.
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

namespace {

// One call of PutMany: whatever it leaves undone, its destructor removes.
class Putting {
 public:
  Putting(std::shared_ptr<BlobFolderState> state, std::string_view tenant)
      : state_(std::move(state)), tenant_(tenant) {}
  ~Putting() {
    for (Blob& blob : blobs_) {
      Discard(blob);
    }
  }

  Status Add(const BlobSource& source) {
    blobs_.emplace_back();
    Blob& blob = blobs_.back();
    blob.size_bytes = SourceBytes(source);
    if (source.known_hash != nullptr) {
      blob.hash = *source.known_hash;
      blob.pin = MakePin(blob.hash);
      if (IsThere(blob)) {
        return absl::OkStatus();
      }
    }
    HPVMD_RETURN_IF_ERROR(MakeFolder(state_->root, tenant_folder()));
    HPVMD_RETURN_IF_ERROR(HPVMD_FAILPOINT("blob.write.before"));
    HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<DiskFile> file, CreateTemporary(blob));
    HPVMD_RETURN_IF_ERROR(Copy(source, *file, blob));
    blob.pin = MakePin(blob.hash);
    if (IsThere(blob)) {
      Discard(blob);
      return absl::OkStatus();
    }
    HPVMD_RETURN_IF_ERROR(HPVMD_FAILPOINT("blob.sync.before"));
    if (!HPVMD_MUTANT("blob_skip_sync")) {
      HPVMD_RETURN_IF_ERROR(file->Sync());
    }
    return HPVMD_FAILPOINT("blob.sync.after");
  }

  // One that is there, without its bytes.
  Status AddPresent(const Sha256& hash, uint64_t size_bytes) {
    blobs_.push_back({hash, size_bytes, MakePin(hash), {}});
    if (IsThere(blobs_.back())) {
      return absl::OkStatus();
    }
    return NotFound("The store has no blob " + ToHex(hash) + " of " + std::to_string(size_bytes) + " bytes.");
  }

  // Gives the files their names, durably.
  Status Place() {
    for (Blob& blob : blobs_) {
      const Key key{tenant_, blob.hash};
      if (!blob.temporary.empty()) {
        HPVMD_RETURN_IF_ERROR(Rename(blob, key));
      }
    }
    HPVMD_RETURN_IF_ERROR(SyncFolders());
    std::lock_guard lock(state_->mutex);
    for (const Blob& blob : blobs_) {
      state_->unsynced_names.erase(Key{tenant_, blob.hash});
    }
    state_->known_folders.insert(made_.begin(), made_.end());
    return absl::OkStatus();
  }

  std::vector<PinnedBlob> Take() {
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
  BlobPinRef MakePin(const Sha256& hash) { return std::make_shared<const BlobPin>(state_, Key{tenant_, hash}); }

  // There under its name, as long as the pin is held. A name that a crash could take back is synced with the others.
  bool IsThere(const Blob& blob) {
    const Key key{tenant_, blob.hash};
    auto file = state_->disk.Open(state_->Path(key), Disk::Mode::kRead);
    if (!file.ok()) {
      return false;
    }
    auto size = (*file)->Size();
    if (!size.ok() || *size != blob.size_bytes) {
      return false;  // Damaged: written again, over it.
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
    if (!HPVMD_MUTANT("blob_skip_parent_sync")) {
      to_sync_.insert(parent);
    }
    made_.insert(folder);
    return absl::OkStatus();
  }

  StatusOr<std::unique_ptr<DiskFile>> CreateTemporary(Blob& blob) {
    for (int tries = 0; tries < kTemporaryNamesMax; ++tries) {
      std::string path = tenant_folder() + "/" + std::string(kTemporaryPrefix) +
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

  Status Copy(const BlobSource& source, DiskFile& file, Blob& blob) {
    std::vector<uint8_t> piece(std::min(blob.size_bytes, kPieceBytes));
    Hasher hasher;
    for (uint64_t offset = 0; offset < blob.size_bytes; offset += piece.size()) {
      piece.resize(std::min(blob.size_bytes - offset, kPieceBytes));
      HPVMD_RETURN_IF_ERROR(ReadPiece(source, offset, piece));
      hasher.Add(piece);
      HPVMD_RETURN_IF_ERROR(file.WriteAt(offset, piece));
    }
    blob.hash = hasher.Finish();
    return absl::OkStatus();
  }

  Status Rename(Blob& blob, const Key& key) {
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

  Status SyncFolders() {
    for (const std::string& folder : to_sync_) {
      HPVMD_RETURN_IF_ERROR(HPVMD_FAILPOINT("blob.folder_sync.before"));
      if (!HPVMD_MUTANT("blob_skip_folder_sync")) {
        HPVMD_RETURN_IF_ERROR(state_->disk.SyncFolder(folder));
      }
      HPVMD_RETURN_IF_ERROR(HPVMD_FAILPOINT("blob.folder_sync.after"));
    }
    return absl::OkStatus();
  }

  void Discard(Blob& blob) {
    if (blob.temporary.empty()) {
      return;
    }
    (void)state_->disk.Remove(blob.temporary);  // Else the next Sweep does.
    std::lock_guard lock(state_->mutex);
    state_->writing.erase(blob.temporary);
    blob.temporary.clear();
  }

  const std::shared_ptr<BlobFolderState> state_;
  const std::string tenant_;
  std::vector<Blob> blobs_;
  std::set<std::string> made_;
  std::set<std::string> to_sync_;  // Ordered: a parent before what is in it.
};

}  // namespace

BlobFolder::BlobFolder(Disk& disk, std::string root)
    : state_(std::make_shared<BlobFolderState>(disk, std::move(root))) {}
BlobFolder::~BlobFolder() = default;

void BlobFolder::SetIsUsed(IsUsed is_used) { state_->is_used = std::move(is_used); }

StatusOr<PinnedBlob> BlobFolder::Put(std::string_view tenant, const BlobSource& source) {
  HPVMD_ASSIGN_OR_RETURN(std::vector<PinnedBlob> blobs, PutMany(tenant, {&source, 1}));
  return std::move(blobs[0]);
}

StatusOr<std::vector<PinnedBlob>> BlobFolder::PutMany(std::string_view tenant, std::span<const BlobSource> sources) {
  HPVMD_RETURN_IF_ERROR(CheckTenant(tenant));
  Putting putting(state_, tenant);
  for (const BlobSource& source : sources) {
    HPVMD_RETURN_IF_ERROR(putting.Add(source));
  }
  HPVMD_RETURN_IF_ERROR(putting.Place());
  return putting.Take();
}

StatusOr<PinnedBlob> BlobFolder::Pin(std::string_view tenant, const Sha256& hash, uint64_t size_bytes) {
  HPVMD_RETURN_IF_ERROR(CheckTenant(tenant));
  Putting putting(state_, tenant);
  HPVMD_RETURN_IF_ERROR(putting.AddPresent(hash, size_bytes));
  HPVMD_RETURN_IF_ERROR(putting.Place());
  return std::move(putting.Take()[0]);
}

StatusOr<std::unique_ptr<DiskFile>> BlobFolder::Open(std::string_view tenant, const Sha256& hash, uint64_t size_bytes) {
  HPVMD_RETURN_IF_ERROR(CheckTenant(tenant));
  const Key key{std::string(tenant), hash};
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
  if (!CheckTenant(tenant).ok()) {
    return;
  }
  const Key key{std::string(tenant), hash};
  if (state_->BeginSettling(key, /*is_release=*/true)) {
    state_->EndSettling(key, state_->is_used != nullptr && state_->is_used(tenant, hash));
  }
}

void BlobFolder::Keep(std::string_view tenant, const Sha256& hash) {
  std::lock_guard lock(state_->mutex);
  auto found = state_->entries.find(Key{std::string(tenant), hash});
  if (found != state_->entries.end()) {
    found->second.is_new = false;
    found->second.is_released = false;
  }
}

namespace {

// Of one Sweep.
class Sweeping {
 public:
  Sweeping(BlobFolderState& state, const IsUsed& is_used) : state_(state), is_used_(is_used) {}

  StatusOr<uint64_t> Run() {
    HPVMD_ASSIGN_OR_RETURN(std::vector<DiskEntry> tenants, ListSorted(state_.root));
    for (const DiskEntry& tenant : tenants) {
      if (tenant.is_folder && CheckTenant(tenant.name).ok()) {
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
  // In the order of names, so that simulations replay.
  StatusOr<std::vector<DiskEntry>> ListSorted(const std::string& folder) {
    HPVMD_ASSIGN_OR_RETURN(std::vector<DiskEntry> entries, state_.disk.List(folder));
    std::sort(entries.begin(), entries.end(), [](const DiskEntry& a, const DiskEntry& b) { return a.name < b.name; });
    return entries;
  }

  Status SyncFolder(const std::string& folder) {
    HPVMD_RETURN_IF_ERROR(HPVMD_FAILPOINT("blob.sweep.folder_sync"));
    return state_.disk.SyncFolder(folder);
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
      const Key key{tenant, *hash};
      if (state_.BeginSettling(key, /*is_release=*/false)) {
        removed_ += state_.EndSettling(key, is_used_(tenant, *hash)) ? 1 : 0;
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
  const IsUsed& is_used_;
  std::set<std::string> seen_;
  uint64_t removed_ = 0;
};

}  // namespace

StatusOr<uint64_t> BlobFolder::Sweep(const IsUsed& is_used) { return Sweeping(*state_, is_used).Run(); }

}  // namespace hpvm
