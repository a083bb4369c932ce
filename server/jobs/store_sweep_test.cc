// SPDX-License-Identifier: Apache-2.0
// Runs a fixed script of 200 steps on the whole store, with one fault somewhere in it: at each operation of the disk
// in turn, at each allocation of SQLite, at each moment that the power can fail. After each, the store is opened again
// without faults: everything that was acknowledged is there, nothing that was refused is, and the script can go on.
//
// HPVMD_SWEEP=full takes every place; otherwise each sweep takes about as many as its budget says, spread evenly and
// at other places for another HPVMD_SWEEP_SEED.
#include <malloc.h>
#include <sqlite3.h>
#include <stdlib.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "server/jobs/testing/disk_vfs.h"
#include "server/jobs/testing/job_writes.h"
#include "server/jobs/testing/store_script.h"
#include "server/testing/sim_disk.h"

namespace hpvm::server {
namespace {

using Op = SimDisk::Op;

// SQLite's allocations in this process, of which one (or all from one on) fails; the process runs one script at a
// time.
struct {
  uint64_t made = 0;
  uint64_t fails_at = 0;  // 0: none.
  bool for_ever = false;
} allocations;

bool IsAllocationRefused() {
  ++allocations.made;
  return allocations.fails_at != 0 &&
         (allocations.for_ever ? allocations.made >= allocations.fails_at : allocations.made == allocations.fails_at);
}

void* Allocate(int bytes) { return IsAllocationRefused() ? nullptr : malloc(static_cast<size_t>(bytes)); }
void* Reallocate(void* old, int bytes) {
  return IsAllocationRefused() ? nullptr : realloc(old, static_cast<size_t>(bytes));
}
int SizeOf(void* block) { return static_cast<int>(malloc_usable_size(block)); }
int RoundUp(int bytes) { return (bytes + 7) & ~7; }
int Initialise(void*) { return SQLITE_OK; }
void ShutDown(void*) {}

// Installed before SQLite is used for the first time.
const bool is_installed = [] {
  static sqlite3_mem_methods methods = {Allocate, free, Reallocate, SizeOf, RoundUp, Initialise, ShutDown, nullptr};
  return sqlite3_config(SQLITE_CONFIG_MALLOC, &methods) == SQLITE_OK;
}();

bool IsFull() {
  const char* value = getenv("HPVMD_SWEEP");
  return value != nullptr && std::string(value) == "full";
}

uint64_t SweepSeed() {
  const char* value = getenv("HPVMD_SWEEP_SEED");
  return value == nullptr ? 1 : strtoull(value, nullptr, 10);
}

#if defined(__SANITIZE_ADDRESS__) || defined(HPVMD_TSAN)
constexpr uint64_t kShare = 8;  // Each run takes so much longer there.
#else
constexpr uint64_t kShare = 2;
#endif

// Returns some of `count` places, numbered from 1: all, or about `budget` / kShare.
std::vector<uint64_t> Places(uint64_t count, uint64_t budget) {
  std::vector<uint64_t> places;
  budget = std::max<uint64_t>(1, budget / kShare);
  const uint64_t step = IsFull() ? 1 : std::max<uint64_t>(1, count / budget);
  for (uint64_t n = 1 + SweepSeed() % step; n <= count; n += step) {
    places.push_back(n);
  }
  return places;
}

// Sweep runs one script on one disk.
class Sweep {
 public:
  // With a reserve the size of the disk is kDiskBytes.
  explicit Sweep(uint64_t seed, bool has_reserve = false) : rng_(seed), disk_(seed), has_reserve_(has_reserve) {
    disk_.AddFolder("/s");
    if (has_reserve) {
      disk_.SetSpace(kDiskBytes);
    }
    vfs_ = *DiskVfs::Register(disk_, clock_, rng_);
    store_ = std::make_unique<ScriptedStore>(Options());
  }

  static constexpr uint64_t kDiskBytes = 16 << 20;  // Gives a reserve of 1 MiB.

  SimDisk& disk() { return disk_; }
  ScriptedStore& store() { return *store_; }

  // Runs from the first start to the end, or to where a daemon would have ended.
  void Run() {
    if (store_->Open(&model_).ok()) {
      store_->Run(&model_, 0, kScriptSteps);
    } else {
      store_->stopped = true;
    }
  }

