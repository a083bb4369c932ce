// SPDX-License-Identifier: Apache-2.0
#include "server/process/state_folder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "server/process/process_facts.h"

namespace hpvm::server {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class StateFolderTest : public ::testing::Test {
 protected:
  StateFolderTest() {
    char folder[] = "/tmp/hpvm-state-test-XXXXXX";
    root_ = mkdtemp(folder);
    path_ = root_ + "/state";
  }
  ~StateFolderTest() override {
    for (const pid_t pid : children_) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
    fs::remove_all(root_);
  }

  // Starts a child that sleeps; `arguments[0]` is the program's name as others see it.
  pid_t Start(std::vector<std::string> arguments) {
    std::vector<char*> pointers;
    for (std::string& argument : arguments) {
      pointers.push_back(argument.data());
    }
    pointers.push_back(nullptr);
    pid_t pid = -1;
    EXPECT_EQ(posix_spawn(&pid, program_.c_str(), nullptr, nullptr, pointers.data(), environ), 0);
    children_.push_back(pid);
    return pid;
  }
  static bool IsAlive(pid_t pid) {
    const std::optional<ProcessFacts> process = ReadProcess(pid);
    return process.has_value() && !process->has_ended;
  }
  void Put(const std::string& file, const std::string& text = "x") {
    fs::create_directories(fs::path(path_ + "/" + file).parent_path());
    std::ofstream(path_ + "/" + file) << text;
  }
  void Link(const std::string& file, const std::string& text) {
    fs::remove(path_ + "/" + file);
    fs::create_symlink(text, path_ + "/" + file);
  }

