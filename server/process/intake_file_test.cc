// SPDX-License-Identifier: Apache-2.0
#include "server/process/intake_file.h"

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "server/process/whole_file.h"

namespace hpvm::server {
namespace {

using ::testing::HasSubstr;

class IntakeFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/hpvm-intake-XXXXXX";
    folder_ = mkdtemp(name);
    path_ = folder_ + "/intake.json";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string folder_, path_;
};

TEST_F(IntakeFileTest, IsReadAsItWasWritten) {
  EXPECT_FALSE(ReadIntake(path_)->closed);
  ASSERT_TRUE(
      WriteIntake(path_, {.closed = true, .reason = "new \"disks\"", .changed_by = "uid 0", .changed_unix_ns = 7})
          .ok());
  const StatusOr<Intake> read = ReadIntake(path_);
  ASSERT_TRUE(read.ok());
  EXPECT_TRUE(read->closed);
  EXPECT_EQ(read->changed_by, "uid 0");
  EXPECT_EQ(read->changed_unix_ns, 7);
  EXPECT_EQ(read->Sentence(), "The server starts nothing now: new \"disks\".");
  EXPECT_TRUE(read->paused.empty());
  const std::map<std::string, DevicePause> paused = {{"vulkan:0", {"new \"fans\"", "uid 0", 9}}, {"cpu:0", {}}};
  ASSERT_TRUE(WriteIntake(path_, {.changed_unix_ns = 8, .paused = paused}).ok());
  EXPECT_EQ(ReadIntake(path_)->paused, paused);
  EXPECT_FALSE(ReadIntake(path_)->closed);
}

TEST_F(IntakeFileTest, DamageIsSaid) {
  for (const char* text : {"", "{", "[]", "{\"version\": 2}", "{\"version\": 1, \"closed\": 1}",
                           "{\"version\": 1, \"closed\": true, \"reason\": \"\", \"changed_by\": \"\"}"}) {
    ASSERT_TRUE(ReplaceWholeFile(path_, text).ok());
    EXPECT_EQ(ReadIntake(path_).status().code(), absl::StatusCode::kDataLoss) << text;
  }
  const std::string whole =
      R"({"version": 1, "closed": true, "reason": "", "changed_by": "", "changed_unix_ns": 1, "paused": )";
  ASSERT_TRUE(ReplaceWholeFile(path_, whole + "{}}").ok());
  EXPECT_TRUE(ReadIntake(path_)->closed);
  for (const char* paused : {"[]", "{\"cpu:0\": 1}", "{\"cpu:0\": {\"reason\": \"\", \"paused_by\": \"\"}}"}) {
    ASSERT_TRUE(ReplaceWholeFile(path_, whole + paused + "}").ok());
    EXPECT_EQ(ReadIntake(path_).status().code(), absl::StatusCode::kDataLoss) << paused;
  }
  ASSERT_TRUE(ReplaceWholeFile(path_, std::string(70'000, ' ')).ok());
  EXPECT_THAT(Message(ReadIntake(path_).status()), HasSubstr("70000 bytes; the limit is 65536"));
}

}  // namespace
}  // namespace hpvm::server
