// SPDX-License-Identifier: Apache-2.0
// Runs the script of the sweeps on the machine's own file system, in a child process that dies: at each failpoint of
// the store, at random moments, and when an allocation of ours fails. The parent knows only how many steps were
// acknowledged to the child, and opens the store that the child left.
//
// HPVMD_SWEEP=full dies at each time that each failpoint is reached.
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <new>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "base/failpoint.h"
#include "base/io/fd.h"
#include "server/jobs/testing/store_script.h"

namespace {

// Allocations of C++ code in this process, of which one fails.
uint64_t allocations_made = 0;
uint64_t allocation_that_fails = 0;

}  // namespace

// Not inlined, because the compiler would complain about malloc and free beside new and delete.
[[gnu::noinline]] void* operator new(size_t bytes) {
  if (++allocations_made == allocation_that_fails) {
    throw std::bad_alloc();
  }
  void* block = malloc(bytes == 0 ? 1 : bytes);
  if (block == nullptr) {
    throw std::bad_alloc();
  }
  return block;
}
[[gnu::noinline]] void operator delete(void* block) noexcept { free(block); }
[[gnu::noinline]] void operator delete(void* block, size_t) noexcept { free(block); }

namespace hpvm::server {
namespace {

bool IsFull() {
  const char* value = getenv("HPVMD_SWEEP");
  return value != nullptr && std::string(value) == "full";
}

// Told is the model after the first `steps` steps were acknowledged to a child, with what it may have written besides.
struct Told {
  StoreModel model;
  // `and_first` has the first write of the next step, after which an array may be written in steps; `and_next` has
  // all.
  StoreModel and_first, and_next;
};

Told ReplayTold(size_t steps) {
  Told told;
  uint64_t sequence = 1;
  for (size_t index = 0; index <= std::min(steps, kScriptSteps - 1); ++index) {
    const ScriptStep step = MakeScriptStep(index, told.model);
    told.and_first = told.and_next = told.model;
    for (const JobWrite& write : step.writes) {
      const bool is_taken = told.and_next.Apply(write) == absl::StatusCode::kOk;
      if (const auto* insert = std::get_if<InsertJobs>(&write); is_taken && insert != nullptr) {
        std::vector<uint64_t> sequences;
        for (size_t i = 0; i < insert->jobs.size(); ++i) {
          sequences.push_back(sequence++);
        }
        told.and_next.SetSequences(*insert, sequences);
      }
      if (&write == &step.writes.front()) {
        told.and_first = told.and_next;
      }
    }
    if (index < steps) {
      told.model = told.and_next;
    }
  }
  return told;
}

// Runs as the child, which it ends in any case.
[[noreturn]] void RunChild(const std::string& root, int told_fd, const std::function<void()>& before) noexcept {
  rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  if (freopen("/dev/null", "w", stderr) == nullptr) {
    _exit(9);
  }
  StoreModel model;
  ScriptedStore store({&RealDisk(), "", root});
  before();
  if (!store.Open(&model).ok()) {
    _exit(3);
  }
  store.Run(&model, 0, kScriptSteps, [&](size_t) {
    const char byte = 1;
    if (write(told_fd, &byte, 1) != 1) {
      _exit(9);
    }
  });
  _exit(store.stopped || !store.wrong.empty() ? 4 : 0);
}

class StoreKillTest : public testing::Test {
 protected:
  StoreKillTest() {
    for (std::string* folder : {&in_memory_, &on_disk_}) {
      const bool is_memory = folder == &in_memory_ && access("/dev/shm", W_OK) == 0;
      *folder = (is_memory ? "/dev/shm" : testing::TempDir()) + "/hpvmd-kill-XXXXXX";
      EXPECT_NE(mkdtemp(folder->data()), nullptr);
    }
  }
  ~StoreKillTest() override {
    std::filesystem::remove_all(in_memory_);
    std::filesystem::remove_all(on_disk_);
  }

