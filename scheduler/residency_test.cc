// SPDX-License-Identifier: Apache-2.0
#include "scheduler/residency.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"

namespace hpvm::scheduler {
namespace {

using graph::Access;
using graph::FlatGraph;
using graph::FlatNodeId;
using graph::FlatPort;
using graph::FlatValueId;

// Builds flat graphs by hand.
struct FlatBuilder {
  FlatGraph flat;

  FlatValueId Input(uint64_t bytes) {
    flat.values.push_back({.bytes = bytes, .shape = {}, .producer = {}, .input = static_cast<uint32_t>(inputs++)});
    return FlatValueId(flat.values.size() - 1);
  }
  // Starts a node; its ports follow.
  void Node() {
    graph::FlatNode node;
    node.first_port = static_cast<uint32_t>(flat.ports.size());
    flat.nodes.push_back(node);
  }
  void In(FlatValueId value) { flat.ports.push_back({.access = Access::kIn, .in = value, .out = {}}); }
  FlatValueId Out(uint64_t bytes) { return Make(Access::kOut, {}, bytes); }
  FlatValueId InOut(FlatValueId value) { return Make(Access::kInOut, value, flat.values[value.index].bytes); }
  void Output(FlatValueId value) { flat.outputs.push_back(value); }

  FlatValueId Make(Access access, FlatValueId in, uint64_t bytes) {
    flat.values.push_back({.bytes = bytes, .shape = {}, .producer = FlatNodeId(flat.nodes.size() - 1)});
    const FlatValueId out(flat.values.size() - 1);
    flat.ports.push_back({.access = access, .in = in, .out = out});
    return out;
  }
  size_t inputs = 0;
};

const std::vector<DeviceFacts> kOneCpu = {{.id = "cpu:0"}};

Residency Plan(const FlatGraph& flat, const std::vector<DeviceFacts>& devices,
               const std::vector<DeviceIndex>& device_of) {
  std::vector<Task> tasks;
  for (size_t node = 0; node < device_of.size(); ++node) {
    tasks.push_back({.node = FlatNodeId(node), .device = device_of[node], .box = {}});
  }
  StatusOr<Residency> plan = PlanResidency(
      {.flat = flat, .devices = devices, .spaces = {}, .tasks = tasks, .accesses = WholeBuffers(flat)});
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

// What a plan does to symbolic memory: each storage holds the name of a value.
class Replay {
 public:
  Replay(const FlatGraph& flat, const std::vector<DeviceFacts>& devices, const Residency& plan)
      : flat_(flat), devices_(devices), plan_(plan), holds_(plan.storages.size(), "garbage") {}

  void Run() {
    for (size_t i = 0; i < plan_.storages.size(); ++i) {
      if (plan_.storages[i].kind == Storage::Kind::kInput) {
        holds_[i] = ValueName(ValueOfInput(plan_.storages[i].port));
      }
    }
    for (const Step& step : plan_.steps) {
      if (step.kind == Step::Kind::kRun) {
        RunNode(step);
      } else {
        Move(step);
      }
    }
    for (size_t i = 0; i < plan_.storages.size(); ++i) {
      if (plan_.storages[i].kind == Storage::Kind::kOutput) {
        EXPECT_EQ(holds_[i], ValueName(flat_.outputs[plan_.storages[i].port])) << "output " << plan_.storages[i].port;
      }
    }
  }

 private:
  static std::string ValueName(FlatValueId value) { return "v" + std::to_string(value.index); }

  FlatValueId ValueOfInput(uint32_t port) const {
    for (size_t v = 0; v < flat_.values.size(); ++v) {
      if (!flat_.values[v].producer.valid() && flat_.values[v].input == port) {
        return FlatValueId(v);
      }
    }
    return {};
  }

  void Move(const Step& step) {
    const Storage& target = plan_.storages[step.target.index];
    ASSERT_NE(target.kind, Storage::Kind::kInput);
    ASSERT_LE(step.bytes, target.bytes);
    CheckReach(step.device, step.target);
    if (step.kind == Step::Kind::kZero) {
      holds_[step.target.index] = "zero";
      return;
    }
    CheckReach(step.device, step.source);
    ASSERT_LE(step.bytes, plan_.storages[step.source.index].bytes);
    holds_[step.target.index] = holds_[step.source.index];
  }

  // A device reaches its own space and, for copies, host memory.
  void CheckReach(DeviceIndex device, StorageId storage) const {
    const SpaceIndex space = plan_.storages[storage.index].space;
    EXPECT_TRUE(space == devices_[device].space || space == kHostSpace);
  }

  void RunNode(const Step& step) {
    const uint32_t node = step.task;
    const uint32_t end =
        node + 1 < flat_.nodes.size() ? flat_.nodes[node + 1].first_port : static_cast<uint32_t>(flat_.ports.size());
    for (uint32_t port = flat_.nodes[node].first_port; port < end; ++port) {
      const FlatPort& p = flat_.ports[port];
      const StorageId storage = plan_.port_storage[port];
      const Storage& s = plan_.storages[storage.index];
      EXPECT_EQ(s.space, devices_[step.device].space);
      if (p.in.valid()) {
        EXPECT_EQ(holds_[storage.index], ValueName(p.in)) << "node " << node << " port " << port;
      } else {
        EXPECT_EQ(holds_[storage.index], "zero") << "node " << node << " port " << port;
      }
      EXPECT_TRUE(!p.out.valid() || s.kind != Storage::Kind::kInput);
      for (uint32_t other = flat_.nodes[node].first_port; other < port; ++other) {
        const bool writes = p.out.valid() || flat_.ports[other].out.valid();
        EXPECT_TRUE(!writes || plan_.port_storage[other] != storage) << "node " << node << " has aliased ports";
      }
    }
    for (uint32_t port = flat_.nodes[node].first_port; port < end; ++port) {
      if (flat_.ports[port].out.valid()) {
        holds_[plan_.port_storage[port].index] = ValueName(flat_.ports[port].out);
      }
    }
  }

  const FlatGraph& flat_;
  const std::vector<DeviceFacts>& devices_;
  const Residency& plan_;
  std::vector<std::string> holds_;
};

// Every two steps that touch one storage, one of them writing, lie in one segment or are ordered by waits.
void CheckWaits(const FlatGraph& flat, const Residency& plan) {
  const size_t count = plan.segments.size();
  std::vector<std::vector<bool>> before(count, std::vector<bool>(count));
  for (size_t s = 0; s < count; ++s) {
    for (uint32_t w = 0; w < plan.segments[s].wait_count; ++w) {
      const uint32_t earlier = plan.waits[plan.segments[s].first_wait + w].segment;
      ASSERT_LT(earlier, s);
      before[s][earlier] = true;
      for (size_t e = 0; e < count; ++e) {
        before[s][e] = before[s][e] || before[earlier][e];
      }
    }
    for (size_t e = 0; e < s; ++e) {
      EXPECT_TRUE(plan.segments[e].device != plan.segments[s].device || before[s][e]) << "A device runs out of order.";
    }
  }
  struct Access {
    uint32_t segment;
    bool writes;
  };
  std::vector<std::vector<Access>> touches(plan.storages.size());
  for (uint32_t s = 0; s < count; ++s) {
    for (uint32_t i = 0; i < plan.segments[s].step_count; ++i) {
      const Step& step = plan.steps[plan.segments[s].first_step + i];
      ASSERT_EQ(step.device, plan.segments[s].device);
      if (step.kind == Step::Kind::kRun) {
        const uint32_t node = step.task;
        const uint32_t end =
            node + 1 < flat.nodes.size() ? flat.nodes[node + 1].first_port : static_cast<uint32_t>(flat.ports.size());
        for (uint32_t port = flat.nodes[node].first_port; port < end; ++port) {
          touches[plan.port_storage[port].index].push_back({s, flat.ports[port].out.valid()});
        }
        continue;
      }
      touches[step.target.index].push_back({s, true});
      if (step.source.valid()) {
        touches[step.source.index].push_back({s, false});
      }
    }
  }
  for (const std::vector<Access>& list : touches) {
    for (size_t a = 0; a < list.size(); ++a) {
      for (size_t b = a + 1; b < list.size(); ++b) {
        const bool conflicts = (list[a].writes || list[b].writes) && plan.storages[&list - touches.data()].bytes > 0;
        ASSERT_TRUE(!conflicts || list[a].segment == list[b].segment || before[list[b].segment][list[a].segment])
            << "segments " << list[a].segment << " and " << list[b].segment;
      }
    }
  }
}

// A chain of in-place updates copies its input once, straight into the output's memory, and needs no temporary.
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
  Replay(b.flat, kOneCpu, plan).Run();
}

// Fan-out to two writers: one copies, the last one works in place.
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
  Replay(b.flat, kOneCpu, plan).Run();
}

// A long chain of `out` nodes needs two temporaries, however long it is.
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
  Replay(b.flat, kOneCpu, plan).Run();
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
  Replay(b.flat, kOneCpu, plan).Run();
}

