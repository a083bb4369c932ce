// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "base/clock.h"
#include "scheduler/placement/placement.h"
#include "scheduler/testing/schedule_checker.h"

namespace hpvm::scheduler {
namespace {

using graph::FlatGraph;
using graph::FlatNodeId;
using graph::FlatValueId;

constexpr uint64_t kRows = 4096;

// Instance i accesses row i of every port, and of `in` ports also this many rows on both sides.
class RowAccess final : public AccessModel {
 public:
  RowAccess(const FlatGraph& flat, uint64_t halo, bool may_cut) : flat_(flat), halo_(halo), may_cut_(may_cut) {}
  PortAccess Of(FlatNodeId, uint32_t, const Box& box, uint32_t port) const override {
    const graph::FlatPort& p = flat_.ports[port];
    const uint64_t row = flat_.values[(p.out.valid() ? p.out : p.in).index].bytes / kRows;
    const uint64_t end = box.first[0] + box.count[0];
    PortAccess access;
    if (p.in.valid()) {
      access.read = {(box.first[0] - std::min(box.first[0], halo_)) * row, std::min(kRows, end + halo_) * row};
    }
    if (p.out.valid()) {
      access.written = {box.first[0] * row, end * row};
      access.overwrites = !p.in.valid();
    }
    return access;
  }
  bool MayCut(FlatNodeId, uint32_t, uint32_t* dimension, uint64_t* grain) const override {
    *dimension = 0;
    *grain = 16;
    return may_cut_;
  }

