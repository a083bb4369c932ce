// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>

#include "compiler/front/spirv/interface.h"
#include "compiler/front/spirv/limits.h"

#include <spirv/unified1/spirv.hpp>

namespace hpvm::spirv {
namespace {

struct BoundBuffer {
  std::string name;
  uint32_t variable = 0;
  uint32_t set = 0, binding = 0;
  bool is_used = false, is_written = false;
};

struct PushValue {
  std::string name;
  uint32_t type = 0;
  uint64_t offset = 0;
};

// Records how the functions that an entry reaches use module-scope variables, through access chains. Addressing is
// logical and pointers are not chosen at run time, so each pointer has one root variable.
class Uses {
 public:
  Uses(const Reflected& reflected, const EntryPoint& entry) : module_(reflected.module) {
    const std::vector<bool> reached = reflected.structure.ReachedFrom(entry.function);
    root_.resize(module_.bound);
    used_.resize(module_.bound);
    written_.resize(module_.bound);
    for (size_t f = 0; f < reached.size(); ++f) {
      const Function& function = reflected.structure.functions[f];
      for (uint32_t i = function.first; reached[f] && i <= function.last; ++i) {
        Visit(module_.instructions[i]);
      }
    }
  }
  bool IsUsed(uint32_t variable) const { return used_[variable]; }
  bool IsWritten(uint32_t variable) const { return written_[variable]; }

 private:
  uint32_t RootOf(uint32_t id) const {
    if (id >= root_.size()) {
      return 0;
    }
    return root_[id] != 0 ? root_[id] : id;
  }
  void Use(uint32_t id, bool writes) {
    if (const uint32_t root = RootOf(id); root != 0) {
      used_[root] = true;
      written_[root] = written_[root] || writes;
    }
  }

  void Visit(const Instruction& at) {
    switch (at.opcode) {
      case spv::OpAccessChain:
      case spv::OpInBoundsAccessChain:
      case spv::OpCopyObject:
        root_[at.result] = RootOf(module_.Word(at, 2));
        return Use(module_.Word(at, 2), false);
      case spv::OpLoad:
      case spv::OpArrayLength:
      case spv::OpAtomicLoad:
        return Use(module_.Word(at, 2), false);
      case spv::OpStore:
      case spv::OpAtomicStore:
        return Use(module_.Word(at, 0), true);
      case spv::OpCopyMemory:
        Use(module_.Word(at, 0), true);
        return Use(module_.Word(at, 1), false);
      case spv::OpFunctionCall:
      case spv::OpExtInst:
        // Callees are not examined: each pointer operand counts as written.
        for (uint32_t i = 3; i + 1 < at.count; ++i) {
          Use(module_.Word(at, i), true);
        }
        return;
      default:
        if (at.opcode > spv::OpAtomicStore && at.opcode <= spv::OpAtomicXor) {
          Use(module_.Word(at, 2), true);
        }
    }
  }

