// SPDX-License-Identifier: Apache-2.0
#include "base/io/disk.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace hpvm {
namespace {

using Code = absl::StatusCode;
using Mode = Disk::Mode;

std::vector<uint8_t> Bytes(std::string_view text) { return {text.begin(), text.end()}; }

class RealDiskTest : public testing::Test {
 protected:
  RealDiskTest() {
    std::string pattern = testing::TempDir() + "/hpvmd-disk-XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~RealDiskTest() override { std::filesystem::remove_all(folder_); }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  Disk& disk_ = RealDisk();
  std::string folder_;
};

// Written data is read back; a read past the end is short, a write past the end leaves zeros between.
TEST_F(RealDiskTest, WritesAndReads) {
  auto file = *disk_.Open(Path("a"), Mode::kCreate);
  ASSERT_TRUE(file->WriteAt(0, Bytes("hello")).ok());
  ASSERT_TRUE(file->WriteAt(8, Bytes("x")).ok());
  EXPECT_EQ(*file->Size(), 9u);
  std::vector<uint8_t> into(20, 7);
  ASSERT_EQ(*file->ReadAt(3, into), 6u);
  EXPECT_EQ(std::vector<uint8_t>(into.begin(), into.begin() + 6), (std::vector<uint8_t>{'l', 'o', 0, 0, 0, 'x'}));
  EXPECT_EQ(*file->ReadAt(9, into), 0u);
  EXPECT_TRUE(file->Sync().ok());
  ASSERT_TRUE(file->Truncate(2).ok());
  EXPECT_EQ(*file->Size(), 2u);
  EXPECT_TRUE(disk_.SyncFolder(folder_).ok());
}

// Only the owner has access, whatever the daemon's umask is.
TEST_F(RealDiskTest, OnlyTheOwnerMayLook) {
  ASSERT_TRUE(disk_.Open(Path("a"), Mode::kOpenOrCreate).ok());
  ASSERT_TRUE(disk_.MakeFolder(Path("b")).ok());
  struct stat status;
  ASSERT_EQ(stat(Path("a").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  ASSERT_EQ(stat(Path("b").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
}

// Descriptors do not leak into programs that the daemon starts.
TEST_F(RealDiskTest, ClosesOnExec) {
  auto file = *disk_.Open(Path("a"), Mode::kCreate);
  EXPECT_NE(fcntl(file->fd(), F_GETFD) & FD_CLOEXEC, 0);
}

// Every failure has the code that the header promises.
TEST_F(RealDiskTest, FailuresHaveTheirCodes) {
  ASSERT_TRUE(disk_.Open(Path("file"), Mode::kCreate).ok());
  ASSERT_TRUE(disk_.MakeFolder(Path("folder")).ok());
  ASSERT_EQ(symlink("file", Path("link").c_str()), 0);
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  auto file = *disk_.Open(Path("file"), Mode::kReadWrite);
  struct Case {
    const char* name;
    Code got;
    Code want;
  } const kCases[] = {
      {"OpenMissing", disk_.Open(Path("none"), Mode::kReadWrite).status().code(), Code::kNotFound},
      {"OpenBelowAFile", disk_.Open(Path("file/x"), Mode::kRead).status().code(), Code::kNotFound},
      {"CreateTwice", disk_.Open(Path("file"), Mode::kCreate).status().code(), Code::kAlreadyExists},
      {"OpenLink", disk_.Open(Path("link"), Mode::kRead).status().code(), Code::kPermissionDenied},
      {"CreateThroughLink", disk_.Open(Path("link"), Mode::kOpenOrCreate).status().code(), Code::kPermissionDenied},
      {"OpenPipe", disk_.Open(Path("pipe"), Mode::kRead).status().code(), Code::kPermissionDenied},
      {"OpenFolder", disk_.Open(Path("folder"), Mode::kRead).status().code(), Code::kPermissionDenied},
      {"RenameMissing", disk_.Rename(Path("none"), Path("x")).code(), Code::kNotFound},
      {"RemoveMissing", disk_.Remove(Path("none")).code(), Code::kNotFound},
      {"FolderIsThere", disk_.MakeFolder(Path("folder")).code(), Code::kOk},
      {"FolderIsAFile", disk_.MakeFolder(Path("file")).code(), Code::kAlreadyExists},
      {"FolderIsALink", disk_.MakeFolder(Path("link")).code(), Code::kAlreadyExists},
      {"FolderWithoutParent", disk_.MakeFolder(Path("none/x")).code(), Code::kNotFound},
      {"SyncMissing", disk_.SyncFolder(Path("none")).code(), Code::kNotFound},
      {"ListMissing", disk_.List(Path("none")).status().code(), Code::kNotFound},
      {"ListFile", disk_.List(Path("file")).status().code(), Code::kNotFound},
      {"WriteBeyondAll", file->WriteAt(UINT64_MAX - 1, Bytes("abc")).code(), Code::kInvalidArgument},
      {"TruncateBeyondAll", file->Truncate(UINT64_MAX).code(), Code::kInvalidArgument},
  };
  for (const Case& c : kCases) {
    EXPECT_EQ(c.got, c.want) << c.name;
  }
  EXPECT_EQ(Message(disk_.Remove(Path("none"))),
            "Removing \"" + Path("none") + "\" failed: No such file or directory.");
}

// A partial write by the kernel is continued, and a later failure is reported: never OK for half the bytes.
TEST_F(RealDiskTest, ShortWriteIsNoSuccess) {
  auto file = *disk_.Open(Path("a"), Mode::kCreate);
  signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit limit = before;
  limit.rlim_cur = 10'000;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  Status written = file->WriteAt(0, std::vector<uint8_t>(20'000, 1));
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, SIG_DFL);
  EXPECT_EQ(written.code(), Code::kDataLoss);
  EXPECT_EQ(*file->Size(), 10'000u);
}

// Running out of descriptors is not reported as data loss.
TEST_F(RealDiskTest, NoDescriptorLeft) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit limit = before;
  limit.rlim_cur = 3;
  Disk& disk = disk_;
  const std::string path = Path("a");
  // Called once before, because sanitizers need a descriptor the first time they see something.
  EXPECT_EQ(disk.Open(path, Mode::kRead).status().code(), Code::kNotFound);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  Status opened = disk.Open(path, Mode::kCreate).status();
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(opened.code(), Code::kResourceExhausted);
}

// A rename replaces its target; a listing tells files, their sizes, and folders.
TEST_F(RealDiskTest, RenamesAndLists) {
  auto a = *disk_.Open(Path("a"), Mode::kCreate);
  ASSERT_TRUE(a->WriteAt(0, Bytes("abc")).ok());
  ASSERT_TRUE(disk_.Open(Path("b"), Mode::kCreate).ok());
  ASSERT_TRUE(disk_.MakeFolder(Path("c")).ok());
  ASSERT_TRUE(disk_.Rename(Path("a"), Path("b")).ok());
  auto entries = *disk_.List(folder_);
  std::sort(entries.begin(), entries.end(), [](auto& x, auto& y) { return x.name < y.name; });
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].name, "b");
  EXPECT_EQ(entries[0].size_bytes, 3u);
  EXPECT_FALSE(entries[0].is_folder);
  EXPECT_EQ(entries[1].name, "c");
  EXPECT_TRUE(entries[1].is_folder);
  EXPECT_TRUE(disk_.Remove(Path("b")).ok());
  EXPECT_EQ(disk_.List(folder_)->size(), 1u);
}

}  // namespace
}  // namespace hpvm
