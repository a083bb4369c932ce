// SPDX-License-Identifier: Apache-2.0
// Files by Landlock: which paths a process still reaches, for good. One copy of the kernel's interface, of which older
// headers lack parts, for everything that locks itself down.
#ifndef HPVMD_SANDBOX_LANDLOCK_H_
#define HPVMD_SANDBOX_LANDLOCK_H_

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"

namespace hpvm::sandbox {

// A path and the accesses to it and what lies below that stay.
enum class PathAccess : uint8_t {
  kRead,     // Files and folders; libraries are mapped from here.
  kExecute,  // And programs started.
  kDevice,   // Read, written, asked by ioctl.
  kPrivate   // Files and folders made, written, removed.
};
struct PathRule {
  std::string path;
  PathAccess access = PathAccess::kRead;
};

// True when the kernel can restrict files.
bool HasLandlock();

// Everything that Landlock handles is forbidden but for what a rule allows: files, TCP, signals and abstract sockets to
// processes outside, as far as the kernel's version of it goes, which is its ABI. Paths that do not exist are passed
// over. Needs no_new_privs. kUnimplemented where the kernel has no Landlock.
Status RestrictFiles(std::span<const PathRule> rules, int* landlock_abi);

}  // namespace hpvm::sandbox

#endif  // HPVMD_SANDBOX_LANDLOCK_H_
