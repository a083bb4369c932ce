// SPDX-License-Identifier: Apache-2.0
// A validated WebAssembly module as plain data, free of wabt: what the reader leaves for the lowering.
#ifndef HPVMD_COMPILER_FRONT_WASM_DECODED_H_
#define HPVMD_COMPILER_FRONT_WASM_DECODED_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compiler/ir/ir.h"

namespace hpvm::wasm {

enum class InstrKind : uint8_t {
  kPlain,  // Takes `operands` values, computes `opcode`, gives `result` if there is one. imm is the operation's.
  // imm: the local's or global's index.
  kLocalGet,
  kLocalSet,
  kLocalTee,
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
  kCallIndirect,  // imm: index in Module::signatures.
  kDrop,
  kSelect,
  kUnreachable,
  kNop,
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

// A run of locals of one type; expanded only while a function is lowered, because a few bytes of module can declare
// thousands.
struct LocalRun {
  uint32_t count = 0;
  ir::Type type = ir::Type::kI32;
};

struct ImportDecl {
  std::string module, name;
  uint64_t source = 0;
};

struct Function {
  uint32_t signature = 0;            // In Module::signatures.
  std::optional<ImportDecl> import;  // Then there is no body.
  std::string name;                  // From the name section, or empty.
  uint32_t source = 0;               // Byte offset of the body.
  std::vector<LocalRun> locals;      // Without the parameters.
  std::vector<Instr> code;
  std::vector<uint32_t> br_depths;  // Of all br_table instructions; each list ends with the default.
};

struct Memory {
  uint64_t pages = 0;
  std::optional<uint64_t> pages_max;
  bool is_64 = false;
  bool is_shared = false;
  uint64_t source = 0;
};

inline constexpr uint32_t kNullFunction = 0xffffffffu;
struct ElemSegment {
  uint64_t offset = 0;
  std::vector<uint32_t> functions;  // kNullFunction where the entry is null.
  uint64_t source = 0;
};

struct DataSegment {
  uint64_t offset = 0;
  std::span<const uint8_t> bytes;  // In the module's file.
  uint64_t source = 0;
};

struct Export {
  std::string name;
  bool is_function = false;
  uint32_t index = 0;
};

// Signatures of blocks without a type index come first: nothing, i32, i64, f32, f64.
inline constexpr uint32_t kInlineSignatures = 5;

struct Module {
  std::string name;
  std::vector<ir::FunctionType> signatures;  // The type section's type i is at kInlineSignatures + i.
  std::vector<Function> functions;           // Imports first.
  std::optional<Memory> memory;
  std::vector<ir::Global> globals;
  std::optional<uint64_t> table_entries;
  std::vector<ElemSegment> elems;  // Active ones.
  std::vector<DataSegment> data;   // Active ones, in file order.
  std::vector<Export> exports;

  ir::Type address_type() const { return memory && memory->is_64 ? ir::Type::kI64 : ir::Type::kI32; }
  const ir::FunctionType& type_of(const Function& function) const { return signatures[function.signature]; }
};

// "(i32, f32) -> (i32)".
std::string ToString(const ir::FunctionType& type);

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_DECODED_H_