  std::string root_, path_;
  std::string program_ = "/bin/sleep";
  std::vector<pid_t> children_;
};

// One daemon at a time; the error names the process that holds the folder.
TEST_F(StateFolderTest, LocksTheFolder) {
  auto first = StateFolder::Open(path_);
  ASSERT_TRUE(first.ok()) << first.status();
  struct stat info {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  const auto second = StateFolder::Open(path_);
  ASSERT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(second.status()),
              HasSubstr("in use by another hpvmd (process " + std::to_string(getpid()) + ")"));
  first->reset();
  EXPECT_TRUE(StateFolder::Open(path_).ok());
}

// A backup that was copied back by hand has the modes of the user who copied it.
TEST_F(StateFolderTest, TightensModes) {
  for (const char* name : {"jobs.db", "jobs.db-wal", "identity.sqlite", "audit/audit-1.jsonl", "cache/blue/a"}) {
    Put(name);
    chmod((path_ + "/" + name).c_str(), 0644);
  }
  chmod((path_ + "/audit").c_str(), 0755);
  chmod((path_ + "/cache").c_str(), 0711);
  chmod(path_.c_str(), 0777);
  const auto folder = StateFolder::Open(path_);
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ((*folder)->tightened(), 5u);
  const auto mode = [this](const std::string& name) {
    struct stat info {};
    EXPECT_EQ(stat((path_ + name).c_str(), &info), 0) << name;
    return info.st_mode & 0777;
  };
  EXPECT_EQ(mode(""), 0711u);
  EXPECT_EQ(mode("/jobs.db"), 0600u);
  EXPECT_EQ(mode("/jobs.db-wal"), 0600u);
  EXPECT_EQ(mode("/identity.sqlite"), 0600u);
  EXPECT_EQ(mode("/audit"), 0700u);  // Nobody else reaches its contents.
  EXPECT_EQ(mode("/cache"), 0711u);
}

// Recorded processes are ended, stopped or not, with their descendants; forgotten ones are not.
TEST_F(StateFolderTest, EndsRecordedProcesses) {
  auto folder = *StateFolder::Open(path_);
  const pid_t running = Start({"sleep", "100"}), stopped = Start({"sleep", "100"}), forgotten = Start({"sleep", "100"});
  program_ = "/bin/sh";
  const pid_t parent = Start({"sh", "-c", "sleep 100 & wait"});
  pid_t child = -1;
  while (child < 0) {
    for (const ProcessFacts& process : ListProcesses()) {
      child = process.parent == parent ? process.pid : child;
    }
  }
  kill(stopped, SIGSTOP);
  for (const pid_t pid : {running, stopped, forgotten, parent}) {
    ASSERT_TRUE(folder->Record(pid).ok());
  }
  folder->Forget(forgotten);
  folder.reset();
  folder = *StateFolder::Open(path_);
  const auto ended = folder->EndLeftovers();
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_EQ(ended->processes, 4u);
  EXPECT_FALSE(IsAlive(running) || IsAlive(stopped) || IsAlive(parent) || IsAlive(child));
  EXPECT_TRUE(IsAlive(forgotten));
  EXPECT_EQ(folder->EndLeftovers()->processes, 0u);
}

// A process with a recorded number but another start time, program, or boot is left alone.
TEST_F(StateFolderTest, LeavesOthersAlone) {
  auto folder = *StateFolder::Open(path_);
  const pid_t pid = Start({"sleep", "100"});
  ASSERT_TRUE(folder->Record(pid).ok());
  const std::string file = "executors/" + std::to_string(pid), right = fs::read_symlink(path_ + "/" + file);
  const size_t first = right.find(' '), last = right.rfind(' ');
  const std::string boot = right.substr(first + 1, last - first - 1);
  EXPECT_EQ(boot, BootId()->substr(0, 18));
  EXPECT_LE(right.size(), 59u);  // Longer ones take a block of the disk.
  struct Case {
    const char* name;
    std::string record;
    bool is_ended;
  };
  const Case cases[] = {
      {"AnotherStart", "1" + right, false},
      {"AnotherBoot", right.substr(0, first) + " x" + boot.substr(1) + " sleep", false},
      {"AnotherProgram", right.substr(0, last) + " hpvm-executor", false},
      {"CutShort", right.substr(0, right.size() - 1), false},
      {"Right", right, true},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    Link(file, c.record);
    ASSERT_TRUE(folder->EndLeftovers().ok());
    EXPECT_EQ(IsAlive(pid), !c.is_ended);
    EXPECT_FALSE(fs::is_symlink(path_ + "/" + file));  // The record is read once.
  }
}

// Compilers without an executor are found by the cache they use; those of other folders are not touched.
TEST_F(StateFolderTest, EndsCompilersOfItsCaches) {
  auto folder = *StateFolder::Open(path_);
  program_ = "/bin/sh";
  // The shell itself waits to open it: a child would outlive the shell, and hold this test's output open.
  const std::string fifo = root_ + "/fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const auto start = [&](const std::string& name, const std::string& cache) {
    return Start({name, "-c", ": < " + fifo, "--socket", "3", "--cache", cache});
  };
  const pid_t own = start("/x/bin/hpvm-compiler", path_ + "/cache/ann");
  const pid_t other_folder = start("/x/bin/hpvm-compiler", path_ + "2/cache/ann");
  const pid_t other_program = start("/x/bin/editor", path_ + "/cache/ann");
  ASSERT_TRUE(folder->EndLeftovers().ok());
  EXPECT_FALSE(IsAlive(own));
  EXPECT_TRUE(IsAlive(other_folder));
  EXPECT_TRUE(IsAlive(other_program));
}

// Partial files and private folders of killed processes are removed; finished ones stay.
TEST_F(StateFolderTest, SweepsCaches) {
  auto folder = *StateFolder::Open(path_);
  for (const char* file : {"cache/ann/.partial-12-0", "cache/ann/.driver-12-0", "cache/bob/hpvm-run-abcdef/pocl/x",
                           "cache/ann/0123.image", "cache/bob/driver/kept", "executors/77.partial"}) {
    Put(file);
  }
  const auto swept = folder->EndLeftovers();
  ASSERT_TRUE(swept.ok()) << swept.status();
  EXPECT_EQ(swept->files, 3u);
  EXPECT_TRUE(fs::exists(path_ + "/cache/ann/0123.image"));
  EXPECT_TRUE(fs::exists(path_ + "/cache/bob/driver/kept"));
  EXPECT_FALSE(fs::exists(path_ + "/cache/ann/.partial-12-0"));
  EXPECT_FALSE(fs::exists(path_ + "/cache/bob/hpvm-run-abcdef"));
  EXPECT_TRUE(fs::is_empty(path_ + "/executors"));
}

