// SPDX-License-Identifier: Apache-2.0
#include "sandbox/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "base/io/fd.h"
#include "base/limits.h"
#include "sandbox/call_filter.h"
#include "sandbox/limits.h"

namespace hpvm::sandbox {
namespace {

// For the sockets, a memfd for each of 512 modules, and others that are about to be mapped; drivers open their device
// nodes many times.
constexpr rlim_t kOpenFilesMax = 1024;
// Not 0, because a small module is written to a memfd, which counts as a file.
constexpr rlim_t kFileBytesMax = limits::kModuleBytesMax;
constexpr rlim_t kStackBytesMax = 8 * limits::kMiB;

Status TakeIdentity(const IsolateOptions& options) {
  // The permitted capabilities are kept for Confine; programs started by the process lose them by the change of user.
  prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0);
  if (setgroups(options.groups.size(), options.groups.data()) != 0 ||
      setresgid(options.gid, options.gid, options.gid) != 0 || setresuid(options.uid, options.uid, options.uid) != 0) {
    return FromErrno(errno, "Taking user " + std::to_string(options.uid) + " and group " + std::to_string(options.gid));
  }
  return absl::OkStatus();
}

// Sets of capabilities are two words wide.
bool SetCapabilities(bool keeps_permitted, bool is_effective) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (keeps_permitted && syscall(SYS_capget, &header, data) != 0) {
    return false;
  }
  for (__user_cap_data_struct& word : data) {
    word.effective = is_effective ? word.permitted : 0;
    word.inheritable = 0;
  }
  return syscall(SYS_capset, &header, data) == 0;
}

// When it is empty, programs started later have no capabilities, even with the superuser's rights. Returns false when
// that is not allowed.
bool EmptyBoundingSet() {
  bool is_empty = true;
  for (int capability = 0; prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; ++capability) {
    prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
    is_empty = is_empty && prctl(PR_CAPBSET_READ, capability, 0, 0, 0) == 0;
  }
  return is_empty;
}

// The process keeps its remaining capabilities, but programs that it starts do not get them.
void KeepCapabilitiesFromPrograms(bool is_bounded) {
  prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  // The superuser's programs would regain them from the bounding set: drop them here in that case.
  SetCapabilities(/*keeps_permitted=*/is_bounded || getuid() != 0, /*is_effective=*/false);
}

bool HasCapabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  return syscall(SYS_capget, &header, data) != 0 || (data[0].permitted | data[1].permitted) != 0;
}

void Append(std::string_view text, std::string* detail) {
  *detail += (detail->empty() ? "" : ", ") + std::string(text);
}

// When a machine, or the group that the daemon shares with its executors, is out of memory, an executor and its
// compiler are killed before the daemon: they cost one tenant a run. It can fail only when there is no /proc.
void OfferToTheOutOfMemoryKiller() {
  const UniqueFd file(open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC));
  if (file.valid() && write(file.get(), "500", 3) != 3) {
    return;
  }
}

// Prevents a processor core's two threads from running it beside other code, if the machine and the kernel support it.
void TakeCoreCookie(SandboxReport* report) {
  constexpr int kSchedCore = 62, kCreate = 1, kThreadGroup = 1;
  if (prctl(kSchedCore, kCreate, 0, kThreadGroup, 0) == 0) {
    Append("core scheduling", &report->detail);
  }
}

// For a program started by the launcher: it ends with the launcher's process. The socket's end also ends it, but not
// while it is stopped.
Status FollowParent() {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0 ||
      prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    return FromErrno(errno, "Following the executor without privileges");
  }
  return absl::OkStatus();
}

// Replaces the root, which needs the last capability, and then drops all capabilities.
Status RenouncePrivileges(SandboxReport* report, const ConfineOptions& options) {
  if (report->has_namespaces && options.level_max >= SandboxLevel::kNamespaces) {
    SetCapabilities(/*keeps_permitted=*/true, /*is_effective=*/true);
    const Status root = ReplaceRoot(options.paths);
    report->has_own_root = root.ok();
    Append(!root.ok()              ? "no root of its own (" + Message(root) + ")"
           : options.paths.empty() ? "empty root"
                                   : "root with what drivers need",
           &report->detail);
  }
  EmptyBoundingSet();
  prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  SetCapabilities(/*keeps_permitted=*/false, /*is_effective=*/false);
  if (HasCapabilities()) {
    return Internal("Capabilities are left after dropping all.");
  }
  prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);  // The change of privileges may have set it again.
  return absl::OkStatus();
}

}  // namespace

