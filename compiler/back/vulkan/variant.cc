// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/vulkan/variant.h"

#include <algorithm>
#include <bit>

namespace hpvm::vulkan {

using Kind = GpuArgument::Kind;

Variant::Variant(ModuleEmitter& emitter, const ir::Module& ir_module, const gpu::GpuPlan& gpu_plan,
                 const VariantOptions& variant_options)
    : m(emitter),
      w(emitter.w),
      c(emitter.c),
      module(ir_module),
      f(ir_module.function(ir_module.entry)),
      plan(gpu_plan),
      options(variant_options),
      cuts_loops(emitter.target.is_processor),
      has_no_fences(emitter.target.is_processor && gpu_plan.needs_fences) {}

void Variant::Refuse(const std::string& reason) {
  if (status_.ok()) {
    status_ = Unimplemented(reason);
  }
}

SpvId Variant::BufferView(uint32_t param, View view) {
  const SpvId variable = m.Buffer(param, view);
  Use(variable);
  return variable;
}

SpvId Variant::Argument(Kind kind, uint32_t index, uint8_t bytes) {
  const SpvId pointer = m.ArgumentPointer(kind, index, bytes);
  Use(m.arguments_variable());
  return c.Load(bytes == 4 ? c.U32() : w.Vector(w.Int(32), 2), pointer);
}

SpvId Variant::BuiltInAt(spv::BuiltIn which, uint32_t d) {
  const SpvId variable = m.BuiltIn(which);
  Use(variable);
  const SpvId pointer = w.Pointer(spv::StorageClassInput, w.Int(32));
  return c.Load(c.U32(), w.Op(spv::OpAccessChain, pointer, {variable, w.U32(d)}));
}

SpvId Variant::ParamBase(uint32_t k) {
  if (!module.is_memory64) {
    return Argument32(Kind::kBufferBase, k);
  }
  return w.Op(spv::OpCompositeExtract, c.U32(), {Argument(Kind::kBufferBase, k, 8), 0});
}

SpvId Variant::K(Type type, uint64_t bits) {
  switch (type) {
    case Type::kI32:
      return w.U32(static_cast<uint32_t>(bits));
    case Type::kI64:
      m.TypeOf(type);
      return w.U64(bits);
    case Type::kF32:
      return w.F32(static_cast<uint32_t>(bits));
    default:
      m.TypeOf(type);
      return w.F64(bits);
  }
}

SpvId Variant::Narrow(SpvId address) {
  return module.is_memory64 ? w.Op(spv::OpUConvert, c.U32(), {address}) : address;
}

uint32_t Variant::AlignmentOf(const ir::Op& op) const {
  const ir::ValueId address = f.operands_of(op)[0];
  const uint32_t known = address.index < plan.alignment.size() ? plan.alignment[address.index] : 0;
  return std::min(known, op.imm == 0 ? 63u : static_cast<uint32_t>(std::countr_zero(op.imm)));
}

void Functions::OpenPlain(SpvId id, SpirvFunction& function) {
  const SpvId type = w.FunctionType(w.Void(), {});
  function.head = {5u << spv::WordCountShift | spv::OpFunction, w.Void(), id, spv::FunctionControlMaskNone, type,
                   2u << spv::WordCountShift | spv::OpLabel,    w.NewId()};
  w.OpenFunction(&function);
}

void Functions::OpenKernel(SpvId kernel) {
  w.Name(kernel, "kernel");
  OpenPlain(kernel, kernel_);
  hoists_ = true;
}

void Functions::CloseKernel() {
  hoists_ = false;
  // Hoisted code may use the parameters' values, and precedes everything else.
  kernel_.body.insert(kernel_.body.begin(), prologue_.body.begin(), prologue_.body.end());
  w.CloseFunction();
}

SpvId Functions::Hoisted(const std::string& name, const MakeValue& make) {
  if (!hoists_) {
    return make();
  }
  const auto found = hoisted_.find(name);
  if (found != hoisted_.end()) {
    return found->second;
  }
  w.OpenFunction(&prologue_);
  const SpvId value = make();
  w.LeaveFunction();
  return hoisted_[name] = value;
}

SpvId Functions::Call(SpvId type, SpvId function, std::initializer_list<uint32_t> arguments) {
  std::vector<uint32_t> operands{function};
  operands.insert(operands.end(), arguments.begin(), arguments.end());
  return w.Op(spv::OpFunctionCall, type, operands);
}

SpvId Functions::Function(const std::string& name, SpvId result, std::vector<SpvId> params,
                          const std::function<void(std::span<const SpvId>)>& body) {
  const auto found = functions_.find(name);
  if (found != functions_.end()) {
    return found->second;
  }
  const SpvId id = functions_[name] = w.NewId();
  const SpvId type = w.FunctionType(result, params);
  SpirvFunction function;
  function.head = {5u << spv::WordCountShift | spv::OpFunction, result, id, spv::FunctionControlMaskNone, type};
  std::vector<SpvId> values;
  for (const SpvId param : params) {
    values.push_back(w.NewId());
    function.head.insert(function.head.end(),
                         {3u << spv::WordCountShift | spv::OpFunctionParameter, param, values.back()});
  }
  function.head.insert(function.head.end(), {2u << spv::WordCountShift | spv::OpLabel, w.NewId()});
  w.Name(id, name);
  const bool hoists = std::exchange(hoists_, false);
  w.OpenFunction(&function);
  body(values);
  w.CloseFunction();
  hoists_ = hoists;
  return id;
}

Values::Values(Variant& variant)
    : Room(variant), values_(variant.f.values.size(), 0), conditions_(variant.f.values.size(), 0) {}

SpvId Values::ConditionOf(ir::ValueId id) {
  const SpvId known = conditions_[id.index];
  return known != 0 ? known : c.Differ(values_[id.index], c.K(0));
}

std::span<const SpvId> Values::Variables(ir::ValueId first, uint32_t count) {
  std::vector<SpvId>& variables = variables_[first.index];
  for (uint32_t i = static_cast<uint32_t>(variables.size()); i < count; ++i) {
    variables.push_back(w.LocalVariable(v_.m.TypeOf(v_.f.type_of(ir::ValueId(first.index + i)))));
  }
  return variables;
}

void Values::StoreAll(ir::ValueId first, uint32_t count, std::span<const ir::ValueId> values) {
  if (count == 0) {
    return;
  }
  const std::span<const SpvId> variables = Variables(first, count);
  for (uint32_t i = 0; i < count; ++i) {
    c.Store(variables[i], Of(values[i]));
  }
}

void Values::LoadAll(ir::ValueId first, uint32_t count) {
  if (count == 0) {
    return;
  }
  const std::span<const SpvId> variables = Variables(first, count);
  for (uint32_t i = 0; i < count; ++i) {
    const ir::ValueId value(first.index + i);
    values_[value.index] = c.Load(v_.m.TypeOf(v_.f.type_of(value)), variables[i]);
  }
}

void Values::Bind(ir::ValueId first, std::span<const ir::ValueId> values) {
  for (uint32_t i = 0; i < values.size(); ++i) {
    values_[first.index + i] = Of(values[i]);
    conditions_[first.index + i] = conditions_[values[i].index];
  }
}

}  // namespace hpvm::vulkan
