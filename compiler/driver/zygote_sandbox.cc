// SPDX-License-Identifier: Apache-2.0
#include "compiler/driver/zygote_sandbox.h"

#include <fcntl.h>
#include <linux/sched.h>
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

#include "base/io/fd.h"
#include "base/io/landlock.h"
#include "base/io/memfd.h"

namespace hpvm {
namespace {

// Needed by both, before and after the fork.
constexpr int kCommonCalls[] = {
    SCMP_SYS(read),          SCMP_SYS(pread64),        SCMP_SYS(write),
    SCMP_SYS(close),         SCMP_SYS(munmap),         SCMP_SYS(mremap),
    SCMP_SYS(brk),           SCMP_SYS(madvise),        SCMP_SYS(futex),
    SCMP_SYS(clock_gettime), SCMP_SYS(gettimeofday),   SCMP_SYS(getpid),
    SCMP_SYS(gettid),        SCMP_SYS(getrusage),      SCMP_SYS(sysinfo),
    SCMP_SYS(fstat),         SCMP_SYS(newfstatat),     SCMP_SYS(lseek),
    SCMP_SYS(getrandom),     SCMP_SYS(rt_sigaction),   SCMP_SYS(rt_sigreturn),
    SCMP_SYS(sigaltstack),   SCMP_SYS(rt_sigprocmask), SCMP_SYS(sched_yield),
    SCMP_SYS(exit),          SCMP_SYS(exit_group),     SCMP_SYS(restart_syscall),
};
// The zygote's alone. `openat` and its kin reach what Landlock leaves: the cache. It ends its children by descriptors,
// which only the call that made a child gives: `kill` would take any process of the user's.
constexpr int kZygoteCalls[] = {
    SCMP_SYS(poll),       SCMP_SYS(ppoll),       SCMP_SYS(recvmsg),         SCMP_SYS(sendmsg),
    SCMP_SYS(wait4),      SCMP_SYS(waitid),      SCMP_SYS(pipe2),           SCMP_SYS(dup2),
    SCMP_SYS(dup3),       SCMP_SYS(close_range), SCMP_SYS(openat),          SCMP_SYS(unlinkat),
    SCMP_SYS(renameat),   SCMP_SYS(renameat2),   SCMP_SYS(utimensat),       SCMP_SYS(getppid),
    SCMP_SYS(getdents64), SCMP_SYS(shutdown),    SCMP_SYS(set_robust_list), SCMP_SYS(rseq),
};
// Flags of clone that a new process may have: no namespace, no memory or table in common, nothing to trace.
constexpr uint64_t kForkFlags = CLONE_PIDFD | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID;
// Not F_SETOWN, F_SETSIG and F_SETOWN_EX: with them the kernel would send signals to others.
constexpr int kZygoteFileCommands[] = {F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_SETFD, F_GETFL, F_GET_SEALS};
// What it, and a child before it has a filter of its own, still does to itself.
constexpr int kZygoteOptions[] = {PR_SET_PDEATHSIG, PR_SET_SECCOMP};

scmp_arg_cmp Equal(unsigned argument, uint64_t value) {
  return {.arg = argument, .op = SCMP_CMP_EQ, .datum_a = value, .datum_b = 0};
}
scmp_arg_cmp Masked(unsigned argument, uint64_t mask, uint64_t value) {
  return {.arg = argument, .op = SCMP_CMP_MASKED_EQ, .datum_a = mask, .datum_b = value};
}

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
  // abort() signals its own process, whose number a filter that children inherit cannot know: it ends here instead.
  error = error != 0 ? error : seccomp_rule_add(context.get(), SCMP_ACT_KILL_PROCESS, SCMP_SYS(tgkill), 0);
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
  HPVMD_RETURN_IF_ERROR(
      ReadAt(file.get(), 0, {reinterpret_cast<uint8_t*>(program.data()), program.size() * sizeof(sock_filter)}));
  return program;
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

// Calls of the zygote whose arguments decide.
Status AddConditional(const Context& context) {
  int error = 0;
  const auto allow = [&](int call, std::initializer_list<scmp_arg_cmp> arguments) {
    error = error != 0 ? error
                       : seccomp_rule_add_array(context.get(), SCMP_ACT_ALLOW, call,
                                                static_cast<unsigned>(arguments.size()), arguments.begin());
  };
  allow(SCMP_SYS(clone), {Masked(0, ~kForkFlags, SIGCHLD)});
  allow(SCMP_SYS(pidfd_send_signal), {Equal(1, SIGKILL)});
  allow(SCMP_SYS(prlimit64), {Equal(0, 0)});  // Its own.
  for (const int command : kZygoteFileCommands) {
    allow(SCMP_SYS(fcntl), {Equal(1, static_cast<uint64_t>(command))});
  }
  for (const int option : kZygoteOptions) {
    allow(SCMP_SYS(prctl), {Equal(0, static_cast<uint64_t>(option))});
  }
  return error == 0 ? absl::OkStatus() : FromErrno(-error, "Building a system call filter");
}

}  // namespace

StatusOr<CallFilter> CallFilter::ForZygote(int refuse_errno) {
  HPVMD_ASSIGN_OR_RETURN(Context context, CreateFilter(kZygoteCalls, refuse_errno));
  HPVMD_RETURN_IF_ERROR(AddConditional(context));
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

Status LockDownZygote(const std::string& folder, const CallFilter& filter, bool needs_landlock) {
  // The socket's end tells it as well, but not while it is stopped.
  if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) {
    return FromErrno(errno, "Following the executor");
  }
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) {
    return FromErrno(errno, "Giving up privileges");
  }
  std::vector<PathRule> rules;
  if (!folder.empty()) {
    rules.push_back({folder, PathAccess::kPrivate});  // A folder that is not there is a cache that holds nothing.
  }
  int abi = 0;
  const Status files = RestrictFiles(rules, &abi);
  if (!files.ok() && (needs_landlock || !absl::IsUnimplemented(files))) {
    return While(files, "keeping the compiler from files, which the executor's level promises");
  }
  if (!files.ok()) {
    std::fprintf(stderr, "hpvm-compiler: this kernel has no Landlock; only system calls are filtered\n");
  }
  return filter.Apply();
}

int ForkWithDescriptor(UniqueFd* descriptor) {
  int made = -1;
  // Flags, stack and where the descriptor goes stand in this order on every machine that is compiled for.
  const long child = syscall(SYS_clone, CLONE_PIDFD | SIGCHLD, nullptr, &made, nullptr, nullptr);
  if (child > 0) {
    descriptor->reset(made);
  }
  return static_cast<int>(child);
}

void KillChild(const UniqueFd& descriptor) {
  // One that has ended already needs nothing.
  (void)syscall(SYS_pidfd_send_signal, descriptor.get(), SIGKILL, nullptr, 0);
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
