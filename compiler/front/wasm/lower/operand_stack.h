// SPDX-License-Identifier: Apache-2.0
// The operand stack during the lowering of a function. Each kernel IR value takes one slot; a v128 is four slots of
// i32, lowest bits first.
#ifndef HPVMD_COMPILER_FRONT_WASM_LOWER_OPERAND_STACK_H_
#define HPVMD_COMPILER_FRONT_WASM_LOWER_OPERAND_STACK_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "compiler/front/wasm/read/types.h"
#include "compiler/ir/ir.h"

namespace hpvm::wasm {

using V128 = std::array<ir::ValueId, 4>;

class OperandStack {
 public:
  size_t size() const { return slots_.size(); }

  // Pushes a value that is not a v128.
  void Push(ir::ValueId value) { slots_.push_back(value); }
  void PushV128(const V128& value) {
    slots_.insert(slots_.end(), value.begin(), value.end());
    v128_ends_.push_back(slots_.size());
  }
  // Pushes the slots of values of these types.
  void PushAll(std::span<const ir::ValueId> slots, std::span<const ValueType> types);

  // Pop takes an i32, i64, f32, f64 or reference; PopV128 takes a v128. Validation guarantees the type on top.
  ir::ValueId Pop() { return *PopSlots(1).data(); }
  V128 PopV128();
  // Returns the number of slots of the topmost value: 4 for a v128, else 1.
  size_t TopSlots() const { return !v128_ends_.empty() && v128_ends_.back() == slots_.size() ? 4 : 1; }
  // Both return the topmost slots, deepest first. The result of PopSlots stays valid until the next push.
  std::span<const ir::ValueId> Top(size_t count) const {
    HPVMD_CHECK(slots_.size() >= count);
    return {slots_.data() + slots_.size() - count, count};
  }
  std::span<const ir::ValueId> PopSlots(size_t count) {
    const std::span<const ir::ValueId> top = Top(count);
    Resize(slots_.size() - count);
    return top;
  }
  void Resize(size_t size) {
    HPVMD_CHECK(size <= slots_.size());
    slots_.resize(size);
    while (!v128_ends_.empty() && v128_ends_.back() > size) {
      v128_ends_.pop_back();
    }
  }

 private:
  std::vector<ir::ValueId> slots_;
  std::vector<size_t> v128_ends_;  // The size of the stack after each v128 that it holds; rising.
};

inline V128 OperandStack::PopV128() {
  const std::span<const ir::ValueId> slots = PopSlots(4);
  return {slots[0], slots[1], slots[2], slots[3]};
}

inline void OperandStack::PushAll(std::span<const ir::ValueId> slots, std::span<const ValueType> types) {
  for (const ValueType type : types) {
    const size_t count = Slots(type);
    slots_.insert(slots_.end(), slots.begin(), slots.begin() + static_cast<ptrdiff_t>(count));
    slots = slots.subspan(count);
    if (count == 4) {
      v128_ends_.push_back(slots_.size());
    }
  }
}

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_LOWER_OPERAND_STACK_H_
