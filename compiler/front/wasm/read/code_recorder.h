// SPDX-License-Identifier: Apache-2.0
// The state of reading a module, and the recorder of the current body. It records each instruction after wabt's
// validator has accepted it (code_recorder.cc).
#ifndef HPVMD_COMPILER_FRONT_WASM_READ_CODE_RECORDER_H_
#define HPVMD_COMPILER_FRONT_WASM_READ_CODE_RECORDER_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "wabt/binary-reader.h"
#include "wabt/shared-validator.h"

#include "base/diagnostic.h"
#include "compiler/front/wasm/read/decoded.h"
#include "compiler/front/wasm/read/opcode_map.h"

namespace hpvm::wasm {

// The validator, the module, and the first fault.
class Reading {
 public:
  explicit Reading(const wabt::Features& features);

  bool AddError(const wabt::Error& error);
  bool HasFault() const { return refusal_.has_value() || !errors_.empty(); }
  // Returns the first fault. Requires that reading failed or HasFault().
  Diagnostic TakeFault(const std::string& place) const;
  // Keeps our first fault and stops the reader.
  wabt::Result Refuse(uint64_t offset, std::string message);
  // Refuses the module when another item would exceed the limit on items of that kind.
  wabt::Result CheckCount(size_t count, std::string_view items);
  // wabt accepts unsigned 64-bit numbers with bits beyond the 64th and drops those bits. Refuses a number with such
  // bits, whose encoding ends at byte `end` of the module.
  wabt::Result CheckUnsigned64(uint64_t end);
  // Returns nothing, after a refusal, for types of proposals that are not supported.
  std::optional<ValueType> TypeOf(wabt::Type type, std::string_view what);
  bool IsTable64(wabt::Index table) const { return table < module.tables.size() && module.tables[table].limits.is_64; }
  wabt::Location Here() const { return wabt::Location(source); }
  wabt::Var At(wabt::Index index) const { return wabt::Var(index, Here()); }

  wabt::SharedValidator validator;
  Module module;
  uint64_t source = 0;  // Offset of the current instruction or item.
  const wabt::BinaryReaderDelegate::State* state = nullptr;

 private:
  wabt::Errors errors_;
  std::optional<Diagnostic> refusal_;
};

// Records the current body or initial value.
class CodeRecorder {
 public:
  using Result = wabt::Result;
  using Index = wabt::Index;
  using Address = wabt::Address;
  using Opcode = wabt::Opcode;

  explicit CodeRecorder(Reading& reading) : r_(reading) {}  // Borrowed.

  Result BeginBody(Index index, wabt::Offset size);
  Result DeclareLocals(Index count, wabt::Type type);
  Result EndBody();
  Result BeginInstruction(Opcode opcode);
  // Records the instruction announced last if the validator accepted it.
  Result Record(Result validated, uint64_t imm = 0);
  // Like Record, for instructions whose validation takes time proportional to the length of their signature.
  Result RecordTyped(Result validated, uint32_t signature, uint64_t imm);
  Result RecordPlain(Result validated);
  Result RecordBlock(Result validated, wabt::Type signature);
  Result RecordLocal(Result validated, Index local);
  Result RecordTable(Result validated, Index table, uint64_t imm);
  // RecordAccess records a memory access. RecordSimd records an operation with the prefix 0xfd.
  Result RecordAccess(Result validated, Address offset, std::optional<uint64_t> lane = std::nullopt);
  Result RecordSimd(Result validated, uint64_t lane, const SimdImmediates* immediates);
  Result RecordConst(wabt::Type type, uint64_t low, uint64_t high = 0);
  Result RecordEnd();
  Result RecordBrTable(Index count, Index* depths, Index default_depth);
  // Call these around an initial value or a segment's offset.
  void BeginConstant();
  Result EndConstant();
  void SetConstant(const Constant& constant) { constant_ = constant; }
  const Constant& constant() const { return constant_; }

 private:
  void AddLocals(uint32_t count, ValueType type);

  Reading& r_;
  const OpcodeRow* const rows_ = &MapOpcode(0);
  Opcode opcode_;                   // Opcode of the current instruction.
  const OpcodeRow* row_ = nullptr;  // Row of the current instruction.
  Function* function_ = nullptr;    // The function whose body is read; null in initial values.
  uint32_t depth_ = 0;              // Open blocks of the body, including the function's own; 0 after its end.
  // Locals of the body. Slots differ from indices when there is a v128.
  struct LocalStart {
    uint32_t index, slot;
    ValueType type;
  };
  std::vector<LocalStart> local_starts_;
  uint64_t local_count_ = 0;
  uint64_t slot_count_ = 0;
  uint64_t instructions_ = 0;
  Constant constant_;            // The latest value, for constant expressions.
  bool constant_ended_ = false;  // Its `end` has been read.
};

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_READ_CODE_RECORDER_H_
