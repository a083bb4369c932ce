// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "graph/build.h"

namespace hpvm::graph {
namespace {

constexpr uint32_t kCapacityMax = 65536;
constexpr size_t kLinearPortsMax = 16;  // Up to this number, comparing all ports is faster than a table.
constexpr std::string_view kEdgeKinds[] = {"all_to_all", "one_to_one"};

}  // namespace

void Builder::ReadEdges(uint32_t index) {
  const JsonId id = pending_[index].edges;
  if (id == kNoJson || !Expect(id, Kind::kArray, "Edges")) {
    return;
  }
  edges_ += tree_[id].size;
  if (edges_ > limits_.edges_max) {
    if (edges_ - tree_[id].size <= limits_.edges_max) {
      Fail(id, "The document has at least ", edges_, " edges; the limit is ", limits_.edges_max, ".");
    }
    return;
  }
  for (const NodeId child : graph_.nodes[index].children) {
    child_of_[tree_[pending_[child.index].object].name] = {index, child.index};
  }
  work_ += tree_[id].size + graph_.nodes[index].children.size();
  std::vector<Edge> edges;
  edges.reserve(tree_[id].size);
  for (JsonId child = tree_.FirstChild(id); child != kNoJson; child = tree_.Next(child)) {
    ReadEdge(index, edges.emplace_back(), child);
  }
  graph_.nodes[index].edges = std::move(edges);
}

void Builder::ReadEdge(uint32_t index, Edge& edge, JsonId id) {
  edge.source.port = edge.target.port = NodeId::kInvalid;
  Fields fields;
  if (!ReadFields(id, "Edge", {Key::kFrom, Key::kTo, Key::kKind, Key::kStream, Key::kCapacity},
                  {Key::kFrom, Key::kTo}, fields)) {
    return;
  }
  if (fields.has(Key::kFrom)) {
    edge.source = ReadEndpoint(index, fields[Key::kFrom], true);
  }
  if (fields.has(Key::kTo)) {
    edge.target = ReadEndpoint(index, fields[Key::kTo], false);
  }
  if (fields.has(Key::kKind)) {
    edge.kind = static_cast<EdgeKind>(ReadChoice(fields[Key::kKind], "Kind", kEdgeKinds).value_or(0));
  }
  if (const JsonId stream = fields[Key::kStream]; stream != kNoJson && Expect(stream, Kind::kBool, "Stream")) {
    edge.stream = tree_[stream].integer != 0;
    graph_.streaming = graph_.streaming || edge.stream;
  }
  if (const JsonId capacity = fields[Key::kCapacity];
      capacity != kNoJson && Expect(capacity, Kind::kInteger, "Capacity")) {
    const int64_t items = tree_[capacity].integer;
    if (items < 1 || items > kCapacityMax) {
      Fail(capacity, "Capacity (", items, ") is outside 1 to ", kCapacityMax, ".");
    } else if (!edge.stream) {
      Fail(capacity, "Capacity is for edges with \"stream\": true.");
    } else {
      edge.capacity = static_cast<uint32_t>(items);
    }
  }
}

Endpoint Builder::ReadEndpoint(uint32_t index, JsonId id, bool is_source) {
  Endpoint end;
  end.port = NodeId::kInvalid;
  if (!Expect(id, Kind::kString, "Endpoint")) {
    return end;
  }
  const std::string_view text = tree_.String(id);
  const size_t dot = text.find('.');
  const std::string_view port = dot == std::string_view::npos ? text : text.substr(dot + 1);
  uint32_t node = index;
  if (dot != std::string_view::npos) {
    const std::optional<uint32_t> name = tree_.names().Find(text.substr(0, dot));
    if (!name.has_value() || child_of_[*name].first != index) {
      end.node = ReportNoNode(index, id, text.substr(0, dot));
      return end;
    }
    node = child_of_[*name].second;
    end.node = NodeId(node);
  }
  end.port = FindPort(graph_.nodes[node], port, is_source);
  if (end.port != NodeId::kInvalid) {
    return end;
  }
  // The edge may mean a port whose name was refused.
  if (!unnamed_ports_.contains(node) && faults_.AdmitError()) {
    const bool own = !end.node.valid();
    NearMiss near(port);
    for (const Port& candidate : graph_.nodes[node].ports) {
      near.Offer(candidate.name);
    }
    const std::string whose = !own       ? Cat("Node ", Quoted(graph_.nodes[node].name), " has no port ")
                              : node > 0 ? std::string("The enclosing node has no port ")
                                         : std::string(is_source ? "Graph has no input " : "Graph has no output ");
    faults_.Add({Severity::kError, tree_.PointerTo(id), std::nullopt, Cat(whose, Quoted(port), near.Ending())});
  }
  return end;
}

NodeId Builder::ReportNoNode(uint32_t index, JsonId id, std::string_view name) {
  if (!faults_.AdmitError()) {
    return NodeId();
  }
  NearMiss near(name);
  for (const NodeId child : graph_.nodes[index].children) {
    near.Offer(graph_.node(child).name);
  }
  const std::string where = index == 0 ? "Graph" : Cat("Node ", Quoted(graph_.nodes[index].name));
  faults_.Add({Severity::kError, tree_.PointerTo(id), std::nullopt,
               Cat(where, " has no node ", Quoted(name), near.Ending())});
  for (const NodeId child : graph_.nodes[index].children) {
    if (!near.best().empty() && graph_.node(child).name == near.best()) {
      return child;
    }
  }
  return NodeId();
}

uint32_t Builder::FindPort(const Node& node, std::string_view name, bool is_source) {
  // The root's inputs and outputs may share names: an edge starts at inputs and ends at outputs.
  const bool is_root = &node == &graph_.nodes[0];
  const auto matches = [&](const Port& port) { return !is_root || (port.access == Access::kIn) == is_source; };
  if (name.empty()) {
    return NodeId::kInvalid;
  }
  if (node.ports.size() <= kLinearPortsMax) {
    for (uint32_t i = 0; i < node.ports.size(); ++i) {
      ++work_;
      if (node.ports[i].name == name && matches(node.ports[i])) {
        return i;
      }
    }
    return NodeId::kInvalid;
  }
  // The table's keys begin with the node and the side.
  const auto index = static_cast<uint64_t>(&node - graph_.nodes.data());
  std::string key(sizeof(uint64_t), '\0');
  const uint64_t prefix = 2 * index + (is_root && is_source ? 1 : 0);
  std::memcpy(key.data(), &prefix, sizeof(prefix));
  if (port_tables_.insert(prefix).second) {
    for (uint32_t i = 0; i < node.ports.size(); ++i) {
      if (matches(node.ports[i]) && port_names_.Intern(key + node.ports[i].name) == port_of_name_.size()) {
        port_of_name_.push_back(i);
      }
    }
  }
  const std::optional<uint32_t> found = port_names_.Find(key.append(name));
  return found.has_value() ? port_of_name_[*found] : NodeId::kInvalid;
}

}  // namespace hpvm::graph