  const Module& module_;
  std::vector<uint32_t> root_;  // Indexed by id of a pointer: the variable that it points into; 0 when it is that
                                // variable itself.
  std::vector<bool> used_, written_;
};

std::string Quoted(const std::string& name) { return name.empty() ? "without a name" : "\"" + name + "\""; }

std::string Describe(const BoundBuffer& buffer) {
  return "buffer " + Quoted(buffer.name) + " (set " + std::to_string(buffer.set) + ", binding " +
         std::to_string(buffer.binding) + ")";
}

bool IsReadOnly(const Reflected& reflected, const Instruction& variable, uint32_t block) {
  const Type& type = reflected.types.of(block);
  bool all = !type.members.empty();
  for (uint32_t i = 0; i < type.members.size(); ++i) {
    all = all && reflected.notes.FindOfMember(block, i, spv::DecorationNonWritable).has_value();
  }
  return all || reflected.notes.Find(variable.result, spv::DecorationNonWritable).has_value();
}

std::optional<BoundBuffer> ReadBuffer(const Reflected& reflected, const Instruction& variable, const Uses& uses,
                                      ModuleFaults& faults) {
  const uint32_t block = reflected.types.of(variable).element;
  BoundBuffer buffer;
  buffer.variable = variable.result;
  buffer.name = reflected.notes.NameOf(variable.result);
  buffer.name = buffer.name.empty() ? reflected.notes.NameOf(block) : buffer.name;
  if (reflected.types.of(block).kind != Type::Kind::kStruct) {
    faults.AddAt(variable.at, Describe(variable) + " is " + reflected.types.Name(block) + " as a storage buffer " +
                                  Quoted(buffer.name) + "; a single block (struct) is needed, not an array of blocks.");
    return std::nullopt;
  }
  const auto set = reflected.notes.Find(variable.result, spv::DecorationDescriptorSet);
  const auto binding = reflected.notes.Find(variable.result, spv::DecorationBinding);
  if (!set.has_value() || !binding.has_value()) {
    faults.AddAt(variable.at, Describe(variable) + " is a storage buffer " + Quoted(buffer.name) +
                                  " without a descriptor set or a binding; both are needed.");
    return std::nullopt;
  }
  constexpr uint32_t kSetsMax = 4;  // Every device has at least this many.
  constexpr uint32_t kBindingsMax = 1024;
  if (*set >= kSetsMax || *binding >= kBindingsMax) {
    faults.AddAt(variable.at, Describe(variable) + " is bound at set " + std::to_string(*set) + ", binding " +
                                  std::to_string(*binding) + "; sets below " + std::to_string(kSetsMax) +
                                  " and bindings below " + std::to_string(kBindingsMax) + " are allowed.");
    return std::nullopt;
  }
  buffer.set = *set;
  buffer.binding = *binding;
  buffer.is_used = uses.IsUsed(variable.result);
  buffer.is_written = uses.IsWritten(variable.result) && !IsReadOnly(reflected, variable, block);
  return buffer;
}

// Returns buffers sorted by set and binding; variables with the same set and binding are views of one buffer.
std::vector<BoundBuffer> FindBuffers(const Reflected& reflected, const Uses& uses, ModuleFaults& faults) {
  std::vector<BoundBuffer> buffers;
  for (const Instruction& at : reflected.module.instructions) {
    if (at.opcode == spv::OpVariable && reflected.module.Word(at, 2) == spv::StorageClassStorageBuffer) {
      std::optional<BoundBuffer> buffer = ReadBuffer(reflected, at, uses, faults);
      if (!buffer.has_value()) {
        return {};
      }
      buffers.push_back(*std::move(buffer));
    }
  }
  const auto place = [](const BoundBuffer& buffer) { return std::pair{buffer.set, buffer.binding}; };
  std::ranges::stable_sort(buffers, [&](const BoundBuffer& a, const BoundBuffer& b) { return place(a) < place(b); });
  std::vector<BoundBuffer> merged;
  for (BoundBuffer& buffer : buffers) {
    if (merged.empty() || place(merged.back()) != place(buffer)) {
      merged.push_back(std::move(buffer));
    } else {
      merged.back().is_used |= buffer.is_used;
      merged.back().is_written |= buffer.is_written;
    }
  }
  return merged;
}

// Appends the scalars that the type `id` at `offset` consists of.
void Flatten(const Reflected& reflected, uint32_t id, uint64_t offset, const std::string& name,
             std::vector<PushValue>& values, ModuleFaults& faults) {
  const Type& type = reflected.types.of(id);
  if (values.size() > limits::kPushValuesMax || faults.any()) {
    return;
  }
  const auto fail = [&](const std::string& why) { faults.Add("The push constant " + Quoted(name) + " " + why); };
  switch (type.kind) {
    case Type::Kind::kInt:
    case Type::Kind::kFloat:
      values.push_back({name, id, offset});
      return;
    case Type::Kind::kVector:
      for (uint64_t i = 0; i < type.count; ++i) {
        Flatten(reflected, type.element, offset + i * reflected.types.of(type.element).bytes,
                name + "[" + std::to_string(i) + "]", values, faults);
      }
      return;
    case Type::Kind::kArray: {
      const std::optional<uint32_t> stride = reflected.notes.Find(id, spv::DecorationArrayStride);
      if (!stride.has_value()) {
        return fail("is an array without a stride.");
      }
      for (uint64_t i = 0; i < type.count && values.size() <= limits::kPushValuesMax; ++i) {
        Flatten(reflected, type.element, offset + i * *stride, name + "[" + std::to_string(i) + "]", values, faults);
      }
      return;
    }
    case Type::Kind::kStruct:
      for (uint32_t i = 0; i < type.members.size(); ++i) {
        const std::optional<uint32_t> at = reflected.notes.FindOfMember(id, i, spv::DecorationOffset);
        const std::string member = reflected.notes.NameOfMember(id, i);
        const std::string label = member.empty() ? std::to_string(i) : member;
        if (!at.has_value()) {
          return fail("has a member \"" + label + "\" without an offset.");
        }
        Flatten(reflected, type.members[i], offset + *at, name.empty() ? label : name + "." + label, values, faults);
      }
      return;
    default:
      return fail("is " + reflected.types.Name(id) +
                  "; numbers and vectors, arrays and structs of them can be passed.");
  }
}

std::vector<PushValue> FindPushValues(const Reflected& reflected, const Uses& uses, ModuleFaults& faults) {
  const Instruction* found = nullptr;
  size_t count = 0;
  for (const Instruction& at : reflected.module.instructions) {
    if (at.opcode == spv::OpVariable && reflected.module.Word(at, 2) == spv::StorageClassPushConstant) {
      found = found == nullptr || uses.IsUsed(at.result) ? &at : found;
      ++count;
    }
  }
  std::vector<PushValue> values;
  // A single unused variable still shows which values the author passes; among several, any could be meant.
  if (found == nullptr || (count > 1 && !uses.IsUsed(found->result))) {
    return values;
  }
  Flatten(reflected, reflected.types.of(*found).element, 0, "", values, faults);
  if (values.size() > limits::kPushValuesMax) {
    faults.AddAt(found->at, Describe(*found) + " has push constants of more than " +
                                std::to_string(limits::kPushValuesMax) + " scalars.");
  }
  std::ranges::stable_sort(values, [](const PushValue& a, const PushValue& b) { return a.offset < b.offset; });
  return values;
}

template <typename Item>
std::string List(const std::vector<Item>& items, const std::function<std::string(const Item&)>& name) {
  std::string list;
  for (size_t i = 0; i < items.size() && i < 16; ++i) {
    list += (i == 0 ? "" : ", ") + name(items[i]);
  }
  return list.empty() ? "none" : list + (items.size() > 16 ? ", ..." : "");
}

bool Fits(const Type& type, ir::Type scalar) {
  const bool is_float = scalar == ir::Type::kF32 || scalar == ir::Type::kF64;
  const uint32_t width = scalar == ir::Type::kI64 || scalar == ir::Type::kF64 ? 64 : 32;
  return type.kind == (is_float ? Type::Kind::kFloat : Type::Kind::kInt) && type.width == width;
}

void BindBuffers(const std::vector<BoundBuffer>& buffers, std::span<const ParamSpec> params,
                 const std::vector<uint32_t>& indices, GpuVariant& variant, ModuleFaults& faults) {
  for (size_t i = 0; i < buffers.size(); ++i) {
    const ParamSpec& param = params[indices[i]];
    if (buffers[i].is_written && !param.is_writable) {
      faults.Add("Parameter \"" + param.name + "\" is a buffer that is only read, but the entry writes " +
                 Describe(buffers[i]) + ".");
    }
    GpuArgument& argument = variant.arguments.emplace_back();
    argument.kind = GpuArgument::Kind::kBuffer;
    argument.index = indices[i];
    argument.bytes = 8;
    argument.is_writable = buffers[i].is_written;
    argument.set = buffers[i].set;
    argument.binding = buffers[i].binding;
  }
}

void BindScalars(const Reflected& reflected, const std::vector<PushValue>& values, std::span<const ParamSpec> params,
                 const std::vector<uint32_t>& indices, const GpuTarget& target, GpuVariant& variant,
                 ModuleFaults& faults) {
  uint64_t end = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const ParamSpec& param = params[indices[i]];
    const Type& type = reflected.types.of(values[i].type);
    if (!Fits(type, param.scalar)) {
      faults.Add("Parameter \"" + param.name + "\" is " + NameOf(param) + ", but the push constant " +
                 Quoted(values[i].name) + " at offset " + std::to_string(values[i].offset) + " is " +
                 reflected.types.Name(values[i].type) + ".");
      continue;
    }
    GpuArgument& argument = variant.arguments.emplace_back();
    argument.kind = GpuArgument::Kind::kScalar;
    argument.index = indices[i];
    argument.bytes = static_cast<uint8_t>(type.width / 8);
    argument.offset = static_cast<uint32_t>(std::min<uint64_t>(values[i].offset, UINT32_MAX));
    end = std::max(end, values[i].offset + argument.bytes);
    if (values[i].offset % argument.bytes != 0) {
      faults.Add("The push constant " + Quoted(values[i].name) + " lies at offset " + std::to_string(values[i].offset) +
                 ", which is no multiple of its " + std::to_string(argument.bytes) + " bytes.");
    }
  }
  end = (end + 3) / 4 * 4;
  if (end > target.push_bytes_max) {
    faults.Add("The push constants take " + std::to_string(end) + " bytes; the device has " +
               std::to_string(target.push_bytes_max) + ".");
    return;
  }
  variant.push_bytes = static_cast<uint32_t>(end);
}

}  // namespace

