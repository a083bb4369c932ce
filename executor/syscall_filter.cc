// SPDX-License-Identifier: Apache-2.0
// The runner's system calls: an allow-list. What is not named is refused with EPERM, which libraries take for a missing
// feature; what no honest runner ever calls kills the process. tests/golden/sandbox/runner_syscalls.txt is the
// resulting table, number by number.
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <initializer_list>
#include <memory>

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

void AddConditional(Rules& rules) {
  // New threads of this process, never processes. glibc falls back from clone3, whose flags a filter cannot see.
  rules.Add(SCMP_ACT_ALLOW, SCMP_SYS(clone),
            {Masked(0, kThreadFlags | kNamespaceFlags, kThreadFlags)});
  rules.Add(SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3));
  // Memory is never writable and executable at once; kernels' images become executable by mprotect alone.
  rules.Add(SCMP_ACT_ALLOW, SCMP_SYS(mmap), {Masked(2, PROT_EXEC, 0)});
  rules.Add(SCMP_ACT_ALLOW, SCMP_SYS(mprotect), {Masked(2, PROT_EXEC, 0)});
  rules.Add(SCMP_ACT_ALLOW, SCMP_SYS(mprotect), {Masked(2, PROT_EXEC | PROT_WRITE, PROT_EXEC)});
  rules.Add(SCMP_ACT_ALLOW, SCMP_SYS(tgkill), {Equal(0, static_cast<uint64_t>(getpid()))});
  rules.Add(SCMP_ACT_ALLOW, SCMP_SYS(prctl), {Equal(0, PR_SET_NAME)});
  for (const int command : {F_ADD_SEALS, F_GET_SEALS, F_DUPFD_CLOEXEC}) {
    rules.Add(SCMP_ACT_ALLOW, SCMP_SYS(fcntl), {Equal(1, static_cast<uint64_t>(command))});
  }
  // Its own limits, for reading.
  rules.Add(SCMP_ACT_ALLOW, SCMP_SYS(prlimit64), {Equal(0, 0), Equal(2, 0)});
}

struct ReleaseFilter {
  void operator()(void* filter) const { seccomp_release(filter); }
};

}  // namespace

Status InstallRunnerFilter(int refuse_errno) {
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
  for (const int call : kDeadly) {
    rules.Add(SCMP_ACT_KILL_PROCESS, call);
  }
  AddConditional(rules);
  HPVMD_RETURN_IF_ERROR(rules.status());
  if (const int error = seccomp_load(filter.get()); error != 0) {
    return FromErrno(-error, "Installing the system call filter");
  }
  return absl::OkStatus();
}

}  // namespace hpvm
