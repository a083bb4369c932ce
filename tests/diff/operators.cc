// SPDX-License-Identifier: Apache-2.0
#include "tests/diff/operators.h"

#include <cstddef>

namespace hpvm::diff {
namespace {

using enum ValueType;
using Table = std::vector<Operator>;

Operator Make(uint8_t prefix, uint32_t code, std::vector<ValueType> operands, ValueType result) {
  Operator row;
  row.prefix = prefix;
  row.code = code;
  row.operand_count = static_cast<uint8_t>(operands.size());
  row.result = result;
  for (size_t i = 0; i < operands.size(); ++i) {
    row.operands[i] = operands[i];
  }
  return row;
}

// `count` instructions with consecutive codes and the same type.
void AddRun(Table& table, uint8_t prefix, uint32_t code, uint32_t count, const std::vector<ValueType>& operands,
            ValueType result) {
  for (uint32_t i = 0; i < count; ++i) {
    table.push_back(Make(prefix, code + i, operands, result));
  }
}

void AddIntegers(Table& table) {
  struct Codes {
    ValueType type;
    uint32_t unary, binary, eqz, compare;
  };
  for (const Codes& c : {Codes{kI32, 0x67, 0x6a, 0x45, 0x46}, Codes{kI64, 0x79, 0x7c, 0x50, 0x51}}) {
    AddRun(table, 0, c.unary, 3, {c.type}, c.type);
    AddRun(table, 0, c.binary, 15, {c.type, c.type}, c.type);
    AddRun(table, 0, c.eqz, 1, {c.type}, kI32);
    AddRun(table, 0, c.compare, 10, {c.type, c.type}, kI32);
    // add, sub, mul, then the four divisions.
    for (Operator& row : table) {
      row.divides |= row.prefix == 0 && row.code >= c.binary + 3 && row.code < c.binary + 7;
    }
  }
  AddRun(table, 0, 0xc0, 2, {kI32}, kI32);  // Sign extensions.
  AddRun(table, 0, 0xc2, 3, {kI64}, kI64);
}

void AddFloats(Table& table) {
  struct Codes {
    ValueType type;
    uint32_t compare, unary, binary;
  };
  for (const Codes& c : {Codes{kF32, 0x5b, 0x8b, 0x92}, Codes{kF64, 0x61, 0x99, 0xa0}}) {
    AddRun(table, 0, c.compare, 6, {c.type, c.type}, kI32);
    AddRun(table, 0, c.unary, 7, {c.type}, c.type);
    AddRun(table, 0, c.binary, 7, {c.type, c.type}, c.type);
    table.back().canonical_operands = 2;  // copysign copies a NaN's sign, which is open.
  }
}

void AddConversions(Table& table) {
  AddRun(table, 0, 0xa7, 1, {kI64}, kI32);
  for (uint32_t i = 0; i < 8; ++i) {
    const ValueType from = i % 4 < 2 ? kF32 : kF64;
    const ValueType to = i < 4 ? kI32 : kI64;
    // i64.extend_i32 stands between the two groups of four.
    table.push_back(Make(0, i < 4 ? 0xa8 + i : 0xae + i - 4, {from}, to));
    table.back().converts = true;
    table.push_back(Make(0xfc, i, {from}, to));
    table.push_back(Make(0, i < 4 ? 0xb2 + i : 0xb7 + i - 4, {i % 4 < 2 ? kI32 : kI64}, i < 4 ? kF32 : kF64));
  }
  AddRun(table, 0, 0xac, 2, {kI32}, kI64);
  AddRun(table, 0, 0xb6, 1, {kF64}, kF32);
  AddRun(table, 0, 0xbb, 1, {kF32}, kF64);
  for (uint32_t i = 0; i < 2; ++i) {
    table.push_back(Make(0, 0xbc + i, {i == 0 ? kF32 : kF64}, i == 0 ? kI32 : kI64));
    table.back().canonical_operands = 1;
  }
  AddRun(table, 0, 0xbe, 1, {kI32}, kF32);
  AddRun(table, 0, 0xbf, 1, {kI64}, kF64);
}

void AddAccess(Table& table, uint8_t prefix, uint32_t code, ValueType type, uint8_t width, bool is_store) {
  Operator row = is_store ? Make(prefix, code, {kI32, type}, kI32) : Make(prefix, code, {kI32}, type);
  row.has_result = !is_store;
  row.immediate = Immediate::kMemory;
  row.width = width;
  row.is_atomic = prefix == 0xfe;
  row.canonical_operands = is_store && (type == kF32 || type == kF64) ? 2 : 0;
  table.push_back(row);
}

void AddMemory(Table& table) {
  struct Access {
    ValueType type;
    uint8_t width;
  };
  const Access loads[] = {{kI32, 4}, {kI64, 8}, {kF32, 4}, {kF64, 8}, {kI32, 1}, {kI32, 1}, {kI32, 2},
                          {kI32, 2}, {kI64, 1}, {kI64, 1}, {kI64, 2}, {kI64, 2}, {kI64, 4}, {kI64, 4}};
  uint32_t code = 0x28;
  for (const Access& access : loads) {
    AddAccess(table, 0, code++, access.type, access.width, false);
  }
  const Access stores[] = {{kI32, 4}, {kI64, 8}, {kF32, 4}, {kF64, 8}, {kI32, 1},
                           {kI32, 2}, {kI64, 1}, {kI64, 2}, {kI64, 4}};
  for (const Access& access : stores) {
    AddAccess(table, 0, code++, access.type, access.width, true);
  }
  const Access atomics[] = {{kI32, 4}, {kI64, 8}, {kI32, 1}, {kI32, 2}, {kI64, 1}, {kI64, 2}, {kI64, 4}};
  code = 0x10;
  for (uint32_t group = 0; group < 9; ++group) {  // load, store, add, sub, and, or, xor, xchg, cmpxchg
    for (const Access& access : atomics) {
      AddAccess(table, 0xfe, code++, access.type, access.width, group == 1);
      Operator& row = table.back();
      if (group >= 2) {
        row.operand_count = group == 8 ? 3 : 2;
        row.operands[1] = row.operands[2] = access.type;
      }
    }
  }
}

// Codes of SIMD instructions by the shape of their type.
void AddVectorArithmetic(Table& table) {
  const auto add = [&](std::vector<uint32_t> codes, std::vector<ValueType> operands, ValueType result) {
    for (uint32_t code : codes) {
      table.push_back(Make(0xfd, code, operands, result));
    }
  };
  const auto run = [&](uint32_t first, uint32_t last, std::vector<ValueType> operands, ValueType result = kV128) {
    AddRun(table, 0xfd, first, last - first + 1, operands, result);
  };
  run(14, 14, {kV128, kV128});  // swizzle
  run(35, 76, {kV128, kV128});  // comparisons up to f64x2
  run(77, 77, {kV128});
  run(78, 81, {kV128, kV128});
  run(82, 82, {kV128, kV128, kV128});
  add({83, 99, 131, 163, 195, 100, 132, 164, 196}, {kV128}, kI32);  // any_true, all_true, bitmask
  add({96,  97,  98,  124, 125, 126, 127, 128, 129, 135, 136, 137, 138,
       160, 161, 167, 168, 169, 170, 192, 193, 199, 200, 201, 202},
      {kV128}, kV128);
  add({101, 102, 130, 133, 134, 214, 215, 216, 217, 218, 219}, {kV128, kV128}, kV128);
  for (uint32_t first : {107u, 139u, 171u, 203u}) {
    run(first, first + 2, {kV128, kI32});
  }
  run(110, 115, {kV128, kV128});
  run(118, 121, {kV128, kV128});
  add({123, 155, 174, 177, 181, 206, 209, 213}, {kV128, kV128}, kV128);
  run(142, 147, {kV128, kV128});
  run(149, 153, {kV128, kV128});
  run(156, 159, {kV128, kV128});
  run(182, 186, {kV128, kV128});
  run(188, 191, {kV128, kV128});
  run(220, 223, {kV128, kV128});
  add({224, 225, 236, 237}, {kV128}, kV128);                      // abs, neg: exact on bits
  add({234, 235, 246, 247}, {kV128, kV128}, kV128);               // pmin, pmax give an operand
  add({248, 249, 250, 251, 252, 253, 254, 255}, {kV128}, kV128);  // integers, and conversions without NaN
}

void AddVectorFloats(Table& table) {
  const auto add = [&](std::vector<uint32_t> codes, uint32_t operands, ValueType lane) {
    for (uint32_t code : codes) {
      table.push_back(Make(0xfd, code, std::vector<ValueType>(operands, kV128), kV128));
      table.back().has_float_lanes = true;
      table.back().lane = lane;
    }
  };
  add({103, 104, 105, 106, 227, 94}, 1, kF32);
  add({116, 117, 122, 148, 239, 95}, 1, kF64);
  add({228, 229, 230, 231, 232, 233}, 2, kF32);
  add({240, 241, 242, 243, 244, 245}, 2, kF64);
}

void AddLanes(Table& table) {
  struct Shape {
    ValueType scalar;
    uint8_t lanes;
    uint32_t splat, extract, extracts, replace;
  };
  for (const Shape& s : {Shape{kI32, 16, 15, 21, 2, 23}, Shape{kI32, 8, 16, 24, 2, 26}, Shape{kI32, 4, 17, 27, 1, 28},
                         Shape{kI64, 2, 18, 29, 1, 30}, Shape{kF32, 4, 19, 31, 1, 32}, Shape{kF64, 2, 20, 33, 1, 34}}) {
    const bool is_float = s.scalar == kF32 || s.scalar == kF64;
    table.push_back(Make(0xfd, s.splat, {s.scalar}, kV128));
    table.back().canonical_operands = is_float ? 1 : 0;
    for (uint32_t i = 0; i < s.extracts; ++i) {
      table.push_back(Make(0xfd, s.extract + i, {kV128}, s.scalar));
      table.back().immediate = Immediate::kLane;
      table.back().lanes = s.lanes;
    }
    table.push_back(Make(0xfd, s.replace, {kV128, s.scalar}, kV128));
    table.back().immediate = Immediate::kLane;
    table.back().lanes = s.lanes;
    table.back().canonical_operands = is_float ? 2 : 0;
  }
  table.push_back(Make(0xfd, 13, {kV128, kV128}, kV128));
  table.back().immediate = Immediate::kShuffle;
}

void AddVectorMemory(Table& table) {
  const uint8_t widths[] = {16, 8, 8, 8, 8, 8, 8, 1, 2, 4, 8};
  for (uint32_t code = 0; code <= 10; ++code) {
    AddAccess(table, 0xfd, code, kV128, widths[code], false);
  }
  AddAccess(table, 0xfd, 11, kV128, 16, true);
  AddAccess(table, 0xfd, 92, kV128, 4, false);
  AddAccess(table, 0xfd, 93, kV128, 8, false);
  for (uint32_t i = 0; i < 8; ++i) {
    const uint8_t width = static_cast<uint8_t>(1 << (i % 4));
    AddAccess(table, 0xfd, 84 + i, kV128, width, i >= 4);
    Operator& row = table.back();
    row.operand_count = 2;
    row.operands[1] = kV128;
    row.immediate = Immediate::kMemoryLane;
    row.lanes = static_cast<uint8_t>(16 / width);
  }
}

}  // namespace

const std::vector<Operator>& Operators() {
  static const Table* const table = [] {
    auto* rows = new Table;
    AddIntegers(*rows);
    AddFloats(*rows);
    AddConversions(*rows);
    AddMemory(*rows);
    AddVectorArithmetic(*rows);
    AddVectorFloats(*rows);
    AddLanes(*rows);
    AddVectorMemory(*rows);
    return rows;
  }();
  return *table;
}

}  // namespace hpvm::diff
