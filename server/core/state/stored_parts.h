// SPDX-License-Identifier: Apache-2.0
// StoredParts are the data that a job's attempt needs, read back from the store piece by piece.
#ifndef HPVMD_SERVER_CORE_STATE_STORED_PARTS_H_
#define HPVMD_SERVER_CORE_STATE_STORED_PARTS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "server/core/state/tenant.h"
#include "server/jobs/job_store.h"
#include "server/memory/blob_store.h"

namespace hpvm::server {

struct StoredParts {
  TenantRef tenant;
  std::string id;
  std::vector<internal::StoredBlob> blobs;  // The blobs of the row.
  std::shared_ptr<StoredRequest> stored = std::make_shared<StoredRequest>();
  BlobRef document;
  std::map<std::string, BlobRef> modules;   // Keyed by name.
  std::map<uint32_t, SegmentRef> segments;  // Memory of inputs, by position.
};

// BlobMemory gives access to the tenant's modules and documents in memory. Called on the reader's thread.
struct BlobMemory {
  std::function<BlobRef(bool is_module, const Sha256& hash)> find;  // Returns null when the blob is not in memory.
  std::function<BlobRef(bool is_module, BlobRef blob)> keep;        // Returns the blob to use instead of the argument.
};

// StoredPartsReader is used by one thread at a time. Its errors are those of JobDatabase::ReadRequest and
// BlobFolder::Open; kDataLoss for bytes that do not match their hash, kResourceExhausted when the tenant has no memory
// for its inputs.
class StoredPartsReader {
 public:
  // Borrows the store and the parts, of which the caller has filled tenant, id and blobs.
  StoredPartsReader(JobStore& jobs, StoredParts& parts, BlobMemory memory)
      : jobs_(jobs), parts_(parts), memory_(std::move(memory)) {}

  // Reads the request, or a few MiB of the files that it names. Returns true when everything has been read.
  StatusOr<bool> Step();

 private:
  // A file to be read: a module, a document, or an input.
  struct Wanted {
    enum class Kind : uint8_t { kDocument, kModule, kInput } kind = Kind::kDocument;
    std::string name = {};  // For a module.
    uint32_t index = 0;     // For an input.
    Sha256 hash;
    uint64_t bytes = 0;
  };
  Status ReadRequest();
  StatusOr<Wanted> BlobOf(const std::string& hex) const;
  Status Open(const Wanted& wanted);
  // Returns the number of bytes read.
  StatusOr<uint64_t> ReadPiece(const Wanted& wanted);
  Status Finish(const Wanted& wanted);
  void Put(const Wanted& wanted, BlobRef blob);

  JobStore& jobs_;
  StoredParts& parts_;
  const BlobMemory memory_;
  bool has_request_ = false;
  std::deque<Wanted> wanted_;
  // The first file of `wanted_`, once it is open.
  std::unique_ptr<DiskFile> file_;
  uint64_t offset_ = 0;
  std::unique_ptr<BlobUpload> upload_;  // Receives a module or a document.
  SegmentRef segment_;                  // Receives an input; `hasher_` then hashes its bytes.
  std::optional<Hasher> hasher_;
  std::vector<uint8_t> piece_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_STATE_STORED_PARTS_H_