// A temporary folder of a dead daemon is removed by the next one; one in use is not.
TEST_F(StateFolderTest, TemporaryFoldersEndWithTheirDaemon) {
  const std::string dead = *MakeTemporaryStateFolder();
  { const auto lock = StateFolder::Open(dead); }
  std::ofstream(dead + "/jobs.db") << "x";
  const std::string used = *MakeTemporaryStateFolder();
  EXPECT_FALSE(fs::exists(dead));
  const auto lock = StateFolder::Open(used);
  const std::string fresh = *MakeTemporaryStateFolder();
  EXPECT_TRUE(fs::exists(used));
  RemoveTemporaryStateFolder(used);
  RemoveTemporaryStateFolder(fresh);
  EXPECT_FALSE(fs::exists(used) || fs::exists(fresh));
  Put("kept");
  RemoveTemporaryStateFolder(path_);
  EXPECT_TRUE(fs::exists(path_ + "/kept"));
}

// The number of a process that has ended since it was examined is not killed again.
TEST_F(StateFolderTest, KillsOnlyWhatItLookedAt) {
  const pid_t pid = Start({"sleep", "100"});
  ProcessFacts facts = *ReadProcess(pid);
  ++facts.start_ticks;
  KilledProcesses killed;
  EXPECT_FALSE(killed.Kill(facts));
  EXPECT_TRUE(IsAlive(pid));
  --facts.start_ticks;
  EXPECT_TRUE(killed.Kill(facts));
  EXPECT_TRUE(killed.AwaitEnds(RealClock().Now() + std::chrono::seconds(10)).ok());
  EXPECT_FALSE(IsAlive(pid));
  EXPECT_FALSE(killed.Kill(facts));
}

// The machine's memory, or less where a control group above the process limits it, of either version.
TEST_F(StateFolderTest, MemoryIsWhatControlGroupsAllow) {
  const uint64_t machine = MemoryAllowed("/nowhere");
  EXPECT_GT(machine, uint64_t{64} << 20);
  const auto write = [&](const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  };
  write("/proc/self/cgroup", "0::/a/b\n");
  EXPECT_EQ(MemoryAllowed(root_), machine);
  write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  EXPECT_EQ(MemoryAllowed(root_), machine);
  write("/sys/fs/cgroup/a/memory.high", "33554432\n");
  EXPECT_EQ(MemoryAllowed(root_), 33'554'432u);
  write("/sys/fs/cgroup/a/b/memory.max", "16777216\n");
  EXPECT_EQ(MemoryAllowed(root_), 16'777'216u);
  write("/sys/fs/cgroup/memory.max", "4194304\n");  // The limit of the root itself, as in a container.
  EXPECT_EQ(MemoryAllowed(root_), 4'194'304u);
  write("/proc/self/cgroup", "0::/\n");
  EXPECT_EQ(MemoryAllowed(root_), 4'194'304u);
  write("/proc/self/cgroup", "0::elsewhere\n:\n::\n");
  EXPECT_EQ(MemoryAllowed(root_), 4'194'304u);
  write("/proc/self/cgroup", "3:cpu,memory:/c\n1:pids:/a/b\n");
  EXPECT_EQ(MemoryAllowed(root_), machine);
  write("/sys/fs/cgroup/memory/c/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(MemoryAllowed(root_), machine);
  write("/sys/fs/cgroup/memory/c/memory.limit_in_bytes", "8388608\n");
  EXPECT_EQ(MemoryAllowed(root_), 8'388'608u);
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "2097152\n");
  EXPECT_EQ(MemoryAllowed(root_), 2'097'152u);
}

}  // namespace
}  // namespace hpvm::server
