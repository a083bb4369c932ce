// SPDX-License-Identifier: Apache-2.0
// A random kernel as a tree, with its launch: the generator makes it, the encoder turns it into a Wasm module, and
// the shrinker cuts it. Trees can be cut without knowledge of their meaning; a cut that makes the module invalid is
// noticed when the module is read, and undone.
#ifndef HPVMD_TESTS_DIFF_PROGRAM_H_
#define HPVMD_TESTS_DIFF_PROGRAM_H_

#include <array>
#include <cstdint>
#include <vector>

namespace hpvm::diff {

enum class ValueType : uint8_t { kI32, kI64, kF32, kF64, kV128, kFuncRef };
inline constexpr uint32_t kValueTypes = 6;

enum class NodeKind : uint8_t {
  kConst,     // type, bits; for kFuncRef 0 is null, otherwise the function
  kOperator,  // index: in Operators(); operands; bits[0]: the access's offset, or the lane; align
  kLocalGet,  // index
  kLocalSet,
  kLocalTee,
  kGlobalGet,
  kGlobalSet,
  kAddress,    // operands: base, index. base + (index & bits[0]), in the address type
  kCanonical,  // One operand; makes a NaN canonical. type; for v128 lanes of `lane`
  kBlock,      // label, params (as operands), results, body
  kLoop,
  kIf,       // The last operand is the condition; body, otherwise
  kBr,       // label; operands: values
  kBrIf,     // label; operands: values, condition
  kBrTable,  // labels, the last is the default; operands: values, index
  kReturn,
  kUnreachable,
  kNop,
  kCall,          // index: function; operands
  kCallIndirect,  // index: a function with the callee's type; label: the table; operands, then the table's index
  kImport,        // index: ImportId; operands
  kSetMany,       // operand 0 returns as many values as `labels` has, which are locals, first value first
  kDrop,
  kSelect,
  kPop,  // Emits nothing: a value that is on the stack already
  kMemorySize,
  kMemoryGrow,
  kMemoryCopy,
  kMemoryFill,
  kMemoryInit,  // index: the passive data segment
  kDataDrop,
  kRefIsNull,
  kTable,  // index: TableOp, on the second table
};

enum class TableOp : uint8_t { kGet, kSet, kSize, kGrow, kFill, kCopy, kInit, kElemDrop };

struct Node {
  NodeKind kind = NodeKind::kNop;
  ValueType type = ValueType::kI32;  // The value's type, if `arity` is 1.
  ValueType lane = ValueType::kF32;  // For kCanonical of v128.
  uint8_t arity = 0;                 // Number of values it returns.
  uint8_t align = 0;                 // For memory: the hint, log2.
  bool is_pinned = false;            // The shrinker does not change it or its descendants.
  uint32_t index = 0;
  uint32_t label = 0;
  std::array<uint64_t, 2> bits{};
  std::vector<ValueType> params{}, results{};
  std::vector<uint32_t> labels{};
  std::vector<Node> operands{}, body{}, otherwise{};
};

enum class ImportId : uint8_t {
  kInstanceId,
  kInstanceId64,
  kInstanceCount,
  kInstanceCount64,
  kGroupId,
  kGroupSize,
  kLocalId,
  kBufferSize,
  kBarrier,
  kLocalAlloc,
  kAtomicMinS32,
  kAtomicMinU32,
  kAtomicMaxS32,
  kAtomicMaxU32,
  kAtomicMinS64,
  kAtomicMaxU64,
  // Only in V8's form, where the memory also holds the buffers, and its size is not the kernel's.
  kMemorySize,
  kMemoryGrow,
};
inline constexpr uint32_t kImports = 18;

struct Signature {
  std::vector<ValueType> params, results;
  friend auto operator<=>(const Signature&, const Signature&) = default;
};

struct Function {
  Signature type;
  std::vector<ValueType> locals;  // Without the parameters.
  std::vector<Node> body;
};

struct Global {
  ValueType type;
  bool is_mutable = true;
  std::array<uint64_t, 2> bits{};
};

struct Segment {
  uint32_t address = 0;
  std::vector<uint8_t> bytes;
};

struct Param {
  bool is_buffer = true;
  bool is_writable = true;
  ValueType type = ValueType::kI32;  // For scalars.
  uint64_t bits = 0;                 // For scalars.
  std::vector<uint8_t> bytes;        // For buffers.
};

struct Program {
  uint64_t seed = 0;
  bool is_memory64 = false;
  uint32_t pages = 1;
  uint32_t pages_max = 1;
  bool has_pages_max = false;
  std::vector<Segment> data;
  std::vector<std::vector<uint8_t>> passive_data;
  std::vector<Global> globals;
  std::vector<int32_t> table;  // Functions; -1 is null.
  // The second table, which instructions write, and a passive segment of it. Present if not empty.
  std::vector<int32_t> references, passive_references;
  std::vector<Function> functions;  // The first is the kernel.
  std::vector<Param> params;
  std::array<uint32_t, 3> extent{1, 1, 1}, group{1, 1, 1};
  bool has_barrier = false;
  bool is_wild = false;  // May access gaps between buffers, which V8's form does not have.

  ValueType address_type() const { return is_memory64 ? ValueType::kI64 : ValueType::kI32; }
  uint32_t instances() const { return extent[0] * extent[1] * extent[2]; }
};

// Calls `visit` on every node of the list and its descendants.
template <typename Nodes, typename F>
void ForEachNode(Nodes& nodes, const F& visit) {
  for (auto& node : nodes) {
    visit(node);
    ForEachNode(node.operands, visit);
    ForEachNode(node.body, visit);
    ForEachNode(node.otherwise, visit);
  }
}

}  // namespace hpvm::diff

#endif  // HPVMD_TESTS_DIFF_PROGRAM_H_
