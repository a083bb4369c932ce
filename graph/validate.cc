// SPDX-License-Identifier: Apache-2.0
#include "graph/validate.h"

#include <algorithm>
#include <string>
#include <vector>

#include "graph/expr.h"

namespace hpvm::graph {
namespace {

constexpr uint32_t kNone = NodeId::kInvalid;
// Limit on the steps for comparing shapes with different texts in the whole document: about a second.
constexpr uint64_t kCompareBudget = 4'000'000;
constexpr std::string_view kAccessNames[] = {"in", "out", "inout"};

class Validator {
 public:
  Validator(Graph& graph, DiagnosticSink& faults) : graph_(graph), faults_(faults) {}

  uint64_t Run() {
    port_base_.resize(graph_.nodes.size() + 1, 0);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      port_base_[i + 1] = port_base_[i] + static_cast<uint32_t>(graph_.nodes[i].ports.size());
    }
    outer_writer_.assign(port_base_.back(), kNone);
    inner_writer_.assign(port_base_.back(), kNone);
    suspect_.assign(graph_.nodes.size(), false);
    work_ += graph_.nodes.size() + port_base_.back();
    bool moved = false;
    std::vector<uint32_t> position(graph_.nodes.size(), 0);
    for (uint32_t i = 0; i < graph_.nodes.size(); ++i) {
      CheckNames(i);
      if (!graph_.nodes[i].is_leaf) {
        CheckScope(i);
        work_ += SortChildren(graph_, NodeId(i), faults_, position, moved);
      }
    }
    if (moved && !faults_.has_errors()) {
      Renumber(graph_);
    }
    return work_;
  }

 private:
  template <typename Place, typename... Parts>
  void Fail(Place place, const Parts&... parts) {
    if (faults_.AdmitError()) {
      faults_.Add({Severity::kError, place(), std::nullopt, Cat(parts...)});
    }
  }

  std::string PortPlace(uint32_t node, uint32_t port) const {
    const Node& owner = graph_.nodes[node];
    if (node == 0) {
      std::string place = owner.ports[port].access == Access::kIn ? "/inputs/" : "/outputs/";
      AppendPointerToken(place, owner.ports[port].name);
      return place;
    }
    return Cat(owner.pointer, "/ports/", port);
  }
  std::string EdgePlace(uint32_t scope, uint32_t edge, std::string_view end = "") const {
    return Cat(graph_.nodes[scope].pointer, "/edges/", edge, end);
  }
  std::string EndText(const Endpoint& end, uint32_t scope) const {
    if (!end.node.valid()) {
      return graph_.nodes[scope].ports[end.port].name;
    }
    return Cat(graph_.node(end.node).name, ".", graph_.node(end.node).ports[end.port].name);
  }

  void CheckNames(uint32_t index) {
    const Node& node = graph_.nodes[index];
    if (index == 0) {
      return;  // The root's ports are members of objects, whose duplicates the reader refuses.
    }
    const size_t count = node.ports.size() + node.scalars.size();
    const auto name_of = [&](size_t i) -> const std::string& {
      return i < node.ports.size() ? node.ports[i].name : node.scalars[i - node.ports.size()].name;
    };
    order_.resize(count);
    for (uint32_t i = 0; i < count; ++i) {
      order_[i] = i;
    }
    std::sort(order_.begin(), order_.end(), [&](uint32_t a, uint32_t b) {
      const int difference = name_of(a).compare(name_of(b));
      return difference != 0 ? difference < 0 : a < b;
    });
    for (size_t k = 1; k < count; ++k) {
      const uint32_t i = order_[k];
      if (!name_of(i).empty() && name_of(i) == name_of(order_[k - 1])) {
        const size_t ports = node.ports.size();
        Fail([&] { return Cat(node.pointer, i < ports ? "/ports/" : "/scalars/", i < ports ? i : i - ports); }, "Name ",
             Quoted(name_of(i)), " is used twice among the node's ports and scalars; once is allowed.");
      }
    }
  }

  void CheckScope(uint32_t scope) {
    const Node& node = graph_.nodes[scope];
    work_ += node.edges.size() + node.children.size();
    for (uint32_t e = 0; e < node.edges.size(); ++e) {
      CheckEdge(scope, e);
    }
    for (const NodeId child : node.children) {
      CheckChildInputs(child.index);
    }
    CheckOwnOutputs(scope);
    WarnUnreachable(scope);
  }

