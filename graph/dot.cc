// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "graph/diagnostic_sink.h"
#include "graph/parse.h"

namespace hpvm::graph {
namespace {

std::string DotText(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
    }
    out += static_cast<uint8_t>(c) < 0x20 ? ' ' : c;
  }
  return out + '"';
}

std::string Extents(std::string_view sign, const std::vector<Expr>& extents) {
  std::string text;
  for (const Expr& extent : extents) {
    text += Cat(text.empty() ? "" : ", ", extent.text);
  }
  return text.empty() ? "" : Cat(" ", sign, "[", text, "]");
}

// Returns the box of an edge's end: a leaf is one box; ports of internal nodes and of the graph have small boxes.
std::string BoxOf(const Graph& graph, NodeId scope, const Endpoint& end) {
  const NodeId owner = end.node.valid() ? end.node : scope;
  if (graph.node(owner).is_leaf) {
    return Cat("n", owner.index);
  }
  return Cat("n", owner.index, "_p", end.port);
}

class DotWriter {
 public:
  explicit DotWriter(const Graph& graph) : graph_(graph) {}

  std::string Write() {
    out_ = Cat("digraph ", DotText(graph_.name.empty() ? "graph" : graph_.name),
               " {\n  rankdir=LR;\n  node [shape=box, fontname=\"sans-serif\"];\n");
    struct Frame {
      NodeId node;
      size_t child = 0;
    };
    std::vector<Frame> open = {{graph_.root()}};
    Ports(graph_.root());
    while (!open.empty()) {
      Frame& frame = open.back();
      const Node& node = graph_.node(frame.node);
      if (frame.child == node.children.size()) {
        Edges(frame.node);
        open.pop_back();
        if (!open.empty()) {
          --indent_;
          Line("}");
        }
        continue;
      }
      const NodeId id = node.children[frame.child++];
      const Node& child = graph_.node(id);
      if (child.is_leaf) {
        Line(Cat("n", id.index, " [label=", DotText(child.name + Extents("", child.instances)), "];"));
        continue;
      }
      Line(Cat("subgraph cluster_n", id.index, " {"));
      ++indent_;
      Line(Cat("label=", DotText(child.name + Extents("x ", child.instances)), ";"));
      Ports(id);
      open.push_back({id});
    }
    return out_ + "}\n";
  }

 private:
  void Line(std::string_view text) {
    out_.append(2 * indent_, ' ');
    out_ += text;
    out_ += '\n';
  }

  void Ports(NodeId id) {
    const Node& node = graph_.node(id);
    for (size_t p = 0; p < node.ports.size(); ++p) {
      const std::string label =
          Cat(node.ports[p].name, "\n", Name(node.ports[p].type), Extents("", node.ports[p].shape));
      Line(Cat("n", id.index, "_p", p, " [shape=", id.index == 0 ? "ellipse" : "plain", ", label=", DotText(label),
               "];"));
    }
  }

  void Edges(NodeId scope) {
    for (const Edge& edge : graph_.node(scope).edges) {
      const Node& source = graph_.node(edge.source.node.valid() ? edge.source.node : scope);
      std::string style;
      if (edge.kind == EdgeKind::kOneToOne) {
        style += ", arrowhead=vee";
      }
      if (edge.stream) {
        style += ", style=dashed";
      }
      Line(Cat(BoxOf(graph_, scope, edge.source), " -> ", BoxOf(graph_, scope, edge.target),
               " [label=", DotText(source.ports[edge.source.port].name), style, "];"));
    }
  }

  const Graph& graph_;
  std::string out_;
  size_t indent_ = 1;
};

}  // namespace

std::string ToDot(const Graph& graph) { return DotWriter(graph).Write(); }

}  // namespace hpvm::graph
