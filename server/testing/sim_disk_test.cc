// SPDX-License-Identifier: Apache-2.0
#include "server/testing/sim_disk.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace hpvm::server {
namespace {

using Keep = SimDisk::Keep;
using Mode = Disk::Mode;
using Op = SimDisk::Op;

constexpr size_t kPiece = 512;

std::vector<uint8_t> Fill(uint8_t value, size_t bytes = kPiece) { return std::vector<uint8_t>(bytes, value); }

std::vector<uint8_t> ReadAll(SimDisk& disk, const std::string& path) {
  auto file = disk.Open(path, Mode::kRead);
  if (!file.ok()) {
    return {};
  }
  std::vector<uint8_t> bytes(*(*file)->Size());
  EXPECT_EQ(*(*file)->ReadAt(0, bytes), bytes.size());
  return bytes;
}

std::set<std::string> Names(SimDisk& disk, const std::string& folder) {
  std::set<std::string> names;
  auto entries = disk.List(folder);
  EXPECT_TRUE(entries.ok());
  for (const DiskEntry& entry : *entries) {
    names.insert(entry.name);
  }
  return names;
}

// Adds a file with `bytes` that a crash does not change.
void AddFile(SimDisk& disk, const std::string& path, const std::vector<uint8_t>& bytes) {
  auto file = *disk.Open(path, Mode::kCreate);
  ASSERT_TRUE(file->WriteAt(0, bytes).ok());
  ASSERT_TRUE(file->Sync().ok());
  ASSERT_TRUE(disk.SyncFolder(path.substr(0, path.rfind('/'))).ok());
}

class SimDiskTest : public testing::Test {
 protected:
  SimDiskTest() : rng_(1) { disk_.AddFolder("/s/t"); }
  SimDisk disk_{1};
  SeededRng rng_;
};

// Without faults it behaves like a disk.
TEST_F(SimDiskTest, IsADisk) {
  AddFile(disk_, "/s/a", Fill(1));
  EXPECT_TRUE(absl::IsAlreadyExists(disk_.Open("/s/a", Mode::kCreate).status()));
  EXPECT_TRUE(absl::IsNotFound(disk_.Open("/s/b", Mode::kReadWrite).status()));
  EXPECT_TRUE(absl::IsNotFound(disk_.Open("/x/b", Mode::kCreate).status()));
  EXPECT_TRUE(absl::IsPermissionDenied(disk_.Open("/s/t", Mode::kRead).status()));
  EXPECT_TRUE(disk_.MakeFolder("/s/t").ok());
  EXPECT_TRUE(absl::IsAlreadyExists(disk_.MakeFolder("/s/a")));
  auto reader = *disk_.Open("/s/a", Mode::kRead);
  EXPECT_TRUE(absl::IsPermissionDenied(reader->WriteAt(0, Fill(2))));
  ASSERT_TRUE(disk_.Rename("/s/a", "/s/t/b").ok());
  EXPECT_EQ(Names(disk_, "/s"), std::set<std::string>{"t"});
  ASSERT_TRUE(disk_.Remove("/s/t/b").ok());
  std::vector<uint8_t> into(kPiece);
  EXPECT_EQ(*reader->ReadAt(0, into), kPiece);  // As long as it is open.
  EXPECT_EQ(into, Fill(1));
  EXPECT_EQ(disk_.used_bytes(), kPiece);
  reader.reset();
  EXPECT_EQ(disk_.used_bytes(), kPiece);  // A crash could bring it back.
  EXPECT_TRUE(disk_.SyncFolder("/s").ok());
  EXPECT_TRUE(disk_.SyncFolder("/s/t").ok());
  EXPECT_EQ(disk_.used_bytes(), 0u);
}

// Synced bytes stay; unsynced ones may be kept, lost, or kept in part, sector by sector.
TEST_F(SimDiskTest, UnsyncedBytesMayBeThereOrNot) {
  std::set<std::vector<uint8_t>> seen;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SimDisk disk(seed);
    SeededRng rng(seed);
    disk.AddFolder("/s");
    AddFile(disk, "/s/a", Fill(1, 8 * kPiece));
    auto file = *disk.Open("/s/a", Mode::kReadWrite);
    ASSERT_TRUE(file->WriteAt(4 * kPiece, Fill(2, 6 * kPiece)).ok());
    disk.Crash(rng);
    std::vector<uint8_t> found = ReadAll(disk, "/s/a");
    ASSERT_GE(found.size(), 8 * kPiece);
    ASSERT_TRUE(std::all_of(found.begin(), found.begin() + 4 * kPiece, [](uint8_t b) { return b == 1; }));
    for (size_t at = 0; at + kPiece <= found.size(); at += kPiece) {
      // No sector is torn.
      ASSERT_EQ(std::set<uint8_t>(found.begin() + at, found.begin() + at + kPiece).size(), 1u);
    }
    seen.insert(std::move(found));
  }
  EXPECT_GT(seen.size(), 20u);
  EXPECT_TRUE(seen.contains(Fill(1, 8 * kPiece)));  // Nothing kept, and everything:
  std::vector<uint8_t> all = Fill(1, 10 * kPiece);
  std::fill(all.begin() + 4 * kPiece, all.end(), 2);
  EXPECT_TRUE(seen.contains(all));
}

