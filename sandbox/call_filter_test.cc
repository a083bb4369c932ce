// SPDX-License-Identifier: Apache-2.0
// Each role's system call filter: by number (golden tables), by arguments that an attacker would choose, and the whole
// table of call_rules.h against the programs passed to the kernel.
#include "sandbox/call_filter.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iostream>
#include <random>
#include <set>

#include "sandbox/testing/syscall_table.h"

namespace hpvm::sandbox {
namespace {

using testing::kRefused;

constexpr const char* kRoleNames[] = {"runner", "driver", "builder", "supervisor", "compiler", "compile_child"};

// Built and applied in the process that needs it, as executors do.
testing::Filter Alone(SandboxRole role) {
  return [role]() -> Status {
    HPVMD_ASSIGN_OR_RETURN(const CallFilter filter, CallFilter::For(role, kRefused));
    return filter.Apply();
  };
}

// As each role installs it; a child of the compiler has its own filter, made in advance, on top of the compiler's.
testing::Filter FilterOf(SandboxRole role) {
  if (role != SandboxRole::kCompileChild) {
    return Alone(role);
  }
  return []() -> Status {
    HPVMD_ASSIGN_OR_RETURN(const CallFilter child, CallFilter::For(SandboxRole::kCompileChild, kRefused));
    HPVMD_RETURN_IF_ERROR(Alone(SandboxRole::kCompiler)());
    return child.Apply();
  };
}

// Creates a process that ends at once.
long Clone(uint64_t flags) {
  const long child = syscall(SYS_clone, flags, nullptr, nullptr, nullptr, nullptr);
  if (child == 0) {
    syscall(SYS_exit_group, 0);
  }
  return child;
}

long Map(int protection) { return syscall(SYS_mmap, 0, 4096, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }

constexpr uint64_t kThread = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD;
alignas(4096) char page[8192];
rlimit limit;

struct Case {
  const char* name;
  std::function<long()> call;
  // Indexed by role: 'a' allowed, 'r' refused, 'k' killed, 'n' unavailable (ENOSYS).
  const char* verdicts;
};

// No role can signal other processes, except that a supervisor kills its builders; other processes' limits, namespaces
// and memory are out of reach for all roles.
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
    {"writable and executable memory", [] { return Map(PROT_READ | PROT_WRITE | PROT_EXEC); }, "rrrrrr"},
    {"data made executable", [] { return syscall(SYS_mprotect, page, 4096, PROT_READ | PROT_EXEC); }, "aaaarr"},
    {"socket", [] { return syscall(SYS_socket, AF_INET, SOCK_STREAM, 0); }, "rrrrrr"},
    {"program", [] { return syscall(SYS_execve, "/no/such/program", nullptr, nullptr); }, "kkaarr"},
    {"vfork", [] { return testing::Vfork(); }, "rraarr"},
    {"thread in a network namespace", [] { return Clone(kThread | CLONE_NEWNET); }, "rrrrrr"},
    {"signal itself", [] { return syscall(SYS_tgkill, getpid(), gettid(), 0); }, "aaaakk"},
    {"signal the first process", [] { return syscall(SYS_kill, 1, 0); }, "rrrrrr"},
    {"name a thread", [] { return syscall(SYS_prctl, PR_SET_NAME, "x", 0, 0, 0); }, "aaaarr"},
    {"its own limits, written", [] { return syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, page, nullptr); }, "rrraar"},
    {"data", [] { return Map(PROT_READ | PROT_WRITE); }, "aaaaaa"},
    {"executable memory", [] { return Map(PROT_READ | PROT_EXEC); }, "raaarr"},
    {"library",
     [] {
       const long fd = syscall(SYS_openat, AT_FDCWD, "/proc/self/exe", O_RDONLY);
       return syscall(SYS_mmap, 0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
     },
     "raaarr"},
    {"data made writable and executable",
     [] { return syscall(SYS_mprotect, page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC); }, "rrrrrr"},
    {"file", [] { return syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDONLY); }, "raaaar"},
    {"facts of a file", [] { return syscall(SYS_newfstatat, AT_FDCWD, "/", page, 0); }, "raaaaa"},
    {"socket of the machine", [] { return syscall(SYS_socket, AF_UNIX, SOCK_STREAM, 0); }, "rrrrrr"},
    {"queue of calls", [] { return syscall(SYS_io_uring_setup, 1, page); }, "kkkkrr"},
    {"call of another convention", [] { return syscall(0x40000000 | SYS_getpid); }, "kkkkkk"},
};

char VerdictOf(int outcome) {
  return outcome == testing::kRefusal ? 'r' : outcome == testing::kNotThere ? 'n' : outcome == -SIGSYS ? 'k' : 'a';
}

TEST(CallFilterTest, EveryRoleByArguments) {
  for (const Case& c : kCases) {
    std::string verdicts;
    for (size_t role = 0; role < kSandboxRoles; ++role) {
      verdicts += VerdictOf(testing::UnderFilter(FilterOf(static_cast<SandboxRole>(role)), c.call));
    }
    EXPECT_EQ(verdicts, c.verdicts) << c.name << " (runner, driver, builder, supervisor, compiler, compile child)";
  }
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string GoldenPath(size_t role) {
  return std::string(HPVMD_SOURCE_DIR) + "/tests/golden/sandbox/" + kRoleNames[role] + "_syscalls.txt";
}

// Every system call number: a new one appears here before a tenant can use it.
TEST(CallFilterTest, SyscallsMatchTheGoldenTables) {
#ifdef HPVMD_TSAN
  GTEST_SKIP() << "exit, which ends one thread, leaves the sanitizer's own thread: the child never ends.";
#endif
  // Not counting calls that are decided by arguments.
  constexpr int kMost[] = {43, 110, 125, 130, 60, 30};
  for (size_t role = 0; role < kSandboxRoles; ++role) {
    SCOPED_TRACE(kRoleNames[role]);
    const testing::Filter filter = Alone(static_cast<SandboxRole>(role));
    const std::string table = testing::SyscallTable(filter);
    if (getenv("HPVMD_BLESS") != nullptr) {
      std::ofstream(GoldenPath(role)) << table;
      continue;
    }
    EXPECT_EQ(table, ReadFile(GoldenPath(role)))
        << "HPVMD_BLESS=1 " << ::testing::internal::GetArgvs()[0] << " rewrites it.";
    EXPECT_GT(testing::CountAllowed(table), 20);
    EXPECT_LE(testing::CountAllowed(table), kMost[role]);
    EXPECT_EQ(testing::FirstBeyondTable(filter), 0);
    // Killed, or unavailable.
    const int by_int80 = testing::ByInt80(filter);
    EXPECT_TRUE(by_int80 == -SIGSYS || by_int80 == -SIGSEGV) << by_int80;
  }
}

// The system calls available to tenants' kernels.
TEST(CallFilterTest, RunnersHaveFiftyCallsAtMost) {
  std::set<int> calls;
  for (const CallRule& rule : CallRules()) {
    if (rule.call >= 0 && rule.verdicts[0] == 'a') {
      calls.insert(rule.call);
    }
  }
  std::cout << "system calls of a CPU runner: " << calls.size() << "\n";
  EXPECT_GT(calls.size(), 20u);
  EXPECT_LE(calls.size(), 50u);
}

// Evaluates a filter program like the kernel.
uint32_t Evaluate(std::span<const sock_filter> program, const seccomp_data& data) {
  uint32_t value = 0;
  for (size_t at = 0; at < program.size(); ++at) {
    const sock_filter& step = program[at];
    const auto skip = [&](bool is_true) { at += is_true ? step.jt : step.jf; };
    switch (step.code) {
      case BPF_LD | BPF_W | BPF_ABS:
        std::memcpy(&value, reinterpret_cast<const char*>(&data) + step.k, sizeof(value));
        break;
      case BPF_ALU | BPF_AND | BPF_K:
        value &= step.k;
        break;
      case BPF_JMP | BPF_JA:
        at += step.k;
        break;
      case BPF_JMP | BPF_JEQ | BPF_K:
        skip(value == step.k);
        break;
      case BPF_JMP | BPF_JGT | BPF_K:
        skip(value > step.k);
        break;
      case BPF_JMP | BPF_JGE | BPF_K:
        skip(value >= step.k);
        break;
      case BPF_JMP | BPF_JSET | BPF_K:
        skip((value & step.k) != 0);
        break;
      case BPF_RET | BPF_K:
        return step.k;
      default:
        ADD_FAILURE() << "A filter has an instruction (" << step.code << ") that this test does not know.";
        return SECCOMP_RET_ALLOW;
    }
  }
  ADD_FAILURE() << "A filter does not end.";
  return SECCOMP_RET_ALLOW;
}

using Arguments = std::array<uint64_t, 6>;

uint64_t ValueOf(const ArgumentRule& rule) {
  return rule.is_own_process ? static_cast<uint64_t>(getpid()) : rule.value;
}

bool Holds(const CallRule& rule, const Arguments& arguments) {
  return std::all_of(rule.arguments.begin(), rule.arguments.end(), [&](const ArgumentRule& argument) {
    return (arguments[argument.argument] & argument.mask) == (ValueOf(argument) & argument.mask);
  });
}

// Returns the verdict of the table itself.
uint32_t Wanted(size_t role, int call, const Arguments& arguments) {
  for (const CallRule& rule : CallRules()) {
    const char verdict = rule.verdicts[role];
    if (rule.call == call && verdict != '.' && Holds(rule, arguments)) {
      return verdict == 'a'   ? SECCOMP_RET_ALLOW
             : verdict == 'k' ? SECCOMP_RET_KILL_PROCESS
                              : SECCOMP_RET_ERRNO | ENOSYS;
    }
  }
  return SECCOMP_RET_ERRNO | kRefused;
}

// Returns arguments for which a rule holds, the same with each bit of each flipped, and random ones.
std::vector<Arguments> Questions(int call) {
  static std::mt19937_64 random(1);
  std::vector<Arguments> bases = {Arguments{}, Arguments{}};
  bases[1].fill(~uint64_t{0});
  for (const CallRule& rule : CallRules()) {
    if (rule.call == call) {
      Arguments base{};
      for (const ArgumentRule& argument : rule.arguments) {
        base[argument.argument] |= ValueOf(argument);
      }
      bases.push_back(base);
    }
  }
  std::vector<Arguments> questions;
  for (const Arguments& base : bases) {
    for (size_t bit = 0; bit < 6 * 64; ++bit) {
      questions.push_back(base);
      questions.back()[bit / 64] ^= uint64_t{1} << (bit % 64);
    }
    questions.push_back(base);
  }
  for (int i = 0; i < 50; ++i) {
    Arguments any;
    std::generate(any.begin(), any.end(), [] { return random() >> (random() % 64); });
    questions.push_back(any);
  }
  return questions;
}

// The programs agree with the table, for every number and for arguments on both sides of each rule; calls that the
// table does not name are refused, and other calling conventions end the process.
TEST(CallFilterTest, ProgramsSayWhatTheTableSays) {
  for (size_t role = 0; role < kSandboxRoles; ++role) {
    const StatusOr<CallFilter> filter = CallFilter::For(static_cast<SandboxRole>(role), kRefused);
    ASSERT_TRUE(filter.ok()) << filter.status();
    size_t wrong = 0;
    for (int call = 0; call < 1024; ++call) {
      for (const Arguments& arguments : Questions(call)) {
        seccomp_data data{};
        data.nr = call;
        data.arch = AUDIT_ARCH_X86_64;
        std::copy(arguments.begin(), arguments.end(), data.args);
        wrong += Evaluate(filter->program(), data) != Wanted(role, call, arguments) ? 1 : 0;
      }
      EXPECT_EQ(wrong, 0u) << kRoleNames[role] << ", system call " << call;
      ASSERT_LT(wrong, 1000u);
      seccomp_data other{};
      other.nr = call;
      other.arch = AUDIT_ARCH_I386;
      ASSERT_EQ(Evaluate(filter->program(), other), SECCOMP_RET_KILL_PROCESS) << call;
      other.nr = 0x40000000 | call;
      other.arch = AUDIT_ARCH_X86_64;
      ASSERT_EQ(Evaluate(filter->program(), other), SECCOMP_RET_KILL_PROCESS) << call;
    }
  }
}

// No two rows contradict each other, so their order does not matter.
TEST(CallFilterTest, RowsDoNotContradict) {
  for (const CallRule& a : CallRules()) {
    for (const CallRule& b : CallRules()) {
      for (size_t role = 0; a.call == b.call && role < kSandboxRoles; ++role) {
        EXPECT_TRUE(a.verdicts[role] == b.verdicts[role] || a.verdicts[role] == '.' || b.verdicts[role] == '.')
            << a.call << ", " << kRoleNames[role];
      }
    }
  }
}

// A new thread works under the filter, as does the abort that reports bugs of this program.
TEST(CallFilterTest, ThreadsAndAbortWork) {
  const auto run_thread = [] {
    int done = 0;
    pthread_t thread;
    const auto body = [](void* at) -> void* {
      *static_cast<int*>(at) = 1;
      return nullptr;
    };
    const bool has_run = pthread_create(&thread, nullptr, body, &done) == 0 && pthread_join(thread, nullptr) == 0;
    return has_run && done == 1 ? 0L : -1L;
  };
  EXPECT_EQ(testing::UnderFilter(FilterOf(SandboxRole::kRunner), run_thread), testing::kAllowed);
  EXPECT_EQ(testing::UnderFilter(FilterOf(SandboxRole::kRunner), []() -> long { abort(); }), -SIGABRT);
}

// A child of the compiler that aborts ends, in one way or another.
TEST(CallFilterTest, AbortEndsACompileChild) {
  EXPECT_EQ(testing::UnderFilter(FilterOf(SandboxRole::kCompileChild), []() -> long { abort(); }), -SIGSYS);
}

}  // namespace
}  // namespace hpvm::sandbox
