// SPDX-License-Identifier: Apache-2.0
// BlobFolder stores the job store's files: graphs, modules, inputs and outputs, addressed by SHA-256 within a tenant.
//
//   root/TENANT/ab/abcdef….   one file per blob, written under a temporary name, synced, renamed, its folder synced
//   root/TENANT/.new-N        a blob that is being written
//
// A blob exists as long as a row of the database names it, or a pin holds it: a blob written for a job is pinned from
// before its file has its name until the row is committed. When the last pin of a blob goes that is new or was
// released, the database is asked whether a row names it (SetIsUsed), while new pins wait; a file that no row names is
// removed. Tenants never share files, so that the time of an upload does not reveal what another tenant has.
#ifndef HPVMD_SERVER_JOBS_BLOBS_BLOB_FOLDER_H_
#define HPVMD_SERVER_JOBS_BLOBS_BLOB_FOLDER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "base/io/disk.h"
#include "base/status.h"

namespace hpvm::server {

// Holds a blob's file; it may be released on any thread, and its last holder may query the database and remove the
// file.
class BlobPin;
class DiskRoom;
struct BlobFolderState;
using BlobPinRef = std::shared_ptr<const BlobPin>;

struct PinnedBlob {
  Sha256 hash;
  uint64_t size_bytes = 0;
  BlobPinRef pin;
};

// BlobSource is the source of a blob's bytes: memory, or a descriptor (memfd) that is read with pread. Bytes that an
// executor could change during the read are hashed as they are copied: the file's name always matches its bytes.
struct BlobSource {
  std::span<const uint8_t> bytes;  // Borrowed during the call.
  int fd = -1;                     // Used instead of `bytes`; borrowed.
  uint64_t fd_bytes = 0;
  // Hash of contents that cannot change (sealed), which avoids the copy when the blob exists.
  const Sha256* known_hash = nullptr;
};

// BlobPut puts blobs, all or none; used by one thread at a time. Its destructor removes unfinished files.
class BlobPut {
 public:
  virtual ~BlobPut() = default;
  // Writes a few pieces, or does one sync; returns true when all blobs are durable. Not called after an error.
  virtual StatusOr<bool> Step() = 0;
  // Called once after that; returns the blobs in the order of the sources.
  virtual std::vector<PinnedBlob> Take() = 0;
};

// Thread-safe; calls block for as long as the disk takes.
class BlobFolder {
 public:
  // `root` exists, and its creator has synced its parent. Nothing is read yet. `disk` must outlive all pins.
  BlobFolder(Disk& disk, std::string root);
  ~BlobFolder();

  // Sets the function that tells whether a committed row names a blob; it is called from any thread, without locks
  // held. Called before anything else. Without it a released blob is removed without a query, and a blob that was put
  // but never kept nor released stays until the next Sweep.
  using IsUsed = std::function<bool(std::string_view tenant, const Sha256& hash)>;
  void SetIsUsed(IsUsed is_used);

  // Called before anything else: blobs are written only into the room that `room` admits. Borrowed as the disk is.
  void SetRoom(const DiskRoom* room);

  // Called before anything else: other processes use the folder, too, and remove files that have been unused for long.
  // A blob that a call finds is marked as used now, by its file's time of change.
  void SetShared();

  // Puts a blob, which is durable on return. Errors as in base/io/disk.h; after a failed sync everything fails with
  // kDataLoss (but a file's own sync that finds the disk full is kResourceExhausted, and there may be room later).
  // kInvalidArgument when `tenant` is not a valid tenant name, kInternal when the source cannot be read.
  StatusOr<PinnedBlob> Put(std::string_view tenant, const BlobSource& source);
  // Puts all blobs or none, in their order; syncs each folder once.
  StatusOr<std::vector<PinnedBlob>> PutMany(std::string_view tenant, std::span<const BlobSource> sources);
  // Does the same in steps; the objects that the sources borrow must live until the last.
  StatusOr<std::unique_ptr<BlobPut>> BeginPut(std::string_view tenant, std::vector<BlobSource> sources);
  // Pins an existing file. kNotFound when there is none of that size.
  StatusOr<PinnedBlob> Pin(std::string_view tenant, const Sha256& hash, uint64_t size_bytes);
  // kNotFound when there is none; kDataLoss when its size is not `size_bytes`.
  StatusOr<std::unique_ptr<DiskFile>> Open(std::string_view tenant, const Sha256& hash, uint64_t size_bytes);
  // Reads the whole file and compares its hash: kDataLoss when it differs.
  StatusOr<std::string> Read(std::string_view tenant, const Sha256& hash, uint64_t size_bytes);
  // Called when no row named the blob a moment ago: removes the file, unless a row names it now; when a pin holds the
  // file, after the last pin is gone.
  void Release(std::string_view tenant, const Sha256& hash);
  // Called when a committed row names the blob, while a pin is held: undoes a Release that waits for pins, and avoids
  // the query.
  void Keep(std::string_view tenant, const Sha256& hash);

  // Removes temporary files of an earlier process and the blobs that `is_used` does not know; returns how many.
  // `is_used` is called once for each blob that no pin holds: a blob that the caller knows and for which it is never
  // called is missing. Called at the start, or at any time when `is_used` answers from the database's present state.
  StatusOr<uint64_t> Sweep(const IsUsed& is_used);

 private:
  std::shared_ptr<BlobFolderState> state_;  // Shared with pins.
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_JOBS_BLOBS_BLOB_FOLDER_H_
