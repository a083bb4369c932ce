// SPDX-License-Identifier: Apache-2.0
// Compares loads, stores and atomics of every type, width and space with byte arithmetic.
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/text/text.h"

namespace hpvm::ir {
namespace {

constexpr Type kTypes[] = {Type::kI32, Type::kI64, Type::kF32, Type::kF64};
constexpr uint64_t kBufferBase = 131072;

uint64_t Mask(uint32_t bytes) { return bytes == 8 ? ~uint64_t{0} : (uint64_t{1} << (bytes * 8)) - 1; }

// Returns the little-endian number at `at`.
uint64_t ReadBytes(const uint8_t* at, uint32_t bytes) {
  uint64_t value = 0;
  for (uint32_t i = bytes; i > 0; --i) {
    value = value * 256 + at[i - 1];
  }
  return value;
}

struct Access {
  Type type;
  uint32_t width;
  bool sign;
  std::string space;  // Includes the operand that reaches the buffer's first byte in that space.
};

std::vector<Access> Accesses(bool is_load) {
  std::vector<Access> accesses;
  for (const Type type : kTypes) {
    for (const uint32_t width : {1u, 2u, 4u, 8u}) {
      if (width > Bytes(type) || (!IsInt(type) && width != Bytes(type))) {
        continue;
      }
      for (const bool sign : {false, true}) {
        if (sign && (!is_load || width == Bytes(type))) {
          continue;
        }
        accesses.push_back({type, width, sign, "flat %b"});
        accesses.push_back({type, width, sign, "param(0) %zero"});
      }
    }
  }
  return accesses;
}

std::string Spelling(const Access& access, const std::string& name) {
  return name + "." + std::string(Name(access.type)) +
         (access.width == Bytes(access.type) ? " " : " w" + std::to_string(access.width) + " ") +
         (access.sign ? "signed " : "") + access.space;
}

// Runs a body on a 32-byte buffer %b and a scalar i64 %v; the body's value goes to the 8-byte buffer %r.
struct Bench {
  alignas(8) uint8_t buffer[32];
  uint64_t result = 0;

