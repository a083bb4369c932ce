// SPDX-License-Identifier: Apache-2.0
// State that a BlobFolder's parts share: the holders of files, and which files are known to be durable. Included by
// these parts only.
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

// Checks that the name is a folder of its own below the root, for any caller.
Status CheckBlobTenant(std::string_view tenant);

// Prefix of temporary files in a tenant's folder, which exist while a blob is written.
inline constexpr std::string_view kTemporaryBlobPrefix = ".new-";

struct BlobKey {
  std::string tenant;
  Sha256 hash;
  friend auto operator<=>(const BlobKey&, const BlobKey&) = default;
};

// Shared by a folder and its pins.
struct BlobFolderState {
  // The holders or the removal of a blob's file; absent when there are none.
  struct Entry {
    uint32_t pins = 0;
    // The file is being removed, unless a row names it: new pins wait.
    bool is_settling = false;
    // No row has named the blob yet, as far as is known here.
    bool is_new = false;
    // No row named the blob when it was released.
    bool is_released = false;
  };

  Disk& disk;
  const std::string root;
  BlobFolder::IsUsed is_used;
  const DiskRoom* room = nullptr;
  bool is_shared = false;  // BlobFolder::SetShared.
  std::atomic<uint64_t> next_temporary{0};

  std::mutex mutex;
  std::condition_variable settled;
  std::map<BlobKey, Entry> entries;
  // Files that were renamed since their folder was last synced.
  std::set<BlobKey> unsynced_names;
  // Folders that would exist after a crash.
  std::set<std::string> known_folders;
  // Temporary files of this process.
  std::set<std::string> writing;
  // Every name that existed at the start is durable.
  bool is_swept = false;
  // The first failed sync, after which the success of another proves nothing: no blob is reported durable any more.
  Status broken;

  BlobFolderState(Disk& disk, std::string root) : disk(disk), root(std::move(root)) {}

  std::string TenantFolder(std::string_view tenant) const { return root + "/" + std::string(tenant); }
  std::string Folder(const BlobKey& key) const { return TenantFolder(key.tenant) + "/" + ToHex(key.hash).substr(0, 2); }
  std::string Path(const BlobKey& key) const { return Folder(key) + "/" + ToHex(key.hash); }

  // For shared folders: sets the file's time of change. Returns false when that failed.
  bool MarkUsed(DiskFile& file) const;

  Status CheckSound() {
    std::lock_guard lock(mutex);
    return broken;
  }
  // Returns the error to report for a failed sync.
  Status Break(const Status& failure) {
    std::lock_guard lock(mutex);
    if (broken.ok()) {
      broken = DataLoss(Message(failure) + " Data stored since the last start may be lost with the next crash.");
    }
    return broken;
  }
  Status SyncFolder(const std::string& folder) {
    Status synced = disk.SyncFolder(folder);
    return synced.ok() ? synced : Break(synced);
  }

  void Pin(const BlobKey& key);
  void Unpin(const BlobKey& key);
  // Locks `key` against new pins; returns false when pins hold it, and marks it as released if `is_release`.
  bool BeginSettling(const BlobKey& key, bool is_release);
  // Removes the file unless `used`; returns true when it was removed.
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
