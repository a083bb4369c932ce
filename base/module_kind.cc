// SPDX-License-Identifier: Apache-2.0
#include "base/module_kind.h"

#include <algorithm>
#include <cstring>

namespace hpvm {

// The first declared capability decides.
size_t SpirvFormOf(std::span<const uint8_t> bytes) {
  constexpr uint32_t kMagic = 0x07230203, kHeaderWords = 5, kOpCapability = 17, kShader = 1, kKernel = 6;
  const auto word = [&](size_t i) {
    uint32_t value;
    std::memcpy(&value, bytes.data() + i * 4, 4);
    return value;
  };
  const size_t words = bytes.size() / 4;
  if (words < kHeaderWords || word(0) != kMagic) {
    return 0;
  }
  for (size_t i = kHeaderWords; i + 1 < words && (word(i) & 0xffff) == kOpCapability; i += 2) {
    if (word(i + 1) == kShader || word(i + 1) == kKernel) {
      return word(i + 1) == kKernel ? 1 : 0;
    }
  }
  return 0;
}

const NativeForm* FormOf(const ModuleKindRow& kind, std::span<const uint8_t> bytes) {
  return kind.forms.empty() ? nullptr : &kind.forms[kind.form_of == nullptr ? 0 : kind.form_of(bytes)];
}

ModuleKind GuessKind(std::string_view file) {
  const auto begins = [&](std::string_view magic) { return file.starts_with(magic); };
  return std::ranges::find_if(kModuleKinds, [&](const auto& row) { return std::ranges::any_of(row.magic, begins); })
      ->kind;
}

std::string NamesOfKinds(std::string_view takes) {
  std::string names;
  for (const ModuleKindRow& row : kModuleKinds) {
    if (row.takes == takes) {
      names += (names.empty() ? "\"" : " or \"") + std::string(row.name) + "\"";
    }
  }
  return names;
}

}  // namespace hpvm
