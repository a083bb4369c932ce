// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "base/limits.h"
#include "compiler/ir/interpret/machine.h"

namespace hpvm::ir::step {

const Code* Move(const Code* code, uint64_t* frame, Instance&) {
  frame[code->result] = frame[code->a];
  return code + 1;
}

const Code* Jump(const Code* code, uint64_t*, Instance&) { return code + static_cast<int64_t>(code->imm); }

const Code* JumpBack(const Code* code, uint64_t*, Instance& instance) {
  return instance.CountStep(code) ? code + static_cast<int64_t>(code->imm) : nullptr;
}

const Code* JumpIfZero(const Code* code, uint64_t* frame, Instance&) {
  return frame[code->a] == 0 ? code + static_cast<int64_t>(code->imm) : code + 1;
}

// The entries are distances from this Code; the last one is the default.
const Code* JumpTable(const Code* code, uint64_t* frame, Instance& instance) {
  const uint64_t last = code->c - 1;
  const uint64_t index = frame[code->a] < last ? frame[code->a] : last;
  return code + instance.function().jumps[code->b + index];
}

const Code* Call(const Code* code, uint64_t*, Instance& instance) {
  return instance.Enter(instance.launch().decoded.functions[code->imm], code, code + 1);
}

const Code* CallRef(const Code* code, uint64_t* frame, Instance& instance) {
  const DecodedModule& decoded = instance.launch().decoded;
  const Module& m = decoded.module;
  const uint32_t reference = static_cast<uint32_t>(frame[code->a]);
  if (reference == 0) {
    return instance.Trap(TrapCode::kUninitializedElement, code);
  }
  const uint32_t own = reference - m.first_reference;  // A reference below the first one wraps to a large number.
  if (own >= m.references.size()) {
    return m.is_linked ? instance.CallHost(reference, code, frame) : instance.Trap(TrapCode::kIndirectCall, code);
  }
  if (m.references[own].type != code->imm) {
    return instance.Trap(TrapCode::kIndirectCall, code);
  }
  return instance.Enter(decoded.functions[m.references[own].function.index], code, code + 1);
}

const Code* Print(const Code* code, uint64_t* frame, Instance& instance) {
  PrintSink* sink = instance.launch().launch.print;
  if (sink == nullptr) {
    return code + 1;
  }
  std::array<uint64_t, limits::kPrintOperandsMax> values;
  for (uint32_t i = 0; i < code->c; ++i) {
    values[i] = frame[instance.function().slots[code->b + i]];
  }
  sink->Print(instance.id(), static_cast<uint32_t>(code->imm), {values.data(), code->c});
  return code + 1;
}

const Code* Return(const Code* code, uint64_t* frame, Instance& instance) { return instance.Leave(code, frame); }

const Code* Trap(const Code* code, uint64_t*, Instance& instance) {
  return instance.Trap(static_cast<TrapCode>(code->imm), code);
}

}  // namespace hpvm::ir::step
