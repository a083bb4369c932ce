// SPDX-License-Identifier: Apache-2.0
// System calls by profile: allow-lists. What is not named is refused with EPERM, which libraries take for a missing
// feature; what no honest process of ours ever calls kills it. tests/golden/sandbox/*_syscalls.txt are the resulting
// tables, number by number.
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <initializer_list>
#include <memory>
#include <span>

#include "executor/sandbox.h"

namespace hpvm {
namespace {

constexpr int kAllowed[] = {
    // The two sockets, memfds, standard error.
    SCMP_SYS(read),
    SCMP_SYS(write),
    SCMP_SYS(readv),
    SCMP_SYS(writev),
    SCMP_SYS(pread64),
    SCMP_SYS(pwrite64),
    SCMP_SYS(recvmsg),
    SCMP_SYS(sendmsg),
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    SCMP_SYS(lseek),
    SCMP_SYS(close),
    SCMP_SYS(memfd_create),
    SCMP_SYS(ftruncate),
    SCMP_SYS(shutdown),
    // Memory, without execution (mmap and mprotect are below).
    SCMP_SYS(brk),
    SCMP_SYS(munmap),
    SCMP_SYS(mremap),
    SCMP_SYS(madvise),
    // Threads.
    SCMP_SYS(futex),
    SCMP_SYS(set_robust_list),
    SCMP_SYS(rseq),
    SCMP_SYS(membarrier),
    SCMP_SYS(sched_yield),
    SCMP_SYS(sched_getaffinity),
    SCMP_SYS(gettid),
    SCMP_SYS(getpid),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
    // Signals to itself: abort.
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(sigaltstack),
    SCMP_SYS(restart_syscall),
    // Time and facts.
    SCMP_SYS(clock_gettime),
    SCMP_SYS(clock_getres),
    SCMP_SYS(clock_nanosleep),
    SCMP_SYS(nanosleep),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(timerfd_create),
    SCMP_SYS(timerfd_settime),
    SCMP_SYS(getrandom),
    SCMP_SYS(sysinfo),
    SCMP_SYS(getcpu),
};

// What a process with drivers needs besides: files within what Landlock leaves, device nodes, and facts about itself.
constexpr int kDriverAllowed[] = {
    // Files.
    SCMP_SYS(open),
    SCMP_SYS(openat),
    SCMP_SYS(access),
    SCMP_SYS(faccessat),
    SCMP_SYS(faccessat2),
    SCMP_SYS(stat),
    SCMP_SYS(lstat),
    SCMP_SYS(fstat),
    SCMP_SYS(newfstatat),
    SCMP_SYS(statx),
    SCMP_SYS(statfs),
    SCMP_SYS(fstatfs),
    SCMP_SYS(getdents64),
    SCMP_SYS(readlink),
    SCMP_SYS(readlinkat),
    SCMP_SYS(getcwd),
    SCMP_SYS(mkdir),
    SCMP_SYS(mkdirat),
    SCMP_SYS(rmdir),
    SCMP_SYS(unlink),
    SCMP_SYS(unlinkat),
    SCMP_SYS(rename),
    SCMP_SYS(renameat),
    SCMP_SYS(renameat2),
    SCMP_SYS(fsync),
    SCMP_SYS(fdatasync),
    SCMP_SYS(fallocate),
    SCMP_SYS(flock),
    SCMP_SYS(dup),
    // Device nodes: which requests they take is the kernel's driver's to say.
    SCMP_SYS(ioctl),
    SCMP_SYS(eventfd2),
    SCMP_SYS(pipe2),
    SCMP_SYS(epoll_create1),
    SCMP_SYS(epoll_ctl),
    SCMP_SYS(epoll_wait),
    SCMP_SYS(epoll_pwait),
    SCMP_SYS(pselect6),
    SCMP_SYS(select),
    // Memory that devices reach.
    SCMP_SYS(mlock),
    SCMP_SYS(mlock2),
    SCMP_SYS(munlock),
    SCMP_SYS(mincore),
    SCMP_SYS(msync),
    SCMP_SYS(get_mempolicy),
    SCMP_SYS(set_mempolicy),
    SCMP_SYS(mbind),
    // Threads and facts.
    SCMP_SYS(sched_setaffinity),
    SCMP_SYS(sched_getparam),
    SCMP_SYS(sched_getscheduler),
    SCMP_SYS(sched_get_priority_max),
    SCMP_SYS(sched_get_priority_min),
    SCMP_SYS(getpriority),
    SCMP_SYS(getuid),
    SCMP_SYS(geteuid),
    SCMP_SYS(getgid),
    SCMP_SYS(getegid),
    SCMP_SYS(getppid),
    SCMP_SYS(getrusage),
    SCMP_SYS(times),
    SCMP_SYS(uname),
};

// For the linker that a driver's compiler starts, and to wait for it.
constexpr int kBuilderAllowed[] = {
    SCMP_SYS(execve),     SCMP_SYS(vfork),           SCMP_SYS(wait4), SCMP_SYS(waitid), SCMP_SYS(dup2),
    SCMP_SYS(dup3),       SCMP_SYS(close_range),     SCMP_SYS(chmod), SCMP_SYS(fchmod), SCMP_SYS(fchmodat),
    SCMP_SYS(arch_prctl), SCMP_SYS(set_tid_address), SCMP_SYS(umask), SCMP_SYS(getpgrp),
};

// For what starts builders: ending them, the cache's times of use, and the calls with which a builder locks itself down
// before it loads anything.
constexpr int kSupervisorAllowed[] = {
    SCMP_SYS(setpgid),
    SCMP_SYS(socketpair),
    SCMP_SYS(utimensat),
    SCMP_SYS(seccomp),
    SCMP_SYS(prctl),
    SCMP_SYS(landlock_create_ruleset),
    SCMP_SYS(landlock_add_rule),
    SCMP_SYS(landlock_restrict_self),
};

// A runner that calls one of these is no longer running our code.
constexpr int kDeadly[] = {
    SCMP_SYS(execve),
    SCMP_SYS(execveat),
    SCMP_SYS(ptrace),
    SCMP_SYS(process_vm_readv),
    SCMP_SYS(process_vm_writev),
    SCMP_SYS(pidfd_getfd),
    SCMP_SYS(kcmp),
    SCMP_SYS(bpf),
    SCMP_SYS(perf_event_open),
    SCMP_SYS(userfaultfd),
    SCMP_SYS(io_uring_setup),
    SCMP_SYS(io_uring_enter),
    SCMP_SYS(io_uring_register),
    SCMP_SYS(keyctl),
    SCMP_SYS(add_key),
    SCMP_SYS(request_key),
    SCMP_SYS(mount),
    SCMP_SYS(umount2),
    SCMP_SYS(pivot_root),
    SCMP_SYS(chroot),
    SCMP_SYS(move_mount),
    SCMP_SYS(open_tree),
    SCMP_SYS(fsopen),
    SCMP_SYS(fsconfig),
    SCMP_SYS(fsmount),
    SCMP_SYS(fspick),
    SCMP_SYS(mount_setattr),
    SCMP_SYS(unshare),
    SCMP_SYS(setns),
    SCMP_SYS(open_by_handle_at),
    SCMP_SYS(init_module),
    SCMP_SYS(finit_module),
    SCMP_SYS(delete_module),
    SCMP_SYS(kexec_load),
    SCMP_SYS(kexec_file_load),
    SCMP_SYS(reboot),
    SCMP_SYS(swapon),
    SCMP_SYS(swapoff),
    SCMP_SYS(acct),
    SCMP_SYS(iopl),
    SCMP_SYS(ioperm),
    SCMP_SYS(modify_ldt),
    SCMP_SYS(personality),
    SCMP_SYS(quotactl),
    SCMP_SYS(settimeofday),
    SCMP_SYS(clock_settime),
    SCMP_SYS(adjtimex),
    SCMP_SYS(clock_adjtime),
    SCMP_SYS(sethostname),
    SCMP_SYS(setdomainname),
    SCMP_SYS(syslog),
    SCMP_SYS(vhangup),
    SCMP_SYS(process_madvise),
};

constexpr uint64_t kThreadFlags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD;
constexpr uint64_t kNamespaceFlags = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID |
                                     CLONE_NEWNET | CLONE_NEWCGROUP | CLONE_VFORK | CLONE_PTRACE | CLONE_UNTRACED;

scmp_arg_cmp Equal(unsigned argument, uint64_t value) { return {argument, SCMP_CMP_EQ, value, 0}; }
scmp_arg_cmp Masked(unsigned argument, uint64_t mask, uint64_t value) {
  return {argument, SCMP_CMP_MASKED_EQ, mask, value};
}

// Of a process with drivers. Not F_SETOWN, F_SETSIG and F_SETOWN_EX: with them the kernel would send signals to others.
constexpr int kDriverFileCommands[] = {
    F_DUPFD,
    F_GETFD,
    F_SETFD,
    F_GETFL,
    F_SETFL,
    F_GETLK,
    F_SETLK,
    F_SETLKW,
    36,
    37,
    38,  // F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW: glibc has them
         // for some languages only.
    F_DUPFD_CLOEXEC,
    F_ADD_SEALS,
    F_GET_SEALS,
};
constexpr int kTightFileCommands[] = {F_ADD_SEALS, F_GET_SEALS, F_DUPFD_CLOEXEC};

// Adds rules until one fails.
class Rules {
 public:
  explicit Rules(scmp_filter_ctx filter) : filter_(filter) {}

