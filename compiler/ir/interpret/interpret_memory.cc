// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstring>

#include "compiler/ir/interpret/machine.h"

namespace hpvm::ir {
namespace {

// Stored is the type in memory, signed to sign-extend; Wide is the unsigned type of the result's width.
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

template <Space kSpace>
const Code* Load128(const Code* code, uint64_t* frame, Instance& instance) {
  const uint8_t* from = Resolve<kSpace>(instance, code, frame[code->a], 16, false);
  if (from == nullptr) {
    return nullptr;
  }
  std::array<uint32_t, 4> parts;
  std::memcpy(parts.data(), from, 16);
  std::copy(parts.begin(), parts.end(), frame + code->result);
  return code + 1;
}

template <Space kSpace>
const Code* Store128(const Code* code, uint64_t* frame, Instance& instance) {
  uint8_t* to = Resolve<kSpace>(instance, code, frame[code->a], 16, true);
  if (to == nullptr) {
    return nullptr;
  }
  std::array<uint32_t, 4> parts;
  for (uint32_t i = 0; i < 4; ++i) {
    parts[i] = static_cast<uint32_t>(frame[instance.function().slots[code->b + i]]);
  }
  std::memcpy(to, parts.data(), 16);
  return code + 1;
}

template <Space kSpace, typename Wide>
Handler LoadHandler(const Op& op) {
  return ForWidth(op.width, [&]<typename T>() -> Handler {
    if constexpr (sizeof(T) <= 4) {
      return op.sign ? Load<kSpace, std::make_signed_t<T>, Wide> : Load<kSpace, T, Wide>;
    } else {
      return Load<kSpace, T, Wide>;
    }
  });
}

template <Space kSpace>
Handler AccessHandler(const Op& op) {
  if (op.code == Opcode::kLoad) {
    return Bytes(op.type) == 4 ? LoadHandler<kSpace, uint32_t>(op) : LoadHandler<kSpace, uint64_t>(op);
  }
  if (op.code == Opcode::kLoad128) {
    return Load128<kSpace>;
  }
  if (op.code == Opcode::kStore128) {
    return Store128<kSpace>;
  }
  return ForWidth(op.width, []<typename T>() -> Handler { return Store<kSpace, T>; });
}

const Code* MemorySize(const Code* code, uint64_t* frame, Instance& instance) {
  frame[code->result] = instance.memory().bytes() / kBaseAlignment;
  return code + 1;
}

const Code* MemoryGrow(const Code* code, uint64_t* frame, Instance& instance) {
  uint64_t old_pages = 0;
  const bool grown = instance.Grow(frame[code->a], &old_pages);
  frame[code->result] = grown ? old_pages : instance.launch().address_mask;  // -1 of the address type.
  return code + 1;
}

// Runs `move` on parts of [0, bytes), in descending order if `is_backward`, and polls the stop word after each part.
// Returns false when the launch must stop.
template <typename Move>
bool InParts(uint64_t bytes, bool is_backward, Instance& instance, const Code* code, Move&& move) {
  constexpr uint64_t kPartBytes = uint64_t{1} << 20;
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t part = std::min(kPartBytes, bytes - done);
    move(is_backward ? bytes - done - part : done, part);
    done += part;
    if (done < bytes && !instance.CountStep(code)) {
      return false;
    }
  }
  return true;
}

const Code* MemoryCopy(const Code* code, uint64_t* frame, Instance& instance) {
  const uint64_t bytes = frame[code->c];
  uint8_t* to = instance.Flat(frame[code->a], 0, bytes, true, code);
  const uint8_t* from = to == nullptr ? nullptr : instance.Flat(frame[code->b], 0, bytes, false, code);
  if (from == nullptr) {
    return nullptr;
  }
  // A move to higher addresses runs its last part first, so that no part overwrites bytes that are still to be read.
  const bool done = InParts(bytes, to > from, instance, code,
                            [&](uint64_t at, uint64_t part) { std::memmove(to + at, from + at, part); });
  return done ? code + 1 : nullptr;
}

const Code* MemoryFill(const Code* code, uint64_t* frame, Instance& instance) {
  const uint64_t bytes = frame[code->c];
  uint8_t* to = instance.Flat(frame[code->a], 0, bytes, true, code);
  if (to == nullptr) {
    return nullptr;
  }
  const uint8_t value = static_cast<uint8_t>(frame[code->b]);
  const bool done =
      InParts(bytes, false, instance, code, [&](uint64_t at, uint64_t part) { std::memset(to + at, value, part); });
  return done ? code + 1 : nullptr;
}

const Code* MemoryInit(const Code* code, uint64_t* frame, Instance& instance) {
  const std::vector<uint8_t>& segment = instance.module().passive_segments[code->imm];
  const uint64_t from = frame[code->b], bytes = frame[code->c];  // 32-bit numbers: the sum does not overflow.
  if (from + bytes > segment.size()) {
    return instance.Trap(TrapCode::kOutOfBounds, code);  // Without an address, because no address reaches the
                                                         // segment.
  }
  uint8_t* to = instance.Flat(frame[code->a], 0, bytes, true, code);
  if (to == nullptr) {
    return nullptr;
  }
  const bool done = InParts(bytes, false, instance, code, [&](uint64_t at, uint64_t part) {
    std::memcpy(to + at, segment.data() + from + at, part);
  });
  return done ? code + 1 : nullptr;
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
    case Opcode::kMemoryInit:
      return MemoryInit;
    default:
      break;
  }
  switch (op.space) {
    case Space::kParam:
      return AccessHandler<Space::kParam>(op);
    case Space::kModule:
      return AccessHandler<Space::kModule>(op);
    case Space::kStack:
      return AccessHandler<Space::kStack>(op);
    case Space::kGroup:
      return AccessHandler<Space::kGroup>(op);
    case Space::kState:
    case Space::kScratch:
      return AccessHandler<Space::kState>(op);
    default:
      return AccessHandler<Space::kFlat>(op);
  }
}

}  // namespace hpvm::ir
