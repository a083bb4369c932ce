// SPDX-License-Identifier: Apache-2.0
// What the lock-down forbids, tried one by one in processes that end afterwards.
#include "executor/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "executor/driver_environment.h"
#include "executor/testing/fixture.h"

namespace hpvm {
namespace {

// An errno that no system call returns, so that the filter's refusals differ from the kernel's.
constexpr int kRefused = 4000;
constexpr int kSyscallsMax = 460;

// Runs `body` in a child; its return value, or -signal.
int InChild(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    _exit(body());
  }
  int status = 0;
  HPVMD_CHECK(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

enum Outcome : int { kAllowed = 0, kRefusal = 1, kNotThere = 2 };

int OutcomeOf(long result) {
  return result == -1 && errno == kRefused ? kRefusal : result == -1 && errno == ENOSYS ? kNotThere : kAllowed;
}

std::string NameOf(int outcome) {
  switch (outcome) {
    case kRefusal:
      return "refuse";
    case kNotThere:
      return "absent";
    case -SIGSYS:
      return "kill";
    default:
      return "allow";  // It did something, or crashed on the arguments.
  }
}

// `call` under a profile's filter, in a child of its own.
int UnderFilter(const std::function<long()>& call, SandboxProfile profile = SandboxProfile::kTight) {
  return InChild([&] {
    alarm(20);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (!InstallFilter(profile, kRefused).ok()) {
      return 100;
    }
    errno = 0;
    const long result = call();
    return OutcomeOf(result);
  });
}

// The whole table, as in the golden file: "0 allow", with ranges of equal outcomes joined.
std::string SyscallTable(SandboxProfile profile) {
  std::vector<std::string> outcomes;
  for (int number = 0; number <= kSyscallsMax; ++number) {
    // uretprobe and uprobe: newer kernels pass them by every filter, and they raise SIGILL outside a probe.
    const bool is_unfiltered = number == 335 || number == 336;
    outcomes.push_back(is_unfiltered
                           ? "unfiltered"
                           : NameOf(UnderFilter(
                                 [number] { return syscall(number, -1L, -1L, -1L, -1L, -1L, -1L); }, profile)));
  }
  std::ostringstream table;
  for (size_t first = 0; first < outcomes.size();) {
    size_t last = first;
    while (last + 1 < outcomes.size() && outcomes[last + 1] == outcomes[first]) {
      ++last;
    }
    table << first << (last > first ? "-" + std::to_string(last) : "") << " " << outcomes[first] << "\n";
    first = last + 1;
  }
  return table.str();
}

// Every system call number: a new one appears here before it appears in a tenant's hands.
TEST(SandboxTest, SyscallsMatchTheGoldenTables) {
  const struct {
    SandboxProfile profile;
    const char* file;
  } cases[] = {{SandboxProfile::kTight, "runner_syscalls.txt"},
               {SandboxProfile::kDriver, "driver_syscalls.txt"},
               {SandboxProfile::kBuilder, "builder_syscalls.txt"},
               {SandboxProfile::kSupervisor, "supervisor_syscalls.txt"}};
  for (const auto& c : cases) {
    const std::string path = std::string(HPVMD_SOURCE_DIR) + "/tests/golden/sandbox/" + c.file;
    const std::string table = SyscallTable(c.profile);
    if (getenv("HPVMD_BLESS") != nullptr) {
      std::ofstream(path) << table;
      continue;
    }
    std::ifstream file(path);
    std::stringstream golden;
    golden << file.rdbuf();
    EXPECT_EQ(table, golden.str()) << c.file << ": HPVMD_BLESS=1 " << ::testing::internal::GetArgvs()[0]
                                   << " rewrites it.";
  }
}

// Calls whose arguments decide.
TEST(SandboxTest, ArgumentsDecide) {
  static char page[8192] __attribute__((aligned(4096)));
  const struct {
    const char* name;
    std::function<long()> call;
    const char* expected;
  } cases[] = {
      {"fork", [] { return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); }, "refuse"},
      {"vfork", [] { return syscall(SYS_vfork); }, "refuse"},
      {"clone3", [] { return syscall(SYS_clone3, nullptr, 0); }, "absent"},
      {"thread in new namespace",
       [] {
         return syscall(SYS_clone, CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_NEWNET, 0,
                        0, 0, 0);
       },
       "refuse"},
      {"map executable",
       [] { return syscall(SYS_mmap, 0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }, "refuse"},
      {"map data",
       [] { return syscall(SYS_mmap, 0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }, "allow"},
      {"make executable", [] { return syscall(SYS_mprotect, page, 4096, PROT_READ | PROT_EXEC); }, "allow"},
      {"make writable and executable",
       [] { return syscall(SYS_mprotect, page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC); }, "refuse"},
      {"signal itself", [] { return syscall(SYS_tgkill, getpid(), gettid(), 0); }, "allow"},
      {"signal its parent", [] { return syscall(SYS_tgkill, 1, 1, 0); }, "refuse"},
      {"kill", [] { return syscall(SYS_kill, 1, 0); }, "refuse"},
      {"name a thread", [] { return syscall(SYS_prctl, PR_SET_NAME, "x", 0, 0, 0); }, "allow"},
      {"become dumpable", [] { return syscall(SYS_prctl, PR_SET_DUMPABLE, 1, 0, 0, 0); }, "refuse"},
      {"read its limits", [] { return syscall(SYS_prlimit64, 0, 7, nullptr, page); }, "allow"},
      {"raise its limits", [] { return syscall(SYS_prlimit64, 0, 7, page, nullptr); }, "refuse"},
      {"read another's limits", [] { return syscall(SYS_prlimit64, 1, 7, nullptr, page); }, "refuse"},
      {"open", [] { return syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDONLY); }, "refuse"},
      {"stat", [] { return syscall(SYS_newfstatat, AT_FDCWD, "/", page, 0); }, "refuse"},
      {"socket", [] { return syscall(SYS_socket, AF_INET, SOCK_STREAM, 0); }, "refuse"},
      {"execve", [] { return syscall(SYS_execve, "/bin/true", nullptr, nullptr); }, "kill"},
      {"ptrace", [] { return syscall(SYS_ptrace, 0, 0, 0, 0); }, "kill"},
      {"io_uring_setup", [] { return syscall(SYS_io_uring_setup, 1, page); }, "kill"},
      {"x32 call", [] { return syscall(0x40000000 | SYS_getpid); }, "kill"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(NameOf(UnderFilter(c.call)), c.expected) << c.name;
  }
}

// A new thread works under the filter, as does the abort that reports our own bugs.
TEST(SandboxTest, ThreadsAndAbortWork) {
  EXPECT_EQ(UnderFilter([] {
              int done = 0;
              std::thread([&] { done = 1; }).join();
              return done == 1 ? 0L : -1L;
            }),
            kAllowed);
  EXPECT_EQ(UnderFilter([]() -> long { abort(); }), -SIGABRT);
}

// Landlock alone, without the filter: no path can be opened, run or made.
TEST(SandboxTest, LandlockForbidsPaths) {
  const int supported = InChild([] {
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    int abi = 0;
    return RestrictFiles({}, &abi).ok() ? 0 : 1;
  });
  if (supported != 0) {
    GTEST_SKIP() << "The kernel has no Landlock.";
  }
  const struct {
    const char* name;
    std::function<int()> attempt;  // 0: it was possible.
  } cases[] = {
      {"read a file", [] { return open("/etc/passwd", O_RDONLY) >= 0 ? 0 : errno; }},
      {"write a device", [] { return open("/dev/null", O_WRONLY) >= 0 ? 0 : errno; }},
      {"list a folder", [] { return open("/", O_RDONLY | O_DIRECTORY) >= 0 ? 0 : errno; }},
      {"make a file", [] { return open("/tmp/hpvm-forbidden", O_CREAT | O_WRONLY, 0600) >= 0 ? 0 : errno; }},
      {"make a folder", [] { return mkdir("/tmp/hpvm-forbidden.d", 0700) == 0 ? 0 : errno; }},
      {"run a program",
       [] {
         execl("/bin/true", "true", nullptr);
         return errno;
       }},
      {"read its memory map", [] { return open("/proc/self/mem", O_RDWR) >= 0 ? 0 : errno; }},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(InChild([&] {
                prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
                int abi = 0;
                return RestrictFiles({}, &abi).ok() ? c.attempt() : 100;
              }),
              EACCES)
        << c.name;
  }
}

// What arguments decide where drivers are loaded: libraries may be mapped and files below Landlock's opened, but memory
// is still never writable and executable, and only builders start programs.
TEST(SandboxTest, DriverProfilesDifferInWhatTheyStart) {
  const struct {
    const char* name;
    std::function<long()> call;
    const char *driver, *builder;
  } cases[] = {
      {"fork",
       [] {
         const long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
         if (child == 0) {
           syscall(SYS_exit_group, 0);
         }
         return child;
       },
       "refuse", "allow"},
      {"new namespace", [] { return syscall(SYS_clone, SIGCHLD | CLONE_NEWUSER, 0, 0, 0, 0); }, "refuse", "refuse"},
      {"execve", [] { return syscall(SYS_execve, "/no/such/program", nullptr, nullptr); }, "kill", "allow"},
      {"open", [] { return syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDONLY); }, "allow", "allow"},
      {"map a library",
       [] {
         const long fd = syscall(SYS_openat, AT_FDCWD, "/proc/self/exe", O_RDONLY);
         return syscall(SYS_mmap, 0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
       },
       "allow", "allow"},
      {"map writable and executable",
       [] {
         return syscall(SYS_mmap, 0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
       },
       "refuse", "refuse"},
      {"socket", [] { return syscall(SYS_socket, AF_UNIX, SOCK_STREAM, 0); }, "refuse", "refuse"},
      {"kill", [] { return syscall(SYS_kill, 1, 0); }, "refuse", "refuse"},
      {"ptrace", [] { return syscall(SYS_ptrace, 0, 0, 0, 0); }, "kill", "kill"},
      {"become dumpable", [] { return syscall(SYS_prctl, PR_SET_DUMPABLE, 1, 0, 0, 0); }, "refuse", "refuse"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(NameOf(UnderFilter(c.call, SandboxProfile::kDriver)), c.driver) << c.name;
    EXPECT_EQ(NameOf(UnderFilter(c.call, SandboxProfile::kBuilder)), c.builder) << c.name;
  }
}

// A profile that may open files is not entered without Landlock, which a filter takes away here.
TEST(SandboxTest, DriversNeedLandlock) {
  for (const SandboxProfile profile : {SandboxProfile::kTight, SandboxProfile::kDriver, SandboxProfile::kBuilder}) {
    const int result = InChild([&] {
      prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
      scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
      seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(landlock_create_ruleset), 0);
      if (seccomp_load(filter) != 0) {
        return 100;
      }
      SandboxReport report;
      return Confine(&report, {profile, {}}).ok() ? 0 : 1;
    });
    EXPECT_EQ(result, profile == SandboxProfile::kTight ? 0 : 1) << static_cast<int>(profile);
  }
}

// Below Landlock's rules for drivers: libraries are readable and its own folder writable; everything else is as
// forbidden as ever.
TEST(SandboxTest, DriversReachTheirFilesOnly) {
  if (!HasLandlock()) {
    GTEST_SKIP() << "The kernel has no Landlock.";
  }
  const StatusOr<PrivateFolder> folder = MakePrivateFolder(::testing::TempDir() + "/hpvm-drivers");
  ASSERT_TRUE(folder.ok()) << Message(folder.status());
  const std::string own = folder->path;
  const struct {
    const char* name;
    std::function<int()> attempt;  // 0: it was possible.
    bool driver, builder;
  } cases[] = {
      {"read a library folder", [] { return open("/usr/lib", O_RDONLY | O_DIRECTORY) >= 0 ? 0 : errno; }, true, true},
      {"read processor facts", [] { return open("/proc/cpuinfo", O_RDONLY) >= 0 ? 0 : errno; }, true, true},
      {"write a library folder",
       [] { return open("/usr/lib/hpvm-forbidden", O_CREAT | O_WRONLY, 0600) >= 0 ? 0 : errno; }, false, false},
      {"read accounts", [] { return open("/etc/passwd", O_RDONLY) >= 0 ? 0 : errno; }, false, false},
      {"read another process", [] { return open("/proc/1/status", O_RDONLY) >= 0 ? 0 : errno; }, false, false},
      {"write its memory", [] { return open("/proc/self/mem", O_RDWR) >= 0 ? 0 : errno; }, false, false},
      {"make a file elsewhere", [] { return open("/tmp/hpvm-forbidden", O_CREAT | O_WRONLY, 0600) >= 0 ? 0 : errno; },
       false, false},
      {"make its own file", [&] { return open((own + "/f").c_str(), O_CREAT | O_WRONLY, 0600) >= 0 ? 0 : errno; }, true,
       true},
      {"make its own folder", [&] { return mkdir((own + "/d").c_str(), 0700) == 0 || errno == EEXIST ? 0 : errno; },
       true, true},
      {"run a program",
       [] {
         execl("/bin/true", "true", nullptr);
         return errno;
       },
       false, false},
      {"run the linker",
       [] {
         if (access("/usr/bin/ld", X_OK) != 0) {
           return 0;  // None here.
         }
         execl("/usr/bin/ld", "ld", "--version", nullptr);
         return errno;
       },
       false, true},
  };
  for (const SandboxProfile profile : {SandboxProfile::kDriver, SandboxProfile::kBuilder}) {
    for (const auto& c : cases) {
      const int result = InChild([&] {
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        int abi = 0;
        dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
        return RestrictFiles(DriverPaths(own, profile == SandboxProfile::kBuilder), &abi).ok() ? c.attempt() : 100;
      });
      const bool is_possible = profile == SandboxProfile::kDriver ? c.driver : c.builder;
      EXPECT_EQ(result, is_possible ? 0 : EACCES) << c.name << ", profile " << static_cast<int>(profile);
    }
  }
  RemoveFolder(own);
}

// A folder whose process is gone is removed by the next one; a living process keeps its own.
TEST(SandboxTest, PrivateFoldersOfTheDeadAreRemoved) {
  const std::string parent = ::testing::TempDir() + "/hpvm-private";
  RemoveFolder(parent);
  const StatusOr<PrivateFolder> living = MakePrivateFolder(parent);
  ASSERT_TRUE(living.ok()) << Message(living.status());
  ASSERT_EQ(InChild([&] { return MakePrivateFolder(parent).ok() ? 0 : 1; }), 0);
  const auto count = [&] {
    return std::distance(std::filesystem::directory_iterator(parent), std::filesystem::directory_iterator());
  };
  EXPECT_EQ(count(), 2);
  const StatusOr<PrivateFolder> next = MakePrivateFolder(parent);
  ASSERT_TRUE(next.ok()) << Message(next.status());
  EXPECT_EQ(count(), 2);
  EXPECT_EQ(access(living->path.c_str(), F_OK), 0);
  RemoveFolder(parent);
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class RunningExecutorTest : public testing::ExecutorFixture {
 protected:
  std::string Proc(const std::string& name) const { return "/proc/" + std::to_string(link_->pid()) + "/" + name; }
};

// The libraries in the runner's memory: none that parses, compiles or talks to a network.
TEST_F(RunningExecutorTest, MapsOnlyKnownLibraries) {
  Start();
  PrepareOneNode(1, "twice");
  std::set<std::string> libraries;
  std::istringstream maps(ReadFile(Proc("maps")));
  for (std::string line; std::getline(maps, line);) {
    const size_t slash = line.rfind('/');
    if (slash != std::string::npos && line.find(".so") != std::string::npos) {
      libraries.insert(line.substr(slash + 1, line.find(".so") - slash - 1));
    }
  }
  const std::set<std::string> known = {"ld-linux-x86-64", "libc",      "libm",       "libgcc_s",
                                       "libstdc++",       "libcrypto", "libseccomp", "libprotobuf-lite",
                                       // The loader alone, which loads drivers where the profile has any.
                                       "libOpenCL"};
  for (const std::string& library : libraries) {
    const bool is_known = known.contains(library) || library.starts_with("libabsl_");
    EXPECT_TRUE(is_known) << library;
  }
  EXPECT_TRUE(libraries.contains("libc")) << "The map could not be read.";
}

// The descriptors of an idle runner: its sockets, its timer, standard streams; no file of the system.
TEST_F(RunningExecutorTest, HoldsOnlyKnownDescriptors) {
  Start();
  PrepareOneNode(1, "twice");
  char target[256];
  int count = 0;
  for (int fd = 0; fd < 256; ++fd) {
    const ssize_t length = readlink(Proc("fd/" + std::to_string(fd)).c_str(), target, sizeof(target));
    if (length <= 0) {
      continue;
    }
    ++count;
    const std::string name(target, static_cast<size_t>(length));
    EXPECT_TRUE(name.starts_with("socket:") || name.starts_with("pipe:") || name == "/dev/null" ||
                name == "anon_inode:[timerfd]")
        << fd << " is " << name;
  }
  EXPECT_GE(count, 5);
}

// Status flags that the lock-down sets, read from outside.
TEST_F(RunningExecutorTest, IsLockedDown) {
  Start();
  const std::string status = ReadFile(Proc("status"));
  EXPECT_THAT(status, ::testing::HasSubstr("NoNewPrivs:\t1"));
  EXPECT_THAT(status, ::testing::HasSubstr("Seccomp:\t2"));
  EXPECT_THAT(status, ::testing::HasSubstr("CapEff:\t0000000000000000"));
  EXPECT_THAT(status, ::testing::HasSubstr("CapBnd:\t0000000000000000"));
}

// An unprivileged identity is taken when one is configured.
TEST_F(RunningExecutorTest, TakesAnIdentity) {
  if (getuid() != 0) {
    GTEST_SKIP() << "Only root can take another identity.";
  }
  options_.uid = 65534;
  options_.gid = 65534;
  Start();
  EXPECT_THAT(ReadFile(Proc("status")), ::testing::HasSubstr("Uid:\t65534\t65534\t65534\t65534"));
  EXPECT_TRUE(ready_.sandbox_level == 3 || ready_.sandbox_level == 1) << ready_.sandbox_detail;
}

// The figure that bounds how many tenants a machine holds.
TEST_F(RunningExecutorTest, UsesLittleMemory) {
  Start();
  PrepareOneNode(1, "twice");
  constexpr int32_t kOne[] = {1};
  ASSERT_TRUE(Run(InlineRun(1, kOne)).ok());
  std::istringstream rollup(ReadFile(Proc("smaps_rollup")));
  long private_dirty_kib = -1;
  for (std::string line; std::getline(rollup, line);) {
    if (line.starts_with("Private_Dirty:")) {
      private_dirty_kib = std::stol(line.substr(14));
    }
  }
  std::cout << "private dirty memory of an idle CPU runner: " << private_dirty_kib << " KiB\n";
  EXPECT_GT(private_dirty_kib, 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LE(private_dirty_kib, 25 * 1024);
#endif
}

}  // namespace
}  // namespace hpvm