// Two devices with memory of their own exchange through host memory, and each read copy is made once.
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
  Replay(b.flat, devices, plan).Run();
  CheckWaits(b.flat, plan);
}

// Random graphs on random devices: every port sees its value, inputs stay untouched, outputs arrive, conflicting steps
// are ordered.
TEST(ResidencyTest, RandomGraphsStayCoherent) {
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(seed);
    SeededRng rng(seed);
    std::vector<DeviceFacts> devices = {
        {.id = "cpu:0"}, {.id = "interp:0"}, {.id = "gpu:0", .space = 1}, {.id = "gpu:1", .space = 2}};
    devices.resize(1 + rng.Below(4));
    FlatBuilder b;
    std::vector<FlatValueId> values;
    for (uint64_t i = 0; i <= rng.Below(3); ++i) {
      values.push_back(b.Input(64 * rng.Below(4)));
    }
    std::vector<DeviceIndex> device_of;
    const uint64_t nodes = rng.Below(40);
    for (uint64_t n = 0; n < nodes; ++n) {
      b.Node();
      device_of.push_back(static_cast<DeviceIndex>(rng.Below(devices.size())));
      const size_t known = values.size();
      // Half the time one of the last few values, so that chains form.
      const auto pick = [&] {
        return values[rng.Below(2) == 0 ? rng.Below(known) : known - 1 - rng.Below(std::min<size_t>(known, 3))];
      };
      for (uint64_t p = 0; p <= rng.Below(4); ++p) {
        switch (rng.Below(4)) {
          case 0:
            b.In(pick());
            break;
          case 1:
            values.push_back(b.Out(1 + rng.Below(300)));
            break;
          default:
            values.push_back(b.InOut(pick()));
        }
      }
    }
    for (uint64_t o = 0; o < rng.Below(5); ++o) {
      b.Output(values[rng.Below(values.size())]);
    }
    b.Output({});  // A root port that is an input.
    // Values without bytes are never moved, so they cannot be followed.
    const bool has_empty =
        std::any_of(b.flat.values.begin(), b.flat.values.end(), [](const auto& v) { return v.bytes == 0; });
    const Residency plan = Plan(b.flat, devices, device_of);
    if (!has_empty) {
      Replay(b.flat, devices, plan).Run();
    }
    CheckWaits(b.flat, plan);
    if (HasFailure()) {
      return;
    }
  }
}

}  // namespace
}  // namespace hpvm::scheduler
