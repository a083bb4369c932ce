// SPDX-License-Identifier: Apache-2.0
// Translates kernel IR to LLVM IR, before any optimisation. Internal to this folder.
//
// Every IR function f(p...) -> (r...) becomes an internal function
//   {i32 status, r...} f(ptr context, ptr arguments, i64 x, i64 y, i64 z, p...)      (i32 alone when there is no r)
// whose status is not 0 when the instance ended early; callers test it and return, so a trap needs no unwinding. The
// trap record is written where the trap happens, except the instance's id, which the loop over instances writes
// (emit_entry.cc).
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

// Name of the entry over instances; entries of variants have other names (variants.h).
inline constexpr char kEntryName[] = "hpvm_entry";
// Indices of a function's first parameters: context, arguments, the instance's id, then the IR's.
inline constexpr unsigned kFirstId = 2;
inline constexpr unsigned kFirstParam = 5;
// A function that calls on another's behalf returns kTrapStatus + c, so that its caller, which knows the source
// position, traps with code c.
inline constexpr uint32_t kTrapStatus = 2;
// Returned by an instance that is to be run again; it has had no effect yet.
inline constexpr uint32_t kRepeatStatus = 0xffffffff;

// The machine and options for which code is emitted.
struct Machine {
  enum class Kind : uint8_t { kX86V2, kX86V3, kX86V4, kAarch64 };
  Kind kind = Kind::kX86V2;
  bool fast_math = false;      // CpuOptions::fast_math.
  bool audits_proofs = false;  // CpuOptions::audits_proofs.
};

// State that all functions of one module share.
struct ModuleEmitter {
  const ir::Module& source;
  const Machine machine;
  std::unique_ptr<llvm::Module> module;    // Starts as the helpers (helpers.ll).
  std::vector<llvm::Function*> functions;  // Indexed by FunctionId; null for unreachable functions.
  // Parallel to reference_types; null until first used. host_callers call functions of other modules.
  std::vector<llvm::Function*> reference_callers, host_callers;
  std::map<size_t, llvm::Function*> printers;  // Keyed by operand count.
  std::vector<llvm::Constant*> segments;       // Parallel to passive_segments; null until first used.
  bool has_grow = false;                       // Else memory_bytes never changes.
  bool writes_state = false;                   // Else only stores to globals set state_written.
  std::set<uint64_t> written_globals;          // Indices.
  std::vector<bool> is_inside_stack;           // Indexed by OpId of the entry.
  // True: stores to globals set state_written; false: the entry compares the few globals with their initial values.
  bool marks_globals = false;
  // For a kernel that was cut at its barriers (group.h): the bytes that an instance keeps, and the function from which
  // those from `cut_functions` on were cut.
  uint32_t group_value_bytes = 0;
  ir::FunctionId cut_from;
  size_t cut_functions = 0;
  // Two disjoint alias classes: memory that kernels access, and the context.
  llvm::MDNode* kernel_tag = nullptr;
  llvm::MDNode* context_tag = nullptr;

  ModuleEmitter(const ir::Module& m, const Machine& on)
      : source(m), machine(on), is_inside_stack(pass::FindInsideStack(m)) {}
  // Exchanges the code emitted so far with another emitter: an emitter for another form of the same kernel adds to the
  // code, and returns it by a second exchange.
  void ExchangeCode(ModuleEmitter& other);
  llvm::LLVMContext& context() const { return module->getContext(); }
  // Returns the kernel's function in which `function` was written, for trap records.
  uint32_t WrittenIn(uint32_t function) const {
    return cut_from.valid() && function >= cut_functions ? cut_from.index : function;
  }
  llvm::Type* TypeOf(ir::Type type) const;
  llvm::Type* ResultOf(const ir::FunctionType& type) const;
  llvm::Function* Helper(const char* name) const;
  llvm::Function* Declare(const ir::FunctionType& type, const std::string& name);
  // Sets the attributes of every function whose first parameter is the context.
  void SetAttributes(llvm::Function* function) const;
  // Returns the fast-math flags for operations written in that function.
  llvm::FastMathFlags FastMathOf(uint32_t function) const;
  // Returns the stack pointer's value, an i64.
  llvm::Value* StackPointer(llvm::IRBuilder<>& b) const;
  // Returns true if an access at a flat address (an i64 or a vector of i64) touches the instance's stack, which only
  // Space::kStack reaches. Requires that the module has a frame.
  llvm::Value* IsOnStack(llvm::IRBuilder<>& b, const ir::Op& op, llvm::Value* address) const;
  // Returns the function that calls the target of a reference of that type, made on first use (emit_call.cc).
  llvm::Function* ReferenceCaller(uint32_t type_index);
  // Returns the function that appends a record with that many operands, made on first use (emit_call.cc).
  llvm::Function* Printer(size_t operands);
  // Returns the bytes of a passive segment (emit_memory.cc).
  llvm::Constant* Segment(uint32_t index);

