// SPDX-License-Identifier: Apache-2.0
// Tests control groups: where they are found, and, where this process can make them, what they limit.
#include "server/executors/executor_cgroup.h"

#include <errno.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace hpvm::server {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kMiB = 1 << 20;

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Covers both versions, fully and partly mounted hierarchies, and missing ones.
TEST(CgroupTest, FindsTheDaemonsOwnGroups) {
  const struct {
    const char* name;
    const char *self, *mounts;
    CgroupPaths expected;
  } cases[] = {
      {"version 2",
       "0::/system.slice/hpvmd.service\n",
       "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
       {"/sys/fs/cgroup/system.slice/hpvmd.service", "", ""}},
      {"version 2, namespace",
       "0::/\n",
       "29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
       {"/sys/fs/cgroup", "", ""}},
      {"version 1",
       "9:name=systemd:/\n8:pids:/\n4:memory:/a/b\n0::/\n",
       "40 30 0:30 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
       "41 30 0:31 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids\n"
       "42 30 0:32 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup rw\n",
       {"/sys/fs/cgroup/unified", "/sys/fs/cgroup/memory/a/b", "/sys/fs/cgroup/pids"}},
      {"version 1, only its part mounted",
       "4:cpu,memory:/docker/1/x\n",
       "40 30 0:30 /docker/1 /sys/fs/cgroup/memory rw - cgroup cgroup rw,cpu,memory\n",
       {"", "/sys/fs/cgroup/memory/x", ""}},
      {"another's part mounted",
       "4:memory:/docker/11\n",
       "40 30 0:30 /docker/1 /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
       {"", "/sys/fs/cgroup/memory", ""}},
      {"none", "", "", {}},
      {"damaged", "4\nx:memory\n::\n", "a b - cgroup2\n - \n", {}},
  };
  for (const auto& c : cases) {
    const CgroupPaths found = FindCgroups(c.self, c.mounts);
    EXPECT_EQ(found.unified, c.expected.unified) << c.name;
    EXPECT_EQ(found.memory, c.expected.memory) << c.name;
    EXPECT_EQ(found.pids, c.expected.pids) << c.name;
  }
}

// Without a writable group, Create returns an error with a sentence.
TEST(CgroupTest, SaysWhyThereAreNone) {
  EXPECT_THAT(Message(ExecutorCgroups::Create({}, "test").status()), HasSubstr("delegated"));
  EXPECT_FALSE(ExecutorCgroups::Create({"", "/no/such/folder", ""}, "test").ok());
}

class RealCgroupTest : public ::testing::Test {
 protected:
  void SetUp() override {
    paths_ = FindCgroups(ReadText("/proc/self/cgroup"), ReadText("/proc/self/mountinfo"));
    StatusOr<std::unique_ptr<ExecutorCgroups>> groups = ExecutorCgroups::Create(paths_, name_);
    if (!groups.ok()) {
      GTEST_SKIP() << Message(groups.status());
    }
    groups_ = *std::move(groups);
  }

  // Runs a process of the group, which waits until it may do `act`; returns its wait status.
  template <typename F>
  int InGroup(const ExecutorCgroup& group, F act) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      char byte;
      _exit(read(ends[0], &byte, 1) == 1 ? act() : 99);
    }
    EXPECT_TRUE(group.Add(child).ok());
    EXPECT_EQ(write(ends[1], "x", 1), 1);
    close(ends[0]);
    close(ends[1]);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return status;
  }

  const std::string name_ = "test" + std::to_string(getpid());
  CgroupPaths paths_;
  std::unique_ptr<ExecutorCgroups> groups_;
};