  void CheckEdge(uint32_t scope, uint32_t e) {
    const Edge& edge = graph_.nodes[scope].edges[e];
    for (const Endpoint& end : {edge.source, edge.target}) {
      if (end.port == kNone) {
        suspect_[end.node.valid() ? end.node.index : scope] = true;
      }
    }
    const bool source_known = edge.source.port != kNone;
    const bool target_known = edge.target.port != kNone;
    const bool source_fits = source_known && CheckDirection(scope, e, edge.source, true);
    const bool target_fits = target_known && CheckDirection(scope, e, edge.target, false);
    if (target_fits) {
      CheckSingleWriter(scope, e);
    }
    if (source_fits && target_fits) {
      CheckTypes(scope, e);
      CheckOneToOne(scope, e);
    }
  }

  // A node's own port is seen from inside, a child's port from outside.
  bool CheckDirection(uint32_t scope, uint32_t e, const Endpoint& end, bool is_source) {
    const bool own = !end.node.valid();
    const Port& port = PortOf(scope, end);
    const Access wrong = is_source == own ? Access::kOut : Access::kIn;
    if (port.access != wrong) {
      return true;
    }
    const std::string whose =
        own ? std::string("the enclosing node") : Cat("node ", Quoted(graph_.node(end.node).name));
    Fail([&] { return EdgePlace(scope, e, is_source ? "/from" : "/to"); }, "Port ", Quoted(port.name), " of ", whose,
         " has access ", Quoted(kAccessNames[static_cast<int>(port.access)]), "; an edge cannot ",
         is_source ? "start" : "end", " there.");
    suspect_[own ? scope : end.node.index] = true;
    return false;
  }

  void CheckSingleWriter(uint32_t scope, uint32_t e) {
    const Edge& edge = graph_.nodes[scope].edges[e];
    const uint32_t owner = edge.target.node.valid() ? edge.target.node.index : scope;
    uint32_t& writer = (edge.target.node.valid() ? outer_writer_ : inner_writer_)[port_base_[owner] + edge.target.port];
    if (writer == kNone) {
      writer = e;
      return;
    }
    const Edge& first = graph_.nodes[scope].edges[writer];
    const auto name = [&](const Endpoint& end) { return end.port == kNone ? std::string("?") : EndText(end, scope); };
    Fail([&] { return PortPlace(owner, edge.target.port); }, "Port ",
         Quoted(graph_.nodes[owner].ports[edge.target.port].name), " is written by two edges (",
         Quoted(name(first.source)), ", ", Quoted(name(edge.source)), "); one is allowed.");
  }

  const Port& PortOf(uint32_t scope, const Endpoint& end) const {
    return graph_.nodes[end.node.valid() ? end.node.index : scope].ports[end.port];
  }

  void CheckTypes(uint32_t scope, uint32_t e) {
    const Edge& edge = graph_.nodes[scope].edges[e];
    const Port& source = PortOf(scope, edge.source);
    const Port& target = PortOf(scope, edge.target);
    if (source.type == ElementType{0} || target.type == ElementType{0}) {
      return;
    }
    if (source.type != target.type) {
      Fail([&] { return EdgePlace(scope, e); }, "Types differ: ", Quoted(EndText(edge.source, scope)), " is ",
           Name(source.type), ", ", Quoted(EndText(edge.target, scope)), " is ", Name(target.type), ".");
    }
    if (source.shape.size() != target.shape.size()) {
      Fail([&] { return EdgePlace(scope, e); }, "Ranks differ: ", Quoted(EndText(edge.source, scope)), " has ",
           source.shape.size(), ", ", Quoted(EndText(edge.target, scope)), " has ", target.shape.size(), ".");
      return;
    }
    for (size_t d = 0; d < source.shape.size(); ++d) {
      ++work_;
      if (Different(source.shape[d], target.shape[d])) {
        Fail([&] { return EdgePlace(scope, e); }, "Shapes differ in dimension ", d, ": ",
             Quoted(EndText(edge.source, scope)), " has ", Quoted(source.shape[d].text), ", ",
             Quoted(EndText(edge.target, scope)), " has ", Quoted(target.shape[d].text), ".");
      }
    }
  }

  bool Different(const Expr& a, const Expr& b) {
    return !a.terms.empty() && !b.terms.empty() && Compare(a, b, compare_budget_) == Sameness::kDifferent;
  }

