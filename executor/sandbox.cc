// SPDX-License-Identifier: Apache-2.0
#include "executor/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "base/fd.h"
#include "base/limits.h"

namespace hpvm {
namespace {

// The socket, the compiler's, memfds on their way to a mapping.
constexpr rlim_t kOpenFilesMax = 256;
// Drivers open their device nodes many times over.
constexpr rlim_t kDriverOpenFilesMax = 1024;
// Not 0: the module that goes to the compiler is written to a memfd, which counts as a file.
constexpr rlim_t kFileBytesMax = limits::kModuleBytesMax;
constexpr rlim_t kStackBytesMax = 8 * limits::kMiB;

// Headers older than the kernel lack the later names.
constexpr uint64_t kAccessFsAbi1 = (uint64_t{1} << 13) - 1;
constexpr uint64_t kAccessFsExecute = 1, kAccessFsWriteFile = 1 << 1, kAccessFsReadFile = 1 << 2;
constexpr uint64_t kAccessFsReadDir = 1 << 3, kAccessFsRemoveDir = 1 << 4, kAccessFsRemoveFile = 1 << 5;
constexpr uint64_t kAccessFsMakeDir = 1 << 7, kAccessFsMakeReg = 1 << 8, kAccessFsMakeSym = 1 << 12;
constexpr uint64_t kAccessFsRefer = uint64_t{1} << 13;
constexpr uint64_t kAccessFsTruncate = uint64_t{1} << 14;
constexpr uint64_t kAccessFsIoctlDev = uint64_t{1} << 15;
// What a rule for a file, not a folder, may hold.
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

Status Limit(__rlimit_resource resource, rlim_t value) {
  rlimit current;
  if (getrlimit(resource, &current) != 0) {
    return FromErrno(errno, "Reading a resource limit");
  }
  const rlim_t bound = current.rlim_max == RLIM_INFINITY ? value : std::min(value, current.rlim_max);
  const rlimit wanted{bound, bound};
  return setrlimit(resource, &wanted) == 0 ? absl::OkStatus() : FromErrno(errno, "Setting a resource limit");
}

Status TakeIdentity(const IsolateOptions& options) {
  if (setgroups(0, nullptr) != 0 || setresgid(options.gid, options.gid, options.gid) != 0 ||
      setresuid(options.uid, options.uid, options.uid) != 0) {
    return FromErrno(errno, "Taking user " + std::to_string(options.uid) + " and group " + std::to_string(options.gid));
  }
  return absl::OkStatus();
}

// The bounding set too, so that no program started later can have any.
void DropCapabilities() {
  for (int capability = 0; prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; ++capability) {
    prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
  }
  prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[2] = {};
  syscall(SYS_capset, &header, none);
}

bool HasCapabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  return syscall(SYS_capget, &header, data) != 0 || (data[0].permitted | data[1].permitted) != 0;
}

}  // namespace

Status Isolate(const IsolateOptions& options, SandboxReport* report) {
  const pid_t parent = getppid();
  setsid();  // Fails only for a session leader, which is as good.
  HPVMD_RETURN_IF_ERROR(Limit(RLIMIT_CORE, 0));
  HPVMD_RETURN_IF_ERROR(Limit(RLIMIT_STACK, kStackBytesMax));
  if (chdir("/") != 0) {
    return FromErrno(errno, "Changing to \"/\"");
  }
  if (options.uid != 0 || options.gid != 0) {
    HPVMD_RETURN_IF_ERROR(TakeIdentity(options));
  }
  DropCapabilities();
  if (HasCapabilities()) {
    return Internal("Capabilities are left after dropping all.");
  }
  // After the change of identity, which resets both.
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || prctl(PR_SET_DUMPABLE, 0) != 0) {
    return FromErrno(errno, "Tying the process to its parent");
  }
  if (getppid() != parent) {
    return Unavailable("The parent process is gone.");
  }
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    return FromErrno(errno, "Renouncing new privileges");
  }
  report->detail = options.uid != 0 ? "uid " + std::to_string(options.uid) : "uid of the daemon";
  report->has_own_user = options.uid != 0;
  report->level = SandboxLevel::kProcess;
  return absl::OkStatus();
}

bool HasLandlock() {
  return syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION) >= 1;
}

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
  // Everything that the ruleset handles is forbidden but for what a rule allows.
  for (const PathRule& rule : rules) {
    HPVMD_RETURN_IF_ERROR(AllowPath(ruleset.get(), rule, attributes.handled_access_fs));
  }
  if (syscall(SYS_landlock_restrict_self, ruleset.get(), 0) != 0) {
    return FromErrno(errno, "Restricting the process by Landlock");
  }
  *landlock_abi = static_cast<int>(abi);
  return absl::OkStatus();
}

Status Confine(SandboxReport* report, const ConfineOptions& options) {
  const bool has_drivers = options.profile != SandboxProfile::kTight;
  HPVMD_RETURN_IF_ERROR(Limit(RLIMIT_NOFILE, has_drivers ? kDriverOpenFilesMax : kOpenFilesMax));
  HPVMD_RETURN_IF_ERROR(Limit(RLIMIT_FSIZE, kFileBytesMax));
  signal(SIGXFSZ, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);
  int abi = 0;
  const Status files = RestrictFiles(options.paths, &abi);
  if (has_drivers && !files.ok()) {
    return FailedPrecondition("Drivers are not loaded here, as nothing would keep them from the host's files: " +
                              Message(files));
  }
  HPVMD_RETURN_IF_ERROR(InstallFilter(options.profile, EPERM));
  report->detail += ", system call filter";
  report->level = SandboxLevel::kSyscalls;
  if (!files.ok()) {
    report->detail += ", no Landlock (" + Message(files) + ")";
    return absl::OkStatus();
  }
  report->detail += ", Landlock ABI " + std::to_string(abi);
  report->level = report->has_own_user ? SandboxLevel::kIdentity : SandboxLevel::kFiles;
  return absl::OkStatus();
}

}  // namespace hpvm
