// SPDX-License-Identifier: Apache-2.0
// A variant's frame: the entry point around the kernel.
#include "compiler/back/vulkan/emitter.h"

namespace hpvm::vulkan {

KernelEmitter::KernelEmitter(ModuleEmitter& m, const ir::Module& module, const gpu::GpuPlan& plan,
                             const VariantOptions& options)
    : v_(m, module, plan, options) {
  traps_.SetDetour(&reconvergence_);
}

Status KernelEmitter::Emit(const std::string& entry, bool* can_trap) {
  arrays_.Declare();
  jumps_.Declare();
  traps_.Declare();
  reconvergence_.Declare();
  const SpvId kernel = w.NewId();
  functions_.OpenKernel(kernel);
  const ir::Region& body = v_.f.region(v_.f.body);
  std::vector<bool> is_used(v_.f.values.size(), false);
  for (const ir::ValueId operand : v_.f.operands) {
    is_used[operand.index] = true;
  }
  for (uint32_t k = 0; k < body.param_count; ++k) {
    const ir::ValueId value(body.first_param.index + k);
    values_.Set(value, is_used[value.index] ? queries_.ParamValue(k) : 0);
  }
  if (EmitRegion(v_.f.body)) {
    w.Do(spv::OpReturn, {});
  }
  functions_.CloseKernel();
  EmitWrapper(entry, kernel);
  *can_trap = traps_.can_trap();
  return v_.status();
}

// Zeroes group memory and the trap flags, and fills tables; each work item does a part.
void KernelEmitter::EmitGroupStart() {
  if (arrays_.group() == nullptr && !arrays_.has_tables() && !reconvergence_.postpones()) {
    return;
  }
  const SpvId word = w.Pointer(spv::StorageClassWorkgroup, w.Int(32));
  const SpvId variable = v_.m.BuiltIn(spv::BuiltInLocalInvocationIndex);
  v_.Use(variable);
  const SpvId index = c.Load(c.U32(), variable);
  if (reconvergence_.postpones()) {
    reconvergence_.ClearFlags(word, index);
  }
  if (arrays_.group() != nullptr) {
    arrays_.ZeroGroup(word, index);
  }
  arrays_.FillTables(word, index);
  reconvergence_.EmitGroupBarrier();
}

// Declares the required float modes, in both widths if there are two.
void KernelEmitter::FloatModes(SpvId entry) {
  const GpuTarget& target = v_.m.target;
  const auto ask = [&](spv::ExecutionMode mode, spv::Capability capability) {
    w.Capability(capability);
    w.ExecutionMode(entry, mode, {32});
    if (w.Has(spv::CapabilityFloat64)) {
      w.ExecutionMode(entry, mode, {64});
    }
  };
  if (target.keeps_nan_and_zero) {
    ask(spv::ExecutionModeSignedZeroInfNanPreserve, spv::CapabilitySignedZeroInfNanPreserve);
  }
  if (target.rounds_to_even) {
    ask(spv::ExecutionModeRoundingModeRTE, spv::CapabilityRoundingModeRTE);
  }
  if (target.keeps_denormals) {
    w.Capability(spv::CapabilityDenormPreserve);
    w.ExecutionMode(entry, spv::ExecutionModeDenormPreserve, {32});
  }
}

void KernelEmitter::EmitCall(SpvId kernel) {
  if (!v_.cuts_loops) {
    w.Op(spv::OpFunctionCall, w.Void(), {kernel});
    return;
  }
  SpvId is_instance = 0;
  for (uint32_t d = 0; d < 3; ++d) {
    const SpvId id = v_.BuiltInAt(spv::BuiltInLocalInvocationId, d);
    const SpvId is_below = c.Below(id, v_.m.GroupExtent(d));
    is_instance = d == 0 ? is_below : c.Both(is_instance, is_below);
  }
  c.If(is_instance, [&] {
    w.Op(spv::OpFunctionCall, w.Void(), {kernel});
    return true;
  });
}

void KernelEmitter::EmitWrapper(const std::string& entry, SpvId kernel) {
  const SpvId id = w.NewId();
  SpirvFunction wrapper;
  functions_.OpenPlain(id, wrapper);
  EmitGroupStart();
  arrays_.EmitStart();
  EmitCall(kernel);
  traps_.EmitRecordIfTrapped();
  w.Do(spv::OpReturn, {});
  w.CloseFunction();
  w.EntryPoint(id, entry, std::vector<SpvId>(v_.interface().begin(), v_.interface().end()));
  w.ExecutionMode(id, spv::ExecutionModeLocalSize, {1, 1, 1});
  FloatModes(id);
}

}  // namespace hpvm::vulkan
