// SPDX-License-Identifier: Apache-2.0
#include "scheduler/residency/residency.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "scheduler/testing/plan_checker.h"
#include "scheduler/testing/random_plan.h"

namespace hpvm::scheduler {
namespace {

using graph::FlatGraph;
using graph::FlatNodeId;
using graph::FlatValueId;
using ::testing::IsEmpty;

const std::vector<DeviceFacts> kOneCpu = {{.id = "cpu:0"}};

// Makes a plan and checks it.
Residency Plan(const FlatGraph& flat, const std::vector<DeviceFacts>& devices,
               const std::vector<DeviceIndex>& device_of) {
  std::vector<Task> tasks;
  for (size_t node = 0; node < device_of.size(); ++node) {
    tasks.push_back({.node = FlatNodeId(node), .device = device_of[node], .box = {}});
  }
  const WholeBuffers accesses(flat);
  const ResidencyInput input{.flat = flat, .devices = devices, .spaces = {}, .tasks = tasks, .accesses = accesses};
  StatusOr<Residency> plan = PlanResidency(input);
  EXPECT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(CheckPlan(input, *plan), IsEmpty());
  return *std::move(plan);
}

// A chain of in-place updates copies its input once, directly into the output's memory, and needs no temporary.
TEST(ResidencyTest, ChainWorksInTheOutput) {
  FlatBuilder b;
  FlatValueId value = b.Input(4096);
  for (int i = 0; i < 5; ++i) {
    b.Node();
    value = b.InOut(value);
  }
  b.Output(value);
  const Residency plan = Plan(b.flat, kOneCpu, std::vector<DeviceIndex>(5, 0));
  EXPECT_EQ(plan.copies, 1u);
  EXPECT_EQ(plan.in_place, 4u);
  EXPECT_EQ(plan.temporary_bytes[0], 0u);
  EXPECT_EQ(plan.segments.size(), 1u);
}

// Fan-out to two writers: one gets a copy, the last works in place.
TEST(ResidencyTest, LastOfSeveralWritersNeedsNoCopy) {
  FlatBuilder b;
  b.Node();
  const FlatValueId made = b.Out(64);
  b.Node();
  b.Output(b.InOut(made));
  b.Node();
  b.Output(b.InOut(made));
  const Residency plan = Plan(b.flat, kOneCpu, {0, 0, 0});
  EXPECT_EQ(plan.copies, 1u);
  EXPECT_EQ(plan.in_place, 1u);
}

// A chain of `out` nodes of any length needs two temporaries.
TEST(ResidencyTest, ReusesMemoryAfterTheLastReader) {
  FlatBuilder b;
  FlatValueId value = b.Input(1000);
  for (int i = 0; i < 100; ++i) {
    b.Node();
    b.In(value);
    value = b.Out(1000);
  }
  b.Output(value);
  const Residency plan = Plan(b.flat, kOneCpu, std::vector<DeviceIndex>(100, 0));
  EXPECT_EQ(plan.temporary_bytes[0], 2u * 1024);
  EXPECT_EQ(plan.copies, 0u);
}

// A pass-through and one value for two outputs are copied; each output has its own memory.
TEST(ResidencyTest, CopiesWhatHasNoMemoryOfItsOwn) {
  FlatBuilder b;
  const FlatValueId input = b.Input(64);
  b.Node();
  b.In(input);
  const FlatValueId made = b.Out(64);
  b.Output(input);
  b.Output(made);
  b.Output(made);
  const Residency plan = Plan(b.flat, kOneCpu, {0});
  EXPECT_EQ(plan.copies, 2u);
}

// Two devices with separate memories exchange data through host memory, and each read copy is made once.
TEST(ResidencyTest, SharedCopiesAcrossDevices) {
  const std::vector<DeviceFacts> devices = {{.id = "cpu:0"}, {.id = "gpu:0", .space = 1}, {.id = "gpu:1", .space = 2}};
  FlatBuilder b;
  const FlatValueId input = b.Input(256);
  b.Node();
  b.In(input);
  const FlatValueId made = b.Out(256);
  for (int i = 0; i < 3; ++i) {
    b.Node();
    b.In(made);
    b.Output(b.Out(64));
  }
  const Residency plan = Plan(b.flat, devices, {1, 2, 2, 0});
  // Up to gpu:0; down and up to gpu:1, once for both readers; the host copy serves the CPU; two results down.
  EXPECT_EQ(plan.copies, 5u);
}

// Inputs are uploaded in the order in which tasks need them, not in document order, and a task waits only for its own
// inputs, so the first launch begins while the others are in transit.
TEST(ResidencyTest, UploadsStandInTheOrderOfFirstUse) {
  constexpr uint64_t kBytes = uint64_t{64} << 20;
  const std::vector<DeviceFacts> devices = {{.id = "cpu:0"}, {.id = "gpu:0", .space = 1, .has_copy_lanes = true}};
  FlatBuilder b;
  std::vector<FlatValueId> inputs;
  for (int i = 0; i < 4; ++i) {
    inputs.push_back(b.Input(kBytes + static_cast<uint64_t>(i)));  // Distinct sizes identify them.
  }
  std::vector<Task> tasks;
  for (uint32_t node = 0; node < 4; ++node) {
    b.Node();
    b.In(inputs[3 - node]);
    b.Output(b.Out(kBytes));
    tasks.push_back({.node = FlatNodeId(node),
                     .device = 1,
                     .box = {},
                     .start = Duration(node * 1'000'000),
                     .end = Duration((node + 1) * 1'000'000)});
  }
  const WholeBuffers accesses(b.flat);
  const ResidencyInput input{.flat = b.flat, .devices = devices, .spaces = {}, .tasks = tasks, .accesses = accesses};
  const StatusOr<Residency> plan = PlanResidency(input);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(CheckPlan(input, *plan), IsEmpty());
  std::vector<uint64_t> uploaded;
  std::vector<uint32_t> upload_segments;
  for (uint32_t i = 0; i < plan->segments.size(); ++i) {
    const Segment& segment = plan->segments[i];
    if (segment.lane == Lane::kUpload) {
      upload_segments.push_back(i);
      for (uint32_t step = 0; step < segment.step_count; ++step) {
        uploaded.push_back(plan->steps[segment.first_step + step].bytes - kBytes);
      }
    }
  }
  EXPECT_THAT(uploaded, testing::ElementsAre(3u, 2u, 1u, 0u));
  ASSERT_EQ(upload_segments.size(), 4u);
  // The n-th launch waits for the n-th upload, and for none that follows.
  size_t launches = 0;
  for (const Segment& segment : plan->segments) {
    if (segment.lane != Lane::kCompute || plan->steps[segment.first_step].kind != Step::Kind::kRun) {
      continue;
    }
    std::vector<uint32_t> waits;
    for (uint32_t wait = 0; wait < segment.wait_count; ++wait) {
      const uint32_t on = plan->waits[segment.first_wait + wait].segment;
      if (plan->segments[on].lane == Lane::kUpload) {
        waits.push_back(on);
      }
    }
    ASSERT_LT(launches, upload_segments.size());
    EXPECT_THAT(waits, testing::ElementsAre(upload_segments[launches])) << launches;
    ++launches;
  }
  EXPECT_EQ(launches, 4u);
}

// The result of one part is downloaded while the next part runs.
TEST(ResidencyTest, PartsComeBackOneByOne) {
  constexpr uint64_t kBytes = uint64_t{1} << 20;
  class Quarters final : public AccessModel {
   public:
    PortAccess Of(FlatNodeId, uint32_t, const Box& box, uint32_t) const override {
      return {.read = {},
              .written = {box.first[0] * kBytes / 4, (box.first[0] + box.count[0]) * kBytes / 4},
              .overwrites = true};
    }
    bool MayCut(FlatNodeId, uint32_t, uint32_t*, uint64_t*) const override { return true; }
  };
  const std::vector<DeviceFacts> devices = {{.id = "cpu:0"}, {.id = "gpu:0", .space = 1, .has_copy_lanes = true}};
  FlatBuilder b;
  b.Node();
  b.Output(b.Out(kBytes));
  b.flat.nodes[0].extent = {4, 1, 1};
  std::vector<Task> tasks;
  for (uint64_t part = 0; part < 4; ++part) {
    tasks.push_back({.node = FlatNodeId(0u),
                     .device = 1,
                     .box = {.first = {part, 0, 0}},
                     .is_part = true,
                     .start = Duration(part * 1'000'000),
                     .end = Duration((part + 1) * 1'000'000)});
  }
  const Quarters accesses;
  const ResidencyInput input{.flat = b.flat, .devices = devices, .spaces = {}, .tasks = tasks, .accesses = accesses};
  const StatusOr<Residency> plan = PlanResidency(input);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(CheckPlan(input, *plan), IsEmpty());
  EXPECT_EQ(plan->copies, 4u);
  // Each download is a segment that waits for one part only.
  size_t downloads = 0;
  for (const Segment& segment : plan->segments) {
    downloads += segment.lane == Lane::kDownload ? 1 : 0;
  }
  EXPECT_EQ(downloads, 4u);
}

// Edges of a grid that two GPUs share pass through host memory sized for edges, not for the grid.
TEST(ResidencyTest, HalosTakeNoMemoryForTheGrid) {
  static constexpr uint64_t kRow = uint64_t{1} << 20, kRows = 1024;
  class Rows final : public AccessModel {
   public:
    PortAccess Of(FlatNodeId node, uint32_t, const Box& box, uint32_t port) const override {
      const uint64_t begin = box.first[0], end = begin + box.count[0];
      if (port == 1) {  // The input of the second launch.
        return {.read = {(begin - std::min<uint64_t>(begin, 1)) * kRow, std::min<uint64_t>(end + 1, kRows) * kRow},
                .written = {}};
      }
      return {.read = {}, .written = {begin * kRow, end * kRow}, .overwrites = true};
    }
    bool MayCut(FlatNodeId, uint32_t, uint32_t*, uint64_t*) const override { return true; }
  };
  const std::vector<DeviceFacts> devices = {{.id = "cpu:0"}, {.id = "gpu:0", .space = 1}, {.id = "gpu:1", .space = 2}};
  // The host has room for the edges and not for more.
  const std::vector<SpaceFacts> spaces = {{.bytes_max = 4 * kRow}, {.mover = 1}, {.mover = 2}};
  FlatBuilder b;
  b.Node();
  const FlatValueId grid = b.Out(kRow * kRows);
  b.Node();
  b.In(grid);
  b.Output(b.Out(kRow * kRows));
  std::vector<Task> tasks;
  for (uint32_t node = 0; node < 2; ++node) {
    b.flat.nodes[node].extent = {kRows, 1, 1};
    for (uint32_t part = 0; part < 2; ++part) {
      tasks.push_back({.node = FlatNodeId(node),
                       .device = 1 + part,
                       .box = {.first = {part * kRows / 2, 0, 0}, .count = {kRows / 2, 1, 1}},
                       .is_part = true});
    }
  }
  const Rows accesses;
  const ResidencyInput input{
      .flat = b.flat, .devices = devices, .spaces = spaces, .tasks = tasks, .accesses = accesses};
  const StatusOr<Residency> plan = PlanResidency(input);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(CheckPlan(input, *plan), IsEmpty());
  EXPECT_EQ(plan->temporary_bytes[kHostSpace], 2 * kRow);
}

// A long chain over a grid of which each device receives only an edge: memory is freed early only for the edge's
// transfer, not for the grid's, so that a few grids suffice.
TEST(ResidencyTest, LongChainsOverHalosUseMemoryAgain) {
  static constexpr uint64_t kRow = uint64_t{1} << 20, kRows = 256;
  class Rows final : public AccessModel {
   public:
    explicit Rows(const FlatGraph& flat) : flat_(flat) {}
    PortAccess Of(FlatNodeId, uint32_t, const Box& box, uint32_t port) const override {
      const uint64_t begin = box.first[0], end = begin + box.count[0];
      if (flat_.ports[port].in.valid()) {
        return {.read = {(begin - std::min<uint64_t>(begin, 1)) * kRow, std::min<uint64_t>(end + 1, kRows) * kRow},
                .written = {}};
      }
      return {.read = {}, .written = {begin * kRow, end * kRow}, .overwrites = true};
    }
    bool MayCut(FlatNodeId, uint32_t, uint32_t*, uint64_t*) const override { return true; }

   private:
    const FlatGraph& flat_;
  };
  const std::vector<DeviceFacts> devices = {{.id = "cpu:0"},
                                            {.id = "gpu:0", .space = 1, .has_copy_lanes = true},
                                            {.id = "gpu:1", .space = 2, .has_copy_lanes = true}};
  FlatBuilder b;
  b.Node();
  FlatValueId value = b.Out(kRow * kRows);
  std::vector<Task> tasks;
  for (uint32_t node = 0; node < 100; ++node) {
    if (node > 0) {
      b.Node();
      b.In(value);
      value = b.Out(kRow * kRows);
    }
    b.flat.nodes[node].extent = {kRows, 1, 1};
    for (uint32_t part = 0; part < 2; ++part) {
      tasks.push_back({.node = FlatNodeId(node),
                       .device = 1 + part,
                       .box = {.first = {part * kRows / 2, 0, 0}, .count = {kRows / 2, 1, 1}},
                       .is_part = true,
                       .start = Duration(node * 250'000),
                       .end = Duration((node + 1) * 250'000)});
    }
  }
  b.Output(value);
  const Rows accesses(b.flat);
  const ResidencyInput input{.flat = b.flat, .devices = devices, .spaces = {}, .tasks = tasks, .accesses = accesses};
  const StatusOr<Residency> plan = PlanResidency(input);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(CheckPlan(input, *plan), IsEmpty());
  EXPECT_LE(plan->temporary_bytes[1], 4 * kRow * kRows);
  EXPECT_LE(plan->temporary_bytes[2], 4 * kRow * kRows);
  EXPECT_LE(plan->temporary_bytes[kHostSpace], 8 * kRow);
}

// Random graphs on random devices, with parts of launches: every port sees its value, inputs are not modified, outputs
// arrive, conflicting steps are ordered.
TEST(ResidencyTest, RandomGraphsStayCoherent) {
  for (uint64_t seed = 1; seed <= 1500; ++seed) {
    const RandomPlan random(seed, {.has_ranges = seed % 4 != 0});
    const StatusOr<Residency> plan = PlanResidency(random.input());
    ASSERT_TRUE(plan.ok()) << plan.status();
    ASSERT_THAT(CheckPlan(random.input(), *plan), IsEmpty()) << "seed " << seed;
  }
}

// The same with spaces hardly larger than the largest task: values that do not fit go to the host and to disk, and come
// back.
TEST(ResidencyTest, RandomGraphsFitTheirBudgets) {
  uint64_t evictions = 0, spills = 0;
  for (uint64_t seed = 1; seed <= 1500; ++seed) {
    const RandomPlan random(seed, {.has_ranges = seed % 4 != 0, .has_budgets = true});
    const StatusOr<Residency> plan = PlanResidency(random.input());
    ASSERT_TRUE(plan.ok()) << plan.status() << " seed " << seed;
    ASSERT_THAT(CheckPlan(random.input(), *plan), IsEmpty()) << "seed " << seed;
    evictions += plan->evictions;
    spills += plan->spills;
  }
  EXPECT_GT(evictions, 1000u);
  EXPECT_GT(spills, 100u);
}

// Iterations with and without budgets: each finds the values of the last one, after any number of swaps.
TEST(ResidencyTest, RandomIterationsCarryTheirValues) {
  size_t swaps = 0, carries = 0, refused = 0;
  for (uint64_t seed = 1; seed <= 1500; ++seed) {
    const RandomPlan random(
        seed, {.nodes_max = 15, .has_ranges = seed % 3 != 0, .has_budgets = seed % 4 == 0, .has_carries = true});
    const StatusOr<Residency> plan = PlanResidency(random.input());
    if (seed % 4 == 0 && absl::IsResourceExhausted(plan.status())) {
      ++refused;  // Carried values have their own storage, which budgets here do not include.
      continue;
    }
    ASSERT_TRUE(plan.ok()) << plan.status() << " seed " << seed;
    ASSERT_THAT(CheckPlan(random.input(), *plan, {.bodies = 1 + static_cast<uint32_t>(seed % 4)}), IsEmpty())
        << "seed " << seed;
    swaps += plan->swaps.size();
    carries += random.carries.size();
  }
  EXPECT_GT(carries, 1000u);
  EXPECT_GT(swaps, 200u);
  EXPECT_LT(refused, 10u);
}

}  // namespace
}  // namespace hpvm::scheduler
