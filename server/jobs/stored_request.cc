// SPDX-License-Identifier: Apache-2.0
#include "server/jobs/stored_request.h"

#include <algorithm>
#include <memory>
#include <string>

#include "server/jobs/rows/job_rules.h"

namespace hpvm::server {
std::optional<BlobInput> BlobOfRequest(const v1::SubmitRequest& request, uint64_t row_bytes_max) {
  if (request.ByteSizeLong() <= row_bytes_max) {
    return std::nullopt;
  }
  const auto bytes = std::make_shared<const std::string>(request.SerializeAsString());
  BlobInput input;
  input.source.bytes = BytesOf(*bytes);
  input.keeps = bytes;
  return input;
}

void NameRequestBlob(const PinnedBlob& blob, StoredRequest* stored) {
  stored->set_request_sha256(std::string(Raw(blob.hash)));
  stored->set_request_bytes(blob.size_bytes);
}

StatusOr<StoredRequest> ReadWholeRequest(JobDatabase& database, BlobFolder& blobs, std::string_view tenant,
                                         std::string_view id) {
  HPVMD_ASSIGN_OR_RETURN(StoredRequest stored, database.ReadRequest(tenant, id));
  if (stored.request_sha256().empty()) {
    return stored;
  }
  const std::string named = "The stored request of job \"" + std::string(id) + "\"";
  HPVMD_ASSIGN_OR_RETURN(const Sha256 hash, BlobNamedBy(named, stored.request_sha256()));
  const StatusOr<std::string> bytes = blobs.Read(tenant, hash, stored.request_bytes());
  if (absl::IsNotFound(bytes.status())) {
    return DataLoss(named + " is gone: " + Message(bytes.status()));
  }
  HPVMD_RETURN_IF_ERROR(While(bytes.status(), "reading the request of job \"" + std::string(id) + "\""));
  if (!stored.mutable_request()->ParseFromString(*bytes)) {
    return DataLoss(named + " cannot be read.");
  }
  return stored;
}

}  // namespace hpvm::server
