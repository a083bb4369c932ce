// SPDX-License-Identifier: Apache-2.0
// Kernel IR → LLVM IR, before any optimisation. Internal to this folder.
//
// Every IR function f(p...) -> (r...) becomes an internal function
//   {i32 status, r...} f(ptr context, ptr arguments, i64 x, i64 y, i64 z, p...)      (i32 alone when there is no r)
// whose status is not 0 when the instance ended early; callers test it and return, so a trap needs no unwinding. The
// trap record is written where the trap happens, the instance's id by the loop over instances (emit_entry.cc).
#ifndef HPVMD_COMPILER_BACK_LLVM_EMIT_EMITTER_H_
#define HPVMD_COMPILER_BACK_LLVM_EMIT_EMITTER_H_

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/MDBuilder.h"
#include "llvm/IR/Module.h"

#include "base/status.h"
#include "compiler/analysis/index_loads.h"
#include "compiler/api/report.h"
#include "compiler/back/llvm/emit/arith.h"
#include "compiler/ir/cpu_abi.h"
#include "compiler/ir/ir.h"
#include "compiler/pass/memory/promote_stack.h"
#include "compiler/pass/memory/shared_checks.h"

namespace hpvm::cpu {

using ir::CpuArgument;
using ir::CpuContext;
using ir::CpuOutcome;

// Of the entry over instances; those of variants follow (variants.h).
inline constexpr char kEntryName[] = "hpvm_entry";
// Where a function's parameters begin: context, arguments, the instance's id, then the IR's.
inline constexpr unsigned kFirstId = 2;
inline constexpr unsigned kFirstParam = 5;
// Functions that call on another's behalf return kTrapStatus + c to have the caller, which knows the place, trap with
// code c.
inline constexpr uint32_t kTrapStatus = 2;
// An instance returns it that is to be run again; nothing has had an effect yet.
inline constexpr uint32_t kRepeatStatus = 0xffffffff;

// What code is made for.
struct Machine {
  enum class Kind : uint8_t { kX86V2, kX86V3, kX86V4, kAarch64 };
  Kind kind = Kind::kX86V2;
  bool fast_math = false;      // CpuOptions::fast_math.
  bool audits_proofs = false;  // CpuOptions::audits_proofs.
};

// What all functions of one module share.
struct ModuleEmitter {
  const ir::Module& source;
  const Machine machine;
  std::unique_ptr<llvm::Module> module;    // Starts as the helpers (helpers.ll).
  std::vector<llvm::Function*> functions;  // By FunctionId; null for those the entry never reaches.
  // By index in reference_types; null until asked for. The second calls functions of other modules.
  std::vector<llvm::Function*> reference_callers, host_callers;
  std::map<size_t, llvm::Function*> printers;  // By count of operands.
  std::vector<llvm::Constant*> segments;       // By index in passive_segments; null until asked for.
  bool has_grow = false;                       // Else memory_bytes never changes.
  bool writes_state = false;                   // Else state_written stays 0, but for globals.
  std::set<uint64_t> written_globals;          // Indices.
  std::vector<bool> is_inside_stack;           // By OpId of the entry.
  // Whether stores to globals set state_written; else the entry compares the few globals with what they were.
  bool marks_globals = false;
  // Of a kernel that was cut at its barriers (group.h): what an instance keeps, and the function that those behind the
  // first `cut_functions` were made of.
  uint32_t group_value_bytes = 0;
  ir::FunctionId cut_from;
  size_t cut_functions = 0;
  // Two disjoint alias classes: what kernels read and write, and the context.
  llvm::MDNode* kernel_tag = nullptr;
  llvm::MDNode* context_tag = nullptr;

