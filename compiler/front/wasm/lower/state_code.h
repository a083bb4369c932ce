// SPDX-License-Identifier: Apache-2.0
// Appends operations on tables, segments and globals in the state (ir::Space::kState) to a function.
#ifndef HPVMD_COMPILER_FRONT_WASM_LOWER_STATE_CODE_H_
#define HPVMD_COMPILER_FRONT_WASM_LOWER_STATE_CODE_H_

#include <array>
#include <cstdint>

#include "compiler/front/wasm/lower/layout.h"
#include "compiler/ir/ir.h"

namespace hpvm::wasm {

// Functions that loop over table entries, created once per module. Their ids follow those of the module's own
// functions.
struct TableFunctions {
  uint32_t next = 0;  // The next id.
  ir::FunctionId fill{}, copy{};

  // Appends the functions that are needed.
  void AppendTo(ir::Module& out) const;
};

class StateCode {
 public:
  StateCode(TableFunctions& functions, ir::Function& function, ir::Builder& builder)
      : functions_(functions), out_(function), builder_(builder) {}

  using ValueId = ir::ValueId;
  ValueId Const(uint64_t bits) { return builder_.Const(ir::Type::kI32, bits); }
  ValueId Binary(ir::Opcode code, ValueId a, ValueId b, ir::Type type = ir::Type::kI32);
  ValueId Convert(ir::Opcode code, ValueId value, ir::Type from, ir::Type to);
  ValueId Load(uint64_t offset, ir::Type type = ir::Type::kI32) { return LoadAt(Const(0), offset, type); }
  void Store(uint64_t offset, ValueId value) { StoreAt(Const(0), offset, value); }
  // Both access the byte `at` + offset.
  ValueId LoadAt(ValueId at, uint64_t offset, ir::Type type = ir::Type::kI32);
  void StoreAt(ValueId at, uint64_t offset, ValueId value);

  void TrapUnless(ValueId condition, ir::TrapCode code, uint32_t source);
  // Traps unless the `count` elements from `at` lie within `size`; all are i32.
  void CheckRange(ValueId at, ValueId count, ValueId size, ir::TrapCode code, uint32_t source);

  ValueId SizeOf(const TableLayout& place);
  // Returns the byte offset of the entry; the caller has checked that it is inside the table.
  ValueId EntryAt(const TableLayout& place, ValueId index);
  // Both require entries that are inside the table.
  void Fill(const TableLayout& place, ValueId at, ValueId value, ValueId count);
  void Copy(const TableLayout& to_place, ValueId to, const TableLayout& from_place, ValueId from, ValueId count);

 private:
  void Call(ir::FunctionId& function, const std::array<ValueId, 3>& operands);

  TableFunctions& functions_;
  ir::Function& out_;
  ir::Builder& builder_;
};

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_LOWER_STATE_CODE_H_
