// SPDX-License-Identifier: Apache-2.0
// One variant of a kernel: what it is made of, its values, and its functions. Internal to this folder.
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
  const pass::CoarseModule* coarse = nullptr;  // What the module is a coarse form of; borrowed.
};

using MakeValue = std::function<SpvId()>;

// The facts known before the variant is written, the parts of the module that its code takes, and why it was refused.
class Variant {
 public:
  // All but the options are borrowed.
  Variant(ModuleEmitter& emitter, const ir::Module& ir_module, const gpu::GpuPlan& gpu_plan,
          const VariantOptions& variant_options);

  void Refuse(const std::string& reason);  // The first reason counts.
  const Status& status() const { return status_; }

  // The entry point names what its functions use.
  void Use(SpvId variable) { interface_.insert(variable); }
  const std::set<SpvId>& interface() const { return interface_; }
  SpvId BufferView(uint32_t param, View view);
  SpvId Argument(GpuArgument::Kind kind, uint32_t index, uint8_t bytes);  // Loaded where it is needed.
  SpvId Argument32(GpuArgument::Kind kind, uint32_t index) { return Argument(kind, index, 4); }
  SpvId BuiltInAt(spv::BuiltIn which, uint32_t d);
  SpvId ParamBase(uint32_t k);  // The low half of the true address.

  SpvId K(ir::Type type, uint64_t bits);
  SpvId Truth(SpvId condition) { return c.Select(c.U32(), condition, c.K(1), c.K(0)); }
  SpvId WordsType() { return module.is_memory64 ? m.TypeOf(ir::Type::kI64) : c.U32(); }
  SpvId Narrow(SpvId address);  // u32 of an address.

  uint32_t AlignmentOf(const ir::Op& op) const;
  bool IsProven(ir::OpId id) const { return plan.IsProven(id, options.trust) || f.op(id).is_inside; }
  bool OmitsCheck(ir::OpId id) const { return IsProven(id) && !options.audits_proofs; }
  // What an access that misses its buffer or group memory traps with.
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
  // llvmpipe is the target's driver (ir/loops_cut.h). A loop that is left writes its name into a word of group memory,
  // through which no compiler sees; whoever does not find it behind the loop traps with kLoopsCut. The vector that
  // reaches beyond a group's end runs with lanes that are no instances, but whose loops count: they skip the kernel.
  const bool cuts_loops;
  // Lavapipe takes any memory barrier, an atomic operation's own too, for one at which the vectors of a group wait for
  // each other, and drops the others when one of them ends. There atomics are relaxed: they are LLVM's strongest all
  // the same, and what they order is volatile, so that Mesa's passes keep it in its place.
  const bool has_no_fences;

 private:
  Status status_;
  std::set<SpvId> interface_;
};

// What every part of a variant's writer has at hand.
struct Room {
  explicit Room(Variant& variant) : v_(variant) {}

  Variant& v_;
  SpirvWriter& w = v_.w;
  Code& c = v_.c;
};

// The SPIR-V functions of a variant: the kernel, and those that it calls.
class Functions {
 public:
  explicit Functions(Variant& variant) : v_(variant) {}

  // The kernel's function stays open between these two.
  void OpenKernel(SpvId kernel);
  void CloseKernel();
  // Computed once, at the kernel's beginning, while the kernel is being written; else in place.
  SpvId Hoisted(const std::string& name, const MakeValue& make);
  // The function of that name, written when first asked for. `body` ends with a return.
  SpvId Function(const std::string& name, SpvId result, std::vector<SpvId> params,
                 const std::function<void(std::span<const SpvId>)>& body);
  SpvId Call(SpvId type, SpvId function, std::initializer_list<uint32_t> arguments);
  // Opens `function` as one without parameters or result.
  void OpenPlain(SpvId id, SpirvFunction& function);

 private:
  Variant& v_;
  SpirvWriter& w = v_.w;
  SpirvFunction kernel_, prologue_;
  bool hoists_ = false;
  std::map<std::string, SpvId> functions_;
  std::map<std::string, SpvId> hoisted_;
};

// The ids of the IR's values, and the variables for values that merge.
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

  std::vector<SpvId> values_;                         // By ValueId.
  std::vector<SpvId> conditions_;                     // By ValueId: the bool of a comparison's result; 0: none.
  std::map<uint32_t, std::vector<SpvId>> variables_;  // By the first value: of results and parameters.
};

}  // namespace hpvm::vulkan

#endif  // HPVMD_COMPILER_BACK_VULKAN_VARIANT_H_
