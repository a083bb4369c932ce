// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "compiler/front/spirv/interface.h"

#include <spirv/unified1/spirv.hpp>

namespace hpvm::spirv {
namespace {

constexpr size_t kNamedMax = 16;           // Length of lists in messages.
constexpr uint32_t kGroupItemsMax = 1024;  // docs/KERNELS.md.

// Returns the constant that the built-in WorkgroupSize decorates; 0 when there is none.
uint32_t GroupConstant(const Reflected& reflected) {
  for (const auto& [id, built_in] : reflected.notes.All(spv::DecorationBuiltIn)) {
    if (built_in == spv::BuiltInWorkgroupSize) {
      return id;
    }
  }
  return 0;
}

struct GroupSource {
  std::array<uint32_t, 3> size{0, 0, 0};
  std::array<uint32_t, 3> spec_id{GpuVariant::kNoConstant, GpuVariant::kNoConstant, GpuVariant::kNoConstant};
};

// Reads the work-group size from the ids of three constants.
GroupSource FromIds(const Reflected& reflected, const std::array<uint32_t, 3>& ids, ModuleFaults& faults) {
  GroupSource source;
  for (size_t d = 0; d < 3; ++d) {
    const std::optional<uint64_t> value = IntegerOf(reflected.module, reflected.types, ids[d]);
    if (!value.has_value() || *value > UINT32_MAX) {
      faults.Add("The extent " + std::to_string(d) +
                 " of the entry's groups is not a simple 32-bit constant (OpConstant or OpSpecConstant).");
      return source;
    }
    source.size[d] = static_cast<uint32_t>(*value);
    const Instruction* constant = reflected.module.Find(ids[d]);
    if (constant->opcode == spv::OpSpecConstant) {
      source.spec_id[d] = reflected.notes.Find(ids[d], spv::DecorationSpecId).value_or(GpuVariant::kNoConstant);
    }
  }
  return source;
}

std::optional<GroupSource> FindGroup(const Reflected& reflected, const EntryPoint& entry, ModuleFaults& faults) {
  const Module& module = reflected.module;
  // The built-in overrides the execution mode.
  if (const Instruction* built_in = module.Find(GroupConstant(reflected)); built_in != nullptr) {
    if ((built_in->opcode != spv::OpConstantComposite && built_in->opcode != spv::OpSpecConstantComposite) ||
        built_in->count != 6) {
      faults.AddAt(built_in->at, Describe(*built_in) + " is WorkgroupSize but not a composite of 3 constants.");
      return std::nullopt;
    }
    return FromIds(reflected, {module.Word(*built_in, 2), module.Word(*built_in, 3), module.Word(*built_in, 4)},
                   faults);
  }
  for (const Instruction& at : module.instructions) {
    const bool is_mode = at.opcode == spv::OpExecutionMode || at.opcode == spv::OpExecutionModeId;
    if (!is_mode || module.Word(at, 0) != entry.id) {
      continue;
    }
    if (module.Word(at, 1) == spv::ExecutionModeLocalSize) {
      GroupSource source;
      source.size = {module.Word(at, 2), module.Word(at, 3), module.Word(at, 4)};
      return source;
    }
    if (module.Word(at, 1) == spv::ExecutionModeLocalSizeId) {
      return FromIds(reflected, {module.Word(at, 2), module.Word(at, 3), module.Word(at, 4)}, faults);
    }
  }
  return std::nullopt;
}

std::string Product(const std::array<uint32_t, 3>& size) {
  return std::to_string(size[0]) + " x " + std::to_string(size[1]) + " x " + std::to_string(size[2]);
}

void CheckGroup(const std::array<uint32_t, 3>& size, const GpuTarget& target, ModuleFaults& faults) {
  uint64_t items = 1;
  for (size_t d = 0; d < 3; ++d) {
    if (size[d] == 0 || size[d] > target.group_extent_max[d]) {
      faults.Add("The entry's groups have " + Product(size) + " work items; the device takes 1 to " +
                 std::to_string(target.group_extent_max[d]) + " in dimension " + std::to_string(d) + ".");
      return;
    }
    items *= size[d];  // No overflow: each extent is below 2^32, and the product so far is within the limit.
    if (items > std::min(target.group_size_max, kGroupItemsMax)) {
      faults.Add("The entry's groups have " + Product(size) + " work items; the device takes at most " +
                 std::to_string(std::min(target.group_size_max, kGroupItemsMax)) + " in a group.");
      return;
    }
  }
}

}  // namespace

std::optional<EntryPoint> FindEntry(const Reflected& reflected, const std::string& name, ModuleFaults& faults) {
  const Module& module = reflected.module;
  const uint32_t model = module.flavour == Flavour::kShader ? spv::ExecutionModelGLCompute : spv::ExecutionModelKernel;
  std::string names;
  size_t count = 0;
  for (const Instruction& at : module.instructions) {
    if (at.opcode != spv::OpEntryPoint || module.Word(at, 0) != model) {
      continue;
    }
    const uint32_t id = module.Word(at, 1);
    const uint32_t function = id < reflected.structure.function_of.size() ? reflected.structure.function_of[id] : 0;
    const std::string found = module.Text(at, 2);
    if (function == 0) {
      faults.AddAt(at.at, Describe(at) + " names id " + std::to_string(id) + ", which is not a function.");
      return std::nullopt;
    }
    if (found == name) {
      return EntryPoint{function - 1, id, found};
    }
    if (++count <= kNamedMax) {
      names += (names.empty() ? "\"" : ", \"") + found + "\"";
    }
  }
  names += count > kNamedMax ? " and " + std::to_string(count - kNamedMax) + " more" : "";
  faults.Add("The module has no entry point \"" + name + "\" for compute; it has " + (count == 0 ? "none" : names) +
             ".");
  return std::nullopt;
}

void ReadGroup(const Reflected& reflected, const EntryPoint& entry, const GpuTarget& target, GpuVariant& variant,
               ModuleFaults& faults) {
  const std::optional<GroupSource> source = FindGroup(reflected, entry, faults);
  if (!source.has_value()) {
    if (reflected.module.flavour == Flavour::kShader && !faults.any()) {
      faults.Add("The entry \"" + entry.name +
                 "\" does not say how many work items its groups have (LocalSize, "
                 "LocalSizeId or the built-in WorkgroupSize).");
    }
    return;
  }
  const bool is_free = std::ranges::none_of(source->spec_id, [](uint32_t id) { return id == GpuVariant::kNoConstant; });
  // The launcher may choose the group size only if it may choose all of its extents.
  if (is_free && reflected.module.flavour == Flavour::kShader) {
    variant.group_constant = source->spec_id;
    return;
  }
  CheckGroup(source->size, target, faults);
  variant.group = source->size;
}

std::string NameOf(const ParamSpec& param) {
  if (param.is_buffer) {
    return param.is_writable ? "a buffer that is written" : "a buffer that is only read";
  }
  return "a scalar of type " + std::string(ir::Name(param.scalar));
}

}  // namespace hpvm::spirv
