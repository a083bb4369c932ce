// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/llvm/group.h"

#include <optional>
#include <utility>

#include "compiler/back/llvm/gang/gang.h"
#include "compiler/back/llvm/group_loop.h"
#include "compiler/ir/cpu_abi.h"
#include "compiler/pass/gang/split_barriers.h"

namespace hpvm::cpu {
namespace {

// DerivedModule is a ModuleEmitter of the cut kernel over the same LLVM module; its destructor returns everything.
class DerivedModule {
 public:
  DerivedModule(ModuleEmitter& from, pass::GroupSplit& split) : from_(from), to_(split.module, from.machine) {
    Exchange();
    to_.functions = from_.functions;
    to_.functions.resize(split.module.functions.size(), nullptr);
    to_.has_grow = from_.has_grow;
    to_.writes_state = from_.writes_state;
    to_.written_globals = from_.written_globals;
    to_.marks_globals = from_.marks_globals;
    to_.kernel_tag = from_.kernel_tag;
    to_.context_tag = from_.context_tag;
    to_.group_value_bytes = split.value_bytes;
    to_.cut_from = from_.source.entry;
    to_.cut_functions = from_.source.functions.size();
  }
  ~DerivedModule() { Exchange(); }
  DerivedModule(const DerivedModule&) = delete;
  DerivedModule& operator=(const DerivedModule&) = delete;
  ModuleEmitter& get() { return to_; }

 private:
  void Exchange() {
    std::swap(from_.module, to_.module);
    std::swap(from_.reference_callers, to_.reference_callers);
    std::swap(from_.host_callers, to_.host_callers);
    std::swap(from_.printers, to_.printers);
    std::swap(from_.segments, to_.segments);
  }

  ModuleEmitter& from_;
  ModuleEmitter to_;
};

class GroupEmitter {
 public:
  GroupEmitter(ModuleEmitter& m, pass::GroupSplit& split, const GroupEntry& entry, KernelReport* report)
      : m_(m), split_(split), entry_(entry), report_(report), driver_(split.module.entry) {}
  StatusOr<GroupCode> Emit() {
    for (size_t i = 0; i < split_.intervals.size(); ++i) {
      HPVMD_RETURN_IF_ERROR(EmitInterval(i));
    }
    split_.module.entry = driver_;
    m_.functions[driver_.index] = Keep(m_.Declare(split_.module.function(driver_).type, "driver"), "driver");
    HPVMD_RETURN_IF_ERROR(FunctionEmitter(m_, driver_.index).Emit());
    EmitEntry();
    code_.value_bytes = split_.value_bytes;
    return std::move(code_);
  }

