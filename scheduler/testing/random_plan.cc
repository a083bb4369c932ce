// SPDX-License-Identifier: Apache-2.0
#include "scheduler/testing/random_plan.h"

#include <algorithm>

namespace hpvm::scheduler {

using graph::Access;
using graph::FlatNodeId;
using graph::FlatPort;
using graph::FlatValueId;

FlatValueId FlatBuilder::Input(uint64_t bytes) {
  flat.values.push_back({.bytes = bytes, .shape = {}, .producer = {}, .input = inputs++});
  return FlatValueId(flat.values.size() - 1);
}

void FlatBuilder::Node() {
  graph::FlatNode node;
  node.first_port = static_cast<uint32_t>(flat.ports.size());
  flat.nodes.push_back(node);
}

void FlatBuilder::In(FlatValueId value) { flat.ports.push_back({.access = Access::kIn, .in = value, .out = {}}); }

FlatValueId FlatBuilder::Make(Access access, FlatValueId in, uint64_t bytes) {
  flat.values.push_back({.bytes = bytes, .shape = {}, .producer = FlatNodeId(flat.nodes.size() - 1)});
  const FlatValueId out(flat.values.size() - 1);
  flat.ports.push_back({.access = access, .in = in, .out = out});
  return out;
}

PortAccess TableAccesses::Of(FlatNodeId node, uint32_t choice, const Box& box, uint32_t port) const {
  const auto it = table_.find({node.index, box.first[0], port});
  return it != table_.end() ? it->second : whole_.Of(node, choice, box, port);
}

namespace {

class Generator {
 public:
  Generator(RandomPlan& plan, uint64_t seed, const RandomPlanOptions& options)
      : plan_(plan), options_(options), rng_(seed) {}

  void Run() {
    AddDevices();
    const uint64_t inputs = 1 + rng_.Below(3);
    for (uint64_t i = 0; i < inputs; ++i) {
      values_.push_back(b().Input(Size()));
    }
    const uint64_t nodes = rng_.Below(options_.nodes_max);
    for (uint64_t n = 0; n < nodes; ++n) {
      AddNode();
    }
    const uint64_t outputs = rng_.Below(5);
    for (uint64_t o = 0; o < outputs; ++o) {
      b().Output(values_[rng_.Below(values_.size())]);
    }
    b().Output({});  // A port of the root that is an input.
    if (options_.has_carries) {
      AddCarries();
    }
    if (options_.has_budgets) {
      AddBudgets();
    }
  }

 private:
  FlatBuilder& b() { return plan_.builder; }
  uint64_t Size() {
    constexpr uint64_t kSizes[] = {64, 256, 1000, 1024, 4096};
    return rng_.Below(12) == 0 ? 1 + rng_.Below(3000) : kSizes[rng_.Below(5)];
  }

  void AddDevices() {
    const std::vector<DeviceFacts> all = {{.id = "cpu:0"},
                                          {.id = "interp:0", .tier = Tier::kReference},
                                          {.id = "gpu:0", .space = 1, .is_gpu = true},
                                          {.id = "gpu:1", .space = 2, .is_gpu = true},
                                          {.id = "gpu:2", .space = 2, .is_gpu = true}};
    plan_.devices = all;
    plan_.devices.resize(1 + rng_.Below(all.size()));
    for (DeviceFacts& device : plan_.devices) {
      device.has_copy_lanes = device.is_gpu && rng_.Below(3) > 0;
    }
  }

  // Picks one of the first `known` values; half the time one of the last few of them, so that chains form.
  FlatValueId Pick(size_t known) {
    return values_[rng_.Below(2) == 0 ? rng_.Below(known) : known - 1 - rng_.Below(std::min<size_t>(known, 3))];
  }

  ByteRange Range(uint64_t begin, uint64_t end) {
    if (end <= begin) {
      return {};
    }
    const uint64_t a = begin + rng_.Below(end - begin);
    return {a, a + 1 + rng_.Below(end - a)};
  }

