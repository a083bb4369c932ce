// SPDX-License-Identifier: Apache-2.0
// Forecasts of memory plans: concurrent lanes, shared links and host copies, launches that were planned side by side;
// and bounds that hold for random plans.
#include "scheduler/residency/forecast.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "scheduler/testing/random_plan.h"

namespace hpvm::scheduler {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr int64_t kMs = 1'000'000;
constexpr double kZeroing = 1e18;  // Memory so fast that clearing it takes at most a nanosecond.

// A mebibyte takes a millisecond on a link, and `host_ms` of the host's copies.
class LinkCosts final : public CostModel {
 public:
  Cost Run(const Work&, DeviceIndex, const DeviceFacts&) const override { return {}; }
  Duration Transfer(uint64_t bytes, SpaceIndex, SpaceIndex) const override {
    return Duration(static_cast<int64_t>(bytes) * kMs / static_cast<int64_t>(kMiB));
  }
  double HostCopyBytesPerSecond() const override {
    return host_ms == 0 ? 0 : static_cast<double>(kMiB) * 1e3 / host_ms;
  }
  double host_ms = 0;
};

class ForecastTest : public ::testing::Test {
 protected:
  void Gpus(uint32_t count, bool has_copy_lanes = true) {
    for (uint32_t i = 0; i < count; ++i) {
      devices_.push_back({.id = "gpu:" + std::to_string(i),
                          .space = i + 1,
                          .is_gpu = true,
                          .bytes_per_second = kZeroing,
                          .silicon = i + 1,
                          .has_copy_lanes = has_copy_lanes});
    }
  }
  // Places the builder's last node, for `ms` milliseconds from `start_ms`.
  void On(DeviceIndex device, int64_t start_ms, int64_t ms) {
    tasks_.push_back({.node = graph::FlatNodeId(b_.flat.nodes.size() - 1),
                      .device = device,
                      .box = {},
                      .start = Duration(start_ms * kMs),
                      .end = Duration((start_ms + ms) * kMs)});
  }
  int64_t Ms(uint32_t repeat = 1) {
    const ResidencyInput input{.flat = b_.flat,
                               .devices = devices_,
                               .spaces = {},
                               .tasks = tasks_,
                               .accesses = accesses_,
                               .carries = carries_};
    const StatusOr<Residency> plan = PlanResidency(input);
    EXPECT_TRUE(plan.ok()) << plan.status();
    const Duration ns =
        Forecast({.residency = *plan, .devices = devices_, .tasks = tasks_, .costs = costs_, .repeat = repeat});
    EXPECT_LE(ns.count() % kMs, 100);
    return ns.count() / kMs;
  }

