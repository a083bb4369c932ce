// SPDX-License-Identifier: Apache-2.0
// What a module's reading has so far, and the body that is read. Each instruction is recorded when wabt's validator has
// taken it (code_recorder.cc).
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

// The validator, the module, and the first fault .
class Reading {
 public:
  explicit Reading(const wabt::Features& features);

  bool AddError(const wabt::Error& error);
  bool HasFault() const { return refusal_.has_value() || !errors_.empty(); }
  // Requires that reading failed or HasFault: the first fault.
  Diagnostic TakeFault(const std::string& place) const;
  // Keeps the first fault of ours and stops the reader.
  wabt::Result Refuse(uint64_t offset, std::string message);
  // Refuses what would be one item of a kind too many.
  wabt::Result CheckCount(size_t count, std::string_view items);
  // wabt takes unsigned 64-bit numbers with bits beyond the 64th and drops those. Refuses one whose encoding ends at
  // byte `end` of the module.
  wabt::Result CheckUnsigned64(uint64_t end);
  // Nothing, and a refusal: types of proposals that are not taken.
  std::optional<ValueType> TypeOf(wabt::Type type, std::string_view what);
  bool IsTable64(wabt::Index table) const { return table < module.tables.size() && module.tables[table].limits.is_64; }
  wabt::Location Here() const { return wabt::Location(source); }
  wabt::Var At(wabt::Index index) const { return wabt::Var(index, Here()); }

  wabt::SharedValidator validator;
  Module module;
  uint64_t source = 0;  // Of the instruction or item at hand.
  const wabt::BinaryReaderDelegate::State* state = nullptr;

 private:
  wabt::Errors errors_;
  std::optional<Diagnostic> refusal_;
};

// The body, or initial value, that is read .
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
  // The instruction last announced, if the validator took it.
  Result Record(Result validated, uint64_t imm = 0);
  // Instructions whose validation takes as long as their signature is.
  Result RecordTyped(Result validated, uint32_t signature, uint64_t imm);
  Result RecordPlain(Result validated);
  Result RecordBlock(Result validated, wabt::Type signature);
  Result RecordLocal(Result validated, Index local);
  Result RecordTable(Result validated, Index table, uint64_t imm);
  // An access or an operation with the prefix 0xfd, or an ordinary one.
  Result RecordAccess(Result validated, Address offset, std::optional<uint64_t> lane = std::nullopt);
  Result RecordSimd(Result validated, uint64_t lane, const SimdImmediates* immediates);
  Result RecordConst(wabt::Type type, uint64_t low, uint64_t high = 0);
  Result RecordEnd();
  Result RecordBrTable(Index count, Index* depths, Index default_depth);
  // Around an initial value or a segment's offset.
  void BeginConstant();
  Result EndConstant();
  void SetConstant(const Constant& constant) { constant_ = constant; }
  const Constant& constant() const { return constant_; }

 private:
  void AddLocals(uint32_t count, ValueType type);

  Reading& r_;
  const OpcodeRow* const rows_ = &MapOpcode(0);
  Opcode opcode_;                   // Of the instruction at hand.
  const OpcodeRow* row_ = nullptr;  // Of the instruction at hand.
  Function* function_ = nullptr;    // Whose body is read; null in initial values.
  uint32_t depth_ = 0;              // Open blocks of the body, with the function's own; 0 after its end.
  // The locals of the body. Slots differ from indices where there is a v128.
  struct LocalStart {
    uint32_t index, slot;
    ValueType type;
  };
  std::vector<LocalStart> local_starts_;
  uint64_t local_count_ = 0;
  uint64_t slot_count_ = 0;
  uint64_t instructions_ = 0;
  Constant constant_;            // The last one, for constant expressions.
  bool constant_ended_ = false;  // Its `end` has been read.
};

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_READ_CODE_RECORDER_H_
