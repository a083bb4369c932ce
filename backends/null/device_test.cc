// SPDX-License-Identifier: Apache-2.0
#include "backends/null/device.h"

#include "gtest/gtest.h"

namespace hpvm {
namespace {

// The n-th call of a kind fails, and no other call.
TEST(NullDeviceTest, InjectedFailures) {
  Hub hub;
  NullOptions options;
  options.failures = {{NullCall::kAllocate, 1, ResourceExhausted("Injected.")},
                      {NullCall::kSubmit, 2, Unavailable("Injected.")},
                      {NullCall::kCommand, 3, Internal("Injected.")}};
  const std::unique_ptr<Device> device = CreateNullDevice(hub, options);
  BufferSpec spec;
  spec.bytes = 16;
  std::unique_ptr<Buffer> buffer = *device->Allocate(spec);
  EXPECT_EQ(device->Allocate(spec).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(device->Allocate(spec).ok());

  CommandList commands;
  commands.commands = {FillCommand{0, 0, 16, 1}, FillCommand{0, 0, 16, 2}};
  Buffer* buffers[] = {buffer.get()};
  std::unique_ptr<Timeline> timeline = device->CreateTimeline();
  Submission submission;
  submission.commands = &commands;
  submission.buffers = buffers;
  for (uint64_t i = 0; i < 2; ++i) {
    const TimelinePoint signal{timeline.get(), i + 1};
    submission.signals = {&signal, 1};
    EXPECT_TRUE(device->Submit(submission).ok());
  }
  EXPECT_TRUE(timeline->Wait(1, Time::zero()).ok());
  EXPECT_EQ(timeline->Wait(2, Time::zero()).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(device->Submit(submission).code(), absl::StatusCode::kUnavailable);
}

// A destroyed device fails the submissions that it still holds, so that no waiter blocks for ever.
TEST(NullDeviceTest, ClosingFailsDeferredSubmissions) {
  Hub hub;
  const std::unique_ptr<Timeline> never = std::make_unique<Timeline>(hub);
  const std::unique_ptr<Timeline> done = std::make_unique<Timeline>(hub);
  const TimelinePoint wait{never.get(), 1}, signal{done.get(), 1};
  {
    const std::unique_ptr<Device> device = CreateNullDevice(hub);
    Submission submission;
    submission.waits = {&wait, 1};
    submission.signals = {&signal, 1};
    EXPECT_TRUE(device->Submit(submission).ok());
    EXPECT_EQ(done->Wait(1, Time::zero()).code(), absl::StatusCode::kDeadlineExceeded);
  }
  EXPECT_EQ(done->Wait(1, Time::zero()).code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace hpvm