 private:
  StatusOr<llvm::Function*> EmitGang(const pass::BarrierInterval& interval, const pass::GangShape& shape,
                                     bool is_masked) {
    split_.module.entry = interval.gang;  // A gang is emitted from a module's entry.
    const std::optional<pass::GangPlan> plan =
        pass::PlanGang(split_.module, {.has_rows = shape.rows > 1, .assumes_guards = false});
    if (!plan.has_value()) {
      return Unimplemented("The analysis of which values instances share did not converge.");
    }
    std::vector<bool> proven(interval.original.size(), false);
    for (size_t i = 0; i < proven.size() && entry_.is_unchecked; ++i) {
      const ir::OpId original = interval.original[i];
      proven[i] = original.valid() && original.index < entry_.proven->size() && (*entry_.proven)[original.index];
    }
    GangEmitter gang(m_, *plan, {.shape = shape, .is_masked = is_masked, .is_unchecked = entry_.is_unchecked}, proven,
                     is_masked || shape.rows != entry_.shape.rows ? nullptr : report_);
    return gang.Emit();
  }
  Status EmitInterval(size_t number) {
    const pass::BarrierInterval& interval = split_.intervals[number];
    GroupLoop loop{&interval, entry_.shape, nullptr, nullptr, nullptr};
    const std::string name = std::to_string(number);
    const pass::GangShape gang{.lanes = entry_.shape.lanes};
    if (entry_.shape.rows > 1) {
      HPVMD_ASSIGN_OR_RETURN(loop.rows, EmitGang(interval, entry_.shape, false));
      Keep(loop.rows, "rows" + name);
    }
    HPVMD_ASSIGN_OR_RETURN(loop.whole, EmitGang(interval, gang, false));
    Keep(loop.whole, "whole" + name);
    HPVMD_ASSIGN_OR_RETURN(loop.masked, EmitGang(interval, gang, true));
    Keep(loop.masked, "masked" + name);
    m_.functions[interval.loop.index] =
        Keep(m_.Declare(split_.module.function(interval.loop).type, "loop"), "loop" + name);
    EmitGroupLoop(m_, loop, m_.functions[interval.loop.index]);
    return absl::OkStatus();
  }
  // Emits the entry of one group: computes its first instance's id, and calls the driver.
  void EmitEntry() {
    llvm::Function* function = DeclareEntry(m_, entry_.name);
    auto block = [&](const char* name) { return llvm::BasicBlock::Create(m_.context(), name, function); };
    llvm::IRBuilder<> b(block("start"));
    ContextFields fields(m_, b, function->getArg(0), nullptr);
    llvm::BasicBlock *run = block("run"), *stopped = block("stopped"), *done = block("done"),
                     *trapped = block("trapped");
    llvm::Value* arguments = fields.LoadArguments();
    llvm::SmallVector<llvm::Value*, 8> operands{function->getArg(0), arguments};
    llvm::Value* rest = function->getArg(1);
    for (unsigned d = 0; d < 3; ++d) {
      llvm::Value* one = b.getInt64(1);
      auto field = [&](size_t offset) {
        llvm::Value* value = fields.LoadInvariant(b.getInt64Ty(), offset + 8 * d);
        return b.CreateBinaryIntrinsic(llvm::Intrinsic::umax, value, one);  // Prevents a division by 0.
      };
      llvm::Value* group = field(offsetof(CpuContext, group));
      llvm::Value* last = b.CreateUDiv(b.CreateSub(field(offsetof(CpuContext, extent)), one), group);
      llvm::Value* groups = b.CreateAdd(last, one);
      llvm::Value* first = b.CreateMul(d == 2 ? rest : b.CreateURem(rest, groups), group);
      rest = b.CreateUDiv(rest, groups);
      operands.push_back(first);
      // Instance of the driver's traps; loops over gangs store a more precise one.
      fields.Store(first, offsetof(CpuContext, trap_instance) + 8 * d);
    }
    llvm::MDNode* unlikely = llvm::MDBuilder(m_.context()).createUnlikelyBranchWeights();
    b.CreateCondBr(fields.IsStopped(), stopped, run, unlikely);
    b.SetInsertPoint(run);
    for (llvm::Value* param : LoadParams(m_, b, fields)) {
      operands.push_back(param);
    }
    llvm::CallInst* status = b.CreateCall(m_.functions[driver_.index], operands);
    status->setCallingConv(llvm::CallingConv::Fast);
    b.CreateCondBr(b.CreateICmpNE(status, b.getInt32(0)), trapped, done, unlikely);
    b.SetInsertPoint(stopped);
    b.CreateCall(m_.Helper("hpvm.record"),
                 {function->getArg(0), b.getInt32(static_cast<uint32_t>(TrapCode::kStopped)),
                  b.getInt32(m_.cut_from.index), b.getInt32(0), b.getInt64(0), b.getInt64(0)});
    b.CreateBr(trapped);
    b.SetInsertPoint(trapped);
    b.CreateRet(b.getInt32(CpuOutcome::kCpuTrapped));
    b.SetInsertPoint(done);
    b.CreateRet(b.getInt32(CpuOutcome::kCpuDone));
  }
  llvm::Function* Keep(llvm::Function* function, const std::string& name) {
    function->setName(entry_.name + "." + name);
    code_.functions.push_back(function->getName().str());
    return function;
  }

  ModuleEmitter& m_;
  pass::GroupSplit& split_;
  const GroupEntry& entry_;
  KernelReport* const report_;
  const ir::FunctionId driver_;
  GroupCode code_;
};

}  // namespace

StatusOr<GroupCode> EmitGroupEntry(ModuleEmitter& m, const GroupEntry& entry, KernelReport* report) {
  HPVMD_ASSIGN_OR_RETURN(pass::GroupSplit split, pass::SplitBarriers(m.source, report));
  DerivedModule derived(m, split);
  return GroupEmitter(derived.get(), split, entry, report).Emit();
}

}  // namespace hpvm::cpu
