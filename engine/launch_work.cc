// SPDX-License-Identifier: Apache-2.0
#include "engine/launch_work.h"

#include <algorithm>
#include <limits>

#include "compiler/ir/work.h"
#include "engine/launch_facts.h"

namespace hpvm {
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
  // A scalar that only a run knows may be how often a loop runs: nothing is better than a count with 0 in its place.
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

bool WorkCache::IsLast(const Leaf& leaf, const graph::FlatGraph& flat, uint32_t node) const {
  const graph::FlatNode& n = flat.nodes[node];
  if (!leaf.is_set || leaf.extent != n.extent || leaf.group != n.group) {
    return false;
  }
  size_t next = 0;
  for (size_t port = n.first_port; port < EndPort(flat, node); ++port) {
    if (leaf.values[next++] != BytesOf(flat, port)) {
      return false;
    }
  }
  for (size_t scalar = n.first_scalar; scalar < EndScalar(flat, node); ++scalar) {
    if (leaf.values[next++] != flat.scalars[scalar].bits) {
      return false;
    }
  }
  return true;
}

void WorkCache::Set(Leaf& leaf, const graph::Graph& graph, const graph::FlatGraph& flat, uint32_t node,
                    std::span<Executable* const> candidates) {
  const graph::FlatNode& n = flat.nodes[node];
  leaf.is_set = true;
  leaf.extent = n.extent;
  leaf.group = n.group;
  leaf.values.clear();
  for (size_t port = n.first_port; port < EndPort(flat, node); ++port) {
    leaf.values.push_back(BytesOf(flat, port));
  }
  for (size_t scalar = n.first_scalar; scalar < EndScalar(flat, node); ++scalar) {
    leaf.values.push_back(flat.scalars[scalar].bits);
  }
  const KnownLaunch launch = FactsOf(graph, flat, node);
  leaf.counts.clear();
  for (const Executable* candidate : candidates) {
    leaf.counts.push_back(CountOf(candidate->artifact(), launch));
  }
}

WorkCache::Count WorkCache::Of(const graph::Graph& graph, const graph::FlatGraph& flat, uint32_t node,
                               std::span<Executable* const> candidates, uint32_t choice) {
  const uint32_t index = flat.nodes[node].leaf.index;
  if (leaves_.size() <= index) {
    leaves_.resize(graph.nodes.size());
  }
  Leaf& leaf = leaves_[index];
  if (!IsLast(leaf, flat, node)) {
    Set(leaf, graph, flat, node, candidates);
  }
  return leaf.counts[choice];
}

scheduler::Work LaunchWork::Of(graph::FlatNodeId node, uint32_t choice, const scheduler::Box& box) const {
  scheduler::Work work = ports_.Of(node, choice, box);
  const graph::FlatNode& n = flat_.nodes[node.index];
  const WorkCache::Count count = cache_.Of(graph_, flat_, node.index, executables_[n.leaf.index], choice);
  const double all =
      static_cast<double>(n.extent[0]) * static_cast<double>(n.extent[1]) * static_cast<double>(n.extent[2]);
  const double share = all > 0 ? std::min(static_cast<double>(work.instances) / all, 1.0) : 0;
  work.operations = count.operations * share;
  if (const double bytes = count.bytes_max * share; bytes < static_cast<double>(work.bytes)) {
    work.bytes = static_cast<uint64_t>(bytes);
  }
  return work;
}

}  // namespace hpvm
