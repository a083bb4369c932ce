// SPDX-License-Identifier: Apache-2.0
// BlobStore holds one tenant's uploaded modules or graph documents: bytes with a size and a SHA-256, never parsed
// here.
//
// A finished blob is an immutable memfd (contents sealed), so that an executor may map it. Unused blobs are dropped,
// least recently used first, when the tenant's limit needs the room.
#ifndef HPVMD_SERVER_MEMORY_BLOB_STORE_H_
#define HPVMD_SERVER_MEMORY_BLOB_STORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/hash.h"
#include "base/io/fd.h"
#include "base/lendable.h"
#include "base/status.h"
#include "scheduler/share/ledger.h"

namespace hpvm::server {

struct Blob {
  Sha256 hash;
  uint64_t size_bytes = 0;
  uint32_t kind = 0;  // For modules: hpvm.v1.ModuleKind.
  std::string name;
  UniqueFd fd;  // Contents and size are sealed.
  scheduler::Lease host_bytes;
};

// Shared, because handles and jobs keep the blobs they need. References from a store are loans that it tracks.
using BlobRef = std::shared_ptr<const Blob>;

// BlobUpload is an upload in progress. Not thread-safe; the store does not lock it.
class BlobUpload {
 public:
  // `what` is "module" or "graph document", for messages. kInvalidArgument for a wrong hash text or size.
  static StatusOr<std::unique_ptr<BlobUpload>> Start(std::string_view what, std::string_view sha256_hex,
                                                     uint64_t size_bytes, uint64_t size_bytes_max, uint32_t kind,
                                                     std::string_view name);
  // Sets the lease that the blob holds from now on.
  void PayWith(scheduler::Lease host_bytes) { blob_->host_bytes = std::move(host_bytes); }
  Status Add(std::string_view data);
  // Seals the contents. kInvalidArgument when bytes are missing or the hash differs.
  StatusOr<BlobRef> Finish();

  const Sha256& hash() const { return blob_->hash; }
  uint64_t size_bytes() const { return blob_->size_bytes; }
  uint64_t received_bytes() const { return received_; }

 private:
  BlobUpload() = default;
  std::string what_;
  std::unique_ptr<Blob> blob_;
  Hasher hasher_;
  uint64_t received_ = 0;
};

// Guarded by the core's mutex.
class BlobStore {
 public:
  // `account` pays for each kept module; documents are free. Borrows the clock, which records when blobs are used;
  // may be null.
  BlobStore(std::string what, uint64_t bytes_max, scheduler::Account account = {}, const Clock* clock = nullptr)
      : what_(std::move(what)), bytes_max_(bytes_max), account_(account), clock_(clock) {}

  // Marks the blob as used. kNotFound names `what` and the hash.
  StatusOr<BlobRef> Find(const Sha256& hash);
  // Returns a loan of the kept blob, which is equivalent to `blob`. kResourceExhausted when lent blobs leave too
  // little room. While there is too little room, calls `let_go` to release a loan; it returns false when it cannot.
  // `let_go` may be empty.
  StatusOr<BlobRef> Insert(BlobRef blob, const std::function<bool()>& let_go = nullptr);
  // Drops the least recently used blob without a loan; returns false when all are lent.
  bool DropOne();
  // Removes and returns up to `count_max` blobs without a loan, in no order; the caller destroys them outside of any
  // lock.
  std::vector<BlobRef> TakeUnused(size_t count_max);
  void SetLimit(uint64_t bytes_max) { bytes_max_ = bytes_max; }
  // Removes and returns the blob; the caller destroys it outside of any lock. kNotFound; kFailedPrecondition while it
  // is lent.
  StatusOr<BlobRef> Remove(const Sha256& hash);

  struct Listed {
    const Blob* blob = nullptr;  // Valid until the next change.
    int64_t created_unix_ns = 0;
    Time used{0};
    bool is_lent = false;
  };
  // Lists blobs in the order of their hashes, after the given one; from the first without one.
  std::vector<Listed> After(const std::optional<Sha256>& hash, size_t count_max) const;

  void ForEach(const std::function<void(const Blob&)>& visit) const;
  uint64_t bytes() const { return bytes_; }
  size_t size() const { return blobs_.size(); }

 private:
  struct Entry {
    Lendable<const Blob> blob;
    uint64_t used = 0;  // A counter, not a time.
    Time used_at{0};
    int64_t created_unix_ns = 0;
    scheduler::Lease module;
  };

  void Use(Entry& entry);

  std::string what_;
  uint64_t bytes_max_ = 0, bytes_ = 0, uses_ = 0;
  scheduler::Account account_;
  const Clock* clock_;
  std::map<Sha256, Entry> blobs_;
};

// Parses 64 hexadecimal digits of a request; kInvalidArgument otherwise.
StatusOr<Sha256> ParseSha256(std::string_view what, std::string_view hex);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_MEMORY_BLOB_STORE_H_
