// SPDX-License-Identifier: Apache-2.0
// One tenant's uploaded modules or graph documents: bytes with a size and a SHA-256, never parsed here.
//
// A finished blob is an immutable memfd (contents sealed), so that an executor may map it. What nobody uses is
// dropped, least recently used first, when the tenant's limit needs the room.
#ifndef HPVMD_SERVER_MEMORY_BLOB_STORE_H_
#define HPVMD_SERVER_MEMORY_BLOB_STORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/hash.h"
#include "base/io/fd.h"
#include "base/lendable.h"
#include "base/status.h"
#include "scheduler/share/ledger.h"

namespace hpvm::server {

struct Blob {
  Sha256 hash;
  uint64_t size_bytes = 0;
  uint32_t kind = 0;  // Modules: hpvm.v1.ModuleKind.
  std::string name;
  UniqueFd fd;  // Contents and size are sealed.
  scheduler::Lease host_bytes;
};

// Shared: handles and jobs keep the blobs they need. Those from a store are loans of its own.
using BlobRef = std::shared_ptr<const Blob>;

// An upload in progress. One thread at a time; not locked by the store.
class BlobUpload {
 public:
  // `what` is "module" or "graph document", for messages. kInvalidArgument for a wrong hash text or size.
  static StatusOr<std::unique_ptr<BlobUpload>> Start(std::string_view what, std::string_view sha256_hex,
                                                     uint64_t size_bytes, uint64_t size_bytes_max, uint32_t kind,
                                                     std::string_view name);
  // What the blob holds from now on.
  void PayWith(scheduler::Lease host_bytes) { blob_->host_bytes = std::move(host_bytes); }
  Status Add(std::string_view data);
  // kInvalidArgument when bytes are missing or the hash differs. Then Finish seals the contents.
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
  // `account`: pays for each module that is kept; documents are free.
  BlobStore(std::string what, uint64_t bytes_max, scheduler::Account account = {})
      : what_(std::move(what)), bytes_max_(bytes_max), account_(account) {}

  // Marks it used. kNotFound names what and the hash.
  StatusOr<BlobRef> Find(const Sha256& hash);
  // Answers with a loan of what is kept, which is as good as `blob` itself. kResourceExhausted when blobs that are lent
  // leave too little room. `let_go` is asked to use something less, for as long as there is too little; false: it
  // cannot. May be empty.
  StatusOr<BlobRef> Insert(BlobRef blob, const std::function<bool()>& let_go = nullptr);
  // Drops the least recently used one that nobody uses; false: all are in use.
  bool DropOne();
  void SetLimit(uint64_t bytes_max) { bytes_max_ = bytes_max; }

  void ForEach(const std::function<void(const Blob&)>& visit) const;
  uint64_t bytes() const { return bytes_; }
  size_t size() const { return blobs_.size(); }

 private:
  struct Entry {
    Lendable<const Blob> blob;
    uint64_t used = 0;  // A counter, not a time.
    scheduler::Lease module;
  };

  std::string what_;
  uint64_t bytes_max_ = 0, bytes_ = 0, uses_ = 0;
  scheduler::Account account_;
  std::unordered_map<Sha256, Entry> blobs_;
};

// 64 hexadecimal digits from a request, or kInvalidArgument.
StatusOr<Sha256> ParseSha256(std::string_view what, std::string_view hex);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_MEMORY_BLOB_STORE_H_
