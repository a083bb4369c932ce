// SPDX-License-Identifier: Apache-2.0
// The job store's files: graphs, modules, inputs and outputs, addressed by SHA-256 within a tenant.
//
//   root/TENANT/ab/abcdef….   one file a blob, written under a temporary name, synced, renamed, its folder synced
//
// A blob is there as long as a row of the database names it, or a pin holds it: what is written for a job is pinned
// from before its file exists until the row is committed. Tenants never share files, so nobody learns from the time of
// an upload what another has.
#ifndef HPVMD_SERVER_JOBS_BLOB_FOLDER_H_
#define HPVMD_SERVER_JOBS_BLOB_FOLDER_H_

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

#include "base/disk.h"
#include "base/hash.h"
#include "base/status.h"

namespace hpvm {

// Holds a blob's file; any thread may let go of it.
class BlobPin;
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

// Any thread; calls block for as long as the disk takes.
class BlobFolder {
 public:
  // `root` exists. Nothing is read yet.
  BlobFolder(Disk& disk, std::string root);
  ~BlobFolder();

  // Durable when it returns. Errors as base/disk.h; a failed sync is kDataLoss and nothing may be acknowledged after.
  StatusOr<PinnedBlob> Put(std::string_view tenant, const BlobSource& source);
  // kNotFound when there is none; kDataLoss when its size is not `size_bytes`.
  StatusOr<std::unique_ptr<DiskFile>> Open(std::string_view tenant, const Sha256& hash, uint64_t size_bytes);
  // Reads all of it and compares its hash: kDataLoss when it differs.
  StatusOr<std::string> Read(std::string_view tenant, const Sha256& hash, uint64_t size_bytes);
  // Removes the file unless a pin holds it; then when the last pin goes. A later Put of the same bytes keeps it.
  void Release(std::string_view tenant, const Sha256& hash);

  // At start: removes temporary files and what `is_used` does not know. Answers how many.
  StatusOr<uint64_t> Sweep(const std::function<bool(std::string_view tenant, const Sha256& hash)>& is_used);

 private:
  struct State;
  std::shared_ptr<State> state_;   // Shared with pins.
};

}  // namespace hpvm

#endif  // HPVMD_SERVER_JOBS_BLOB_FOLDER_H_
