// SPDX-License-Identifier: Apache-2.0
// The job store's files: graphs, modules, inputs and outputs, addressed by SHA-256 within a tenant.
//
//   root/TENANT/ab/abcdef….   one file a blob, written under a temporary name, synced, renamed, its folder synced
//   root/TENANT/.new-N        a blob that is being written
//
// A blob is there as long as a row of the database names it, or a pin holds it: what is written for a job is pinned
// from before its file has its name until the row is committed. When the last pin of a blob goes that is new or was
// released, the database is asked whether a row names it (SetIsUsed), while new pins wait; a file that none names goes.
// Tenants never share files, so nobody learns from the time of an upload what another has.
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

// Holds a blob's file; any thread may let go of it, and the last to do so may ask the database and remove the file.
class BlobPin;
class DiskRoom;
struct BlobFolderState;
using BlobPinRef = std::shared_ptr<const BlobPin>;

struct PinnedBlob {
  Sha256 hash;
  uint64_t size_bytes = 0;
  BlobPinRef pin;
};

// Where bytes come from: memory, or a descriptor (memfd) that is read with pread. What an executor could change while
// it is read is hashed as it is copied: the file's name always matches its bytes.
struct BlobSource {
  std::span<const uint8_t> bytes;  // Borrowed during the call.
  int fd = -1;                     // Instead; borrowed.
  uint64_t fd_bytes = 0;
  const Sha256* known_hash = nullptr;  // Of contents that cannot change (sealed): spares the copy when it is there.
};

// Blobs that are being put, all or none, by one thread at a time. What is left undone goes with it.
class BlobPut {
 public:
  virtual ~BlobPut() = default;
  // A few pieces, or one sync; true when all of them are durable. Not after an error.
  virtual StatusOr<bool> Step() = 0;
  // Then, once: in the order of the sources.
  virtual std::vector<PinnedBlob> Take() = 0;
};

// Any thread; calls block for as long as the disk takes.
class BlobFolder {
 public:
  // `root` exists, and whoever made it has synced its parent. Nothing is read yet. `disk` lives longer than all pins.
  BlobFolder(Disk& disk, std::string root);
  ~BlobFolder();

  // Whether a committed row names that blob: called from any thread, without locks held. Before anything else. Without
  // it a released blob goes unasked, and one that was put but never kept nor released stays until the next Sweep.
  using IsUsed = std::function<bool(std::string_view tenant, const Sha256& hash)>;
  void SetIsUsed(IsUsed is_used);

  // Before anything else: blobs are written only into the room that it admits. Borrowed as the disk is.
  void SetRoom(const DiskRoom* room);

  // Durable when it returns. Errors as base/io/disk.h; after a failed sync everything fails with kDataLoss (but a
  // file's own sync that finds the disk full is kResourceExhausted, and there may be room later). kInvalidArgument when
  // `tenant` is no tenant's name, kInternal when the source cannot be read.
  StatusOr<PinnedBlob> Put(std::string_view tenant, const BlobSource& source);
  // All or none, in their order; syncs each folder once.
  StatusOr<std::vector<PinnedBlob>> PutMany(std::string_view tenant, std::span<const BlobSource> sources);
  // The same in steps; what the sources borrow lives until the last.
  StatusOr<std::unique_ptr<BlobPut>> BeginPut(std::string_view tenant, std::vector<BlobSource> sources);
  // Holds a file that is there. kNotFound when there is none of that size.
  StatusOr<PinnedBlob> Pin(std::string_view tenant, const Sha256& hash, uint64_t size_bytes);
  // kNotFound when there is none; kDataLoss when its size is not `size_bytes`.
  StatusOr<std::unique_ptr<DiskFile>> Open(std::string_view tenant, const Sha256& hash, uint64_t size_bytes);
  // Reads all of it and compares its hash: kDataLoss when it differs.
  StatusOr<std::string> Read(std::string_view tenant, const Sha256& hash, uint64_t size_bytes);
  // No row named it a moment ago: removes the file, unless one does now; while a pin holds it, when the last goes.
  void Release(std::string_view tenant, const Sha256& hash);
  // A committed row names it: undoes a Release that waits for pins, and spares the question. While a pin is held.
  void Keep(std::string_view tenant, const Sha256& hash);

  // Removes temporary files of an earlier process and the blobs that `is_used` does not know; answers how many. It is
  // asked once for each blob that no pin holds: those that the caller knows and is never asked for are missing. For the
  // start, or at any time when `is_used` answers from the database's present state.
  StatusOr<uint64_t> Sweep(const IsUsed& is_used);

 private:
  std::shared_ptr<BlobFolderState> state_;  // Shared with pins.
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_JOBS_BLOBS_BLOB_FOLDER_H_