// A process that takes too much memory is killed, and the group says so; the neighbour's is not.
TEST_F(RealCgroupTest, MemoryIsBounded) {
  if (!groups_->bounds_memory()) {
    GTEST_SKIP() << "No memory controller: " << groups_->Describe();
  }
#ifdef HPVMD_TSAN
  constexpr uint64_t kBytesMax = 512 * kMiB;  // The sanitizer takes some for itself.
#else
  constexpr uint64_t kBytesMax = 64 * kMiB;
#endif
  StatusOr<std::unique_ptr<ExecutorCgroup>> group = groups_->Make({kBytesMax, 0});
  StatusOr<std::unique_ptr<ExecutorCgroup>> neighbour = groups_->Make({kBytesMax, 0});
  ASSERT_TRUE(group.ok() && neighbour.ok()) << Message(group.status());
  const auto eat = [](uint64_t bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      return 1;
    }
    memset(memory, 1, bytes);
    return 0;
  };
  const int hog = InGroup(**group, [&] { return eat(4 * kBytesMax); });
  EXPECT_TRUE(WIFSIGNALED(hog) && WTERMSIG(hog) == SIGKILL) << hog;
  EXPECT_TRUE((*group)->RanOutOfMemory());
  const int modest = InGroup(**neighbour, [&] { return eat(16 * kMiB); });
  EXPECT_TRUE(WIFEXITED(modest) && WEXITSTATUS(modest) == 0) << modest;
  EXPECT_FALSE((*neighbour)->RanOutOfMemory());
}

// A fork bomb gets as far as the limit, and ends with the group.
TEST_F(RealCgroupTest, ProcessesAreBoundedAndEnd) {
  StatusOr<std::unique_ptr<ExecutorCgroup>> group = groups_->Make({0, 20});
  ASSERT_TRUE(group.ok()) << Message(group.status());
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const int status = InGroup(**group, [&] {
    int count = 0;
    for (; count < 200; ++count) {
      const pid_t child = fork();
      if (child == 0) {
        close(ends[0]);
        pause();
        _exit(0);
      }
      if (child < 0) {
        break;
      }
    }
    return count;
  });
  close(ends[1]);
  ASSERT_TRUE(WIFEXITED(status));
  if (paths_.pids.empty() && groups_->Describe() != "version 2") {
    GTEST_SKIP() << "No pids controller.";
  }
  EXPECT_LE(WEXITSTATUS(status), 20);
#ifndef HPVMD_TSAN  // Each of its processes has a thread more.
  EXPECT_GE(WEXITSTATUS(status), 10);
#endif
  group->reset();
  char byte;
  EXPECT_EQ(read(ends[0], &byte, 1), 0);  // No process holds the other end any more.
  close(ends[0]);
}

// A process may read the name of its group, which does not reveal how many there were before.
TEST_F(RealCgroupTest, NamesTellNothingOfOthers) {
  const std::string prefix = "hpvmd-" + name_ + "-";
  std::set<std::string> names;
  for (int i = 0; i < 5; ++i) {
    const StatusOr<std::unique_ptr<ExecutorCgroup>> group = groups_->Make({});
    ASSERT_TRUE(group.ok()) << Message(group.status());
    for (const std::string& place : {paths_.unified, paths_.memory, paths_.pids}) {
      std::error_code error;
      for (const auto& entry : std::filesystem::directory_iterator(place, error)) {
        if (const std::string name = entry.path().filename(); name.starts_with(prefix)) {
          names.insert(name.substr(prefix.size()));
        }
      }
    }
  }
  EXPECT_EQ(names.size(), 5u);
  for (const std::string& name : names) {
    EXPECT_EQ(name.size(), 32u) << name;
  }
}

// Groups that a killed daemon left are ended and removed by the next one of its name.
TEST_F(RealCgroupTest, LeftoversAreRemoved) {
  StatusOr<std::unique_ptr<ExecutorCgroup>> group = groups_->Make({0, 50});
  ASSERT_TRUE(group.ok());
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  ASSERT_TRUE((*group)->Add(child).ok());
  StatusOr<std::unique_ptr<ExecutorCgroups>> next = ExecutorCgroups::Create(paths_, name_);
  ASSERT_TRUE(next.ok());
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  for (const std::string& place : {paths_.unified, paths_.memory, paths_.pids}) {
    if (place.empty()) {
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(place)) {
      EXPECT_THAT(entry.path().string(), ::testing::Not(HasSubstr(name_)));
    }
  }
}

}  // namespace
}  // namespace hpvm::server
