// SPDX-License-Identifier: Apache-2.0
#include "base/io/cache_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
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
  static void Write(CacheFolder& folder, const std::string& name, size_t count) {
    folder.Write(HashOf(name), ".a", kKey, Bytes(count));
  }
  static std::optional<std::vector<uint8_t>> Read(CacheFolder& folder, const std::string& name, uint64_t bytes_max) {
    return folder.Read(HashOf(name), ".a", kKey, bytes_max);
  }
  size_t Count() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  static std::vector<uint8_t> Bytes(size_t count) { return std::vector<uint8_t>(count, 7); }

  static constexpr std::array<uint8_t, 32> kKey = {1, 2, 3};
  static constexpr size_t kTag = 32;
  const fs::path folder_;
};

// A build reads what it wrote, also after reopening; another build reads none of it and removes it.
TEST_F(CacheFolderTest, OtherBuildsAreNotReadAndGo) {
  CacheFolder one = Open("one");
  Write(one, "x", 10);
  one = Open("one");
  EXPECT_EQ(Read(one, "x", 10), Bytes(10));
  CacheFolder two = Open("two");
  EXPECT_EQ(Count(), 0u);
  EXPECT_EQ(Read(two, "x", 10), std::nullopt);
  // A build that still runs writes again: its file goes with the next file that is written.
  one = Open("one");
  Write(one, "x", 10);
  EXPECT_EQ(Read(two, "x", 10), std::nullopt);
  Write(two, "y", 20);
  EXPECT_EQ(Count(), 1u);
  EXPECT_EQ(Read(two, "y", 20), Bytes(20));
}

// Files with names from before builds were recorded are removed as well; files of other users in the folder stay.
TEST_F(CacheFolderTest, FilesWithoutABuildGo) {
  std::ofstream(folder_ / (ToHex(HashOf("x")) + ".a")) << "old";
  std::ofstream(folder_ / "other.b") << "stays";
  Open("one");
  EXPECT_EQ(Count(), 1u);
  EXPECT_TRUE(fs::exists(folder_ / "other.b"));
}

// Opening the folder takes bounded time however many files there are; the rest is removed later.
TEST_F(CacheFolderTest, PurgesSoManyAtATime) {
  for (size_t i = 0; i < CacheFolder::kPurgedMax + 5; ++i) {
    std::ofstream(folder_ / (std::to_string(i) + ".a")) << i;
  }
  CacheFolder folder = Open("one");
  EXPECT_EQ(Count(), 5u);
  Write(folder, "x", 1);
  EXPECT_EQ(Count(), 1u);
}

// The size bound holds, and the most recently used files stay.
TEST_F(CacheFolderTest, IsBounded) {
  CacheFolder folder = Open("one", 250 + 2 * kTag);
  Write(folder, "a", 100);
  Write(folder, "b", 100);
  // File times are coarse: both were used long ago, and then one again.
  for (const auto& file : fs::directory_iterator(folder_)) {
    fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::hours(1));
  }
  ASSERT_TRUE(Read(folder, "a", 100).has_value());
  Write(folder, "c", 100);
  EXPECT_TRUE(Read(folder, "a", 100).has_value());
  EXPECT_FALSE(Read(folder, "b", 100).has_value());
  Write(folder, "d", 251 + kTag);
  EXPECT_FALSE(Read(folder, "d", 1000).has_value());
  EXPECT_EQ(Read(folder, "c", 99), std::nullopt);
  EXPECT_EQ(Count(), 1u) << "What is longer than it may be goes.";
}

// The cache neither serves nor keeps entries that were tagged with another key, changed, truncated or moved.
TEST_F(CacheFolderTest, OnlyWhatWasTaggedIsServed) {
  const auto only_file = [&] { return fs::directory_iterator(folder_)->path(); };
  const auto change = [](const fs::path& file, std::streamoff at) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(at);
    const int before = stream.get();
    stream.seekp(at);
    stream.put(static_cast<char>(before ^ 1));
  };
  CacheFolder folder({.folder = folder_,
                      .bytes_max = 1 << 20,
                      .build = HashOf("one"),
                      .suffixes = {".a", ".b"},
                      .partial = ".partial",
                      .program = "test"});
  const std::array<uint8_t, 32> other_key = {1, 2, 4};
  for (const std::streamoff at : {0, 31, 32, 41}) {
    Write(folder, "x", 10);
    change(only_file(), at);
    EXPECT_EQ(Read(folder, "x", 10), std::nullopt) << at;
    EXPECT_EQ(Count(), 0u);
  }
  for (const uintmax_t length : {0, 5, 31, 32, 41}) {
    Write(folder, "x", 10);
    fs::resize_file(only_file(), length);
    EXPECT_EQ(Read(folder, "x", 10), std::nullopt) << length;
    EXPECT_EQ(Count(), 0u);
  }
  Write(folder, "x", 10);
  EXPECT_EQ(folder.Read(HashOf("x"), ".a", other_key, 10), std::nullopt);
  EXPECT_EQ(Count(), 0u);
  // Under another name, and with another kind.
  Write(folder, "x", 10);
  const fs::path file = only_file();
  std::string name = file.filename();
  name.replace(name.find(ToHex(HashOf("x"))), 64, ToHex(HashOf("y")));
  fs::copy_file(file, folder_ / name);
  EXPECT_EQ(Read(folder, "y", 10), std::nullopt);
  fs::copy_file(file, fs::path(file).replace_extension(".b"));
  EXPECT_EQ(folder.Read(HashOf("x"), ".b", kKey, 10), std::nullopt);
  EXPECT_EQ(Read(folder, "x", 10), Bytes(10));
  EXPECT_EQ(Count(), 1u);
  // An empty file is a valid entry.
  Write(folder, "empty", 0);
  EXPECT_EQ(Read(folder, "empty", 0), Bytes(0));
}

}  // namespace
}  // namespace hpvm
