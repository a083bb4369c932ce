// SPDX-License-Identifier: Apache-2.0
#include "server/jobs/stored_request.h"

#include <algorithm>
#include <memory>
#include <string>

namespace hpvm::server {

std::optional<BlobInput> BlobOfRequest(const v1::SubmitRequest& request, uint64_t row_bytes_max) {
  if (request.ByteSizeLong() <= row_bytes_max) {
    return std::nullopt;
  }
  const auto bytes = std::make_shared<const std::string>(request.SerializeAsString());
  BlobInput input;
  input.source.bytes = {reinterpret_cast<const uint8_t*>(bytes->data()), bytes->size()};
  input.keeps = bytes;
  return input;
}

void NameRequestBlob(const PinnedBlob& blob, StoredRequest* stored) {
  stored->set_request_sha256(blob.hash.bytes.data(), blob.hash.bytes.size());
  stored->set_request_bytes(blob.size_bytes);
}

StatusOr<StoredRequest> ReadWholeRequest(JobDatabase& database, BlobFolder& blobs, std::string_view tenant,
                                         std::string_view id) {
  HPVMD_ASSIGN_OR_RETURN(StoredRequest stored, database.ReadRequest(tenant, id));
  if (stored.request_sha256().empty()) {
    return stored;
  }
  Sha256 hash;
  if (stored.request_sha256().size() != hash.bytes.size()) {
    return DataLoss("The stored request of job \"" + std::string(id) + "\" names a blob by " +
                    std::to_string(stored.request_sha256().size()) + " bytes; a hash has 32.");
  }
  std::copy(stored.request_sha256().begin(), stored.request_sha256().end(), hash.bytes.begin());
  const StatusOr<std::string> bytes = blobs.Read(tenant, hash, stored.request_bytes());
  if (absl::IsNotFound(bytes.status())) {
    return DataLoss("The stored request of job \"" + std::string(id) + "\" is gone: " + Message(bytes.status()));
  }
  HPVMD_RETURN_IF_ERROR(While(bytes.status(), "reading the request of job \"" + std::string(id) + "\""));
  if (!stored.mutable_request()->ParseFromString(*bytes)) {
    return DataLoss("The stored request of job \"" + std::string(id) + "\" cannot be read.");
  }
  return stored;
}

}  // namespace hpvm::server
