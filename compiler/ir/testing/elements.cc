// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/testing/elements.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <sstream>

namespace hpvm::ir::testing {
namespace {

struct ElementInfo {
  Element element;
  std::string_view name;
  uint32_t bytes;
};
constexpr ElementInfo kElements[] = {
    {Element::kI8, "i8", 1},   {Element::kU8, "u8", 1},   {Element::kI16, "i16", 2}, {Element::kU16, "u16", 2},
    {Element::kI32, "i32", 4}, {Element::kU32, "u32", 4}, {Element::kI64, "i64", 8}, {Element::kU64, "u64", 8},
    {Element::kF32, "f32", 4}, {Element::kF64, "f64", 8},
};
const ElementInfo& InfoOf(Element element) { return kElements[static_cast<size_t>(element)]; }

// Runs of at least this length are written "x * n".
constexpr uint64_t kRepeatMin = 9;
constexpr uint64_t kCountMax = 1 << 24;

template <typename T>
bool ParseWhole(const std::string& text, T* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

bool ParseBits(Element element, const std::string& text, uint64_t* bits) {
  if (element == Element::kF32) {
    float value = 0;
    const bool ok = ParseWhole(text, &value);
    *bits = std::bit_cast<uint32_t>(value);
    return ok;
  }
  if (element == Element::kF64) {
    double value = 0;
    const bool ok = ParseWhole(text, &value);
    *bits = std::bit_cast<uint64_t>(value);
    return ok;
  }
  int64_t value = 0;
  if (!text.empty() && text[0] == '-') {
    const bool ok = ParseWhole(text, &value);
    *bits = static_cast<uint64_t>(value);
    return ok;
  }
  return ParseWhole(text, bits);
}

template <typename F>
std::string FloatText(F value) {
  if (std::isnan(value)) {
    return "nan";  // Sign and payload are unspecified.
  }
  char text[64];
  return {text, std::to_chars(text, text + sizeof(text), value).ptr};
}

int64_t SignExtend(uint64_t bits, uint32_t bytes) {
  const uint32_t shift = 64 - bytes * 8;
  return static_cast<int64_t>(bits << shift) >> shift;
}

std::string Text(Element element, uint64_t bits) {
  switch (element) {
    case Element::kF32:
      return FloatText(std::bit_cast<float>(static_cast<uint32_t>(bits)));
    case Element::kF64:
      return FloatText(std::bit_cast<double>(bits));
    case Element::kU8:
    case Element::kU16:
    case Element::kU32:
    case Element::kU64:
      return std::to_string(bits);
    default:
      return std::to_string(SignExtend(bits, InfoOf(element).bytes));
  }
}

}  // namespace

void Elements::Append(uint64_t bits) {
  const uint32_t size = InfoOf(element_).bytes;
  words_.resize((bytes_ + size + 7) / 8);
  std::memcpy(data() + bytes_, &bits, size);
  bytes_ += size;
}

uint64_t Elements::At(uint64_t index) const {
  const uint32_t size = InfoOf(element_).bytes;
  uint64_t bits = 0;
  std::memcpy(&bits, reinterpret_cast<const uint8_t*>(words_.data()) + index * size, size);
  return bits;
}

std::string Elements::ToString() const {
  std::string text(InfoOf(element_).name);
  const uint64_t count = bytes_ / InfoOf(element_).bytes;
  for (uint64_t i = 0; i < count;) {
    uint64_t end = i + 1;
    while (end < count && At(end) == At(i)) {
      ++end;
    }
    const uint64_t step = end - i >= kRepeatMin ? end - i : 1;
    text += ' ' + Text(element_, At(i)) + (step > 1 ? " * " + std::to_string(step) : "");
    i += step;
  }
  return text;
}

StatusOr<Elements> ParseElements(std::string_view text) {
  std::istringstream stream{std::string(text)};
  std::string word;
  stream >> word;
  Elements elements;
  if (word == "claim" && stream >> word && ParseWhole(word, &elements.claimed_bytes_)) {
    elements.words_.resize(1);
    return elements;
  }
  bool found = false;
  for (const ElementInfo& info : kElements) {
    if (word == info.name) {
      elements.element_ = info.element;
      found = true;
    }
  }
  if (!found) {
    return InvalidArgument("\"" + word + "\" is no element type.");
  }
  uint64_t bits = 0;
  while (stream >> word) {
    uint64_t count = 0;
    if (word == "*" && stream >> word && ParseWhole(word, &count) && count > 0 && count <= kCountMax) {
      for (uint64_t i = 1; i < count; ++i) {
        elements.Append(bits);
      }
    } else if (ParseBits(elements.element_, word, &bits)) {
      elements.Append(bits);
    } else {
      return InvalidArgument("\"" + word + "\" is no element of that type.");
    }
  }
  return elements;
}

}  // namespace hpvm::ir::testing
