// SPDX-License-Identifier: Apache-2.0
// Paths that a command or a program needs to run graphs by itself, and its cache of compiled kernels.
#ifndef HPVMD_CLIENT_LOCAL_EXECUTOR_FILES_H_
#define HPVMD_CLIENT_LOCAL_EXECUTOR_FILES_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"

namespace hpvm {

// LocalCache is where local runs keep compiled kernels and measurements.
struct LocalCache {
  std::string folder;
  std::array<uint8_t, 32> key{};  // Authenticates the entries.
};
// Opens the cache, creating it if necessary, for this user only; returns nothing when no folder is possible. An empty
// `folder` stands for $XDG_CACHE_HOME/hpvm, or ~/.cache/hpvm.
std::optional<LocalCache> OpenLocalCache(std::string folder = {});

// Returns $HPVM_EXECUTOR, else the program beside this one, else the one in the folder "hpvm" beside the library that
// contains this code.
StatusOr<std::string> ExecutorProgram();

}  // namespace hpvm

#endif  // HPVMD_CLIENT_LOCAL_EXECUTOR_FILES_H_
