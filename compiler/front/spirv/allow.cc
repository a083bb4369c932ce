// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/spirv/allow.h"

#include <algorithm>
#include <iterator>

#include <spirv/unified1/spirv.hpp>

namespace hpvm::spirv {
namespace {

// The feature that an accepted item needs from the device, or the reason why an item is refused.
enum class Rule : uint8_t {
  kNothing,
  kFp64,
  kInt64,
  kInt64Atomics,
  k8Bit,
  k16Bit,
  kDenormals,
  kNanAndZero,
  kSubgroups,
  kIl20,
  // Items under the following rules are refused.
  kHalf,
  kImages,
  kQueues,
  kGraphics,
  kVariablePointers,
  kPhysicalPointers,
  kRayTracing,
  kMesh,
  kMatrices,
  kOther,
};

const char* Reason(Rule rule) {
  // Starts at Rule::kHalf.
  constexpr const char* kReasons[] = {
      "arithmetic on 16-bit floats is not offered by every device",
      "kernels get buffers and scalars, and neither images nor samplers",
      "kernels may not start other kernels or use pipes and events",
      "it belongs to graphics, and only compute runs here",
      "pointers that are chosen at run time (variable pointers) escape the bounds checks of the device",
      "physical storage pointers reach any address of the device",
      "ray tracing is not offered",
      "mesh shaders belong to graphics, and only compute runs here",
      "cooperative matrices are not offered by every device",
      "it is not on the list of accepted features",
  };
  const Rule said = rule < Rule::kHalf ? Rule::kOther : rule;
  return kReasons[static_cast<size_t>(said) - static_cast<size_t>(Rule::kHalf)];
}

// Returns the name of the missing feature; empty when the device has it.
const char* Missing(Rule rule, const GpuTarget& target) {
  switch (rule) {
    case Rule::kFp64:
      return target.has_fp64 ? "" : "64-bit floats";
    case Rule::kInt64:
      return target.has_int64 ? "" : "64-bit integers";
    case Rule::kInt64Atomics:
      return target.has_int64_atomics ? "" : "64-bit atomic operations";
    case Rule::k8Bit:
      return target.has_8_bit_storage ? "" : "8-bit integers";
    case Rule::k16Bit:
      return target.has_16_bit_storage ? "" : "16-bit integers";
    case Rule::kDenormals:
      return target.keeps_denormals ? "" : "a promise to keep denormal numbers";
    case Rule::kNanAndZero:
      return target.keeps_nan_and_zero ? "" : "a promise to keep signed zeros, infinities and NaNs";
    case Rule::kSubgroups:
      return target.subgroup_size > 1 ? "" : "subgroups";
    case Rule::kIl20:
      return target.kernel_il == GpuFormat::kSpirvKernel && target.api_version >= 200 ? ""
                                                                                      : "generic pointers (OpenCL 2.0)";
    default:
      return "";
  }
}

struct Capability {
  const char* name;
  uint32_t number;
  Flavour flavours;
  Rule rule;
};
constexpr Capability kCapabilities[] = {
#define HPVMD_SPIRV_CAPABILITY(name, number, flavours, rule) {#name, number, Flavour::flavours, Rule::rule},
#include "compiler/front/spirv/capabilities.def"
#undef HPVMD_SPIRV_CAPABILITY
};

constexpr std::string_view kExtensions[] = {
    "SPV_GOOGLE_decorate_string",
    "SPV_GOOGLE_hlsl_functionality1",
    "SPV_GOOGLE_user_type",
    "SPV_KHR_16bit_storage",
    "SPV_KHR_8bit_storage",
    "SPV_KHR_float_controls",
    "SPV_KHR_non_semantic_info",
    "SPV_KHR_no_integer_wrap_decoration",
    "SPV_KHR_storage_buffer_storage_class",
};

constexpr uint32_t kPrintf = 184;  // In OpenCL.std.

struct Set {
  std::string_view name;
  Flavour flavours;
};
constexpr Set kSets[] = {
    {"GLSL.std.450", Flavour::kShader},
    {"OpenCL.std", Flavour::kKernel},
    {"OpenCL.DebugInfo.100", Flavour::kKernel},
    {"NonSemantic.Shader.DebugInfo.100", Flavour::kShader},
    {"NonSemantic.ClspvReflection.1", Flavour::kShader},
};

struct Range {
  uint32_t first, last;
  Flavour flavours;
  Rule rule = Rule::kNothing;
};
constexpr Flavour kNo = Flavour::kNowhere, kS = Flavour::kShader, kK = Flavour::kKernel, kB = Flavour::kBoth;
// Ranges of opcodes, sorted; a number outside every range is on no list.
constexpr Range kInstructions[] = {
    {0, 1, kB},    // OpNop, OpUndef.
    {2, 8, kB},    // Source, names, lines.
    {10, 12, kB},  // Extensions.
    {14, 17, kB},  // Modes.
    {19, 23, kB},  // Types: void, bool, int, float, vector;
    {24, 24, kS},  // matrix;
    {25, 27, kNo, Rule::kImages},
    {28, 28, kB},  // array;
    {29, 29, kS},  // array without length;
    {30, 30, kB},  // struct;
    {32, 33, kB},  // pointer, function;
    {34, 34, kK},  // event, of copies within a group.
    {35, 38, kNo, Rule::kQueues},
    {39, 39, kNo, Rule::kPhysicalPointers},
    {41, 44, kB},  // Constants.
    {45, 45, kNo, Rule::kImages},
    {46, 46, kB},
    {48, 52, kB},
    {54, 57, kB},  // Functions.
    {59, 59, kB},  // Memory.
    {60, 60, kNo, Rule::kImages},
    {61, 63, kB},
    {64, 64, kK},  // OpCopyMemorySized.
    {65, 66, kB},
    {67, 67, kK},  // OpPtrAccessChain.
    {68, 68, kS},  // OpArrayLength.
    {69, 70, kK},
    {71, 75, kB},  // Decorations.
    {77, 83, kB},  // Composites.
    {84, 84, kS},  // OpTranspose.
    {86, 107, kNo, Rule::kImages},
    {109, 116, kB},  // Conversions.
    {117, 123, kK},  // Between integers and pointers, and between kinds of pointers.
    {124, 124, kB},
    {126, 142, kB},  // Arithmetic.
    {143, 147, kS},  // Arithmetic on matrices.
    {148, 152, kB},
    {154, 157, kB},  // Comparisons.
    {158, 163, kK},
    {164, 191, kB},
    {194, 205, kB},  // Bits.
    {207, 215, kNo, Rule::kGraphics},
    {218, 221, kNo, Rule::kGraphics},
    {224, 225, kB},  // Barriers.
    {227, 230, kB},  // Atomics.
    {231, 231, kK},
    {232, 242, kB},
    {245, 251, kB},  // Control.
    {252, 252, kNo, Rule::kGraphics},
    {253, 255, kB},
    {256, 257, kK},  // Lifetimes.
    {259, 260, kK},  // Copies by a group.
    {261, 271, kNo, Rule::kOther},
    {274, 304, kNo, Rule::kQueues},
    {305, 316, kNo, Rule::kImages},
    {317, 317, kB},  // OpNoLine.
    {318, 319, kK},  // Flags.
    {320, 320, kNo, Rule::kImages},
    {322, 326, kNo, Rule::kQueues},
    {330, 332, kB},  // OpModuleProcessed, modes and decorations with id operands.
    {333, 364, kS},  // Subgroups.
    {400, 400, kB},  // OpCopyLogical.
    {401, 403, kNo, Rule::kVariablePointers},
    {4416, 4416, kNo, Rule::kGraphics},
    {4445, 4449, kNo, Rule::kRayTracing},
    {4456, 4460, kNo, Rule::kMatrices},
    {4472, 4479, kNo, Rule::kRayTracing},
    {5294, 5299, kNo, Rule::kMesh},
    {5334, 5351, kNo, Rule::kRayTracing},
    {5358, 5362, kNo, Rule::kMatrices},
    {5632, 5633, kB},  // Decorations with string operands.
    {6016, 6032, kNo, Rule::kRayTracing},
};

bool Takes(Flavour taken, Flavour flavour) {
  return (static_cast<uint8_t>(taken) & static_cast<uint8_t>(flavour)) == static_cast<uint8_t>(flavour);
}

const char* WhatIs(Flavour flavour) { return flavour == Flavour::kShader ? "a Vulkan shader" : "an OpenCL kernel"; }

std::string OfTheOther(Flavour flavour) {
  return std::string("it belongs in ") + WhatIs(flavour == Flavour::kShader ? Flavour::kKernel : Flavour::kShader) +
         ", and this module is " + WhatIs(flavour);
}

void CheckCapability(const Module& module, const Instruction& instruction, const GpuTarget& target,
                     ModuleFaults& faults) {
  const uint32_t number = module.Word(instruction, 0);
  const auto* found = std::find_if(std::begin(kCapabilities), std::end(kCapabilities),
                                   [&](const Capability& item) { return item.number == number; });
  if (found == std::end(kCapabilities)) {
    faults.AddAt(instruction.at, Describe(instruction) + " declares capability " + std::to_string(number) +
                                     ", which hpvmd does not know.");
    return;
  }
  const std::string begin = Describe(instruction) + " declares " + found->name;
  if (found->flavours == Flavour::kNowhere) {
    faults.AddAt(instruction.at, begin + ", which is refused: " + Reason(found->rule) + ".");
  } else if (!Takes(found->flavours, module.flavour)) {
    faults.AddAt(instruction.at, begin + ", which is refused: " + OfTheOther(module.flavour) + ".");
  } else if (const std::string_view missing = Missing(found->rule, target); !missing.empty()) {
    faults.AddAt(instruction.at, begin + ", but the device lacks " + std::string(missing) + ".");
  }
}

void CheckInstruction(const Module& module, const Instruction& instruction, ModuleFaults& faults) {
  const auto* range = std::lower_bound(std::begin(kInstructions), std::end(kInstructions), instruction.opcode,
                                       [](const Range& item, uint32_t opcode) { return item.last < opcode; });
  const bool is_listed = range != std::end(kInstructions) && range->first <= instruction.opcode;
  if (is_listed && Takes(range->flavours, module.flavour)) {
    return;
  }
  const bool is_of_other = is_listed && range->flavours != Flavour::kNowhere;
  // In shaders, such pointers come only from physical storage.
  const bool makes_pointer = instruction.opcode == spv::OpConvertUToPtr || instruction.opcode == spv::OpConvertPtrToU;
  const std::string why = is_of_other && makes_pointer                                 ? Reason(Rule::kPhysicalPointers)
                          : is_of_other && instruction.opcode == spv::OpPtrAccessChain ? Reason(Rule::kVariablePointers)
                          : is_of_other                                                ? OfTheOther(module.flavour)
                                        : Reason(is_listed ? range->rule : Rule::kOther);
  faults.AddAt(instruction.at, Describe(instruction) + " is refused: " + why + ".");
}

void CheckSet(const Module& module, const Instruction& instruction, ModuleFaults& faults) {
  const std::string name = module.Text(instruction, 1);
  for (const Set& set : kSets) {
    if (set.name == name && Takes(set.flavours, module.flavour)) {
      return;
    }
  }
  const bool prints = name == "NonSemantic.DebugPrintf";
  faults.AddAt(
      instruction.at,
      Describe(instruction) + " imports the instruction set \"" + name + "\", which is refused: " +
          (prints ? "modules that are native to a device may not print." : "it is not on the list of accepted sets."));
}

void CheckExtInst(const Module& module, const Instruction& instruction, ModuleFaults& faults) {
  const Instruction* set = module.Find(module.Word(instruction, 2));
  if (set == nullptr || set->opcode != spv::OpExtInstImport) {
    faults.AddAt(instruction.at, Describe(instruction) + " names id " + std::to_string(module.Word(instruction, 2)) +
                                     ", which is not an instruction set.");
  } else if (module.Text(*set, 1) == "OpenCL.std" && module.Word(instruction, 3) == kPrintf) {
    faults.AddAt(
        instruction.at,
        Describe(instruction) + " calls printf, which is refused: modules that are native to a device may not print.");
  }
}

// Refuses a symbol that another module would have to provide. Built-in variables are declared as imports, too.
void CheckImport(const Module& module, const Instruction& instruction, ModuleFaults& faults) {
  if (module.flavour != Flavour::kKernel || module.Word(instruction, 1) != spv::DecorationLinkageAttributes ||
      module.Word(instruction, module.AfterText(instruction, 2)) != spv::LinkageTypeImport) {
    return;
  }
  const Instruction* target = module.Find(module.Word(instruction, 0));
  if (target == nullptr || target->opcode != spv::OpVariable || module.Word(*target, 2) != spv::StorageClassInput) {
    faults.AddAt(instruction.at, Describe(instruction) + " imports \"" + module.Text(instruction, 2) +
                                     "\"; a module must be complete.");
  }
}

void CheckOne(const Module& module, const Instruction& instruction, const GpuTarget& target, ModuleFaults& faults) {
  CheckInstruction(module, instruction, faults);
  switch (instruction.opcode) {
    case spv::OpCapability:
      return CheckCapability(module, instruction, target, faults);
    case spv::OpExtension: {
      const std::string name = module.Text(instruction, 0);
      if (std::find(std::begin(kExtensions), std::end(kExtensions), name) == std::end(kExtensions)) {
        const bool is_physical = name.find("physical_storage") != std::string::npos;
        faults.AddAt(instruction.at, Describe(instruction) + " asks for \"" + name + "\", which is refused: " +
                                         Reason(is_physical ? Rule::kPhysicalPointers : Rule::kOther) + ".");
      }
      return;
    }
    case spv::OpExtInstImport:
      return CheckSet(module, instruction, faults);
    case spv::OpExtInst:
      return CheckExtInst(module, instruction, faults);
    case spv::OpDecorate:
      return CheckImport(module, instruction, faults);
    default:
      return;
  }
}

}  // namespace

void FindFlavour(Module& module, ModuleFaults& faults) {
  bool is_shader = false, is_kernel = false;
  const Instruction* last = nullptr;
  for (const Instruction& instruction : module.instructions) {
    if (instruction.opcode == spv::OpCapability) {
      is_shader = is_shader || module.Word(instruction, 0) == spv::CapabilityShader;
      is_kernel = is_kernel || module.Word(instruction, 0) == spv::CapabilityKernel;
      last = &instruction;
    }
  }
  if (is_shader == is_kernel) {
    faults.AddAt(last == nullptr ? 5 : last->at,
                 std::string("The SPIR-V module declares ") + (is_shader ? "both of" : "neither of") +
                     " the capabilities Shader (Vulkan) and Kernel (OpenCL); exactly one is needed.");
    return;
  }
  module.flavour = is_shader ? Flavour::kShader : Flavour::kKernel;
}

void CheckAllowed(const Module& module, const GpuTarget& target, ModuleFaults& faults) {
  // One fault tells what to change; a module may have thousands of the same kind.
  for (size_t i = 0; i < module.instructions.size() && !faults.any(); ++i) {
    CheckOne(module, module.instructions[i], target, faults);
  }
}

}  // namespace hpvm::spirv
