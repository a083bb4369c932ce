// SPDX-License-Identifier: Apache-2.0
#include "sandbox/landlock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/io/fd.h"

namespace hpvm::sandbox {
namespace {

// Kernel headers older than the kernel lack the later names.
constexpr uint64_t kAccessFsAbi1 = (uint64_t{1} << 13) - 1;
constexpr uint64_t kAccessFsExecute = 1, kAccessFsWriteFile = 1 << 1, kAccessFsReadFile = 1 << 2;
constexpr uint64_t kAccessFsReadDir = 1 << 3, kAccessFsRemoveDir = 1 << 4, kAccessFsRemoveFile = 1 << 5;
constexpr uint64_t kAccessFsMakeDir = 1 << 7, kAccessFsMakeReg = 1 << 8, kAccessFsMakeSym = 1 << 12;
constexpr uint64_t kAccessFsRefer = uint64_t{1} << 13;
constexpr uint64_t kAccessFsTruncate = uint64_t{1} << 14;
constexpr uint64_t kAccessFsIoctlDev = uint64_t{1} << 15;
// Access rights that are valid in a rule for a file rather than a folder.
constexpr uint64_t kAccessFsOfFiles =
    kAccessFsExecute | kAccessFsWriteFile | kAccessFsReadFile | kAccessFsTruncate | kAccessFsIoctlDev;
constexpr uint64_t kAccessNetTcp = 3;
constexpr uint64_t kScopeAll = 3;
struct RulesetAttributes {
  uint64_t handled_access_fs;
  uint64_t handled_access_net;
  uint64_t scoped;
};

uint64_t RightsOf(PathAccess access) {
  constexpr uint64_t kRead = kAccessFsReadFile | kAccessFsReadDir;
  switch (access) {
    case PathAccess::kRead:
      return kRead;
    case PathAccess::kExecute:
      return kRead | kAccessFsExecute;
    case PathAccess::kDevice:
      return kRead | kAccessFsWriteFile | kAccessFsIoctlDev;
    case PathAccess::kPrivate:
      return kRead | kAccessFsWriteFile | kAccessFsTruncate | kAccessFsRemoveDir | kAccessFsRemoveFile |
             kAccessFsMakeDir | kAccessFsMakeReg | kAccessFsMakeSym | kAccessFsRefer;
  }
  return 0;
}

Status AllowPath(int ruleset, const PathRule& rule, uint64_t handled) {
  UniqueFd path(open(rule.path.c_str(), O_PATH | O_CLOEXEC));
  struct stat info {};
  if (!path.valid() || fstat(path.get(), &info) != 0) {
    return absl::OkStatus();
  }
  landlock_path_beneath_attr beneath{};
  beneath.allowed_access = RightsOf(rule.access) & handled & (S_ISDIR(info.st_mode) ? ~uint64_t{0} : kAccessFsOfFiles);
  beneath.parent_fd = path.get();
  if (syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &beneath, 0) != 0) {
    return FromErrno(errno, "Allowing \"" + rule.path + "\" by Landlock");
  }
  return absl::OkStatus();
}

}  // namespace

bool HasLandlock() { return syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION) >= 1; }

Status RestrictFiles(std::span<const PathRule> rules, int* landlock_abi) {
  const long abi = syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (abi < 1) {
    return Unimplemented("The kernel has no Landlock.");
  }
  RulesetAttributes attributes{};
  attributes.handled_access_fs = kAccessFsAbi1 | (abi >= 2 ? kAccessFsRefer : 0) | (abi >= 3 ? kAccessFsTruncate : 0) |
                                 (abi >= 5 ? kAccessFsIoctlDev : 0);
  attributes.handled_access_net = abi >= 4 ? kAccessNetTcp : 0;
  attributes.scoped = abi >= 6 ? kScopeAll : 0;
  const size_t size = abi >= 6 ? 24 : abi >= 4 ? 16 : 8;
  UniqueFd ruleset(static_cast<int>(syscall(SYS_landlock_create_ruleset, &attributes, size, 0)));
  if (!ruleset.valid()) {
    return FromErrno(errno, "Creating a Landlock ruleset");
  }
  // Everything that the ruleset handles is forbidden unless a rule allows it.
  for (const PathRule& rule : rules) {
    HPVMD_RETURN_IF_ERROR(AllowPath(ruleset.get(), rule, attributes.handled_access_fs));
  }
  if (syscall(SYS_landlock_restrict_self, ruleset.get(), 0) != 0) {
    return FromErrno(errno, "Restricting the process by Landlock");
  }
  *landlock_abi = static_cast<int>(abi);
  return absl::OkStatus();
}

}  // namespace hpvm::sandbox
