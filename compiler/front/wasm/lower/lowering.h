// SPDX-License-Identifier: Apache-2.0
// The lowering of one function, shared by its source files: lower.cc has control and calls, lower_state.cc globals,
// references, tables and segments.
#ifndef HPVMD_COMPILER_FRONT_WASM_LOWER_LOWERING_H_
#define HPVMD_COMPILER_FRONT_WASM_LOWER_LOWERING_H_

#include <span>
#include <vector>

#include "compiler/front/wasm/lower/lower.h"
#include "compiler/front/wasm/lower/operand_stack.h"
#include "compiler/front/wasm/lower/set_locals.h"
#include "compiler/front/wasm/lower/simd.h"
#include "compiler/front/wasm/lower/state_code.h"

namespace hpvm::wasm {

// An open block, loop or if; the first frame stands for the function.
struct Frame {
  InstrKind kind = InstrKind::kBlock;
  ir::OpId op;  // Invalid for the function.
  uint32_t signature = 0;
  const ir::FunctionType* type = nullptr;
  std::span<const uint32_t> locals;  // Slots of the locals set inside.
  size_t height = 0;                 // Height of the stack below the parameters, in slots.
  bool is_left = false;              // A branch leaves the frame, so the code after it is reachable.
  bool has_else = false;
  std::vector<ir::ValueId> saved;  // For kIf: the parameters and locals as they were at the condition.
};

class Lowering {
 public:
  Lowering(LowerContext& context, const Function& function, const SetLocals& sets, ir::Function& out)
      : context_(context),
        module_(context.module),
        source_(function),
        sets_(sets),
        out_(out),
        builder_(out),
        code_(context.table_functions, out, builder_),
        simd_(out, builder_) {}

  bool Run();

 private:
  using ValueId = ir::ValueId;

  ValueId Pop();
  std::vector<ValueId> PopSlots(size_t count);
  void Push(ValueId value) { stack_.Push(value); }

  void Reserve();
  void Begin();
  void Lower(const Instr& instr);
  void LowerState(const Instr& instr);
  void Skip(const Instr& instr);
  void Plain(const Instr& instr);
  void LocalGet(const Instr& instr);
  void LocalSet(const Instr& instr, bool is_tee);
  void Call(const Instr& instr);
  void CallImport(const Function& callee, std::span<const ValueId> operands, const Instr& instr);
  void Select();
  void Simd(const Instr& instr);

  void OpenBlock(const Instr& instr);
  void OpenLoop(const Instr& instr, Frame& frame, std::span<const ir::Type> results);
  void OpenIf(const Instr& instr, Frame& frame, std::span<const ir::Type> results);
  void Else();
  void End(const Instr& instr);
  void FallThrough();
  void Branch(uint32_t depth, uint32_t source);
  void BranchIf(const Instr& instr);
  void BranchTable(const Instr& instr);
  void Return(uint32_t source);

  Frame& FrameAt(uint32_t depth) { return frames_[frames_.size() - 1 - depth]; }
  // Returns the values that a branch to the frame carries: the top of the stack and the locals set inside. Valid
  // until the next call.
  std::span<const ValueId> BranchValues(const Frame& frame);
  std::span<const ValueId> Carried(const Frame& frame, size_t count);
  void Restore(const Frame& frame, std::span<const ValueId> values);

  // The following members are defined in lower_state.cc.
  ValueId AtomicLoad(ValueId address, const Instr& instr);
  // Drops the segment whose remaining size lies at `offset`; does nothing for kNowhere.
  void Drop(uint32_t offset);

  void GlobalAccess(const Instr& instr);
  void CallIndirect(const Instr& instr);
  void TableGet(const Instr& instr);
  void TableSet(const Instr& instr);
  void TableGrow(const Instr& instr);
  void TableFill(const Instr& instr);
  void TableCopy(const Instr& instr, const TableLayout& target, const TableLayout& source);
  void MemoryInit(const Instr& instr);
  void Notify(const Instr& instr);
  void Wait(const Instr& instr);

  LowerContext& context_;
  const Module& module_;
  const Function& source_;
  const SetLocals& sets_;
  ir::Function& out_;
  ir::Builder builder_;
  StateCode code_;
  SimdLowering simd_;
  OperandStack stack_;
  std::vector<ValueId> locals_;  // Indexed by slot.
  std::vector<Frame> frames_;
  std::vector<ValueId> carried_;  // The result of Carried.
  uint32_t next_block_ = 0;       // Index of the next block in sets_.
  uint32_t dead_depth_ = 0;       // Number of blocks opened since the code became unreachable.
  bool is_reachable_ = true;
};

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_LOWER_LOWERING_H_
