// SPDX-License-Identifier: Apache-2.0
// What the filter of each role lets a process do to others, by role, call and arguments: executors at each profile,
// those that start drivers' builders, the compiler, and the children that compile.
//
// The golden tables (tests/golden/sandbox) say what happens to each number with one set of arguments; this one asks
// those numbers whose arguments decide, as whoever has broken out would.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/sched.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <iostream>

#include "base/testing/syscall_table.h"
#include "compiler/driver/zygote_sandbox.h"
#include "executor/sandbox.h"

namespace hpvm {
namespace {

using testing::kRefused;

enum Role : size_t { kRunner, kDriver, kBuilder, kSupervisor, kCompiler, kCompileChild, kRoles };
constexpr const char* kRoleNames[] = {"runner", "driver", "builder", "supervisor", "compiler", "compile child"};

// As each role installs it; a child of the compiler's has the compiler's below its own.
testing::Filter FilterOf(Role role) {
  if (role == kCompiler || role == kCompileChild) {
    return [role]() -> Status {
      HPVMD_ASSIGN_OR_RETURN(const CallFilter zygote, CallFilter::ForZygote(kRefused));
      HPVMD_ASSIGN_OR_RETURN(const CallFilter child, CallFilter::ForChild(kRefused));
      HPVMD_RETURN_IF_ERROR(zygote.Apply());
      return role == kCompileChild ? child.Apply() : absl::OkStatus();
    };
  }
  constexpr SandboxProfile kProfiles[] = {SandboxProfile::kTight, SandboxProfile::kDriver, SandboxProfile::kBuilder,
                                          SandboxProfile::kSupervisor};
  return [profile = kProfiles[role]] { return InstallFilter(profile, kRefused); };
}

// A new process ends at once.
long Clone(uint64_t flags) {
  const long child = syscall(SYS_clone, flags, nullptr, nullptr, nullptr, nullptr);
  if (child == 0) {
    syscall(SYS_exit_group, 0);
  }
  return child;
}

constexpr uint64_t kThread = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD;
alignas(4096) char page[8192];
rlimit limit;

struct Case {
  const char* name;
  std::function<long()> call;
  // By role: 'a' allowed, 'r' refused, 'k' killed, 'n' not there (ENOSYS).
  const char* verdicts;
};

// Signals go to nobody else, but that a supervisor kills its builders; limits, namespaces and memory of others are out
// of reach for all.
const Case kCases[] = {
    {"fork", [] { return Clone(SIGCHLD); }, "rraaar"},
    {"fork with a descriptor", [] { return Clone(SIGCHLD | CLONE_PIDFD); }, "rraaar"},
    {"clone3", [] { return syscall(SYS_clone3, nullptr, 0); }, "nnnnnn"},
    {"user namespace", [] { return Clone(SIGCHLD | CLONE_NEWUSER); }, "rrrrrr"},
    {"network namespace", [] { return Clone(SIGCHLD | CLONE_NEWNET); }, "rrrrrr"},
    {"mount namespace", [] { return Clone(SIGCHLD | CLONE_NEWNS); }, "rrrrrr"},
    {"process namespace", [] { return Clone(SIGCHLD | CLONE_NEWPID); }, "rrrrrr"},
    {"namespace of control groups", [] { return Clone(SIGCHLD | CLONE_NEWCGROUP); }, "rrrrrr"},
    {"thread in a namespace", [] { return Clone(kThread | CLONE_NEWUSER); }, "rrrrrr"},
    {"traced child", [] { return Clone(SIGCHLD | CLONE_PTRACE); }, "rrrrrr"},
    {"child that its parent does not hear of", [] { return Clone(0); }, "rraarr"},
    {"sibling", [] { return Clone(SIGCHLD | CLONE_PARENT); }, "rraarr"},
    {"unshare", [] { return syscall(SYS_unshare, CLONE_NEWUSER); }, "kkkkrr"},
    {"setns", [] { return syscall(SYS_setns, -1, 0); }, "kkkkrr"},
    {"kill everybody", [] { return syscall(SYS_kill, -1, 0); }, "rrrrrr"},
    {"end its parent", [] { return syscall(SYS_kill, getppid(), SIGTERM); }, "rrrrrr"},
    {"stop its parent", [] { return syscall(SYS_kill, getppid(), SIGSTOP); }, "rrrrrr"},
    {"kill a process that is not there", [] { return syscall(SYS_kill, 0x7ffffffe, SIGKILL); }, "rrrarr"},
    {"kill a thread of another", [] { return syscall(SYS_tgkill, 1, 1, 0); }, "rrrakk"},
    {"kill a thread", [] { return syscall(SYS_tkill, 1, 0); }, "rrrrrr"},
    {"queue a signal", [] { return syscall(SYS_rt_sigqueueinfo, 1, 0, page); }, "rrrrrr"},
    {"descriptor of another process", [] { return syscall(SYS_pidfd_open, 1, 0); }, "rrrrrr"},
    {"kill by descriptor", [] { return syscall(SYS_pidfd_send_signal, -1, SIGKILL, nullptr, 0); }, "rrrrar"},
    {"stop by descriptor", [] { return syscall(SYS_pidfd_send_signal, -1, SIGSTOP, nullptr, 0); }, "rrrrrr"},
    {"descriptor out of another process", [] { return syscall(SYS_pidfd_getfd, -1, 0, 0); }, "kkkkrr"},
    {"signals of a file to others", [] { return syscall(SYS_fcntl, 2, F_SETOWN, 1); }, "rrrrrr"},
    {"which signal of a file", [] { return syscall(SYS_fcntl, 2, F_SETSIG, SIGKILL); }, "rrrrrr"},
    {"signals of a file to another thread", [] { return syscall(SYS_fcntl, 2, F_SETOWN_EX, page); }, "rrrrrr"},
    {"flags of a file", [] { return syscall(SYS_fcntl, 2, F_GETFL, 0); }, "raaaar"},
    {"limits of another, read", [] { return syscall(SYS_prlimit64, 1, RLIMIT_NOFILE, nullptr, &limit); }, "rrrrrr"},
    {"limits of another, written", [] { return syscall(SYS_prlimit64, 1, RLIMIT_NOFILE, &limit, nullptr); }, "rrrrrr"},
    {"its own limits, read", [] { return syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, nullptr, &limit); }, "aaaaar"},
    {"priority of another", [] { return syscall(SYS_setpriority, PRIO_USER, 0, 19); }, "rrrrrr"},
    {"debugger", [] { return syscall(SYS_ptrace, 16, 1, 0, 0); }, "kkkkrr"},
    {"memory of another", [] { return syscall(SYS_process_vm_readv, 1, 0, 0, 0, 0, 0); }, "kkkkrr"},
    {"dumpable", [] { return syscall(SYS_prctl, PR_SET_DUMPABLE, 1, 0, 0, 0); }, "rrrarr"},
    {"who may trace it", [] { return syscall(SYS_prctl, PR_SET_PTRACER, -1, 0, 0, 0); }, "rrrarr"},
    {"writable and executable memory",
     [] { return syscall(SYS_mmap, 0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); },
     "rrrrrr"},
    {"data made executable", [] { return syscall(SYS_mprotect, page, 4096, PROT_READ | PROT_EXEC); }, "aaaarr"},
    {"socket", [] { return syscall(SYS_socket, AF_INET, SOCK_STREAM, 0); }, "rrrrrr"},
    {"program", [] { return syscall(SYS_execve, "/no/such/program", nullptr, nullptr); }, "kkaarr"},
};

char VerdictOf(int outcome) {
  return outcome == testing::kRefusal ? 'r' : outcome == testing::kNotThere ? 'n' : outcome == -SIGSYS ? 'k' : 'a';
}

TEST(FiltersTest, EveryRoleByArguments) {
  for (const Case& c : kCases) {
    std::string verdicts;
    for (size_t role = 0; role < kRoles; ++role) {
      verdicts += VerdictOf(testing::UnderFilter(FilterOf(static_cast<Role>(role)), c.call));
    }
    EXPECT_EQ(verdicts, c.verdicts) << c.name << " (" << kRoleNames[0] << ", " << kRoleNames[1] << ", " << kRoleNames[2]
                                    << ", " << kRoleNames[3] << ", " << kRoleNames[4] << ", " << kRoleNames[5] << ")";
  }
}

// A child of the compiler's that aborts ends, by whatever way.
TEST(FiltersTest, AbortEndsACompileChild) {
  EXPECT_EQ(testing::UnderFilter(FilterOf(kCompileChild), []() -> long { abort(); }), -SIGSYS);
}

// The compiler goes on without Landlock only where nobody counts on it.
TEST(FiltersTest, CompilerNeedsLandlockWhereTheLevelSaysSo) {
  for (const bool needs_landlock : {false, true}) {
    const int result = testing::InChild([&] {
      prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
      const StatusOr<CallFilter> filter = CallFilter::ForZygote();
      scmp_filter_ctx without = seccomp_init(SCMP_ACT_ALLOW);
      seccomp_rule_add(without, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(landlock_create_ruleset), 0);
      if (!filter.ok() || seccomp_load(without) != 0) {
        return 100;
      }
      return LockDownZygote("", *filter, needs_landlock).ok() ? 0 : 1;
    });
    EXPECT_EQ(result, needs_landlock ? 1 : 0);
  }
}

}  // namespace
}  // namespace hpvm