  void RunSteps(size_t first, size_t end) {
    if (first == 0 && !store_->Open(&model_).ok()) {
      store_->stopped = true;
    }
    store_->Run(&model_, first, end);
  }

  // Lets another user of the disk take all but `left` bytes.
  void Fill(uint64_t left) {
    auto file = *disk_.Open("/neighbour", Disk::Mode::kOpenOrCreate);
    ASSERT_TRUE(file->Truncate(0).ok());
    ASSERT_TRUE(file->WriteAt(0, std::vector<uint8_t>(kDiskBytes - disk_.used_bytes() - left)).ok());
  }
  // Makes room again, which the daemon then finds.
  void MakeRoom() {
    disk_.ClearFaults();
    (void)disk_.Remove("/neighbour");
    store_->LookForRoom();
  }
  bool has_reserve() const { return store_->room()->reserve_bytes() == kDiskBytes / 16; }

  // Cancels a job that has not ended, which takes no blob.
  void EndOne() {
    for (const auto& [id, row] : model_.rows()) {
      if (!IsTerminal(row.job.job().state())) {
        ScriptStep step;
        step.tenant = id.first;
        step.writes.push_back(MakeChange(row.job, v1::JOB_STATE_CANCELLED));
        store_->RunStep(step, &model_);
        return;
      }
    }
  }

  // Returns the errors found after the next start, and after some more steps. `keep` is what a loss of power leaves;
  // no power was lost when `loses_power` is false.
  std::string Recover(bool loses_power, SimDisk::Keep keep = SimDisk::Keep::kAnything) {
    std::string wrong = store_->wrong;
    const std::optional<StoreModel> written = store_->if_written;
    if (loses_power) {
      disk_.PowerOffAfter(0);
    }
    store_->Close();
    disk_.ClearFaults();
    if (loses_power) {
      disk_.Crash(rng_, keep);
    }
    store_ = std::make_unique<ScriptedStore>(Options());
    if (const Status opened = store_->Open(&model_); !opened.ok()) {
      return wrong + "The next start fails: " + Message(opened) + "\n";
    }
    wrong += store_->CheckRecovered(&model_, written);
    store_->Run(&model_, 300, 312);
    wrong += store_->wrong;
    if (store_->stopped || store_->refused > 0) {
      wrong += "The store does not go on after the next start.\n";
    }
    return wrong + store_->CheckRecovered(&model_, std::nullopt);
  }

 private:
  ScriptedStore::Options Options() {
    return {.disk = &disk_, .vfs = vfs_->name(), .root = "/s", .has_reserve = has_reserve_};
  }

  SeededRng rng_;
  ManualClock clock_;
  SimDisk disk_;
  const bool has_reserve_;
  std::unique_ptr<DiskVfs> vfs_;
  StoreModel model_;
  std::unique_ptr<ScriptedStore> store_;
};

// Numbers of the script's operations, without faults.
struct Counts {
  std::vector<uint64_t> operations;
  uint64_t changes = 0;
  uint64_t allocations = 0;
  uint64_t bytes = 0;
};

const Counts& CountsOfTheScript() {
  static const Counts counts = [] {
    Counts made;
    Sweep sweep(1);
    const uint64_t before = allocations.made;
    sweep.Run();
    EXPECT_FALSE(sweep.store().stopped);
    for (size_t op = 0; op < SimDisk::kOpCount; ++op) {
      made.operations.push_back(sweep.disk().count(static_cast<Op>(op)));
    }
    made.changes = sweep.disk().changes();
    made.allocations = allocations.made - before;
    made.bytes = sweep.disk().used_bytes();
    return made;
  }();
  return counts;
}

class StoreSweepTest : public testing::Test {
 protected:
  ~StoreSweepTest() override { allocations.fails_at = 0; }

