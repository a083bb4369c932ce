// SPDX-License-Identifier: Apache-2.0
#include "engine/bindings.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <optional>
#include <string>

namespace hpvm::engine {
namespace {

using graph::ScalarType;

// A kernel's scalar from every kind of element: a convertible element keeps its value, any other is refused.
TEST(BindingsTest, ScalarBits) {
  struct Case {
    std::string name;
    ElementType element;
    uint64_t bits;  // Bits of the element, low bytes first.
    ScalarType scalar;
    std::optional<uint64_t> want;  // Nothing when refused.
  };
  const uint64_t f32_half = std::bit_cast<uint32_t>(0.5f), f64_half = std::bit_cast<uint64_t>(0.5);
  const Case cases[] = {
      {"i32 to i32", ElementType::kI32, 0xfffffffbu, ScalarType::kI32, 0xfffffffbu},
      {"i8 to i32", ElementType::kI8, 0x80u, ScalarType::kI32, 0xffffff80u},
      {"u8 to i32", ElementType::kU8, 0x80u, ScalarType::kI32, 0x80u},
      {"bool to i32", ElementType::kBool, 7, ScalarType::kI32, 1},
      {"i16 to i64", ElementType::kI16, 0xffffu, ScalarType::kI64, ~uint64_t{0}},
      {"u32 to i32", ElementType::kU32, 0xffffffffu, ScalarType::kI32, 0xffffffffu},
      {"u32 to i64", ElementType::kU32, 0xffffffffu, ScalarType::kI64, 0xffffffffu},
      {"i64 that fits", ElementType::kI64, static_cast<uint64_t>(INT64_C(-5)), ScalarType::kI32, 0xfffffffbu},
      {"i64 that does not fit", ElementType::kI64, uint64_t{1} << 40, ScalarType::kI32, std::nullopt},
      {"u64 that does not fit", ElementType::kU64, ~uint64_t{0}, ScalarType::kI32, std::nullopt},
      {"u64 to i64", ElementType::kU64, ~uint64_t{0}, ScalarType::kI64, ~uint64_t{0}},
      {"f32 to f32", ElementType::kF32, f32_half, ScalarType::kF32, f32_half},
      {"f32 to f64", ElementType::kF32, f32_half, ScalarType::kF64, f64_half},
      {"f64 to f32", ElementType::kF64, f64_half, ScalarType::kF32, f32_half},
      {"bf16 to f32", ElementType::kBF16, f32_half >> 16, ScalarType::kF32, f32_half},
      {"i32 to f32", ElementType::kI32, 0xfffffffeu, ScalarType::kF32, std::bit_cast<uint32_t>(-2.0f)},
      {"f32 to i32", ElementType::kF32, f32_half, ScalarType::kI32, std::nullopt},
      {"f16", ElementType::kF16, 0x3c00, ScalarType::kF32, std::nullopt},
  };
  const graph::Port port{.name = "k", .shape = {}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    uint8_t data[8];
    std::memcpy(data, &c.bits, sizeof(data));
    const Binding binding{.type = c.element, .shape = {}, .data = data, .bytes = ElementBytes(c.element)};
    const StatusOr<uint64_t> bits = ScalarBits(port, binding, c.scalar);
    EXPECT_EQ(bits.ok(), c.want.has_value());
    if (bits.ok() && c.want.has_value()) {
      EXPECT_EQ(*bits, *c.want);
    }
  }
}

// Adjacent ranges are accepted; ranges that share a byte are refused if one is an output, however many lie between.
TEST(BindingsTest, Overlaps) {
  graph::Node root;
  root.is_leaf = false;
  root.ports = {{.name = "a", .access = graph::Access::kIn, .shape = {}},
                {.name = "b", .access = graph::Access::kIn, .shape = {}},
                {.name = "y", .access = graph::Access::kOut, .shape = {}},
                {.name = "z", .access = graph::Access::kOut, .shape = {}}};
  struct Range {
    size_t begin, end;
  };
  struct Case {
    std::string name;
    Range a, b, y, z;
    bool is_ok;
  };
  const Case cases[] = {
      {"apart", {0, 10}, {20, 30}, {40, 50}, {60, 70}, true},
      {"touching", {0, 10}, {10, 20}, {20, 30}, {30, 40}, true},
      {"inputs alias", {0, 10}, {0, 10}, {20, 30}, {30, 40}, true},
      {"inputs overlap", {0, 10}, {5, 15}, {20, 30}, {30, 40}, true},
      {"outputs overlap", {0, 10}, {10, 20}, {20, 30}, {29, 40}, false},
      {"output in input", {0, 50}, {10, 20}, {30, 40}, {60, 70}, false},
      {"input in output", {45, 46}, {10, 20}, {30, 60}, {60, 70}, false},
      {"same", {0, 10}, {20, 30}, {20, 30}, {60, 70}, false},
      {"empty output inside", {0, 50}, {10, 20}, {30, 30}, {60, 70}, true},
  };
  uint8_t memory[100] = {};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const auto bind = [&](const Range& range) {
      return Binding{.type = ElementType::kU8,
                     .shape = {range.end - range.begin},
                     .data = memory + range.begin,
                     .bytes = range.end - range.begin};
    };
    const Binding a = bind(c.a), b = bind(c.b), y = bind(c.y), z = bind(c.z);
    EXPECT_EQ(CheckOverlaps(root, {&a, &b, &y, &z}).ok(), c.is_ok);
  }
}

}  // namespace
}  // namespace hpvm::engine
