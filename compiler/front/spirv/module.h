// SPDX-License-Identifier: Apache-2.0
// A SPIR-V module as words that have been looked at once: every instruction lies inside the module, has as many words
// as we read of it, names ids below the bound, and stands on the list of what is taken (allow.h).
#ifndef HPVMD_COMPILER_FRONT_SPIRV_MODULE_H_
#define HPVMD_COMPILER_FRONT_SPIRV_MODULE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"

namespace hpvm::spirv {

enum class Flavour : uint8_t {
  kNowhere = 0,
  kShader = 1,  // Vulkan: capability Shader, logical addressing.
  kKernel = 2,  // OpenCL: capability Kernel, physical addressing.
  kBoth = 3,    // In lists of what is taken.
};

// Collects what is wrong, with the instruction where one is to blame.
class Faults {
 public:
  Faults(std::string_view module_name, Diagnostics& out)
      : place_("module \"" + std::string(module_name) + "\""), out_(out) {}
  void Add(std::string message) { out_.push_back({Severity::kError, place_, {}, std::move(message)}); }
  void AddAt(uint32_t word, std::string message) {
    out_.push_back({Severity::kError, place_, uint64_t{word} * 4, std::move(message)});
  }
  bool any() const { return HasErrors(out_); }

 private:
  std::string place_;
  Diagnostics& out_;
};

struct Instruction {
  uint32_t at = 0;      // Word offset in the module.
  uint16_t opcode = 0;  // spv::Op.
  uint16_t count = 0;   // Words, the first included.
  uint32_t result = 0;  // Id; 0: none.
  uint32_t type = 0;    // Of the result; 0: none.
};

struct Module {
  std::vector<uint32_t> words;
  uint32_t version = 0;  // 0x00010300 is 1.3.
  uint32_t bound = 0;    // Ids are below.
  Flavour flavour = Flavour::kNowhere;
  std::vector<Instruction> instructions;
  std::vector<uint32_t> definition;  // By id: its instruction + 1; 0: none.

  // Operand `i` of what stands behind the first word, result type and result included; 0 where there is none.
  uint32_t Word(const Instruction& instruction, uint32_t i) const {
    return i + 1 < instruction.count ? words[instruction.at + 1 + i] : 0;
  }
  const Instruction* Find(uint32_t id) const {
    return id < definition.size() && definition[id] != 0 ? &instructions[definition[id] - 1] : nullptr;
  }
  // The literal string from operand `i` on: cut at kNameBytesMax, with what cannot be printed as '?'.
  std::string Text(const Instruction& instruction, uint32_t i) const;
  // The operand behind that string.
  uint32_t AfterText(const Instruction& instruction, uint32_t i) const;
};

// "OpTypeImage at word 120".
std::string Describe(const Instruction& instruction);
// "OpTypeImage".
std::string OpcodeName(uint32_t opcode);

// Reads the words and nothing but their shape; stops at the first fault.
std::optional<Module> ReadWords(std::span<const uint8_t> bytes, Faults& faults);

}  // namespace hpvm::spirv

#endif  // HPVMD_COMPILER_FRONT_SPIRV_MODULE_H_
