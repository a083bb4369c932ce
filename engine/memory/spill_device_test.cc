// SPDX-License-Identifier: Apache-2.0
// Tests the spill file: ranges, zeros, full disks, copies according to the device contract.
#include "engine/memory/spill_device.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/memory/host_memory.h"
#include "engine/memory/spill_file.h"

namespace hpvm::engine {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr uint64_t kBlock = 4096;

int NewFile() {
  const int fd = memfd_create("spill", MFD_CLOEXEC);
  EXPECT_GE(fd, 0);
  return fd;
}

// Ranges do not overlap, are reused when released, then read as zero again, and their disk space is freed.
TEST(SpillFileTest, RangesComeBackClean) {
  const int fd = NewFile();
  SpillFile file(fd, 4 * kBlock);
  std::vector<uint8_t> ones(2 * kBlock, 1), read(2 * kBlock, 9);
  const StatusOr<uint64_t> a = file.Take(2 * kBlock), b = file.Take(kBlock + 1);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_TRUE(*a + 2 * kBlock <= *b || *b + 2 * kBlock <= *a);
  ASSERT_TRUE(file.Write(*a, ones.data(), ones.size(), nullptr).ok());
  ASSERT_TRUE(file.Read(*b, read.data(), kBlock, nullptr).ok());
  EXPECT_THAT(std::vector<uint8_t>(read.begin(), read.begin() + kBlock), Each(0));
  const StatusOr<uint64_t> none = file.Take(1);
  EXPECT_TRUE(absl::IsResourceExhausted(none.status()));
  EXPECT_THAT(Message(none.status()), AllOf(HasSubstr("at most 16384 bytes, 0 of them free"), HasSubstr("1 bytes")));
  file.GiveBack(*a, 2 * kBlock);
  struct stat facts {};
  ASSERT_EQ(fstat(fd, &facts), 0);
  EXPECT_EQ(facts.st_blocks, 0);
  const StatusOr<uint64_t> again = file.Take(2 * kBlock);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*again, *a);
  ASSERT_TRUE(file.Read(*again, read.data(), read.size(), nullptr).ok());
  EXPECT_THAT(read, Each(0));
  // Adjacent free ranges are merged.
  file.GiveBack(*again, 2 * kBlock);
  file.GiveBack(*b, kBlock + 1);
  EXPECT_TRUE(file.Take(4 * kBlock).ok());
}

// A full disk is distinguished from a failing one.
TEST(SpillFileTest, FullDisksAreSaid) {
  const int fd = open("/dev/full", O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  SpillFile file(fd, 4 * kBlock);
  const uint8_t byte = 1;
  const Status full = file.Write(kBlock, &byte, 1, nullptr);
  EXPECT_TRUE(absl::IsResourceExhausted(full));
  EXPECT_THAT(Message(full), AllOf(HasSubstr("spill file cannot be written at byte 4096"), HasSubstr("No space left")));
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  close(ends[1]);
  SpillFile broken(ends[0], kBlock);
  EXPECT_TRUE(absl::IsUnavailable(broken.Write(0, &byte, 1, nullptr)));
  const std::atomic<uint32_t> stop{1};
  EXPECT_TRUE(absl::IsCancelled(file.Write(0, &byte, 1, &stop)));
}

// Submissions of the device copy both ways at offsets, wait, and poison their timelines on failure.
TEST(SpillDeviceTest, CopiesInOrder) {
  Hub hub;
  const int fd = NewFile();
  StatusOr<std::unique_ptr<Device>> device = CreateSpillDevice(hub, fd, 16 * kBlock);
  ASSERT_TRUE(device.ok());
  close(fd);  // The device has its own descriptor.
  std::vector<uint8_t> data(kBlock), back(kBlock);
  for (size_t i = 0; i < data.size(); ++i) {
    data[i] = static_cast<uint8_t>(i * 7);
  }
  const auto stored = (*device)->Allocate({.bytes = 2 * kBlock});
  ASSERT_TRUE(stored.ok());
  const auto source = MakeHostView(data.data(), data.size()), target = MakeHostView(back.data(), back.size());
  Buffer* table[] = {stored->get(), source.get(), target.get()};
  CommandList out, in;
  out.commands.push_back(CopyCommand{.source = 1, .target = 0, .target_offset = 100, .bytes = kBlock});
  in.commands.push_back(CopyCommand{.source = 0, .target = 2, .source_offset = 104, .target_offset = 4, .bytes = 96});
  const auto first = (*device)->CreateTimeline(), second = (*device)->CreateTimeline();
  const TimelinePoint begin{first.get(), 1}, stored_at{first.get(), 2}, done{second.get(), 1};
  // The reader is submitted first: lanes do not block each other.
  ASSERT_TRUE((*device)
                  ->Submit({.waits = {&stored_at, 1},
                            .lane = Lane::kDownload,
                            .commands = &in,
                            .buffers = table,
                            .signals = {&done, 1}})
                  .ok());
  ASSERT_TRUE((*device)
                  ->Submit({.waits = {&begin, 1},
                            .lane = Lane::kUpload,
                            .commands = &out,
                            .buffers = table,
                            .signals = {&stored_at, 1}})
                  .ok());
  first->Signal(1);
  ASSERT_TRUE(second->Wait(1, kNever).ok());
  EXPECT_EQ(std::vector<uint8_t>(back.begin() + 4, back.begin() + 100),
            std::vector<uint8_t>(data.begin() + 4, data.begin() + 100));
  EXPECT_EQ(back[0], 0);
  EXPECT_EQ(back[100], 0);
  const TimelinePoint never{first.get(), 9}, after{second.get(), 2};
  ASSERT_TRUE(
      (*device)->Submit({.waits = {&never, 1}, .commands = &out, .buffers = table, .signals = {&after, 1}}).ok());
  first->Fail(Aborted("Stop."));
  EXPECT_TRUE(absl::IsAborted(second->Wait(2, kNever)));
}

// When the queue's timeline fails, no submission after the failed copy remains: the run then drops its plan.
TEST(SpillDeviceTest, AFailedTimelineLeavesNothingBehind) {
  Hub hub;
  const int fd = NewFile();
  const StatusOr<std::unique_ptr<Device>> device = CreateSpillDevice(hub, fd, kBlock);
  ASSERT_TRUE(device.ok());
  close(fd);
  const CommandList nothing;
  const auto cause = std::make_unique<Timeline>(hub), awaited = std::make_unique<Timeline>(hub),
             apart = std::make_unique<Timeline>(hub);
  const auto queue = std::make_unique<Timeline>(hub);
  const TimelinePoint failing{cause.get(), 1}, pending{awaited.get(), 1}, first{queue.get(), 1};
  const TimelinePoint second[] = {{apart.get(), 1}, {queue.get(), 2}};
  ASSERT_TRUE((*device)->Submit({.waits = {&failing, 1}, .commands = &nothing, .signals = {&first, 1}}).ok());
  ASSERT_TRUE((*device)->Submit({.waits = {&pending, 1}, .commands = &nothing, .signals = second}).ok());
  cause->Fail(Aborted("Stop."));
  EXPECT_TRUE(absl::IsAborted(queue->Wait(2, kNever)));
  EXPECT_TRUE(absl::IsAborted(apart->Wait(1, RealClock().Now() + std::chrono::seconds(10))));
  awaited->Signal(1);  // If it remained, the device's destructor would wait for it.
}

}  // namespace
}  // namespace hpvm::engine