  ModuleEmitter(const ir::Module& m, const Machine& on)
      : source(m), machine(on), is_inside_stack(pass::FindInsideStack(m)) {}
  // The two emitters exchange the code that they have so far: one for another form of the same kernel adds to it, and
  // gives it back by another exchange.
  void ExchangeCode(ModuleEmitter& other);
  llvm::LLVMContext& context() const { return module->getContext(); }
  // In which of the kernel's functions that one was written, for traps.
  uint32_t WrittenIn(uint32_t function) const {
    return cut_from.valid() && function >= cut_functions ? cut_from.index : function;
  }
  llvm::Type* TypeOf(ir::Type type) const;
  llvm::Type* ResultOf(const ir::FunctionType& type) const;
  llvm::Function* Helper(const char* name) const;
  llvm::Function* Declare(const ir::FunctionType& type, const std::string& name);
  // What holds for every function whose first parameter is the context.
  void SetAttributes(llvm::Function* function) const;
  // What arithmetic may do that is written in that function.
  llvm::FastMathFlags FastMathOf(uint32_t function) const;
  // The stack pointer's value, an i64.
  llvm::Value* StackPointer(llvm::IRBuilder<>& b) const;
  // True if an access at a flat address, an i64 or a vector of them, touches what the instance has on its stack, where
  // nothing but Space::kStack reaches. The module has a frame.
  llvm::Value* IsOnStack(llvm::IRBuilder<>& b, const ir::Op& op, llvm::Value* address) const;
  // The function that calls what a reference of that type names, made on first use (emit_call.cc).
  llvm::Function* ReferenceCaller(uint32_t type_index);
  // The function that appends a record with so many operands, made on first use (emit_call.cc).
  llvm::Function* Printer(size_t operands);
  // The bytes of a passive segment (emit_memory.cc).
  llvm::Constant* Segment(uint32_t index);

 private:
  llvm::Function* HostCaller(uint32_t type_index);
};

// Parses the helpers (helpers.ll) into a fresh module.
StatusOr<std::unique_ptr<llvm::Module>> ParseHelpers(llvm::LLVMContext& context);

// The value's bits, as an i64 (emit_call.cc).
llvm::Value* Bits(llvm::IRBuilder<>& b, llvm::Value* value);

// What every module starts with: helpers, every reachable function, and the entry over instances (emit_module.cc).
Status EmitFunctions(ModuleEmitter& m, llvm::LLVMContext& context);
// Drops what nothing uses, gives every function the processor's attributes and checks the module (emit_module.cc).
Status FinishModule(ModuleEmitter& m);

// The loop over instances, each a call of `function`, and of `again` if that gives kRepeatStatus (emit_entry.cc); null:
// it never does.
void EmitEntry(ModuleEmitter& m, const std::string& name, llvm::Function* function, llvm::Function* again = nullptr);

// The atomic operation `op` on the bytes at a host address: `values` are its operands behind the address. Gives the old
// value, or null for a store (atomic.cc).
llvm::Value* EmitAtomicAt(ModuleEmitter& m, llvm::IRBuilder<>& b, const ir::Op& op, llvm::Value* pointer,
                          llvm::ArrayRef<llvm::Value*> values);

// Loads and stores of CpuContext's fields.
class ContextFields {
 public:
  // `arguments` is the context's field of that name, or null until LoadArguments.
  ContextFields(ModuleEmitter& m, llvm::IRBuilder<>& b, llvm::Value* context, llvm::Value* arguments)
      : m_(m), b_(b), context_(context), arguments_(arguments) {}
  // Loaded once, before the loop over instances: hoisting a load would strip it of what tells that loads through it are
  // safe.
  llvm::Value* LoadArguments();
  llvm::Value* Address(uint64_t offset);
  llvm::Value* Load(llvm::Type* type, uint64_t offset);
  // Fields that never change during a launch, so that loads of them may be hoisted.
  llvm::Value* LoadInvariant(llvm::Type* type, uint64_t offset);
  void Store(llvm::Value* value, uint64_t offset);
  llvm::Value* LoadArgument(llvm::Type* type, uint32_t param, uint64_t offset);  // Of CpuArgument; invariant.
  // Whether the stop word is set, as an i1.
  llvm::Value* IsStopped();
  // The bytes of the buffer whose parameter's number is an i32 or those of a vector; 0 where it is no buffer's.
  llvm::Value* BufferSize(llvm::Value* param);
  // Whether too little of the stack is left for a function with calls, as an i1; null for a leaf, whose frame fits into
  // the reserve below the limit.
  llvm::Value* LacksStack(const ir::Function& function);

