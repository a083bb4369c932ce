// SPDX-License-Identifier: Apache-2.0
// Tests user ids, folders and spare processes of executors, with the real processes.
#include "server/executors/executor_confinement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/io/memfd.h"
#include "server/executors/executor_spawner.h"
#include "server/process/state_folder.h"

namespace hpvm::server {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

constexpr Duration kPatience = std::chrono::seconds(60);
constexpr uint32_t kUidFirst = 64'000;

struct stat FactsOf(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
  return info;
}

class ConfinementTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "/hpvm-places-" + std::to_string(getpid());
    fs::remove_all(folder_);
    mkdir(folder_.c_str(), 0700);
    config_.executor_uid_first = getuid() == 0 ? kUidFirst : 0;
    config_.executor_uid_count = 3;
    config_.executor_cgroup = "none";
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::unique_ptr<ConfinementPool> Make() {
    StatusOr<std::unique_ptr<ConfinementPool>> confinements = ConfinementPool::Create(config_, folder_, "/bin/true");
    HPVMD_CHECK(confinements.ok());
    return *std::move(confinements);
  }

  std::string folder_;
  Config config_;
};

// No two live confinements share an id; a freed id is used last.
TEST_F(ConfinementTest, IdsAreNeverShared) {
  if (getuid() != 0) {
    GTEST_SKIP() << "Only root gives ids out.";
  }
  const std::unique_ptr<ConfinementPool> confinements = Make();
  std::vector<std::unique_ptr<ExecutorConfinement>> taken;
  std::set<uint32_t> ids;
  for (int i = 0; i < 3; ++i) {
    StatusOr<std::unique_ptr<ExecutorConfinement>> confinement = confinements->Take({});
    ASSERT_TRUE(confinement.ok());
    ids.insert((*confinement)->uid());
    taken.push_back(*std::move(confinement));
  }
  EXPECT_EQ(ids, (std::set<uint32_t>{kUidFirst, kUidFirst + 1, kUidFirst + 2}));
  EXPECT_EQ(confinements->Take({}).status().code(), absl::StatusCode::kResourceExhausted);
  const uint32_t freed = taken[1]->uid();
  taken.erase(taken.begin() + 1);
  const StatusOr<std::unique_ptr<ExecutorConfinement>> again = confinements->Take({});
  ASSERT_TRUE(again.ok());
  EXPECT_EQ((*again)->uid(), freed);
}

// The parts of its confinement that a process sees, its user id and its folder's name, do not reveal the number of
// other places.
TEST_F(ConfinementTest, PlacesTellNothingOfOthers) {
  config_.executor_uid_count = 1000;
  const std::unique_ptr<ConfinementPool> confinements = Make();
  std::vector<int64_t> ids;
  std::set<std::string> names;
  std::vector<std::unique_ptr<ExecutorConfinement>> taken;
  for (int i = 0; i < 20; ++i) {
    StatusOr<std::unique_ptr<ExecutorConfinement>> confinement = confinements->Take({});
    ASSERT_TRUE(confinement.ok());
    ids.push_back((*confinement)->uid());
    names.insert(fs::path((*confinement)->scratch()).filename());
    taken.push_back(*std::move(confinement));
  }
  EXPECT_EQ(names.size(), 20u);
  for (const std::string& name : names) {
    EXPECT_GE(name.size(), 16u) << name;
  }
  if (getuid() == 0) {
    int successors = 0;
    for (size_t i = 1; i < ids.size(); ++i) {
      successors += ids[i] == ids[i - 1] + 1 ? 1 : 0;
    }
    EXPECT_LE(successors, 2);
  }
}

