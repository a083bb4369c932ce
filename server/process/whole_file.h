// SPDX-License-Identifier: Apache-2.0
// Small files of the state folder that are read and replaced as a whole: after a crash either the old or the new file
// is there.
#ifndef HPVMD_SERVER_PROCESS_WHOLE_FILE_H_
#define HPVMD_SERVER_PROCESS_WHOLE_FILE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/io/disk.h"
#include "base/status.h"

namespace hpvm::server {

// Returns nothing when there is no such file; kDataLoss when it is larger than `bytes_max`.
StatusOr<std::optional<std::string>> ReadWholeFile(const std::string& path, uint64_t bytes_max,
                                                   Disk& disk = RealDisk());
// Durable when it returns OK. Uses PATH.part.
Status ReplaceWholeFile(const std::string& path, std::string_view text, Disk& disk = RealDisk());

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_PROCESS_WHOLE_FILE_H_
