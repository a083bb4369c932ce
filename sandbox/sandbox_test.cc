// SPDX-License-Identifier: Apache-2.0
// Attempts everything that the lock-down forbids, one thing at a time, in processes that end afterwards.
#include "sandbox/sandbox.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <functional>

#include "base/io/child_process.h"
#include "sandbox/call_filter.h"
#include "sandbox/limits.h"
#include "sandbox/testing/syscall_table.h"

namespace hpvm::sandbox {
namespace {

namespace fs = std::filesystem;
using testing::InChild;

Status ConfineCompiler(std::vector<PathRule> paths) {
  SandboxReport report;
  return Confine(&report, {.role = SandboxRole::kCompiler, .paths = std::move(paths)});
}

// Landlock alone, without the filter: no path can be opened, run or created.
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

// Landlock, which a filter disables here, is optional only when the level says so: roles that may open the host's files
// fail without it, and a compiler runs without it only if no caller relies on it.
TEST(SandboxTest, LandlockIsOptionalOnlyWhereTheLevelSaysSo) {
  const struct {
    ConfineOptions options;
    bool goes_on;
  } cases[] = {
      {{.role = SandboxRole::kRunner, .paths = {}}, true},
      {{.role = SandboxRole::kDriver, .paths = {}}, false},
      {{.role = SandboxRole::kBuilder, .paths = {}}, false},
      {{.role = SandboxRole::kSupervisor, .paths = {}}, false},
      {{.role = SandboxRole::kDriver, .paths = {}, .level_max = SandboxLevel::kSyscalls}, true},
      {{.role = SandboxRole::kCompiler, .paths = {}}, true},
      {{.role = SandboxRole::kCompiler, .paths = {}, .level_min = SandboxLevel::kSyscalls}, true},
      {{.role = SandboxRole::kCompiler, .paths = {}, .level_min = SandboxLevel::kFiles}, false},
  };
  for (const auto& c : cases) {
    const int result = InChild([&] {
      prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
      scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
      seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(landlock_create_ruleset), 0);
      if (seccomp_load(filter) != 0) {
        return 100;
      }
      SandboxReport report;
      return !Confine(&report, c.options).ok() ? 1 : report.level == SandboxLevel::kSyscalls ? 0 : 101;
    });
    EXPECT_EQ(result, c.goes_on ? 0 : 1) << static_cast<int>(c.options.role);
  }
}

bool Refused(long result) { return result < 0 && (errno == EPERM || errno == EACCES); }

// Returns the number of the first forbidden act that is not refused; 0 if all are.
int FirstPermitted() {
  if (!Refused(open("/etc/passwd", O_RDONLY))) {
    return 1;
  }
  if (!Refused(open("/tmp/hpvm-forbidden", O_WRONLY | O_CREAT, 0600))) {
    return 2;
  }
  if (!Refused(socket(AF_UNIX, SOCK_STREAM, 0)) || !Refused(socket(AF_INET, SOCK_STREAM, 0))) {
    return 3;
  }
  char* const arguments[] = {nullptr};
  if (!Refused(execve("/bin/true", arguments, arguments))) {
    return 4;
  }
  if (mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) {
    return 5;
  }
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED || mprotect(page, 4096, PROT_READ | PROT_EXEC) == 0) {
    return 6;
  }
  if (!Refused(syscall(SYS_ptrace, 0, 0, 0, 0)) || !Refused(syscall(SYS_process_vm_readv, getpid(), 0, 0, 0, 0, 0))) {
    return 7;
  }
  if (!Refused(kill(getpid(), SIGTERM))) {
    return 8;
  }
  return 0;
}

// Once locked down, the zygote can access its cache and nothing else.
TEST(SandboxTest, ZygoteReachesItsCacheOnly) {
  fs::path folder = fs::temp_directory_path() / ("zygote_sandbox_test." + std::to_string(getpid()));
  fs::create_directories(folder);
  int status = InChild([&] {
    int cache = open(folder.c_str(), O_RDONLY | O_DIRECTORY);
    if (cache < 0 || !ConfineCompiler({{folder.string(), PathAccess::kPrivate}}).ok()) {
      return 100;
    }
    int file = openat(cache, "a", O_WRONLY | O_CREAT, 0600);
    if (file < 0 || write(file, "x", 1) != 1 || renameat(cache, "a", cache, "b") != 0 || unlinkat(cache, "b", 0) != 0) {
      return 101;
    }
    const SpawnedProcess child = Fork();
    if (child.pid == 0) {
      for (;;) {
        sched_yield();
      }
    }
    // Only by its descriptor, because the filter cannot know whose number this is.
    if (child.pid < 0 || kill(child.pid, SIGKILL) == 0 || errno != EPERM) {
      return 102;
    }
    SendKill(child);
    int status = 0;
    if (waitpid(child.pid, &status, 0) != child.pid || !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
      return 103;
    }
    return FirstPermitted();
  });
  EXPECT_EQ(status, 0);
  fs::remove_all(folder);
}

// A child cannot even open a file, fork, or receive a descriptor.
TEST(SandboxTest, ChildOnlyComputes) {
  StatusOr<CallFilter> filter = CallFilter::For(SandboxRole::kCompileChild);
  ASSERT_TRUE(filter.ok()) << filter.status();
  int status = InChild([&] {
    if (!ConfineCompiler({}).ok() || !filter->Apply().ok()) {
      return 100;
    }
    if (!Refused(syscall(SYS_openat, AT_FDCWD, ".", O_RDONLY, 0)) || !Refused(syscall(SYS_fork)) ||
        !Refused(syscall(SYS_recvmsg, 0, nullptr, 0)) || !Refused(syscall(SYS_sendmsg, 0, nullptr, 0)) ||
        !Refused(syscall(SYS_prctl, 0, 0, 0, 0, 0)) || !Refused(kill(getpid(), SIGKILL))) {
      return 101;
    }
    return FirstPermitted();
  });
  EXPECT_EQ(status, 0);
}

// Limits hold: memory beyond the limit is refused, and processor time ends the process.
TEST(SandboxTest, ChildIsLimited) {
  int status = InChild([] {
    if (!LimitChild({.address_bytes = 256u << 20, .cpu_seconds = 1, .writes_files = false}, getppid()).ok()) {
      return 100;
    }
#ifndef HPVMD_TSAN
    if (mmap(nullptr, 512u << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) {
      return 101;
    }
#endif
    for (std::atomic<uint64_t> i{0};; i.fetch_add(1)) {
    }
    return 102;
  });
  EXPECT_TRUE(status == -SIGXCPU || status == -SIGKILL) << status;
}

}  // namespace
}  // namespace hpvm::sandbox
