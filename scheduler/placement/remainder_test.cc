// SPDX-License-Identifier: Apache-2.0
#include "scheduler/placement/remainder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace hpvm::scheduler {
namespace {

using graph::Access;
using graph::FlatGraph;
using graph::FlatNodeId;
using graph::FlatValueId;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Builds flat graphs node by node.
class Flat {
 public:
  FlatValueId Input() {
    graph::FlatValue value;
    value.bytes = 8;
    value.input = inputs_++;
    flat_.values.push_back(value);
    return FlatValueId(flat_.values.size() - 1);
  }
  void Node(uint32_t leaf) {
    flat_.nodes.push_back({.leaf = graph::NodeId(leaf),
                           .first_port = static_cast<uint32_t>(flat_.ports.size()),
                           .first_scalar = static_cast<uint32_t>(flat_.scalars.size())});
    flat_.scalars.push_back({.bits = leaf});
  }
  void In(FlatValueId value, bool is_one_to_one = false) {
    flat_.ports.push_back({.access = Access::kIn, .in = value, .out = {}, .is_one_to_one = is_one_to_one});
  }
  FlatValueId Out() { return Make({.access = Access::kOut, .in = {}, .out = {}}); }
  FlatValueId InOut(FlatValueId value) { return Make({.access = Access::kInOut, .in = value, .out = {}}); }
  void Output(FlatValueId value) { flat_.outputs.push_back(value); }
  FlatGraph& flat() { return flat_; }

 private:
  FlatValueId Make(graph::FlatPort port) {
    const uint32_t node = static_cast<uint32_t>(flat_.nodes.size() - 1);
    graph::FlatValue value;
    value.bytes = 8;
    value.producer = FlatNodeId(node);
    value.producer_port = static_cast<uint32_t>(flat_.ports.size() - flat_.nodes[node].first_port);
    flat_.values.push_back(value);
    port.out = FlatValueId(flat_.values.size() - 1);
    flat_.ports.push_back(port);
    return port.out;
  }