 private:
  const FlatGraph& flat_;
  const uint64_t halo_;
  const bool may_cut_;
};

// Nanoseconds per row by device; 10 GB/s and 5 µs to each space.
class RowCosts final : public CostModel {
 public:
  RowCosts(std::vector<int64_t> row_ns, bool is_estimate, double host_copies = 0, std::set<DeviceIndex> guessed = {})
      : row_ns_(std::move(row_ns)),
        is_estimate_(is_estimate),
        host_copies_(host_copies),
        guessed_(std::move(guessed)) {}
  Cost Run(const Work& work, DeviceIndex index, const DeviceFacts&) const override {
    return {.time = Duration(3'000 + row_ns_[index] * static_cast<int64_t>(work.instances)),
            .is_estimate = is_estimate_ || guessed_.contains(index),
            .is_guess = guessed_.contains(index)};
  }
  Duration Transfer(uint64_t bytes, SpaceIndex, SpaceIndex) const override { return Duration(5'000 + bytes / 10); }
  double HostCopyBytesPerSecond() const override { return host_copies_; }

 private:
  const std::vector<int64_t> row_ns_;
  const bool is_estimate_;
  const double host_copies_;
  const std::set<DeviceIndex> guessed_;
};

const std::vector<DeviceFacts> kDevices = {
    {.id = "cpu:0", .lanes = 2, .silicon = 0},
    {.id = "gpu:0", .space = 1, .is_gpu = true, .silicon = 1, .has_copy_lanes = true},
    {.id = "gpu:1", .space = 2, .is_gpu = true, .silicon = 2, .has_copy_lanes = true},
    // The same device through another driver.
    {.id = "other:1", .space = 3, .is_gpu = true, .silicon = 2, .has_copy_lanes = true},
};

// A chain of nodes over a buffer that each node reads and makes anew; the last is an output.
FlatGraph Chain(uint32_t nodes, uint64_t row_bytes, bool is_one_to_one = false) {
  FlatGraph flat;
  flat.values.push_back({.bytes = kRows * row_bytes, .shape = {}, .producer = {}});
  for (uint32_t i = 0; i < nodes; ++i) {
    graph::FlatNode node;
    node.leaf = graph::NodeId(i);
    node.first_port = static_cast<uint32_t>(flat.ports.size());
    node.extent = {kRows, 1, 1};
    flat.nodes.push_back(node);
    flat.values.push_back({.bytes = kRows * row_bytes, .shape = {}, .producer = FlatNodeId(i)});
    flat.ports.push_back(
        {.access = graph::Access::kIn, .in = FlatValueId(i), .out = {}, .is_one_to_one = is_one_to_one});
    flat.ports.push_back({.access = graph::Access::kOut, .in = {}, .out = FlatValueId(i + 1)});
  }
  flat.outputs = {FlatValueId(nodes)};
  return flat;
}

struct Setting {
  std::vector<int64_t> row_ns;
  std::vector<DeviceIndex> devices;  // Devices of every node's candidates.
  uint64_t halo = 0;
  bool may_cut = true;
  bool is_estimate = false;
  double host_copies = 0;
  std::set<DeviceIndex> guessed{};  // Devices on which the kernel was never measured.
};

Placement PlaceRows(const FlatGraph& flat, const Setting& s, bool with_cuts = true) {
  const RowAccess accesses(flat, s.halo, s.may_cut);
  const RowCosts costs(s.row_ns, s.is_estimate, s.host_copies, s.guessed);
  std::vector<Candidate> list;
  for (const DeviceIndex device : s.devices) {
    list.push_back({.device = device});
  }
  const std::vector<std::vector<Candidate>> candidates(flat.nodes.size(), list);
  uint32_t unplaced = 0;
  const PlacementInput input{.flat = flat,
                             .devices = kDevices,
                             .candidates = candidates,
                             .costs = costs,
                             .accesses = with_cuts ? &accesses : nullptr,
                             .wants_transfers = true};
  StatusOr<Placement> placement = Place(input, &unplaced);
  EXPECT_TRUE(placement.ok());
  const StatusOr<Duration> makespan = CheckSchedule(input, *placement);
  EXPECT_TRUE(makespan.ok()) << Message(makespan.status());
  EXPECT_EQ(makespan.value_or(Duration(0)), placement->makespan);
  return *std::move(placement);
}

double Gain(const FlatGraph& flat, const Setting& s) {
  return static_cast<double>(PlaceRows(flat, s, false).makespan.count()) /
         static_cast<double>(PlaceRows(flat, s).makespan.count());
}

size_t Parts(const Placement& placement) {
  return static_cast<size_t>(
      std::count_if(placement.tasks.begin(), placement.tasks.end(), [](const Task& task) { return task.is_part; }));
}

// Two equal GPUs share one long launch, and a chain of launches whose halves stay in place.
TEST(PlacementSplitTest, TwoDevicesAreNearlyTwiceOne) {
  const Setting gpus{.row_ns = {0, 1'000, 1'000}, .devices = {1, 2}};
  EXPECT_GT(Gain(Chain(1, 64), gpus), 1.8);
  EXPECT_GT(Gain(Chain(8, 64), gpus), 1.8);
  Setting halo = gpus;
  halo.halo = 1;
  EXPECT_GT(Gain(Chain(8, 64), halo), 1.7);
}

// Shares follow speeds: a device three times as fast gets three times as much.
TEST(PlacementSplitTest, SharesFollowMeasuredSpeed) {
  const Placement placement = PlaceRows(Chain(1, 4), {.row_ns = {3'000, 1'000, 0}, .devices = {0, 1}});
  ASSERT_EQ(Parts(placement), 2u);
  uint64_t rows[2] = {0, 0};
  for (const Task& task : placement.tasks) {
    rows[task.device] += task.box.count[0];
    EXPECT_EQ(task.box.first[0] % 64, 0u);  // Whole tiles.
  }
  EXPECT_NEAR(static_cast<double>(rows[1]) / static_cast<double>(rows[0]), 3, 0.4);
}

std::set<DeviceIndex> DevicesOf(const Placement& placement) {
  std::set<DeviceIndex> devices;
  for (const Task& task : placement.tasks) {
    devices.insert(task.device);
  }
  return devices;
}

// A device that would get a sliver gets nothing, because it costs a launch and a synchronisation.
TEST(PlacementSplitTest, NoSlivers) {
  const Placement placement = PlaceRows(Chain(1, 64), {.row_ns = {30'000, 1'000, 1'000}, .devices = {0, 1, 2}});
  EXPECT_EQ(Parts(placement), 2u);
  EXPECT_EQ(DevicesOf(placement), (std::set<DeviceIndex>{1, 2}));
  const Placement chain = PlaceRows(Chain(8, 64), {.row_ns = {30'000, 1'000, 1'000}, .devices = {0, 1, 2}});
  EXPECT_EQ(DevicesOf(chain), (std::set<DeviceIndex>{1, 2}));
  // A third device that is worth it takes part.
  EXPECT_EQ(DevicesOf(PlaceRows(Chain(1, 4), {.row_ns = {2'000, 1'000, 1'000}, .devices = {0, 1, 2}})).size(), 3u);
}

// Guesses split a launch over equal devices. A device of another kind, however fast, is measured by a small part.
TEST(PlacementSplitTest, GuessesSplitOverEquals) {
  const Placement placement =
      PlaceRows(Chain(1, 64), {.row_ns = {700, 1'000, 1'000}, .devices = {0, 1, 2}, .guessed = {0, 1, 2}});
  ASSERT_EQ(DevicesOf(placement), (std::set<DeviceIndex>{0, 1, 2}));
  for (const Task& task : placement.tasks) {
    if (task.device == 0) {
      EXPECT_LE(task.box.count[0], 64u);
    } else {
      EXPECT_NEAR(static_cast<double>(task.box.count[0]), kRows / 2.0, 64);
    }
  }
  // Once all are measured, the faster one gets most.
  const Placement known = PlaceRows(Chain(1, 64), {.row_ns = {700, 1'000, 1'000}, .devices = {0, 1, 2}});
  for (const Task& task : known.tasks) {
    EXPECT_GT(task.box.count[0], task.device == 0 ? kRows / 3 : kRows / 4);
  }
  // A single device is not split for a measurement, and a device that seems hopeless gets nothing.
  const Placement alone = PlaceRows(Chain(1, 64), {.row_ns = {900, 1'000, 0}, .devices = {0, 1}, .guessed = {0}});
  EXPECT_EQ(Parts(alone), 0u);
  EXPECT_EQ(alone.tasks[0].whole, Whole::kNotMeasured);
  EXPECT_EQ(
      DevicesOf(PlaceRows(Chain(1, 64), {.row_ns = {50'000, 1'000, 1'000}, .devices = {0, 1, 2}, .guessed = {0}})),
      (std::set<DeviceIndex>{1, 2}));
}

// Two links that share the host's copies carry no more than the host does: a launch that mostly waits for its data then
// gains nothing from a second device.
TEST(PlacementSplitTest, LinksShareTheHostsCopies) {
  const auto gain = [](const FlatGraph& flat, double host_copies) {
    Setting gpus{.row_ns = {0, 1'000, 1'000}, .devices = {1}, .host_copies = host_copies};
    const Duration one = PlaceRows(flat, gpus).makespan;
    gpus.devices = {1, 2};
    return static_cast<double>(one.count()) / static_cast<double>(PlaceRows(flat, gpus).makespan.count());
  };
  const FlatGraph flat = Chain(1, 50'000);  // 20 ms each way, and 4 ms of work.
  EXPECT_GT(gain(flat, 0), 1.7);
  EXPECT_LT(gain(flat, 10e9), 1.1);
  EXPECT_GT(gain(flat, 16e9), 1.3);
  EXPECT_GT(gain(Chain(1, 64), 10e9), 1.8);
}

// The faster of two drivers for one GPU runs its part, whichever is listed first.
TEST(PlacementSplitTest, TheQuickerDriverOfTwo) {
  for (const auto& devices : {std::vector<DeviceIndex>{1, 2, 3}, std::vector<DeviceIndex>{1, 3, 2}}) {
    const Placement placement = PlaceRows(Chain(1, 64), {.row_ns = {0, 900, 3'000, 1'000}, .devices = devices});
    EXPECT_EQ(DevicesOf(placement), (std::set<DeviceIndex>{1, 3}));
  }
}

// Nothing is cut when moving data costs more than the second device saves, when nothing may be cut, or when the gain is
// small (with estimates: less than large).
TEST(PlacementSplitTest, CutsOnlyWhatPays) {
  EXPECT_EQ(Parts(PlaceRows(Chain(1, 4'000'000), {.row_ns = {1'000, 500, 0}, .devices = {0, 1}})), 0u);
  EXPECT_EQ(Parts(PlaceRows(Chain(1, 64), {.row_ns = {0, 1'000, 1'000}, .devices = {1, 2}, .may_cut = false})), 0u);
  EXPECT_EQ(Parts(PlaceRows(Chain(1, 4), {.row_ns = {40'000, 1'000, 0}, .devices = {0, 1}})), 0u);
  EXPECT_EQ(Parts(PlaceRows(Chain(1, 4), {.row_ns = {5'000, 1'000, 0}, .devices = {0, 1}, .is_estimate = true})), 0u);
  EXPECT_GT(Parts(PlaceRows(Chain(1, 4), {.row_ns = {5'000, 1'000, 0}, .devices = {0, 1}})), 0u);
  EXPECT_GT(Parts(PlaceRows(Chain(1, 4), {.row_ns = {0, 1'000, 1'000}, .devices = {1, 2}, .is_estimate = true})), 0u);
}

// Writers that overlap are not cut: here every part may write everything.
TEST(PlacementSplitTest, PartsThatMeetStayTogether) {
  class Meeting final : public AccessModel {
   public:
    PortAccess Of(FlatNodeId, uint32_t, const Box&, uint32_t port) const override {
      PortAccess access;
      (port % 2 == 0 ? access.read : access.written) = {0, kRows * 64};
      return access;
    }
    bool MayCut(FlatNodeId, uint32_t, uint32_t* dimension, uint64_t* grain) const override {
      *dimension = 0;
      *grain = 1;
      return true;
    }
  };
  const FlatGraph flat = Chain(1, 64);
  const Meeting accesses;
  const RowCosts costs({0, 1'000, 1'000}, false);
  const std::vector<std::vector<Candidate>> candidates = {{{.device = 1}, {.device = 2}}};
  uint32_t unplaced = 0;
  const StatusOr<Placement> placement = Place(
      {.flat = flat, .devices = kDevices, .candidates = candidates, .costs = costs, .accesses = &accesses}, &unplaced);
  EXPECT_EQ(Parts(*placement), 0u);
  EXPECT_EQ(placement->tasks[0].whole, Whole::kPartsMeet);
}

// The reason why a launch stays whole is given for long launches that several devices could run.
TEST(PlacementSplitTest, SaysWhyNot) {
  const auto why = [](const FlatGraph& flat, const Setting& setting) {
    return PlaceRows(flat, setting).tasks[0].whole;
  };
  const Setting gpus{.row_ns = {0, 1'000, 1'000}, .devices = {1, 2}};
  EXPECT_EQ(why(Chain(1, 64), gpus), Whole::kNotAsked) << "It is split.";
  EXPECT_EQ(why(Chain(1, 64), {.row_ns = {0, 1'000}, .devices = {1}}), Whole::kNotAsked) << "There is one device.";
  EXPECT_EQ(why(Chain(1, 64), {.row_ns = {0, 1, 1}, .devices = {1, 2}}), Whole::kNotAsked) << "It is short.";
  EXPECT_EQ(why(Chain(1, 4'000'000), {.row_ns = {1'000, 500, 0}, .devices = {0, 1}}), Whole::kNoGain);
  Setting refused = gpus;
  refused.may_cut = false;
  EXPECT_EQ(why(Chain(1, 64), refused), Whole::kBytesUnknown);
  FlatGraph late = Chain(1, 64);
  late.nodes[0].extent_port[0] = 0;
  EXPECT_EQ(why(late, gpus), Whole::kSizeUnknown);
}

// Parts that read nothing written by the parts before them could run at any time; in the order of tasks their node
// still comes after its producer.
TEST(PlacementSplitTest, OrderFollowsEdgesWithoutBytes) {
  FlatGraph flat = Chain(2, 1);
  flat.nodes[0].extent[0] = kRows / 4;
  for (graph::FlatValue& value : flat.values) {
    value.bytes = 100;  // Fewer bytes than rows.
  }
  const Placement placement = PlaceRows(flat, {.row_ns = {0, 1'000, 1'000}, .devices = {1, 2}});
  EXPECT_EQ(Parts(placement), 4u);
  EXPECT_EQ(placement.tasks.front().node.index, 0u);
  EXPECT_EQ(placement.tasks.back().node.index, 1u);
}

// Producer and consumer on two devices overlap when instances pass one to one.
TEST(PlacementSplitTest, PipelinesOneToOneEdges) {
  const FlatGraph flat = Chain(2, 64, true);
  const RowAccess accesses(flat, 0, true);
  const RowCosts costs({1'000, 1'000, 0}, false);
  const std::vector<std::vector<Candidate>> candidates = {{{.device = 0}}, {{.device = 1}}};
  uint32_t unplaced = 0;
  PlacementInput input{
      .flat = flat, .devices = kDevices, .candidates = candidates, .costs = costs, .wants_transfers = true};
  const Duration whole = Place(input, &unplaced)->makespan;
  input.accesses = &accesses;
  const StatusOr<Placement> placement = Place(input, &unplaced);
  const StatusOr<Duration> makespan = CheckSchedule(input, *placement);
  ASSERT_TRUE(makespan.ok()) << Message(makespan.status());
  EXPECT_EQ(*makespan, placement->makespan);
  EXPECT_LT(makespan->count() * 10, whole.count() * 7);
  // Parts of a node are adjacent.
  for (size_t t = 1; t < placement->tasks.size(); ++t) {
    EXPECT_LE(placement->tasks[t - 1].node, placement->tasks[t].node);
  }
}

// In-place updates, halos, outputs of parts, and uncut nodes among cut ones: every resulting plan can run.
TEST(PlacementSplitTest, RandomGraphsWithCutsCanRunAsPlanned) {
  size_t parts = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    SeededRng rng(seed);
    FlatGraph flat;
    const auto value = [&](FlatNodeId producer) {
      flat.values.push_back({.bytes = kRows * (1 + rng.Below(64)), .shape = {}, .producer = producer});
      return FlatValueId(flat.values.size() - 1);
    };
    value({});
    std::vector<std::vector<Candidate>> candidates;
    for (uint32_t i = 0; i < 1 + rng.Below(10); ++i) {
      graph::FlatNode node;
      node.leaf = graph::NodeId(i);
      node.first_port = static_cast<uint32_t>(flat.ports.size());
      node.extent = {rng.Below(4) == 0 ? 64 : kRows, 1, 1};
      flat.nodes.push_back(node);
      const FlatValueId in(flat.values.size() - 1 - rng.Below(std::min<size_t>(flat.values.size(), 3)));
      const bool updates = rng.Below(2) == 0;
      const FlatValueId out = value(FlatNodeId(i));
      if (updates) {
        flat.values[out.index].bytes = flat.values[in.index].bytes;
        flat.ports.push_back({.access = graph::Access::kInOut, .in = in, .out = out});
      } else {
        flat.ports.push_back({.access = graph::Access::kIn, .in = in, .out = {}, .is_one_to_one = rng.Below(2) == 0});
        flat.ports.push_back({.access = graph::Access::kOut, .in = {}, .out = out});
      }
      std::vector<Candidate> list = {{.device = static_cast<DeviceIndex>(rng.Below(3))}};
      list.push_back({.device = (list[0].device + 1) % 3});
      candidates.push_back(list);
    }
    flat.outputs = {FlatValueId(flat.values.size() - 1), FlatValueId(rng.Below(flat.values.size()))};
    const RowAccess accesses(flat, rng.Below(3), true);
    const RowCosts costs({100 + static_cast<int64_t>(rng.Below(1'000)), 100 + static_cast<int64_t>(rng.Below(1'000)),
                          100 + static_cast<int64_t>(rng.Below(1'000))},
                         false);
    const PlacementInput input{.flat = flat,
                               .devices = kDevices,
                               .candidates = candidates,
                               .costs = costs,
                               .accesses = &accesses,
                               .effort = 2'000,
                               .wants_transfers = true};
    uint32_t unplaced = 0;
    const StatusOr<Placement> placement = Place(input, &unplaced);
    ASSERT_TRUE(placement.ok());
    const StatusOr<Duration> makespan = CheckSchedule(input, *placement);
    ASSERT_TRUE(makespan.ok()) << Message(makespan.status());
    ASSERT_EQ(*makespan, placement->makespan);
    parts += Parts(*placement);
  }
  EXPECT_GT(parts, 300u);
}

}  // namespace
}  // namespace hpvm::scheduler