  FlatBuilder b_;
  TableAccesses accesses_{b_.flat};
  std::vector<DeviceFacts> devices_ = {{.id = "cpu:0", .bytes_per_second = kZeroing, .lanes = 2}};
  std::vector<Task> tasks_;
  std::vector<Carry> carries_;
  LinkCosts costs_;
};

// An upload, a launch, a download.
TEST_F(ForecastTest, OneAfterTheOther) {
  Gpus(1);
  const auto x = b_.Input(3 * kMiB);
  b_.Node();
  b_.In(x);
  b_.Output(b_.Out(2 * kMiB));
  On(1, 3, 10);
  EXPECT_EQ(Ms(), 3 + 10 + 2);
}

// Two GPUs with their own links end together, until the host's copies are limited to one link's speed.
TEST_F(ForecastTest, LinksShareTheHostsCopies) {
  Gpus(2);
  for (const DeviceIndex device : {1u, 2u}) {
    const auto x = b_.Input(4 * kMiB);
    b_.Node();
    b_.In(x);
    b_.Output(b_.Out(kMiB));
    On(device, 4, 10);
  }
  EXPECT_EQ(Ms(), 4 + 10 + 1);
  costs_.host_ms = 1;
  EXPECT_EQ(Ms(), 4 + 4 + 10 + 1);
  costs_.host_ms = 0.5;
  EXPECT_EQ(Ms(), 2 + 4 + 10 + 1);
}

// Without copy lanes the device does nothing during copies.
TEST_F(ForecastTest, CopiesKeepTheDevice) {
  Gpus(1, false);
  for (int i = 0; i < 2; ++i) {
    const auto x = b_.Input(4 * kMiB);
    b_.Node();
    b_.In(x);
    b_.Output(b_.Out(4 * kMiB));
    On(1, 4 + 10 * i, 10);
  }
  EXPECT_EQ(Ms(), 2 * (4 + 10 + 4));
  devices_[1].has_copy_lanes = true;
  EXPECT_EQ(Ms(), 4 + 10 + 10 + 4);
}

// Two drivers of one GPU take turns.
TEST_F(ForecastTest, OneSiliconTakesTurns) {
  Gpus(2);
  devices_[2].silicon = devices_[1].silicon;
  for (const DeviceIndex device : {1u, 2u}) {
    const auto x = b_.Input(kMiB);
    b_.Node();
    b_.In(x);
    b_.Output(b_.Out(kMiB));
    On(device, 1, 10);
  }
  EXPECT_EQ(Ms(), 1 + 10 + 10 + 1);
}

// Halves of a stencil exchange a mebibyte per repetition and overlap, even if the device copies between launches: data
// that the other half needs is downloaded before the launches. The grids are moved once.
TEST_F(ForecastTest, PartsOfAStencilRunSideBySide) {
  constexpr uint64_t kHalf = 10 * kMiB;
  for (const bool has_copy_lanes : {false, true}) {
    SCOPED_TRACE(has_copy_lanes);
    b_ = {};
    tasks_.clear();
    devices_.resize(1);
    Gpus(2, has_copy_lanes);
    const auto u = b_.Input(2 * kHalf);
    b_.Node();
    b_.In(u);
    b_.Output(b_.Out(2 * kHalf));
    b_.Output({});
    carries_ = {{.output = 0, .input = b_.flat.values[u.index].input}};
    for (const uint64_t part : {0, 1}) {
      On(static_cast<DeviceIndex>(1 + part), 0, 20);
      tasks_.back().box.first[0] = part;
      tasks_.back().is_part = true;
      const ByteRange own{part * kHalf, (part + 1) * kHalf};
      accesses_.Set(graph::FlatNodeId(0u), part, 0,
                    {.read = {own.begin - (part == 1 ? kMiB : 0), own.end + (part == 0 ? kMiB : 0)}, .written = {}});
      accesses_.Set(graph::FlatNodeId(0u), part, 1, {.read = {}, .written = own, .overwrites = true});
    }
    // A halo is downloaded and uploaded, then the launches run; with copy lanes both directions overlap.
    EXPECT_EQ(Ms(1'000'000), 1 + 1 + 20);
    EXPECT_GE(Ms(10), 1 + 1 + 20 + 2);
    EXPECT_LE(Ms(10), 1 + 1 + 20 + 4);
  }
}

// The processor's launches overlap where they were planned so; a GPU's launches overlap with all of them.
TEST_F(ForecastTest, LanesOfTheProcessor) {
  Gpus(1);
  const auto x = b_.Input(kMiB);
  for (int i = 0; i < 2; ++i) {
    b_.Node();
    b_.In(x);
    b_.Output(b_.Out(kMiB));
    On(0, 0, 20);
  }
  b_.Node();
  b_.In(x);
  b_.Output(b_.Out(kMiB));
  On(1, 1, 5);
  EXPECT_EQ(Ms(), 20);
  tasks_[1].start += Duration(20 * kMs);
  tasks_[1].end += Duration(20 * kMs);
  EXPECT_EQ(Ms(), 40);
}

// No plan is faster than its own steps, nor slower than all of them one after another.
TEST(ForecastRandomTest, IsWithinBounds) {
  LinkCosts costs;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(seed);
    const RandomPlan random(seed, {.has_budgets = seed % 2 == 0, .has_carries = seed % 3 == 0});
    const ResidencyInput input = random.input();
    const StatusOr<Residency> plan = PlanResidency(input);
    if (!plan.ok()) {
      continue;
    }
    costs.host_ms = seed % 5 == 0 ? 0.5 : 0;
    const ForecastInput asked{.residency = *plan, .devices = input.devices, .tasks = input.tasks, .costs = costs};
    const int64_t forecast = Forecast(asked).count();
    std::map<uint32_t, int64_t> launches;  // Keyed by device.
    int64_t all = 0;
    for (uint32_t s = 0; s < plan->body.segment_count; ++s) {
      const Segment& segment = plan->segments[plan->body.first_segment + s];
      for (uint32_t i = segment.first_step; i < segment.first_step + segment.step_count; ++i) {
        const Step& step = plan->steps[i];
        if (step.kind == Step::Kind::kRun) {
          const int64_t ns = (input.tasks[step.task].end - input.tasks[step.task].start).count();
          launches[step.device] += std::max<int64_t>(ns, 1);
          all += std::max<int64_t>(ns, 1);
        } else {
          // A copy within a memory is at most 10 bytes a nanosecond slower than on a link.
          all += 2 + static_cast<int64_t>(2 * step.bytes) * kMs / static_cast<int64_t>(kMiB);
        }
      }
    }
    for (const auto& [device, ns] : launches) {
      if (input.devices[device].space != kHostSpace) {
        EXPECT_GE(forecast, ns);
      }
    }
    EXPECT_LE(forecast, all);
    EXPECT_EQ(forecast, Forecast(asked).count());
  }
}

}  // namespace
}  // namespace hpvm::scheduler
