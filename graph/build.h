// SPDX-License-Identifier: Apache-2.0
// From the JSON tree to a Graph: every rule that looks at one object or resolves one name. Rules between nodes are
// in validate.h.
//
// Nodes are taken from a queue, never by recursion. What cannot be read is reported and stands in the graph as a
// placeholder that validate.h passes over (see there), so that one fault is not reported twice.
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

#include "graph/expr.h"
#include "graph/faults.h"
#include "graph/graph.h"
#include "graph/interner.h"
#include "graph/json_tree.h"
#include "graph/parse.h"

namespace hpvm::graph {

// The members of one object, by Key.
struct Fields {
  std::array<JsonId, kKeyNames.size()> ids;
  JsonId operator[](Key key) const { return ids[static_cast<size_t>(key)]; }
  bool has(Key key) const { return (*this)[key] != kNoJson; }
};

class Builder {
 public:
  Builder(const JsonTree& tree, const Limits& limits, Faults& faults, Graph& graph);
  void Build();
  uint64_t work() const { return work_ + symbol_names_.probes() + port_names_.probes() + tree_.names().probes(); }

 private:
  using Kind = JsonValue::Kind;

  // build.cc: common ground.
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
  // True when `id` is of `kind`; reports `what` otherwise ("Type", "Shape").
  bool Expect(JsonId id, Kind kind, std::string_view what);
  // False when `id` is no object. Reports unknown and missing members.
  bool ReadFields(JsonId id, std::string_view what, std::initializer_list<Key> allowed,
                  std::initializer_list<Key> required, Fields& fields);
  void ReportUnknown(JsonId member, std::string_view what, std::initializer_list<Key> allowed);
  // Calls f(child) for every child of the array; reports what is no array or has more than `max` items. `id` may be
  // kNoJson.
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
  // One of `names`; reports otherwise and gives nothing.
  std::optional<uint32_t> ReadChoice(JsonId id, std::string_view what, std::span<const std::string_view> names);
  std::string ReadText(JsonId id, std::string_view what);
  // Names of members (nodes, inputs) and names that are values (ports, scalars).
  bool CheckName(JsonId at, std::string_view what, std::string_view name);
  std::string ReadName(JsonId id, std::string_view what);
  void ReadRoot();
  void ReadNode(uint32_t index);
  void ReadChildren(uint32_t index, JsonId nodes);

  // build_ports.cc: symbols, expressions, ports.
  void DeclareSymbols(JsonId id);
  SymbolId FindSymbol(std::string_view name, JsonId at);
  SymbolId MakeSymbol(std::string_view name, JsonId at);
  bool SeesIndex(uint32_t symbol) const;
  void DeclareIndices(Node& node, JsonId id);
  // A placeholder without terms when it is wrong.
  Expr ReadExpr(JsonId id, std::string_view what, int64_t min);
  // Of a string, in floating point.
  Expr ReadRealExpr(JsonId id, std::string_view what);
  std::optional<Expr> ParseExprAt(JsonId id, std::string_view what, ExprNumbers numbers);
  // Extents of a leaf: each an expression, or an object that names the port which says it when the node starts.
  void ReadInstances(Node& node, JsonId id);
  uint32_t ReadExtentPort(const Node& node, JsonId id);
  std::vector<Expr> ReadExprs(JsonId id, std::string_view what, uint32_t max, int64_t min);
  void ReadGraphPorts(JsonId id, Access access);
  void ReadPorts(Node& node, JsonId id);
  void ReadTypeAndShape(Port& port, const Fields& fields);
  void CheckSymbolsSolvable();

  // build_modules.cc.
  void ReadModules(JsonId id);
  void ReadModule(Module& module, JsonId id);
  void ReadSource(Module& module, JsonId id);

  // build_leaf.cc.
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

  // build_edges.cc.
  void ReadEdges(uint32_t index);
  void ReadEdge(uint32_t index, Edge& edge, JsonId id);
  Endpoint ReadEndpoint(uint32_t index, JsonId id, bool is_source);
  uint32_t FindPort(const Node& node, std::string_view name, bool is_source);
  // The child that was probably meant; invalid when none is near.
  NodeId ReportNoNode(uint32_t index, JsonId id, std::string_view name);

  const JsonTree& tree_;
  const Limits& limits_;
  Faults& faults_;
  Graph& graph_;
  uint64_t work_ = 0;

  // One a node, while they are read.
  struct Pending {
    JsonId object = kNoJson;
    JsonId edges = kNoJson;
    uint32_t depth = 0;
  };
  std::vector<Pending> pending_;
  bool too_many_nodes_ = false;
  uint64_t edges_ = 0;
  uint32_t reading_ = 0;  // The node being read: its ancestors' replica indices are visible, its own are not.

  Interner symbol_names_;          // Numbers are SymbolIds.
  std::vector<JsonId> first_use_;  // By SymbolId.

  // By interned member name.
  std::unordered_map<uint32_t, uint32_t> input_of_, module_of_;
  // By interned member name: the child of the scope last read, and which scope that was.
  std::vector<std::pair<uint32_t, uint32_t>> child_of_;
  // Nodes with a port whose name was refused.
  std::unordered_set<uint32_t> unnamed_ports_;
  // Ports of nodes with many: which nodes stand in the table, (node, name) -> number -> port.
  std::unordered_set<uint64_t> port_tables_;
  Interner port_names_;
  std::vector<uint32_t> port_of_name_;
};

}  // namespace hpvm::graph

#endif  // HPVMD_GRAPH_BUILD_H_
