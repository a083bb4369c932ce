// SPDX-License-Identifier: Apache-2.0
// Tries what the zygote and its children must not be able to do, each in a process of its own.
#include "compiler/driver/zygote_sandbox.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/testing/syscall_table.h"

namespace hpvm {
namespace {

namespace fs = std::filesystem;

// Runs `act` in a child and returns its exit status.
template <typename F>
int StatusOfChild(F act) {
  pid_t pid = fork();
  if (pid == 0) {
    _exit(act());
  }
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

bool Refused(long result) { return result < 0 && (errno == EPERM || errno == EACCES); }

// The number of the first forbidden act that is not refused; 0 if all are.
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

// Once locked down the zygote reaches its cache and nothing else.
TEST(ZygoteSandboxTest, ZygoteReachesItsCacheOnly) {
  fs::path folder = fs::temp_directory_path() / ("zygote_sandbox_test." + std::to_string(getpid()));
  fs::create_directories(folder);
  int status = StatusOfChild([&] {
    int cache = open(folder.c_str(), O_RDONLY | O_DIRECTORY);
    if (cache < 0 || !LockDownZygote(folder.string(), *CallFilter::ForZygote(), /*needs_landlock=*/false).ok()) {
      return 100;
    }
    int file = openat(cache, "a", O_WRONLY | O_CREAT, 0600);
    if (file < 0 || write(file, "x", 1) != 1 || renameat(cache, "a", cache, "b") != 0 || unlinkat(cache, "b", 0) != 0) {
      return 101;
    }
    UniqueFd process;
    const pid_t child = ForkWithDescriptor(&process);
    if (child == 0) {
      for (;;) {
        sched_yield();
      }
    }
    // By its descriptor alone: whose number this is nobody can tell the filter.
    if (child < 0 || kill(child, SIGKILL) == 0 || errno != EPERM) {
      return 102;
    }
    KillChild(process);
    int status = 0;
    if (waitpid(child, &status, 0) != child || !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
      return 103;
    }
    return FirstPermitted();
  });
  EXPECT_EQ(status, 0);
  fs::remove_all(folder);
}

// A child cannot even open a file, fork, or receive a descriptor.
TEST(ZygoteSandboxTest, ChildOnlyComputes) {
  StatusOr<CallFilter> filter = CallFilter::ForChild();
  ASSERT_TRUE(filter.ok()) << filter.status();
  int status = StatusOfChild([&] {
    if (!LockDownZygote("", *CallFilter::ForZygote(), /*needs_landlock=*/false).ok() || !filter->Apply().ok()) {
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

// Limits hold: memory beyond the cap is refused, and processor time ends the process.
TEST(ZygoteSandboxTest, ChildIsLimited) {
  int status = StatusOfChild([] {
    if (!LimitChild({.memory_bytes = 256u << 20, .cpu_seconds = 1}, getppid()).ok()) {
      return 100;
    }
    if (mmap(nullptr, 512u << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) {
      return 101;
    }
    for (std::atomic<uint64_t> i{0};; i.fetch_add(1)) {
    }
    return 102;
  });
  EXPECT_TRUE(status == 1000 + SIGXCPU || status == 1000 + SIGKILL) << status;
}

// Every system call number, as for runners.
TEST(ZygoteSandboxTest, SyscallsMatchTheGoldenTables) {
  const struct {
    StatusOr<CallFilter> filter;
    const char* file;
    int most;
  } cases[] = {{CallFilter::ForZygote(testing::kRefused), "compiler_syscalls.txt", 60},
               {CallFilter::ForChild(testing::kRefused), "compile_child_syscalls.txt", 30}};
  for (const auto& c : cases) {
    ASSERT_TRUE(c.filter.ok());
    const testing::Filter filter = [&] { return c.filter->Apply(); };
    const std::string path = std::string(HPVMD_SOURCE_DIR) + "/tests/golden/sandbox/" + c.file;
    const std::string table = testing::SyscallTable(filter);
    if (getenv("HPVMD_BLESS") != nullptr) {
      std::ofstream(path) << table;
      continue;
    }
    std::ifstream file(path);
    std::stringstream golden;
    golden << file.rdbuf();
    EXPECT_EQ(table, golden.str()) << c.file << ": HPVMD_BLESS=1 " << ::testing::internal::GetArgvs()[0]
                                   << " rewrites it.";
    EXPECT_LE(testing::CountAllowed(table), c.most) << c.file;
    EXPECT_EQ(testing::FirstBeyondTable(filter), 0) << c.file;
    EXPECT_TRUE(testing::ByInt80(filter) == -SIGSYS || testing::ByInt80(filter) == -SIGSEGV) << c.file;
    EXPECT_EQ(testing::UnderFilter(filter, [] { return syscall(0x40000000 | SYS_getpid); }), -SIGSYS) << c.file;
  }
}

}  // namespace
}  // namespace hpvm
