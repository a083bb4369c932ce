// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/wasm/testing/v128_golden.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>

#include "gtest/gtest.h"

namespace hpvm::wasm {
namespace {

// Returns true when the whole text is pairs of hexadecimal digits.
bool ParseHex(std::string_view text, std::vector<uint8_t>& bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  bytes.clear();
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    const size_t high = kDigits.find(text[i]), low = kDigits.find(text[i + 1]);
    if (high == std::string_view::npos || low == std::string_view::npos) {
      return false;
    }
    bytes.push_back(static_cast<uint8_t>(high * 16 + low));
  }
  return text.size() % 2 == 0;
}

bool ParseImmediate(const std::string& text, bool is_memory, V128Immediate& immediate) {
  immediate.text = text;
  if (text == "-") {
    return true;
  }
  if (text.size() == 32) {
    return ParseHex(text, immediate.bytes);
  }
  std::istringstream stream(text);
  uint32_t first = 0, second = 0;
  char colon = 0;
  stream >> first;
  const bool has_second = static_cast<bool>(stream >> colon >> second);
  immediate.offset = is_memory ? first : 0;
  immediate.lane = static_cast<uint8_t>(is_memory ? second : first);
  return is_memory || !has_second;
}

bool ParseCase(const std::string& line, V128Group& group) {
  std::istringstream stream(line);
  std::string word;
  std::vector<std::vector<uint8_t>> blocks;
  stream >> word;
  while (stream >> word) {
    blocks.emplace_back();
    if (!ParseHex(word, blocks.back()) || blocks.back().size() != 16) {
      return false;
    }
  }
  if (blocks.empty() || blocks.size() > 4) {
    return false;
  }
  std::array<uint8_t, kV128CaseBytes> memory{};
  for (size_t i = 0; i + 1 < blocks.size(); ++i) {
    std::copy(blocks[i].begin(), blocks[i].end(), memory.begin() + static_cast<ptrdiff_t>(16 * i));
  }
  std::fill(memory.begin() + kV128ResultAt, memory.end(), uint8_t{0x55});
  group.memory.insert(group.memory.end(), memory.begin(), memory.end());
  group.want.insert(group.want.end(), blocks.back().begin(), blocks.back().end());
  return true;
}

// Returns the size of a float lane when arithmetic computed it, else 0.
size_t FloatResultBytes(std::string_view name) {
  const size_t bytes = name.starts_with("f32x4.") ? 4 : name.starts_with("f64x2.") ? 8 : 0;
  constexpr std::string_view kArithmetic[] = {"add",  "sub",   "mul",   "div",     "min",    "max",    "sqrt",
                                              "ceil", "floor", "trunc", "nearest", "demote", "promote"};
  const std::string_view rest = bytes == 0 ? name : name.substr(6);
  const bool is_arithmetic = std::any_of(std::begin(kArithmetic), std::end(kArithmetic),
                                         [&](std::string_view start) { return rest.starts_with(start); });
  return is_arithmetic ? bytes : 0;
}

template <typename F>
bool IsNan(const uint8_t* bytes) {
  F value;
  std::memcpy(&value, bytes, sizeof(value));
  return std::isnan(value);
}

}  // namespace

std::vector<V128Group> ReadV128Golden(const std::string& path) {
  std::ifstream file(path);
  std::vector<V128Group> groups;
  std::string line, name;
  size_t number = 0;
  while (std::getline(file, line)) {
    ++number;
    if (line.starts_with("op ")) {
      name = line.substr(3);
      continue;
    }
    const std::string immediate = line.substr(0, line.find(' '));
    if (groups.empty() || groups.back().name != name || groups.back().immediate.text != immediate) {
      groups.push_back({.name = name, .immediate = {}, .memory = {}, .want = {}});
      const bool is_memory = name.starts_with("v128.load") || name.starts_with("v128.store");
      if (!ParseImmediate(immediate, is_memory, groups.back().immediate)) {
        ADD_FAILURE() << path << ", line " << number << ": \"" << immediate << "\" is no immediate.";
        return {};
      }
    }
    if (!ParseCase(line, groups.back())) {
      ADD_FAILURE() << path << ", line " << number << " is no case.";
      return {};
    }
  }
  EXPECT_FALSE(groups.empty()) << path << " holds no cases.";
  return groups;
}

bool IsV128Arithmetic(std::string_view instruction) { return FloatResultBytes(instruction) != 0; }

bool SameV128(std::string_view instruction, const uint8_t* found, const uint8_t* want) {
  const size_t bytes = FloatResultBytes(instruction);
  const size_t step = bytes == 0 ? 16 : bytes;
  for (size_t at = 0; at < 16; at += step) {
    const bool both_nan = (bytes == 4 && IsNan<float>(found + at) && IsNan<float>(want + at)) ||
                          (bytes == 8 && IsNan<double>(found + at) && IsNan<double>(want + at));
    if (!both_nan && std::memcmp(found + at, want + at, step) != 0) {
      return false;
    }
  }
  return true;
}

std::string HexOf(const uint8_t* bytes, size_t count) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    text += kDigits[bytes[i] / 16];
    text += kDigits[bytes[i] % 16];
  }
  return text;
}

}  // namespace hpvm::wasm
