// SPDX-License-Identifier: Apache-2.0
#include "tests/schedsim/kernels.h"

#include <algorithm>

namespace hpvm::schedsim {

using graph::Access;
using graph::FlatGraph;
using graph::FlatNodeId;
using graph::FlatPort;
using graph::FlatValueId;
using scheduler::ByteRange;
using scheduler::DeviceFacts;
using scheduler::PortAccess;

uint32_t PortsEnd(const FlatGraph& flat, uint32_t node) {
  return node + 1 < flat.nodes.size() ? flat.nodes[node + 1].first_port : static_cast<uint32_t>(flat.ports.size());
}

namespace {

uint64_t BytesOf(const FlatGraph& flat, const FlatPort& port) {
  return flat.values[(port.out.valid() ? port.out : port.in).index].bytes;
}

ByteRange RowsOf(uint64_t bytes, uint64_t extent, uint64_t first, uint64_t count) {
  const auto at = [&](uint64_t row) { return row >= extent ? bytes : bytes / extent * row; };
  return extent == 0 ? ByteRange{} : ByteRange{at(first), at(first + count)};
}

}  // namespace

PortAccess SimAccesses::Of(FlatNodeId node, uint32_t choice, const scheduler::Box& box, uint32_t port) const {
  const graph::FlatNode& n = flat_.nodes[node.index];
  const SimPort& sim = kernels_[n.leaf.index].ports[port - n.first_port];
  const FlatPort& p = flat_.ports[port];
  const uint64_t bytes = BytesOf(flat_, p), extent = n.extent[0];
  const ByteRange rows = RowsOf(bytes, extent, box.first[0], box.count[0]);
  PortAccess access;
  ByteRange range{0, bytes};
  if (sim.pattern == Pattern::kRows) {
    range = rows;
  } else if (sim.pattern == Pattern::kHalo) {
    const uint64_t row = bytes / std::max<uint64_t>(extent, 1);
    range = {rows.begin - std::min(rows.begin, row), std::min(bytes, rows.end + row)};
  } else if (sim.pattern == Pattern::kFixed) {
    range = {bytes / 4, bytes - bytes / 4};
  }
  access.read = p.access == Access::kOut ? ByteRange{} : range;
  access.written = p.access == Access::kIn ? ByteRange{} : range;
  access.overwrites = p.access != Access::kIn && sim.overwrites;
  access.read = access.overwrites ? ByteRange{} : access.read;
  return access;
}

bool SimAccesses::MayCut(FlatNodeId node, uint32_t choice, uint32_t* dimension, uint64_t* grain) const {
  const graph::FlatNode& n = flat_.nodes[node.index];
  const SimKernel& kernel = kernels_[n.leaf.index];
  *dimension = 0;
  *grain = kernel.grain;
  return kernel.may_cut && n.extent[0] > kernel.grain;
}

SimMachine MakeMachine(Rng& rng) {
  SimMachine machine;
  machine.devices.push_back(
      {.id = "cpu:0", .compute_units = 4, .lanes = rng.Below(2) == 0 ? 1u : 1u + static_cast<uint32_t>(rng.Below(8))});
  const uint64_t more = rng.Below(6);
  scheduler::SpaceIndex spaces = 1;
  uint32_t silicon = 1;
  for (uint64_t i = 0; i < more; ++i) {
    DeviceFacts device{.id = "gpu:" + std::to_string(i), .compute_units = 100, .is_gpu = true};
    const bool has_twin = spaces > 1 && rng.Below(4) == 0;
    device.silicon = has_twin ? silicon - 1 : silicon++;
    device.space = has_twin && rng.Below(2) == 0 ? spaces - 1 : spaces++;
    device.has_copy_lanes = rng.Below(3) > 0;
    device.tier = rng.Below(12) == 0 ? scheduler::Tier::kEmulated : scheduler::Tier::kReal;
    machine.devices.push_back(device);
  }
  machine.computing = static_cast<uint32_t>(machine.devices.size());
  return machine;
}

namespace {

class GraphMaker {
 public:
  GraphMaker(Rng& rng, const SimMachine& machine) : rng_(rng), machine_(machine) {}

