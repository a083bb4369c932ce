// SPDX-License-Identifier: Apache-2.0
#include "server/jobs/blobs/blob_folder.h"

#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "base/io/memfd.h"
#include "server/testing/sim_disk.h"

namespace hpvm::server {
namespace {

using Mode = Disk::Mode;
using Op = SimDisk::Op;

std::span<const uint8_t> BytesOf(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

BlobSource Source(std::string_view text) { return {.bytes = BytesOf(text)}; }

// Returns every file below a folder.
std::set<std::string> Files(Disk& disk, const std::string& folder) {
  std::set<std::string> files;
  auto entries = disk.List(folder);
  EXPECT_TRUE(entries.ok());
  for (const DiskEntry& entry : *entries) {
    if (entry.is_folder) {
      files.merge(Files(disk, folder + "/" + entry.name));
    } else {
      files.insert(folder + "/" + entry.name);
    }
  }
  return files;
}

std::string PathOf(std::string_view tenant, std::string_view text) {
  const std::string hex = ToHex(HashOf(text));
  return "/b/" + std::string(tenant) + "/" + hex.substr(0, 2) + "/" + hex;
}

class BlobFolderTest : public testing::Test {
 protected:
  BlobFolderTest() { disk_.AddFolder("/b"); }
  bool IsThere(std::string_view text, std::string_view tenant = "t") {
    return folder_.Open(tenant, HashOf(text), text.size()).ok();
  }

  SimDisk disk_{1};
  BlobFolder folder_{disk_, "/b"};
};

// A blob is found by its hash, in its tenant's folder and in no other's.
TEST_F(BlobFolderTest, PutsAndReads) {
  PinnedBlob blob = *folder_.Put("t", Source("hello"));
  EXPECT_EQ(blob.hash, HashOf("hello"));
  EXPECT_EQ(blob.size_bytes, 5u);
  EXPECT_EQ(Files(disk_, "/b"), std::set<std::string>{PathOf("t", "hello")});
  EXPECT_EQ(*folder_.Read("t", blob.hash, 5), "hello");
  EXPECT_TRUE(absl::IsNotFound(folder_.Read("other", blob.hash, 5).status()));
  EXPECT_TRUE(absl::IsDataLoss(folder_.Read("t", blob.hash, 6).status()));
  EXPECT_EQ(*folder_.Read("t", folder_.Put("t", Source(""))->hash, 0), "");
}

// Covers sizes around the size of the copied pieces, from memory and from a descriptor.
TEST_F(BlobFolderTest, AnySize) {
  for (size_t size : {size_t{1}, (size_t{1} << 20) - 1, size_t{1} << 20, (size_t{1} << 20) + 1, size_t{3} << 20}) {
    std::string text(size, 'x');
    for (size_t i = 0; i < size; i += 4096) {
      text[i] = static_cast<char>(i >> 12);
    }
    PinnedBlob blob = *folder_.Put("memory", Source(text));
    EXPECT_EQ(blob.hash, HashOf(text)) << size;
    EXPECT_TRUE(*folder_.Read("memory", blob.hash, size) == text) << size;
    UniqueFd fd = *CreateSealedMemfd("test", size);
    ASSERT_TRUE(WriteAt(fd.get(), 0, BytesOf(text)).ok());
    EXPECT_EQ(folder_.Put("fd", {.bytes = {}, .fd = fd.get(), .fd_bytes = size})->hash, HashOf(text)) << size;
  }
}

// No name leads out of the folder, for any caller.
TEST_F(BlobFolderTest, RefusesHostileNames) {
  const std::string kNames[] = {"",
                                ".",
                                "..",
                                "../t",
                                "a/b",
                                "/t",
                                "A",
                                "t.",
                                std::string("t\0x", 3),
                                "a b",
                                "t\n",
                                "é",
                                ".new",
                                std::string(129, 'a')};
  for (const std::string& name : kNames) {
    EXPECT_TRUE(absl::IsInvalidArgument(folder_.Put(name, Source("x")).status())) << name;
    EXPECT_TRUE(absl::IsInvalidArgument(folder_.Open(name, HashOf("x"), 1).status())) << name;
    EXPECT_TRUE(absl::IsInvalidArgument(folder_.Pin(name, HashOf("x"), 1).status())) << name;
    folder_.Release(name, HashOf("x"));
  }
  EXPECT_EQ(disk_.changes(), 0u);
}

// Bytes that an executor changes while they are copied get the name of the bytes that were copied.
TEST_F(BlobFolderTest, NameMatchesBytesThatChange) {
  constexpr size_t kBytes = 4 << 20;
  UniqueFd fd = *CreateSealedMemfd("test", kBytes);
  std::atomic<bool> ends{false};
  std::thread writer([&] {
    for (uint8_t i = 0; !ends; ++i) {
      const std::vector<uint8_t> bytes(kBytes / 64, i);
      (void)WriteAt(fd.get(), (i % 64) * bytes.size(), bytes);
    }
  });
  for (int i = 0; i < 10; ++i) {
    auto blob = folder_.Put("t", {.bytes = {}, .fd = fd.get(), .fd_bytes = kBytes});
    ASSERT_TRUE(blob.ok());
    EXPECT_TRUE(folder_.Read("t", blob->hash, kBytes).ok());
  }
  ends = true;
  writer.join();
}

// A source that cannot be read is no loss of stored data, and leaves nothing.
TEST_F(BlobFolderTest, SourceEndsEarly) {
  UniqueFd fd = *CreateSealedMemfd("test", 100);
  EXPECT_EQ(folder_.Put("t", {.bytes = {}, .fd = fd.get(), .fd_bytes = 101}).status().code(),
            absl::StatusCode::kInternal);
  EXPECT_TRUE(Files(disk_, "/b").empty());
}

// Existing bytes under a known hash are not copied again; under a wrong hash they are, to their right name.
TEST_F(BlobFolderTest, KnownHashSparesTheCopy) {
  const Sha256 hash = HashOf("hello");
  PinnedBlob first = *folder_.Put("t", {.bytes = BytesOf("hello"), .known_hash = &hash});
  const uint64_t writes = disk_.count(Op::kWrite);
  PinnedBlob second = *folder_.Put("t", {.bytes = BytesOf("hello"), .known_hash = &hash});
  EXPECT_EQ(disk_.count(Op::kWrite), writes);
  EXPECT_EQ(second.hash, hash);
  const Sha256 wrong = HashOf("other");
  EXPECT_EQ(folder_.Put("t", {.bytes = BytesOf("hello"), .known_hash = &wrong})->hash, hash);
}

// A damaged file is not taken for the blob, but written again.
TEST_F(BlobFolderTest, ReplacesADamagedFile) {
  PinnedBlob blob = *folder_.Put("t", Source("hello"));
  ASSERT_TRUE((*disk_.Open(PathOf("t", "hello"), Mode::kReadWrite))->Truncate(3).ok());
  EXPECT_TRUE(absl::IsDataLoss(folder_.Open("t", blob.hash, 5).status()));
  EXPECT_TRUE(absl::IsNotFound(folder_.Pin("t", blob.hash, 5).status()));
  ASSERT_TRUE(folder_.Put("t", {.bytes = BytesOf("hello"), .known_hash = &blob.hash}).ok());
  EXPECT_EQ(*folder_.Read("t", blob.hash, 5), "hello");
  ASSERT_TRUE(disk_.Damage(PathOf("t", "hello"), 2));
  EXPECT_TRUE(absl::IsDataLoss(folder_.Read("t", blob.hash, 5).status()));
}

// When several blobs are put, each file is synced, each folder once, and nothing is left of a call that fails.
TEST_F(BlobFolderTest, PutsMany) {
  std::vector<std::string> texts;
  std::vector<BlobSource> sources;
  for (int i = 0; i < 40; ++i) {
    texts.push_back("text " + std::to_string(i % 30));
  }
  for (const std::string& text : texts) {
    sources.push_back(Source(text));
  }
  auto blobs = folder_.PutMany("t", sources);
  ASSERT_TRUE(blobs.ok());
  std::set<std::string> folders;
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ((*blobs)[i].hash, HashOf(texts[i]));
    folders.insert(ToHex(HashOf(texts[i])).substr(0, 2));
  }
  EXPECT_EQ(Files(disk_, "/b").size(), 30u);
  EXPECT_EQ(disk_.count(Op::kSyncFolder), folders.size() + 2);
  disk_.FailNth(Op::kWrite, 3, {absl::StatusCode::kResourceExhausted});
  EXPECT_TRUE(absl::IsResourceExhausted(folder_.PutMany("u", sources).status()));
  EXPECT_EQ(Files(disk_, "/b").size(), 30u);
}

// Pins hold a file, Keep undoes a release, and a later Put does not undo another's release.
TEST_F(BlobFolderTest, ReleaseAndPins) {
  PinnedBlob a = *folder_.Put("t", Source("a"));
  folder_.Release("t", a.hash);
  EXPECT_TRUE(IsThere("a"));
  a.pin.reset();
  EXPECT_FALSE(IsThere("a"));

  a = *folder_.Put("t", Source("a"));
  folder_.Release("t", a.hash);
  folder_.Keep("t", a.hash);
  a.pin.reset();
  EXPECT_TRUE(IsThere("a"));
  folder_.Release("t", a.hash);
  EXPECT_FALSE(IsThere("a"));

  // The last of two holders decides.
  a = *folder_.Put("t", Source("a"));
  PinnedBlob again = *folder_.Put("t", Source("a"));
  folder_.Release("t", a.hash);
  a.pin.reset();
  EXPECT_TRUE(IsThere("a"));
  again.pin.reset();
  EXPECT_FALSE(IsThere("a"));

  EXPECT_TRUE(absl::IsNotFound(folder_.Pin("t", a.hash, 1).status()));
  a = *folder_.Put("t", Source("a"));
  PinnedBlob held = *folder_.Pin("t", a.hash, 1);
  folder_.Release("t", a.hash);
  a.pin.reset();
  EXPECT_TRUE(IsThere("a"));
}

// A pin outlives the object that gave it.
TEST_F(BlobFolderTest, PinsOutliveTheFolder) {
  auto folder = std::make_unique<BlobFolder>(disk_, "/b");
  PinnedBlob blob = *folder->Put("t", Source("a"));
  folder->Release("t", blob.hash);
  folder.reset();
  EXPECT_TRUE(IsThere("a"));
  blob.pin.reset();
  EXPECT_FALSE(IsThere("a"));
}

// The database decides: a blob that a row names stays, even when it was released; a blob that no row names is removed,
// even when no caller released it (a refused submit).
TEST_F(BlobFolderTest, AsksTheDatabase) {
  std::set<Sha256> rows;
  uint64_t questions = 0;
  folder_.SetIsUsed([&](std::string_view tenant, const Sha256& hash) {
    EXPECT_EQ(tenant, "t");
    ++questions;
    return rows.contains(hash);
  });
  PinnedBlob blob = *folder_.Put("t", Source("refused"));
  blob.pin.reset();
  EXPECT_FALSE(IsThere("refused"));
  EXPECT_EQ(questions, 1u);

  blob = *folder_.Put("t", Source("taken"));
  rows.insert(blob.hash);
  blob.pin.reset();
  EXPECT_TRUE(IsThere("taken"));
  folder_.Release("t", HashOf("taken"));
  EXPECT_TRUE(IsThere("taken"));
  EXPECT_EQ(questions, 3u);

  blob = *folder_.Put("t", Source("kept"));
  rows.insert(blob.hash);
  folder_.Keep("t", blob.hash);
  blob.pin.reset();
  EXPECT_EQ(questions, 3u);
  rows.clear();
  folder_.Release("t", HashOf("kept"));
  EXPECT_FALSE(IsThere("kept"));
}

// Temporary files, unknown blobs and foreign files are removed; blobs that rows name or pins hold, and other folders,
// stay.
TEST_F(BlobFolderTest, Sweeps) {
  for (std::string_view text : {"used", "unknown"}) {
    ASSERT_TRUE(folder_.Put("t", Source(text)).ok());
  }
  PinnedBlob pinned = *folder_.Put("u", Source("pinned"));
  const std::string sub = PathOf("t", "used").substr(0, 7);
  for (const std::string& path : {std::string("/b/t/.new-0"), std::string("/b/t/x"), sub + "/x", sub + "/.y"}) {
    ASSERT_TRUE(disk_.Open(path, Mode::kOpenOrCreate).ok());
  }
  ASSERT_TRUE(disk_.MakeFolder("/b/lost+found").ok());
  ASSERT_TRUE(disk_.Open("/b/lost+found/x", Mode::kCreate).ok());
  std::set<std::pair<std::string, Sha256>> missing = {{"t", HashOf("used")}, {"t", HashOf("gone")}};
  auto removed = folder_.Sweep([&](std::string_view tenant, const Sha256& hash) {
    return missing.erase({std::string(tenant), hash}) > 0;
  });
  EXPECT_EQ(*removed, 5u);
  EXPECT_EQ(Files(disk_, "/b"), (std::set<std::string>{PathOf("t", "used"), PathOf("u", "pinned"), "/b/lost+found/x"}));
  EXPECT_EQ(missing, (std::set<std::pair<std::string, Sha256>>{{"t", HashOf("gone")}}));
}

// A name that an earlier process left without syncing its folder is synced before it is relied on.
TEST_F(BlobFolderTest, SyncsNamesOfAnEarlierProcess) {
  for (bool sweeps : {false, true}) {
    SimDisk disk(1);
    disk.AddFolder("/b");
    // The process died between the rename and the syncs of the folders.
    const std::string path = PathOf("t", "hello");
    ASSERT_TRUE(disk.MakeFolder("/b/t").ok());
    ASSERT_TRUE(disk.MakeFolder(path.substr(0, path.rfind('/'))).ok());
    auto file = *disk.Open(path, Mode::kCreate);
    ASSERT_TRUE(file->WriteAt(0, BytesOf("hello")).ok());
    ASSERT_TRUE(file->Sync().ok());
    BlobFolder folder(disk, "/b");
    if (sweeps) {
      ASSERT_TRUE(folder.Sweep([](std::string_view, const Sha256&) { return true; }).ok());
    }
    const Sha256 hash = HashOf("hello");
    PinnedBlob blob = *folder.Put("t", {.bytes = BytesOf("hello"), .known_hash = &hash});
    SeededRng rng(1);
    disk.Crash(rng, SimDisk::Keep::kNothing);
    EXPECT_EQ(*BlobFolder(disk, "/b").Read("t", hash, 5), "hello") << sweeps;
  }
}

// The power fails after each change in turn, with several outcomes: a blob whose Put was answered is complete, and the
// next start leaves exactly the used ones.
TEST_F(BlobFolderTest, SurvivesEveryCrash) {
  const std::vector<std::string> texts = {"a", std::string(5000, 'b'), std::string(100'000, 'c'), "d", "a"};
  bool reached_end = false;
  for (uint64_t n = 1; !reached_end; ++n) {
    for (uint64_t seed = 0; seed < 8; ++seed) {
      SimDisk disk(seed);
      SeededRng rng(seed * 1000 + n);
      disk.AddFolder("/b");
      disk.PowerOffAfter(n);
      std::map<Sha256, std::string> answered;
      {
        BlobFolder folder(disk, "/b");
        for (const std::string& text : texts) {
          if (auto blob = folder.Put("t", Source(text)); blob.ok()) {
            answered[blob->hash] = text;
            folder.Keep("t", blob->hash);
          }
        }
      }
      reached_end = !disk.is_off();
      disk.Crash(rng);
      BlobFolder folder(disk, "/b");
      auto is_used = [&](std::string_view, const Sha256& hash) { return answered.contains(hash); };
      ASSERT_TRUE(folder.Sweep(is_used).ok());
      for (const auto& [hash, text] : answered) {
        auto read = folder.Read("t", hash, text.size());
        ASSERT_TRUE(read.ok() && *read == text) << "change " << n << ", seed " << seed << ": " << read.status();
      }
      EXPECT_EQ(Files(disk, "/b").size(), answered.size()) << "change " << n << ", seed " << seed;
    }
  }
}

// Each operation in turn fails, in each way: a Put is only answered when its blob survives a crash, the next Put
// works, and a failed one leaves nothing that the next start does not remove.
TEST_F(BlobFolderTest, SurvivesEveryFault) {
  const std::vector<SimDisk::Fault> faults = {
      {}, {.is_short = true}, {absl::StatusCode::kResourceExhausted}, {absl::StatusCode::kResourceExhausted, true}};
  for (size_t op = 0; op < SimDisk::kOpCount; ++op) {
    for (const SimDisk::Fault& fault : faults) {
      bool reached_end = false;
      for (uint64_t n = 1; !reached_end && n < 200; ++n) {
        SimDisk disk(n);
        SeededRng rng(n);
        disk.AddFolder("/b");
        disk.FailNth(static_cast<Op>(op), n, fault);
        std::set<std::string> answered;
        {
          BlobFolder folder(disk, "/b");
          folder.SetIsUsed([](std::string_view, const Sha256&) { return false; });
          for (const std::string text : {"a", "b", "c"}) {
            auto blob = folder.Put("t", Source(text));
            if (blob.ok()) {
              answered.insert(text);
              folder.Keep("t", blob->hash);
            } else {
              // After a failed sync, or from then on.
              EXPECT_TRUE(blob.status().code() == fault.code || absl::IsDataLoss(blob.status()));
            }
          }
        }
        // A failed sync ends everything; other errors concern one Put only.
        const bool is_sync = op == static_cast<size_t>(Op::kSyncFolder) ||
                             (op == static_cast<size_t>(Op::kSync) && fault.code == absl::StatusCode::kDataLoss);
        EXPECT_TRUE(is_sync || answered.size() >= 2) << "operation " << op << ", the " << n << "th";
        reached_end = answered.size() == 3 && disk.count(static_cast<Op>(op)) < n;
        disk.Crash(rng);
        BlobFolder folder(disk, "/b");
        auto is_used = [&](std::string_view, const Sha256& hash) {
          return std::any_of(answered.begin(), answered.end(), [&](auto& text) { return HashOf(text) == hash; });
        };
        ASSERT_TRUE(folder.Sweep(is_used).ok());
        for (const std::string& text : answered) {
          EXPECT_TRUE(folder.Read("t", HashOf(text), 1).ok()) << "operation " << op << ", the " << n << "th";
        }
        EXPECT_EQ(Files(disk, "/b").size(), answered.size()) << "operation " << op << ", the " << n << "th";
      }
    }
  }
}

// Many threads put, keep, release and unpin the same few blobs; the "rows" are right at every moment, and in the end
// exactly the files of rows are there. Uses the real disk, for the kernel's view of it.
TEST_F(BlobFolderTest, ConcurrentUse) {
  std::string root = testing::TempDir() + "/hpvmd-blobs-XXXXXX";
  ASSERT_NE(mkdtemp(root.data()), nullptr);
  BlobFolder folder(RealDisk(), root);
  std::mutex mutex;
  std::multiset<Sha256> rows;
  folder.SetIsUsed([&](std::string_view, const Sha256& hash) {
    std::lock_guard lock(mutex);
    return rows.contains(hash);
  });
  std::atomic<int> lost{0};
  auto work = [&](uint64_t seed) {
    SeededRng rng(seed);
    for (int i = 0; i < 150; ++i) {
      const std::string text = "blob " + std::to_string(rng.Below(3));
      const Sha256 hash = HashOf(text);
      PinnedBlob blob = *folder.Put("t", {.bytes = BytesOf(text), .known_hash = rng.Below(2) == 0 ? &hash : nullptr});
      if (rng.Below(4) == 0) {
        continue;  // The submit was refused.
      }
      {
        std::lock_guard lock(mutex);
        rows.insert(hash);
      }
      blob.pin.reset();
      if (!folder.Read("t", hash, text.size()).ok()) {
        ++lost;
      }
      bool is_unused = false;
      {
        std::lock_guard lock(mutex);
        rows.erase(rows.find(hash));
        is_unused = !rows.contains(hash);
      }
      if (is_unused) {
        folder.Release("t", hash);
      }
    }
  };
  std::vector<std::thread> threads;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    threads.emplace_back(work, seed);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(lost, 0);
  EXPECT_TRUE(Files(RealDisk(), root).empty());
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace hpvm::server
