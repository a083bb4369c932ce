// SPDX-License-Identifier: Apache-2.0
// Element types of tensors, one list for graph documents, the API and the client's files.
#ifndef HPVMD_BASE_INCLUDE_HPVM_ELEMENT_TYPE_H_
#define HPVMD_BASE_INCLUDE_HPVM_ELEMENT_TYPE_H_

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace hpvm {

// Values are stable: they are stored and sent.
enum class ElementType : uint8_t {
  kBool = 1,
  kI8,
  kU8,
  kI16,
  kU16,
  kI32,
  kU32,
  kI64,
  kU64,
  kF16,
  kBF16,
  kF32,
  kF64,
};

struct ElementTypeInfo {
  ElementType type;
  std::string_view name;  // The name in graph documents.
  uint32_t bytes;
  std::string_view npy;  // The descriptor in .npy files; empty when NumPy has none.
};

inline constexpr std::array<ElementTypeInfo, 13> kElementTypes = {{
    {ElementType::kBool, "bool", 1, "|b1"},
    {ElementType::kI8, "i8", 1, "|i1"},
    {ElementType::kU8, "u8", 1, "|u1"},
    {ElementType::kI16, "i16", 2, "<i2"},
    {ElementType::kU16, "u16", 2, "<u2"},
    {ElementType::kI32, "i32", 4, "<i4"},
    {ElementType::kU32, "u32", 4, "<u4"},
    {ElementType::kI64, "i64", 8, "<i8"},
    {ElementType::kU64, "u64", 8, "<u8"},
    {ElementType::kF16, "f16", 2, "<f2"},
    {ElementType::kBF16, "bf16", 2, ""},
    {ElementType::kF32, "f32", 4, "<f4"},
    {ElementType::kF64, "f64", 8, "<f8"},
}};

constexpr const ElementTypeInfo& Info(ElementType type) { return kElementTypes[static_cast<uint8_t>(type) - 1]; }
constexpr uint32_t ElementBytes(ElementType type) { return Info(type).bytes; }
constexpr std::string_view Name(ElementType type) { return Info(type).name; }

// Returns the bytes of a dense tensor: the product of the extents times the element size, or nullopt when it exceeds
// 2^63 - 1. An extent of 0 makes it 0, whatever the others are.
std::optional<uint64_t> TensorBytes(ElementType type, std::span<const uint64_t> shape);

constexpr std::optional<ElementType> ElementTypeFromName(std::string_view name) {
  for (const ElementTypeInfo& info : kElementTypes) {
    if (info.name == name) {
      return info.type;
    }
  }
  return std::nullopt;
}

}  // namespace hpvm

#endif  // HPVMD_BASE_INCLUDE_HPVM_ELEMENT_TYPE_H_
