// SPDX-License-Identifier: Apache-2.0
// Builds graph documents in code.
//
//   hpvm::Graph graph("matmul");
//   graph.Input("A", hpvm::ElementType::kF32, {"m", "k"});
//   graph.Input("B", hpvm::ElementType::kF32, {"k", "n"});
//   graph.Output("C", hpvm::ElementType::kF32, {"m", "n"});
//   graph.ModuleFile("matmul", hpvm::v1::MODULE_KIND_WASM, "matmul.wasm");
//   graph.Node("multiply", {.module = "matmul", .entry = "matmul",
//                           .ports = {hpvm::In("a", hpvm::ElementType::kF32, {"m", "k"}),
//                                     hpvm::In("b", hpvm::ElementType::kF32, {"k", "n"}),
//                                     hpvm::Out("c", hpvm::ElementType::kF32, {"m", "n"})},
//                           .scalars = {{"n", "i32", "n"}, {"k", "i32", "k"}},
//                           .instances = {"n", "m"}});
//   graph.Connect("A", "multiply.a");
//   graph.Connect("B", "multiply.b");
//   graph.Connect("multiply.c", "C");
//
// The names are those of schemas/graph.schema.json, which explains each. Methods do not report wrong arguments;
// `document` lists all errors at once, and the server lists those that only it can detect.
#ifndef HPVMD_CLIENT_INCLUDE_HPVM_GRAPH_H_
#define HPVMD_CLIENT_INCLUDE_HPVM_GRAPH_H_

#include <concepts>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "hpvm/element_type.h"
#include "hpvm/options.h"
#include "hpvm/types.h"
#include "hpvm/v1/graph.pb.h"

namespace hpvm {

// A number, or an integer expression of symbols: "2 * n + 1".
struct Extent {
  template <std::integral T>
  Extent(T number) : value(static_cast<int64_t>(number)) {}           // NOLINT: a number is an extent.
  Extent(std::string expression) : value(std::move(expression)) {}    // NOLINT
  Extent(const char* expression) : value(std::string(expression)) {}  // NOLINT
  std::variant<int64_t, std::string> value;
};
using Shape = std::vector<Extent>;

// An extent of `instances`, or the number that an in port of rank 0 holds when the node starts.
struct Instances {
  template <typename T>
  requires std::constructible_from<Extent, T> Instances(T extent)
      : max(extent) {}  // NOLINT: an extent is a number of instances.
  // The number in `port`, at most `limit`; a greater number fails the run.
  static Instances FromPort(std::string port, Extent limit) {
    Instances made(std::move(limit));
    made.port = std::move(port);
    return made;
  }
  std::string port;  // When empty, `max` is the number.
  Extent max;
};

struct Port {
  std::string name;
  enum class Access : uint8_t { kIn, kOut, kInOut } access = Access::kIn;
  ElementType type = ElementType::kF32;
  Shape shape = {};
};
inline Port In(std::string name, ElementType type, Shape shape = {}) {
  return {std::move(name), Port::Access::kIn, type, std::move(shape)};
}
inline Port Out(std::string name, ElementType type, Shape shape = {}) {
  return {std::move(name), Port::Access::kOut, type, std::move(shape)};
}
inline Port InOut(std::string name, ElementType type, Shape shape = {}) {
  return {std::move(name), Port::Access::kInOut, type, std::move(shape)};
}

// A number, an expression of symbols, or an input of the graph with rank 0 and the same type.
struct ScalarValue {
  template <std::integral T>
  ScalarValue(T number) : value(static_cast<int64_t>(number)) {}           // NOLINT: a number is a value.
  ScalarValue(double number) : value(number) {}                            // NOLINT
  ScalarValue(std::string expression) : value(std::move(expression)) {}    // NOLINT
  ScalarValue(const char* expression) : value(std::string(expression)) {}  // NOLINT
  static ScalarValue FromInput(std::string input) {
    ScalarValue made(0);
    made.value = InputName{std::move(input)};
    return made;
  }
  struct InputName {
    std::string name;
  };
  std::variant<int64_t, double, std::string, InputName> value;
};
struct Scalar {
  std::string name;
  std::string type;  // "i32", "i64", "f32" or "f64".
  ScalarValue value;
};

// One implementation of a node.
struct Variant {
  std::string module, entry;
  std::string abi = {};  // "hpvm" when empty.
  std::vector<std::string> devices = {};
  // SPIR-V's specialisation constants, by SpecId.
  std::map<uint32_t, std::variant<bool, int64_t, double>> constants = {};
};

struct NodeOptions {
  // The only variant, in short form; those below come in addition.
  std::string module = {}, entry = {};
  std::vector<Port> ports = {};
  std::vector<Scalar> scalars = {};
  // The order of the entry's parameters; when empty: ports, then scalars.
  std::vector<std::string> params = {};
  std::vector<Instances> instances = {};  // x first; one instance when empty.
  Shape group = {};                       // Group size; the scheduler chooses when empty.
  std::vector<Variant> variants = {};
  std::vector<std::string> devices = {}, hints = {};
  std::string math = {};  // "exact" or "fast"; exact when empty.
};

struct BlockOptions {
  std::vector<Port> ports = {};
  Shape instances = {};                 // Number of replicas; one when empty.
  std::vector<std::string> index = {};  // Symbols that hold a replica's index, one for each extent.
};

struct EdgeOptions {
  bool one_to_one = false;  // Instance i reads only what instance i wrote.
  bool stream = false;
  uint32_t capacity = 0;  // Capacity of a streaming edge; the default when 0.
};

// Block holds nodes and the edges between them: those of a graph, or those inside a node. Not thread-safe.
class Block {
 public:
  Block() = default;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  Block(Block&&) = default;
  Block& operator=(Block&&) = default;