  SimGraph Make() {
    MakeKernels();
    const uint64_t inputs = 1 + rng_.Below(4);
    for (uint64_t i = 0; i < inputs; ++i) {
      flat().values.push_back({.bytes = Size(), .shape = {}, .producer = {}, .input = static_cast<uint32_t>(i)});
      values_.push_back(FlatValueId(flat().values.size() - 1));
    }
    const uint64_t scale = rng_.Below(100);
    const uint64_t nodes = scale < 50   ? 1 + rng_.Below(12)
                           : scale < 90 ? 1 + rng_.Below(80)
                           : scale < 99 ? 1 + rng_.Below(400)
                                        : 1 + rng_.Below(3'000);
    window_ = rng_.Below(3) == 0 ? 3 : rng_.Below(2) == 0 ? 12 : 100'000;  // Chains, bands, any graph.
    for (uint64_t n = 0; n < nodes; ++n) {
      AddNode();
    }
    const uint64_t outputs = 1 + rng_.Below(5);
    for (uint64_t o = 0; o < outputs; ++o) {
      flat().outputs.push_back(values_[values_.size() - 1 - rng_.Below(std::min<size_t>(values_.size(), 6))]);
    }
    if (rng_.Below(5) == 0) {
      AddCarries();
    }
    return std::move(graph_);
  }

 private:
  FlatGraph& flat() { return graph_.flat; }
  uint64_t Size() {
    constexpr uint64_t kSizes[] = {4096, 65'536, 65'536, 1'000'000, 4'194'304};
    return rng_.Below(10) == 0 ? 1 + rng_.Below(10'000) : kSizes[rng_.Below(5)];
  }

  void MakeKernels() {
    const uint64_t count = 1 + rng_.Below(6);
    for (uint64_t k = 0; k < count; ++k) {
      SimKernel& kernel = graph_.kernels.emplace_back();
      const bool by_rows = rng_.Below(2) == 0;
      const uint64_t ports = 1 + rng_.Below(4);
      for (uint64_t p = 0; p < ports; ++p) {
        SimPort port;
        port.access = static_cast<Access>(rng_.Below(3));
        constexpr Pattern kReads[] = {Pattern::kWhole, Pattern::kRows, Pattern::kHalo, Pattern::kFixed};
        port.pattern = port.access == Access::kIn ? kReads[rng_.Below(4)]
                       : by_rows                  ? Pattern::kRows
                       : rng_.Below(3) == 0       ? Pattern::kFixed
                                                  : Pattern::kWhole;
        port.overwrites = port.access != Access::kIn && rng_.Below(2) == 0;
        kernel.ports.push_back(port);
      }
      // For other kernels the parts write the same bytes, so they must not be split.
      kernel.may_cut = rng_.Below(by_rows ? 3 : 9) > (by_rows ? 0 : 6);
      kernel.grain = uint64_t{1} << rng_.Below(4);
      AddCandidates();
    }
  }

  void AddCandidates() {
    std::vector<scheduler::Candidate>& candidates = graph_.candidates.emplace_back();
    for (uint32_t d = 0; d < machine_.computing; ++d) {
      if (rng_.Below(5) > 0) {
        candidates.push_back({.device = d, .hint = rng_.Below(20) == 0 ? 0u : scheduler::Candidate::kNoHint});
      }
    }
    if (candidates.empty()) {
      candidates.push_back({.device = static_cast<uint32_t>(rng_.Below(machine_.computing))});
    }
  }

  FlatValueId Pick(size_t known) { return values_[known - 1 - rng_.Below(std::min<size_t>(known, window_))]; }

  void AddNode() {
    const size_t known = values_.size();
    const auto kernel = static_cast<uint32_t>(rng_.Below(graph_.kernels.size()));
    graph::FlatNode node;
    node.leaf = graph::NodeId(kernel);
    node.first_port = static_cast<uint32_t>(flat().ports.size());
    constexpr uint64_t kExtents[] = {1, 8, 64, 1'000, 4'096};
    node.extent = {kExtents[rng_.Below(5)], 1, 1};
    flat().nodes.push_back(node);
    const FlatNodeId id(flat().nodes.size() - 1);
    for (const SimPort& port : graph_.kernels[kernel].ports) {
      FlatPort p{.access = port.access, .in = {}, .out = {}};
      // An `out` port sometimes continues what an earlier replica wrote.
      if (port.access != Access::kOut || rng_.Below(10) == 0) {
        p.in = Pick(known);
        const FlatNodeId producer = flat().values[p.in.index].producer;
        p.is_one_to_one = port.access != Access::kOut && producer.valid() &&
                          flat().nodes[producer.index].extent == node.extent && rng_.Below(2) == 0;
      }
      if (port.access != Access::kIn) {
        const uint64_t bytes = p.in.valid() ? flat().values[p.in.index].bytes : Size();
        flat().values.push_back({.bytes = bytes, .shape = {}, .producer = id});
        p.out = FlatValueId(flat().values.size() - 1);
        values_.push_back(p.out);
      }
      flat().ports.push_back(p);
      // Data-dependent: an input determines the number of instances.
      if (port.access == Access::kIn && rng_.Below(20) == 0) {
        flat().nodes[id.index].extent_port[0] = static_cast<int32_t>(flat().ports.size() - 1 - node.first_port);
      }
    }
  }

  void AddCarries() {
    for (uint32_t v = 0; v < flat().values.size() && !flat().values[v].producer.valid(); ++v) {
      for (uint32_t k = 0; k < flat().outputs.size(); ++k) {
        const bool is_used = std::any_of(graph_.carries.begin(), graph_.carries.end(),
                                         [&](const scheduler::Carry& carry) { return carry.output == k; });
        if (!is_used && flat().values[flat().outputs[k].index].bytes == flat().values[v].bytes) {
          graph_.carries.push_back({.output = k, .input = flat().values[v].input});
          break;
        }
      }
    }
    if (!graph_.carries.empty() && rng_.Below(2) == 0) {
      graph_.on_host.push_back(static_cast<uint32_t>(rng_.Below(flat().outputs.size())));
    }
  }

  Rng& rng_;
  const SimMachine& machine_;
  SimGraph graph_;
  std::vector<FlatValueId> values_;
  size_t window_ = 0;
};

}  // namespace

SimGraph MakeGraph(Rng& rng, const SimMachine& machine) { return GraphMaker(rng, machine).Make(); }

uint64_t Footprint(const FlatGraph& flat, uint32_t node) {
  uint64_t bytes = 0;
  for (uint32_t port = flat.nodes[node].first_port; port < PortsEnd(flat, node); ++port) {
    bytes += (BytesOf(flat, flat.ports[port]) + scheduler::kStorageAlignment - 1) / scheduler::kStorageAlignment *
             scheduler::kStorageAlignment;
  }
  return bytes;
}

void LimitMemory(Rng& rng, const SimGraph& graph, SimMachine* machine) {
  uint64_t largest = 4096;
  for (uint32_t node = 0; node < graph.flat.nodes.size(); ++node) {
    largest = std::max(largest, Footprint(graph.flat, node));
  }
  scheduler::SpaceIndex disk = 1;
  for (const DeviceFacts& device : machine->devices) {
    disk = std::max(disk, device.space + 1);
  }
  machine->devices.push_back({.id = "disk", .space = disk, .silicon = 1'000, .has_copy_lanes = true});
  machine->spaces.resize(disk + 1);
  for (scheduler::SpaceIndex space = 0; space < disk; ++space) {
    scheduler::SpaceFacts& facts = machine->spaces[space];
    // Copies between other spaces also pass through host memory.
    facts.bytes_max = largest * (space == 0 ? 4 : 1) + rng.Below(4) * largest / 2;
    if (rng.Below(12) == 0) {
      facts.bytes_max = largest / (2 + rng.Below(3));  // Too little for some launches.
    }
    if (rng.Below(4) == 0) {
      facts.piece_bytes_max =
          (largest + rng.Below(2) * largest / 2) / scheduler::kStorageAlignment * scheduler::kStorageAlignment;
    }
    facts.overflow = space == scheduler::kHostSpace ? disk : scheduler::kHostSpace;
  }
  for (auto d = static_cast<uint32_t>(machine->devices.size()); d-- > 0;) {
    machine->spaces[machine->devices[d].space].mover = d;
  }
}

}  // namespace hpvm::schedsim
