// SPDX-License-Identifier: Apache-2.0
// A SPIR-V module as words that have been checked once: every instruction lies inside the module, has all words that
// we read of it, names ids below the bound, and is on the list of accepted instructions (allow.h).
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
  kBoth = 3,    // Only in the lists of accepted items.
};

// Collects faults, each with the offset of the instruction at fault where there is one.
class ModuleFaults {
 public:
  ModuleFaults(std::string_view module_name, Diagnostics& out)
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
  uint16_t count = 0;   // Number of words, including the first.
  uint32_t result = 0;  // Result id; 0 when the instruction has none.
  uint32_t type = 0;    // Type id of the result; 0 when there is none.
};

struct Module {
  std::vector<uint32_t> words;
  uint32_t version = 0;  // 0x00010300 is 1.3.
  uint32_t bound = 0;    // All ids are smaller.
  Flavour flavour = Flavour::kNowhere;
  std::vector<Instruction> instructions;
  std::vector<uint32_t> definition;  // Indexed by id: index of the defining instruction + 1; 0 when there is none.

  // Returns operand `i`, counted after the first word and including result type and result; 0 when there is none.
  uint32_t Word(const Instruction& instruction, uint32_t i) const {
    return i + 1 < instruction.count ? words[instruction.at + 1 + i] : 0;
  }
  const Instruction* Find(uint32_t id) const {
    return id < definition.size() && definition[id] != 0 ? &instructions[definition[id] - 1] : nullptr;
  }
  // Returns the literal string that starts at operand `i`, cut at kNameBytesMax, with '?' for unprintable characters.
  std::string Text(const Instruction& instruction, uint32_t i) const;
  // Returns the index of the operand after that string.
  uint32_t AfterText(const Instruction& instruction, uint32_t i) const;
};

// Returns text such as "OpTypeImage at word 120".
std::string Describe(const Instruction& instruction);
// Returns a name such as "OpTypeImage".
std::string OpcodeName(uint32_t opcode);

// Reads the words and checks only their structure; stops at the first fault.
std::optional<Module> ReadWords(std::span<const uint8_t> bytes, ModuleFaults& faults);

}  // namespace hpvm::spirv

#endif  // HPVMD_COMPILER_FRONT_SPIRV_MODULE_H_
