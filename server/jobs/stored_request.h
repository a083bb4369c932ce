// SPDX-License-Identifier: Apache-2.0
// Where a job's request lies: in the database, or, when it is large, in a blob of the job's, so that the database stays
// small. The blob is one of those that the job's row names: it is on disk before the row, and goes after the last one.
#ifndef HPVMD_SERVER_JOBS_STORED_REQUEST_H_
#define HPVMD_SERVER_JOBS_STORED_REQUEST_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/status.h"
#include "server/jobs/job_store.h"

namespace hpvm::server {

// A larger request takes a file of its own: four pages of the database.
inline constexpr uint64_t kRequestRowBytesMax = 16'384;

// What to put before the row; empty: the row has room for the request.
std::optional<BlobInput> BlobOfRequest(const v1::SubmitRequest& request, uint64_t row_bytes_max = kRequestRowBytesMax);
// The request itself is in that blob now.
void NameRequestBlob(const PinnedBlob& blob, StoredRequest* stored);

// The whole request, wherever it lies. Errors are JobDatabase::ReadRequest's and BlobFolder::Read's; a blob that is
// missing is kDataLoss. Any thread; blocks for as long as the disk takes.
StatusOr<StoredRequest> ReadWholeRequest(JobDatabase& database, BlobFolder& blobs, std::string_view tenant,
                                         std::string_view id);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_JOBS_STORED_REQUEST_H_