  // Shows the first failures in full, the others as a number.
  void Expect(const std::string& wrong, const std::string& where) {
    ++runs_;
    if (!wrong.empty() && ++failures_ <= 3) {
      ADD_FAILURE() << where << ":\n" << wrong.substr(0, 2'000);
    }
  }
  void TearDown() override {
    EXPECT_EQ(failures_, 0u) << "of " << runs_ << " runs";
    printf("%llu runs\n", static_cast<unsigned long long>(runs_));
  }

  // Lets `op` fail at each place in each way of `faults`; the disk works afterwards.
  void SweepOperation(Op op, const std::vector<SimDisk::Fault>& faults, uint64_t budget) {
    const uint64_t count = CountsOfTheScript().operations[static_cast<size_t>(op)];
    ASSERT_GT(count, 0u) << "The script has no such operation.";
    for (const SimDisk::Fault& fault : faults) {
      for (uint64_t n : Places(count, budget)) {
        for (bool loses_power : {false, true}) {
          if (!IsFull() && (runs_ % 2 == 0) == loses_power) {
            continue;  // Each place is tried one way, alternately.
          }
          Sweep sweep(n);
          sweep.disk().FailNth(op, n, fault);
          sweep.Run();
          Expect(sweep.Recover(loses_power),
                 "Operation " + std::to_string(static_cast<int>(op)) + ", the " + std::to_string(n) + "th, code " +
                     std::to_string(static_cast<int>(fault.code)) + (fault.is_short ? ", short" : "") +
                     (fault.for_ever ? ", for ever" : "") + (loses_power ? ", then the power fails" : ""));
        }
      }
    }
  }

  uint64_t runs_ = 0;
  uint64_t failures_ = 0;
};

constexpr SimDisk::Fault kEio{};
constexpr SimDisk::Fault kEioForEver{.for_ever = true};
constexpr SimDisk::Fault kEioShort{.is_short = true};
constexpr SimDisk::Fault kFull{.code = absl::StatusCode::kResourceExhausted};
constexpr SimDisk::Fault kFullShort{.code = absl::StatusCode::kResourceExhausted, .is_short = true};

// Runs the script itself: no fault, every kind of step, and a store that is right at its end.
TEST_F(StoreSweepTest, NoFault) {
  ASSERT_TRUE(is_installed);
  Sweep sweep(1);
  sweep.Run();
  EXPECT_FALSE(sweep.store().stopped);
  EXPECT_EQ(sweep.store().refused, 0u);
  Expect(sweep.Recover(false), "no fault");
  for (size_t op = 0; op < SimDisk::kOpCount; ++op) {
    EXPECT_GT(CountsOfTheScript().operations[op], 0u) << op;
  }
}

TEST_F(StoreSweepTest, EveryWriteFails) { SweepOperation(Op::kWrite, {kEio, kEioShort, kFull, kFullShort}, 30); }
TEST_F(StoreSweepTest, EverySyncFails) { SweepOperation(Op::kSync, {kEio, kEioForEver}, 50); }
TEST_F(StoreSweepTest, EveryFolderSyncFails) { SweepOperation(Op::kSyncFolder, {kEio, kFull}, 30); }
TEST_F(StoreSweepTest, EveryReadFails) { SweepOperation(Op::kRead, {kEio, kEioForEver}, 25); }
TEST_F(StoreSweepTest, EveryOpenFails) {
  SweepOperation(Op::kOpen, {kEio, kFull}, 20);
  SweepOperation(Op::kCreate, {kEio, kFull}, 20);
}
TEST_F(StoreSweepTest, EveryRenameAndRemovalFails) {
  SweepOperation(Op::kRename, {kEio, kFull}, 20);
  SweepOperation(Op::kRemove, {kEio}, 20);
}
TEST_F(StoreSweepTest, EveryOtherOperationFails) {
  SweepOperation(Op::kTruncate, {kEio, kFull}, 10);
  SweepOperation(Op::kMakeFolder, {kEio, kFull}, 15);
  SweepOperation(Op::kList, {kEio}, 15);
}

// The disk is full from each point on: inserts are refused, and acknowledged writes are there; when there is room
// again the store continues without a restart.
TEST_F(StoreSweepTest, FullFromEachPointOn) {
  const uint64_t most = CountsOfTheScript().bytes;
  for (uint64_t n : Places(200, 30)) {
    Sweep sweep(n);
    sweep.disk().SetSpace(most * n / 150);
    sweep.Run();
    sweep.disk().SetSpace(UINT64_MAX);
    Expect(sweep.Recover(n % 2 == 0), "room for " + std::to_string(most * n / 150) + " bytes");
  }
}

// Another user fills the disk at each step of the script, and frees it 40 steps later. Meanwhile the store stays
// sound, its reserve takes the writes that must not be lost, and starts succeed; afterwards it continues without a
// restart.
TEST_F(StoreSweepTest, ReserveServesAFullDisk) {
  uint64_t used_reserve = 0, refused = 0;
  for (uint64_t n : Places(kScriptSteps - 50, 60)) {
    Sweep sweep(n, /*has_reserve=*/true);
    sweep.RunSteps(0, n);
    sweep.Fill(n % 5 * 3'000);  // Also somewhat later, in the middle of a step.
    bool was_used = false;
    for (size_t step = n; step < n + 40; ++step) {
      sweep.RunSteps(step, step + 1);
      sweep.EndOne();
      was_used |= !sweep.has_reserve();
    }
    used_reserve += was_used ? 1 : 0;
    refused += sweep.store().refused;
    std::string wrong = sweep.store().stopped ? "The store does not bear a full disk.\n" : "";
    sweep.MakeRoom();
    sweep.RunSteps(n + 40, n + 41);  // Its writes find the room.
    const uint64_t before = sweep.store().refused;
    sweep.RunSteps(n + 41, kScriptSteps);
    wrong += sweep.store().refused == before ? "" : "Writes are refused although there is room.\n";
    wrong += sweep.has_reserve() ? "" : "The reserve is not made again.\n";
    Expect(wrong + sweep.Recover(n % 2 == 0), "full at step " + std::to_string(n));
  }
  EXPECT_GT(used_reserve, 0u);
  EXPECT_GT(refused, 0u);
}

// From each write on no write finds room, whatever is given up; then all do.
TEST_F(StoreSweepTest, RoomComesAgainAfterEachWrite) {
  uint64_t went_on = 0;
  const uint64_t count = CountsOfTheScript().operations[static_cast<size_t>(Op::kWrite)];
  for (uint64_t n : Places(count * 3 / 4, 60)) {
    Sweep sweep(n, /*has_reserve=*/true);
    sweep.disk().FailNth(Op::kWrite, n, {.code = absl::StatusCode::kResourceExhausted, .for_ever = true});
    size_t step = 0;
    for (; step < kScriptSteps && !sweep.store().stopped && sweep.store().refused < 5; ++step) {
      sweep.RunSteps(step, step + 1);
    }
    sweep.MakeRoom();
    if (!sweep.store().stopped) {      // Otherwise a start found no room, as it should say.
      sweep.RunSteps(step, step + 1);  // Its writes find the room.
      const uint64_t before = sweep.store().refused;
      sweep.RunSteps(step + 1, kScriptSteps);
      Expect(sweep.store().stopped || sweep.store().refused != before ? "The store does not go on.\n" : "",
             "no room from write " + std::to_string(n) + " on");
      went_on += step < kScriptSteps ? 1 : 0;
    }
    Expect(sweep.Recover(n % 2 == 0), "no room from write " + std::to_string(n) + " on, recovered");
  }
  EXPECT_GT(went_on, 0u);
}

// The power fails after each change of the disk, with several outcomes each.
TEST_F(StoreSweepTest, PowerFailsAfterEachChange) {
  for (uint64_t n : Places(CountsOfTheScript().changes, 80)) {
    for (uint64_t seed = 0; seed < (IsFull() ? 8 : 3); ++seed) {
      Sweep sweep(n * 8 + seed);
      sweep.disk().PowerOffAfter(n);
      sweep.Run();
      const auto keep = seed == 0   ? SimDisk::Keep::kNothing
                        : seed == 1 ? SimDisk::Keep::kEverything
                                    : SimDisk::Keep::kAnything;
      Expect(sweep.Recover(true, keep), "after change " + std::to_string(n) + ", seed " + std::to_string(seed));
    }
  }
}

// Each allocation of SQLite fails, once or from then on.
TEST_F(StoreSweepTest, EveryAllocationOfSqliteFails) {
  for (bool for_ever : {false, true}) {
    for (uint64_t n : Places(CountsOfTheScript().allocations, 100)) {
      Sweep sweep(n);
      allocations = {.fails_at = n, .for_ever = for_ever};
      sweep.Run();
      allocations.fails_at = 0;
      Expect(sweep.Recover(n % 2 == 0), "allocation " + std::to_string(n) + (for_ever ? " and all later" : ""));
    }
  }
}

// The sweeps can fail: on a disk whose syncs lie, acknowledged jobs are lost.
TEST_F(StoreSweepTest, LyingSyncsAreSeen) {
  Sweep sweep(1);
  sweep.disk().SetSyncLies(true);
  sweep.Run();
  EXPECT_NE(sweep.Recover(true, SimDisk::Keep::kNothing), "");
}

}  // namespace
}  // namespace hpvm::server