  // Makes a new folder for a new store. A killed process loses nothing that it wrote, synced or not, so memory is
  // mostly as good as a disk and faster.
  enum class Place : uint8_t { kMemory, kDisk };
  std::string NewRoot(Place place = Place::kMemory) {
    const std::string root = (place == Place::kDisk ? on_disk_ : in_memory_) + "/" + std::to_string(next_root_++);
    EXPECT_TRUE(RealDisk().MakeFolder(root).ok());
    return root;
  }

  struct End {
    int status = 0;    // As returned by waitpid.
    size_t steps = 0;  // Number of acknowledged steps.
  };
  // `before` runs in the child; `meanwhile` in the parent.
  End Live(const std::string& root, const std::function<void()>& before,
           const std::function<void(pid_t)>& meanwhile = nullptr) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      RunChild(root, ends[1], before);
    }
    close(ends[1]);
    UniqueFd told(ends[0]);
    if (meanwhile != nullptr) {
      meanwhile(child);
    }
    End end;
    char bytes[64];
    for (ssize_t got; (got = read(told.get(), bytes, sizeof(bytes))) > 0;) {
      end.steps += static_cast<size_t>(got);
    }
    waitpid(child, &end.status, 0);
    return end;
  }

  // Checks the state that the next start finds, and that it continues.
  void Check(const std::string& root, const End& end, const std::string& where) {
    Told told = ReplayTold(end.steps);
    ScriptedStore store({&RealDisk(), "", root});
    const Status opened = store.Open(&told.model);
    ASSERT_TRUE(opened.ok()) << where << ": " << opened;
    std::string wrong = store.CheckRecovered(&told.model, told.and_next);
    told.and_first.lease = told.model.lease;
    if (!wrong.empty() && store.CheckRecovered(&told.and_first, std::nullopt).empty()) {
      told.model = told.and_first;
      wrong.clear();
    }
    store.Run(&told.model, 300, 306);
    wrong += store.wrong + store.CheckRecovered(&told.model, std::nullopt);
    EXPECT_EQ(wrong.substr(0, 2'000), "") << where << ", told of " << end.steps << " steps";
    EXPECT_FALSE(store.stopped) << where;
    store.Close();
    std::filesystem::remove_all(root);
  }

  std::string in_memory_, on_disk_;
  int next_root_ = 0;
};

#ifndef HPVMD_NO_FAILPOINTS

// Returns the names of the store's failpoints, from the sources, so that a new one is tested.
std::set<std::string> PlacesOfTheStore() {
  std::set<std::string> names;
  const std::regex place("HPVMD_FAILPOINT\\(\"([a-z0-9_.]+)\"\\)");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(HPVMD_SOURCE_DIR "/server/jobs")) {
    if (entry.path().extension() != ".cc" || entry.path().string().ends_with("_test.cc")) {
      continue;
    }
    std::ifstream file(entry.path());
    const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    for (std::sregex_iterator match(text.begin(), text.end(), place), end; match != end; ++match) {
      names.insert((*match)[1]);
    }
  }
  return names;
}

// Returns how often the script reaches each.
std::map<std::string, uint64_t> CountHits(const std::string& root) {
  std::string settings;
  for (const std::string& name : PlacesOfTheStore()) {
    settings += name + "=sleep(0);";
  }
  EXPECT_TRUE(SetFailpoints(settings).ok());
  StoreModel model;
  ScriptedStore store({&RealDisk(), "", root});
  EXPECT_TRUE(store.Open(&model).ok());
  store.Run(&model, 0, kScriptSteps);
  EXPECT_FALSE(store.stopped);
  EXPECT_EQ(store.wrong, "");
  std::map<std::string, uint64_t> hits = FailpointHits();
  EXPECT_TRUE(SetFailpoints("").ok());
  return hits;
}

// SIGKILL at each failpoint: at the first time, the last and some in between.
TEST_F(StoreKillTest, DiesAtEachPlace) {
  const std::map<std::string, uint64_t> hits = CountHits(NewRoot());
  size_t places = 0, kills = 0;
  for (const auto& [name, count] : hits) {
    std::set<uint64_t> times = {1, count / 2, count - count / 5, count};
    for (uint64_t time = 1; IsFull() && time <= count; ++time) {
      times.insert(time);
    }
    times.erase(0);
    places += count > 0 ? 1 : 0;
    for (uint64_t time : times) {
      if (time > count) {
        continue;
      }
      const std::string root = NewRoot(time == 1 ? Place::kDisk : Place::kMemory);
      const std::string setting = name + "=kill@" + std::to_string(time);
      const End end = Live(root, [&] { (void)SetFailpoints(setting); });
      EXPECT_TRUE(WIFSIGNALED(end.status) && WTERMSIG(end.status) == SIGKILL) << setting;
      Check(root, end, setting);
      ++kills;
    }
  }
  // Those of a store that is opened, used, swept and saved; not all are reached by the script.
  EXPECT_GE(places, 12u);
  printf("%zu kills at %zu places\n", kills, places);
}

// An error at each failpoint is either reported, and then nothing is stored, or ends the store, and then a start
// repairs it.
TEST_F(StoreKillTest, FailsAtEachPlace) {
  const std::map<std::string, uint64_t> hits = CountHits(NewRoot());
  for (const auto& [name, count] : hits) {
    for (const char* code : {"resource_exhausted", "data_loss"}) {
      const std::string setting = name + "=error(" + code + ")@" + std::to_string(std::max<uint64_t>(1, count / 2));
      const std::string root = NewRoot();
      StoreModel model;
      ScriptedStore store({&RealDisk(), "", root});
      ASSERT_TRUE(SetFailpoints(setting).ok());
      if (store.Open(&model).ok()) {
        store.Run(&model, 0, kScriptSteps);
      }
      ASSERT_TRUE(SetFailpoints("").ok());
      EXPECT_EQ(store.wrong, "") << setting;
      const std::optional<StoreModel> written = store.if_written;
      ASSERT_TRUE(store.Open(&model).ok()) << setting;
      EXPECT_EQ(store.CheckRecovered(&model, written), "") << setting;
      store.Close();
      std::filesystem::remove_all(root);
    }
  }
}

#endif  // HPVMD_NO_FAILPOINTS

// SIGKILL from outside, at random moments.
TEST_F(StoreKillTest, DiesAtAnyMoment) {
  // Measures the time that the script takes here.
  timespec begin, finish;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  const std::string first = NewRoot(Place::kDisk);
  EXPECT_EQ(Live(first, [] {}).status, 0);
  clock_gettime(CLOCK_MONOTONIC, &finish);
  const int64_t took_us = (finish.tv_sec - begin.tv_sec) * 1'000'000 + (finish.tv_nsec - begin.tv_nsec) / 1'000;
  SeededRng rng(static_cast<uint64_t>(begin.tv_nsec));  // Moments never replay; the checks do not depend on them.
  const int kills = IsFull() ? 300 : 8;
  for (int i = 0; i < kills; ++i) {
    const std::string root = NewRoot(Place::kDisk);
    const auto after_us = static_cast<useconds_t>(rng.Below(static_cast<uint64_t>(took_us)));
    const End end = Live(
        root, [] {},
        [&](pid_t child) {
          usleep(after_us);
          kill(child, SIGKILL);
        });
    Check(root, end, "after " + std::to_string(after_us) + " us");
  }
}

// An allocation of our own code fails: without exceptions across our code that ends the process, which is a crash like
// any other. Protobuf's containers may end it sooner, when they are destroyed half made.
TEST_F(StoreKillTest, AllocationFails) {
  const uint64_t before = allocations_made;
  {
    StoreModel model;
    ScriptedStore store({&RealDisk(), "", NewRoot()});
    ASSERT_TRUE(store.Open(&model).ok());
    store.Run(&model, 0, kScriptSteps);
  }
  const uint64_t count = allocations_made - before;
  const uint64_t places = IsFull() ? 1'000 : 30;
  for (uint64_t i = 0; i < places; ++i) {
    const uint64_t n = 1 + count * i / places;
    const std::string root = NewRoot();
    const End end = Live(root, [n] { allocation_that_fails = allocations_made + n; });
    EXPECT_TRUE(WIFSIGNALED(end.status)) << "allocation " << n << ": " << end.status;
    Check(root, end, "allocation " + std::to_string(n));
  }
}

}  // namespace
}  // namespace hpvm::server
