// SPDX-License-Identifier: Apache-2.0
// Writes one kernel: one variant of a program.
//
// Values become locals v0, v1 ..., constants and arguments of blocks stand where they are used. Control stays
// structured; what ends more than one construct at once is a goto forward. What a launch passes (gpu_code.h) is an
// argument only if the body asks for it, so the body is written first.
#ifndef HPVMD_COMPILER_BACK_OPENCL_KERNEL_WRITER_H_
#define HPVMD_COMPILER_BACK_OPENCL_KERNEL_WRITER_H_

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/api/gpu_code.h"
#include "compiler/api/gpu_target.h"
#include "compiler/back/gpu/gpu_plan.h"
#include "compiler/back/opencl/cat.h"
#include "compiler/back/opencl/helpers.h"
#include "compiler/ir/ir.h"
#include "compiler/pass/index_loads.h"
#include "compiler/pass/tile/coarsen.h"

namespace hpvm::opencl {

struct KernelOptions {
  std::string name;                       // The kernel's, in the program.
  std::string suffix;                     // Of helpers that belong to this plan alone.
  std::array<uint32_t, 3> tile{1, 1, 1};  // Instances of a work item.
  bool is_unchecked = false;              // Accesses that the launch has proven have no check.
  bool audits_proofs = false;             // GpuOptions::audits_proofs.
  bool zeroes_group = true;               // False: all of group memory is written before it is read.
  bool is_aligned = false;                // Buffers begin at multiples of 16 bytes.
  bool fast_math = false;
  const CoarseModule* coarse = nullptr;  // What the module is a coarse form of; borrowed.
};

class KernelWriter {
 public:
  // All are borrowed.
  KernelWriter(const ir::Module& module, const gpu::GpuPlan& plan, const GpuTarget& target, Helpers& helpers,
               KernelOptions options);

  // The kernel's text; `variant` receives its arguments and whether it can trap.
  std::string Run(GpuVariant* variant);

 private:
  using ValueId = ir::ValueId;
  using Op = ir::Op;
  using OpId = ir::OpId;

  // Where bytes lie that an access has found.
  struct Bytes {
    std::string_view space;  // "__global" ...
    std::string pointer;     // Of type uchar*.
    uint32_t alignment = 0;  // log2.
  };
  // A construct whose region is open.
  struct Open {
    OpId op;
    ir::RegionId region;
    size_t next = 0;
    bool is_flat = false;  // Written with labels alone, as compilers limit how deep brackets nest.
  };

  // Text.
  template <typename... Pieces>
  void Line(const Pieces&... pieces) {
    out_.append(2 * indent_, ' ');
    Append(out_, pieces...);
    out_ += '\n';
  }
  void Label(const std::string& name);
  // Defines a result.
  void Define(ValueId value, const std::string& expression);
  void Declare(ValueId value);
  // A variable of the writer's own, "const " or "" in front of it.
  void Local(std::string_view qualifier, std::string_view type, const std::string& name, const std::string& expression);
  const std::string& Name(ValueId value) const { return names_[value.index]; }
  const std::string& Operand(const Op& op, uint32_t i) const { return names_[function_.operands_of(op)[i].index]; }
  ir::Type TypeOf(ValueId value) const { return function_.type_of(value); }
  ir::Type OperandType(const Op& op, uint32_t i) const { return TypeOf(function_.operands_of(op)[i]); }
  std::string Fresh(std::string_view prefix);
  bool ConstantOf(ValueId value, uint64_t* bits) const;

  // What a launch passes; each notes that it is used.
  std::string Fact(GpuArgument::Kind kind, uint32_t index = 0);
  std::string Buffer(uint32_t param) { return Fact(GpuArgument::Kind::kBuffer, param); }
  std::string BufferBytes(uint32_t param) { return Fact(GpuArgument::Kind::kBufferBytes, param); }
  std::string BufferBase(uint32_t param);
  std::string InstanceId(uint32_t dimension);
  // A work group is then the node's group.
  bool RunsByGroups() const { return module_.uses_barrier || module_.uses_group_memory; }

  // emit_control.cc
  void WriteBody();
  void Begin(OpId id);
  bool IsEmpty(OpId id, ir::RegionId side) const;
  void End(const Open& open);
  void WriteTerminator(OpId id, bool is_last);
  void WriteJump(OpId from, const ir::Target& target, std::span<const ValueId> values, bool falls_through);
  void WriteLeaveTable(OpId id);
  void MeetGroup(OpId id);
  void WriteBarrier();
  // Control ends here if `condition` holds; empty: always.
  void Trap(OpId id, const std::string& condition, ir::TrapCode code, const std::string& address = "0u",
            uint32_t bytes = 0);
  // `code`: the record's, an expression.
  std::string TrappingId(OpId id, uint32_t dimension);
  void TrapWith(OpId id, const std::string& condition, const std::string& code, const std::string& address);

  // emit_arith.cc
  void WriteOp(OpId id);
  std::string IntUnary(const Op& op);
  void WriteIntBinary(OpId id);
  void WriteDivision(OpId id);
  std::string IntCompare(const Op& op);
  std::string FloatUnary(const Op& op);
  std::string Rounded(std::string_view function, const std::string& a) const;
  std::string Narrowed(const std::string& wide);
  std::string FloatBinary(const Op& op);
  void WriteConvert(OpId id);
  void WriteTrunc(OpId id);
  void WriteFloatBinary(OpId id);
  void WriteQuery(const Op& op);
  std::string Contracted(OpId id);
  bool MayContract(const Op& op) const;

