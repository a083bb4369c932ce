// SPDX-License-Identifier: Apache-2.0
// Data moved and memory used by memory plans: ranges, budgets, lanes, iterations.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "scheduler/residency/residency.h"
#include "scheduler/testing/plan_checker.h"
#include "scheduler/testing/random_plan.h"

namespace hpvm::scheduler {
namespace {

using graph::FlatNodeId;
using graph::FlatValueId;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr Duration kShort{4000};  // Many such launches are worth a submission.

struct Scene {
  FlatBuilder b;
  TableAccesses accesses{b.flat};
  std::vector<DeviceFacts> devices = {{.id = "cpu:0"},
                                      {.id = "gpu:0", .space = 1, .is_gpu = true, .has_copy_lanes = true}};
  std::vector<SpaceFacts> spaces;
  std::vector<Task> tasks;
  std::vector<Carry> carries;
  std::vector<uint32_t> on_host;

  // Runs the builder's last node on `device`.
  void On(DeviceIndex device, uint64_t part = 0, Duration takes = Duration(1'000'000)) {
    Task task{.node = FlatNodeId(b.flat.nodes.size() - 1), .device = device, .box = {}};
    task.box.first[0] = part;
    task.start = Duration(static_cast<int64_t>(tasks.size()) * 1'000'000);
    task.end = task.start + takes;
    tasks.push_back(task);
  }
  uint32_t LastPort() const { return static_cast<uint32_t>(b.flat.ports.size() - 1); }
  ResidencyInput input() const {
    return {.flat = b.flat,
            .devices = devices,
            .spaces = spaces,
            .tasks = tasks,
            .accesses = accesses,
            .carries = carries,
            .on_host = on_host};
  }
  // Makes a plan and checks it.
  Residency Plan() const {
    StatusOr<Residency> plan = PlanResidency(input());
    EXPECT_TRUE(plan.ok()) << plan.status();
    EXPECT_THAT(CheckPlan(input(), *plan, {.bodies = 4}), IsEmpty());
    return *std::move(plan);
  }
};

uint64_t CopiesIn(const Residency& plan, const StepRange& stage) {
  uint64_t copies = 0;
  for (uint32_t s = stage.first_segment; s < stage.first_segment + stage.segment_count; ++s) {
    for (uint32_t i = 0; i < plan.segments[s].step_count; ++i) {
      copies += plan.steps[plan.segments[s].first_step + i].kind == Step::Kind::kCopy;
    }
  }
  return copies;
}

uint64_t Zeroed(const Residency& plan) {
  uint64_t bytes = 0;
  for (const Step& step : plan.steps) {
    bytes += step.kind == Step::Kind::kZero ? step.bytes : 0;
  }
  return bytes;
}

// A chain on a GPU: one segment for uploads, one for launches, one for downloads.
TEST(ResidencyMemoryTest, GpuChainHasThreeSegments) {
  Scene s;
  FlatValueId value = s.b.Input(4 * kMiB);
  for (int i = 0; i < 50; ++i) {
    s.b.Node();
    value = s.b.InOut(value);
    s.On(1);
  }
  s.b.Output(value);
  const Residency plan = s.Plan();
  ASSERT_EQ(plan.segments.size(), 3u);
  EXPECT_EQ(plan.segments[0].lane, Lane::kUpload);
  EXPECT_EQ(plan.segments[1].lane, Lane::kCompute);
  EXPECT_EQ(plan.segments[2].lane, Lane::kDownload);
  EXPECT_EQ(plan.copies, 2u);
}

// Uploads overlap with launches: the first launch waits only for its own input.
TEST(ResidencyMemoryTest, UploadsOverlapLaunches) {
  Scene s;
  std::vector<FlatValueId> inputs;
  for (int i = 0; i < 8; ++i) {
    inputs.push_back(s.b.Input(16 * kMiB));
  }
  for (const FlatValueId input : inputs) {
    s.b.Node();
    s.b.In(input);
    s.b.Output(s.b.Out(64));
    s.On(1);
  }
  const Residency plan = s.Plan();
  uint32_t uploads = 0;
  for (const Segment& segment : plan.segments) {
    uploads += segment.lane == Lane::kUpload;
    EXPECT_TRUE(segment.lane != Lane::kUpload || segment.step_count == 1);
  }
  EXPECT_EQ(uploads, 8u);
}

// A thousand small launches on 250 small buffers, with as many copies up and down, take few submissions, because a
// submission costs more than many such launches.
TEST(ResidencyMemoryTest, SmallWorkIsFewSubmissions) {
  Scene s;
  std::vector<FlatValueId> values;
  for (int i = 0; i < 250; ++i) {
    values.push_back(s.b.Input(64));
  }
  for (int i = 0; i < 1000; ++i) {
    s.b.Node();
    values[i % 250] = s.b.InOut(values[i % 250]);
    s.On(1, 0, kShort);
  }
  for (const FlatValueId value : values) {
    s.b.Output(value);
  }
  const Residency plan = s.Plan();
  EXPECT_EQ(plan.copies, 500u);
  EXPECT_LE(plan.segments.size(), 16u);
}

// In a lane with more to do, a small value that the processor needs is worth a submission, and a small output is not.
TEST(ResidencyMemoryTest, WhatOthersNeedIsNotKeptWaiting) {
  for (const bool is_read : {true, false}) {
    Scene s;
    s.b.Node();
    const FlatValueId made = s.b.Out(64);
    s.On(1, 0, kShort);
    s.b.Node();
    FlatValueId value = s.b.Out(64);
    s.On(1, 0, kShort);
    for (int i = 0; i < 30; ++i) {
      s.b.Node();
      value = s.b.InOut(value);
      s.On(1, 0, kShort);
    }
    if (is_read) {
      s.b.Node();
      s.b.In(made);
      s.b.Output(s.b.Out(64));
      s.On(0);
    } else {
      s.b.Output(made);
    }
    s.b.Output(value);
    const Residency plan = s.Plan();
    const auto launches = std::ranges::count_if(
        plan.segments, [](const Segment& segment) { return segment.device == 1 && segment.lane == Lane::kCompute; });
    EXPECT_EQ(launches, is_read ? 2 : 1);
  }
}

// An upload of a whole value may be followed by zeros up to the next storage; that of a part may not, because the rest
// of the value is there.
TEST(ResidencyMemoryTest, RoomBehindWholeValues) {
  for (const uint64_t bytes : {uint64_t{64}, uint64_t{512}, uint64_t{1000}}) {
    Scene s;
    const FlatValueId input = s.b.Input(bytes);
    s.b.Node();
    s.b.In(input);
    s.b.Output(s.b.Out(64));
    s.On(1);
    const Residency plan = s.Plan();
    EXPECT_EQ(plan.steps[0].bytes, bytes);
    EXPECT_EQ(plan.steps[0].room, (kStorageAlignment - bytes % kStorageAlignment) % kStorageAlignment);
    for (const Step& step : plan.steps) {
      EXPECT_TRUE(step.room == 0 || step.lane == Lane::kUpload);
    }
  }
}

// Work for drivers is submitted before the submitting thread is busy with its own work.
TEST(ResidencyMemoryTest, DriversGoFirst) {
  Scene s;
  const FlatValueId input = s.b.Input(kMiB);
  s.b.Node();
  s.b.In(input);
  s.b.Output(s.b.Out(64));
  s.On(0);
  s.b.Node();
  s.b.In(input);
  s.b.Output(s.b.Out(64));
  s.On(1);
  const Residency plan = s.Plan();
  EXPECT_EQ(plan.segments[0].device, 1u);
  EXPECT_EQ(plan.segments[1].device, 1u);
}

// A launch split over both devices moves only the GPU's half up and down.
TEST(ResidencyMemoryTest, SplitMovesOnlyItsRanges) {
  Scene s;
  FlatValueId value = s.b.Input(kMiB);
  for (int i = 0; i < 3; ++i) {
    s.b.Node();
    const FlatNodeId node(s.b.flat.nodes.size() - 1);
    value = s.b.InOut(value);
    s.accesses.Set(node, 0, s.LastPort(), {.read = {0, kMiB / 4}, .written = {0, kMiB / 4}});
    s.accesses.Set(node, 1, s.LastPort(), {.read = {kMiB / 4, kMiB}, .written = {kMiB / 4, kMiB}});
    s.On(0, 0);
    s.On(1, 1);
  }
  s.b.Output(value);
  const Residency plan = s.Plan();
  EXPECT_EQ(plan.moved_bytes[1], 2 * (kMiB - kMiB / 4));
}

// A launch that writes everything needs neither zeros nor the old value; a partial writer keeps the rest, which stays
// in place.
TEST(ResidencyMemoryTest, OverwrittenBytesAreNotMoved) {
  Scene s;
  const FlatValueId input = s.b.Input(kMiB);
  s.b.Node();
  s.b.Output(s.b.InOut(input));
  s.accesses.Set(FlatNodeId(0u), 0, s.LastPort(), {.read = {}, .written = {0, 4096}, .overwrites = true});
  s.On(1);
  s.b.Node();
  s.b.Output(s.b.Out(kMiB));
  s.accesses.Set(FlatNodeId(1u), 0, s.LastPort(), {.read = {}, .written = {0, kMiB}, .overwrites = true});
  s.On(1);
  const Residency plan = s.Plan();
  EXPECT_EQ(plan.moved_bytes[1], 4096 + kMiB);
  EXPECT_EQ(Zeroed(plan), 0u);
}

// Only bytes that no launch writes are filled with zeros, on the device that needs them.
TEST(ResidencyMemoryTest, ZeroesWhatIsNotWritten) {
  Scene s;
  s.b.Node();
  const FlatValueId made = s.b.Out(kMiB);
  s.accesses.Set(FlatNodeId(0u), 0, s.LastPort(), {.read = {}, .written = {0, 4096}, .overwrites = true});
  s.On(1);
  s.b.Output(made);
  const Residency plan = s.Plan();
  EXPECT_EQ(plan.moved_bytes[1], 4096u);
  EXPECT_EQ(Zeroed(plan), kMiB - 4096);
  EXPECT_TRUE(std::none_of(plan.steps.begin(), plan.steps.end(),
                           [](const Step& step) { return step.kind == Step::Kind::kZero && step.device == 1; }));
}

// Reading a working set of four times the memory repeatedly: necessary transfers happen, nothing is written back.
TEST(ResidencyMemoryTest, ReadOnlyWorkingSetMovesTheMinimum) {
  constexpr uint64_t kRoom = 16, kBuffers = 64, kRounds = 4;
  Scene s;
  s.spaces = {{}, {.bytes_max = kRoom * kMiB + 4096, .overflow = kHostSpace, .mover = 1}};
  std::vector<FlatValueId> inputs;
  for (uint64_t i = 0; i < kBuffers; ++i) {
    inputs.push_back(s.b.Input(kMiB));
  }
  for (uint64_t round = 0; round < kRounds; ++round) {
    for (const FlatValueId input : inputs) {
      s.b.Node();
      s.b.In(input);
      s.b.Output(s.b.Out(512));
      s.accesses.Set(FlatNodeId(s.b.flat.nodes.size() - 1), 0, s.LastPort(),
                     {.read = {}, .written = {0, 512}, .overwrites = true});
      s.On(1);
    }
  }
  const Residency plan = s.Plan();
  // All buffers once; then, in each round, those that optimal replacement cannot have kept.
  const uint64_t hits = (kRounds - 1) * (kRoom - 1) * kBuffers / (kBuffers - 1);
  const uint64_t minimum = (kRounds * kBuffers - hits) * kMiB;
  EXPECT_GE(plan.moved_bytes[1], minimum);
  EXPECT_LE(plan.moved_bytes[1], minimum + minimum / 10);
  EXPECT_EQ(plan.spills, 0u);
}

// Values that fit in no memory are spilled to disk and restored.
TEST(ResidencyMemoryTest, SpillsToDisk) {
  Scene s;
  s.devices = {{.id = "cpu:0"}, {.id = "disk", .space = 1, .has_copy_lanes = true}};
  s.spaces = {{.bytes_max = 4 * kMiB, .overflow = 1, .mover = 0}, {.mover = 1}};
  std::vector<FlatValueId> made;
  for (int i = 0; i < 8; ++i) {
    s.b.Node();
    made.push_back(s.b.Out(kMiB));
    s.On(0);
  }
  for (const FlatValueId value : made) {
    s.b.Node();
    s.b.In(value);
    s.b.Output(s.b.Out(512));
    s.On(0);
  }
  const Residency plan = s.Plan();
  EXPECT_LE(plan.temporary_bytes[0], 4 * kMiB);
  // At least four values must be spilled.
  EXPECT_GE(plan.spills, 4u);
  EXPECT_LE(plan.spills, 6u);
}

// Transfers between two devices pass through host memory in pieces, so that uploads overlap with downloads.
TEST(ResidencyMemoryTest, PassesThroughTheHostInPieces) {
  Scene s;
  s.devices.push_back({.id = "gpu:1", .space = 2, .is_gpu = true, .has_copy_lanes = true});
  s.b.Node();
  const FlatValueId made = s.b.Out(64 * kMiB);
  s.On(1);
  s.b.Node();
  s.b.In(made);
  s.b.Output(s.b.Out(512));
  s.On(2);
  const Residency plan = s.Plan();
  EXPECT_EQ(plan.moved_bytes[0], 2 * 64 * kMiB + 512);
  const auto segments = [&](DeviceIndex device, Lane lane) {
    return std::count_if(plan.segments.begin(), plan.segments.end(),
                         [&](const Segment& segment) { return segment.device == device && segment.lane == lane; });
  };
  EXPECT_EQ(segments(1, Lane::kDownload), 4);
  EXPECT_EQ(segments(2, Lane::kUpload), 4);
}

// Sizes near the end of the integer range are refused quickly.
TEST(ResidencyMemoryTest, HugeBuffersAreRefused) {
  Scene s;
  s.devices.push_back({.id = "gpu:1", .space = 2, .is_gpu = true, .has_copy_lanes = true});
  constexpr uint64_t kHuge = uint64_t{INT64_MAX};
  FlatValueId value = s.b.Input(kHuge);
  for (DeviceIndex device = 0; device < 3; ++device) {
    s.b.Node();
    s.b.In(value);
    value = s.b.Out(kHuge);
    s.On(device);
  }
  s.b.Output(value);
  s.carries = {{.output = 0, .input = 0}};
  EXPECT_TRUE(absl::IsResourceExhausted(PlanResidency(s.input()).status()));
}

// Buffers that can never fit are refused, with the task and the sizes.
TEST(ResidencyMemoryTest, RefusesWhatCannotFit) {
  Scene s;
  s.spaces = {{}, {.bytes_max = 3 * kMiB, .overflow = kHostSpace, .mover = 1}};
  const FlatValueId input = s.b.Input(2 * kMiB);
  s.b.Node();
  s.b.In(input);
  s.b.Output(s.b.Out(kMiB));
  s.On(1);
  s.b.Node();
  s.b.In(input);
  s.b.Output(s.b.Out(2 * kMiB));
  s.On(1);
  uint32_t culprit = 0;
  const Status status = PlanResidency(s.input(), &culprit).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(culprit, 1u);
  EXPECT_THAT(std::string(status.message()), HasSubstr("2097152"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("3145728"));
}

// Two buffers, each computed from the other in turn, are exchanged; nothing is copied.
TEST(ResidencyMemoryTest, IterationsSwap) {
  Scene s;
  const FlatValueId state = s.b.Input(kMiB), constant = s.b.Input(kMiB);
  s.b.Node();
  s.b.In(state);
  s.b.In(constant);
  s.b.Output(s.b.Out(kMiB));
  s.On(1);
  s.carries = {{.output = 0, .input = 0}};
  const Residency plan = s.Plan();
  EXPECT_EQ(CopiesIn(plan, plan.prologue), 2u);  // The constant is also uploaded once.
  EXPECT_EQ(CopiesIn(plan, plan.body), 0u);
  EXPECT_EQ(CopiesIn(plan, plan.epilogue), 1u);
  EXPECT_EQ(plan.swaps.size(), 1u);
  EXPECT_EQ(plan.moved_bytes[1], 0u);
}

// A value that is updated in place needs no exchange either.
TEST(ResidencyMemoryTest, IterationsInPlace) {
  Scene s;
  FlatValueId state = s.b.Input(kMiB);
  for (int i = 0; i < 3; ++i) {
    s.b.Node();
    state = s.b.InOut(state);
    s.On(1);
  }
  s.b.Output(state);
  s.carries = {{.output = 0, .input = 0}};
  const Residency plan = s.Plan();
  EXPECT_EQ(CopiesIn(plan, plan.body), 0u);
  EXPECT_THAT(plan.swaps, IsEmpty());
}

// Three fields in rotation, as in wave equations: the oldest is replaced by the next one, and the current one is handed
// on as the oldest.
TEST(ResidencyMemoryTest, IterationsRotate) {
  Scene s;
  const FlatValueId present = s.b.Input(kMiB), oldest = s.b.Input(kMiB);
  s.b.Node();
  s.b.In(present);
  s.b.Output(s.b.InOut(oldest));
  s.b.Output(present);
  s.On(1);
  s.carries = {{.output = 0, .input = 0}, {.output = 1, .input = 1}};
  const Residency plan = s.Plan();
  EXPECT_EQ(CopiesIn(plan, plan.body), 0u);
  EXPECT_EQ(plan.swaps.size(), 1u);
}

// Halves of a stencil on two devices exchange only the bytes that the other one reads.
TEST(ResidencyMemoryTest, IterationsExchangeHalos) {
  Scene s;
  constexpr uint64_t kHalf = kMiB / 2, kHalo = 4096;
  const FlatValueId state = s.b.Input(kMiB);
  s.b.Node();
  s.b.In(state);
  s.accesses.Set(FlatNodeId(0u), 0, s.LastPort(), {.read = {0, kHalf + kHalo}, .written = {}});
  s.accesses.Set(FlatNodeId(0u), 1, s.LastPort(), {.read = {kHalf - kHalo, kMiB}, .written = {}});
  s.b.Output(s.b.Out(kMiB));
  s.accesses.Set(FlatNodeId(0u), 0, s.LastPort(), {.read = {}, .written = {0, kHalf}, .overwrites = true});
  s.accesses.Set(FlatNodeId(0u), 1, s.LastPort(), {.read = {}, .written = {kHalf, kMiB}, .overwrites = true});
  s.On(0, 0);
  s.On(1, 1);
  s.carries = {{.output = 0, .input = 0}};
  const Residency plan = s.Plan();
  EXPECT_EQ(plan.moved_bytes[1], 2 * kHalo);
  EXPECT_EQ(plan.swaps.size(), 2u);
}

// Only one of two carried values fits beside a launch's buffers: it stays, the other one is moved up and down.
TEST(ResidencyMemoryTest, IterationsKeepWhatFits) {
  Scene s;
  s.spaces = {{}, {.bytes_max = 10 * kMiB, .overflow = kHostSpace, .mover = 1}};
  const FlatValueId large = s.b.Input(6 * kMiB), small = s.b.Input(3 * kMiB);
  s.b.Node();
  s.b.Output(s.b.InOut(large));
  s.On(1);
  s.b.Node();
  s.b.Output(s.b.InOut(small));
  const FlatValueId scratch = s.b.Out(4 * kMiB);
  s.On(1);
  s.b.Node();
  s.b.In(scratch);
  s.b.Output(s.b.Out(512));
  s.On(1);
  s.carries = {{.output = 0, .input = 0}, {.output = 1, .input = 1}};
  const Residency plan = s.Plan();
  EXPECT_EQ(plan.moved_bytes[1], 2 * 6 * kMiB);
}

// Values that the host reads after each iteration are downloaded, and nothing else.
TEST(ResidencyMemoryTest, IterationsBringWhatTheHostReads) {
  Scene s;
  FlatValueId state = s.b.Input(kMiB);
  s.b.Node();
  state = s.b.InOut(state);
  const FlatValueId residual = s.b.Out(4);
  s.On(1);
  s.b.Output(state);
  s.b.Output(residual);
  s.carries = {{.output = 0, .input = 0}};
  s.on_host = {1};
  const Residency plan = s.Plan();
  EXPECT_EQ(plan.moved_bytes[1], 4u);
  ASSERT_EQ(plan.on_host.size(), 1u);
}

// A launch whose extent another launch decides begins a segment, after its extent has reached the host.
TEST(ResidencyMemoryTest, LateExtentsAreOnTheHost) {
  Scene s;
  s.devices[1].has_copy_lanes = false;  // All of the device's work is in one lane.
  s.b.Node();
  const FlatValueId count = s.b.Out(4);
  s.On(1);
  s.b.Node();
  s.b.In(count);
  s.b.Output(s.b.Out(kMiB));
  s.b.flat.nodes.back().extent_port[0] = 0;
  s.On(1);
  const Residency plan = s.Plan();
  ASSERT_EQ(plan.late_extents.size(), 1u);
  EXPECT_EQ(plan.late_extents[0].task, 1u);
  const auto late =
      std::find_if(plan.steps.begin(), plan.steps.end(), [](const Step& step) { return step.has_late_extent; });
  ASSERT_NE(late, plan.steps.end());
  EXPECT_TRUE(std::any_of(plan.segments.begin(), plan.segments.end(), [&](const Segment& segment) {
    return segment.first_step == late - plan.steps.begin() && segment.wait_count > 0;
  }));
}

}  // namespace
}  // namespace hpvm::scheduler
