// SPDX-License-Identifier: Apache-2.0
// A validated WebAssembly module as plain data, independent of wabt: the reader's output and the lowering's input.
#ifndef HPVMD_COMPILER_FRONT_WASM_READ_DECODED_H_
#define HPVMD_COMPILER_FRONT_WASM_READ_DECODED_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compiler/front/wasm/read/types.h"
#include "compiler/ir/words.h"

namespace hpvm::wasm {

using namespace ir::words;

enum class InstrKind : uint8_t {
  kPlain,  // Takes `operands` values, computes `opcode`, and gives `result` when has_result. imm is the operation's.
  // imm: the first slot of the local; width: its number of slots.
  kLocalGet,
  kLocalSet,
  kLocalTee,
  // imm: the global.
  kGlobalGet,
  kGlobalSet,
  // imm: index in Module::signatures.
  kBlock,
  kLoop,
  kIf,
  kElse,
  kEnd,
  // imm: the depth.
  kBr,
  kBrIf,
  kBrTable,  // imm: first in Function::br_depths, and the count in the high half.
  kReturn,
  kCall,          // imm: function index.
  kCallIndirect,  // imm: index in Module::signatures, and the table in the high half.
  kDrop,
  kSelect,
  kUnreachable,
  kNop,
  kRefFunc,  // imm: function index.
  // imm: the table.
  kTableGet,
  kTableSet,
  kTableSize,
  kTableGrow,
  kTableFill,
  kTableCopy,  // imm: the target, and the source in the high half.
  kTableInit,  // imm: the element segment, and the table in the high half.
  kElemDrop,   // imm: the element segment.
  // imm: the data segment.
  kMemoryInit,
  kDataDrop,
  // imm: the offset; width: that of the compared value.
  kNotify,
  kWait,
  kSimd,  // imm: PackSimd.
};

// One instruction, 16 bytes, because all bodies are kept until it is known which are reachable.
struct Instr {
  uint32_t source = 0;  // Byte offset of the instruction in the file.
  InstrKind kind = InstrKind::kNop;
  ir::Opcode opcode = ir::Opcode::kConst;
  ir::Type type : 2 = ir::Type::kI32;
  ir::Type result : 2 = ir::Type::kI32;
  uint8_t width : 4 = 0;
  uint8_t operands : 2 = 0;
  bool has_result : 1 = false;
  bool sign : 1 = false;
  uint64_t imm = 0;
};
static_assert(sizeof(Instr) == 16);

// Packs an instruction with the prefix 0xfd: wabt's enumerator, the lane, and the index of its offset or bytes in
// Function::simd, if it has any.
constexpr uint64_t PackSimd(uint32_t opcode, uint64_t lane, uint64_t at) {
  return (opcode & 0xffffu) | (lane & 0xff) << 16 | at << 32;
}
struct SimdImmediates {
  uint64_t low = 0;  // Also holds an offset.
  uint64_t high = 0;
};

// A run of locals of one type. It is expanded only while its function is lowered, because a few bytes of module can
// declare thousands.
struct LocalRun {
  uint32_t count = 0;
  ValueType type = ValueType::kI32;
};

struct ImportDecl {
  std::string module, name;
  uint64_t source = 0;
};

struct Function {
  uint32_t signature = 0;            // Index in Module::signatures.
  std::optional<ImportDecl> import;  // When present, the function has no body.
  std::string name;                  // From the name section; may be empty.
  uint32_t source = 0;               // Byte offset of the body.
  std::vector<LocalRun> locals;      // Without the parameters.
  std::vector<Instr> code;
  std::vector<uint32_t> br_depths;  // Depths of all br_table instructions; each list ends with the default.
  std::vector<SimdImmediates> simd;
};

// A constant expression.
struct Constant {
  enum class Kind : uint8_t { kBits, kGlobal, kFunction };
  Kind kind = Kind::kBits;
  uint32_t index = 0;          // The imported global that provides the value, or the function that the reference names.
  uint64_t low = 0, high = 0;  // The bits; `high` is for v128 only. A null reference is 0.
};

struct Global {
  ValueType type = ValueType::kI32;
  bool is_mutable = false;
  std::optional<ImportDecl> import;
  Constant init;
  uint64_t source = 0;
};

struct Memory {
  SizeLimits limits;  // In pages.
  std::optional<ImportDecl> import;
  uint64_t source = 0;
};

struct Table {
  ValueType type = ValueType::kFuncRef;
  SizeLimits limits;  // In entries.
  std::optional<ImportDecl> import;
  uint64_t source = 0;
};

enum class SegmentMode : uint8_t { kActive, kPassive, kDeclared };

inline constexpr uint32_t kNullFunction = 0xffffffffu;
struct ElemSegment {
  SegmentMode mode = SegmentMode::kActive;
  ValueType type = ValueType::kFuncRef;
  uint32_t table = 0;               // For active segments.
  Constant offset;                  // For active segments.
  std::vector<uint32_t> functions;  // kNullFunction for null entries.
  // Entries that have the value of an imported global, as pairs of entry and global; they are null in `functions`.
  std::vector<std::pair<uint32_t, uint32_t>> globals;
  uint64_t source = 0;
};

struct DataSegment {
  SegmentMode mode = SegmentMode::kActive;
  Constant offset;                 // For active segments.
  std::span<const uint8_t> bytes;  // Points into the module's file.
  uint64_t source = 0;
};

struct Export {
  std::string name;
  ExternKind kind = ExternKind::kFunction;
  uint32_t index = 0;
};

// Signatures of blocks without a type index come first: nothing, then one result of each type in ValueType's order.
inline constexpr uint32_t kInlineSignatures = 8;

struct Module {
  std::string name;
  std::vector<Signature> signatures;    // The type with index i of the type section is at kInlineSignatures + i.
  std::vector<ir::FunctionType> types;  // The same signatures in the kernel IR.
  std::vector<Function> functions;      // Imports first, as in the following lists.
  std::optional<Memory> memory;
  std::vector<Global> globals;
  std::vector<Table> tables;
  std::vector<ElemSegment> elems;
  std::vector<DataSegment> data;
  std::vector<Export> exports;
  std::optional<uint32_t> start;
  uint64_t start_source = 0;
  std::optional<uint32_t> stack_pointer;  // The global that points to the shadow stack, recognised by its name or its
                                          // shape.

  ir::Type address_type() const { return memory && memory->limits.is_64 ? ir::Type::kI64 : ir::Type::kI32; }
  const Signature& signature_of(const Function& function) const { return signatures[function.signature]; }
  const ir::FunctionType& type_of(const Function& function) const { return types[function.signature]; }
};

// A value of the WebAssembly type becomes Slots(type) values of the returned IR type.
ir::Type IrType(ValueType type);
ir::FunctionType IrType(const Signature& signature);

// Returns text such as "(i32, f32) -> (i32)".
std::string ToString(const ir::FunctionType& type);
std::string ToString(const Signature& signature);

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_READ_DECODED_H_
