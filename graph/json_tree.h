// SPDX-License-Identifier: Apache-2.0
// JsonTree holds a JSON text as a flat array of values in document order: freeing it needs no recursion, and each value
// has a JSON pointer.
//
// nlohmann's SAX reader fills the tree; it is iterative, checks UTF-8 strictly and passes integers exactly. Member
// names are interned; the schema's names come first, so that the number of such a name is its Key.
#ifndef HPVMD_GRAPH_JSON_TREE_H_
#define HPVMD_GRAPH_JSON_TREE_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "graph/diagnostic_sink.h"
#include "graph/interner.h"
#include "graph/parse.h"

namespace hpvm::graph {

// Every member name of the schema.
enum class Key : uint8_t {
  kSchema,
  kHpvm,
  kName,
  kDescription,
  kSymbols,
  kInputs,
  kOutputs,
  kModules,
  kNodes,
  kEdges,
  kType,
  kShape,
  kKind,
  kSource,
  kOptions,
  kFile,
  kSha256,
  kInline,
  kPorts,
  kScalars,
  kParams,
  kInstances,
  kGroup,
  kVariants,
  kDevices,
  kHints,
  kMath,
  kIndex,
  kAccess,
  kValue,
  kInput,
  kModule,
  kEntry,
  kAbi,
  kFrom,
  kTo,
  kStream,
  kCapacity,
  kConstants,
  kPort,
  kMax,
  kArgs,
};
inline constexpr std::array<std::string_view, 42> kKeyNames = {
    "$schema", "hpvm",     "name",      "description", "symbols", "inputs",   "outputs", "modules", "nodes",
    "edges",   "type",     "shape",     "kind",        "source",  "options",  "file",    "sha256",  "inline",
    "ports",   "scalars",  "params",    "instances",   "group",   "variants", "devices", "hints",   "math",
    "index",   "access",   "value",     "input",       "module",  "entry",    "abi",     "from",    "to",
    "stream",  "capacity", "constants", "port",        "max",     "args"};

using JsonId = uint32_t;
inline constexpr JsonId kNoJson = 0xffffffffu;

struct JsonValue {
  // kBigInteger is an integer outside int64. kRefused is a value that has been reported and is ignored from then on.
  enum class Kind : uint8_t { kNull, kBool, kInteger, kBigInteger, kFloat, kString, kArray, kObject, kRefused };
  JsonId parent = kNoJson;
  uint32_t name = 0;      // In an object the number of the member's interned name, in an array the position.
  JsonId next = kNoJson;  // The next sibling.
  uint32_t kind_bits : 4 = 0;
  uint32_t size : 28 = 0;  // Number of children for arrays and objects; number of bytes for strings.
  union {
    int64_t integer = 0;  // For kInteger, kBool.
    double number;        // For kFloat.
    uint64_t offset;      // For kString: offset in the pool.
  };
  Kind kind() const { return static_cast<Kind>(kind_bits); }
};
static_assert(sizeof(JsonValue) == 24);

// Returns "a string", "an object" and so on.
std::string_view KindName(JsonValue::Kind kind);

class JsonTree {
 public:
  JsonTree();
  // Returns false when the text is not JSON or exceeds a limit that ends the reading; `faults` then has an error.
  bool Read(std::string_view document, const Limits& limits, DiagnosticSink& faults);

  const JsonValue& operator[](JsonId id) const { return values_[id]; }
  JsonId root() const { return 0; }
  // The first child follows its parent directly, at id + 1.
  JsonId FirstChild(JsonId id) const { return values_[id].size > 0 ? id + 1 : kNoJson; }
  JsonId Next(JsonId id) const { return values_[id].next; }
  std::string_view String(JsonId id) const { return {pool_.data() + values_[id].offset, values_[id].size}; }
  std::string_view NameOf(JsonId id) const { return names_.Text(values_[id].name); }
  // Returns the JSON pointer to a value. In a long form (long_form.h) it names the value of the short form from which
  // this value was made.
  std::string PointerTo(JsonId id) const;
  // Returns PointerTo of the value that `pointer` names, or of its innermost parent that exists.
  std::string PlaceOf(std::string_view pointer) const;
  // Maps member names of the document to numbers.
  const Interner& names() const { return names_; }
  uint64_t size() const { return values_.size(); }

 private:
  friend class JsonSink;
  friend class TreeWriter;
  std::vector<JsonValue> values_;
  std::string pool_;
  Interner names_;
  // Set in a long form: the short form, which outlives this tree, and for each value its origin in the short form.
  const JsonTree* short_form_ = nullptr;
  std::vector<JsonId> origins_;
};

// TreeWriter appends values to a tree in document order. The caller checks the limits.
class TreeWriter {
 public:
  explicit TreeWriter(JsonTree& tree) : tree_(tree) {}
  // Makes the tree a long form of `short_form`: each value then needs an origin.
  TreeWriter(JsonTree& tree, const JsonTree& short_form) : tree_(tree) { tree_.short_form_ = &short_form; }

  // Sets the name of the next value, when the open container is an object.
  void Member(std::string_view name) { member_ = tree_.names_.Intern(name); }
  uint32_t member() const { return member_; }
  JsonId Add(JsonValue::Kind kind, int64_t integer = 0, JsonId origin = kNoJson);
  void AddNumber(double number, JsonId origin = kNoJson);
  void AddString(std::string_view text, JsonId origin = kNoJson);
  void Open(JsonValue::Kind kind, JsonId origin = kNoJson);
  // Closes the innermost container and returns it.
  JsonId Close();
  // Appends a value of `from` with everything below it. All these values get `origin`; when it is kNoJson, each gets
  // the value that it is copied from.
  void Copy(const JsonTree& from, JsonId id, JsonId origin = kNoJson);

  size_t depth() const { return open_.size(); }
  JsonId innermost() const { return open_.back().id; }
  uint64_t values() const { return tree_.values_.size(); }
  uint64_t string_bytes() const { return tree_.pool_.size(); }

 private:
  struct Container {
    JsonId id;
    JsonId last_child;
  };
  JsonTree& tree_;
  std::vector<Container> open_;
  uint32_t member_ = 0;
};

}  // namespace hpvm::graph

#endif  // HPVMD_GRAPH_JSON_TREE_H_