 private:
  ModuleEmitter& m_;
  llvm::IRBuilder<>& b_;
  llvm::Value* context_;
  llvm::Value* arguments_;
};

// An external function of type CpuEntry (emit_entry.cc), and the kernel's parameters as the launch has them.
llvm::Function* DeclareEntry(ModuleEmitter& m, const std::string& name);
llvm::SmallVector<llvm::Value*, 8> LoadParams(ModuleEmitter& m, llvm::IRBuilder<>& b, ContextFields& fields);

// One function. The members are spread over emit_*.cc by family of opcodes.
class FunctionEmitter {
 public:
  // `into`: another function of that type than the module's own. `proven`: by OpId, accesses to parameters that are
  // known to be inside, in buffers of at most 2^31 bytes; null for none. `repeatable`: by OpId, where the function may
  // return kRepeatStatus when a load misses its buffer, and the instance is run again by another function; null for
  // none.
  FunctionEmitter(ModuleEmitter& m, uint32_t index, llvm::Function* into = nullptr,
                  const std::vector<bool>* proven = nullptr, const std::vector<bool>* repeatable = nullptr);
  Status Emit();

 private:
  using Values = std::vector<llvm::Value*>;
  // An open block, loop or if.
  struct Open {
    llvm::BasicBlock* exit = nullptr;
    llvm::BasicBlock* header = nullptr;  // Loops.
    std::vector<llvm::PHINode*> header_phis;
    std::vector<std::pair<llvm::BasicBlock*, Values>> leaves;
  };

  // emit_control.cc
  Status EmitRegion(ir::RegionId region);
  Status EmitOp(const ir::Op& op, ir::OpId id);
  Status EmitControl(const ir::Op& op, ir::OpId id);
  Status EmitBlock(const ir::Op& op, ir::OpId id);
  Status EmitLoop(const ir::Op& op, ir::OpId id);
  Status EmitIf(const ir::Op& op, ir::OpId id);
  void EmitLeaveTable(const ir::Op& op);
  void Jump(const ir::Target& target, const Values& values, uint32_t source);
  void Close(const ir::Op& op, Open& open);
  void EmitReturn(const ir::Op& op);
  void EmitPrologue();
  void EmitEpilogues();

  // emit_memory.cc
  Status EmitMemory(const ir::Op& op);
  void EmitLoad(const ir::Op& op);
  void EmitStore(const ir::Op& op);
  void EmitMemoryGrow(const ir::Op& op);
  void EmitLoad128(const ir::Op& op);
  void EmitStore128(const ir::Op& op);
  template <typename F>
  void StoreValue(const ir::Op& op, llvm::Value* value, F search);
  void EmitBulk(const ir::Op& op);
  void MarkStateWritten();
  Status EmitAtomic(const ir::Op& op);
  void EmitGlobal(const ir::Op& op);
  // Runs `access` on the host address. For flat, param(k) and group that is once on the path where the check against
  // the operation's own space passes and, by `search`, once on the path that searches all of the instance's space; the
  // results are merged (null if there are none). `search` gets the flat address and ends in the current block.
  template <typename F, typename G>
  llvm::Value* Access(const ir::Op& op, bool is_store, F access, G search);
  void TrapIfSeparate(const ir::Op& op, bool is_store);
  llvm::Value* SearchPointer(const ir::Op& op, bool is_store, llvm::Value* address);
  struct Fast {
    llvm::Value* offset = nullptr;  // i64, from `data`; `imm` not added.
    uint64_t imm = 0;
    llvm::Value* data = nullptr;
    llvm::Value* valid = nullptr;  // The access is inside if offset < valid.
  };
  template <typename F>
  llvm::Value* AccessInside(const ir::Op& op, bool is_store, const Fast& fast, F access);
  std::optional<Fast> FastPath(const ir::Op& op, bool is_store);
  llvm::Value* StackFrame();
  void RepeatIf(llvm::Value* condition);
  void CheckOrRepeat(ir::OpId id, const Fast& fast);  // A load's place; may be looked at with others'.
  llvm::Value* FlatAddress(const ir::Op& op);
  void MarkDirty(llvm::Value* address, uint32_t width);
  llvm::Value* ParamValid(uint32_t param, uint64_t reach, bool is_store);
  llvm::Value* MemoryValid(uint64_t reach);
  llvm::Value* Wide(llvm::Value* value);

