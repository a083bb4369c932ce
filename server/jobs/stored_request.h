// SPDX-License-Identifier: Apache-2.0
// Storage of a job's request: in the database, or, when it is large, in a blob of the job, so that the database stays
// small. The blob is one of those that the job's row names: it is on disk before the row, and is removed after the
// last such row.
#ifndef HPVMD_SERVER_JOBS_STORED_REQUEST_H_
#define HPVMD_SERVER_JOBS_STORED_REQUEST_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/status.h"
#include "server/jobs/job_store.h"

namespace hpvm::server {

// Larger requests are stored in a file of their own: four pages of the database.
inline constexpr uint64_t kRequestRowBytesMax = 16'384;

// Returns the blob to put before the row is written; nothing when the request fits in the row.
std::optional<BlobInput> BlobOfRequest(const v1::SubmitRequest& request, uint64_t row_bytes_max = kRequestRowBytesMax);
// Records that the request is stored in that blob.
void NameRequestBlob(const PinnedBlob& blob, StoredRequest* stored);

// Returns the whole request, wherever it is stored. Errors are those of JobDatabase::ReadRequest and BlobFolder::Read;
// a blob that is missing is kDataLoss. Thread-safe; blocks for as long as the disk takes.
StatusOr<StoredRequest> ReadWholeRequest(JobDatabase& database, BlobFolder& blobs, std::string_view tenant,
                                         std::string_view id);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_JOBS_STORED_REQUEST_H_
