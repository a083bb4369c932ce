// SPDX-License-Identifier: Apache-2.0
#include "client/files/input_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "base/status.h"
#include "hpvm/tensor.h"

namespace hpvm {
namespace {

using ::testing::HasSubstr;

// Creates base/secret, and base/documents with a module, a folder of modules, and paths that leave the folder.
class InputFileTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/hpvm-input-XXXXXX";
    base_ = mkdtemp(name);
    folder_ = base_ + "/documents";
    ASSERT_TRUE(std::filesystem::create_directories(folder_ + "/modules"));
    Write(base_ + "/secret", "secret");
    Write(folder_ + "/k.wasm", "beside");
    Write(folder_ + "/modules/k.wasm", "below");
    ASSERT_EQ(symlink("../secret", (folder_ + "/link").c_str()), 0);
    ASSERT_EQ(symlink("..", (folder_ + "/up").c_str()), 0);
    ASSERT_EQ(symlink("modules/k.wasm", (folder_ + "/inside").c_str()), 0);
    ASSERT_EQ(mkfifo((folder_ + "/pipe").c_str(), 0600), 0);
  }
  void TearDown() override { std::filesystem::remove_all(base_); }

  static void Write(const std::string& file, const std::string& text) { std::ofstream(file) << text; }
  static std::string Text(const StatusOr<std::vector<uint8_t>>& bytes) {
    return bytes.ok() ? std::string(bytes->begin(), bytes->end()) : Message(bytes.status());
  }
  static absl::StatusCode Code(const StatusOr<std::vector<uint8_t>>& bytes) { return bytes.status().code(); }

  std::string base_, folder_;
};

TEST_F(InputFileTest, ReadsBelowAFolderOnly) {
  for (const WayBelow way : {WayBelow::kAny, WayBelow::kWalk}) {
    SCOPED_TRACE(way == WayBelow::kAny ? "openat2" : "walk");
    const auto read = [&](const std::string& file) { return ReadFileBelow(folder_, file, 100, way); };
    EXPECT_EQ(Text(read("k.wasm")), "beside");
    EXPECT_EQ(Text(read("./modules//k.wasm")), "below");
    EXPECT_EQ(Text(read("modules/../k.wasm")), "beside");
    for (const char* file : {"../secret", "modules/../../secret", "link", "up/secret", "/etc/hostname", "/dev/zero"}) {
      EXPECT_EQ(Code(read(file)), absl::StatusCode::kPermissionDenied) << file << ": " << Text(read(file));
    }
    EXPECT_EQ(Code(read("absent")), absl::StatusCode::kNotFound);
    EXPECT_EQ(Code(read("k.wasm/x")), absl::StatusCode::kNotFound);
    EXPECT_THAT(Text(read("modules")), HasSubstr("is a folder; only regular files are read"));
    EXPECT_THAT(Text(read("pipe")), HasSubstr("is a named pipe"));
    EXPECT_EQ(Text(ReadFileBelow(folder_, "k.wasm", 6, way)), "beside");
    EXPECT_THAT(Text(ReadFileBelow(folder_, "k.wasm", 5, way)), HasSubstr("has 6 bytes; at most 5 are read"));
  }
  EXPECT_EQ(Text(ReadFileBelow(folder_, "inside", 100)), "below");
  EXPECT_EQ(Code(ReadFileBelow(folder_, "inside", 100, WayBelow::kWalk)), absl::StatusCode::kPermissionDenied);
}

// A file on the command line may lie anywhere, but must be a finite file.
TEST_F(InputFileTest, ReadsRegularFilesOnly) {
  EXPECT_EQ(Text(ReadInputFile(folder_ + "/link", 100)), "secret");
  EXPECT_THAT(Text(ReadInputFile("/dev/zero", 100)), HasSubstr("\"/dev/zero\" is a device"));
  EXPECT_THAT(Text(ReadInputFile(folder_ + "/pipe", 100)), HasSubstr("is a named pipe"));
  EXPECT_THAT(Text(ReadInputFile(folder_, 100)), HasSubstr("is a folder"));
  EXPECT_EQ(Code(ReadInputFile(base_ + "/none", 100)), absl::StatusCode::kNotFound);
  EXPECT_EQ(Code(ReadInputFile("/proc/self/mem", 100)), absl::StatusCode::kInvalidArgument);
}

// Pipes made by a shell's `<(...)`.
TEST_F(InputFileTest, ReadsPipesThatWereGiven) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(write(ends[1], "given", 5), 5);
  close(ends[1]);
  EXPECT_EQ(Text(ReadInputFile("/dev/fd/" + std::to_string(ends[0]), 100)), "given");
  close(ends[0]);
}

// Tensor files are read with the same care, whatever their format.
TEST_F(InputFileTest, TensorsAreOfRegularFiles) {
  for (const char* name : {"/pipe.npy", "/pipe.npz", "/pipe.png", "/pipe.raw"}) {
    ASSERT_EQ(mkfifo((folder_ + name).c_str(), 0600), 0);
    const StatusOr<Tensor> tensor = ReadTensorFile(folder_ + name, std::nullopt);
    EXPECT_THAT(Message(tensor.status()), HasSubstr("is a named pipe")) << name;
  }
  const Status written = WriteTensorFile(folder_ + "/pipe.npz:x", Tensor{ElementType::kU8, {1}, {1}});
  EXPECT_THAT(Message(written), HasSubstr("is not a regular file"));
  ASSERT_EQ(symlink("/dev/zero", (folder_ + "/zero.npy").c_str()), 0);
  EXPECT_THAT(Message(ReadTensorFile(folder_ + "/zero.npy", std::nullopt).status()), HasSubstr("is a device"));
}

// A sparse file that claims more bytes than any tensor may have.
TEST_F(InputFileTest, SizesAreLookedAtFirst) {
  const std::string file = folder_ + "/sparse.npy";
  Write(file, "x");
  ASSERT_EQ(truncate(file.c_str(), off_t{1} << 40), 0);
  const StatusOr<Tensor> tensor = ReadTensorFile(file, std::nullopt);
  EXPECT_THAT(Message(tensor.status()), HasSubstr("has 1099511627776 bytes; at most 68719476736 are read"));
}

}  // namespace
}  // namespace hpvm
