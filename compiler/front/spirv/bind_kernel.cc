// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/spirv/interface.h"

#include <spirv/unified1/spirv.hpp>

namespace hpvm::spirv {
namespace {

struct KernelParameter {
  uint32_t id = 0, type = 0;
  std::string name;
};

std::vector<KernelParameter> ParametersOf(const Reflected& reflected, const EntryPoint& entry) {
  std::vector<KernelParameter> parameters;
  const Function& function = reflected.structure.functions[entry.function];
  for (uint32_t i = function.first; i <= function.last; ++i) {
    const Instruction& at = reflected.module.instructions[i];
    if (at.opcode == spv::OpFunctionParameter) {
      parameters.push_back({at.result, at.type, reflected.notes.NameOf(at.result)});
    } else if (at.opcode == spv::OpLabel) {
      break;
    }
  }
  return parameters;
}

// Describes a parameter for messages: "a pointer to global memory".
std::string Describe(const Reflected& reflected, const KernelParameter& parameter) {
  const Type& type = reflected.types.of(parameter.type);
  if (type.kind != Type::Kind::kPointer) {
    return reflected.types.Name(parameter.type);
  }
  switch (type.storage) {
    case spv::StorageClassCrossWorkgroup:
      return "a pointer to global memory";
    case spv::StorageClassUniformConstant:
      return "a pointer to constant memory";
    case spv::StorageClassWorkgroup:
      return "a pointer to local memory";
    case spv::StorageClassFunction:
      return "a struct by value";
    default:
      return "a pointer of storage class " + std::to_string(type.storage);
  }
}

void BindOne(const Reflected& reflected, const KernelParameter& parameter, const ParamSpec& param, uint32_t index,
             GpuVariant& variant, ModuleFaults& faults) {
  const Type& type = reflected.types.of(parameter.type);
  const std::string both = "Parameter " + std::to_string(index) + " is " + NameOf(param) + " \"" + param.name +
                           "\" of the node, but " + Describe(reflected, parameter) +
                           (parameter.name.empty() ? "" : " \"" + parameter.name + "\"") + " in the kernel";
  const bool is_memory = type.kind == Type::Kind::kPointer && (type.storage == spv::StorageClassCrossWorkgroup ||
                                                               type.storage == spv::StorageClassUniformConstant);
  const bool is_number = type.kind == Type::Kind::kInt || type.kind == Type::Kind::kFloat;
  if (!is_memory && !is_number) {
    const bool is_local = type.kind == Type::Kind::kPointer && type.storage == spv::StorageClassWorkgroup;
    faults.Add(both + (is_local ? "; local memory has to be declared inside the kernel."
                                : "; buffers and 32-bit and 64-bit numbers can be passed."));
    return;
  }
  GpuArgument& argument = variant.arguments.emplace_back();
  argument.index = index;
  if (is_memory) {
    argument.kind = GpuArgument::Kind::kBuffer;
    argument.bytes = 8;
    argument.is_writable = param.is_writable && type.storage == spv::StorageClassCrossWorkgroup;
    if (!param.is_buffer) {
      faults.Add(both + ".");
    }
    return;
  }
  argument.kind = GpuArgument::Kind::kScalar;
  argument.bytes = static_cast<uint8_t>(type.width / 8);
  const bool is_float = param.scalar == ir::Type::kF32 || param.scalar == ir::Type::kF64;
  const uint32_t width = param.scalar == ir::Type::kI64 || param.scalar == ir::Type::kF64 ? 64 : 32;
  if (param.is_buffer || width != type.width || is_float != (type.kind == Type::Kind::kFloat)) {
    faults.Add(both + ".");
  }
}

}  // namespace

void BindKernel(const Reflected& reflected, const EntryPoint& entry, std::span<const ParamSpec> params,
                const GpuTarget& target, GpuVariant& variant, ModuleFaults& faults) {
  const std::vector<KernelParameter> parameters = ParametersOf(reflected, entry);
  if (parameters.size() != params.size()) {
    faults.Add("The kernel \"" + entry.name + "\" takes " + std::to_string(parameters.size()) +
               " arguments, and the node has " + std::to_string(params.size()) +
               " parameters (ports and scalars); their number and order must match.");
    return;
  }
  for (uint32_t i = 0; i < params.size(); ++i) {
    BindOne(reflected, parameters[i], params[i], i, variant, faults);
  }
  uint64_t bytes = 0;
  for (const GpuArgument& argument : variant.arguments) {
    bytes += argument.bytes;
  }
  if (target.push_bytes_max != 0 && bytes > target.push_bytes_max) {
    faults.Add("The kernel \"" + entry.name + "\" takes " + std::to_string(bytes) +
               " bytes of arguments; the device takes " + std::to_string(target.push_bytes_max) + ".");
  }
}

}  // namespace hpvm::spirv
