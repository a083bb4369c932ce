// SPDX-License-Identifier: Apache-2.0
// Method: a backward pass marks the nodes that make a value which is wanted and not kept; a forward pass copies
// them. A value that is used before any copied node makes it becomes an input.
// Invariants: nodes come after the nodes whose values they use, in the whole graph and in the remainder. value_of_
// maps each value in use to its one counterpart; `kept` and the numbers of the new inputs grow together. Only a
// kept value or an input of the whole graph is used without being made (checked).
// Both passes are linear in the graph's ports and scalars.
#include "scheduler/placement/remainder.h"

#include <utility>

namespace hpvm::scheduler {
namespace {

using graph::FlatGraph;
using graph::FlatNode;
using graph::FlatPort;
using graph::FlatValueId;

uint32_t EndPort(const FlatGraph& flat, uint32_t node) {
  return node + 1 < flat.nodes.size() ? flat.nodes[node + 1].first_port : static_cast<uint32_t>(flat.ports.size());
}

uint32_t EndScalar(const FlatGraph& flat, uint32_t node) {
  return node + 1 < flat.nodes.size() ? flat.nodes[node + 1].first_scalar : static_cast<uint32_t>(flat.scalars.size());
}

class Remover {
 public:
  Remover(const FlatGraph& whole, const std::vector<bool>& is_kept, uint32_t first_input)
      : whole_(whole), is_kept_(is_kept), first_input_(first_input), is_needed_(whole.nodes.size()) {}

  Remainder Run() {
    FindNeeded();
    value_of_.resize(whole_.values.size());
    for (uint32_t node = 0; node < whole_.nodes.size(); ++node) {
      if (is_needed_[node]) {
        AddNode(node);
      }
    }
    out_.flat.outputs.resize(whole_.outputs.size());
    for (size_t k = 0; k < whole_.outputs.size(); ++k) {
      if (whole_.outputs[k].valid()) {
        out_.flat.outputs[k] = Use(whole_.outputs[k]);
      }
    }
    return std::move(out_);
  }

 private:
  // Goes backwards, because nodes come after the nodes whose values they use.
  void FindNeeded() {
    std::vector<bool> wanted(whole_.values.size());
    for (const FlatValueId value : whole_.outputs) {
      if (value.valid()) {
        wanted[value.index] = true;
      }
    }
    for (uint32_t node = static_cast<uint32_t>(whole_.nodes.size()); node-- > 0;) {
      const uint32_t begin = whole_.nodes[node].first_port, end = EndPort(whole_, node);
      for (uint32_t port = begin; port < end && !is_needed_[node]; ++port) {
        const FlatValueId made = whole_.ports[port].out;
        is_needed_[node] = made.valid() && wanted[made.index] && !is_kept_[made.index];
      }
      for (uint32_t port = begin; port < end && is_needed_[node]; ++port) {
        if (whole_.ports[port].in.valid()) {
          wanted[whole_.ports[port].in.index] = true;
        }
      }
    }
  }

  void AddNode(uint32_t index) {
    FlatGraph& flat = out_.flat;
    FlatNode node = whole_.nodes[index];
    const graph::FlatNodeId id(flat.nodes.size());
    const uint32_t first_port = node.first_port, first_scalar = node.first_scalar;
    node.first_port = static_cast<uint32_t>(flat.ports.size());
    node.first_scalar = static_cast<uint32_t>(flat.scalars.size());
    for (uint32_t port = first_port; port < EndPort(whole_, index); ++port) {
      FlatPort p = whole_.ports[port];
      if (p.in.valid()) {
        p.in = Use(p.in);
        p.is_one_to_one = p.is_one_to_one && flat.values[p.in.index].producer.valid();
      }
      if (p.out.valid()) {
        p.out = Make(p.out, id);
      }
      flat.ports.push_back(p);
    }
    flat.scalars.insert(flat.scalars.end(), whole_.scalars.begin() + first_scalar,
                        whole_.scalars.begin() + EndScalar(whole_, index));
    flat.nodes.push_back(node);
    out_.node_of.push_back(index);
  }

  FlatValueId Make(FlatValueId value, graph::FlatNodeId producer) {
    out_.flat.values.push_back(whole_.values[value.index]);
    out_.flat.values.back().producer = producer;
    return value_of_[value.index] = FlatValueId(out_.flat.values.size() - 1);
  }

  // A value that is not made yet becomes an input, because its producer would come before.
  FlatValueId Use(FlatValueId value) {
    FlatValueId& known = value_of_[value.index];
    if (known.valid()) {
      return known;
    }
    graph::FlatValue given = whole_.values[value.index];
    if (given.producer.valid()) {
      HPVMD_CHECK(is_kept_[value.index]);
      given.producer = graph::FlatNodeId();
      given.producer_port = 0;
      given.input = first_input_ + static_cast<uint32_t>(out_.kept.size());
      out_.kept.push_back(value);
    }
    out_.flat.values.push_back(std::move(given));
    return known = FlatValueId(out_.flat.values.size() - 1);
  }

  const FlatGraph& whole_;
  const std::vector<bool>& is_kept_;
  const uint32_t first_input_;
  std::vector<bool> is_needed_;        // Indexed by node of the whole graph.
  std::vector<FlatValueId> value_of_;  // Indexed by value of the whole graph.
  Remainder out_;
};

}  // namespace

Remainder BuildRemainder(const FlatGraph& whole, const std::vector<bool>& is_kept, uint32_t first_input) {
  return Remover(whole, is_kept, first_input).Run();
}

}  // namespace hpvm::scheduler
