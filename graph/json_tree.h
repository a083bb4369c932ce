// SPDX-License-Identifier: Apache-2.0
// A JSON text as a flat array of values in document order: nothing to free recursively, and each value's JSON
// pointer can be told.
//
// Filled from nlohmann's SAX reader, which is iterative, checks UTF-8 strictly and hands integers over exactly.
// Names of members are interned; those of the schema come first, so that a name's number is its Key.
#ifndef HPVMD_GRAPH_JSON_TREE_H_
#define HPVMD_GRAPH_JSON_TREE_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "graph/faults.h"
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
};
inline constexpr std::array<std::string_view, 41> kKeyNames = {
    "$schema", "hpvm",      "name",  "description", "symbols", "inputs", "outputs", "modules", "nodes",  "edges",
    "type",    "shape",     "kind",  "source",      "options", "file",   "sha256",  "inline",  "ports",  "scalars",
    "params",  "instances", "group", "variants",    "devices", "hints",  "math",    "index",   "access", "value",
    "input",   "module",    "entry", "abi",         "from",    "to",     "stream",  "capacity",
    "constants", "port",    "max"};

using JsonId = uint32_t;
inline constexpr JsonId kNoJson = 0xffffffffu;

struct JsonValue {
  // kBigInteger: outside int64; kRefused: already reported, to be passed over in silence.
  enum class Kind : uint8_t { kNull, kBool, kInteger, kBigInteger, kFloat, kString, kArray, kObject, kRefused };
  JsonId parent = kNoJson;
  uint32_t name = 0;      // In an object the member's interned name, in an array the position.
  JsonId next = kNoJson;  // The next sibling.
  uint32_t kind_bits : 4 = 0;
  uint32_t size : 28 = 0;  // Arrays and objects: children; strings: bytes.
  union {
    int64_t integer = 0;  // kInteger, kBool.
    double number;        // kFloat.
    uint64_t offset;      // kString: in the pool.
  };
  Kind kind() const { return static_cast<Kind>(kind_bits); }
};
static_assert(sizeof(JsonValue) == 24);

// "a string", "an object" ...
std::string_view KindName(JsonValue::Kind kind);

class JsonTree {
 public:
  JsonTree();
  // False when the text is no JSON or breaks a limit that ends the reading; then `faults` has an error.
  bool Read(std::string_view document, const Limits& limits, Faults& faults);

  const JsonValue& operator[](JsonId id) const { return values_[id]; }
  JsonId root() const { return 0; }
  // Children follow their parent directly: the first one is id + 1.
  JsonId FirstChild(JsonId id) const { return values_[id].size > 0 ? id + 1 : kNoJson; }
  JsonId Next(JsonId id) const { return values_[id].next; }
  std::string_view String(JsonId id) const { return {pool_.data() + values_[id].offset, values_[id].size}; }
  std::string_view NameOf(JsonId id) const { return names_.Text(values_[id].name); }
  std::string PointerTo(JsonId id) const;
  // The number of a member name somewhere in the document.
  const Interner& names() const { return names_; }
  uint64_t size() const { return values_.size(); }

 private:
  friend class JsonSink;
  std::vector<JsonValue> values_;
  std::string pool_;
  Interner names_;
};

}  // namespace hpvm::graph

#endif  // HPVMD_GRAPH_JSON_TREE_H_
