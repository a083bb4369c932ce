// SPDX-License-Identifier: Apache-2.0
#include "base/io/cache_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace hpvm {
namespace {

namespace fs = std::filesystem;

class CacheFolderTest : public ::testing::Test {
 protected:
  CacheFolderTest() : folder_(fs::temp_directory_path() / ("cache_folder_test." + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~CacheFolderTest() override { fs::remove_all(folder_); }

  CacheFolder Open(const std::string& build, uint64_t bytes_max = 1 << 20, const std::string& suffix = ".a") const {
    return CacheFolder({.folder = folder_,
                        .bytes_max = bytes_max,
                        .build = HashOf(build),
                        .suffixes = {suffix},
                        .partial = ".partial" + suffix,
                        .program = "test"});
  }
  size_t Count() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  static std::vector<uint8_t> Bytes(size_t count) { return std::vector<uint8_t>(count, 7); }

  const fs::path folder_;
};

// A build reads what it wrote, also after it was opened again; another one reads nothing of it, and removes it.
TEST_F(CacheFolderTest, OtherBuildsAreNotReadAndGo) {
  Open("one").Write(HashOf("x"), ".a", Bytes(10));
  EXPECT_EQ(Open("one").Read(HashOf("x"), ".a", 10), Bytes(10));
  CacheFolder two = Open("two");
  EXPECT_EQ(Count(), 0u);
  EXPECT_EQ(two.Read(HashOf("x"), ".a", 10), std::nullopt);
  // One that is still there, because it runs, writes again: it goes with the next file that is written.
  Open("one").Write(HashOf("x"), ".a", Bytes(10));
  EXPECT_EQ(two.Read(HashOf("x"), ".a", 10), std::nullopt);
  two.Write(HashOf("y"), ".a", Bytes(20));
  EXPECT_EQ(Count(), 1u);
  EXPECT_EQ(two.Read(HashOf("y"), ".a", 20), Bytes(20));
}

// Files as they were called before names told the build go as well; what another user has in the folder stays.
TEST_F(CacheFolderTest, FilesWithoutABuildGo) {
  std::ofstream(folder_ / (ToHex(HashOf("x")) + ".a")) << "old";
  std::ofstream(folder_ / "other.b") << "stays";
  Open("one");
  EXPECT_EQ(Count(), 1u);
  EXPECT_TRUE(fs::exists(folder_ / "other.b"));
}

// However many there are, opening the folder takes bounded time; the rest goes later.
TEST_F(CacheFolderTest, PurgesSoManyAtATime) {
  for (size_t i = 0; i < CacheFolder::kPurgedMax + 5; ++i) {
    std::ofstream(folder_ / (std::to_string(i) + ".a")) << i;
  }
  CacheFolder folder = Open("one");
  EXPECT_EQ(Count(), 5u);
  folder.Write(HashOf("x"), ".a", Bytes(1));
  EXPECT_EQ(Count(), 1u);
}

// The bound holds for what is kept, and what was used last stays.
TEST_F(CacheFolderTest, IsBounded) {
  CacheFolder folder = Open("one", 250);
  folder.Write(HashOf("a"), ".a", Bytes(100));
  folder.Write(HashOf("b"), ".a", Bytes(100));
  // The clock of files is coarse: both were used long ago, and then one again.
  for (const auto& file : fs::directory_iterator(folder_)) {
    fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::hours(1));
  }
  ASSERT_TRUE(folder.Read(HashOf("a"), ".a", 100).has_value());
  folder.Write(HashOf("c"), ".a", Bytes(100));
  EXPECT_TRUE(folder.Read(HashOf("a"), ".a", 100).has_value());
  EXPECT_FALSE(folder.Read(HashOf("b"), ".a", 100).has_value());
  folder.Write(HashOf("d"), ".a", Bytes(251));
  EXPECT_FALSE(folder.Read(HashOf("d"), ".a", 1000).has_value());
  EXPECT_EQ(folder.Read(HashOf("c"), ".a", 99), Bytes(0));
}

}  // namespace
}  // namespace hpvm
