// SPDX-License-Identifier: Apache-2.0
// The content of a graph document, validated once and then used without further checks.
//
// Storage is an arena with typed ids. nodes[0] is the root, an internal node whose ports are the graph's inputs and
// outputs. Children of an internal node are in topological order of its edges. parse.h makes a Graph from JSON;
// validate.h contains the rules; flatten.h gives the engine a list of leaf launches for given symbol values.
//
// Endpoints in documents are "node.port" for a sibling's port and "port" for the enclosing node's own port. An
// `inout` port has both sides: it takes one edge (the data it updates) and may feed others (the updated data). `in`
// and `inout` ports must have an incoming edge; the memory of an `out` port without one reads as zero before the
// kernel runs. Outputs fan out freely.
#ifndef HPVMD_GRAPH_GRAPH_H_
#define HPVMD_GRAPH_GRAPH_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/hash.h"
#include "base/ids.h"
#include "base/module_kind.h"
#include "hpvm/element_type.h"

namespace hpvm::graph {

using NodeId = Id<struct NodeTag>;
using ModuleId = Id<struct ModuleTag>;
using SymbolId = Id<struct SymbolTag>;

// An integer expression of symbols: + - * / % ( ) min max in checked int64; / and % are floored and refuse zero.
// Stored as reverse Polish code.
struct Expr {
  enum class Kind : uint8_t { kConst, kReal, kSymbol, kAdd, kSub, kMul, kDiv, kMod, kMin, kMax, kNeg };
  struct Term {
    Kind kind;
    int64_t value = 0;  // For kConst, the number; for kReal, a double's bits; for kSymbol, the SymbolId's index.
    friend bool operator==(const Term&, const Term&) = default;
  };
  std::vector<Term> terms;
  std::string text;  // As written.
  friend bool operator==(const Expr&, const Expr&) = default;
};

enum class Access : uint8_t { kIn, kOut, kInOut };

struct Port {
  std::string name;
  Access access = Access::kIn;
  ElementType type = ElementType::kF32;
  std::vector<Expr> shape;  // Row-major, rank 0 to limits::kTensorRankMax.
  friend bool operator==(const Port&, const Port&) = default;
};

enum class ScalarType : uint8_t { kI32, kI64, kF32, kF64 };

// A kernel's scalar parameter: a number, an expression of symbols, or the name of a rank-0 input of the graph.
struct Scalar {
  std::string name;
  ScalarType type = ScalarType::kI32;
  struct InputRef {
    std::string input;
    friend bool operator==(const InputRef&, const InputRef&) = default;
  };
  // A double only for f32 and f64, whose expressions are computed in floating point (EvaluateReal).
  std::variant<double, Expr, InputRef> value;
  friend bool operator==(const Scalar&, const Scalar&) = default;
};

// A JSON pointer in the document that was parsed, for messages. Any two compare as equal: graphs of different documents
// are equal when they say the same.
struct DocumentPointer {
  std::string text;
  friend bool operator==(const DocumentPointer&, const DocumentPointer&) { return true; }
};

struct Module {
  std::string name;
  ModuleKind kind = ModuleKind::kWasm;
  enum class Source : uint8_t { kFile, kHash, kInline } source = Source::kFile;
  std::string file;            // For kFile: as written, relative to the document; only clients resolve it.
  std::optional<Sha256> hash;  // For kHash.
  std::vector<uint8_t> bytes;  // For kInline (base64 in the document).
  std::string build_options;   // For OpenCL.
  DocumentPointer pointer;
  friend bool operator==(const Module&, const Module&) = default;
};

// A value for a specialisation constant of a SPIR-V module, which determines the constant's type.
struct Constant {
  uint32_t id = 0;                      // The SpecId.
  std::variant<int64_t, double> value;  // true and false are 1 and 0.
  friend bool operator==(const Constant&, const Constant&) = default;
};

struct Variant {
  ModuleId module;
  std::string entry;
  bool hpvm_web = false;             // "abi": "hpvm-web".
  std::vector<std::string> devices;  // Empty when any device may run it.
  std::vector<Constant> constants;   // In document order; only for modules of kind spirv.
  DocumentPointer pointer;
  friend bool operator==(const Variant&, const Variant&) = default;
};

enum class EdgeKind : uint8_t { kAllToAll, kOneToOne };

// One side of an edge. An invalid node means the enclosing node's own port.
struct Endpoint {
  NodeId node;
  uint32_t port = 0;  // Index in that node's ports.
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

struct Edge {
  Endpoint source, target;
  EdgeKind kind = EdgeKind::kAllToAll;
  bool stream = false;
  uint32_t capacity = 1;  // In items; for streams only.
  friend bool operator==(const Edge&, const Edge&) = default;
};

struct Node {
  std::string name;  // Unique among siblings; [A-Za-z_][A-Za-z0-9_-]*.
  NodeId parent;     // Invalid for the root.
  bool is_leaf = true;
  std::vector<Port> ports;
  std::vector<Expr> instances;     // 0 to 3 extents; empty means one instance. For internal nodes: replication.
  std::vector<std::string> index;  // For replicated internal nodes: symbols that hold the replica's index inside, one
                                   // per dimension; may be empty.
  std::vector<SymbolId> index_symbols;

  // The following members are for leaves.
  std::vector<Scalar> scalars;
  // The order of the entry's parameters: index into ports, or ports.size() + index into scalars. Ports precede
  // scalars unless "params" gives another order.
  std::vector<uint32_t> params;
  // Indexed by dimension of `instances`: index of the port (access in, one element of i32, u32, i64 or u64) that
  // provides the number of instances when the node starts; `instances` is then the limit. kFixedExtent when the
  // expression is the extent.
  static constexpr uint32_t kFixedExtent = 0xffffffffu;
  std::vector<uint32_t> extent_ports;  // Empty when all extents are fixed.
  std::vector<Expr> group;             // Empty, or as many extents as instances.
  std::vector<Variant> variants;
  std::vector<std::string> devices;  // Allowed device kinds or ids ("gpu", "cpu:0"); empty when any is allowed.
  std::vector<std::string> hints;    // Preferred devices, in order.
  bool fast_math = false;

  // The following members are for internal nodes.
  std::vector<NodeId> children;  // In topological order.
  std::vector<Edge> edges;

  std::string pointer;  // JSON pointer in the document, for messages.
  friend bool operator==(const Node&, const Node&) = default;
};

struct Graph {
  uint32_t version = 1;
  std::string name;
  std::string description;
  std::vector<std::string> symbols;
  std::vector<bool> is_index_symbol;  // True for replica indices, which are never solved from shapes.
  uint32_t declared_symbols = 0;      // Number of symbols listed under "symbols", which come first; their values may be
                                      // given at run time.
  std::vector<Module> modules;
  std::vector<Node> nodes;
  bool streaming = false;  // Some edge streams; inputs are then sequences.

  NodeId root() const { return NodeId(uint32_t{0}); }
  const Node& node(NodeId id) const { return nodes[id.index]; }
  Node& node(NodeId id) { return nodes[id.index]; }
  friend bool operator==(const Graph&, const Graph&) = default;
};

}  // namespace hpvm::graph

#endif  // HPVMD_GRAPH_GRAPH_H_
