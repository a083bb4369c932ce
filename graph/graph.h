// SPDX-License-Identifier: Apache-2.0
// The graph: what a document says, validated once, then read without further checks.
//
// Arena and typed ids. nodes[0] is the root, an internal node whose ports are the graph's inputs and outputs.
// Children of an internal node stand in topological order of its edges. parse.h makes a Graph from JSON; validate.h
// holds the rules; flatten.h gives the engine a plain list of leaf launches for given symbol values.
//
// Endpoints in documents are "node.port" for a sibling's port and "port" for the enclosing node's own. An `inout`
// port has both sides: it takes one edge (the data it updates) and may feed others (the updated data). Ports
// without an incoming edge: `in` and `inout` must have one; `out` memory reads as zero before the kernel runs.
// Outputs fan out freely.
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

// An integer expression of symbols: + - * / % ( ) min max, int64, checked; / and % are floored and refuse zero.
// Kept as reverse Polish code.
struct Expr {
  enum class Kind : uint8_t { kConst, kReal, kSymbol, kAdd, kSub, kMul, kDiv, kMod, kMin, kMax, kNeg };
  struct Term {
    Kind kind;
    int64_t value = 0;  // kConst: the number; kReal: a double's bits; kSymbol: the SymbolId's index.
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

// A kernel's scalar parameter: a number, an expression of symbols, or a rank-0 input of the graph named at the
// root.
struct Scalar {
  std::string name;
  ScalarType type = ScalarType::kI32;
  struct InputRef {
    std::string input;
    friend bool operator==(const InputRef&, const InputRef&) = default;
  };
  // The double only for f32 and f64, whose expressions are computed in floating point (EvaluateReal).
  std::variant<double, Expr, InputRef> value;
  friend bool operator==(const Scalar&, const Scalar&) = default;
};

struct Module {
  std::string name;
  ModuleKind kind = ModuleKind::kWasm;
  enum class Source : uint8_t { kFile, kHash, kInline } source = Source::kFile;
  std::string file;            // kFile: as written, relative to the document; only clients resolve it.
  std::optional<Sha256> hash;  // kHash.
  std::vector<uint8_t> bytes;  // kInline (base64 in the document).
  std::string build_options;   // OpenCL.
  friend bool operator==(const Module&, const Module&) = default;
};

// A value for one of a SPIR-V module's specialisation constants, whose type the module says.
struct Constant {
  uint32_t id = 0;                      // SpecId.
  std::variant<int64_t, double> value;  // true and false are 1 and 0.
  friend bool operator==(const Constant&, const Constant&) = default;
};

struct Variant {
  ModuleId module;
  std::string entry;
  bool hpvm_web = false;             // "abi": "hpvm-web".
  std::vector<std::string> devices;  // Empty: any.
  std::vector<Constant> constants;   // In the document's order; only modules of kind spirv.
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
  uint32_t capacity = 1;  // Items; streams only.
  friend bool operator==(const Edge&, const Edge&) = default;
};

struct Node {
  std::string name;  // Unique among siblings; [A-Za-z_][A-Za-z0-9_-]*.
  NodeId parent;     // Invalid for the root.
  bool is_leaf = true;
  std::vector<Port> ports;
  std::vector<Expr> instances;     // 0 to 3 extents; empty is one instance. Internal nodes: replication.
  std::vector<std::string> index;  // Replicated internal nodes: symbols that hold the replica's index inside, one a
                                   // dimension; may be empty.
  std::vector<SymbolId> index_symbols;

  // Leaves.
  std::vector<Scalar> scalars;
  // The order of the entry's parameters: index into ports, or ports.size() + index into scalars. Ports then scalars
  // unless "params" says else.
  std::vector<uint32_t> params;
  // By dimension of `instances`: index of the port (access in, one element of i32, u32, i64 or u64) that says when the
  // node starts how many instances run; `instances` is then the limit. kFixedExtent: the expression says.
  static constexpr uint32_t kFixedExtent = 0xffffffffu;
  std::vector<uint32_t> extent_ports;  // Empty: all fixed.
  std::vector<Expr> group;             // Empty, or as many extents as instances.
  std::vector<Variant> variants;
  std::vector<std::string> devices;  // Restriction to kinds or ids ("gpu", "cpu:0"); empty: any.
  std::vector<std::string> hints;    // Preferences, in order.
  bool fast_math = false;

  // Internal nodes.
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
  std::vector<bool> is_index_symbol;  // Replica indices; never solved from shapes.
  uint32_t declared_symbols = 0;      // The first ones, listed under "symbols": values may be given at run time.
  std::vector<Module> modules;
  std::vector<Node> nodes;
  bool streaming = false;  // Some edge streams; then inputs are sequences.

  NodeId root() const { return NodeId(uint32_t{0}); }
  const Node& node(NodeId id) const { return nodes[id.index]; }
  Node& node(NodeId id) { return nodes[id.index]; }
  friend bool operator==(const Graph&, const Graph&) = default;
};

}  // namespace hpvm::graph

#endif  // HPVMD_GRAPH_GRAPH_H_
