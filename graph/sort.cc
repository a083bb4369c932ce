// SPDX-License-Identifier: Apache-2.0
// Kahn's topological sort (1962). The ready nodes are in a priority queue by present position, so that the result is
// stable; a scope that is already sorted keeps its order. Nodes left over are on cycles or follow one.
#include <algorithm>
#include <queue>
#include <vector>

#include "graph/expr.h"
#include "graph/validate.h"

namespace hpvm::graph {
namespace {

constexpr uint32_t kNone = NodeId::kInvalid;
constexpr uint32_t kCycleNamesMax = 16;

// The edges between children of one scope, by position among the children, in compressed sparse rows.
struct Rows {
  std::vector<uint32_t> start;
  std::vector<uint32_t> target;
};

template <typename F>
void ForSiblingEdges(const Node& scope, F f) {
  for (const Edge& edge : scope.edges) {
    const bool known = edge.source.port != kNone && edge.target.port != kNone;
    if (known && edge.source.node.valid() && edge.target.node.valid()) {
      f(edge.source.node.index, edge.target.node.index);
    }
  }
}

Rows MakeRows(const Node& scope, const std::vector<uint32_t>& position, bool reversed) {
  Rows rows;
  rows.start.assign(scope.children.size() + 1, 0);
  ForSiblingEdges(scope, [&](uint32_t a, uint32_t b) { ++rows.start[position[reversed ? b : a] + 1]; });
  for (size_t i = 1; i < rows.start.size(); ++i) {
    rows.start[i] += rows.start[i - 1];
  }
  rows.target.resize(rows.start.back());
  std::vector<uint32_t> next(rows.start.begin(), rows.start.end() - 1);
  ForSiblingEdges(scope, [&](uint32_t a, uint32_t b) {
    rows.target[next[position[reversed ? b : a]]++] = position[reversed ? a : b];
  });
  return rows;
}

// Each node that Kahn's algorithm leaves over is on a cycle or follows one: walks back along edges until a node
// repeats.
void ReportCycles(const Graph& graph, const Node& scope, const Rows& sources, const std::vector<uint32_t>& waiting,
                  DiagnosticSink& faults) {
  std::vector<uint32_t> walk_of(scope.children.size(), kNone);
  for (uint32_t start = 0; start < scope.children.size(); ++start) {
    if (waiting[start] == 0 || walk_of[start] != kNone) {
      continue;
    }
    std::vector<uint32_t> walk;
    uint32_t at = start;
    while (walk_of[at] == kNone) {
      walk_of[at] = start;
      walk.push_back(at);
      uint32_t e = sources.start[at];
      while (waiting[sources.target[e]] == 0) {
        ++e;  // A node left over always has a source that is left over.
      }
      at = sources.target[e];
    }
    if (walk_of[at] != start || !faults.AdmitError()) {
      continue;
    }
    // The walk goes against the edges; the report follows them, from the node that is first in the document.
    std::vector<uint32_t> cycle(std::find(walk.begin(), walk.end(), at), walk.end());
    std::reverse(cycle.begin(), cycle.end());
    std::rotate(cycle.begin(), std::min_element(cycle.begin(), cycle.end()), cycle.end());
    std::string names;
    for (size_t i = 0; i < cycle.size() && i < kCycleNamesMax; ++i) {
      names += Quoted(graph.node(scope.children[cycle[i]]).name) + " -> ";
    }
    names += cycle.size() > kCycleNamesMax ? Cat("... (", cycle.size(), " nodes) -> ") : "";
    names += Quoted(graph.node(scope.children[cycle[0]]).name);
    faults.Add({Severity::kError, scope.pointer + "/edges", std::nullopt,
                cycle.size() == 1
                    ? Cat("Node ", Quoted(graph.node(scope.children[cycle[0]]).name), " reads its own output.")
                    : Cat("Nodes form a cycle: ", names, ".")});
  }
}

bool IsSorted(const Node& scope, const std::vector<uint32_t>& position) {
  bool sorted = true;
  ForSiblingEdges(scope, [&](uint32_t a, uint32_t b) { sorted = sorted && position[a] < position[b]; });
  return sorted;
}

void RemapExpr(Expr& expr, const std::vector<uint32_t>& symbols) {
  for (Expr::Term& term : expr.terms) {
    if (term.kind == Expr::Kind::kSymbol) {
      term.value = symbols[static_cast<size_t>(term.value)];
    }
  }
}

// Replica indices may change places; all other symbols are declared or occur in inputs, before every node.
void RenumberSymbols(Graph& graph) {
  std::vector<uint32_t> renamed(graph.symbols.size(), kNone);
  std::vector<uint32_t> order;
  for (uint32_t i = 0; i < graph.symbols.size(); ++i) {
    if (!graph.is_index_symbol[i]) {
      renamed[i] = static_cast<uint32_t>(order.size());
      order.push_back(i);
    }
  }
  for (const Node& node : graph.nodes) {
    for (const SymbolId index : node.index_symbols) {
      if (renamed[index.index] == kNone) {
        renamed[index.index] = static_cast<uint32_t>(order.size());
        order.push_back(index.index);
      }
    }
  }
  std::vector<std::string> names;
  std::vector<bool> is_index;
  for (const uint32_t i : order) {
    names.push_back(graph.symbols[i]);
    is_index.push_back(graph.is_index_symbol[i]);
  }
  graph.symbols = std::move(names);
  graph.is_index_symbol = std::move(is_index);
  for (Node& node : graph.nodes) {
    for (SymbolId& index : node.index_symbols) {
      index = SymbolId(renamed[index.index]);
    }
    for (Port& port : node.ports) {
      std::for_each(port.shape.begin(), port.shape.end(), [&](Expr& expr) { RemapExpr(expr, renamed); });
    }
    std::for_each(node.instances.begin(), node.instances.end(), [&](Expr& expr) { RemapExpr(expr, renamed); });
    std::for_each(node.group.begin(), node.group.end(), [&](Expr& expr) { RemapExpr(expr, renamed); });
    for (Scalar& scalar : node.scalars) {
      if (Expr* expr = std::get_if<Expr>(&scalar.value); expr != nullptr) {
        RemapExpr(*expr, renamed);
      }
    }
  }
}

}  // namespace

uint64_t SortChildren(Graph& graph, NodeId scope_id, DiagnosticSink& faults, std::vector<uint32_t>& position,
                      bool& moved) {
  Node& scope = graph.node(scope_id);
  const auto count = static_cast<uint32_t>(scope.children.size());
  for (uint32_t i = 0; i < count; ++i) {
    position[scope.children[i].index] = i;
  }
  if (IsSorted(scope, position)) {
    return count + scope.edges.size();
  }
  const Rows targets = MakeRows(scope, position, false);
  const Rows sources = MakeRows(scope, position, true);
  std::vector<uint32_t> waiting(count);
  std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> ready;
  for (uint32_t i = 0; i < count; ++i) {
    waiting[i] = sources.start[i + 1] - sources.start[i];
    if (waiting[i] == 0) {
      ready.push(i);
    }
  }
  std::vector<NodeId> sorted;
  sorted.reserve(count);
  while (!ready.empty()) {
    const uint32_t at = ready.top();
    ready.pop();
    sorted.push_back(scope.children[at]);
    for (uint32_t e = targets.start[at]; e < targets.start[at + 1]; ++e) {
      if (--waiting[targets.target[e]] == 0) {
        ready.push(targets.target[e]);
      }
    }
  }
  if (sorted.size() < count) {
    ReportCycles(graph, scope, sources, waiting, faults);
  } else {
    scope.children = std::move(sorted);
    moved = true;
  }
  return uint64_t{4} * (count + scope.edges.size());
}

void Renumber(Graph& graph) {
  std::vector<NodeId> order = {graph.root()};
  order.reserve(graph.nodes.size());
  for (size_t i = 0; i < order.size(); ++i) {
    const std::vector<NodeId>& children = graph.node(order[i]).children;
    order.insert(order.end(), children.begin(), children.end());
  }
  std::vector<NodeId> renamed(graph.nodes.size());
  std::vector<Node> nodes;
  nodes.reserve(graph.nodes.size());
  for (uint32_t i = 0; i < order.size(); ++i) {
    renamed[order[i].index] = NodeId(i);
    nodes.push_back(std::move(graph.node(order[i])));
  }
  graph.nodes = std::move(nodes);
  const auto rename = [&](NodeId& id) { id = id.valid() ? renamed[id.index] : id; };
  for (Node& node : graph.nodes) {
    rename(node.parent);
    std::for_each(node.children.begin(), node.children.end(), rename);
    for (Edge& edge : node.edges) {
      rename(edge.source.node);
      rename(edge.target.node);
    }
  }
  RenumberSymbols(graph);
}

}  // namespace hpvm::graph
