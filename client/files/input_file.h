// SPDX-License-Identifier: Apache-2.0
// Careful reading of files that command lines and documents name: a name may lead to an endless device, to a pipe
// without a writer, or out of the folder that a document may use.
//
// Only regular files are read, and pipes that the program was started with (`<(...)`, /dev/stdin). Folders, devices,
// sockets and named pipes are refused without blocking. Failures are kInvalidArgument or kNotFound and name the file.
#ifndef HPVMD_CLIENT_FILES_INPUT_FILE_H_
#define HPVMD_CLIENT_FILES_INPUT_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/io/fd.h"
#include "base/status.h"

namespace hpvm {

// Limit on the bytes read from one tensor's file and unpacked from it: a small archive or picture can claim any size.
inline constexpr uint64_t kTensorFileBytesMax = uint64_t{1} << 36;

// Opens the file for reading.
StatusOr<UniqueFd> OpenInputFile(const std::string& path);
// Reads the whole file, at most `bytes_max` bytes.
StatusOr<std::vector<uint8_t>> ReadInputFile(const std::string& path, uint64_t bytes_max);
StatusOr<std::string> ReadInputText(const std::string& path, uint64_t bytes_max);

// Reads standard input to its end, whatever kind of file it is: the user chose it on purpose.
StatusOr<std::string> ReadStandardInput(uint64_t bytes_max);

// Method by which ReadFileBelow resolves paths. kWalk is for kernels without openat2 (before 5.6); it follows no
// symbolic links, while openat2 follows those that stay below the folder.
enum class WayBelow : uint8_t { kAny, kWalk };

// Reads `file`, which a document in `folder` names (the current folder when empty). kPermissionDenied when the path
// leaves the folder, by its name or by a symbolic link.
StatusOr<std::vector<uint8_t>> ReadFileBelow(const std::string& folder, const std::string& file, uint64_t bytes_max,
                                             WayBelow way = WayBelow::kAny);

}  // namespace hpvm

#endif  // HPVMD_CLIENT_FILES_INPUT_FILE_H_
