// SPDX-License-Identifier: Apache-2.0
// LongFormWriter implements long_form.h. Only graph/long_form*.cc include this header.
//
// Method: each scope (the document, and each internal node) is rewritten in three steps. Index (long_form_index.cc)
// records the scope's inputs and nodes as Members, each with its ports. Resolve (long_form_resolve.cc) finds the port
// that each argument reads; data that is updated in place gets its type and shape through its chain of sources, each
// link of which is walked once. Write (long_form.cc) copies the scope's members, with ports, scalars, parameters,
// instances, variants and edges in place of arguments.
//
// Invariants: only nested scopes, whose depth is limited, cause recursion; each argument is resolved once; the output
// counts against the document's limits, since it repeats types and shapes.
#ifndef HPVMD_GRAPH_LONG_FORM_WRITER_H_
#define HPVMD_GRAPH_LONG_FORM_WRITER_H_

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "graph/diagnostic_sink.h"
#include "graph/interner.h"
#include "graph/json_tree.h"
#include "graph/parse.h"
#include "graph/short_argument.h"

namespace hpvm::graph::long_form {

inline constexpr uint32_t kNone = 0xffffffffu;
inline constexpr size_t kLinearPortsMax = 16;  // Up to this many ports a linear search is faster than a table.

inline Key KeyOf(const JsonValue& member) {
  return member.name < kKeyNames.size() ? static_cast<Key>(member.name) : static_cast<Key>(kKeyNames.size());
}
inline std::string_view Text(Key key) { return kKeyNames[static_cast<size_t>(key)]; }

// A type and a shape: as text, or as the members of an object in the long form's syntax.
struct Tensor {
  JsonId at = kNoJson;  // The place that declares the tensor; kNoJson when it is not known.
  ShortTensor text;
  JsonId type = kNoJson, shape = kNoJson;  // Set for an object; `text` is then empty.
  bool is_known() const { return at != kNoJson; }
  size_t rank(const JsonTree& document) const { return shape == kNoJson ? text.extents.size() : document[shape].size; }
};

struct PortFact {
  std::string name;
  bool is_written = false;  // Access out or inout: other nodes may read the port.
  bool is_read = false;     // Access in or inout.
  Tensor tensor;
  uint32_t argument = kNone;  // For a port that is read: position of its argument in the node's arguments.
  uint32_t walk = 0;          // Number of the last walk of FollowSources that passed this port.
};

// An argument of a node in short form, in the kernel's order.
struct Argument {
  JsonId at = kNoJson;
  uint32_t port = kNone;  // Position in the node's ports; kNone for a scalar.
  std::string scalar_name;
  // Set for a scalar: its type, and its value as an expression or as an input's name; without either the value is the
  // JSON number.
  std::string_view type, value, input;
  // Set for a port that is read: the source, as member and port.
  uint32_t source = kNone, source_port = 0;
};

// An input or a node of a scope.
struct Member {
  JsonId id = kNoJson;
  bool is_node = false, is_short = false;
  std::vector<PortFact> ports;
  std::vector<Argument> arguments;
  std::unordered_set<std::string> names;  // Names of ports and scalars, so that FreeName makes each of them unique.
  // Number of the ports that other nodes may read, and the first such port.
  uint32_t written = 0, first_written = kNone;
};

class LongFormWriter {
 public:
  LongFormWriter(const JsonTree& document, const Limits& limits, DiagnosticSink& faults, JsonTree& long_form)
      : document_(document), limits_(limits), faults_(faults), writer_(long_form, document) {}

  void Write();

 private:
  using Kind = JsonValue::Kind;

  struct Scope {
    uint32_t number = 0;
    std::deque<Member> members;  // Inputs come before nodes.
    // The sources that the document's outputs name, in document order.
    struct Output {
      JsonId at;
      uint32_t member = kNone, port = kNone;
    };
    std::deque<Output> outputs;
    // Edges that arguments and outputs add to the scope.
    struct Edge {
      JsonId at;
      std::string from, to;
    };
    std::vector<Edge> edges;
  };