 private:
  llvm::Function* HostCaller(uint32_t type_index);
};

// Parses the helpers (helpers.ll) into a new module.
StatusOr<std::unique_ptr<llvm::Module>> ParseHelpers(llvm::LLVMContext& context);

// Returns the value's bits as an i64 (emit_call.cc).
llvm::Value* Bits(llvm::IRBuilder<>& b, llvm::Value* value);

// Emits the common part of every module: helpers, every reachable function, and the entry over instances
// (emit_module.cc).
Status EmitFunctions(ModuleEmitter& m, llvm::LLVMContext& context);
// Removes unused functions, gives every function the processor's attributes and verifies the module (emit_module.cc).
Status FinishModule(ModuleEmitter& m);

// Emits the loop over instances, each a call of `function`, and of `again` if that returns kRepeatStatus
// (emit_entry.cc); `again` is null if it never does.
void EmitEntry(ModuleEmitter& m, const std::string& name, llvm::Function* function, llvm::Function* again = nullptr);

// Emits the atomic operation `op` on the bytes at a host address; `values` are its operands after the address. Returns
// the old value, or null for a store (atomic.cc).
llvm::Value* EmitAtomicAt(ModuleEmitter& m, llvm::IRBuilder<>& b, const ir::Op& op, llvm::Value* pointer,
                          llvm::ArrayRef<llvm::Value*> values);

// ContextFields loads and stores fields of CpuContext.
class ContextFields {
 public:
  // `arguments` is the context's field of that name, or null before LoadArguments.
  ContextFields(ModuleEmitter& m, llvm::IRBuilder<>& b, llvm::Value* context, llvm::Value* arguments)
      : m_(m), b_(b), context_(context), arguments_(arguments) {}
  // Loads the arguments once, before the loop over instances: a hoisted load would lose the metadata that makes loads
  // through it safe.
  llvm::Value* LoadArguments();
  llvm::Value* Address(uint64_t offset);
  llvm::Value* Load(llvm::Type* type, uint64_t offset);
  // For fields that never change during a launch, so that their loads may be hoisted.
  llvm::Value* LoadInvariant(llvm::Type* type, uint64_t offset);
  void Store(llvm::Value* value, uint64_t offset);
  llvm::Value* LoadArgument(llvm::Type* type, uint32_t param, uint64_t offset);  // Field of CpuArgument; invariant.
  // Returns an i1: true if the stop word is set.
  llvm::Value* IsStopped();
  // Returns the size in bytes of each buffer whose parameter index is in `param` (an i32 or a vector); 0 for others.
  llvm::Value* BufferSize(llvm::Value* param);
  // Returns an i1: true if too little of the stack is left for a function with calls; null for a leaf function, whose
  // frame fits into the reserve below the limit.
  llvm::Value* LacksStack(const ir::Function& function);

 private:
  ModuleEmitter& m_;
  llvm::IRBuilder<>& b_;
  llvm::Value* context_;
  llvm::Value* arguments_;
};

// In emit_entry.cc: declares an external function of type CpuEntry, and loads the kernel's parameters of the launch.
llvm::Function* DeclareEntry(ModuleEmitter& m, const std::string& name);
llvm::SmallVector<llvm::Value*, 8> LoadParams(ModuleEmitter& m, llvm::IRBuilder<>& b, ContextFields& fields);

// FunctionEmitter emits one function. Its members are spread over emit_*.cc by family of opcodes.
class FunctionEmitter {
 public:
  // `into`: a function of the same type to emit into, instead of the module's own. `proven`: by OpId, accesses to
  // parameters that are known to be inside, in buffers of at most 2^31 bytes; null for none. `repeatable`: by OpId,
  // loads that may make the function return kRepeatStatus when they miss their buffer, after which another function
  // runs the instance again; null for none.
  FunctionEmitter(ModuleEmitter& m, uint32_t index, llvm::Function* into = nullptr,
                  const std::vector<bool>* proven = nullptr, const std::vector<bool>* repeatable = nullptr);
  Status Emit();