  TrapReport Run(const std::string& body, uint64_t v = 0) {
    std::iota(buffer, buffer + 32, uint8_t{0x78});  // 0x78..0x97 have different signs.
    const std::string text =
        "module \"m\"\nmemory 65536 65536\nparam buffer inout \"b\"\nparam buffer inout \"r\"\n"
        "param i64 \"v\"\nentry f0\nfunc f0 \"f\" (%b: i32, %r: i32, %v: i64) -> () {\n"
        "%zero: i32 = const.i32 0\n" +
        body + "\nreturn ()\n}\n";
    Launch launch;
    launch.arguments = {{buffer, 32, 0}, {reinterpret_cast<uint8_t*>(&result), 8, 0}, {nullptr, 0, v}};
    result = 0;
    const StatusOr<Module> module = ParseModule(text);
    EXPECT_TRUE(module.ok()) << text << module.status();
    const StatusOr<TrapReport> report = module.ok() ? Interpret(*module, launch) : module.status();
    EXPECT_TRUE(report.ok()) << text << report.status();
    return report.ok() ? *report : TrapReport{TrapCode::kStopped, {}, 0, 0, 0, 0};
  }
};

// A load returns the bytes at any alignment, extended as specified, up to the last byte of the buffer and not beyond.
TEST(IrMemoryTest, Loads) {
  for (const Access& access : Accesses(true)) {
    const std::string type(Name(access.type));
    for (uint64_t offset = 0; offset < 33; ++offset) {
      Bench bench;
      const std::string load = Spelling(access, "load") + " + " + std::to_string(offset);
      SCOPED_TRACE(load);
      const TrapReport report = bench.Run("%x: " + type + " = " + load + "\nstore." + type + " flat %r, %x");
      if (offset + access.width > 32) {
        EXPECT_EQ(report.code, TrapCode::kOutOfBounds);
        EXPECT_EQ(report.address, kBufferBase + offset);
        EXPECT_EQ(report.bytes, access.width);
        continue;
      }
      uint64_t want = ReadBytes(bench.buffer + offset, access.width);
      if (access.sign && bench.buffer[offset + access.width - 1] >= 0x80) {
        want |= ~Mask(access.width);
      }
      EXPECT_EQ(report.code, TrapCode::kNone);
      EXPECT_EQ(bench.result, want & Mask(Bytes(access.type)));
    }
  }
}

// A store writes only its bytes.
TEST(IrMemoryTest, Stores) {
  constexpr uint64_t kValue = 0xf1e2d3c4b5a69788;
  for (const Access& access : Accesses(false)) {
    const std::string convert = access.type == Type::kI32   ? "%x: i32 = wrap.i64 %v\n"
                                : access.type == Type::kF32 ? "%w: i32 = wrap.i64 %v\n%x: f32 = reinterpret.i32 %w\n"
                                : access.type == Type::kF64 ? "%x: f64 = reinterpret.i64 %v\n"
                                                            : "%one: i64 = const.i64 -1\n%x: i64 = and.i64 %v, %one\n";
    for (uint64_t offset = 0; offset < 33; ++offset) {
      Bench bench;
      const std::string store = Spelling(access, "store") + " + " + std::to_string(offset) + ", %x";
      SCOPED_TRACE(store);
      const TrapReport report = bench.Run(convert + store, kValue);
      const bool fits = offset + access.width <= 32;
      EXPECT_EQ(report.code, fits ? TrapCode::kNone : TrapCode::kOutOfBounds);
      for (uint64_t i = 0; i < 32; ++i) {
        const bool is_written = fits && i >= offset && i < offset + access.width;
        EXPECT_EQ(bench.buffer[i], is_written ? kValue >> ((i - offset) * 8) & 0xff : 0x78 + i) << i;
      }
    }
  }
}

using Combine = uint64_t (*)(uint64_t old, uint64_t value, uint32_t bytes);
int64_t Signed(uint64_t value, uint32_t bytes) {
  return value > Mask(bytes) / 2 ? static_cast<int64_t>(value | ~Mask(bytes)) : static_cast<int64_t>(value);
}
const std::pair<const char*, Combine> kUpdates[] = {
    {"atomic_add", [](uint64_t a, uint64_t b, uint32_t) { return a + b; }},
    {"atomic_sub", [](uint64_t a, uint64_t b, uint32_t) { return a - b; }},
    {"atomic_and", [](uint64_t a, uint64_t b, uint32_t) { return a & b; }},
    {"atomic_or", [](uint64_t a, uint64_t b, uint32_t) { return a | b; }},
    {"atomic_xor", [](uint64_t a, uint64_t b, uint32_t) { return a ^ b; }},
    {"atomic_xchg", [](uint64_t, uint64_t b, uint32_t) { return b; }},
    {"atomic_min_s", [](uint64_t a, uint64_t b, uint32_t n) { return Signed(a, n) < Signed(b, n) ? a : b; }},
    {"atomic_max_s", [](uint64_t a, uint64_t b, uint32_t n) { return Signed(a, n) > Signed(b, n) ? a : b; }},
    {"atomic_min_u", [](uint64_t a, uint64_t b, uint32_t) { return a < b ? a : b; }},
    {"atomic_max_u", [](uint64_t a, uint64_t b, uint32_t) { return a > b ? a : b; }},
};

// Each update returns the old value, zero-extended, and writes only its own bytes.
TEST(IrMemoryTest, AtomicUpdates) {
  for (const Access& access : Accesses(false)) {
    if (!IsInt(access.type)) {
      continue;
    }
    const std::string type(Name(access.type));
    const std::string value =
        access.type == Type::kI32 ? "%x: i32 = wrap.i64 %v\n" : "%x: i64 = select.i64 %zero, %v, %v\n";
    for (const auto& [name, combine] : kUpdates) {
      for (const uint64_t v : {uint64_t{0}, uint64_t{1}, uint64_t{0x7f00ff80ff00fe7d}, ~uint64_t{0}}) {
        Bench bench;
        const std::string op = Spelling(access, name) + " + 8, %x";
        SCOPED_TRACE(op);
        const TrapReport report = bench.Run(value + "%o: " + type + " = " + op + "\nstore." + type + " flat %r, %o", v);
        ASSERT_EQ(report.code, TrapCode::kNone);
        uint8_t before[32];
        std::iota(before, before + 32, uint8_t{0x78});
        const uint64_t old = ReadBytes(before + 8, access.width);
        EXPECT_EQ(bench.result, old);
        EXPECT_EQ(ReadBytes(bench.buffer + 8, access.width),
                  combine(old, v & Mask(access.width), access.width) & Mask(access.width));
        EXPECT_EQ(std::memcmp(bench.buffer, before, 8), 0);
        EXPECT_EQ(std::memcmp(bench.buffer + 8 + access.width, before + 8 + access.width, 24 - access.width), 0);
      }
    }
  }
}

// Every atomic of every width traps at every misaligned address.
TEST(IrMemoryTest, MisalignedAtomics) {
  for (const Access& access : Accesses(false)) {
    if (!IsInt(access.type)) {
      continue;
    }
    for (uint64_t offset = 0; offset < 9; ++offset) {
      Bench bench;
      const std::string op = Spelling(access, "atomic_load") + " + " + std::to_string(offset);
      SCOPED_TRACE(op);
      const TrapReport report = bench.Run("%x: " + std::string(Name(access.type)) + " = " + op);
      EXPECT_EQ(report.code, offset % access.width == 0 ? TrapCode::kNone : TrapCode::kMisalignedAtomic);
      if (report.code != TrapCode::kNone) {
        EXPECT_EQ(report.address, kBufferBase + offset);
      }
    }
  }
}

}  // namespace
}  // namespace hpvm::ir