  template <typename... Parts>
  void Fail(JsonId at, const Parts&... parts) {
    if (faults_.AdmitError()) {
      faults_.Add({Severity::kError, document_.PointerTo(at), std::nullopt, Cat(parts...)});
    }
  }
  bool Is(JsonId id, Kind kind) const { return id != kNoJson && document_[id].kind() == kind; }
  template <typename F>
  void ForEachChild(JsonId id, F f) const {
    for (JsonId child = document_.FirstChild(id); child != kNoJson; child = document_.Next(child)) {
      f(child);
    }
  }
  JsonId Find(JsonId object, Key key) const {
    JsonId found = kNoJson;
    if (Is(object, Kind::kObject)) {
      ForEachChild(object, [&](JsonId child) { found = KeyOf(document_[child]) == key ? child : found; });
    }
    return found;
  }

  // --- Index ---
  void FindSymbols();
  void AddSymbols(std::string_view text);
  void IndexInputs(Scope& scope, JsonId object, bool is_root);
  void IndexNode(Scope& scope, JsonId id);
  void IndexFullPorts(Member& member, JsonId ports);
  void IndexArguments(Member& member, JsonId arguments);
  void AddPort(Member& member, Argument& argument, std::string_view name, PortFact fact);
  // Returns `wanted`, or when the node already has that name, `wanted` with a number from `position`, the argument's
  // position, on.
  static std::string FreeName(Member& member, std::string_view wanted, size_t position);
  void CountWritten(const Scope& scope, uint32_t member);
  Tensor ReadTensor(JsonId id, std::string_view what);
  // Reports a shape with too many extents where it is read: the long form repeats shapes, so a long one would multiply.
  bool CheckRank(JsonId at, size_t rank);
  bool CheckType(JsonId at, std::string_view name);
  void AddIndices(JsonId object);

  // --- Resolve ---
  void Resolve(Scope& scope);
  void ResolveOutputs(Scope& scope);
  void ResolveArguments(Scope& scope, Member& member);
  void ResolveName(Scope& scope, Member& member, Argument& argument, const ShortArgument& read);
  bool FindSource(Scope& scope, std::string_view text, JsonId at, uint32_t* member, uint32_t* port);
  bool FindPortOf(const Scope& scope, uint32_t member, std::string_view name, JsonId at, uint32_t* port);
  void FailUnknown(const Scope& scope, std::string_view name, JsonId at, bool may_be_symbol);
  uint32_t MemberNamed(const Scope& scope, std::string_view name) const;
  // Gives the scope's next member this name. Returns false when another member of the scope already has it.
  bool NameNext(const Scope& scope, std::string_view name);
  void FollowSources(Scope& scope, uint32_t member, uint32_t argument);

  // --- Write ---
  bool HasRoom();
  void WriteScope(JsonId object, uint32_t depth);
  void WriteMember(Scope& scope, JsonId member, uint32_t depth);
  std::string OnlyModule(JsonId root);
  void WriteModules(JsonId modules);
  void WriteModule(std::string_view name, JsonId file);
  void WriteInputs(const Scope& scope, JsonId inputs);
  void WriteOutputs(Scope& scope, JsonId outputs);
  void WriteNodes(Scope& scope, JsonId nodes, uint32_t depth);
  void WriteLeaf(Scope& scope, const Member& member);
  void WritePorts(const Member& member);
  void WriteScalars(const Member& member);
  void WriteParams(const Member& member);
  void WriteInstances(const Member& member);
  void WriteVariants(const Member& member);
  void WriteEdges(const Scope& scope, JsonId edges);
  void WriteTensor(const Tensor& tensor);
  void WriteExtent(std::string_view text, JsonId origin);
  void WriteText(Key key, std::string_view text, JsonId origin) {
    writer_.Member(Text(key));
    writer_.AddString(text, origin);
  }
  std::string EndOf(const Scope& scope, uint32_t member, uint32_t port) const;

  const JsonTree& document_;
  const Limits& limits_;
  DiagnosticSink& faults_;
  TreeWriter writer_;
  bool is_full_ = false;
  uint32_t scopes_ = 0, walks_ = 0;
  // Names of members; indexed by a name's number, the scope that last had a member of that name, and that member.
  Interner names_;
  std::vector<std::pair<uint32_t, uint32_t>> member_of_;
  Interner symbols_;
  // Ports that other nodes may read, of nodes with more than kLinearPortsMax ports: "scope:member:name" -> number ->
  // port.
  Interner port_names_;
  std::vector<uint32_t> port_of_name_;
  std::string only_module_;  // Empty when the document has no module, or more than one.
  // Arguments that are not resolved yet, in document order.
  std::deque<std::pair<JsonId, ShortArgument>> reads_;
};

}  // namespace hpvm::graph::long_form

#endif  // HPVMD_GRAPH_LONG_FORM_WRITER_H_