  void AddNode() {
    const size_t known = values_.size();
    b().Node();
    const FlatNodeId node(b().flat.nodes.size() - 1);
    const uint32_t begin = b().flat.nodes.back().first_port;
    const uint64_t ports = 1 + rng_.Below(4);
    for (uint64_t p = 0; p < ports; ++p) {
      switch (rng_.Below(4)) {
        case 0:
          b().In(Pick(known));
          break;
        case 1:
          values_.push_back(b().Out(Size()));
          break;
        case 2:
          if (rng_.Below(4) == 0) {
            // An `out` port that continues an earlier replica's output.
            const FlatValueId earlier = Pick(known);
            values_.push_back(b().Make(Access::kOut, earlier, b().flat.values[earlier.index].bytes));
            break;
          }
          [[fallthrough]];
        default:
          values_.push_back(b().InOut(Pick(known)));
      }
    }
    const uint64_t parts = options_.has_ranges && rng_.Below(3) == 0 ? 2 + rng_.Below(2) : 1;
    for (uint64_t part = 0; part < parts; ++part) {
      Task task{.node = node, .device = static_cast<DeviceIndex>(rng_.Below(plan_.devices.size())), .box = {}};
      task.box.first[0] = part;
      task.is_part = parts > 1;
      clock_ += static_cast<int64_t>(rng_.Below(40'000));
      task.start = Duration(clock_);
      task.end = Duration(clock_ + static_cast<int64_t>(rng_.Below(100'000)));
      plan_.tasks.push_back(task);
    }
    for (uint32_t port = begin; port < b().flat.ports.size() && options_.has_ranges; ++port) {
      SetAccesses(node, port, parts);
    }
  }

  // Parts write to slices of the buffer, and read within their own slice, too.
  void SetAccesses(FlatNodeId node, uint32_t port, uint64_t parts) {
    const FlatPort& p = b().flat.ports[port];
    const uint64_t bytes = b().flat.values[(p.out.valid() ? p.out : p.in).index].bytes;
    const bool is_partial = parts > 1 || rng_.Below(3) == 0;
    for (uint64_t part = 0; part < parts && is_partial; ++part) {
      const uint64_t begin = bytes * part / parts, end = bytes * (part + 1) / parts;
      const bool is_whole = rng_.Below(2) == 0;
      PortAccess access;
      if (!p.out.valid()) {
        access.read = is_whole ? ByteRange{0, bytes} : Range(0, bytes);
      } else {
        access.written = is_whole ? ByteRange{begin, end} : Range(begin, end);
        access.overwrites = rng_.Below(2) == 0;
        if (!access.overwrites && p.access == Access::kInOut) {
          access.read = Range(begin, end);
        }
      }
      plan_.accesses.Set(node, part, port, access);
    }
  }

  void AddCarries() {
    const graph::FlatGraph& flat = b().flat;
    for (uint32_t v = 0; v < flat.values.size(); ++v) {
      for (uint32_t k = 0; k < flat.outputs.size() && !flat.values[v].producer.valid(); ++k) {
        const bool is_used = std::any_of(plan_.carries.begin(), plan_.carries.end(),
                                         [&](const Carry& carry) { return carry.output == k; });
        if (!is_used && flat.outputs[k].valid() && flat.values[flat.outputs[k].index].bytes == flat.values[v].bytes &&
            rng_.Below(4) > 0) {
          plan_.carries.push_back({.output = k, .input = flat.values[v].input});
          break;
        }
      }
    }
    for (uint32_t k = 0; k < flat.outputs.size(); ++k) {
      if (flat.outputs[k].valid() && rng_.Below(3) == 0) {
        plan_.on_host.push_back(k);
      }
    }
  }

  // Room for the buffers of any one task, and some more; a disk below all spaces.
  void AddBudgets() {
    uint64_t largest = 4096;
    for (const Task& task : plan_.tasks) {
      const uint32_t begin = b().flat.nodes[task.node.index].first_port;
      const uint32_t end = task.node.index + 1 < b().flat.nodes.size() ? b().flat.nodes[task.node.index + 1].first_port
                                                                       : static_cast<uint32_t>(b().flat.ports.size());
      uint64_t bytes = 0;
      for (uint32_t port = begin; port < end; ++port) {
        const FlatPort& p = b().flat.ports[port];
        bytes += (b().flat.values[(p.out.valid() ? p.out : p.in).index].bytes + 511) / 512 * 512;
      }
      largest = std::max(largest, bytes);
    }
    SpaceIndex spaces = 1;
    for (const DeviceFacts& device : plan_.devices) {
      spaces = std::max(spaces, device.space + 1);
    }
    plan_.spaces.resize(spaces + 1);
    plan_.devices.push_back({.id = "disk", .space = spaces, .has_copy_lanes = true});
    for (SpaceIndex space = 0; space < spaces; ++space) {
      SpaceFacts& facts = plan_.spaces[space];
      facts.bytes_max = largest * (space == 0 ? 3 : 1) + rng_.Below(3) * 2048;
      facts.overflow = space == kHostSpace ? spaces : kHostSpace;
      if (rng_.Below(3) == 0) {
        facts.piece_bytes_max = largest;
      }
      for (DeviceIndex d = static_cast<DeviceIndex>(plan_.devices.size()); d-- > 0;) {
        facts.mover = plan_.devices[d].space == space ? d : facts.mover;
      }
    }
    plan_.spaces[spaces].mover = static_cast<DeviceIndex>(plan_.devices.size() - 1);
  }

  RandomPlan& plan_;
  const RandomPlanOptions& options_;
  SeededRng rng_;
  std::vector<FlatValueId> values_;
  int64_t clock_ = 0;
};

}  // namespace

RandomPlan::RandomPlan(uint64_t seed, const RandomPlanOptions& options) : accesses(builder.flat) {
  Generator(*this, seed, options).Run();
}

ResidencyInput RandomPlan::input() const {
  return {.flat = builder.flat,
          .devices = devices,
          .spaces = spaces,
          .tasks = tasks,
          .accesses = accesses,
          .carries = carries,
          .on_host = on_host};
}

}  // namespace hpvm::scheduler
