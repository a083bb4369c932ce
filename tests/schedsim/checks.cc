// SPDX-License-Identifier: Apache-2.0
#include "tests/schedsim/checks.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include "tests/schedsim/kernels.h"

namespace hpvm::schedsim {
namespace {

using graph::FlatGraph;
using graph::FlatValueId;
using scheduler::ByteRange;

bool Meet(const ByteRange& a, const ByteRange& b) { return std::max(a.begin, b.begin) < std::min(a.end, b.end); }

class RemainderChecker {
 public:
  RemainderChecker(const FlatGraph& whole, const scheduler::Remainder& rest, const std::vector<bool>& is_kept)
      : whole_(whole), rest_(rest), is_kept_(is_kept), whole_of_(rest.flat.values.size()) {}

  std::vector<std::string> Run() {
    for (const FlatValueId value : whole_.outputs) {
      Need(value);
    }
    if (std::vector<uint32_t>(needed_.begin(), needed_.end()) != rest_.node_of ||
        rest_.node_of.size() != rest_.flat.nodes.size()) {
      Add(std::to_string(rest_.node_of.size()) + " nodes are left; " + std::to_string(needed_.size()) +
          " are needed, or others.");
      return std::move(faults_);
    }
    for (uint32_t node = 0; node < rest_.node_of.size(); ++node) {
      CheckNode(node);
    }
    for (size_t k = 0; k < whole_.outputs.size() && faults_.empty(); ++k) {
      if (whole_.outputs[k].valid()) {
        CheckValue(rest_.flat.outputs[k], whole_.outputs[k], "Output " + std::to_string(k));
      }
    }
    return std::move(faults_);
  }

 private:
  void Add(const std::string& sentence) { faults_.push_back("remainder: " + sentence); }

  // From the outputs backwards.
  void Need(FlatValueId value) {
    std::vector<FlatValueId> open = {value};
    while (!open.empty()) {
      const FlatValueId next = open.back();
      open.pop_back();
      const graph::FlatNodeId producer = next.valid() ? whole_.values[next.index].producer : graph::FlatNodeId();
      if (!producer.valid() || is_kept_[next.index] || !needed_.insert(producer.index).second) {
        continue;
      }
      for (uint32_t port = whole_.nodes[producer.index].first_port; port < PortsEnd(whole_, producer.index); ++port) {
        open.push_back(whole_.ports[port].in);
      }
    }
  }

  void CheckNode(uint32_t node) {
    const uint32_t old = rest_.node_of[node];
    const uint32_t begin = rest_.flat.nodes[node].first_port, old_begin = whole_.nodes[old].first_port;
    const std::string name = "Node " + std::to_string(old);
    if (PortsEnd(rest_.flat, node) - begin != PortsEnd(whole_, old) - old_begin) {
      return Add(name + " has other ports.");
    }
    for (const bool makes : {false, true}) {
      for (uint32_t port = begin; port < PortsEnd(rest_.flat, node); ++port) {
        const graph::FlatPort& now = rest_.flat.ports[port];
        const graph::FlatPort& was = whole_.ports[old_begin + port - begin];
        if (now.in.valid() != was.in.valid() || now.out.valid() != was.out.valid() || now.access != was.access) {
          return Add(name + " has a port of another kind.");
        }
        if (!makes && now.in.valid()) {
          CheckValue(now.in, was.in, name);
        } else if (makes && now.out.valid()) {
          whole_of_[now.out.index] = was.out;
        }
      }
    }
  }

  void CheckValue(FlatValueId now, FlatValueId was, const std::string& who) {
    if (!now.valid()) {
      return Add(who + " has lost its value.");
    }
    FlatValueId& known = whole_of_[now.index];
    const graph::FlatValue& value = rest_.flat.values[now.index];
    if (!known.valid() && !value.producer.valid()) {
      const bool is_given = !whole_.values[was.index].producer.valid();
      const auto at = std::find(rest_.kept.begin(), rest_.kept.end(), was);
      if (is_given ? value.input != whole_.values[was.index].input : at == rest_.kept.end() || !is_kept_[was.index]) {
        return Add(who + " uses a value that nobody holds.");
      }
      known = was;
    }
    if (known != was || value.bytes != whole_.values[was.index].bytes) {
      Add(who + " uses another value than before.");
    }
  }

  const FlatGraph& whole_;
  const scheduler::Remainder& rest_;
  const std::vector<bool>& is_kept_;
  std::vector<FlatValueId> whole_of_;  // Indexed by value of the rest, once it exists.
  std::set<uint32_t> needed_;
  std::vector<std::string> faults_;
};

}  // namespace

std::vector<std::string> CheckParts(const FlatGraph& flat, const scheduler::AccessModel& accesses,
                                    const std::vector<scheduler::Task>& tasks) {
  for (size_t a = 0; a < tasks.size(); ++a) {
    for (size_t b = 0; tasks[a].is_part && b < tasks.size(); ++b) {
      const uint32_t node = tasks[a].node.index;
      for (uint32_t port = flat.nodes[node].first_port;
           a != b && tasks[b].node == tasks[a].node && port < PortsEnd(flat, node); ++port) {
        const scheduler::PortAccess of_a = accesses.Of(tasks[a].node, tasks[a].choice, tasks[a].box, port);
        const scheduler::PortAccess of_b = accesses.Of(tasks[b].node, tasks[b].choice, tasks[b].box, port);
        if (Meet(of_a.written, of_b.written) || Meet(of_a.written, of_b.read)) {
          return {"parts: Parts of node " + std::to_string(node) + " write what others touch."};
        }
      }
    }
  }
  return {};
}

std::vector<std::string> CheckRemainder(const FlatGraph& whole, const scheduler::Remainder& rest,
                                        const std::vector<bool>& is_kept) {
  return RemainderChecker(whole, rest, is_kept).Run();
}

}  // namespace hpvm::schedsim