  // emit_memory.cc
  void WriteAccess(OpId id);
  void WriteFlatAccess(OpId id);
  bool Locate(OpId id, Bytes* bytes);
  bool LocateParam(OpId id, Bytes* bytes);
  std::string ParamPointer(const Op& op, std::string_view space);
  bool LocateGroup(OpId id, Bytes* bytes);
  bool LocateOwn(OpId id, Bytes* bytes);
  void WriteOwnAccess(OpId id);
  void WriteLoad(const Op& op, const Bytes& bytes);
  void WriteStore(const Op& op, const Bytes& bytes);
  std::string LoadWord(const Bytes& bytes, uint32_t width, uint64_t at);
  std::string StoreWord(const Bytes& bytes, uint32_t width, uint64_t at, const std::string& value);
  void DefineLoaded(const Op& op, const std::string& loaded);
  std::string Once(ValueId result, uint32_t width, const std::string& word);
  std::string WordOf(const Op& op, uint32_t operand);
  // The address (or offset) with the immediate, as a ulong. Traps where it overflows.
  // An unchecked variant leaves the check of what is proven out, unless it audits.
  bool IsProven(OpId id) const { return options_.is_unchecked && plan_.is_proven[id.index]; }
  bool OmitsCheck(OpId id) const { return IsProven(id) && !options_.audits_proofs; }
  // What an access that misses its buffer or group memory traps with.
  ir::TrapCode MissCode(OpId id) const {
    return IsProven(id) ? ir::TrapCode::kWrongProof : ir::TrapCode::kOutOfBounds;
  }
  std::string Effective(OpId id);
  uint32_t AlignmentOf(const Op& op) const;
  void WriteBulk(OpId id);
  void WriteLocalAlloc(OpId id);
  std::string PartPointer(bool is_state, int32_t part, const gpu::OwnMemory& memory);

  // emit_ranges.cc
  std::string Ranges();  // "&ranges", with what it needs.
  void NeedRanges();
  std::string RangesDefinition() const;
  std::string RangesValue();

  // emit_steps.cc
  void PlanSteps();
  uint32_t BeginStep();  // What stands behind it is a step of its own; which.
  void WaitForStep(uint32_t step);
  void EndInstance();
  std::string StepsHead();
  std::string StepsEnd();

  // emit_atomic.cc
  void WriteAtomic(OpId id);
  std::string AtomicOn(const Op& op, const Bytes& bytes);
  void WriteOwnAtomic(OpId id);
  void WriteOwnUpdate(const Op& op, const std::string& at, const std::string& result);
  void WritePlainAtomic(const Op& op, const Bytes& bytes);
  std::string AtomicByLoop(const Op& op, const Bytes& bytes);
  std::string NextValue(const Op& op, std::string_view old, std::string_view a, std::string_view b, uint32_t width);
  void Fence();

  std::string Head(GpuVariant* variant);
  std::string Prologue();

  const ir::Module& module_;
  const ir::Function& function_;
  const gpu::GpuPlan& plan_;
  const GpuTarget& target_;
  Helpers& helpers_;
  const KernelOptions options_;

  std::string out_;
  uint32_t indent_ = 1;
  uint32_t fresh_ = 0;
  std::vector<std::string> names_;      // By ValueId.
  std::vector<const Op*> definitions_;  // By ValueId; null: a region's parameter.
  std::vector<uint32_t> uses_;          // By ValueId.
  const std::vector<bool> index_loads_ = FindIndexLoads(module_, module_.entry);  // By ValueId.
  std::vector<Open> open_;
  std::vector<uint32_t> label_;                         // By OpId: numbers of constructs' labels.
  std::vector<bool> end_used_, next_used_, meet_used_;  // By OpId.
  std::vector<OpId> routes_;                            // Where traps go; empty: they return.
  uint32_t labels_ = 0;

  std::set<std::pair<GpuArgument::Kind, uint32_t>> facts_;
  // In kernels whose group meets in loops, on processors: a return from a loop and what else leaves it share the block
  // in which clang ends the lives of the loop's variables, and PoCL 3.1 takes no such loop with a barrier in it. So all
  // variables live from the kernel's beginning.
  bool hoists_locals_ = false;
  std::map<std::string, std::vector<std::string>> locals_;  // By type.
  bool by_steps_ = false;                                   // As emit_steps.cc says.
  std::vector<bool> has_barrier_;           // By OpId, while by_steps_; constructs with one in them, too.
  std::map<uint32_t, uint32_t> loop_step_;  // Loops with barriers, by OpId: where they go around.
  uint32_t steps_ = 0;
  bool ends_early_ = false;
  std::set<uint32_t> globals_;                              // Mutable ones in use.
  std::set<std::pair<bool, int32_t>> parts_;                // Own memory in use: of the state, which.
  bool can_trap_ = false, needs_meeting_ = false, uses_ranges_ = false;
};

}  // namespace hpvm::opencl

#endif  // HPVMD_COMPILER_BACK_OPENCL_KERNEL_WRITER_H_
