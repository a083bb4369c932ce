// SPDX-License-Identifier: Apache-2.0
// Handlers for queries, groups, globals, constants and select.
#include "compiler/ir/interpret/machine.h"

namespace hpvm::ir {
namespace {

const Code* Const(const Code* code, uint64_t* frame, Instance&) {
  frame[code->result] = code->imm;
  return code + 1;
}

const Code* Select(const Code* code, uint64_t* frame, Instance&) {
  frame[code->result] = frame[code->a] != 0 ? frame[code->b] : frame[code->c];
  return code + 1;
}

const Code* GlobalGet(const Code* code, uint64_t* frame, Instance& instance) {
  frame[code->result] = instance.globals()[code->imm];
  return code + 1;
}

const Code* GlobalSet(const Code* code, uint64_t* frame, Instance& instance) {
  instance.MarkGlobalsWritten();
  instance.globals()[code->imm] = frame[code->a];
  return code + 1;
}

// `imm` is the mask of the result's type.
template <Opcode kCode>
const Code* Query(const Code* code, uint64_t* frame, Instance& instance) {
  const uint64_t d = frame[code->a];
  const Launch& launch = instance.launch().launch;
  uint64_t value = kCode == Opcode::kInstanceCount || kCode == Opcode::kGroupSize ? 1 : 0;
  if constexpr (kCode == Opcode::kBufferSize) {
    const auto& params = instance.module().params;
    value = d < params.size() && params[d].is_buffer ? launch.arguments[d].bytes : 0;
  } else if (d < 3) {
    const uint64_t id = instance.id()[d], group = launch.group[d];
    value = kCode == Opcode::kInstanceId      ? id
            : kCode == Opcode::kInstanceCount ? launch.extent[d]
            : kCode == Opcode::kGroupId       ? id / group
            : kCode == Opcode::kGroupSize     ? group
                                              : id % group;
  }
  frame[code->result] = value & code->imm;
  return code + 1;
}

const Code* Barrier(const Code* code, uint64_t*, Instance& instance) { return instance.Wait(code + 1); }

const Code* LocalAlloc(const Code* code, uint64_t* frame, Instance& instance) {
  uint64_t address = 0;
  if (!instance.AllocateLocal(frame[code->a], &address)) {
    return instance.Trap(TrapCode::kGroupMemoryExhausted, code);
  }
  frame[code->result] = address;
  return code + 1;
}

}  // namespace

Handler LaunchHandler(const Op& op) {
  static constexpr Handler kQueries[] = {Query<Opcode::kInstanceId>, Query<Opcode::kInstanceCount>,
                                         Query<Opcode::kGroupId>,    Query<Opcode::kGroupSize>,
                                         Query<Opcode::kLocalId>,    Query<Opcode::kBufferSize>};
  if (Info(op.code).family == Family::kQuery) {
    return RowOf(kQueries, Opcode::kInstanceId, op.code);
  }
  switch (op.code) {
    case Opcode::kConst:
      return Const;
    case Opcode::kSelect:
      return Select;
    case Opcode::kGlobalGet:
      return GlobalGet;
    case Opcode::kGlobalSet:
      return GlobalSet;
    case Opcode::kBarrier:
      return Barrier;
    default:
      return LocalAlloc;
  }
}

}  // namespace hpvm::ir
