// SPDX-License-Identifier: Apache-2.0
// The interpreter's internals: functions decoded to flat code, and the state of a running instance. Only
// interpret*.cc include it.
//
// A value's slot in the frame is its index. One Code is one step; its handler does the work and returns the next
// Code, or null when the instance has ended, trapped or waits. Jumps are relative.
#ifndef HPVMD_COMPILER_IR_INTERPRET_MACHINE_H_
#define HPVMD_COMPILER_IR_INTERPRET_MACHINE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "compiler/ir/interpret/private_memory.h"
#include "compiler/ir/ir.h"
#include "compiler/ir/launch.h"

namespace hpvm::ir {

struct Code;
class Instance;
class LaunchCheck;  // launch_check.h.
using Handler = const Code* (*)(const Code* code, uint64_t* frame, Instance& instance);

struct Code {
  Handler run = nullptr;
  uint32_t result = 0;  // Slot of the first result.
  // Slots of the operands; for lists, `b` is the first index in DecodedFunction::slots and `c` the count. store128
  // has its address in `a` and the other operands in a list.
  uint32_t a = 0, b = 0, c = 0;
  uint64_t imm = 0;  // As Op::imm; for jumps, the distance in Codes.
  uint32_t source = 0;
  uint32_t extra = 0;   // Op::space_index.
  uint32_t origin = 0;  // Op::origin.
};

struct DecodedFunction {
  uint32_t index = 0;
  uint32_t first_param = 0;  // A slot.
  uint32_t param_count = 0;
  uint32_t frame_slots = 0;
  std::vector<Code> code;
  std::vector<OpId> ops;        // One per Code: the operation that it belongs to.
  std::vector<uint32_t> slots;  // Operands of calls and returns.
  std::vector<int64_t> jumps;   // Targets of jump tables.
};

class DecodedModule {
 public:
  explicit DecodedModule(Module module_to_own);

  Module module;
  std::vector<DecodedFunction> functions;
};

// Decodes a function (interpret_decode.cc).
DecodedFunction Decode(const Module& module, FunctionId id);

// These return the handler of an operation; each is defined in its family's file.
Handler IntegerHandler(const Op& op);
Handler FloatHandler(const Op& op);
Handler ConversionHandler(const Op& op, Type result);
Handler MemoryHandler(const Op& op);
Handler AtomicHandler(const Op& op);
Handler LaunchHandler(const Op& op);  // Queries, barrier, local_alloc, globals, select, const.

// Steps without an operation of their own (interpret_control.cc).
namespace step {
const Code* Move(const Code* code, uint64_t* frame, Instance& instance);
const Code* Jump(const Code* code, uint64_t* frame, Instance& instance);
const Code* JumpBack(const Code* code, uint64_t* frame, Instance& instance);  // Polls the stop word.
const Code* JumpIfZero(const Code* code, uint64_t* frame, Instance& instance);
const Code* JumpTable(const Code* code, uint64_t* frame, Instance& instance);
const Code* Call(const Code* code, uint64_t* frame, Instance& instance);
const Code* CallRef(const Code* code, uint64_t* frame, Instance& instance);
const Code* Print(const Code* code, uint64_t* frame, Instance& instance);
const Code* Return(const Code* code, uint64_t* frame, Instance& instance);
const Code* Trap(const Code* code, uint64_t* frame, Instance& instance);
}  // namespace step

// Limits on the nesting of one instance's calls, and on the slots (8 bytes each) of its frames.
inline constexpr size_t kCallDepthMax = 4096;
inline constexpr size_t kStackSlotsMax = size_t{4} << 20;

// State that the instances of one Run share. It lives as long as Run; one thread uses it.
struct LaunchState {
  const DecodedModule& decoded;
  const Launch& launch;
  AddressSpace addresses;
  uint64_t address_mask = 0;
  uint64_t steps_left = 0;       // ~0 when there is no limit.
  LaunchCheck* check = nullptr;  // Optional.
  alignas(16) std::array<uint8_t, kGroupMemoryBytesMax> group_memory;
};

enum class InstanceState : uint8_t { kRunning, kEnded, kTrapped, kWaiting };

class InstanceCheck;  // instance_check.h.

class Instance {
 public:
  explicit Instance(LaunchState& launch);
  Instance(Instance&&) noexcept;
  Instance& operator=(Instance&&) = delete;
  ~Instance();

  Status Allocate();
  // Resets everything private to the initial state, unless it is borrowed, and positions the instance at the entry's
  // first step. `local` is its number in its group.
  void Start(const std::array<uint64_t, 3>& id, uint32_t local = 0);
  // Runs the instance until it ends, traps or waits at a barrier.
  InstanceState Run();