 private:
  using Values = std::vector<llvm::Value*>;
  // An open block, loop or if.
  struct Open {
    llvm::BasicBlock* exit = nullptr;
    llvm::BasicBlock* header = nullptr;  // For loops.
    std::vector<llvm::PHINode*> header_phis;
    std::vector<std::pair<llvm::BasicBlock*, Values>> leaves;
  };

  // In emit_control.cc.
  Status EmitRegion(ir::RegionId region);
  Status EmitOp(const ir::Op& op, ir::OpId id);
  Status EmitControl(const ir::Op& op, ir::OpId id);
  Status EmitBlock(const ir::Op& op, ir::OpId id);
  Status EmitLoop(const ir::Op& op, ir::OpId id);
  Status EmitIf(const ir::Op& op, ir::OpId id);
  void EmitBrTable(const ir::Op& op);
  void Jump(const ir::Target& target, const Values& values, uint32_t source);
  void Close(const ir::Op& op, Open& open);
  void EmitReturn(const ir::Op& op);
  void EmitPrologue();
  void EmitEpilogues();

  // In emit_memory.cc.
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
  // Runs `access` on the host address. For flat, param(k) and group it runs once on the path where the check against
  // the operation's own space passes, and `search` runs on the path that searches all of the instance's space; the
  // results are merged (null if there are none). `search` receives the flat address and ends in the current block.
  template <typename F, typename G>
  llvm::Value* Access(const ir::Op& op, bool is_store, F access, G search);
  void TrapIfSeparate(const ir::Op& op, bool is_store);
  llvm::Value* SearchPointer(const ir::Op& op, bool is_store, llvm::Value* address);
  struct Fast {
    llvm::Value* offset = nullptr;  // i64, relative to `data`; excludes `imm`.
    uint64_t imm = 0;
    llvm::Value* data = nullptr;
    llvm::Value* valid = nullptr;  // The access is inside if offset < valid.
  };
  template <typename F>
  llvm::Value* AccessInside(const ir::Op& op, bool is_store, const Fast& fast, F access);
  std::optional<Fast> FastPath(const ir::Op& op, bool is_store);
  llvm::Value* StackFrame();
  void RepeatIf(llvm::Value* condition);
  void CheckOrRepeat(ir::OpId id, const Fast& fast);  // Checks a load, possibly together with others.
  llvm::Value* FlatAddress(const ir::Op& op);
  void MarkDirty(llvm::Value* address, uint32_t width);
  llvm::Value* ParamValid(uint32_t param, uint64_t reach, bool is_store);
  llvm::Value* MemoryValid(uint64_t reach);
  llvm::Value* Wide(llvm::Value* value);

  // In emit_call.cc.
  void EmitCall(const ir::Op& op);
  void EmitPrint(const ir::Op& op);
  // Continues only if the status is 0; otherwise this function returns 1, because its callee has recorded the trap.
  void ReturnIfFailed(llvm::Value* status);
  void EmitQuery(const ir::Op& op);
  llvm::Value* EmitQueryOf(const ir::Op& op, unsigned dimension);
  void EmitSync(const ir::Op& op);

  // Emit traps. `address` and `bytes` may be null.
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
  // Returns the loaded value, frozen so that all uses see the same value if a bound depends on it
  // (pass/index_loads.h).
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
  llvm::IRBuilder<> b_;        // The current position.
  llvm::IRBuilder<> entry_;    // The function's first block, for values loaded once per call.
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
  const std::vector<bool> index_loads_ = analysis::FindIndexLoads(m_.source, ir::FunctionId(index_));  // Per ValueId.
  std::vector<Open> open_;  // Indexed by OpId.
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
  uint32_t written_in_ = m_.WrittenIn(index_);  // The function in which the current operation was written.
  // Values that the first block has loaded.
  std::map<std::pair<uint32_t, uint64_t>, llvm::Value*> param_fields_;
  std::map<std::pair<uint32_t, uint64_t>, llvm::Value*> param_valid_;
  std::map<uint64_t, llvm::Value*> memory_valid_;
  llvm::Value* memory_ = nullptr;
  llvm::Value* stack_frame_ = nullptr;
};

}  // namespace hpvm::cpu

#endif  // HPVMD_COMPILER_BACK_LLVM_EMIT_EMITTER_H_