  void Add(uint32_t action, int call, std::initializer_list<scmp_arg_cmp> arguments = {}) {
    if (error_ == 0) {
      error_ =
          seccomp_rule_add_array(filter_, action, call, static_cast<unsigned>(arguments.size()), arguments.begin());
      failed_call_ = call;
    }
  }
  Status status() const {
    return error_ == 0
               ? absl::OkStatus()
               : FromErrno(-error_, "Building the filter's rule for system call " + std::to_string(failed_call_));
  }

 private:
  scmp_filter_ctx filter_;
  int error_ = 0;
  int failed_call_ = 0;
};

void AddConditional(Rules& rules, SandboxProfile profile) {
  // New threads of this process, never processes. glibc falls back from clone3, whose flags a filter cannot see.
  // A builder's may be processes, in no namespace of their own.
  if (profile == SandboxProfile::kBuilder || profile == SandboxProfile::kSupervisor) {
    rules.Add(SCMP_ACT_ALLOW, SCMP_SYS(clone), {Masked(0, kNamespaceFlags & ~uint64_t{CLONE_VFORK}, 0)});
  } else {
    rules.Add(SCMP_ACT_ALLOW, SCMP_SYS(clone), {Masked(0, kThreadFlags | kNamespaceFlags, kThreadFlags)});
  }
  rules.Add(SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3));
  // Memory is never writable and executable at once; kernels' images become executable by mprotect alone, and libraries
  // are mapped where drivers are.
  rules.Add(SCMP_ACT_ALLOW, SCMP_SYS(mmap), {Masked(2, PROT_EXEC, 0)});
  if (profile != SandboxProfile::kTight) {
    rules.Add(SCMP_ACT_ALLOW, SCMP_SYS(mmap), {Masked(2, PROT_EXEC | PROT_WRITE, PROT_EXEC)});
  }
  rules.Add(SCMP_ACT_ALLOW, SCMP_SYS(mprotect), {Masked(2, PROT_EXEC, 0)});
  rules.Add(SCMP_ACT_ALLOW, SCMP_SYS(mprotect), {Masked(2, PROT_EXEC | PROT_WRITE, PROT_EXEC)});
  // Signals to itself; a supervisor's builders inherit its filter, and have one of their own for this.
  if (profile == SandboxProfile::kSupervisor) {
    rules.Add(SCMP_ACT_ALLOW, SCMP_SYS(tgkill));
  } else {
    rules.Add(SCMP_ACT_ALLOW, SCMP_SYS(tgkill), {Equal(0, static_cast<uint64_t>(getpid()))});
  }
  if (profile != SandboxProfile::kSupervisor) {
    rules.Add(SCMP_ACT_ALLOW, SCMP_SYS(prctl), {Equal(0, PR_SET_NAME)});
  }
  const std::span<const int> commands =
      profile == SandboxProfile::kTight ? std::span<const int>(kTightFileCommands) : kDriverFileCommands;
  for (const int command : commands) {
    rules.Add(SCMP_ACT_ALLOW, SCMP_SYS(fcntl), {Equal(1, static_cast<uint64_t>(command))});
  }
  // Its own limits: for reading, and for a builder's that is about to lock itself down.
  if (profile == SandboxProfile::kSupervisor) {
    rules.Add(SCMP_ACT_ALLOW, SCMP_SYS(prlimit64), {Equal(0, 0)});
    rules.Add(SCMP_ACT_ALLOW, SCMP_SYS(kill), {Equal(1, SIGKILL)});
  } else {
    rules.Add(SCMP_ACT_ALLOW, SCMP_SYS(prlimit64), {Equal(0, 0), Equal(2, 0)});
  }
}

struct ReleaseFilter {
  void operator()(void* filter) const { seccomp_release(filter); }
};

}  // namespace

