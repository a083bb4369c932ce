// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <functional>

#include "compiler/ir/interpret/machine.h"
#include "compiler/ir/numeric.h"

namespace hpvm::ir {
namespace {

using namespace numeric;

// Every base and every buffer is aligned, so the address has the host pointer's alignment. Returns null after a trap.
template <Space kSpace, typename T>
T* Cell(const Code* code, const uint64_t* frame, Instance& instance, bool is_write) {
  if ((frame[code->a] + code->imm) % sizeof(T) != 0) {
    const LaunchState& launch = instance.launch();
    const uint64_t base = kSpace == Space::kParam ? launch.addresses.base[code->extra] : 0;
    uint64_t at = 0;
    const bool overflows = __builtin_add_overflow((base + frame[code->a]) & launch.address_mask, code->imm, &at);
    instance.TrapAt(TrapCode::kMisalignedAtomic, code, overflows ? ~uint64_t{0} : at, sizeof(T));
    return nullptr;
  }
  return reinterpret_cast<T*>(Resolve<kSpace>(instance, code, frame[code->a], sizeof(T), is_write));
}

template <Space kSpace, typename T>
const Code* AtomicLoad(const Code* code, uint64_t* frame, Instance& instance) {
  T* at = Cell<kSpace, T>(code, frame, instance, false);
  if (at == nullptr) {
    return nullptr;
  }
  frame[code->result] = std::atomic_ref<T>(*at).load();
  return code + 1;
}

template <Space kSpace, typename T>
const Code* AtomicStore(const Code* code, uint64_t* frame, Instance& instance) {
  T* at = Cell<kSpace, T>(code, frame, instance, true);
  if (at == nullptr) {
    return nullptr;
  }
  std::atomic_ref<T>(*at).store(static_cast<T>(frame[code->b]));
  return code + 1;
}

template <Space kSpace, typename T>
const Code* Cmpxchg(const Code* code, uint64_t* frame, Instance& instance) {
  T* at = Cell<kSpace, T>(code, frame, instance, true);
  if (at == nullptr) {
    return nullptr;
  }
  T expected = static_cast<T>(frame[code->b]);
  std::atomic_ref<T>(*at).compare_exchange_strong(expected, static_cast<T>(frame[code->c]));
  frame[code->result] = expected;
  return code + 1;
}

template <Space kSpace, typename T, auto kCombine>
const Code* Update(const Code* code, uint64_t* frame, Instance& instance) {
  T* at = Cell<kSpace, T>(code, frame, instance, true);
  if (at == nullptr) {
    return nullptr;
  }
  const T value = static_cast<T>(frame[code->b]);
  std::atomic_ref<T> cell(*at);
  T old = cell.load();
  while (!cell.compare_exchange_weak(old, kCombine(old, value))) {
  }
  frame[code->result] = old;
  return code + 1;
}

template <typename T>
T Second(T, T b) {
  return b;
}
template <typename T>
T MinS(T a, T b) {
  return static_cast<Signed<T>>(a) < static_cast<Signed<T>>(b) ? a : b;
}
template <typename T>
T MaxS(T a, T b) {
  return static_cast<Signed<T>>(a) > static_cast<Signed<T>>(b) ? a : b;
}
template <typename T>
T FloatSum(T a, T b) {
  using F = std::conditional_t<sizeof(T) == 4, float, double>;
  if constexpr (sizeof(T) < 4) {
    return a;  // The verifier refuses narrow operations.
  } else {
    return std::bit_cast<T>(std::bit_cast<F>(a) + std::bit_cast<F>(b));
  }
}

template <Space kSpace, typename T>
Handler HandlerOf(Opcode code) {
  static constexpr Handler kRows[] = {
      AtomicLoad<kSpace, T>,
      AtomicStore<kSpace, T>,
      Update<kSpace, T, std::plus<T>{}>,
      Update<kSpace, T, std::minus<T>{}>,
      Update<kSpace, T, std::bit_and<T>{}>,
      Update<kSpace, T, std::bit_or<T>{}>,
      Update<kSpace, T, std::bit_xor<T>{}>,
      Update<kSpace, T, Second<T>>,
      Update<kSpace, T, MinS<T>>,
      Update<kSpace, T, std::ranges::min>,
      Update<kSpace, T, MaxS<T>>,
      Update<kSpace, T, std::ranges::max>,
      Cmpxchg<kSpace, T>,
      Update<kSpace, T, FloatSum<T>>,
  };
  return RowOf(kRows, Opcode::kAtomicLoad, code);
}

template <Space kSpace>
Handler HandlerOf(const Op& op) {
  return ForWidth(op.width, [&]<typename T>() { return HandlerOf<kSpace, T>(op.code); });
}

}  // namespace

Handler AtomicHandler(const Op& op) {
  switch (op.space) {
    case Space::kParam:
      return HandlerOf<Space::kParam>(op);
    case Space::kModule:
      return HandlerOf<Space::kModule>(op);
    case Space::kGroup:
      return HandlerOf<Space::kGroup>(op);
    default:
      return HandlerOf<Space::kFlat>(op);
  }
}

}  // namespace hpvm::ir
