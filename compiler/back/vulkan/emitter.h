// SPDX-License-Identifier: Apache-2.0
// KernelEmitter emits one variant: a function `kernel` that is the IR's entry, and an entry point around it that
// prepares group memory, calls it, and records its trap. Internal to this folder.
#ifndef HPVMD_COMPILER_BACK_VULKAN_EMITTER_H_
#define HPVMD_COMPILER_BACK_VULKAN_EMITTER_H_

#include <map>
#include <span>
#include <string>

#include "compiler/back/vulkan/arithmetic.h"
#include "compiler/back/vulkan/control.h"
#include "compiler/back/vulkan/memory.h"
#include "compiler/back/vulkan/variant.h"

namespace hpvm::vulkan {

class KernelEmitter {
 public:
  KernelEmitter(ModuleEmitter& m, const ir::Module& module, const gpu::GpuPlan& plan, const VariantOptions& options);

  // Emits the variant's functions and its entry point. `can_trap` receives whether it may trap. Returns kUnimplemented
  // with the operation that cannot be emitted.
  Status Emit(const std::string& entry, bool* can_trap);
  // Returns the group memory used beside the kernel's own.
  uint64_t own_group_bytes() const { return arrays_.table_bytes() + (reconvergence_.postpones() ? 8 : 0); }

 private:
  // In emit_entry.cc.
  void EmitWrapper(const std::string& entry, SpvId kernel);
  void FloatModes(SpvId entry);
  void EmitGroupStart();
  void EmitCall(SpvId kernel);

  // In emit_control.cc.
  bool EmitRegion(ir::RegionId region);
  bool EmitOp(ir::OpId id);  // Returns false when control does not come back.
  void EmitGlobal(const ir::Op& op);
  void EmitLocalAlloc(ir::OpId id);
  bool EmitBlock(ir::OpId id);
  bool EmitLoop(ir::OpId id);
  bool EmitIf(ir::OpId id);
  bool EmitTerminator(ir::OpId id);
  void EmitBrTable(const ir::Op& op);
  // Returns true when the jump falls out of a block that is no construct, so that control continues after it.
  bool EmitJump(const ir::Target& target, std::span<const ir::ValueId> values, ir::RegionId from);

  Variant v_;
  SpirvWriter& w = v_.w;
  Code& c = v_.c;
  Functions functions_{v_};
  Values values_{v_};
  const ControlPlan control_{v_};
  Queries queries_{v_, functions_, values_};
  Traps traps_{v_, values_, queries_};
  Jumps jumps_{v_, control_, traps_};
  Reconvergence reconvergence_{v_, values_, jumps_};
  Floats floats_{v_, functions_};
  Arithmetic arithmetic_{v_, values_, floats_, traps_};
  Arrays arrays_{v_, functions_};
  Access access_{v_};
  Search search_{v_, functions_, values_, traps_, arrays_, access_};
  MemoryOps memory_{v_, functions_, values_, traps_, arrays_, access_, search_};
  Atomics atomics_{v_, functions_, values_, traps_, access_, search_, floats_};
  std::map<uint64_t, SpvId> globals_;  // Mutable globals.
};

}  // namespace hpvm::vulkan

#endif  // HPVMD_COMPILER_BACK_VULKAN_EMITTER_H_