void BindShader(const Reflected& reflected, const EntryPoint& entry, std::span<const ParamSpec> params,
                const GpuTarget& target, GpuVariant& variant, ModuleFaults& faults) {
  const Uses uses(reflected, entry);
  std::vector<uint32_t> buffer_params, scalar_params;
  for (uint32_t i = 0; i < params.size(); ++i) {
    (params[i].is_buffer ? buffer_params : scalar_params).push_back(i);
  }
  const std::vector<BoundBuffer> declared = FindBuffers(reflected, uses, faults);
  std::vector<BoundBuffer> buffers;
  std::copy_if(declared.begin(), declared.end(), std::back_inserter(buffers),
               [](const BoundBuffer& buffer) { return buffer.is_used; });
  // An entry need not access every buffer that its author binds.
  if (buffers.size() != buffer_params.size() && declared.size() == buffer_params.size()) {
    buffers = declared;
  }
  const std::vector<PushValue> values = FindPushValues(reflected, uses, faults);
  if (faults.any()) {
    return;
  }
  const std::function<std::string(const uint32_t&)> name = [&](uint32_t i) { return "\"" + params[i].name + "\""; };
  if (buffers.size() != buffer_params.size()) {
    faults.Add("The entry \"" + entry.name + "\" binds " + std::to_string(buffers.size()) + " buffers (" +
               List<BoundBuffer>(buffers, [](const BoundBuffer& buffer) { return Describe(buffer); }) +
               "), and the node has " + std::to_string(buffer_params.size()) + " ports (" +
               List<uint32_t>(buffer_params, name) +
               "); their number must match, and they are paired in the order of set and binding.");
  } else if (buffers.size() > target.buffers_max) {
    faults.Add("The entry \"" + entry.name + "\" binds " + std::to_string(buffers.size()) +
               " buffers; the device takes " + std::to_string(target.buffers_max) + ".");
  } else {
    BindBuffers(buffers, params, buffer_params, variant, faults);
  }
  if (values.size() != scalar_params.size()) {
    faults.Add("The entry \"" + entry.name + "\" has " + std::to_string(values.size()) + " push constants (" +
               List<PushValue>(values, [](const PushValue& value) { return Quoted(value.name); }) +
               "), and the node has " + std::to_string(scalar_params.size()) + " scalars (" +
               List<uint32_t>(scalar_params, name) +
               "); their number must match, and they are paired in the order of offsets.");
  } else {
    BindScalars(reflected, values, params, scalar_params, target, variant, faults);
  }
}

void MakeStorageBuffers(Module& module) {
  constexpr uint32_t kVersion13 = 0x00010300;
  bool has_uniform = false;
  for (const Instruction& at : module.instructions) {
    uint32_t* operands = &module.words[at.at + 1];
    const bool is_pointer = at.opcode == spv::OpTypePointer && at.count == 4;
    const bool is_variable = at.opcode == spv::OpVariable && at.count >= 4;
    uint32_t* storage = is_pointer ? operands + 1 : is_variable ? operands + 2 : nullptr;
    if (storage != nullptr && *storage == spv::StorageClassUniform) {
      *storage = spv::StorageClassStorageBuffer;
      has_uniform = true;
    }
    if (at.opcode == spv::OpDecorate && at.count == 3 && operands[1] == spv::DecorationBufferBlock) {
      operands[1] = spv::DecorationBlock;
    }
  }
  if (has_uniform && module.version < kVersion13) {
    // The first version in which the StorageBuffer class needs no extension.
    module.version = module.words[1] = kVersion13;
  }
}

}  // namespace hpvm::spirv
