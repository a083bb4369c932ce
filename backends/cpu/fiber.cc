// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/fiber.h"

#include <pthread.h>
#include <sys/mman.h>

#include "base/limits.h"

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#define HPVMD_FIBER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HPVMD_FIBER_ASAN 1
#endif
#endif
#if defined(HPVMD_TSAN)
#define HPVMD_FIBER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HPVMD_FIBER_TSAN 1
#endif
#endif

#ifdef HPVMD_FIBER_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef HPVMD_FIBER_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace hpvm::cpu {
namespace {

constexpr size_t kGuardBytes = 64 * limits::kKiB;    // Larger than one frame may skip.

}  // namespace

#if defined(__x86_64__)
// Saves the callee-saved registers on the current stack and its pointer in *rdi, then restores those of the stack rsi.
// The floating-point control words are not saved, because no kernel changes them.
extern "C" void hpvmd_switch_stack(void** save, void* load);
extern "C" void hpvmd_fiber_start();
asm(R"(
.text
.p2align 4
.type hpvmd_switch_stack, @function
hpvmd_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size hpvmd_switch_stack, . - hpvmd_switch_stack
.p2align 4
.type hpvmd_fiber_start, @function
hpvmd_fiber_start:
  movq %r12, %rdi
  xorl %ebp, %ebp
  callq *%rbx
  ud2
.size hpvmd_fiber_start, . - hpvmd_fiber_start
)");
#endif

struct Fiber::Context {
#if defined(__x86_64__)
  void* own = nullptr;      // The fiber's stack pointer while it is suspended.
  void* caller = nullptr;   // The stack pointer of Resume's caller.
#else
  ucontext_t own, caller;
#endif
#ifdef HPVMD_FIBER_ASAN
  void* own_fake = nullptr;
  void* caller_fake = nullptr;
  const void* caller_stack = nullptr;
  size_t caller_bytes = 0;
#endif
#ifdef HPVMD_FIBER_TSAN
  void* own_tsan = nullptr;
  void* caller_tsan = nullptr;
#endif
};

StatusOr<std::unique_ptr<Fiber>> Fiber::Create(uint64_t reserve_bytes) {
  std::unique_ptr<Fiber> fiber(new Fiber);
  fiber->reserve_bytes_ = reserve_bytes;
  fiber->mapping_bytes_ = kGuardBytes + reserve_bytes + limits::kKernelStackBytes;
  void* mapping = mmap(nullptr, fiber->mapping_bytes_, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    return ResourceExhausted("Memory for the stack of a kernel instance (" + std::to_string(fiber->mapping_bytes_) +
                             " bytes) is not available.");
  }
  fiber->mapping_ = static_cast<uint8_t*>(mapping);
  fiber->context_ = std::make_unique<Context>();
  if (mprotect(mapping, kGuardBytes, PROT_NONE) != 0) {
    return ResourceExhausted("The guard page of a kernel instance's stack is not available.");
  }
  return fiber;
}

Fiber::~Fiber() {
#ifdef HPVMD_FIBER_TSAN
  if (context_ != nullptr && context_->own_tsan != nullptr) {
    __tsan_destroy_fiber(context_->own_tsan);
  }
#endif
  if (mapping_ != nullptr) {
    munmap(mapping_, mapping_bytes_);
  }
}

uint64_t Fiber::stack_limit() const {
  return reinterpret_cast<uint64_t>(mapping_) + kGuardBytes + reserve_bytes_;
}

void Fiber::Start(void (*body)(void*), void* argument) {
  body_ = body;
  argument_ = argument;
  finished_ = false;
#ifdef HPVMD_FIBER_TSAN
  if (context_->own_tsan != nullptr) {
    __tsan_destroy_fiber(context_->own_tsan);
  }
  context_->own_tsan = __tsan_create_fiber(0);
#endif
#ifdef HPVMD_FIBER_ASAN
  // A dropped run left the shadow of its frames behind.
  __asan_unpoison_memory_region(mapping_ + kGuardBytes, mapping_bytes_ - kGuardBytes);
  context_->own_fake = nullptr;
#endif
  Prepare();
}