  void CheckOneToOne(uint32_t scope, uint32_t e) {
    const Edge& edge = graph_.nodes[scope].edges[e];
    if (edge.kind != EdgeKind::kOneToOne) {
      return;
    }
    if (!edge.source.node.valid() || !edge.target.node.valid()) {
      Fail([&] { return EdgePlace(scope, e, "/kind"); },
           "Kind \"one_to_one\" joins the instances of two nodes; one end of this edge is the "
           "enclosing node.");
      return;
    }
    const Node& source = graph_.node(edge.source.node);
    const Node& target = graph_.node(edge.target.node);
    for (const Node* node : {&source, &target}) {
      if (!node->extent_ports.empty()) {
        Fail([&] { return EdgePlace(scope, e, "/kind"); },
             "Kind \"one_to_one\" needs instance counts that are known before the graph runs; node ",
             Quoted(node->name), " takes its count from a port.");
        return;
      }
    }
    bool differ = source.instances.size() != target.instances.size();
    for (size_t d = 0; !differ && d < source.instances.size(); ++d) {
      differ = Different(source.instances[d], target.instances[d]);
    }
    if (differ) {
      Fail([&] { return EdgePlace(scope, e, "/kind"); }, "Kind \"one_to_one\" needs equal instance counts; node ",
           Quoted(source.name), " has ", CountsText(source), ", node ", Quoted(target.name), " has ",
           CountsText(target), ".");
    }
  }

  static std::string CountsText(const Node& node) {
    std::string text = "[";
    for (const Expr& extent : node.instances) {
      text += (text.size() > 1 ? ", " : "") + extent.text;
    }
    return text + "]";
  }

  void CheckChildInputs(uint32_t child) {
    const Node& node = graph_.nodes[child];
    for (uint32_t p = 0; p < node.ports.size(); ++p) {
      const Port& port = node.ports[p];
      if ((port.access == Access::kIn || port.access == Access::kInOut) && !port.name.empty() &&
          port.type != ElementType{0} && !suspect_[child] && outer_writer_[port_base_[child] + p] == kNone) {
        Fail([&] { return PortPlace(child, p); }, "Port ", Quoted(port.name), " has no incoming edge; access ",
             Quoted(kAccessNames[static_cast<int>(port.access)]), " needs exactly 1.");
      }
    }
  }

  void CheckOwnOutputs(uint32_t scope) {
    const Node& node = graph_.nodes[scope];
    for (uint32_t p = 0; p < node.ports.size(); ++p) {
      const Port& port = node.ports[p];
      if ((port.access == Access::kOut || port.access == Access::kInOut) && !port.name.empty() &&
          port.type != ElementType{0} && !suspect_[scope] && inner_writer_[port_base_[scope] + p] == kNone) {
        Fail([&] { return PortPlace(scope, p); }, scope == 0 ? "Output " : "Port ", Quoted(port.name),
             " is written by no edge", scope == 0 ? "" : " inside the node", "; exactly 1 is needed.");
      }
    }
  }

  // Walks back from the scope's outputs. A scope without outputs (a graph that only prints) gets no warning.
  void WarnUnreachable(uint32_t scope) {
    const Node& node = graph_.nodes[scope];
    if (std::all_of(node.ports.begin(), node.ports.end(),
                    [](const Port& port) { return port.access == Access::kIn; })) {
      return;
    }
    reached_.resize(graph_.nodes.size(), false);
    std::vector<uint32_t> todo;
    const auto reach = [&](const Endpoint& source) {
      if (source.node.valid() && !reached_[source.node.index]) {
        reached_[source.node.index] = true;
        todo.push_back(source.node.index);
      }
    };
    const auto follow = [&](const std::vector<uint32_t>& writer, uint32_t owner) {
      for (uint32_t p = port_base_[owner]; p < port_base_[owner + 1]; ++p) {
        if (writer[p] != kNone) {
          reach(node.edges[writer[p]].source);
        }
      }
    };
    follow(inner_writer_, scope);
    while (!todo.empty()) {
      const uint32_t child = todo.back();
      todo.pop_back();
      follow(outer_writer_, child);
    }
    if (faults_.has_errors()) {
      return;  // A missing edge may be the reason.
    }
    for (const NodeId child : node.children) {
      if (!reached_[child.index] && faults_.AdmitWarning()) {
        faults_.Add({Severity::kWarning, graph_.node(child).pointer, std::nullopt,
                     Cat("Nothing that node ", Quoted(graph_.node(child).name), " writes reaches an output.")});
      }
    }
  }

  Graph& graph_;
  DiagnosticSink& faults_;
  uint64_t work_ = 0;
  uint64_t compare_budget_ = kCompareBudget;
  std::vector<uint32_t> port_base_;
  // Indexed by port_base_ + port: the edge that writes a child's port, or a node's own port from inside.
  std::vector<uint32_t> outer_writer_, inner_writer_;
  // Nodes at which an edge was refused: a missing edge of a port is then not reported.
  std::vector<bool> suspect_;
  std::vector<bool> reached_;
  std::vector<uint32_t> order_;
};

}  // namespace

uint64_t Validate(Graph& graph, DiagnosticSink& faults) { return Validator(graph, faults).Run(); }

}  // namespace hpvm::graph
