// SPDX-License-Identifier: Apache-2.0
// State that the variants of one module share: views of buffers, the launch's values, built-ins.
#include "compiler/back/vulkan/module_emitter.h"

#include "compiler/ir/walk.h"

namespace hpvm::vulkan {
namespace {

constexpr uint32_t kSpirv15 = 0x00010500;

// Returns an upper bound for the size of the launch's values, however many are used.
uint32_t ArgumentBytesMax(const ir::Module& module) {
  uint32_t bytes = 4 + 3 * 4;  // The record's index and the first instance.
  const auto aligned = [](ir::Type type) { return ir::Bytes(type) == 8 ? 8u + 4u : 4u; };  // With padding.
  for (const ir::KernelParam& param : module.params) {
    bytes += param.is_buffer ? 4 + 4 + aligned(module.address_type()) : aligned(param.type);
  }
  bool asks = false;
  ir::ForEachOp(module.function(module.entry), [&](ir::OpId id) {
    const ir::Opcode code = module.function(module.entry).op(id).code;
    asks = asks || code == ir::Opcode::kInstanceCount || code == ir::Opcode::kGroupId ||
           code == ir::Opcode::kGroupSize || code == ir::Opcode::kLocalId;
  });
  return bytes + (asks ? 2 * 3 * 4 : 0) + (module.uses_group_memory ? aligned(module.address_type()) : 0);
}

// A view's elements: number and type of components.
struct ElementForm {
  uint32_t count, bits;
  bool is_float = false;
};
ElementForm FormOf(View view) {
  constexpr ElementForm kForms[] = {{1, 8}, {1, 16}, {1, 32}, {2, 32}, {4, 32}, {1, 64}, {1, 32, true}, {1, 64, true}};
  return kForms[static_cast<size_t>(view)];
}

}  // namespace

ModuleEmitter::ModuleEmitter(const ir::Module& module, const GpuTarget& gpu_target)
    : source(module), target(gpu_target), c(w) {
  w.Capability(spv::CapabilityShader);
  in_facts_ = ArgumentBytesMax(module) > target.push_bytes_max;
  const SpvId u32 = w.Int(32);
  for (uint32_t d = 0; d < 3; ++d) {
    group_extent_[d] = w.GlobalWithType(spv::OpSpecConstant, u32, {1});
    w.Decorate(group_extent_[d], spv::DecorationSpecId, {kGroupConstant + d});
  }
  const SpvId size = w.GlobalWithType(spv::OpSpecConstantComposite, w.Vector(u32, 3),
                                      {group_extent_[0], group_extent_[1], group_extent_[2]});
  w.Decorate(size, spv::DecorationBuiltIn, {spv::BuiltInWorkgroupSize});
}

SpvId ModuleEmitter::TypeOf(ir::Type type) {
  switch (type) {
    case ir::Type::kI32:
      return w.Int(32);
    case ir::Type::kI64:
      w.Capability(spv::CapabilityInt64);
      return w.Int(64);
    case ir::Type::kF32:
      return w.Float(32);
    default:
      w.Capability(spv::CapabilityFloat64);
      return w.Float(64);
  }
}

// Declares struct { T elements[]; }, decorated as a storage buffer's block.
SpvId ModuleEmitter::Block(View view, bool is_writable) {
  SpvId& block = blocks_[view];
  if (block != 0) {
    return block;
  }
  if (view == View::k8) {
    w.Capability(spv::CapabilityStorageBuffer8BitAccess);
  } else if (view == View::k16) {
    w.Capability(spv::CapabilityStorageBuffer16BitAccess);
  } else if (view == View::k64) {
    w.Capability(spv::CapabilityInt64);
  } else if (view == View::kF64) {
    w.Capability(spv::CapabilityFloat64);
  }
  const ElementForm form = FormOf(view);
  const SpvId element = ElementType(view);
  const SpvId array = w.NewId();
  block = w.NewId();
  w.Global(spv::OpTypeRuntimeArray, std::array<uint32_t, 2>{array, element});
  w.Decorate(array, spv::DecorationArrayStride, {form.count * form.bits / 8});
  w.Global(spv::OpTypeStruct, std::array<uint32_t, 2>{block, array});
  w.Decorate(block, spv::DecorationBlock);
  w.DecorateMember(block, 0, spv::DecorationOffset, {0});
  return block;
}

SpvId ModuleEmitter::ElementType(View view) {
  const ElementForm form = FormOf(view);
  const SpvId scalar = form.is_float ? w.Float(form.bits) : w.Int(form.bits);
  return form.count == 1 ? scalar : w.Vector(scalar, form.count);
}

SpvId ModuleEmitter::Buffer(uint32_t param, View view) {
  SpvId& variable = buffers_[{param, view}];
  if (variable == 0) {
    const bool is_writable = source.params[param].is_writable;
    variable = w.GlobalVariable(spv::StorageClassStorageBuffer, Block(view, is_writable));
    w.Decorate(variable, spv::DecorationDescriptorSet, {0});
    w.Decorate(variable, spv::DecorationBinding, {param});
    // Parameters may be bound to the same bytes, and one parameter has several views. So none is NonWritable: NVIDIA's
    // driver would read it through a cache that does not observe writes through another view.
    w.Decorate(variable, spv::DecorationAliased);
    if (is_writable && source.uses_barrier) {
      w.Decorate(variable, spv::DecorationCoherent);  // Other instances of the group see stores after a barrier.
    }
  }
  return variable;
}

SpvId ModuleEmitter::TrapRecords() {
  if (trap_records_ == 0) {
    trap_records_ = w.GlobalVariable(spv::StorageClassStorageBuffer, Block(View::k32, true));
    w.Decorate(trap_records_, spv::DecorationDescriptorSet, {0});
    w.Decorate(trap_records_, spv::DecorationBinding, {TrapBinding()});
    w.Name(trap_records_, "trap_records");
  }
  return trap_records_;
}

SpvId ModuleEmitter::BuiltIn(spv::BuiltIn which) {
  SpvId& variable = built_ins_[which];
  if (variable == 0) {
    const SpvId u32 = w.Int(32);
    const bool is_scalar = which == spv::BuiltInLocalInvocationIndex;
    variable = w.GlobalVariable(spv::StorageClassInput, is_scalar ? u32 : w.Vector(u32, 3));
    w.Decorate(variable, spv::DecorationBuiltIn, {static_cast<uint32_t>(which)});
  }
  return variable;
}

SpvId ModuleEmitter::ArgumentPointer(GpuArgument::Kind kind, uint32_t index, uint8_t bytes) {
  const auto storage = in_facts_ ? spv::StorageClassStorageBuffer : spv::StorageClassPushConstant;
  if (arguments_variable_ == 0) {
    // The block's members are known only at the end, but the pointer's type must precede the variable, so Finish emits
    // all three.
    arguments_variable_ = w.NewId();
    arguments_block_ = w.NewId();
  }
  const auto [entry, is_new] = places_.try_emplace({kind, index});
  MemberLocation& place = entry->second;
  if (is_new) {
    argument_bytes_ = (argument_bytes_ + bytes - 1) / bytes * bytes;
    place = {static_cast<uint32_t>(member_bytes_.size()), argument_bytes_, bytes};
    member_bytes_.push_back(argument_bytes_);
    GpuArgument argument;
    argument.kind = kind;
    argument.index = index;
    argument.bytes = bytes;
    argument.offset = argument_bytes_;
    arguments_.push_back(argument);
    argument_bytes_ += bytes;
  }
  const SpvId type = place.bytes == 4 ? w.Int(32) : w.Vector(w.Int(32), 2);
  const SpvId pointer = w.Pointer(storage, type);
  return w.Op(spv::OpAccessChain, pointer, {arguments_variable_, w.U32(place.member)});
}

std::vector<uint32_t> ModuleEmitter::Finish(GpuVariant& variant) {
  if (arguments_variable_ != 0) {
    const auto storage = in_facts_ ? spv::StorageClassStorageBuffer : spv::StorageClassPushConstant;
    std::vector<uint32_t> members{arguments_block_};
    for (const GpuArgument& argument : arguments_) {
      members.push_back(argument.bytes == 4 ? w.Int(32) : w.Vector(w.Int(32), 2));
    }
    w.Global(spv::OpTypeStruct, members);
    w.Decorate(arguments_block_, spv::DecorationBlock);
    for (uint32_t i = 0; i < arguments_.size(); ++i) {
      w.DecorateMember(arguments_block_, i, spv::DecorationOffset, {arguments_[i].offset});
    }
    const SpvId pointer = w.Pointer(storage, arguments_block_);
    w.Global(spv::OpVariable, std::array<uint32_t, 3>{pointer, arguments_variable_, static_cast<uint32_t>(storage)});
    if (in_facts_) {
      variant.facts_set = 0;
      variant.facts_binding = TrapBinding() + 1;
      w.Decorate(arguments_variable_, spv::DecorationDescriptorSet, {0});
      w.Decorate(arguments_variable_, spv::DecorationBinding, {variant.facts_binding});
      w.Decorate(arguments_variable_, spv::DecorationNonWritable);
    }
    w.Name(arguments_variable_, "launch");
  }
  variant.push_bytes = (argument_bytes_ + 3) / 4 * 4;
  variant.group_constant = {kGroupConstant, kGroupConstant + 1, kGroupConstant + 2};
  variant.arguments = arguments_;
  std::set<uint32_t> bound;
  for (const auto& [key, id] : buffers_) {
    bound.insert(key.first);
  }
  for (const uint32_t param : bound) {
    GpuArgument argument;
    argument.kind = GpuArgument::Kind::kBuffer;
    argument.index = param;
    argument.is_writable = source.params[param].is_writable;
    argument.binding = param;
    variant.arguments.push_back(argument);
  }
  if (trap_records_ != 0) {
    GpuArgument argument;
    argument.kind = GpuArgument::Kind::kTrapRecord;
    argument.is_writable = true;
    argument.binding = TrapBinding();
    variant.arguments.push_back(argument);
  }
  return w.Finish(kSpirv15);
}

}  // namespace hpvm::vulkan