#if defined(__x86_64__)
void Fiber::Prepare() {
  // Values popped by hpvmd_switch_stack: r15 r14 r13 r12 rbx rbp, then the return address. They are nine words below
  // the end of the mapping, so that the stack is 16-aligned when hpvmd_fiber_start begins.
  auto* top = reinterpret_cast<uint64_t*>(mapping_ + mapping_bytes_) - 9;
  top[0] = top[1] = top[2] = 0;
  top[3] = reinterpret_cast<uint64_t>(this);
  top[4] = reinterpret_cast<uint64_t>(&Fiber::Enter);
  top[5] = 0;
  top[6] = reinterpret_cast<uint64_t>(&hpvmd_fiber_start);
  context_->own = top;
}
// Inlined, so that ThreadSanitizer sees no function begin on one stack and end on another.
[[gnu::always_inline]] inline void Fiber::SwitchIn() { hpvmd_switch_stack(&context_->caller, context_->own); }
#else
void Fiber::Prepare() {
  HPVMD_CHECK(getcontext(&context_->own) == 0);
  context_->own.uc_stack.ss_sp = mapping_ + kGuardBytes;
  context_->own.uc_stack.ss_size = mapping_bytes_ - kGuardBytes;
  context_->own.uc_link = nullptr;
  const auto address = reinterpret_cast<uint64_t>(this);
  void (*enter)(uint32_t, uint32_t) = [](uint32_t high, uint32_t low) {
    Enter(reinterpret_cast<void*>(uint64_t{high} << 32 | low));
  };
  makecontext(&context_->own, reinterpret_cast<void (*)()>(enter), 2, static_cast<uint32_t>(address >> 32),
              static_cast<uint32_t>(address));
}
// Inlined, so that ThreadSanitizer sees no function begin on one stack and end on another.
[[gnu::always_inline]] inline void Fiber::SwitchIn() { swapcontext(&context_->caller, &context_->own); }
#endif

bool Fiber::Resume() {
#ifdef HPVMD_FIBER_TSAN
  context_->caller_tsan = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(context_->own_tsan, 0);
#endif
#ifdef HPVMD_FIBER_ASAN
  __sanitizer_start_switch_fiber(&context_->caller_fake, mapping_ + kGuardBytes, mapping_bytes_ - kGuardBytes);
#endif
  SwitchIn();
#ifdef HPVMD_FIBER_ASAN
  __sanitizer_finish_switch_fiber(context_->caller_fake, nullptr, nullptr);
#endif
  return finished_;
}

void Fiber::SwitchOut([[maybe_unused]] bool last) {
#ifdef HPVMD_FIBER_TSAN
  __tsan_switch_to_fiber(context_->caller_tsan, 0);
#endif
#ifdef HPVMD_FIBER_ASAN
  __sanitizer_start_switch_fiber(last ? nullptr : &context_->own_fake, context_->caller_stack,
                                 context_->caller_bytes);
#endif
#if defined(__x86_64__)
  hpvmd_switch_stack(&context_->own, context_->caller);
#else
  swapcontext(&context_->own, &context_->caller);
#endif
#ifdef HPVMD_FIBER_ASAN
  __sanitizer_finish_switch_fiber(context_->own_fake, &context_->caller_stack, &context_->caller_bytes);
#endif
}

void Fiber::Suspend() { SwitchOut(false); }

void Fiber::Enter(void* self) {
  auto* fiber = static_cast<Fiber*>(self);
#ifdef HPVMD_FIBER_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &fiber->context_->caller_stack, &fiber->context_->caller_bytes);
#endif
  fiber->body_(fiber->argument_);
  fiber->finished_ = true;
  fiber->SwitchOut(true);
}

namespace {

// Returns the lowest address of the thread's stack, or the largest number when it is unknown.
uint64_t ThreadStackLow() {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) {
    return ~uint64_t{0};
  }
  void* low = nullptr;
  size_t bytes = 0;
  const int failed = pthread_attr_getstack(&attributes, &low, &bytes);
  pthread_attr_destroy(&attributes);
  return failed != 0 ? ~uint64_t{0} : reinterpret_cast<uint64_t>(low);
}

}  // namespace

uint64_t StackLimitHere() {
  static thread_local const uint64_t low = ThreadStackLow();
  const auto here = reinterpret_cast<uint64_t>(__builtin_frame_address(0));
  constexpr uint64_t kNeeded = limits::kKernelStackBytes + Fiber::kReserveBytes;
  // On a fiber or another foreign stack, `here` lies outside the thread's stack: below it (refused here), or above it,
  // where the caller of this function must not be.
  if (low == ~uint64_t{0} || here < low || here - low < kNeeded) {
    return 0;
  }
  return here - limits::kKernelStackBytes;
}

}  // namespace hpvm::cpu
