// SPDX-License-Identifier: Apache-2.0
// Builds a Graph from the JSON tree: every rule on a single object or on resolving a name. Rules between nodes are in
// validate.h.
//
// Nodes are taken from a queue, never by recursion. An item that cannot be read is reported and replaced by a
// placeholder that validate.h ignores, so that one fault is not reported twice.
#ifndef HPVMD_GRAPH_BUILD_H_
#define HPVMD_GRAPH_BUILD_H_

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "graph/diagnostic_sink.h"
#include "graph/expr.h"
#include "graph/graph.h"
#include "graph/interner.h"
#include "graph/json_tree.h"
#include "graph/parse.h"

namespace hpvm::graph {

// The members of one object, indexed by Key.
struct Fields {
  std::array<JsonId, kKeyNames.size()> ids;
  JsonId operator[](Key key) const { return ids[static_cast<size_t>(key)]; }
  bool has(Key key) const { return (*this)[key] != kNoJson; }
};

class Builder {
 public:
  Builder(const JsonTree& tree, const Limits& limits, DiagnosticSink& faults, Graph& graph);
  void Build();
  uint64_t work() const { return work_ + symbol_names_.probes() + port_names_.probes() + tree_.names().probes(); }

 private:
  using Kind = JsonValue::Kind;

  // Shared helpers, in build.cc.
  template <typename... Parts>
  void Fail(JsonId at, const Parts&... parts) {
    if (faults_.AdmitError()) {
      faults_.Add({Severity::kError, tree_.PointerTo(at), std::nullopt, Cat(parts...)});
    }
  }
  template <typename... Parts>
  void Warn(JsonId at, const Parts&... parts) {
    if (faults_.AdmitWarning()) {
      faults_.Add({Severity::kWarning, tree_.PointerTo(at), std::nullopt, Cat(parts...)});
    }
  }
  // Returns true when `id` is of `kind`; otherwise reports `what` ("Type", "Shape").
  bool Expect(JsonId id, Kind kind, std::string_view what);
  // Returns false when `id` is no object. Reports unknown and missing members.
  bool ReadFields(JsonId id, std::string_view what, std::initializer_list<Key> allowed,
                  std::initializer_list<Key> required, Fields& fields);
  void ReportUnknown(JsonId member, std::string_view what, std::initializer_list<Key> allowed);
  // Calls f(child) for every child of the array; reports a value that is no array or has more than `max` items. `id`
  // may be kNoJson.
  template <typename F>
  void ForEach(JsonId id, std::string_view what, uint32_t max, F f) {
    if (id == kNoJson || !Expect(id, Kind::kArray, what)) {
      return;
    }
    if (tree_[id].size > max) {
      Fail(id, what, " has ", tree_[id].size, " items; the limit is ", max, ".");
      return;
    }
    for (JsonId child = tree_.FirstChild(id); child != kNoJson; child = tree_.Next(child)) {
      f(child);
    }
  }
  // Returns the index in `names`; reports any other value and returns nothing.
  std::optional<uint32_t> ReadChoice(JsonId id, std::string_view what, std::span<const std::string_view> names);
  std::string ReadText(JsonId id, std::string_view what);
  // Handles names of members (nodes, inputs) and names that are values (ports, scalars).
  bool CheckName(JsonId at, std::string_view what, std::string_view name);
  std::string ReadName(JsonId id, std::string_view what);
  void ReadRoot();
  void ReadNode(uint32_t index);
  void ReadChildren(uint32_t index, JsonId nodes);

  // Symbols, expressions and ports, in build_ports.cc.
  void DeclareSymbols(JsonId id);
  SymbolId FindSymbol(std::string_view name, JsonId at);
  SymbolId MakeSymbol(std::string_view name, JsonId at);
  bool SeesIndex(uint32_t symbol) const;
  void DeclareIndices(Node& node, JsonId id);
  // Returns a placeholder without terms when the expression is wrong.
  Expr ReadExpr(JsonId id, std::string_view what, int64_t min);
  // Reads a string as an expression in floating point.
  Expr ReadRealExpr(JsonId id, std::string_view what);
  std::optional<Expr> ParseExprAt(JsonId id, std::string_view what, ExprNumbers numbers);
  // Reads a leaf's extents: each is an expression, or an object with the port that provides the extent when the node
  // starts.
  void ReadInstances(Node& node, JsonId id);
  uint32_t ReadExtentPort(const Node& node, JsonId id);
  std::vector<Expr> ReadExprs(JsonId id, std::string_view what, uint32_t max, int64_t min);
  void ReadGraphPorts(JsonId id, Access access);
  void ReadPorts(Node& node, JsonId id);
  void ReadTypeAndShape(Port& port, const Fields& fields);
  void CheckSymbolsSolvable();

  // In build_modules.cc.
  void ReadModules(JsonId id);
  void ReadModule(Module& module, JsonId id);
  void ReadSource(Module& module, JsonId id);

  // In build_leaf.cc.
  void ReadLeaf(Node& node, JsonId id);
  void ReadInternal(Node& node, uint32_t index, JsonId id);
  void ReadScalars(Node& node, JsonId id);
  void ReadScalarValue(Scalar& scalar, JsonId id);
  void ReadScalarInput(Scalar& scalar, JsonId id);
  void ReadParams(Node& node, JsonId id);
  void ReadVariants(Node& node, JsonId id);
  void ReadVariant(Variant& variant, JsonId id);
  void ReadConstants(Variant& variant, JsonId id);
  void ReadConstant(Variant& variant, JsonId id);
  std::vector<std::string> ReadDevices(JsonId id, std::string_view what);

  // In build_edges.cc.
  void ReadEdges(uint32_t index);
  void ReadEdge(uint32_t index, Edge& edge, JsonId id);
  Endpoint ReadEndpoint(uint32_t index, JsonId id, bool is_source);
  uint32_t FindPort(const Node& node, std::string_view name, bool is_source);
  // Reports an unknown child. Returns the child that was probably meant; an invalid id when no name is near.
  NodeId ReportNoNode(uint32_t index, JsonId id, std::string_view name);

  const JsonTree& tree_;
  const Limits& limits_;
  DiagnosticSink& faults_;
  Graph& graph_;
  uint64_t work_ = 0;

  // One per node, while nodes are read.
  struct Pending {
    JsonId object = kNoJson;
    JsonId edges = kNoJson;
    uint32_t depth = 0;
  };
  std::vector<Pending> pending_;
  bool too_many_nodes_ = false;
  uint64_t edges_ = 0;
  uint32_t reading_ = 0;  // The node being read: its ancestors' replica indices are visible, its own are not.

  Interner symbol_names_;          // Interned numbers are SymbolIds.
  std::vector<JsonId> first_use_;  // Indexed by SymbolId.

  // Keyed by interned member name.
  std::unordered_map<uint32_t, uint32_t> input_of_, module_of_;
  // Indexed by interned member name: the child of the scope read last, and that scope.
  std::vector<std::pair<uint32_t, uint32_t>> child_of_;
  // Nodes with a port whose name was refused.
  std::unordered_set<uint32_t> unnamed_ports_;
  // Ports of nodes with many ports: the nodes that are in the table, and (node, name) -> number -> port.
  std::unordered_set<uint64_t> port_tables_;
  Interner port_names_;
  std::vector<uint32_t> port_of_name_;
};

}  // namespace hpvm::graph

#endif  // HPVMD_GRAPH_BUILD_H_
