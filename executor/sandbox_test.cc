// SPDX-License-Identifier: Apache-2.0
// Tests what locked-down executors and processes with drivers can still do; sandbox/sandbox_test.cc tests what each
// role is denied.
#include "sandbox/sandbox.h"

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
#include <future>
#include <iostream>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/failpoint.h"
#include "executor/driver_environment.h"
#include "executor/testing/fixture.h"
#include "sandbox/testing/syscall_table.h"

namespace hpvm::executor {
namespace {

using supervisor::ExecutorLink;

using sandbox::testing::InChild;

// Under Landlock's rules for drivers, libraries are readable and the private folder is writable; everything else
// remains forbidden.
TEST(ExecutorSandboxTest, DriversReachTheirFilesOnly) {
  if (!sandbox::HasLandlock()) {
    GTEST_SKIP() << "The kernel has no Landlock.";
  }
  const StatusOr<PrivateFolder> folder =
      MakePrivateFolder(::testing::TempDir() + "/hpvm-drivers-" + std::to_string(getpid()));
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
  for (const bool is_builder : {false, true}) {
    for (const auto& c : cases) {
      const int result = InChild([&] {
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        int abi = 0;
        dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
        return sandbox::RestrictFiles(DriverPaths(own, is_builder), &abi).ok() ? c.attempt() : 100;
      });
      const bool is_possible = is_builder ? c.builder : c.driver;
      EXPECT_EQ(result, is_possible ? 0 : EACCES) << c.name << ", builder " << is_builder;
    }
  }
  RemoveFolder(own);
}

// Each process looks for abandoned folders while others create theirs.
TEST(ExecutorSandboxTest, PrivateFoldersAtTheSameTime) {
  const std::string parent = ::testing::TempDir() + "/hpvm-at-once-" + std::to_string(getpid());
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&parent] {
      for (int round = 0; round < 200; ++round) {
        const StatusOr<PrivateFolder> folder = MakePrivateFolder(parent);
        ASSERT_TRUE(folder.ok()) << folder.status();
        ASSERT_EQ(access(folder->path.c_str(), R_OK | W_OK), 0) << folder->path;
        RemoveFolder(folder->path);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_TRUE(std::filesystem::is_empty(parent));
  RemoveFolder(parent);
}

// A folder whose process is gone is removed by the next one; a living process keeps its own.
TEST(ExecutorSandboxTest, PrivateFoldersOfTheDeadAreRemoved) {
  const std::string parent = ::testing::TempDir() + "/hpvm-private-" + std::to_string(getpid());
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

// The libraries in the runner's memory: none that parses, compiles or uses a network.
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
  const std::set<std::string> known = {"ld-linux-x86-64", "libc", "libm", "libgcc_s", "libstdc++", "libcrypto",
                                       "libseccomp", "libprotobuf-lite",
                                       // The loader alone, which loads drivers when the profile has any.
                                       "libOpenCL"};
  for (const std::string& library : libraries) {
    const bool is_known = known.contains(library) || library.starts_with("libabsl_");
    EXPECT_TRUE(is_known || library.starts_with("libtsan")) << library;
  }
  EXPECT_TRUE(libraries.contains("libc")) << "The map could not be read.";
}

// The descriptors of an idle runner: its sockets, its timer, the daemon's bell, standard streams, the module that it
// received; no file of the system.
TEST_F(RunningExecutorTest, HoldsOnlyKnownDescriptors) {
  Start();
  PrepareOneNode(1, "twice");
  char target[256];
  int count = 0, modules = 0, bells = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    const ssize_t length = readlink(Proc("fd/" + std::to_string(fd)).c_str(), target, sizeof(target));
    if (length <= 0) {
      continue;
    }
    ++count;
    const std::string name(target, static_cast<size_t>(length));
    const bool is_module = name.starts_with("/memfd:hpvm-module") || name.starts_with("/memfd:hpvm-blob");
    modules += is_module ? 1 : 0;
    const bool is_bell = name == "anon_inode:[eventfd]";
    bells += is_bell ? 1 : 0;
    EXPECT_TRUE(is_module || is_bell || name.starts_with("socket:") || name.starts_with("pipe:") ||
                name == "/dev/null" || name == "anon_inode:[timerfd]")
        << fd << " is " << name;
  }
  EXPECT_LE(modules, 1);
  EXPECT_EQ(bells, 1);
  EXPECT_GE(count, 5);
}

// Status flags set by the lock-down, read from outside.
TEST_F(RunningExecutorTest, IsLockedDown) {
  Start();
  const std::string status = ReadFile(Proc("status"));
  EXPECT_THAT(status, ::testing::HasSubstr("NoNewPrivs:\t1"));
  EXPECT_THAT(status, ::testing::HasSubstr("Seccomp:\t2"));
  EXPECT_THAT(status, ::testing::HasSubstr("CapEff:\t0000000000000000"));
  EXPECT_THAT(status, ::testing::HasSubstr("CapBnd:\t0000000000000000"));
  EXPECT_EQ(ReadFile(Proc("oom_score_adj")), "500\n") << "Memory that is used up ends executors before the daemon.";
}

// Each level includes the lower ones; a lower maximum omits the rest, and reports it.
TEST_F(RunningExecutorTest, ReachesEachLevelAndNoMore) {
  if (getuid() != 0) {
    GTEST_SKIP() << "Only root can take another identity.";
  }
  const auto link_of = [&](const char* name) {
    char target[64] = {};
    const ssize_t length = readlink(Proc(name).c_str(), target, sizeof(target) - 1);
    return std::string(target, length > 0 ? static_cast<size_t>(length) : 0);
  };
  const auto own = [&](const char* name) {
    char target[64] = {};
    const ssize_t length = readlink((std::string("/proc/self/") + name).c_str(), target, sizeof(target) - 1);
    return std::string(target, length > 0 ? static_cast<size_t>(length) : 0);
  };
  for (uint32_t level = 0; level <= 4; ++level) {
    SCOPED_TRACE(level);
    options_.hello.set_uid(level >= 2 ? 64999 : 0);
    options_.hello.set_gid(options_.hello.uid());
    options_.hello.set_tasks_max(64);
    options_.hello.set_sandbox_level_max_plus_1(level + 1);
    Start();
    EXPECT_LE(ready_.said.sandbox_level(), level);
    // Steps that the host refuses are named; these levels are available in every container.
    EXPECT_TRUE(ready_.said.sandbox_level() == level || ready_.said.sandbox_detail().find("no ") != std::string::npos)
        << ready_.said.sandbox_detail();
    std::cout << "level " << ready_.said.sandbox_level() << ": " << ready_.said.sandbox_detail() << "\n";
    const std::string status = ReadFile(Proc("status"));
    EXPECT_THAT(status, ::testing::HasSubstr("NoNewPrivs:\t1"));
    EXPECT_THAT(status, ::testing::HasSubstr("CapPrm:\t0000000000000000"));
    EXPECT_THAT(status, ::testing::HasSubstr("CapBnd:\t0000000000000000"));
    EXPECT_THAT(status, ::testing::HasSubstr(level >= 1 ? "Seccomp:\t2" : "Seccomp:\t0"));
    EXPECT_THAT(status, ::testing::HasSubstr(level >= 2 ? "Uid:\t64999\t64999\t64999\t64999" : "Uid:\t0\t0\t0\t0"));
    EXPECT_THAT(ReadFile(Proc("limits")), ::testing::ContainsRegex(level >= 2 ? "Max processes +64 +64" : "Max proc"));
    if (ready_.said.sandbox_level() == 4) {
      for (const char* space : {"ns/pid", "ns/net", "ns/ipc", "ns/uts", "ns/mnt"}) {
        EXPECT_NE(link_of(space), own(space)) << space;
      }
      EXPECT_THAT(status, ::testing::ContainsRegex("NSpid:\t[0-9]+\t1\n"));
      EXPECT_TRUE(std::filesystem::is_empty(Proc("root/")));
    } else {
      EXPECT_EQ(link_of("ns/net"), own("ns/net"));
      EXPECT_EQ(link_of("ns/pid"), own("ns/pid"));
    }
    PrepareOneNode(1, "twice");
    constexpr int32_t kOne[] = {21};
    const StatusOr<supervisor::RunReply> reply = Run(InlineRun(1, kOne));
    ASSERT_TRUE(reply.ok() && reply->status().ok());
    EXPECT_EQ(testing::AsInts(FirstOutput(*reply))[0], 42);
    link_.reset();
  }
}

// A required level that is unavailable ends the process before it has read anything, with a sentence for the tenant.
TEST_F(RunningExecutorTest, EndsBelowTheDemandedLevel) {
  options_.hello.set_sandbox_level_max_plus_1(1 + 1);
  options_.hello.set_sandbox_level_min(2);
  StatusOr<std::unique_ptr<ExecutorLink>> link = ExecutorLink::Start(*hub_, options_);
  ASSERT_TRUE(link.ok()) << Message(link.status());
  const StatusOr<supervisor::ExecutorReady> ready = (*link)->WaitReady(RealClock().Now() + testing::kPatience);
  EXPECT_EQ(ready.status().code(), absl::StatusCode::kFailedPrecondition) << Message(ready.status());
  EXPECT_THAT(Message(ready.status()), ::testing::HasSubstr("reaches level 1"));
  EXPECT_THAT(Message(ready.status()), ::testing::HasSubstr("demands at least level 2"));
}

// A graph that arrives after such a process has ended, but before the end is reported, gets the same reason.
TEST_F(RunningExecutorTest, TellsTheReasonAfterTheEndToo) {
  options_.hello.set_sandbox_level_max_plus_1(1 + 1);
  options_.hello.set_sandbox_level_min(2);
  const std::string document = "{}";
  supervisor::PrepareInput input;
  input.handle = 1;
  input.document.bytes = testing::AsBytes(document);
  input.within = std::chrono::seconds(30);
  ASSERT_TRUE(SetFailpoints("link.end.before=sleep(2000)").ok());
  StatusOr<std::unique_ptr<ExecutorLink>> link = ExecutorLink::Start(*hub_, options_);
  ASSERT_TRUE(link.ok()) << Message(link.status());
  const Time end = RealClock().Now() + testing::kPatience;
  while (FailpointHits()["link.end.before"] == 0 && RealClock().Now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  std::promise<Status> promise;
  (*link)->Prepare(input, [&](StatusOr<internal::Prepared> reply) { promise.set_value(reply.status()); });
  const Status prepared = promise.get_future().get();
  ASSERT_TRUE(SetFailpoints("").ok());
  EXPECT_EQ(prepared.code(), absl::StatusCode::kFailedPrecondition) << Message(prepared);
  EXPECT_THAT(Message(prepared), ::testing::HasSubstr("demands at least level 2"));
}

// As in a plain container: no privilege and no namespaces. The minimum is the filter and Landlock.
TEST_F(RunningExecutorTest, ReachesTheFloorWithoutPrivileges) {
#ifdef HPVMD_TSAN
  GTEST_SKIP() << "The sanitizer knows no threads in a forked process.";
#endif
  if (getuid() != 0) {
    GTEST_SKIP() << "Privileges are dropped from root's.";
  }
  const bool has_landlock = sandbox::HasLandlock();
  for (const bool may_unshare : {false, true}) {
    const int result = InChild([&] {
      prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
      if (setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0) {
        return 100;
      }
      if (access(options_.program.c_str(), X_OK) != 0) {
        return 101;
      }
      if (!may_unshare) {
        scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
        seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(unshare), 0);
        if (seccomp_load(filter) != 0) {
          return 102;
        }
      }
      StatusOr<std::unique_ptr<supervisor::ExecutorHub>> hub = supervisor::ExecutorHub::Create();
      StatusOr<std::unique_ptr<ExecutorLink>> link = ExecutorLink::Start(**hub, options_);
      if (!link.ok()) {
        return 103;
      }
      const StatusOr<supervisor::ExecutorReady> ready = (*link)->WaitReady(RealClock().Now() + testing::kPatience);
      std::cout << (ready.ok() ? ready->said.sandbox_detail() : Message(ready.status())) << std::endl;
      return ready.ok() ? static_cast<int>(ready->said.sandbox_level()) : 104;
    });
    if (result == 101) {
      GTEST_SKIP() << "The program lies where only root reaches it.";
    }
    EXPECT_EQ(result, has_landlock ? 2 : 1);
  }
}

// A spare process serves like one started for the tenant, and holds nothing of any tenant before.
TEST_F(RunningExecutorTest, SparesServeWhenTheyAreGreeted) {
  std::mutex mutex;
  std::vector<Status> spare_ends;
  const auto on_spare_end = [&](const Status& why) {
    std::lock_guard lock(mutex);
    spare_ends.push_back(why);
  };
  const bool is_root = getuid() == 0;
  options_.hello.set_uid(is_root ? 64998 : 0);
  options_.hello.set_gid(options_.hello.uid());
  supervisor::ExecutorOptions ahead = options_;
  ahead.hello.set_artifact_key(std::string(32, 0));
  StatusOr<std::unique_ptr<ExecutorLink>> spare = ExecutorLink::StartSpare(*hub_, ahead, on_spare_end);
  ASSERT_TRUE(spare.ok()) << Message(spare.status());
  // Locked down before there is a tenant.
  const std::string path = "/proc/" + std::to_string((*spare)->pid()) + "/status";
  const Time deadline = RealClock().Now() + testing::kPatience;
  while (ReadFile(path).find("Seccomp:\t2") == std::string::npos && RealClock().Now() < deadline) {
    usleep(5000);
  }
  EXPECT_THAT(ReadFile(path), ::testing::HasSubstr("Seccomp:\t2"));
  link_ = *std::move(spare);
  std::promise<supervisor::ExecutorReady> promise;
  ASSERT_TRUE(
      link_
          ->Greet(
              options_, [&](const supervisor::ExecutorReady& ready) { promise.set_value(ready); }, [](const Status&) {})
          .ok());
  ready_ = promise.get_future().get();
  std::cout << "from the greeting to Ready: " << ready_.took / std::chrono::microseconds(1) << " us\n";
  PrepareOneNode(1, "twice");
  constexpr int32_t kOne[] = {4};
  const StatusOr<supervisor::RunReply> reply = Run(InlineRun(1, kOne));
  ASSERT_TRUE(reply.ok() && reply->status().ok());
  EXPECT_EQ(testing::AsInts(FirstOutput(*reply))[0], 8);
  link_.reset();
  EXPECT_TRUE(spare_ends.empty());
}

// The greeting cannot contradict what was settled.
TEST_F(RunningExecutorTest, SparesEndWhenTheGreetingContradicts) {
  StatusOr<std::unique_ptr<ExecutorLink>> spare = ExecutorLink::StartSpare(*hub_, options_, [](const Status&) {});
  ASSERT_TRUE(spare.ok());
  supervisor::ExecutorOptions other = options_;
  other.hello.set_tasks_max(77);
  std::promise<Status> promise;
  ASSERT_TRUE((*spare)->Greet(other, nullptr, [&](const Status& why) { promise.set_value(why); }).ok());
  EXPECT_THAT(Message(promise.get_future().get()), ::testing::HasSubstr("contradicts"));
}

// Memory per executor, which bounds the number of tenants on a machine.
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
#if !defined(__SANITIZE_ADDRESS__) && !defined(HPVMD_TSAN)
  EXPECT_LE(private_dirty_kib, 25 * 1024);
#endif
}

}  // namespace
}  // namespace hpvm::executor
