// SPDX-License-Identifier: Apache-2.0
// One variant of a kernel: its inputs, its values, and its functions. Internal to this folder.
#ifndef HPVMD_COMPILER_BACK_VULKAN_VARIANT_H_
#define HPVMD_COMPILER_BACK_VULKAN_VARIANT_H_

#include <array>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "compiler/back/gpu/gpu_plan.h"
#include "compiler/back/vulkan/module_emitter.h"
#include "compiler/ir/loops_cut.h"
#include "compiler/pass/tile/coarsen.h"

namespace hpvm::vulkan {

struct VariantOptions {
  gpu::Trust trust = gpu::Trust::kNothing;
  bool audits_proofs = false;  // GpuOptions::audits_proofs.
  bool fast_math = false;
  bool needs_alignment = false;
  std::array<uint32_t, 3> tile{1, 1, 1};
  const pass::CoarseModule* coarse = nullptr;  // The coarse form that the module belongs to; borrowed.
};

using MakeValue = std::function<SpvId()>;

// Variant holds the inputs of a variant, the module's parts that its code uses, and the reason if it was refused.
class Variant {
 public:
  // Borrows all arguments except the options.
  Variant(ModuleEmitter& emitter, const ir::Module& ir_module, const gpu::GpuPlan& gpu_plan,
          const VariantOptions& variant_options);

  void Refuse(const std::string& reason);  // Only the first reason counts.
  const Status& status() const { return status_; }

  // Records a variable that the entry point must list in its interface.
  void Use(SpvId variable) { interface_.insert(variable); }
  const std::set<SpvId>& interface() const { return interface_; }
  SpvId BufferView(uint32_t param, View view);
  SpvId Argument(GpuArgument::Kind kind, uint32_t index, uint8_t bytes);  // Loaded at each use.
  SpvId Argument32(GpuArgument::Kind kind, uint32_t index) { return Argument(kind, index, 4); }
  SpvId BuiltInAt(spv::BuiltIn which, uint32_t d);
  SpvId ParamBase(uint32_t k);  // The low half of the actual address.

  SpvId K(ir::Type type, uint64_t bits);
  SpvId Truth(SpvId condition) { return c.Select(c.U32(), condition, c.K(1), c.K(0)); }
  SpvId WordsType() { return module.is_memory64 ? m.TypeOf(ir::Type::kI64) : c.U32(); }
  SpvId Narrow(SpvId address);  // The address as u32.

  uint32_t AlignmentOf(const ir::Op& op) const;
  bool IsProven(ir::OpId id) const { return plan.IsProven(id, options.trust) || f.op(id).is_inside; }
  bool OmitsCheck(ir::OpId id) const { return IsProven(id) && !options.audits_proofs; }
  // Returns the trap code of an access that misses its buffer or group memory.
  ir::TrapCode MissCode(ir::OpId id) const {
    return IsProven(id) ? ir::TrapCode::kWrongProof : ir::TrapCode::kOutOfBounds;
  }

  ModuleEmitter& m;
  SpirvWriter& w;
  Code& c;
  const ir::Module& module;
  const ir::Function& f;
  const gpu::GpuPlan& plan;
  const VariantOptions options;
  // True if llvmpipe is the target's driver (ir/loops_cut.h). Leaving a loop writes its name into a word of group
  // memory, which is opaque to compilers; an instance that does not find the name after the loop traps with kLoopsCut.
  // The vector that reaches beyond a group's end has lanes that are not instances, but whose loop iterations count:
  // they skip the kernel.
  const bool cuts_loops;
  // Lavapipe treats any memory barrier, even that of an atomic operation, as one at which the vectors of a group wait
  // for each other, and drops the others when one of them ends. There atomics are relaxed: LLVM makes them
  // sequentially consistent anyway, and the accesses that they order are volatile, so that Mesa's passes keep them in
  // place.
  const bool has_no_fences;

 private:
  Status status_;
  std::set<SpvId> interface_;
};

// Room gives each part of a variant's emitter access to the common objects.
struct Room {
  explicit Room(Variant& variant) : v_(variant) {}

  Variant& v_;
  SpirvWriter& w = v_.w;
  Code& c = v_.c;
};

// Functions holds the SPIR-V functions of a variant: the kernel, and those that it calls.
class Functions {
 public:
  explicit Functions(Variant& variant) : v_(variant) {}

  // The kernel's function stays open between these two calls.
  void OpenKernel(SpvId kernel);
  void CloseKernel();
  // Computes a value once, at the kernel's beginning, while the kernel is being emitted; otherwise in place.
  SpvId Hoisted(const std::string& name, const MakeValue& make);
  // Returns the function of that name, emitted on first use. `body` ends with a return.
  SpvId Function(const std::string& name, SpvId result, std::vector<SpvId> params,
                 const std::function<void(std::span<const SpvId>)>& body);
  SpvId Call(SpvId type, SpvId function, std::initializer_list<uint32_t> arguments);
  // Opens `function` as a function without parameters or result.
  void OpenPlain(SpvId id, SpirvFunction& function);

 private:
  Variant& v_;
  SpirvWriter& w = v_.w;
  SpirvFunction kernel_, prologue_;
  bool hoists_ = false;
  std::map<std::string, SpvId> functions_;
  std::map<std::string, SpvId> hoisted_;
};

// Values maps the IR's values to ids, and holds the variables of values that merge.
class Values : private Room {
 public:
  explicit Values(Variant& variant);

  SpvId Of(ir::ValueId id) const { return values_[id.index]; }
  SpvId Operand(const ir::Op& op, uint32_t i) const { return Of(v_.f.operands_of(op)[i]); }
  void Set(ir::ValueId id, SpvId value) { values_[id.index] = value; }
  void SetResult(const ir::Op& op, SpvId value) { Set(op.first_result, value); }
  SpvId ConditionOf(ir::ValueId id);
  SpvId KnownCondition(ir::ValueId id) const { return conditions_[id.index]; }
  void SetCondition(ir::ValueId id, SpvId condition) { conditions_[id.index] = condition; }
  void StoreAll(ir::ValueId first, uint32_t count, std::span<const ir::ValueId> values);
  void LoadAll(ir::ValueId first, uint32_t count);
  void Bind(ir::ValueId first, std::span<const ir::ValueId> values);

 private:
  std::span<const SpvId> Variables(ir::ValueId first, uint32_t count);

  std::vector<SpvId> values_;      // Indexed by ValueId.
  std::vector<SpvId> conditions_;  // Indexed by ValueId: the bool of a comparison's result; 0 when there is none.
  std::map<uint32_t, std::vector<SpvId>> variables_;  // Keyed by the first value: of results and parameters.
};

}  // namespace hpvm::vulkan

#endif  // HPVMD_COMPILER_BACK_VULKAN_VARIANT_H_
