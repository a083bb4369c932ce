// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
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

std::string TextOf(const SpecialisationConstant& constant) {
  char text[40];
  const auto end = constant.is_float ? std::to_chars(text, std::end(text), std::bit_cast<double>(constant.bits)).ptr
                                     : std::to_chars(text, std::end(text), static_cast<int64_t>(constant.bits)).ptr;
  return std::string(text, end);
}

// Returns the constant as an integer of `width` bits, signed or unsigned; nothing when it does not fit.
std::optional<uint64_t> IntegerBits(const SpecialisationConstant& constant, uint32_t width) {
  if (constant.is_float) {
    return std::nullopt;
  }
  if (width >= 64) {
    return constant.bits;
  }
  const auto value = static_cast<int64_t>(constant.bits);
  const bool fits = value >= -(int64_t{1} << (width - 1)) && value < (int64_t{1} << width);
  return fits ? std::optional(constant.bits) : std::nullopt;
}

std::optional<uint64_t> FloatBits(const SpecialisationConstant& constant, uint32_t width) {
  const double value = constant.is_float ? std::bit_cast<double>(constant.bits)
                                         : static_cast<double>(static_cast<int64_t>(constant.bits));
  if (width == 64) {
    return std::bit_cast<uint64_t>(value);
  }
  const bool fits = width == 32 && std::abs(value) <= std::numeric_limits<float>::max();
  return fits ? std::optional<uint64_t>(std::bit_cast<uint32_t>(static_cast<float>(value))) : std::nullopt;
}

std::optional<uint64_t> BitsFor(const Module& module, const Type& type, uint32_t type_id,
                                const SpecialisationConstant& constant) {
  if (type.kind == Type::Kind::kFloat) {
    return FloatBits(constant, type.width);
  }
  std::optional<uint64_t> bits = IntegerBits(constant, type.width);
  if (bits.has_value() && type.width < 32) {
    // Narrow literals are zero-extended or sign-extended to a word, as their type requires.
    const Instruction* declared = module.Find(type_id);
    const bool is_signed = declared != nullptr && module.Word(*declared, 2) == 1;
    const uint32_t shift = 64 - type.width;
    bits = is_signed ? static_cast<uint64_t>(static_cast<int64_t>(*bits << shift) >> shift) : *bits << shift >> shift;
  }
  return bits;
}

void Fix(Module& module, const Types& types, Instruction& at, const SpecialisationConstant& constant,
         ModuleFaults& faults) {
  const bool is_truth = at.opcode == spv::OpSpecConstantTrue || at.opcode == spv::OpSpecConstantFalse;
  const Type& type = types.of(at);
  const uint32_t words = type.width > 32 ? 2 : 1;
  if (!is_truth && (at.opcode != spv::OpSpecConstant || at.count != 3 + words ||
                    (type.kind != Type::Kind::kInt && type.kind != Type::Kind::kFloat))) {
    faults.AddAt(at.at, Describe(at) + " has the specialisation constant " + std::to_string(constant.id) +
                            " but is not a scalar that can be set.");
    return;
  }
  const std::optional<uint64_t> bits = is_truth ? IntegerBits(constant, 2) : BitsFor(module, type, at.type, constant);
  if (!bits.has_value() || (is_truth && *bits > 1)) {
    faults.Add("The specialisation constant " + std::to_string(constant.id) + " is " + types.Name(at.type) +
               ", which the document's value (" + TextOf(constant) + ") does not fit.");
    return;
  }
  if (is_truth) {
    SetOpcode(module, at, *bits != 0 ? spv::OpConstantTrue : spv::OpConstantFalse);
    return;
  }
  module.words[at.at + 3] = static_cast<uint32_t>(*bits);
  if (words == 2) {
    module.words[at.at + 4] = static_cast<uint32_t>(*bits >> 32);
  }
  SetOpcode(module, at, spv::OpConstant);
}

}  // namespace

void FixConstants(std::span<const SpecialisationConstant> constants, Reflected& reflected, ModuleFaults& faults) {
  Module& module = reflected.module;
  std::multimap<uint32_t, uint32_t> ids;  // Keyed by SpecId.
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
  // A fixed constant is no specialisation constant any more.
  RemoveIf(module, [&](const Instruction& at) {
    return at.opcode == spv::OpDecorate && at.count == 4 && module.Word(at, 1) == spv::DecorationSpecId &&
           fixed.contains(module.Word(at, 2));
  });
}

}  // namespace hpvm::spirv
