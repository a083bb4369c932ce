// SPDX-License-Identifier: Apache-2.0
#include "engine/launch_work.h"

#include <algorithm>
#include <limits>

#include "compiler/ir/work.h"
#include "engine/launch_facts.h"

namespace hpvm::engine {
namespace {

size_t EndPort(const graph::FlatGraph& flat, uint32_t node) {
  return node + 1 < flat.nodes.size() ? flat.nodes[node + 1].first_port : flat.ports.size();
}

size_t EndScalar(const graph::FlatGraph& flat, uint32_t node) {
  return node + 1 < flat.nodes.size() ? flat.nodes[node + 1].first_scalar : flat.scalars.size();
}

uint64_t BytesOf(const graph::FlatGraph& flat, size_t port) {
  const graph::FlatPort& p = flat.ports[port];
  return flat.values[(p.out.valid() ? p.out : p.in).index].bytes;
}

// Launches with other sizes or scalars usually have another hash.
uint64_t HashOfLaunch(const graph::FlatGraph& flat, uint32_t node) {
  const graph::FlatNode& n = flat.nodes[node];
  uint64_t hash = 0;
  const auto add = [&](uint64_t value) { hash = (hash ^ value) * 0x9e3779b97f4a7c15u; };
  for (const uint64_t extent : n.extent) {
    add(extent);
  }
  for (size_t scalar = n.first_scalar; scalar < EndScalar(flat, node); ++scalar) {
    add(flat.scalars[scalar].bits);
  }
  return hash >> 32;
}

bool NamesUnknown(const ir::BoundsProgram& program, const KnownLaunch& launch) {
  return !launch.unknown_params.empty() &&
         std::any_of(program.atoms.begin(), program.atoms.end(), [&](const ir::Atom& atom) {
           return atom.kind == ir::Atom::Kind::kScalar &&
                  std::find(launch.unknown_params.begin(), launch.unknown_params.end(), atom.index) !=
                      launch.unknown_params.end();
         });
}

WorkCache::Count CountOf(const Artifact& artifact, const KnownLaunch& launch) {
  WorkCache::Count count{.operations = 0, .bytes_max = std::numeric_limits<double>::max()};
  // A scalar that only a run knows may be a trip count: no count is better than one with 0 in its place.
  if (artifact.work.blocks.empty() || NamesUnknown(artifact.bounds, launch)) {
    return count;
  }
  const ir::WorkCount counted = ir::CountWork(artifact.work, artifact.bounds, launch.facts);
  count.operations = counted.operations;
  if (!counted.is_guess) {
    count.bytes_max = counted.bytes;
  }
  return count;
}

}  // namespace

bool WorkCache::IsOf(const Entry& entry, const graph::FlatGraph& flat, uint32_t node) {
  const graph::FlatNode& n = flat.nodes[node];
  const size_t end_port = EndPort(flat, node), end_scalar = EndScalar(flat, node);
  if (!entry.is_set || entry.extent != n.extent || entry.group != n.group ||
      entry.values.size() != end_port - n.first_port + end_scalar - n.first_scalar) {
    return false;
  }
  const uint64_t* next = entry.values.data();
  for (size_t port = n.first_port; port < end_port; ++port) {
    if (*next++ != BytesOf(flat, port)) {
      return false;
    }
  }
  for (size_t scalar = n.first_scalar; scalar < end_scalar; ++scalar) {
    if (*next++ != flat.scalars[scalar].bits) {
      return false;
    }
  }
  return true;
}

void WorkCache::Set(Entry& entry, const graph::Graph& graph, const graph::FlatGraph& flat, uint32_t node,
                    const Artifact& artifact) {
  const graph::FlatNode& n = flat.nodes[node];
  entry.is_set = true;
  entry.extent = n.extent;
  entry.group = n.group;
  entry.values.clear();
  for (size_t port = n.first_port; port < EndPort(flat, node); ++port) {
    entry.values.push_back(BytesOf(flat, port));
  }
  for (size_t scalar = n.first_scalar; scalar < EndScalar(flat, node); ++scalar) {
    entry.values.push_back(flat.scalars[scalar].bits);
  }
  entry.count = CountOf(artifact, FactsOf(graph, flat, node));
}

WorkCache::Count WorkCache::Of(const graph::Graph& graph, const graph::FlatGraph& flat, uint32_t node,
                               const Executable& executable) {
  std::unique_ptr<Entries>& entries = kernels_[&executable];
  if (entries == nullptr) {
    entries = std::make_unique<Entries>();
  }
  Entry& entry = (*entries)[HashOfLaunch(flat, node) % kEntries];
  if (!IsOf(entry, flat, node)) {
    Set(entry, graph, flat, node, executable.artifact());
  }
  return entry.count;
}

scheduler::Work LaunchWork::Of(graph::FlatNodeId node, uint32_t choice, const scheduler::Box& box) const {
  scheduler::Work work = ports_.Of(node, choice, box);
  const graph::FlatNode& n = flat_.nodes[node.index];
  const WorkCache::Count count = cache_.Of(graph_, flat_, node.index, *executables_[n.leaf.index][choice]);
  const double all =
      static_cast<double>(n.extent[0]) * static_cast<double>(n.extent[1]) * static_cast<double>(n.extent[2]);
  const double share = all > 0 ? std::min(static_cast<double>(work.instances) / all, 1.0) : 0;
  work.operations = count.operations * share;
  if (const double bytes = count.bytes_max * share; bytes < static_cast<double>(work.bytes)) {
    work.bytes = static_cast<uint64_t>(bytes);
  }
  return work;
}

}  // namespace hpvm::engine
