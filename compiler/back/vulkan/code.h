// SPDX-License-Identifier: Apache-2.0
// Code emits instructions on unsigned integers, under short names; Add and ShrK fold constants.
#ifndef HPVMD_COMPILER_BACK_VULKAN_CODE_H_
#define HPVMD_COMPILER_BACK_VULKAN_CODE_H_

#include <cstdint>
#include <functional>

#include "compiler/back/vulkan/spirv_writer.h"

namespace hpvm::vulkan {

class Code {
 public:
  explicit Code(SpirvWriter& writer) : w(writer) {}

  SpvId U32() { return w.Int(32); }
  SpvId K(uint32_t value) { return w.U32(value); }
  SpvId Load(SpvId type, SpvId pointer) { return w.Op(spv::OpLoad, type, {pointer}); }
  void Store(SpvId pointer, SpvId value) { w.Do(spv::OpStore, {pointer, value}); }
  SpvId Bits(SpvId type, SpvId value) { return w.Op(spv::OpBitcast, type, {value}); }

  // Operations on u32. Add and ShrK fold constants.
  SpvId Add(SpvId a, SpvId b);
  SpvId AddK(SpvId a, uint32_t b) { return b == 0 ? a : Add(a, K(b)); }
  SpvId Sub(SpvId a, SpvId b) { return w.Op(spv::OpISub, U32(), {a, b}); }
  SpvId Mul(SpvId a, SpvId b) { return w.Op(spv::OpIMul, U32(), {a, b}); }
  SpvId And(SpvId a, SpvId b) { return w.Op(spv::OpBitwiseAnd, U32(), {a, b}); }
  SpvId AndK(SpvId a, uint32_t b) { return And(a, K(b)); }
  SpvId Or(SpvId a, SpvId b) { return w.Op(spv::OpBitwiseOr, U32(), {a, b}); }
  SpvId Xor(SpvId a, SpvId b) { return w.Op(spv::OpBitwiseXor, U32(), {a, b}); }
  SpvId Not(SpvId a) { return w.Op(spv::OpNot, U32(), {a}); }
  SpvId Shl(SpvId a, SpvId b) { return w.Op(spv::OpShiftLeftLogical, U32(), {a, b}); }
  SpvId ShlK(SpvId a, uint32_t b) { return Shl(a, K(b)); }
  SpvId Shr(SpvId a, SpvId b) { return w.Op(spv::OpShiftRightLogical, U32(), {a, b}); }
  SpvId ShrK(SpvId a, uint32_t b);
  SpvId SarK(SpvId a, uint32_t b) { return w.Op(spv::OpShiftRightArithmetic, U32(), {a, K(b)}); }

  // Conditions.
  SpvId Test(spv::Op op, SpvId a, SpvId b) { return w.Op(op, w.Bool(), {a, b}); }
  SpvId Equal(SpvId a, SpvId b) { return Test(spv::OpIEqual, a, b); }
  SpvId Differ(SpvId a, SpvId b) { return Test(spv::OpINotEqual, a, b); }
  SpvId Below(SpvId a, SpvId b) { return Test(spv::OpULessThan, a, b); }
  SpvId Both(SpvId a, SpvId b) { return Test(spv::OpLogicalAnd, a, b); }
  SpvId Either(SpvId a, SpvId b) { return Test(spv::OpLogicalOr, a, b); }
  SpvId Neither(SpvId a) { return w.Op(spv::OpLogicalNot, w.Bool(), {a}); }
  SpvId Select(SpvId type, SpvId condition, SpvId a, SpvId b) {
    return w.Op(spv::OpSelect, type, {condition, a, b});
  }

  // Runs `then` if the condition holds. `then` returns false if it ended with a branch of its own.
  void If(SpvId condition, const std::function<bool()>& then);
  // The same with an else branch; both continue after it.
  void IfElse(SpvId condition, const std::function<void()>& then, const std::function<void()>& otherwise);
  // Emits for (i = first; i < end; i += step) body(i), on u32. Returns the variable i, which holds its final value.
  SpvId For(SpvId first, SpvId end, SpvId step, const std::function<void(SpvId)>& body);

  SpirvWriter& w;
};

}  // namespace hpvm::vulkan

#endif  // HPVMD_COMPILER_BACK_VULKAN_CODE_H_