Status InstallFilter(SandboxProfile profile, int refuse_errno) {
  const uint32_t refuse = SCMP_ACT_ERRNO(static_cast<uint16_t>(refuse_errno));
  std::unique_ptr<void, ReleaseFilter> filter(seccomp_init(refuse));
  if (filter == nullptr) {
    return Internal("A system call filter cannot be created.");
  }
  // Other call conventions (i386, x32) reach other tables.
  seccomp_attr_set(filter.get(), SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
  seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_OPTIMIZE, 2);
  Rules rules(filter.get());
  for (const int call : kAllowed) {
    rules.Add(SCMP_ACT_ALLOW, call);
  }
  if (profile != SandboxProfile::kTight) {
    for (const int call : kDriverAllowed) {
      rules.Add(SCMP_ACT_ALLOW, call);
    }
  }
  const bool starts_programs = profile == SandboxProfile::kBuilder || profile == SandboxProfile::kSupervisor;
  if (starts_programs) {
    for (const int call : kBuilderAllowed) {
      rules.Add(SCMP_ACT_ALLOW, call);
    }
  }
  if (profile == SandboxProfile::kSupervisor) {
    for (const int call : kSupervisorAllowed) {
      rules.Add(SCMP_ACT_ALLOW, call);
    }
  }
  for (const int call : kDeadly) {
    if (!starts_programs || call != SCMP_SYS(execve)) {
      rules.Add(SCMP_ACT_KILL_PROCESS, call);
    }
  }
  AddConditional(rules, profile);
  HPVMD_RETURN_IF_ERROR(rules.status());
  if (const int error = seccomp_load(filter.get()); error != 0) {
    return FromErrno(-error, "Installing the system call filter");
  }
  return absl::OkStatus();
}

}  // namespace hpvm
