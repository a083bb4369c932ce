// SPDX-License-Identifier: Apache-2.0
// Stacks of our own and switching between them: for instances that wait at barriers, and for calling threads whose
// stack is too small.
//
// A fiber may be dropped while it is suspended: kernels hold nothing that needs unwinding. It must not be resumed by
// another thread than the one that started it.
#ifndef HPVMD_BACKENDS_CPU_FIBER_H_
#define HPVMD_BACKENDS_CPU_FIBER_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/status.h"

namespace hpvm::cpu {

class Fiber {
 public:
  // Below a kernel's limit: leaf functions' frames, those of what it calls outside (the barrier, restoring, printing),
  // signal frames, what sanitizers add.
  static constexpr uint64_t kReserveBytes = 128 * 1024;

  // A stack of the kernel's budget (limits::kKernelStackBytes) and of `reserve_bytes` for what the kernel calls, with a
  // guard page below.
  static StatusOr<std::unique_ptr<Fiber>> Create(uint64_t reserve_bytes = kReserveBytes);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Makes the next Resume call `body(argument)` on a fresh stack. What ran here before is dropped.
  void Start(void (*body)(void*), void* argument);
  // Runs the fiber until it suspends or its body returns. True when the body has returned.
  bool Resume();
  // Called on the fiber: goes back to Resume's caller.
  void Suspend();

  // What a kernel may let its stack pointer fall to.
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
  struct Context;                       // Saved stack pointers, and what sanitizers keep.
  std::unique_ptr<Context> context_;
};

// The lowest stack pointer that a kernel called from here may reach, when the calling thread's stack has the whole
// budget left; else 0.
uint64_t StackLimitHere();

}  // namespace hpvm::cpu

#endif  // HPVMD_BACKENDS_CPU_FIBER_H_