Status Isolate(const IsolateOptions& options, SandboxReport* report) {
  const pid_t parent = getppid();
  setsid();  // Fails only for a session leader, which is sufficient.
  OfferToTheOutOfMemoryKiller();
  HPVMD_RETURN_IF_ERROR(SetLimit(RLIMIT_CORE, 0));
  HPVMD_RETURN_IF_ERROR(SetLimit(RLIMIT_STACK, kStackBytesMax));
  if (chdir("/") != 0) {
    return FromErrno(errno, "Changing to \"/\"");
  }
  // From the level on that restricts files, which separates a process from others' files; a separate identity is a
  // second barrier.
  const bool takes_identity = options.level_max >= SandboxLevel::kFiles && (options.uid != 0 || options.gid != 0);
  report->has_cgroup = options.has_cgroup && options.level_max >= SandboxLevel::kIdentity;
  report->has_own_user = takes_identity && options.uid != 0;
  report->level = SandboxLevel::kProcess;
  report->detail = report->has_own_user ? "uid " + std::to_string(options.uid) : "uid of the daemon";
  if (report->has_cgroup) {
    Append("control group", &report->detail);
  }
  if (options.level_max >= SandboxLevel::kNamespaces) {
    const Status left = LeaveNamespaces(!takes_identity, &report->detail);
    report->has_namespaces = left.ok();
    report->has_own_pids = getpid() == 1;
    if (!left.ok()) {
      Append("no namespaces (" + Message(left) + ")", &report->detail);
    }
  }
  TakeCoreCookie(report);
  // Before the change of identity, which removes the right to do so.
  const bool is_bounded = EmptyBoundingSet();
  if (takes_identity) {
    HPVMD_RETURN_IF_ERROR(TakeIdentity(options));
    // The folder's mode decides who may access its cache, because the tenant's later processes have other users.
    umask(0);
    if (options.tasks_max != 0) {
      HPVMD_RETURN_IF_ERROR(SetLimit(RLIMIT_NPROC, options.tasks_max));
    }
  }
  KeepCapabilitiesFromPrograms(is_bounded);
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
  return absl::OkStatus();
}

Status Confine(SandboxReport* report, const ConfineOptions& options) {
  const bool is_compiler = options.role == SandboxRole::kCompiler;
  const bool has_drivers = options.role != SandboxRole::kRunner && !is_compiler;
  signal(SIGXFSZ, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);
  if (is_compiler || options.role == SandboxRole::kSupervisor) {
    HPVMD_RETURN_IF_ERROR(FollowParent());
  }
  if (!is_compiler) {
    HPVMD_RETURN_IF_ERROR(SetLimit(RLIMIT_NOFILE, kOpenFilesMax));
    HPVMD_RETURN_IF_ERROR(SetLimit(RLIMIT_FSIZE, std::max<rlim_t>(kFileBytesMax, options.file_bytes_max)));
  }
  if (!is_compiler && options.role != SandboxRole::kBuilder) {
    HPVMD_RETURN_IF_ERROR(RenouncePrivileges(report, options));
  }
  if (options.level_max < SandboxLevel::kSyscalls) {
    Append("no system call filter (not tried)", &report->detail);
    return absl::OkStatus();
  }
  int abi = 0;
  const bool tries_files = options.level_max >= SandboxLevel::kFiles;
  const Status files = tries_files ? RestrictFiles(options.paths, &abi) : Unimplemented("not tried");
  const bool needs_files = has_drivers || options.level_min >= SandboxLevel::kFiles ||
                           (is_compiler && !absl::IsUnimplemented(files));  // Landlock exists and has failed.
  if (tries_files && needs_files && !files.ok()) {
    return FailedPrecondition(std::string(has_drivers ? "Drivers are not loaded" : "Nothing is compiled") +
                              " here, as nothing would keep them from the host's files: " + Message(files));
  }
  HPVMD_ASSIGN_OR_RETURN(const CallFilter filter, CallFilter::For(options.role));
  HPVMD_RETURN_IF_ERROR(filter.Apply());
  Append("system call filter", &report->detail);
  report->level = SandboxLevel::kSyscalls;
  if (!files.ok()) {
    Append("no Landlock (" + Message(files) + ")", &report->detail);
    return absl::OkStatus();
  }
  Append("Landlock ABI " + std::to_string(abi), &report->detail);
  const bool is_bounded = report->has_own_user || report->has_cgroup;
  const bool is_apart = report->has_namespaces && report->has_own_pids && report->has_own_root;
  const SandboxLevel reached = !is_bounded ? SandboxLevel::kFiles
                               : !is_apart ? SandboxLevel::kIdentity
                                           : SandboxLevel::kNamespaces;
  report->level = std::min(reached, options.level_max);
  return absl::OkStatus();
}

}  // namespace hpvm::sandbox