  const TrapReport& trap_report() const { return trap_; }
  const Code* waits_at() const { return next_; }
  InstanceState state() const { return state_; }
  // Returns null unless the launch is checked.
  const InstanceCheck* check() const { return check_.get(); }

  // The following members are for handlers.
  const LaunchState& launch() const { return *launch_; }
  LaunchState& launch() { return *launch_; }
  const Module& module() const { return launch_->decoded.module; }
  const std::array<uint64_t, 3>& id() const { return id_; }
  PrivateMemory& memory() { return memory_; }
  const PrivateMemory& memory() const { return memory_; }
  uint64_t* globals() { return globals_; }
  void MarkGlobalsWritten() { globals_written_ = true; }
  const DecodedFunction& function() const { return *function_; }
  const uint64_t* frame() const { return frame_; }
  size_t frame_base() const { return frames_.back().base; }
  size_t stack_slots() const { return stack_.size(); }

  // Returns the host address of [address, address + bytes) when a single range (writable for writes) holds it;
  // otherwise records the trap and returns null.
  uint8_t* Flat(uint64_t address, uint64_t offset, uint64_t bytes, bool is_write, const Code* code);
  uint8_t* InModule(uint64_t address, uint64_t offset, uint64_t bytes, bool is_write, const Code* code);
  uint8_t* InStack(uint64_t address, uint64_t offset, uint64_t bytes, bool is_write, const Code* code);
  bool IsSaidInside(const Code* code) const;
  uint8_t* InParam(uint64_t address, uint64_t offset, uint64_t bytes, bool is_write, const Code* code);
  uint8_t* InGroup(uint64_t address, uint64_t offset, uint64_t bytes, bool is_write, const Code* code);
  uint8_t* InState(uint64_t address, uint64_t offset, uint64_t bytes, bool is_write, const Code* code);
  // Implements memory_grow: returns false, or true with the old size in pages.
  bool Grow(uint64_t pages, uint64_t* old_pages);
  // Calls a function of another module.
  const Code* CallHost(uint32_t reference, const Code* code, uint64_t* frame);
  // Allocates group memory; returns false when none is left.
  bool AllocateLocal(uint64_t bytes, uint64_t* address);

  // Returns false, and records it, when the launch must stop.
  bool CountStep(const Code* code);
  const Code* Enter(const DecodedFunction& callee, const Code* call, const Code* return_to);
  const Code* Leave(const Code* code, uint64_t* frame);
  const Code* Wait(const Code* resume);
  const Code* Trap(TrapCode code, const Code* at);
  const Code* TrapAt(TrapCode code, const Code* at, uint64_t address, uint64_t bytes);

 private:
  struct Frame {
    const DecodedFunction* function;
    const Code* return_to;
    const Code* call;
    size_t base;
  };

  void ResetGlobals();
  void RunChecked();
  uint8_t* InBuffers(uint64_t address, uint64_t bytes, bool is_write, const Code* code);

  LaunchState* launch_;
  const DecodedFunction* function_ = nullptr;
  const Code* next_ = nullptr;
  uint64_t* frame_ = nullptr;
  InstanceState state_ = InstanceState::kEnded;
  bool globals_written_ = true;
  PrivateMemory memory_, state_memory_;
  std::vector<uint64_t> stack_;
  std::vector<Frame> frames_;
  std::vector<uint64_t> own_globals_;
  uint64_t* globals_ = nullptr;  // Points to own_globals_ or to the launch's globals.
  std::array<uint64_t, 3> id_{};
  uint64_t group_used_ = 0;
  TrapReport trap_;
  std::unique_ptr<InstanceCheck> check_;
};

// Returns the bytes of an access; null after a trap.
template <Space kSpace>
uint8_t* Resolve(Instance& instance, const Code* code, uint64_t address, uint64_t bytes, bool is_write) {
  if constexpr (kSpace == Space::kParam) {
    return instance.InParam(address, code->imm, bytes, is_write, code);
  } else if constexpr (kSpace == Space::kModule) {
    return instance.InModule(address, code->imm, bytes, is_write, code);
  } else if constexpr (kSpace == Space::kStack) {
    return instance.InStack(address, code->imm, bytes, is_write, code);
  } else if constexpr (kSpace == Space::kState) {
    return instance.InState(address, code->imm, bytes, is_write, code);
  } else {  // Space group is only a hint: an address in it is located like a flat one.
    return instance.Flat(address, code->imm, bytes, is_write, code);
  }
}

// Returns the result of `of` for the unsigned type of that width.
template <typename F>
Handler ForWidth(uint8_t width, F&& of) {
  return width == 1   ? of.template operator()<uint8_t>()
         : width == 2 ? of.template operator()<uint16_t>()
         : width == 4 ? of.template operator()<uint32_t>()
                      : of.template operator()<uint64_t>();
}

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_INTERPRET_MACHINE_H_
