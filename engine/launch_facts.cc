// SPDX-License-Identifier: Apache-2.0
#include "engine/launch_facts.h"

#include <algorithm>

namespace hpvm::engine {
namespace {

uint8_t BitsOf(graph::ScalarType type) {
  return type == graph::ScalarType::kI64 || type == graph::ScalarType::kF64 ? 64 : 32;
}

ir::BoundsFacts::Param BufferParam(const graph::FlatGraph& flat, const graph::FlatPort& port) {
  return {.is_buffer = true,
          .is_writable = port.access != graph::Access::kIn,
          .value = flat.values[(port.out.valid() ? port.out : port.in).index].bytes};
}

}  // namespace

KnownLaunch FactsOf(const graph::Graph& graph, const graph::FlatGraph& flat, uint32_t node) {
  const graph::FlatNode& n = flat.nodes[node];
  const graph::Node& leaf = graph.node(n.leaf);
  KnownLaunch launch;
  launch.facts.extent = n.extent;
  for (size_t d = 0; d < 3; ++d) {
    launch.facts.group[d] = std::max<uint64_t>(n.group[d], 1);
    launch.is_extent_limit |= n.extent_port[d] >= 0;
  }
  launch.facts.params.reserve(leaf.params.size());
  for (const uint32_t param : leaf.params) {
    if (param < leaf.ports.size()) {
      launch.facts.params.push_back(BufferParam(flat, flat.ports[n.first_port + param]));
      continue;
    }
    const graph::FlatScalar& scalar = flat.scalars[n.first_scalar + param - leaf.ports.size()];
    if (scalar.input >= 0) {
      launch.unknown_params.push_back(static_cast<uint32_t>(launch.facts.params.size()));
    }
    launch.facts.params.push_back(
        {.is_buffer = false, .is_writable = false, .value = scalar.bits, .bits = BitsOf(scalar.type)});
  }
  return launch;
}

bool DependsOnTheRun(const ir::BoundsProgram& program, const KnownLaunch& launch) {
  const auto is_unknown = [&](const ir::Atom& atom) {
    return atom.kind == ir::Atom::Kind::kScalar &&
           std::find(launch.unknown_params.begin(), launch.unknown_params.end(), atom.index) !=
               launch.unknown_params.end();
  };
  return launch.is_extent_limit || std::any_of(program.atoms.begin(), program.atoms.end(), is_unknown);
}

}  // namespace hpvm::engine
