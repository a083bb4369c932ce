// SPDX-License-Identifier: Apache-2.0
// Files that command lines and documents name, read with care: a name may lead to a device that never ends, to a pipe
// that nobody writes, or out of the folder that a document may speak of.
//
// Only regular files are read, and pipes that whoever started this program has opened for it (`<(...)`, /dev/stdin).
// Folders, devices, sockets and named pipes are refused, without waiting for anything. Failures are
// kInvalidArgument or kNotFound and name the file.
#ifndef HPVMD_CLIENT_FILES_INPUT_FILE_H_
#define HPVMD_CLIENT_FILES_INPUT_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/io/fd.h"
#include "base/status.h"

namespace hpvm {

// What is read of one tensor's file, and unpacked of it: a small archive or picture can claim any size.
inline constexpr uint64_t kTensorFileBytesMax = uint64_t{1} << 36;

// The file, open for reading.
StatusOr<UniqueFd> OpenInputFile(const std::string& path);
// Its bytes, of which there may be `bytes_max`.
StatusOr<std::vector<uint8_t>> ReadInputFile(const std::string& path, uint64_t bytes_max);
StatusOr<std::string> ReadInputText(const std::string& path, uint64_t bytes_max);

// Standard input to its end, whatever it is: somebody chose it on purpose.
StatusOr<std::string> ReadStandardInput(uint64_t bytes_max);

// How ReadFileBelow finds its way. kWalk is for kernels without openat2 (before 5.6): it follows no symbolic link at
// all, where openat2 follows those that stay below the folder.
enum class WayBelow : uint8_t { kAny, kWalk };

// `file`, which a document in `folder` names (empty: the current one). kPermissionDenied when it leads out of the
// folder, by its name or by a symbolic link.
StatusOr<std::vector<uint8_t>> ReadFileBelow(const std::string& folder, const std::string& file, uint64_t bytes_max,
                                             WayBelow way = WayBelow::kAny);

}  // namespace hpvm

#endif  // HPVMD_CLIENT_FILES_INPUT_FILE_H_