// A name is durable once its folder is synced; so are a removal and a rename. Before that either state may remain.
TEST_F(SimDiskTest, UnsyncedNamesMayBeThereOrNot) {
  std::set<std::set<std::string>> seen;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SimDisk disk(seed);
    SeededRng rng(seed);
    disk.AddFolder("/s");
    AddFile(disk, "/s/kept", Fill(1));
    AddFile(disk, "/s/gone", Fill(1));
    AddFile(disk, "/s/from", Fill(1));
    ASSERT_TRUE(disk.Open("/s/new", Mode::kCreate).ok());
    ASSERT_TRUE(disk.Remove("/s/gone").ok());
    ASSERT_TRUE(disk.Rename("/s/from", "/s/to").ok());
    disk.Crash(rng);
    std::set<std::string> names = Names(disk, "/s");
    EXPECT_TRUE(names.contains("kept"));
    EXPECT_NE(names.contains("from"), names.contains("to"));  // Within a folder a rename is atomic.
    seen.insert(std::move(names));
  }
  EXPECT_EQ(seen.size(), 8u);
}

// Crashes with a chosen outcome, for tests that need one.
TEST_F(SimDiskTest, KeepsNothingOrEverything) {
  for (Keep keep : {Keep::kNothing, Keep::kEverything}) {
    SimDisk disk(1);
    disk.AddFolder("/s");
    AddFile(disk, "/s/a", Fill(1));
    ASSERT_TRUE((*disk.Open("/s/a", Mode::kReadWrite))->WriteAt(0, Fill(2)).ok());
    ASSERT_TRUE(disk.Open("/s/new", Mode::kCreate).ok());
    disk.Crash(rng_, keep);
    EXPECT_EQ(ReadAll(disk, "/s/a"), Fill(keep == Keep::kNothing ? 1 : 2));
    EXPECT_EQ(Names(disk, "/s").contains("new"), keep == Keep::kEverything);
  }
}

// After a crash an open file is invalid.
TEST_F(SimDiskTest, CrashInvalidatesOpenFiles) {
  auto file = *disk_.Open("/s/a", Mode::kCreate);
  disk_.Crash(rng_, Keep::kEverything);
  EXPECT_TRUE(absl::IsDataLoss(file->WriteAt(0, Fill(1))));
  EXPECT_TRUE(absl::IsDataLoss(file->Sync()));
  EXPECT_TRUE(absl::IsDataLoss(file->Size().status()));
  EXPECT_TRUE(ReadAll(disk_, "/s/a").empty());
}

// The nth operation fails, once or from then on; other operations, and other paths, do not.
TEST_F(SimDiskTest, FailsTheNth) {
  auto file = *disk_.Open("/s/a", Mode::kCreate);
  disk_.FailNth(Op::kWrite, 2, {absl::StatusCode::kResourceExhausted});
  EXPECT_TRUE(file->WriteAt(0, Fill(1)).ok());
  EXPECT_TRUE(file->Sync().ok());
  EXPECT_TRUE(absl::IsResourceExhausted(file->WriteAt(0, Fill(2))));
  EXPECT_TRUE(file->WriteAt(kPiece, Fill(3)).ok());
  EXPECT_EQ(ReadAll(disk_, "/s/a")[0], 1);
  disk_.FailNth(Op::kRead, 2, {.for_ever = true, .path_contains = "/s/a"});
  std::vector<uint8_t> into(8);
  EXPECT_TRUE(file->ReadAt(0, into).ok());
  EXPECT_TRUE(absl::IsDataLoss(file->ReadAt(0, into).status()));
  EXPECT_TRUE(absl::IsDataLoss(file->ReadAt(0, into).status()));
  AddFile(disk_, "/s/b", Fill(1));
  EXPECT_EQ(ReadAll(disk_, "/s/b"), Fill(1));
  disk_.ClearFaults();
  EXPECT_TRUE(file->ReadAt(0, into).ok());
}

// A short write leaves a proper prefix.
TEST_F(SimDiskTest, ShortWriteLeavesAPrefix) {
  std::set<size_t> sizes;
  for (int i = 0; i < 30; ++i) {
    const std::string path = "/s/" + std::to_string(i);
    auto file = *disk_.Open(path, Mode::kCreate);
    disk_.FailNth(Op::kWrite, 1, {.is_short = true});
    EXPECT_TRUE(absl::IsDataLoss(file->WriteAt(0, Fill(1))));
    sizes.insert(ReadAll(disk_, path).size());
  }
  EXPECT_GT(sizes.size(), 10u);
  EXPECT_LT(*sizes.rbegin(), kPiece);
}

