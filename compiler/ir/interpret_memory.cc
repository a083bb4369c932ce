// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "compiler/ir/machine.h"

namespace hpvm::ir {
namespace {

template <Space kSpace>
uint8_t* Resolve(Instance& instance, const Code* code, uint64_t address, uint64_t bytes, bool is_write) {
  if constexpr (kSpace == Space::kParam) {
    return instance.InParam(address, code->imm, bytes, is_write, code);
  } else if constexpr (kSpace == Space::kModule) {
    return instance.InModule(address, code->imm, bytes, is_write, code);
  } else if constexpr (kSpace == Space::kGroup) {
    return instance.InGroup(address, code->imm, bytes, is_write, code);
  } else {
    return instance.Flat(address, code->imm, bytes, is_write, code);
  }
}

// Stored is what memory holds, signed to sign-extend; Wide the unsigned type of the result's width.
template <Space kSpace, typename Stored, typename Wide>
const Code* Load(const Code* code, uint64_t* frame, Instance& instance) {
  const uint8_t* from = Resolve<kSpace>(instance, code, frame[code->a], sizeof(Stored), false);
  if (from == nullptr) {
    return nullptr;
  }
  Stored value;
  std::memcpy(&value, from, sizeof(value));
  frame[code->result] = static_cast<Wide>(value);
  return code + 1;
}

template <Space kSpace, typename Stored>
const Code* Store(const Code* code, uint64_t* frame, Instance& instance) {
  uint8_t* to = Resolve<kSpace>(instance, code, frame[code->a], sizeof(Stored), true);
  if (to == nullptr) {
    return nullptr;
  }
  const Stored value = static_cast<Stored>(frame[code->b]);
  std::memcpy(to, &value, sizeof(value));
  return code + 1;
}

template <Space kSpace, typename Wide>
Handler LoadHandler(const Op& op) {
  switch (op.width) {
    case 1:
      return op.sign ? Load<kSpace, int8_t, Wide> : Load<kSpace, uint8_t, Wide>;
    case 2:
      return op.sign ? Load<kSpace, int16_t, Wide> : Load<kSpace, uint16_t, Wide>;
    case 4:
      return op.sign ? Load<kSpace, int32_t, Wide> : Load<kSpace, uint32_t, Wide>;
    default:
      return Load<kSpace, uint64_t, Wide>;
  }
}

template <Space kSpace>
Handler AccessHandler(const Op& op) {
  if (op.code == Opcode::kLoad) {
    return Bytes(op.type) == 4 ? LoadHandler<kSpace, uint32_t>(op) : LoadHandler<kSpace, uint64_t>(op);
  }
  switch (op.width) {
    case 1:
      return Store<kSpace, uint8_t>;
    case 2:
      return Store<kSpace, uint16_t>;
    case 4:
      return Store<kSpace, uint32_t>;
    default:
      return Store<kSpace, uint64_t>;
  }
}

const Code* MemorySize(const Code* code, uint64_t* frame, Instance& instance) {
  frame[code->result] = instance.memory().bytes() / kBaseAlignment;
  return code + 1;
}

const Code* MemoryGrow(const Code* code, uint64_t* frame, Instance& instance) {
  uint64_t old_pages = 0;
  const bool grown = instance.memory().Grow(frame[code->a], &old_pages);
  frame[code->result] = grown ? old_pages : instance.launch().address_mask;  // -1 of the address type.
  return code + 1;
}

const Code* MemoryCopy(const Code* code, uint64_t* frame, Instance& instance) {
  const uint64_t bytes = frame[code->c];
  if (bytes == 0) {
    return code + 1;
  }
  uint8_t* to = instance.Flat(frame[code->a], 0, bytes, true, code);
  const uint8_t* from = to == nullptr ? nullptr : instance.Flat(frame[code->b], 0, bytes, false, code);
  if (from == nullptr) {
    return nullptr;
  }
  std::memmove(to, from, bytes);
  return code + 1;
}

const Code* MemoryFill(const Code* code, uint64_t* frame, Instance& instance) {
  const uint64_t bytes = frame[code->c];
  if (bytes == 0) {
    return code + 1;
  }
  uint8_t* to = instance.Flat(frame[code->a], 0, bytes, true, code);
  if (to == nullptr) {
    return nullptr;
  }
  std::memset(to, static_cast<uint8_t>(frame[code->b]), bytes);
  return code + 1;
}

}  // namespace

Handler MemoryHandler(const Op& op) {
  switch (op.code) {
    case Opcode::kMemorySize:
      return MemorySize;
    case Opcode::kMemoryGrow:
      return MemoryGrow;
    case Opcode::kMemoryCopy:
      return MemoryCopy;
    case Opcode::kMemoryFill:
      return MemoryFill;
    default:
      break;
  }
  switch (op.space) {
    case Space::kParam:
      return AccessHandler<Space::kParam>(op);
    case Space::kModule:
      return AccessHandler<Space::kModule>(op);
    case Space::kGroup:
      return AccessHandler<Space::kGroup>(op);
    default:
      return AccessHandler<Space::kFlat>(op);
  }
}

}  // namespace hpvm::ir
