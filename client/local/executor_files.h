// SPDX-License-Identifier: Apache-2.0
// Where a command or a program finds what it needs to run graphs by itself, and where it keeps what it compiled.
#ifndef HPVMD_CLIENT_LOCAL_EXECUTOR_FILES_H_
#define HPVMD_CLIENT_LOCAL_EXECUTOR_FILES_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"

namespace hpvm {

// Where local runs keep compiled kernels and what was learnt of them.
struct LocalCache {
  std::string folder;
  std::array<uint8_t, 32> key{};  // Tags what lies there.
};
// Makes it if it is not there, for this user only; nothing when there is no place for it. `folder`: empty is
// $XDG_CACHE_HOME/hpvm, or ~/.cache/hpvm.
std::optional<LocalCache> OpenLocalCache(std::string folder = {});

// $HPVM_EXECUTOR, else beside this program, else in the folder "hpvm" beside the library that this is part of.
StatusOr<std::string> ExecutorProgram();

}  // namespace hpvm

#endif  // HPVMD_CLIENT_LOCAL_EXECUTOR_FILES_H_
