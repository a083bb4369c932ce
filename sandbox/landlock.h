// SPDX-License-Identifier: Apache-2.0
// Restricts file access by Landlock: the paths that a process may still access, permanently. The only copy of the
// kernel's interface, of which older headers lack parts, for every process that locks itself down.
#ifndef HPVMD_SANDBOX_LANDLOCK_H_
#define HPVMD_SANDBOX_LANDLOCK_H_

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"

namespace hpvm::sandbox {

// Access that remains to a path and everything below it.
enum class PathAccess : uint8_t {
  kRead,     // Reading files and folders; libraries are mapped from here.
  kExecute,  // Also starting programs.
  kDevice,   // Reading, writing, ioctl.
  kPrivate   // Creating, writing and removing files and folders.
};
struct PathRule {
  std::string path;
  PathAccess access = PathAccess::kRead;
};

// Returns true when the kernel can restrict files.
bool HasLandlock();

// Forbids everything that Landlock handles unless a rule allows it: files, TCP, signals and abstract sockets to
// processes outside, as far as the kernel's version (its ABI) supports it. Paths that do not exist are skipped. Needs
// no_new_privs. Returns kUnimplemented when the kernel has no Landlock.
Status RestrictFiles(std::span<const PathRule> rules, int* landlock_abi);

}  // namespace hpvm::sandbox

#endif  // HPVMD_SANDBOX_LANDLOCK_H_
