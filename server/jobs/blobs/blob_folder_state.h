// SPDX-License-Identifier: Apache-2.0
// What a BlobFolder's parts share: who holds which file, and what is known to be durable. Only they include this.
#ifndef HPVMD_SERVER_JOBS_BLOBS_BLOB_FOLDER_STATE_H_
#define HPVMD_SERVER_JOBS_BLOBS_BLOB_FOLDER_STATE_H_

#include <atomic>
#include <compare>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/hash.h"
#include "base/io/disk.h"
#include "base/status.h"
#include "server/jobs/blobs/blob_folder.h"

namespace hpvm::server {

// A name that is a folder of its own below the root, whoever asks.
Status CheckBlobTenant(std::string_view tenant);

// What a tenant's folder has while a blob is written.
inline constexpr std::string_view kTemporaryBlobPrefix = ".new-";

struct BlobKey {
  std::string tenant;
  Sha256 hash;
  friend auto operator<=>(const BlobKey&, const BlobKey&) = default;
};

// Shared by a folder and its pins.
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
  BlobFolder::IsUsed is_used;
  const DiskRoom* room = nullptr;
  std::atomic<uint64_t> next_temporary{0};

  std::mutex mutex;
  std::condition_variable settled;
  std::map<BlobKey, Entry> entries;
  // Files that have their name without their folder having been synced since.
  std::set<BlobKey> unsynced_names;
  // Folders that are there after a crash.
  std::set<std::string> known_folders;
  // Temporary files of this process.
  std::set<std::string> writing;
  // Every name that was there at the start is durable.
  bool is_swept = false;
  // The first failed sync, after which a second proves nothing: nothing is said to be durable any more.
  Status broken;

  BlobFolderState(Disk& disk, std::string root) : disk(disk), root(std::move(root)) {}

  std::string TenantFolder(std::string_view tenant) const { return root + "/" + std::string(tenant); }
  std::string Folder(const BlobKey& key) const { return TenantFolder(key.tenant) + "/" + ToHex(key.hash).substr(0, 2); }
  std::string Path(const BlobKey& key) const { return Folder(key) + "/" + ToHex(key.hash); }

  Status CheckSound() {
    std::lock_guard lock(mutex);
    return broken;
  }
  // What to answer for a failed sync.
  Status Break(const Status& failure) {
    std::lock_guard lock(mutex);
    if (broken.ok()) {
      broken = DataLoss(Message(failure) + " What was stored since the last start may be lost with the next crash.");
    }
    return broken;
  }
  Status SyncFolder(const std::string& folder) {
    Status synced = disk.SyncFolder(folder);
    return synced.ok() ? synced : Break(synced);
  }

  void Pin(const BlobKey& key);
  void Unpin(const BlobKey& key);
  // Locks `key` against new pins; false when pins hold it, which is then marked if it is a release.
  bool BeginSettling(const BlobKey& key, bool is_release);
  // Removes the file unless `used`; answers whether it did.
  bool EndSettling(const BlobKey& key, bool used);
};

class BlobPin {
 public:
  BlobPin(std::shared_ptr<BlobFolderState> state, BlobKey key) : state_(std::move(state)), key_(std::move(key)) {
    state_->Pin(key_);
  }
  ~BlobPin() { state_->Unpin(key_); }
  BlobPin(const BlobPin&) = delete;
  BlobPin& operator=(const BlobPin&) = delete;

  const BlobKey& key() const { return key_; }

 private:
  std::shared_ptr<BlobFolderState> state_;
  const BlobKey key_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_JOBS_BLOBS_BLOB_FOLDER_STATE_H_
