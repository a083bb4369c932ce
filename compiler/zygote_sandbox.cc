// SPDX-License-Identifier: Apache-2.0
#include "compiler/zygote_sandbox.h"

#include <fcntl.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>

#include "base/fd.h"
#include "base/memfd.h"

namespace hpvm {
namespace {

// Landlock's interface (linux/landlock.h), of which older headers lack parts.
constexpr uint64_t kFsWriteFile = 1ull << 1, kFsReadFile = 1ull << 2, kFsReadDir = 1ull << 3,
                   kFsRemoveFile = 1ull << 5, kFsMakeReg = 1ull << 8, kFsTruncate = 1ull << 14;
constexpr uint64_t kFsAllAbi1 = (1ull << 13) - 1;
struct LandlockRulesetAttr {
  uint64_t handled_access_fs;
  uint64_t handled_access_net;  // ABI 4.
  uint64_t scoped;              // ABI 6.
};
struct __attribute__((packed)) LandlockPathBeneathAttr {
  uint64_t allowed_access;
  int32_t parent_fd;
};
constexpr int kRulePathBeneath = 1;
constexpr uint32_t kCreateRulesetVersion = 1;

// Needed by both, before and after the fork.
constexpr int kCommonCalls[] = {
    SCMP_SYS(read),
    SCMP_SYS(pread64),
    SCMP_SYS(write),
    SCMP_SYS(close),
    SCMP_SYS(munmap),
    SCMP_SYS(mremap),
    SCMP_SYS(brk),
    SCMP_SYS(madvise),
    SCMP_SYS(futex),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(getpid),
    SCMP_SYS(gettid),
    SCMP_SYS(getrusage),
    SCMP_SYS(sysinfo),
    SCMP_SYS(fstat),
    SCMP_SYS(newfstatat),
    SCMP_SYS(lseek),
    SCMP_SYS(getrandom),
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(sigaltstack),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(sched_yield),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
    SCMP_SYS(tgkill),
    SCMP_SYS(restart_syscall),
};
// The zygote's alone. `openat` and its kin reach what Landlock leaves: the cache.
constexpr int kZygoteCalls[] = {
    SCMP_SYS(poll),     SCMP_SYS(ppoll),     SCMP_SYS(recvmsg),         SCMP_SYS(sendmsg),    SCMP_SYS(clone),
    SCMP_SYS(fork),     SCMP_SYS(wait4),     SCMP_SYS(waitid),          SCMP_SYS(pipe2),      SCMP_SYS(dup2),
    SCMP_SYS(dup3),     SCMP_SYS(fcntl),     SCMP_SYS(close_range),     SCMP_SYS(openat),     SCMP_SYS(unlinkat),
    SCMP_SYS(renameat), SCMP_SYS(renameat2), SCMP_SYS(utimensat),       SCMP_SYS(getdents64), SCMP_SYS(prlimit64),
    SCMP_SYS(prctl),    SCMP_SYS(seccomp),   SCMP_SYS(set_robust_list), SCMP_SYS(rseq),       SCMP_SYS(getppid),
    SCMP_SYS(shutdown),
};

struct ContextDeleter {
  void operator()(void* context) const { seccomp_release(context); }
};
using Context = std::unique_ptr<void, ContextDeleter>;

Status Add(const Context& context, std::span<const int> calls) {
  for (int call : calls) {
    if (int error = seccomp_rule_add(context.get(), SCMP_ACT_ALLOW, call, 0); error != 0) {
      return FromErrno(-error, "Building a system call filter");
    }
  }
  return absl::OkStatus();
}

// An allow-list; what it lacks fails with EPERM. Memory may be mapped, but never to be executed.
StatusOr<Context> CreateFilter(std::span<const int> more, int refuse_errno) {
  Context context(seccomp_init(SCMP_ACT_ERRNO(static_cast<uint16_t>(refuse_errno))));
  if (context == nullptr) {
    return Internal("The system call filter cannot be created.");
  }
  // Other call conventions (i386, x32) reach other tables.
  seccomp_attr_set(context.get(), SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
  HPVMD_RETURN_IF_ERROR(Add(context, kCommonCalls));
  HPVMD_RETURN_IF_ERROR(Add(context, more));
  // The C library tries clone3 first and takes ENOSYS as "use clone".
  int error = seccomp_rule_add(context.get(), SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
  for (int call : {SCMP_SYS(mmap), SCMP_SYS(mprotect)}) {
    error = error != 0
                ? error
                : seccomp_rule_add(context.get(), SCMP_ACT_ALLOW, call, 1, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
  }
  if (error != 0) {
    return FromErrno(-error, "Building a system call filter");
  }
  return context;
}

StatusOr<std::vector<sock_filter>> ProgramOf(const Context& context) {
  UniqueFd file(memfd_create("hpvm-filter", MFD_CLOEXEC));
  if (!file.valid()) {
    return FromErrno(errno, "Creating a memfd");
  }
  if (int error = seccomp_export_bpf(context.get(), file.get()); error != 0) {
    return FromErrno(-error, "Exporting a system call filter");
  }
  struct stat info {};
  if (fstat(file.get(), &info) != 0) {
    return FromErrno(errno, "Sizing a system call filter");
  }
  std::vector<sock_filter> program(static_cast<size_t>(info.st_size) / sizeof(sock_filter));
  HPVMD_RETURN_IF_ERROR(ReadAt(file.get(), 0,
                               {reinterpret_cast<uint8_t*>(program.data()), program.size() * sizeof(sock_filter)}));
  return program;
}

// Allows files below `folder` only. False where the kernel has no Landlock.
StatusOr<bool> RestrictFiles(const std::string& folder) {
  long abi = syscall(SYS_landlock_create_ruleset, nullptr, 0, kCreateRulesetVersion);
  if (abi < 1) {
    return false;
  }
  LandlockRulesetAttr attr{};
  attr.handled_access_fs =
      kFsAllAbi1 | (abi >= 2 ? 1ull << 13 : 0) | (abi >= 3 ? kFsTruncate : 0) | (abi >= 5 ? 1ull << 15 : 0);
  attr.handled_access_net = abi >= 4 ? 3 : 0;
  attr.scoped = abi >= 6 ? 3 : 0;  // No abstract sockets and no signals out of here.
  size_t attr_bytes = abi >= 6 ? 24 : abi >= 4 ? 16 : 8;
  UniqueFd rules(static_cast<int>(syscall(SYS_landlock_create_ruleset, &attr, attr_bytes, 0)));
  if (!rules.valid()) {
    return FromErrno(errno, "Creating Landlock rules");
  }
  if (!folder.empty()) {
    UniqueFd path(open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    LandlockPathBeneathAttr beneath{};
    beneath.allowed_access =
        (kFsWriteFile | kFsReadFile | kFsReadDir | kFsRemoveFile | kFsMakeReg | kFsTruncate) & attr.handled_access_fs;
    beneath.parent_fd = path.get();
    // A folder that is not there is a cache that holds nothing.
    if (path.valid() && syscall(SYS_landlock_add_rule, rules.get(), kRulePathBeneath, &beneath, 0) != 0) {
      return FromErrno(errno, "Adding a Landlock rule for " + folder);
    }
  }
  if (syscall(SYS_landlock_restrict_self, rules.get(), 0) != 0) {
    return FromErrno(errno, "Applying Landlock rules");
  }
  return true;
}

// At `value` a process is told (RLIMIT_CPU: SIGXCPU), at `value` + `hard_more` it is forced.
Status SetLimit(__rlimit_resource resource, uint64_t value, const char* name, uint64_t hard_more = 0) {
  const rlimit limit{value, value + hard_more};
  rlimit now{};
  // A lower limit from outside stays.
  if (getrlimit(resource, &now) == 0 && now.rlim_max != RLIM_INFINITY && now.rlim_max <= value) {
    return absl::OkStatus();
  }
  return setrlimit(resource, &limit) == 0 ? absl::OkStatus() : FromErrno(errno, std::string("Limiting ") + name);
}

}  // namespace

StatusOr<CallFilter> CallFilter::ForZygote(int refuse_errno) {
  HPVMD_ASSIGN_OR_RETURN(Context context, CreateFilter(kZygoteCalls, refuse_errno));
  // Only to end children.
  const scmp_arg_cmp only_kill = {.arg = 1, .op = SCMP_CMP_EQ, .datum_a = SIGKILL, .datum_b = 0};
  if (int error = seccomp_rule_add_array(context.get(), SCMP_ACT_ALLOW, SCMP_SYS(kill), 1, &only_kill); error != 0) {
    return FromErrno(-error, "Building a system call filter");
  }
  CallFilter filter;
  HPVMD_ASSIGN_OR_RETURN(filter.program_, ProgramOf(context));
  return filter;
}

StatusOr<CallFilter> CallFilter::ForChild(int refuse_errno) {
  HPVMD_ASSIGN_OR_RETURN(Context context, CreateFilter({}, refuse_errno));
  CallFilter filter;
  HPVMD_ASSIGN_OR_RETURN(filter.program_, ProgramOf(context));
  return filter;
}

Status CallFilter::Apply() const {
  sock_fprog program{};
  program.len = static_cast<unsigned short>(program_.size());
  program.filter = const_cast<sock_filter*>(program_.data());
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    return FromErrno(errno, "Applying a system call filter");
  }
  return absl::OkStatus();
}

Status LockDownZygote(const std::string& folder, const CallFilter& filter) {
  // The socket's end tells it as well, but not while it is stopped.
  if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) {
    return FromErrno(errno, "Following the executor");
  }
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) {
    return FromErrno(errno, "Giving up privileges");
  }
  HPVMD_ASSIGN_OR_RETURN(bool has_landlock, RestrictFiles(folder));
  if (!has_landlock) {
    std::fprintf(stderr, "hpvm-compiler: this kernel has no Landlock; only system calls are filtered\n");
  }
  return filter.Apply();
}

Status LimitChild(const ChildLimits& limits, int parent) {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0 || getppid() != parent) {
    return FromErrno(errno, "Following the zygote");
  }
  HPVMD_RETURN_IF_ERROR(SetLimit(RLIMIT_CORE, 0, "core files"));
  HPVMD_RETURN_IF_ERROR(SetLimit(RLIMIT_FSIZE, 0, "files"));  // Its result goes into a pipe, of which so much is read.
  HPVMD_RETURN_IF_ERROR(SetLimit(RLIMIT_CPU, limits.cpu_seconds, "processor time", /*hard_more=*/1));
  HPVMD_RETURN_IF_ERROR(SetLimit(RLIMIT_DATA, limits.memory_bytes, "data"));
  return SetLimit(RLIMIT_AS, limits.memory_bytes, "address space");
}

}  // namespace hpvm
