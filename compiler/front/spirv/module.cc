// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/spirv/module.h"

#define SPV_ENABLE_UTILITY_CODE
#include <cstring>

#include "compiler/front/spirv/limits.h"

#include <spirv-tools/libspirv.h>
#include <spirv/unified1/spirv.hpp>

namespace hpvm::spirv {
namespace {

constexpr uint32_t kMagicSwapped = 0x03022307;
constexpr uint32_t kHeaderWords = 5;

uint32_t Swap(uint32_t word) { return __builtin_bswap32(word); }

std::string VersionText(uint32_t version) {
  return std::to_string(version >> 16 & 0xff) + "." + std::to_string(version >> 8 & 0xff);
}

// Returns the operand at which the literal string of such an instruction begins; the string must end inside the
// instruction.
std::optional<uint32_t> TextOperand(uint16_t opcode) {
  switch (opcode) {
    case spv::OpName:
    case spv::OpString:
    case spv::OpExtInstImport:
      return 1;
    case spv::OpMemberName:
    case spv::OpEntryPoint:
      return 2;
    case spv::OpExtension:
    case spv::OpSourceExtension:
    case spv::OpModuleProcessed:
    case spv::OpSourceContinued:
      return 0;
    default:
      return std::nullopt;
  }
}

bool EndsInside(const Module& module, const Instruction& instruction, uint32_t operand) {
  for (uint32_t i = operand; i + 1 < instruction.count; ++i) {
    const uint32_t word = module.Word(instruction, i);
    if ((word & 0xff) == 0 || (word & 0xff00) == 0 || (word & 0xff0000) == 0 || (word & 0xff000000) == 0) {
      return true;
    }
  }
  return false;
}

bool ReadHeader(std::span<const uint8_t> bytes, Module& module, ModuleFaults& faults) {
  if (bytes.size() > limits::kBytesMax) {
    faults.Add("The SPIR-V module has " + std::to_string(bytes.size()) + " bytes; the limit is " +
               std::to_string(limits::kBytesMax) + ".");
    return false;
  }
  if (bytes.size() % 4 != 0 || bytes.size() < kHeaderWords * 4) {
    faults.Add("The SPIR-V module has " + std::to_string(bytes.size()) +
               " bytes; whole words of 4 bytes, at least 5 of them, are needed: it is cut off or not SPIR-V.");
    return false;
  }
  module.words.resize(bytes.size() / 4);
  for (size_t i = 0; i < module.words.size(); ++i) {
    const uint8_t* byte = bytes.data() + i * 4;
    module.words[i] = static_cast<uint32_t>(byte[0]) | static_cast<uint32_t>(byte[1]) << 8 |
                      static_cast<uint32_t>(byte[2]) << 16 | static_cast<uint32_t>(byte[3]) << 24;
  }
  if (module.words[0] == kMagicSwapped) {
    for (uint32_t& word : module.words) {
      word = Swap(word);
    }
  }
  if (module.words[0] != spv::MagicNumber) {
    faults.Add("The file is not a SPIR-V module: it does not begin with SPIR-V's magic number (0x07230203).");
    return false;
  }
  module.version = module.words[1];
  module.bound = module.words[3];
  if ((module.version & 0xff0000ff) != 0 || module.version < 0x00010000 || module.version > 0x00010600) {
    faults.AddAt(1, "The SPIR-V version is " + VersionText(module.version) + "; 1.0 to 1.6 are accepted.");
    return false;
  }
  if (module.bound == 0 || module.bound > limits::kIdsMax) {
    faults.AddAt(3, "The SPIR-V module's id bound is " + std::to_string(module.bound) + "; 1 to " +
                        std::to_string(limits::kIdsMax) + " is allowed.");
    return false;
  }
  if (module.words[4] != 0) {
    faults.AddAt(4, "The SPIR-V module's schema is " + std::to_string(module.words[4]) + "; it must be 0.");
    return false;
  }
  return true;
}

bool ReadResult(Module& module, Instruction& instruction, ModuleFaults& faults) {
  bool has_result = false, has_type = false;
  spv::HasResultAndType(static_cast<spv::Op>(instruction.opcode), &has_result, &has_type);
  const uint32_t needed = 1u + has_result + has_type;
  if (instruction.count < needed) {
    faults.AddAt(instruction.at, Describe(instruction) + " has " + std::to_string(instruction.count) +
                                     " words; at least " + std::to_string(needed) + " are needed.");
    return false;
  }
  instruction.type = has_type ? module.Word(instruction, 0) : 0;
  instruction.result = has_result ? module.Word(instruction, has_type ? 1 : 0) : 0;
  if ((has_result && instruction.result == 0) || instruction.result >= module.bound ||
      instruction.type >= module.bound) {
    faults.AddAt(instruction.at,
                 Describe(instruction) + " names id " + std::to_string(std::max(instruction.result, instruction.type)) +
                     ", which is 0 or not below the module's bound (" + std::to_string(module.bound) + ").");
    return false;
  }
  if (instruction.result != 0) {
    uint32_t& defined = module.definition[instruction.result];
    if (defined != 0) {
      faults.AddAt(instruction.at, Describe(instruction) + " defines id " + std::to_string(instruction.result) +
                                       " again; " + Describe(module.instructions[defined - 1]) + " did.");
      return false;
    }
    defined = static_cast<uint32_t>(module.instructions.size()) + 1;
  }
  return true;
}

bool ReadInstruction(Module& module, uint32_t at, ModuleFaults& faults) {
  Instruction instruction;
  instruction.at = at;
  instruction.opcode = static_cast<uint16_t>(module.words[at] & 0xffff);
  instruction.count = static_cast<uint16_t>(module.words[at] >> 16);
  if (instruction.count == 0 || instruction.count > module.words.size() - at) {
    faults.AddAt(at, Describe(instruction) + " has a length of " + std::to_string(instruction.count) + " words, and " +
                         std::to_string(module.words.size() - at) + " are left: the module is cut off or damaged.");
    return false;
  }
  if (!ReadResult(module, instruction, faults)) {
    return false;
  }
  if (const std::optional<uint32_t> text = TextOperand(instruction.opcode);
      text.has_value() && !EndsInside(module, instruction, *text)) {
    faults.AddAt(at, Describe(instruction) + " has a string that does not end inside it.");
    return false;
  }
  module.instructions.push_back(instruction);
  return true;
}

}  // namespace

std::string Module::Text(const Instruction& instruction, uint32_t i) const {
  std::string text;
  for (; i + 1 < instruction.count; ++i) {
    for (int shift = 0; shift < 32; shift += 8) {
      const char byte = static_cast<char>(Word(instruction, i) >> shift & 0xff);
      if (byte == 0 || text.size() == limits::kNameBytesMax) {
        return text;
      }
      text += byte >= ' ' && byte <= '~' ? byte : '?';
    }
  }
  return text;
}

uint32_t Module::AfterText(const Instruction& instruction, uint32_t i) const {
  for (; i + 1 < instruction.count; ++i) {
    const uint32_t word = Word(instruction, i);
    if ((word & 0xff) == 0 || (word & 0xff00) == 0 || (word & 0xff0000) == 0 || (word & 0xff000000) == 0) {
      return i + 1;
    }
  }
  return i;
}

std::string OpcodeName(uint32_t opcode) {
  const char* name = spvOpcodeString(opcode);
  if (name == nullptr || std::strcmp(name, "unknown") == 0) {
    return "Instruction " + std::to_string(opcode);
  }
  return std::string("Op") + name;
}

std::string Describe(const Instruction& instruction) {
  return OpcodeName(instruction.opcode) + " at word " + std::to_string(instruction.at);
}

std::optional<Module> ReadWords(std::span<const uint8_t> bytes, ModuleFaults& faults) {
  Module module;
  if (!ReadHeader(bytes, module, faults)) {
    return std::nullopt;
  }
  module.definition.resize(module.bound);
  for (uint32_t at = kHeaderWords; at < module.words.size();) {
    if (!ReadInstruction(module, at, faults)) {
      return std::nullopt;
    }
    at += module.instructions.back().count;
  }
  return module;
}

}  // namespace hpvm::spirv