  FlatGraph flat_;
  uint32_t inputs_ = 0;
};

uint32_t EndPort(const FlatGraph& flat, size_t node) {
  return node + 1 < flat.nodes.size() ? flat.nodes[node + 1].first_port : static_cast<uint32_t>(flat.ports.size());
}

// Evaluates each value as a number that depends on everything it was made from. `given` is indexed by FlatValue::input.
std::vector<uint64_t> Evaluate(const FlatGraph& flat, const std::vector<uint64_t>& given) {
  std::vector<uint64_t> values(flat.values.size());
  for (size_t v = 0; v < values.size(); ++v) {
    if (!flat.values[v].producer.valid()) {
      values[v] = given.at(flat.values[v].input);
    }
  }
  for (size_t node = 0; node < flat.nodes.size(); ++node) {
    uint64_t hash = flat.nodes[node].leaf.index * 1000 + flat.scalars.at(flat.nodes[node].first_scalar).bits;
    for (uint32_t port = flat.nodes[node].first_port; port < EndPort(flat, node); ++port) {
      if (flat.ports[port].in.valid()) {
        hash = (hash ^ values[flat.ports[port].in.index]) * 0x9e3779b97f4a7c15u;
      }
    }
    for (uint32_t port = flat.nodes[node].first_port; port < EndPort(flat, node); ++port) {
      if (const FlatValueId out = flat.ports[port].out; out.valid()) {
        EXPECT_EQ(flat.values[out.index].producer.index, node);
        EXPECT_EQ(flat.nodes[node].first_port + flat.values[out.index].producer_port, port);
        values[out.index] = hash + port - flat.nodes[node].first_port;
      }
    }
  }
  return values;
}

// a -> b -> c, and d from a and c: with b's value kept, b is omitted and c reads its value as an input.
TEST(RemainderTest, KeptValuesBecomeInputs) {
  Flat f;
  const FlatValueId x = f.Input();
  f.Node(0);
  const FlatValueId a = f.InOut(x);
  f.Node(1);
  f.In(a);
  const FlatValueId b = f.Out();
  f.Node(2);
  f.In(b, /*is_one_to_one=*/true);
  const FlatValueId c = f.Out();
  f.Node(3);
  f.In(a, /*is_one_to_one=*/true);
  f.In(c, /*is_one_to_one=*/true);
  const FlatValueId d = f.Out();
  f.Output(FlatValueId());
  f.Output(d);
  std::vector<bool> kept(f.flat().values.size());
  kept[b.index] = true;
  const Remainder rest = BuildRemainder(f.flat(), kept, 7);
  EXPECT_THAT(rest.node_of, ElementsAre(0u, 2u, 3u));
  EXPECT_THAT(rest.kept, ElementsAre(b));
  ASSERT_EQ(rest.flat.nodes.size(), 3u);
  const FlatValueId held = rest.flat.ports[rest.flat.nodes[1].first_port].in;
  EXPECT_FALSE(rest.flat.values[held.index].producer.valid());
  EXPECT_EQ(rest.flat.values[held.index].input, 7u);
  // Input values have no instances that could become ready one by one.
  EXPECT_FALSE(rest.flat.ports[rest.flat.nodes[1].first_port].is_one_to_one);
  EXPECT_TRUE(rest.flat.ports[rest.flat.nodes[2].first_port].is_one_to_one);
  EXPECT_FALSE(rest.flat.outputs[0].valid());
  EXPECT_EQ(rest.flat.values[rest.flat.outputs[1].index].producer.index, 2u);
}

// Nothing remains: outputs are kept, or are inputs.
TEST(RemainderTest, NothingIsLeft) {
  Flat f;
  const FlatValueId x = f.Input();
  f.Node(0);
  f.In(x);
  const FlatValueId a = f.Out();
  f.Output(a);
  f.Output(x);
  std::vector<bool> kept(f.flat().values.size());
  kept[a.index] = true;
  const Remainder rest = BuildRemainder(f.flat(), kept, 1);
  EXPECT_THAT(rest.node_of, IsEmpty());
  EXPECT_THAT(rest.kept, ElementsAre(a));
  EXPECT_EQ(rest.flat.values[rest.flat.outputs[0].index].input, 1u);
  EXPECT_EQ(rest.flat.values[rest.flat.outputs[1].index].input, 0u);
}

// A random graph whose values are kept at random gives the same outputs, and runs only nodes that make a value that is
// needed and not kept.
TEST(RemainderTest, RandomGraphsGiveTheSame) {
  for (uint32_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Flat f;
    std::vector<FlatValueId> values = {f.Input(), f.Input()};
    const auto any = [&] { return values[random() % values.size()]; };
    const uint32_t nodes = 1 + random() % 12;
    for (uint32_t node = 0; node < nodes; ++node) {
      f.Node(node);
      for (uint32_t i = random() % 3; i-- > 0;) {
        f.In(any(), random() % 2 == 0);
      }
      std::vector<FlatValueId> made;
      for (uint32_t i = 1 + random() % 2; i-- > 0;) {
        made.push_back(random() % 2 == 0 ? f.InOut(any()) : f.Out());
      }
      values.insert(values.end(), made.begin(), made.end());
    }
    for (uint32_t i = 1 + random() % 3; i-- > 0;) {
      f.Output(any());
    }
    std::vector<bool> kept(f.flat().values.size());
    for (size_t v = 0; v < kept.size(); ++v) {
      kept[v] = random() % 3 == 0;
    }
    std::vector<uint64_t> given = {11, 22};
    const std::vector<uint64_t> whole = Evaluate(f.flat(), given);
    const Remainder rest = BuildRemainder(f.flat(), kept, 2);
    for (const FlatValueId value : rest.kept) {
      EXPECT_TRUE(kept[value.index]);
      given.push_back(whole[value.index]);
    }
    const std::vector<uint64_t> values_left = Evaluate(rest.flat, given);
    ASSERT_EQ(rest.flat.outputs.size(), f.flat().outputs.size());
    for (size_t k = 0; k < rest.flat.outputs.size(); ++k) {
      EXPECT_EQ(values_left[rest.flat.outputs[k].index], whole[f.flat().outputs[k].index]);
    }
    std::vector<bool> is_used(rest.flat.values.size());
    for (const FlatValueId value : rest.flat.outputs) {
      is_used[value.index] = true;
    }
    for (const graph::FlatPort& port : rest.flat.ports) {
      if (port.in.valid()) {
        is_used[port.in.index] = true;
      }
    }
    for (size_t node = 0; node < rest.flat.nodes.size(); ++node) {
      bool is_needed = false;
      const graph::FlatNode& old = f.flat().nodes[rest.node_of[node]];
      for (uint32_t port = rest.flat.nodes[node].first_port; port < EndPort(rest.flat, node); ++port) {
        const FlatValueId out = rest.flat.ports[port].out;
        const uint32_t was = old.first_port + port - rest.flat.nodes[node].first_port;
        is_needed |= out.valid() && is_used[out.index] && !kept[f.flat().ports[was].out.index];
      }
      EXPECT_TRUE(is_needed) << rest.node_of[node];
    }
  }
}

}  // namespace
}  // namespace hpvm::scheduler
