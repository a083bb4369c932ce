// SPDX-License-Identifier: Apache-2.0
// Fiber provides separate stacks and switches between them: for instances that wait at barriers, and for calling
// threads whose stack is too small.
//
// A suspended fiber may be dropped, because kernels hold nothing that needs unwinding. It must be resumed by the thread
// that started it.
#ifndef HPVMD_BACKENDS_CPU_FIBER_H_
#define HPVMD_BACKENDS_CPU_FIBER_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/status.h"

namespace hpvm::cpu {

class Fiber {
 public:
  // Reserve beyond a kernel's limit: frames of leaf functions, of functions that it calls outside (the barrier,
  // restoring, printing), signal frames, and overhead of sanitizers.
  static constexpr uint64_t kReserveBytes = 128 * 1024;

  // Creates a stack of the kernel's budget (limits::kKernelStackBytes) plus `reserve_bytes` for functions that the
  // kernel calls, with a guard page below.
  static StatusOr<std::unique_ptr<Fiber>> Create(uint64_t reserve_bytes = kReserveBytes);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Makes the next Resume call `body(argument)` on a fresh stack. The previous run is dropped.
  void Start(void (*body)(void*), void* argument);
  // Runs the fiber until it suspends or its body returns. Returns true when the body has returned.
  bool Resume();
  // Called on the fiber: returns to Resume's caller.
  void Suspend();

  // Lowest value that a kernel may let its stack pointer reach.
  uint64_t stack_limit() const;

 private:
  Fiber() = default;
  static void Enter(void* self);
  void Prepare();
  void SwitchIn();
  void SwitchOut(bool last);

  uint8_t* mapping_ = nullptr;
  uint64_t reserve_bytes_ = 0;
  uint64_t mapping_bytes_ = 0;
  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
  bool finished_ = true;
  struct Context;                       // Saved stack pointers, and state of sanitizers.
  std::unique_ptr<Context> context_;
};

// Returns the lowest stack pointer that a kernel called from here may reach, when the calling thread's stack has the
// whole budget left; otherwise 0.
uint64_t StackLimitHere();

}  // namespace hpvm::cpu

#endif  // HPVMD_BACKENDS_CPU_FIBER_H_
