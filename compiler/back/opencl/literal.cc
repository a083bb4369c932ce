// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/opencl/literal.h"

#include <bit>
#include <charconv>
#include <cmath>

#include "compiler/back/opencl/cat.h"

namespace hpvm::opencl {
namespace {

// Numbers up to this limit are written in decimal for readability.
constexpr uint64_t kDecimalMax = 1 << 20;

std::string Integer(uint64_t bits, std::string_view suffix) {
  return bits <= kDecimalMax ? Cat(bits, suffix) : Cat(Hex(bits), suffix);
}

// Returns the shortest digits that read back as the same value; compilers round decimals correctly.
template <typename F>
std::string Float(F value) {
  char text[64];
  const auto [end, error] = std::to_chars(text, text + sizeof(text), value);
  std::string digits(text, end);
  if (digits.find_first_of(".e") == std::string::npos) {
    digits += ".0";
  }
  return std::signbit(value) ? "(" + digits : digits;
}

}  // namespace

std::string_view TypeName(ir::Type type) {
  return ir::IsInt(type) ? (ir::Bytes(type) == 4 ? "uint" : "ulong") : (ir::Bytes(type) == 4 ? "float" : "double");
}

std::string_view SignedName(ir::Type type) { return ir::Bytes(type) == 4 ? "int" : "long"; }

std::string Literal(ir::Type type, uint64_t bits) {
  switch (type) {
    case ir::Type::kI32:
      return Integer(bits & 0xffffffffull, "u");
    case ir::Type::kI64:
      return Integer(bits, "ul");
    case ir::Type::kF32: {
      const float value = std::bit_cast<float>(static_cast<uint32_t>(bits));
      if (!std::isfinite(value)) {
        return Cat("as_float(", Hex(bits & 0xffffffffull), "u)");
      }
      return Cat(Float(value), std::signbit(value) ? "f)" : "f");
    }
    default: {
      const double value = std::bit_cast<double>(bits);
      if (!std::isfinite(value)) {
        return Cat("as_double(", Hex(bits), "ul)");
      }
      return Cat(Float(value), std::signbit(value) ? ")" : "");
    }
  }
}

std::string Identifier(std::string_view name) {
  std::string identifier;
  for (const char c : name.substr(0, 40)) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    identifier += is_plain ? c : '_';
  }
  return identifier.empty() ? "kernel" : identifier;
}

}  // namespace hpvm::opencl