  // Adds a kernel with its options.
  void Node(std::string name, NodeOptions options);
  // Adds a node that holds a graph of its own and returns that graph, which lives as long as this block. Edges inside
  // start and end at the node's ports, by their bare names.
  Block& Nested(std::string name, BlockOptions options);
  // Each end is "node.port", or "port" for a port of this block: at the top level an input or an output of the graph.
  void Connect(std::string from, std::string to, EdgeOptions options = {});

 private:
  friend class Graph;
  friend class DocumentWriter;
  struct Item {
    std::string name;
    NodeOptions leaf;
    BlockOptions outside;           // Options of `inside`.
    std::unique_ptr<Block> inside;  // Null for a leaf.
  };
  struct Edge {
    std::string from, to;
    EdgeOptions options;
  };

  std::vector<Item> items_;
  std::vector<Edge> edges_;
};

// Not thread-safe. Movable.
class Graph : public Block {
 public:
  explicit Graph(std::string name = {}) : name_(std::move(name)) {}

  void Description(std::string text) { description_ = std::move(text); }
  // Declares a symbol whose value is given with each run. A symbol that is a whole extent of an input need not be
  // declared.
  void Symbol(std::string name) { symbols_.push_back(std::move(name)); }
  void Input(std::string name, ElementType type, Shape shape = {});
  void Output(std::string name, ElementType type, Shape shape = {});

  // Adds code that holds kernels. `options` are those of the OpenCL C compiler.
  void Module(std::string name, v1::ModuleKind kind, std::vector<uint8_t> bytes, std::string options = {});
  // The file is read by `modules`, and so by Prepare.
  void ModuleFile(std::string name, v1::ModuleKind kind, std::string file, std::string options = {});
  // Names a module that the server already has by its SHA-256 in hexadecimal.
  void ModuleHash(std::string name, v1::ModuleKind kind, std::string sha256, std::string options = {});

  // Returns the document's text, or kInvalidArgument with every error that the document shows by itself: invalid or
  // duplicate names, edges from or to missing ports, nodes without an implementation or with a missing module.
  // DiagnosticsOf returns the list, with JSON pointers into the document.
  StatusOr<std::string> document() const;
  // Returns the modules of the document. Reads the files; kNotFound and similar codes name a file that cannot be
  // read.
  StatusOr<Modules> modules() const;

 private:
  friend class DocumentWriter;
  struct ModuleItem {
    std::string name;
    v1::ModuleKind kind = v1::MODULE_KIND_UNSPECIFIED;
    std::string options;
    std::vector<uint8_t> bytes;
    std::string file, sha256;  // At most one of the two is set; `bytes` when none.
  };

  std::string name_, description_;
  std::vector<std::string> symbols_;
  std::vector<Port> inputs_, outputs_;
  std::vector<ModuleItem> modules_;
};

}  // namespace hpvm

#endif  // HPVMD_CLIENT_INCLUDE_HPVM_GRAPH_H_