// A daemon that may change ids and has none configured chooses an unused block; if the configuration forbids it, it
// uses none.
TEST_F(ConfinementTest, ChoosesIdsThatNobodyHas) {
  if (getuid() != 0) {
    GTEST_SKIP() << "Only root gives ids out.";
  }
  config_.executor_uid_first = 0;
  const uint32_t chosen = (*Make()->Take({}))->uid(), again = (*Make()->Take({}))->uid();
  EXPECT_GE(chosen, 1'879'048'192u);
  EXPECT_LT(chosen, 2'147'483'648u);
  EXPECT_NE(chosen / 3, again / 3) << "Each daemon has a block of its own.";
  EXPECT_EQ(FactsOf(folder_).st_mode & 0777, 0711u);
  config_.executor_uid_count = 0;
  EXPECT_EQ((*Make()->Take({}))->uid(), 0u);
}

// When another user could not reach the state folder, executors keep the daemon's user id unless configured otherwise.
TEST_F(ConfinementTest, KeepsTheDaemonsIdWhereAnotherWouldNotReachItsFiles) {
  config_.executor_uid_first = 0;
  const std::string closed = folder_;
  folder_ += "/state";
  mkdir(folder_.c_str(), 0700);
  const std::unique_ptr<ConfinementPool> confinements = Make();
  EXPECT_EQ((*confinements->Take({}))->uid(), 0u);
  EXPECT_EQ(FactsOf(folder_).st_mode & 0777, 0700u);
  folder_ = closed;
}

// Processes that still run under an id when its confinement is destroyed are killed first.
TEST_F(ConfinementTest, ProcessesEndBeforeTheIdIsFree) {
  if (getuid() != 0) {
    GTEST_SKIP() << "Only root gives ids out.";
  }
  const std::unique_ptr<ConfinementPool> confinements = Make();
  StatusOr<std::unique_ptr<ExecutorConfinement>> confinement = confinements->Take({});
  ASSERT_TRUE(confinement.ok());
  const uint32_t uid = (*confinement)->uid();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    if (setresuid(uid, uid, uid) != 0 || write(ends[1], "x", 1) != 1) {
      _exit(1);
    }
    pause();
    _exit(0);
  }
  char byte;
  ASSERT_EQ(read(ends[0], &byte, 1), 1);
  std::thread reaper([child] {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  });
  confinement->reset();
  reaper.join();
  close(ends[0]);
  close(ends[1]);
}

// The scratch folder belongs to the process and is removed with it; leftovers of an earlier daemon are removed at the
// start.
TEST_F(ConfinementTest, ScratchGoesWithTheProcess) {
  fs::create_directories(folder_ + "/scratch/77/deep");
  const std::unique_ptr<ConfinementPool> confinements = Make();
  EXPECT_FALSE(fs::exists(folder_ + "/scratch/77"));
  StatusOr<std::unique_ptr<ExecutorConfinement>> confinement = confinements->Take({});
  ASSERT_TRUE(confinement.ok());
  const std::string scratch = (*confinement)->scratch();
  const struct stat info = FactsOf(scratch);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  EXPECT_EQ(info.st_uid, (*confinement)->uid() != 0 ? (*confinement)->uid() : getuid());
  std::ofstream(scratch + "/left") << "x";
  fs::create_directory_symlink("/usr", scratch + "/usr");
  confinement->reset();
  EXPECT_FALSE(fs::exists(scratch));
  EXPECT_TRUE(fs::exists("/usr/bin"));
}

// A tenant's cache is accessible only to the group of its present process.
TEST_F(ConfinementTest, CachesOpenToOneProcess) {
  if (getuid() != 0) {
    GTEST_SKIP() << "Only root gives ids out.";
  }
  const std::unique_ptr<ConfinementPool> confinements = Make();
  const StatusOr<std::unique_ptr<ExecutorConfinement>> first = confinements->Take({}), second = confinements->Take({});
  ASSERT_TRUE(first.ok() && second.ok());
  const StatusOr<std::string> cache = confinements->CacheFolder("ann", **first);
  ASSERT_TRUE(cache.ok()) << Message(cache.status());
  std::ofstream(*cache + "/kernel") << "x";
  const auto reads = [&](uint32_t uid) {
    const pid_t child = fork();
    if (child == 0) {
      const bool is_other = setresgid(uid, uid, uid) == 0 && setresuid(uid, uid, uid) == 0;
      _exit(!is_other ? 2 : access((*cache + "/kernel").c_str(), R_OK) == 0 ? 1 : 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
  };
  EXPECT_EQ(reads((*first)->uid()), 1);
  EXPECT_EQ(reads((*second)->uid()), 0);
  ASSERT_TRUE(confinements->CacheFolder("ann", **second).ok());
  EXPECT_EQ(reads((*first)->uid()), 0);
  EXPECT_EQ(reads((*second)->uid()), 1);
  EXPECT_EQ(FactsOf(*cache).st_uid, 0u);
}

// SpawnerTest uses the daemon's spawner with the real programs.
class SpawnerTest : public ConfinementTest {
 protected:
  void SetUp() override {
    ConfinementTest::SetUp();
    config_.executor_uid_count = 100;
    config_.executor_path = std::string(HPVMD_BINARY_DIR) + "/hpvm-executor";
    config_.executor_spawn_ms_max = 60'000;
    StatusOr<std::unique_ptr<StateFolder>> state = StateFolder::Open(folder_);
    ASSERT_TRUE(state.ok());
    state_ = *std::move(state);
    StatusOr<UniqueFd> page = CreateSealedMemfd("hpvm-grants", 4096);
    ASSERT_TRUE(page.ok());
    page_ = *std::move(page);
  }
  void TearDown() override {
    spawner_.reset();
    state_.reset();
    ConfinementTest::TearDown();
  }

  void Create() {
    StatusOr<std::unique_ptr<ExecutorSpawner>> spawner = CreateLinkSpawner(config_, *state_);
    ASSERT_TRUE(spawner.ok()) << Message(spawner.status());
    spawner_ = *std::move(spawner);
  }

  // Returns the processes that the state folder knows.
  std::set<int> Recorded() const {
    std::set<int> pids;
    for (const auto& entry : fs::directory_iterator(folder_ + "/executors")) {
      if (entry.path().extension().empty()) {
        pids.insert(atoi(entry.path().filename().c_str()));
      }
    }
    return pids;
  }
  // Waits until `count` processes are recorded, and returns them.
  std::set<int> Await(size_t count) const {
    const Time deadline = RealClock().Now() + kPatience;
    while (Recorded().size() != count && RealClock().Now() < deadline) {
      usleep(10'000);
    }
    EXPECT_EQ(Recorded().size(), count);
    return Recorded();
  }

  struct Executor {
    std::unique_ptr<supervisor::ExecutorProcess> process;
    StatusOr<supervisor::ExecutorReady> ready = Unavailable("none");
  };
  Executor Spawn(const std::string& tenant) {
    SpawnRequest request;
    request.tenant = tenant;
    request.grant_page = page_.get();
    request.without_device_nodes = true;
    auto promise = std::make_shared<std::promise<StatusOr<supervisor::ExecutorReady>>>();
    auto told = std::make_shared<std::atomic<bool>>(false);
    Executor executor;
    StatusOr<std::unique_ptr<supervisor::ExecutorProcess>> process = spawner_->Spawn(
        request,
        [promise, told](const supervisor::ExecutorReady& ready) {
          if (!told->exchange(true)) {
            promise->set_value(ready);
          }
        },
        [promise, told](const Status& why) {
          if (!told->exchange(true)) {
            promise->set_value(why.ok() ? Unavailable("It ended.") : why);
          }
        });
    HPVMD_CHECK(process.ok());
    executor.process = *std::move(process);
    std::future<StatusOr<supervisor::ExecutorReady>> future = promise->get_future();
    if (future.wait_for(kPatience) == std::future_status::ready) {
      executor.ready = future.get();
    }
    return executor;
  }

  static std::string UidOf(int pid) {
    std::ifstream status("/proc/" + std::to_string(pid) + "/status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("Uid:")) {
        return line;
      }
    }
    return "";
  }

  std::unique_ptr<StateFolder> state_;
  UniqueFd page_;
  std::unique_ptr<ExecutorSpawner> spawner_;
};

// A spare is taken by the first tenant and replaced; the second tenant gets another process, of another user.
TEST_F(SpawnerTest, SparesServeOneTenantEach) {
  config_.executor_spares = 1;
  Create();
  spawner_->Expect({"cpu"}, /*without_device_nodes=*/true);
  const std::set<int> waiting = Await(1);
  const Executor ann = Spawn("ann");
  ASSERT_TRUE(ann.ready.ok()) << Message(ann.ready.status());
  std::cout << "warm: from the request to Ready " << ann.ready->took / std::chrono::microseconds(1) << " us\n";
  EXPECT_TRUE(Recorded().contains(*waiting.begin()));
  const std::set<int> replaced = Await(2);
  const Executor bob = Spawn("bob");
  ASSERT_TRUE(bob.ready.ok()) << Message(bob.ready.status());
  const std::set<int> three = Await(3);
  EXPECT_TRUE(std::includes(three.begin(), three.end(), replaced.begin(), replaced.end()));
  std::set<std::string> uids;
  for (const int pid : three) {
    uids.insert(UidOf(pid));
  }
  EXPECT_EQ(uids.size(), getuid() == 0 ? 3u : 1u);
  // Waiting processes end when none is wanted; the first one does not, since it serves ann.
  config_.executor_spares = 0;
  spawner_->SetConfig(config_);
  EXPECT_TRUE(Await(2).contains(*waiting.begin()));
}

// Spares whose programs or limits have changed are replaced; with none wanted, none waits.
TEST_F(SpawnerTest, StaleSparesAreReplaced) {
  config_.executor_spares = 1;
  Create();
  spawner_->Expect({"cpu"}, /*without_device_nodes=*/true);
  const std::set<int> before = Await(1);
  config_.executor_tasks_max = 300;
  spawner_->SetConfig(config_);
  const Time deadline = RealClock().Now() + kPatience;
  while ((Recorded() == before || Recorded().size() != 1) && RealClock().Now() < deadline) {
    usleep(10'000);
  }
  EXPECT_NE(Recorded(), before);
  config_.executor_spares = 0;
  spawner_->SetConfig(config_);
  Await(0);
}

// A spare that is killed is not given to a tenant.
TEST_F(SpawnerTest, DeadSparesServeNobody) {
  config_.executor_spares = 1;
  Create();
  spawner_->Expect({"cpu"}, /*without_device_nodes=*/true);
  const std::set<int> waiting = Await(1);
  kill(*waiting.begin(), SIGKILL);
  siginfo_t end{};
  waitid(P_PID, static_cast<id_t>(*waiting.begin()), &end, WEXITED | WNOWAIT);  // Ended, and perhaps not reaped.
  const Executor ann = Spawn("ann");
  ASSERT_TRUE(ann.ready.ok()) << Message(ann.ready.status());
  // It is reaped while another one is started.
  const Time deadline = RealClock().Now() + kPatience;
  while (Recorded().contains(*waiting.begin()) && RealClock().Now() < deadline) {
    usleep(10'000);
  }
  EXPECT_FALSE(Recorded().contains(*waiting.begin()));
}

// Memory beyond the group's limit ends that executor and says so; the neighbour and the spawner go on.
TEST_F(SpawnerTest, MemoryLimitCostsOneExecutor) {
  config_.executor_spares = 0;
  config_.executor_cgroup = "auto";
  Create();
  const Executor neighbour = Spawn("neighbour");
  ASSERT_TRUE(neighbour.ready.ok()) << Message(neighbour.ready.status());
  if (neighbour.ready->said.sandbox_detail().find("control group") == std::string::npos) {
    GTEST_SKIP() << "No control groups here: " << neighbour.ready->said.sandbox_detail();
  }
  config_.executor_memory_bytes_max = 1 << 20;
  spawner_->SetConfig(config_);
  const Executor hog = Spawn("hog");
  if (hog.ready.ok()) {
    GTEST_SKIP() << "The memory controller is not there.";
  }
  EXPECT_THAT(Message(hog.ready.status()), HasSubstr("because its memory reached the limit (1048576 bytes)"));
  config_.executor_memory_bytes_max = 0;
  spawner_->SetConfig(config_);
  EXPECT_TRUE(Spawn("later").ready.ok());
  EXPECT_GE(Recorded().size(), 1u);
}

}  // namespace
}  // namespace hpvm::server
