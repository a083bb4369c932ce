// SPDX-License-Identifier: Apache-2.0
#include "engine/access.h"

#include <algorithm>
#include <limits>

#include "compiler/ir/access.h"
#include "engine/launch_facts.h"

namespace hpvm::engine {
namespace {

using scheduler::Box;
using scheduler::ByteRange;
using scheduler::PortAccess;

constexpr uint32_t kNoKind = 0xffffffffu;

bool HasLateExtent(const graph::FlatNode& node) {
  return std::any_of(node.extent_port.begin(), node.extent_port.end(), [](int32_t port) { return port >= 0; });
}

uint64_t BytesOf(const graph::FlatGraph& flat, const graph::FlatPort& port) {
  return flat.values[(port.out.valid() ? port.out : port.in).index].bytes;
}

// Returns all accesses that the port's direction allows. Content from an earlier replica is kept, so it counts as
// read.
PortAccess WholePort(const graph::FlatGraph& flat, const graph::FlatPort& port) {
  const ByteRange whole{0, BytesOf(flat, port)};
  PortAccess access;
  access.read = port.in.valid() ? whole : ByteRange();
  access.written = port.out.valid() ? whole : ByteRange();
  return access;
}

bool Covers(const ByteRange& outer, const ByteRange& inner) {
  return inner.is_empty() || (outer.begin <= inner.begin && inner.end <= outer.end);
}

ByteRange RangeOf(const ir::AccessRange& range) {
  return range.is_empty() ? ByteRange() : ByteRange{range.begin, range.end};
}

}  // namespace

GraphAccesses::GraphAccesses(const PreparedGraph& prepared, const graph::FlatGraph& flat)
    : prepared_(prepared), flat_(flat), kinds_(flat.nodes.size(), kNoKind) {}

size_t GraphAccesses::HashKey::operator()(const Key& key) const {
  uint64_t hash = 0x9e3779b97f4a7c15u;
  for (const uint64_t word : key) {
    hash = (hash ^ word) * 0xff51afd7ed558ccdu;
    hash ^= hash >> 32;
  }
  return hash;
}

PortAccess GraphAccesses::Of(graph::FlatNodeId node, uint32_t choice, const Box& box, uint32_t port) const {
  if (last_node_ != node.index || last_choice_ != choice || last_box_ != box) {
    last_first_ = Find(node.index, choice, box, kAccessEvaluationsMax);
    last_node_ = node.index;
    last_choice_ = choice;
    last_box_ = box;
  }
  return last_first_ == kNoKind ? WholePort(flat_, flat_.ports[port])
                                : accesses_[last_first_ + port - flat_.nodes[node.index].first_port];
}

void GraphAccesses::Admit(std::span<const scheduler::Task> tasks) const {
  for (const scheduler::Task& task : tasks) {
    if (task.is_part) {
      Find(task.node.index, task.choice, task.box, std::numeric_limits<size_t>::max());
    }
  }
}

uint32_t GraphAccesses::Find(uint32_t node, uint32_t choice, const Box& box, size_t most) const {
  const uint32_t kind = KindOf(node);
  scratch_.assign({uint64_t{kind} << 32 | choice, box.first[0], box.first[1], box.first[2], box.count[0], box.count[1],
                   box.count[2]});
  const auto known = found_.find(scratch_);
  if (known != found_.end()) {
    return known->second;
  }
  if (found_.size() >= most) {
    return kNoKind;
  }
  const uint32_t first = static_cast<uint32_t>(accesses_.size());
  found_.emplace(scratch_, first);
  accesses_.resize(first + prepared_.graph.node(flat_.nodes[node].leaf).ports.size());
  Evaluate(node, choice, box, accesses_.data() + first);
  return first;
}

void GraphAccesses::Evaluate(uint32_t node, uint32_t choice, const Box& box, PortAccess* out) const {
  const graph::FlatNode& n = flat_.nodes[node];
  const graph::Node& leaf = prepared_.graph.node(n.leaf);
  for (uint32_t port = 0; port < leaf.ports.size(); ++port) {
    out[port] = WholePort(flat_, flat_.ports[n.first_port + port]);
  }
  const ir::BoundsProgram& program = prepared_.executables[n.leaf.index][choice]->artifact().bounds;
  const KnownLaunch launch = FactsOf(prepared_.graph, flat_, node);
  std::vector<ir::ParamAccess> found;
  if (DependsOnTheRun(program, launch) ||
      !ir::FindAccesses(program, launch.facts, {.first = box.first, .count = box.count}, &found)) {
    return;
  }
  for (size_t param = 0; param < leaf.params.size() && param < found.size(); ++param) {
    if (leaf.params[param] >= leaf.ports.size()) {
      continue;
    }
    const graph::FlatPort& port = flat_.ports[n.first_port + leaf.params[param]];
    PortAccess& access = out[leaf.params[param]];
    access.read = RangeOf(found[param].read);
    access.written = port.out.valid() ? RangeOf(found[param].written) : ByteRange();
    access.overwrites = found[param].overwrites;
    // Without an earlier value, the kernel reads zeros, which have to be there, or what it has written itself.
    if (!port.in.valid() && access.overwrites && Covers(access.written, access.read)) {
      access.read = ByteRange();
    }
  }
}

uint32_t GraphAccesses::KindOf(uint32_t node) const {
  uint32_t& kind = kinds_[node];
  if (kind != kNoKind) {
    return kind;
  }
  const graph::FlatNode& n = flat_.nodes[node];
  const graph::Node& leaf = prepared_.graph.node(n.leaf);
  const std::vector<bool>& named = NamedScalars(n.leaf);
  scratch_.assign({n.leaf.index, n.extent[0], n.extent[1], n.extent[2], n.group[0], n.group[1], n.group[2]});
  for (size_t i = 0; i < leaf.ports.size(); ++i) {
    const graph::FlatPort& port = flat_.ports[n.first_port + i];
    scratch_.push_back(BytesOf(flat_, port) << 1 | (port.in.valid() ? 1 : 0));
  }
  for (size_t i = 0; i < leaf.scalars.size(); ++i) {
    if (named[i]) {
      scratch_.push_back(flat_.scalars[n.first_scalar + i].bits);
    }
  }
  kind = kind_by_key_.try_emplace(scratch_, static_cast<uint32_t>(kind_by_key_.size())).first->second;
  return kind;
}

const std::vector<bool>& GraphAccesses::NamedScalars(graph::NodeId leaf) const {
  const auto [it, is_new] = named_scalars_.try_emplace(leaf.index);
  if (is_new) {
    const graph::Node& node = prepared_.graph.node(leaf);
    it->second.resize(node.scalars.size());
    for (const Executable* executable : prepared_.executables[leaf.index]) {
      for (const ir::Atom& atom : executable->artifact().bounds.atoms) {
        if (atom.kind == ir::Atom::Kind::kScalar && atom.index < node.params.size() &&
            node.params[atom.index] >= node.ports.size()) {
          it->second[node.params[atom.index] - node.ports.size()] = true;
        }
      }
    }
  }
  return it->second;
}

bool GraphAccesses::MayCut(graph::FlatNodeId node, uint32_t choice, uint32_t* dimension, uint64_t* grain) const {
  const graph::FlatNode& n = flat_.nodes[node.index];
  // A check must see all instances.
  if (prepared_.is_checked || HasLateExtent(n) || !RunsParts(*prepared_.executables[n.leaf.index][choice])) {
    return false;
  }
  for (uint32_t d = 3; d-- > 0;) {
    if (n.extent[d] > 1) {
      *dimension = d;
      *grain = std::max<uint64_t>(n.group[d], 1);
      return true;
    }
  }
  return false;
}

}  // namespace hpvm::engine
