// SPDX-License-Identifier: Apache-2.0
#include "sandbox/call_rules.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include <algorithm>
#include <iterator>
#include <string_view>

namespace hpvm::sandbox {
namespace {

constexpr ArgumentRule Equal(unsigned argument, uint64_t value) { return {argument, ~uint64_t{0}, value}; }
constexpr ArgumentRule Masked(unsigned argument, uint64_t mask, uint64_t value) { return {argument, mask, value}; }
constexpr ArgumentRule OwnProcess(unsigned argument) { return {argument, ~uint64_t{0}, 0, true}; }

constexpr uint64_t kThreadFlags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD;
constexpr uint64_t kForeignFlags = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID |
                                   CLONE_NEWNET | CLONE_NEWCGROUP | CLONE_PTRACE | CLONE_UNTRACED;
// Flags of a compile forked by the zygote: no namespaces, no shared memory or tables, no tracing.
constexpr uint64_t kForkFlags = CLONE_PIDFD | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID;
// glibc defines these only with some feature macros.
constexpr uint64_t kGetOfdLock = 36, kSetOfdLock = 37, kSetOfdLockAndWait = 38;

// The columns: runner, driver, builder, supervisor, compiler, compile child.
constexpr CallRule kRules[] = {
    // Open descriptors.
    {SCMP_SYS(read), "aaaaaa"},
    {SCMP_SYS(write), "aaaaaa"},
    {SCMP_SYS(readv), ".aaa.."},
    {SCMP_SYS(writev), "aaaa.."},
    {SCMP_SYS(pread64), "aaaaaa"},
    {SCMP_SYS(pwrite64), "aaaa.."},
    {SCMP_SYS(recvmsg), "aaaaa."},
    {SCMP_SYS(sendmsg), "aaaaa."},
    {SCMP_SYS(poll), "aaaaa."},
    {SCMP_SYS(ppoll), "aaaaa."},
    {SCMP_SYS(pselect6), ".aaa.."},
    {SCMP_SYS(select), ".aaa.."},
    {SCMP_SYS(lseek), "aaaaaa"},
    {SCMP_SYS(close), "aaaaaa"},
    {SCMP_SYS(shutdown), "aaaaa."},
    {SCMP_SYS(ftruncate), "aaaa.."},
    {SCMP_SYS(fsync), ".aaa.."},
    {SCMP_SYS(fdatasync), ".aaa.."},
    {SCMP_SYS(fallocate), ".aaa.."},
    {SCMP_SYS(flock), ".aaa.."},
    {SCMP_SYS(dup), ".aaa.."},
    {SCMP_SYS(dup2), "..aaa."},
    {SCMP_SYS(dup3), "..aaa."},
    {SCMP_SYS(close_range), "..aaa."},
    {SCMP_SYS(fstat), ".aaaaa"},
    {SCMP_SYS(fstatfs), ".aaa.."},
    // New descriptors that give no further access. The driver decides which requests a device node accepts.
    {SCMP_SYS(memfd_create), "aaaa.."},
    {SCMP_SYS(eventfd2), ".aaa.."},
    {SCMP_SYS(pipe2), ".aaaa."},
    {SCMP_SYS(socketpair), "...a.."},
    {SCMP_SYS(timerfd_create), "aaaa.."},
    {SCMP_SYS(timerfd_settime), "aaaa.."},
    {SCMP_SYS(epoll_create1), ".aaa.."},
    {SCMP_SYS(epoll_ctl), ".aaa.."},
    {SCMP_SYS(epoll_wait), ".aaa.."},
    {SCMP_SYS(epoll_pwait), ".aaa.."},
    {SCMP_SYS(ioctl), ".aaa.."},
    // Files and folders, within Landlock's rules.
    {SCMP_SYS(open), ".aaa.."},
    {SCMP_SYS(openat), ".aaaa."},
    {SCMP_SYS(access), ".aaa.."},
    {SCMP_SYS(faccessat), ".aaa.."},
    {SCMP_SYS(faccessat2), ".aaa.."},
    {SCMP_SYS(stat), ".aaa.."},
    {SCMP_SYS(lstat), ".aaa.."},
    {SCMP_SYS(newfstatat), ".aaaaa"},
    {SCMP_SYS(statx), ".aaa.."},
    {SCMP_SYS(statfs), ".aaa.."},
    {SCMP_SYS(getdents64), ".aaaa."},
    {SCMP_SYS(readlink), ".aaa.."},
    {SCMP_SYS(readlinkat), ".aaa.."},
    {SCMP_SYS(getcwd), ".aaa.."},
    {SCMP_SYS(mkdir), ".aaa.."},
    {SCMP_SYS(mkdirat), ".aaa.."},
    {SCMP_SYS(rmdir), ".aaa.."},
    {SCMP_SYS(unlink), ".aaa.."},
    {SCMP_SYS(unlinkat), ".aaaa."},
    {SCMP_SYS(rename), ".aaa.."},
    {SCMP_SYS(renameat), ".aaaa."},
    {SCMP_SYS(renameat2), ".aaaa."},
    {SCMP_SYS(chmod), "..aa.."},
    {SCMP_SYS(fchmod), "..aa.."},
    {SCMP_SYS(fchmodat), "..aa.."},
    {SCMP_SYS(utimensat), "...aa."},
    {SCMP_SYS(umask), "..aa.."},
    // Memory. Rules with arguments, below, decide on executable memory.
    {SCMP_SYS(brk), "aaaaaa"},
    {SCMP_SYS(munmap), "aaaaaa"},
    {SCMP_SYS(mremap), "aaaaaa"},
    {SCMP_SYS(madvise), "aaaaaa"},
    {SCMP_SYS(mlock), ".aaa.."},
    {SCMP_SYS(mlock2), ".aaa.."},
    {SCMP_SYS(munlock), ".aaa.."},
    {SCMP_SYS(mincore), ".aaa.."},
    {SCMP_SYS(msync), ".aaa.."},
    {SCMP_SYS(get_mempolicy), ".aaa.."},
    {SCMP_SYS(set_mempolicy), ".aaa.."},
    {SCMP_SYS(mbind), ".aaa.."},
    // Threads.
    {SCMP_SYS(futex), "aaaaaa"},
    {SCMP_SYS(set_robust_list), "aaaaa."},
    {SCMP_SYS(rseq), "aaaaa."},
    {SCMP_SYS(membarrier), "aaaa.."},
    {SCMP_SYS(gettid), "aaaaaa"},
    {SCMP_SYS(sched_yield), "aaaaaa"},
    {SCMP_SYS(sched_getaffinity), "aaaa.."},
    {SCMP_SYS(sched_setaffinity), ".aaa.."},
    {SCMP_SYS(sched_getparam), ".aaa.."},
    {SCMP_SYS(sched_getscheduler), ".aaa.."},
    {SCMP_SYS(sched_get_priority_max), ".aaa.."},
    {SCMP_SYS(sched_get_priority_min), ".aaa.."},
    {SCMP_SYS(getpriority), ".aaa.."},
    {SCMP_SYS(arch_prctl), "..aa.."},
    {SCMP_SYS(set_tid_address), "..aa.."},
    {SCMP_SYS(exit), "aaaaaa"},
    {SCMP_SYS(exit_group), "aaaaaa"},
    // Handling of received signals.
    {SCMP_SYS(rt_sigaction), "aaaaaa"},
    {SCMP_SYS(rt_sigprocmask), "aaaaaa"},
    {SCMP_SYS(rt_sigreturn), "aaaaaa"},
    {SCMP_SYS(sigaltstack), "aaaaaa"},
    {SCMP_SYS(restart_syscall), "aaaaaa"},
    // Time, random numbers, and information about the process and the machine.
    {SCMP_SYS(clock_gettime), "aaaaaa"},
    {SCMP_SYS(clock_getres), "aaaa.."},
    {SCMP_SYS(clock_nanosleep), "aaaa.."},
    {SCMP_SYS(nanosleep), "aaaa.."},
    {SCMP_SYS(gettimeofday), "aaaaaa"},
    {SCMP_SYS(times), ".aaa.."},
    {SCMP_SYS(getrandom), "aaaaaa"},
    {SCMP_SYS(sysinfo), "aaaaaa"},
    {SCMP_SYS(getcpu), "aaaa.."},
    {SCMP_SYS(uname), ".aaa.."},
    {SCMP_SYS(getpid), "aaaaaa"},
    {SCMP_SYS(getppid), ".aaaa."},
    {SCMP_SYS(getpgrp), "..aa.."},
    {SCMP_SYS(getuid), ".aaa.."},
    {SCMP_SYS(geteuid), ".aaa.."},
    {SCMP_SYS(getgid), ".aaa.."},
    {SCMP_SYS(getegid), ".aaa.."},
    {SCMP_SYS(getrusage), ".aaaaa"},
    // Programs and children: the linker started by a driver's compiler, builders, and compiles.
    {SCMP_SYS(execve), "kkaa.."},
    {SCMP_SYS(vfork), "..aa.."},
    {SCMP_SYS(wait4), "..aaa."},
    {SCMP_SYS(waitid), "..aaa."},
    {SCMP_SYS(setpgid), "...a.."},
    // With these a builder locks itself down below its supervisor's filter, before it loads anything.
    {SCMP_SYS(seccomp), "...a.."},
    {SCMP_SYS(landlock_create_ruleset), "...a.."},
    {SCMP_SYS(landlock_add_rule), "...a.."},
    {SCMP_SYS(landlock_restrict_self), "...a.."},
    // A process that calls one of these no longer runs this project's code.
    {SCMP_SYS(execveat), "kkkk.."},
    {SCMP_SYS(ptrace), "kkkk.."},
    {SCMP_SYS(process_vm_readv), "kkkk.."},
    {SCMP_SYS(process_vm_writev), "kkkk.."},
    {SCMP_SYS(pidfd_getfd), "kkkk.."},
    {SCMP_SYS(kcmp), "kkkk.."},
    {SCMP_SYS(bpf), "kkkk.."},
    {SCMP_SYS(perf_event_open), "kkkk.."},
    {SCMP_SYS(userfaultfd), "kkkk.."},
    {SCMP_SYS(io_uring_setup), "kkkk.."},
    {SCMP_SYS(io_uring_enter), "kkkk.."},
    {SCMP_SYS(io_uring_register), "kkkk.."},
    {SCMP_SYS(keyctl), "kkkk.."},
    {SCMP_SYS(add_key), "kkkk.."},
    {SCMP_SYS(request_key), "kkkk.."},
    {SCMP_SYS(mount), "kkkk.."},
    {SCMP_SYS(umount2), "kkkk.."},
    {SCMP_SYS(pivot_root), "kkkk.."},
    {SCMP_SYS(chroot), "kkkk.."},
    {SCMP_SYS(move_mount), "kkkk.."},
    {SCMP_SYS(open_tree), "kkkk.."},
    {SCMP_SYS(fsopen), "kkkk.."},
    {SCMP_SYS(fsconfig), "kkkk.."},
    {SCMP_SYS(fsmount), "kkkk.."},
    {SCMP_SYS(fspick), "kkkk.."},
    {SCMP_SYS(mount_setattr), "kkkk.."},
    {SCMP_SYS(unshare), "kkkk.."},
    {SCMP_SYS(setns), "kkkk.."},
    {SCMP_SYS(open_by_handle_at), "kkkk.."},
    {SCMP_SYS(init_module), "kkkk.."},
    {SCMP_SYS(finit_module), "kkkk.."},
    {SCMP_SYS(delete_module), "kkkk.."},
    {SCMP_SYS(kexec_load), "kkkk.."},
    {SCMP_SYS(kexec_file_load), "kkkk.."},
    {SCMP_SYS(reboot), "kkkk.."},
    {SCMP_SYS(swapon), "kkkk.."},
    {SCMP_SYS(swapoff), "kkkk.."},
    {SCMP_SYS(acct), "kkkk.."},
    {SCMP_SYS(iopl), "kkkk.."},
    {SCMP_SYS(ioperm), "kkkk.."},
    {SCMP_SYS(modify_ldt), "kkkk.."},
    {SCMP_SYS(personality), "kkkk.."},
    {SCMP_SYS(quotactl), "kkkk.."},
    {SCMP_SYS(settimeofday), "kkkk.."},
    {SCMP_SYS(clock_settime), "kkkk.."},
    {SCMP_SYS(adjtimex), "kkkk.."},
    {SCMP_SYS(clock_adjtime), "kkkk.."},
    {SCMP_SYS(sethostname), "kkkk.."},
    {SCMP_SYS(setdomainname), "kkkk.."},
    {SCMP_SYS(syslog), "kkkk.."},
    {SCMP_SYS(vhangup), "kkkk.."},
    {SCMP_SYS(process_madvise), "kkkk.."},
    // New threads of the process; builders and supervisors may start processes without new namespaces; the zygote may
    // fork with a descriptor of the child. The C library falls back to clone when clone3, whose flags a filter cannot
    // see, returns ENOSYS.
    {SCMP_SYS(clone), "aa....", {Masked(0, kThreadFlags | kForeignFlags | CLONE_VFORK, kThreadFlags)}},
    {SCMP_SYS(clone), "..aa..", {Masked(0, kForeignFlags, 0)}},
    {SCMP_SYS(clone), "....a.", {Masked(0, ~kForkFlags, SIGCHLD)}},
    {SCMP_SYS(clone3), "nnnnnn"},
    // Memory is never writable and executable at once. Kernels' images become executable only by mprotect, libraries
    // are mapped where there are drivers, and compilers do not execute their output.
    {SCMP_SYS(mmap), "aaaaaa", {Masked(2, PROT_EXEC, 0)}},
    {SCMP_SYS(mmap), ".aaa..", {Masked(2, PROT_EXEC | PROT_WRITE, PROT_EXEC)}},
    {SCMP_SYS(mprotect), "aaaaaa", {Masked(2, PROT_EXEC, 0)}},
    {SCMP_SYS(mprotect), "aaaa..", {Masked(2, PROT_EXEC | PROT_WRITE, PROT_EXEC)}},
    // Signals go to the process itself. Builders inherit their supervisor's filter and add their own for this. abort()
    // signals its own process, whose number an inherited filter cannot know: compilers are killed there.
    {SCMP_SYS(tgkill), "aaa...", {OwnProcess(0)}},
    {SCMP_SYS(tgkill), "...akk"},
    // A supervisor ends its builders and their groups. The zygote ends its children by descriptors, which only the call
    // that created a child returns: `kill` would accept any process of the user.
    {SCMP_SYS(kill), "...a..", {Equal(1, SIGKILL)}},
    {SCMP_SYS(pidfd_send_signal), "....a.", {Equal(1, SIGKILL)}},
    // Threads have names. A supervisor's builders, and the zygote's children, still have to lock themselves down.
    {SCMP_SYS(prctl), "aaa...", {Equal(0, PR_SET_NAME)}},
    {SCMP_SYS(prctl), "...a.."},
    {SCMP_SYS(prctl), "....a.", {Equal(0, PR_SET_PDEATHSIG)}},
    {SCMP_SYS(prctl), "....a.", {Equal(0, PR_SET_SECCOMP)}},
    // Not F_SETOWN, F_SETSIG and F_SETOWN_EX: with them the kernel would send signals to other processes.
    {SCMP_SYS(fcntl), ".aaaa.", {Equal(1, F_DUPFD)}},
    {SCMP_SYS(fcntl), ".aaaa.", {Equal(1, F_GETFD)}},
    {SCMP_SYS(fcntl), ".aaaa.", {Equal(1, F_SETFD)}},
    {SCMP_SYS(fcntl), ".aaaa.", {Equal(1, F_GETFL)}},
    {SCMP_SYS(fcntl), ".aaa..", {Equal(1, F_SETFL)}},
    {SCMP_SYS(fcntl), ".aaa..", {Equal(1, F_GETLK)}},
    {SCMP_SYS(fcntl), ".aaa..", {Equal(1, F_SETLK)}},
    {SCMP_SYS(fcntl), ".aaa..", {Equal(1, F_SETLKW)}},
    {SCMP_SYS(fcntl), ".aaa..", {Equal(1, kGetOfdLock)}},
    {SCMP_SYS(fcntl), ".aaa..", {Equal(1, kSetOfdLock)}},
    {SCMP_SYS(fcntl), ".aaa..", {Equal(1, kSetOfdLockAndWait)}},
    {SCMP_SYS(fcntl), "aaaaa.", {Equal(1, F_DUPFD_CLOEXEC)}},
    {SCMP_SYS(fcntl), "aaaa..", {Equal(1, F_ADD_SEALS)}},
    {SCMP_SYS(fcntl), "aaaaa.", {Equal(1, F_GET_SEALS)}},
    // A process's own limits: readable, and writable by processes that still have to lock themselves down.
    {SCMP_SYS(prlimit64), "aaa...", {Equal(0, 0), Equal(2, 0)}},
    {SCMP_SYS(prlimit64), "...aa.", {Equal(0, 0)}},
};
static_assert(std::all_of(std::begin(kRules), std::end(kRules), [](const CallRule& rule) {
  return std::string_view(rule.verdicts).size() == kSandboxRoles;
}));

}  // namespace

std::span<const CallRule> CallRules() { return kRules; }

}  // namespace hpvm::sandbox