// A full disk accepts what fits; removals make room.
TEST_F(SimDiskTest, FullDisk) {
  AddFile(disk_, "/s/a", Fill(1));
  disk_.SetSpace(2 * kPiece + 100);
  auto file = *disk_.Open("/s/b", Mode::kCreate);
  EXPECT_TRUE(absl::IsResourceExhausted(file->WriteAt(0, Fill(2, 2 * kPiece))));
  EXPECT_EQ(ReadAll(disk_, "/s/b"), Fill(2, kPiece + 100));
  EXPECT_TRUE(file->WriteAt(0, Fill(3)).ok());  // No more room is needed.
  ASSERT_TRUE(disk_.Remove("/s/a").ok());
  EXPECT_TRUE(file->WriteAt(0, Fill(2, 2 * kPiece)).ok());
  EXPECT_EQ(disk_.used_bytes(), 2 * kPiece);
}

// After a failed sync a second one returns OK although the written data may be lost.
TEST_F(SimDiskTest, SecondSyncProvesNothing) {
  std::set<uint8_t> found;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SimDisk disk(seed);
    SeededRng rng(seed);
    disk.AddFolder("/s");
    AddFile(disk, "/s/a", Fill(1));
    auto file = *disk.Open("/s/a", Mode::kReadWrite);
    disk.FailNth(Op::kSync, 1, {});
    ASSERT_TRUE(file->WriteAt(0, Fill(2)).ok());
    EXPECT_TRUE(absl::IsDataLoss(file->Sync()));
    EXPECT_TRUE(file->Sync().ok());
    EXPECT_EQ(ReadAll(disk, "/s/a"), Fill(2));
    disk.Crash(rng, Keep::kEverything);
    found.insert(ReadAll(disk, "/s/a")[0]);
  }
  EXPECT_EQ(found, (std::set<uint8_t>{1, 2}));
}

// A disk that lies about syncs.
TEST_F(SimDiskTest, SyncLies) {
  disk_.SetSyncLies(true);
  AddFile(disk_, "/s/a", Fill(1));
  disk_.Crash(rng_, Keep::kNothing);
  EXPECT_TRUE(Names(disk_, "/s") == std::set<std::string>{"t"});
}

// Power fails after a given number of changes: the last one still happens, nothing later does, until Crash.
TEST_F(SimDiskTest, PowerOff) {
  auto file = *disk_.Open("/s/a", Mode::kCreate);
  disk_.PowerOffAfter(2);
  EXPECT_TRUE(file->WriteAt(0, Fill(1)).ok());
  EXPECT_FALSE(disk_.is_off());
  EXPECT_TRUE(file->Sync().ok());
  EXPECT_TRUE(disk_.is_off());
  EXPECT_TRUE(absl::IsDataLoss(disk_.SyncFolder("/s")));
  EXPECT_TRUE(absl::IsDataLoss(disk_.Open("/s/a", Mode::kRead).status()));
  disk_.Crash(rng_, Keep::kEverything);
  EXPECT_EQ(ReadAll(disk_, "/s/a"), Fill(1));
}

// Damage persists over a crash.
TEST_F(SimDiskTest, Damages) {
  AddFile(disk_, "/s/a", Fill(1));
  EXPECT_TRUE(disk_.Damage("/s/a", 3, 0x10));
  EXPECT_FALSE(disk_.Damage("/s/a", kPiece));
  EXPECT_FALSE(disk_.Damage("/s/b", 0));
  disk_.Crash(rng_);
  EXPECT_EQ(ReadAll(disk_, "/s/a")[3], 0x11);
}

// The same seeds give the same disk.
TEST_F(SimDiskTest, Replays) {
  auto run = [](uint64_t seed) {
    SimDisk disk(seed);
    SeededRng rng(seed);
    disk.AddFolder("/s");
    disk.FailByChance(Op::kWrite, 5, {.is_short = true});
    for (int i = 0; i < 20; ++i) {
      auto file = *disk.Open("/s/" + std::to_string(i % 7), Mode::kOpenOrCreate);
      (void)file->WriteAt(static_cast<uint64_t>(i) * 100, Fill(static_cast<uint8_t>(i), 3000));
      if (i % 3 == 0) {
        (void)disk.SyncFolder("/s");
      }
    }
    disk.Crash(rng);
    std::vector<std::vector<uint8_t>> all;
    for (const std::string& name : Names(disk, "/s")) {
      all.push_back(ReadAll(disk, "/s/" + name));
    }
    return all;
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
}

}  // namespace
}  // namespace hpvm::server
