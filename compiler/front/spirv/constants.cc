// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <set>

#include "compiler/front/spirv/interface.h"

#include <spirv/unified1/spirv.hpp>

namespace hpvm::spirv {
namespace {

void SetOpcode(Module& module, Instruction& at, uint16_t opcode) {
  at.opcode = opcode;
  module.words[at.at] = (module.words[at.at] & 0xffff0000u) | opcode;
}

template <typename Predicate>
void RemoveIf(Module& module, Predicate is_removed) {
  constexpr size_t kHeaderWords = 5;
  std::vector<uint32_t> words(module.words.begin(), module.words.begin() + kHeaderWords);
  std::vector<Instruction> kept;
  module.definition.assign(module.bound, 0);
  for (Instruction at : module.instructions) {
    if (is_removed(at)) {
      continue;
    }
    const auto first = module.words.begin() + at.at;
    at.at = static_cast<uint32_t>(words.size());
    words.insert(words.end(), first, first + at.count);
    kept.push_back(at);
    if (at.result != 0) {
      module.definition[at.result] = static_cast<uint32_t>(kept.size());
    }
  }
  module.words = std::move(words);
  module.instructions = std::move(kept);
}

// Whether a constant of `width` bits can hold the number, as unsigned or sign-extended bits.
bool Fits(uint64_t bits, uint32_t width) {
  if (width >= 64) {
    return true;
  }
  const uint64_t high = bits >> width;
  return high == 0 || high == UINT64_MAX >> width;
}

void Fix(Module& module, const Types& types, Instruction& at, const SpecialisationConstant& constant, Faults& faults) {
  if (at.opcode == spv::OpSpecConstantTrue || at.opcode == spv::OpSpecConstantFalse) {
    SetOpcode(module, at, constant.bits != 0 ? spv::OpConstantTrue : spv::OpConstantFalse);
    return;
  }
  const Type& type = types.of(at);
  const uint32_t words = type.width > 32 ? 2 : 1;
  if (at.opcode != spv::OpSpecConstant || at.count != 3 + words) {
    faults.AddAt(at.at, Describe(at) + " has the specialisation constant " + std::to_string(constant.id) +
                            " but is no scalar that can be set.");
    return;
  }
  if (!Fits(constant.bits, type.width)) {
    faults.Add("The specialisation constant " + std::to_string(constant.id) + " is " + types.Name(at.type) +
               "; the document's value does not fit it.");
    return;
  }
  uint64_t bits = constant.bits;
  if (type.width < 32) {
    // Narrow literals are zero- or sign-extended to a word, as their type says.
    const Instruction* declared = module.Find(at.type);
    const bool is_signed = type.kind == Type::Kind::kInt && declared != nullptr && module.Word(*declared, 2) == 1;
    const uint32_t shift = 64 - type.width;
    bits = is_signed ? static_cast<uint64_t>(static_cast<int64_t>(bits << shift) >> shift) : bits << shift >> shift;
  }
  module.words[at.at + 3] = static_cast<uint32_t>(bits);
  if (words == 2) {
    module.words[at.at + 4] = static_cast<uint32_t>(bits >> 32);
  }
  SetOpcode(module, at, spv::OpConstant);
}

}  // namespace

void FixConstants(std::span<const SpecialisationConstant> constants, Reflected& reflected, Faults& faults) {
  Module& module = reflected.module;
  std::multimap<uint32_t, uint32_t> ids;  // By SpecId.
  std::set<uint32_t> fixed;
  for (const auto& [id, number] : reflected.notes.All(spv::DecorationSpecId)) {
    ids.emplace(number, id);
  }
  for (const SpecialisationConstant& constant : constants) {
    auto [at, last] = ids.equal_range(constant.id);
    if (at == last) {
      std::string known;
      for (auto item = ids.begin(); item != ids.end() && known.size() < 100; item = ids.upper_bound(item->first)) {
        known += (known.empty() ? "" : ", ") + std::to_string(item->first);
      }
      faults.Add("The module has no specialisation constant " + std::to_string(constant.id) + "; it has " +
                 (known.empty() ? "none" : known) + ".");
      continue;
    }
    for (; at != last; ++at) {
      if (module.Find(at->second) != nullptr) {
        Fix(module, reflected.types, module.instructions[module.definition[at->second] - 1], constant, faults);
      }
    }
    fixed.insert(constant.id);
  }
  // What is fixed is no specialisation constant any more.
  RemoveIf(module, [&](const Instruction& at) {
    return at.opcode == spv::OpDecorate && at.count == 4 && module.Word(at, 1) == spv::DecorationSpecId &&
           fixed.contains(module.Word(at, 2));
  });
}

}  // namespace hpvm::spirv
