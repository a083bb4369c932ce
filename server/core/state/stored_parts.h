// SPDX-License-Identifier: Apache-2.0
// What a job's attempt needs, read back from the store piece by piece.
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
  std::vector<internal::StoredBlob> blobs;  // The row's.
  std::shared_ptr<StoredRequest> stored = std::make_shared<StoredRequest>();
  BlobRef document;
  std::map<std::string, BlobRef> modules;   // By name.
  std::map<uint32_t, SegmentRef> segments;  // Of inputs, by position.
};

// The tenant's modules and documents in memory; called on the reader's thread.
struct BlobMemory {
  std::function<BlobRef(bool is_module, const Sha256& hash)> find;  // Null: it is not there.
  std::function<BlobRef(bool is_module, BlobRef blob)> keep;        // Answers with what is to be used instead.
};

// By one thread at a time. Errors as JobDatabase::ReadRequest and BlobFolder::Open; kDataLoss for bytes that are not
// those of their hash, kResourceExhausted when the tenant has no memory for its inputs.
class StoredPartsReader {
 public:
  // Borrows the store and the parts, of which tenant, id and blobs are filled.
  StoredPartsReader(JobStore& jobs, StoredParts& parts, BlobMemory memory)
      : jobs_(jobs), parts_(parts), memory_(std::move(memory)) {}

  // The request, or a few MiB of what it names. True when all is there.
  StatusOr<bool> Step();

 private:
  // A file that is to be read: a module, a document, or an input.
  struct Wanted {
    enum class Kind : uint8_t { kDocument, kModule, kInput } kind = Kind::kDocument;
    std::string name = {};  // Of a module.
    uint32_t index = 0;     // Of an input.
    Sha256 hash;
    uint64_t bytes = 0;
  };
  Status ReadRequest();
  StatusOr<Wanted> BlobOf(const std::string& hex) const;
  Status Open(const Wanted& wanted);
  // Answers how many bytes were read.
  StatusOr<uint64_t> ReadPiece(const Wanted& wanted);
  Status Finish(const Wanted& wanted);
  void Put(const Wanted& wanted, BlobRef blob);

  JobStore& jobs_;
  StoredParts& parts_;
  const BlobMemory memory_;
  bool has_request_ = false;
  std::deque<Wanted> wanted_;
  // Of the first of them, once it is open.
  std::unique_ptr<DiskFile> file_;
  uint64_t offset_ = 0;
  std::unique_ptr<BlobUpload> upload_;  // A module or a document.
  SegmentRef segment_;                  // An input; then with the hash of what was read.
  std::optional<Hasher> hasher_;
  std::vector<uint8_t> piece_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_STATE_STORED_PARTS_H_