  // emit_call.cc
  void EmitCall(const ir::Op& op);
  void EmitPrint(const ir::Op& op);
  // Goes on only if the status is 0; else this function returns 1, as its callee has recorded the trap.
  void ReturnIfFailed(llvm::Value* status);
  void EmitQuery(const ir::Op& op);
  llvm::Value* EmitQueryOf(const ir::Op& op, unsigned dimension);
  void EmitSync(const ir::Op& op);

  // Traps. `address` and `bytes` may be null.
  void TrapIf(llvm::Value* condition, ir::TrapCode code, uint32_t source, llvm::Value* address = nullptr,
              llvm::Value* bytes = nullptr);
  void TrapIf(llvm::Value* condition, llvm::Value* code, uint32_t source, llvm::Value* address, llvm::Value* bytes);
  void NoteTrap(llvm::Value* code, uint32_t source, llvm::Value* address, llvm::Value* bytes);
  void TrapNow(llvm::Value* code, uint32_t source, llvm::Value* address, llvm::Value* bytes);

  llvm::BasicBlock* NewBlock(const char* name);
  llvm::MDNode* Likely();
  llvm::Value* Operand(const ir::Op& op, uint32_t index) const;
  Values Operands(const ir::Op& op, uint32_t first = 0) const;
  void SetResult(const ir::Op& op, llvm::Value* value);
  // What was loaded, such that all uses see one value if any bound rests on it (pass/index_loads.h).
  llvm::Value* Once(ir::ValueId result, llvm::Value* value) {
    return index_loads_[result.index] ? b_.CreateFreeze(value) : value;
  }
  llvm::Value* I32(uint32_t value) { return b_.getInt32(value); }
  llvm::Value* I64(uint64_t value) { return b_.getInt64(value); }
  llvm::Type* AddressType() { return m_.TypeOf(m_.source.address_type()); }
  llvm::Instruction* Tag(llvm::Instruction* access);

  ModuleEmitter& m_;
  const uint32_t index_;
  const ir::Function& f_;
  llvm::Function* function_;
  const std::vector<bool>* proven_;
  const std::vector<bool>* repeatable_;
  pass::SharedChecks shared_;  // The checks of repeatable loads that are not proven.
  llvm::IRBuilder<> b_;        // The current place.
  llvm::IRBuilder<> entry_;    // The function's first block, for what is loaded once a call.
  class Arith final : public ArithEmitter {
   public:
    explicit Arith(FunctionEmitter& function) : ArithEmitter(function.b_), function_(function) {}

   private:
    void TrapIf(llvm::Value* condition, llvm::Value* code, const ir::Op& op) override {
      function_.TrapIf(condition, code, op.source, nullptr, nullptr);
    }
    FunctionEmitter& function_;
  };
  Arith arith_{*this};
  ContextFields fields_;
  ContextFields entry_fields_;
  llvm::Value* context_;
  llvm::Value* arguments_;
  llvm::Value* id_[3];
  Values values_;
  const std::vector<bool> index_loads_ = analysis::FindIndexLoads(m_.source, ir::FunctionId(index_));  // By ValueId.
  std::vector<Open> open_;                                                                             // By operation.
  llvm::BasicBlock* body_block_ = nullptr;
  llvm::BasicBlock* failed_block_ = nullptr;  // Returns a callee's status.
  llvm::BasicBlock* repeat_block_ = nullptr;  // Returns kRepeatStatus.
  struct TrapEdge {
    llvm::BasicBlock* from;
    uint32_t function;
    llvm::Value* code;
    uint32_t source;
    llvm::Value* address;
    llvm::Value* bytes;
  };
  llvm::BasicBlock* trap_block_ = nullptr;
  std::vector<TrapEdge> trap_edges_;
  uint32_t written_in_ = m_.WrittenIn(index_);  // The function in which the operation at hand was written.
  // What the first block has loaded.
  std::map<std::pair<uint32_t, uint64_t>, llvm::Value*> param_fields_;
  std::map<std::pair<uint32_t, uint64_t>, llvm::Value*> param_valid_;
  std::map<uint64_t, llvm::Value*> memory_valid_;
  llvm::Value* memory_ = nullptr;
  llvm::Value* stack_frame_ = nullptr;
};

}  // namespace hpvm::cpu

#endif  // HPVMD_COMPILER_BACK_LLVM_EMIT_EMITTER_H_
