// SPDX-License-Identifier: Apache-2.0
// Compares every arithmetic operation and conversion at edge values with computations that share nothing with
// numeric.h: integers in 128 bits and bit by bit, floats in binary128 rounded once.
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "compiler/ir/testing/run_op.h"

namespace hpvm::ir::testing {
namespace {

using Int128 = __int128;
using Float128 = __float128;

uint32_t Width(Type type) { return Bytes(type) * 8; }
uint64_t Mask(Type type) { return Bytes(type) == 4 ? 0xffffffffu : ~uint64_t{0}; }
Int128 Unsigned(uint64_t bits, Type type) { return static_cast<Int128>(bits & Mask(type)); }
Int128 SignedOf(uint64_t bits, Type type) {
  const Int128 value = Unsigned(bits, type);
  return value >> (Width(type) - 1) != 0 ? value - (Int128{1} << Width(type)) : value;
}
uint64_t Cut(Int128 value, Type type) { return static_cast<uint64_t>(value) & Mask(type); }
bool Bit(uint64_t bits, uint32_t i) { return (bits >> i & 1) != 0; }

double AsDouble(uint64_t bits, Type type) {
  return type == Type::kF32 ? std::bit_cast<float>(static_cast<uint32_t>(bits)) : std::bit_cast<double>(bits);
}
uint64_t Rounded(Float128 value, Type type) {
  return type == Type::kF32 ? std::bit_cast<uint32_t>(static_cast<float>(value))
                            : std::bit_cast<uint64_t>(static_cast<double>(value));
}
bool IsNan(uint64_t bits, Type type) { return !IsInt(type) && std::isnan(AsDouble(bits, type)); }
uint64_t Nan(Type type) { return type == Type::kF32 ? 0x7fc00000u : 0x7ff8000000000000u; }

std::vector<uint64_t> Edges(Type type) {
  std::vector<uint64_t> edges;
  if (IsInt(type)) {
    for (const int64_t value : {0ll,          1ll,          2ll,          7ll,        31ll,
                                32ll,         33ll,         63ll,         64ll,       127ll,
                                128ll,        255ll,        32767ll,      32768ll,    65535ll,
                                2147483647ll, 2147483648ll, 4294967295ll, 16777217ll, 9007199254740993ll}) {
      edges.push_back(Cut(value, type));
      edges.push_back(Cut(-Int128{value}, type));
    }
    edges.push_back(Cut(std::numeric_limits<int64_t>::min(), type));
    edges.push_back(Cut(std::numeric_limits<int64_t>::max(), type));
    edges.push_back(Cut(0x5555aaaa12345678, type));
    return edges;
  }
  for (const double value : {0.0,
                             0.3,
                             0.49999997,
                             0.5,
                             0.9999999999,
                             1.0,
                             1.5,
                             2.5,
                             3.7,
                             127.5,
                             8388607.5,
                             8388609.0,
                             16777217.0,
                             1e-40,
                             1e-45,
                             1e-310,
                             5e-324,
                             1.1754943508222875e-38,
                             2147483647.0,
                             2147483647.5,
                             2147483648.0,
                             2147483904.0,
                             4294967295.0,
                             4294967295.5,
                             4294967296.0,
                             4503599627370497.5,
                             9223372036854774784.0,
                             9223372036854775808.0,
                             18446744073709549568.0,
                             18446744073709551616.0,
                             1e30,
                             3.4028234663852886e38,
                             1.7e308,
                             std::numeric_limits<double>::infinity()}) {
    for (const double signed_value : {value, -value}) {
      edges.push_back(type == Type::kF32 ? std::bit_cast<uint32_t>(static_cast<float>(signed_value))
                                         : std::bit_cast<uint64_t>(signed_value));
    }
  }
  edges.push_back(Nan(type));
  edges.push_back(Nan(type) | (uint64_t{1} << (Width(type) - 1)) | 5);
  return edges;
}

// The expected outcome of an operation: bits, or a trap.
using Want = OpOutcome;
Want Value(uint64_t bits) { return {TrapCode::kNone, bits}; }
using Reference = std::function<Want(Type type, Type result, const std::vector<uint64_t>& v)>;

uint64_t CountFrom(uint64_t bits, Type type, bool from_top) {
  uint64_t count = 0;
  while (count < Width(type) && !Bit(bits, from_top ? Width(type) - 1 - count : count)) {
    ++count;
  }
  return count;
}

uint64_t Population(uint64_t bits, Type type) {
  uint64_t count = 0;
  for (uint32_t i = 0; i < Width(type); ++i) {
    count += Bit(bits, i) ? 1 : 0;
  }
  return count;
}

uint64_t RotateLeft(uint64_t bits, uint64_t count, Type type) {
  uint64_t result = 0;
  for (uint32_t i = 0; i < Width(type); ++i) {
    result |= uint64_t{Bit(bits, i)} << ((i + count % Width(type)) % Width(type));
  }
  return result;
}

// Sign-extends the low bits of `a`.
Reference Narrow(uint32_t width) {
  return [width](Type type, Type, const std::vector<uint64_t>& v) {
    Int128 value = Unsigned(v[0], type) % (Int128{1} << width);
    value -= value >> (width - 1) != 0 ? Int128{1} << width : 0;
    return Value(Cut(value, type));
  };
}

Reference OnBits(uint64_t (*compute)(uint64_t a, uint64_t b, Type type)) {
  return [compute](Type type, Type, const std::vector<uint64_t>& v) {
    return Value(compute(v[0], v.size() > 1 ? v[1] : 0, type) & Mask(type));
  };
}
Reference OnSigned(Int128 (*compute)(Int128 a, Int128 b)) {
  return [compute](Type type, Type result, const std::vector<uint64_t>& v) {
    return Value(Cut(compute(SignedOf(v[0], type), v.size() > 1 ? SignedOf(v[1], type) : 0), result));
  };
}
Reference OnUnsigned(Int128 (*compute)(Int128 a, Int128 b)) {
  return [compute](Type type, Type result, const std::vector<uint64_t>& v) {
    return Value(Cut(compute(Unsigned(v[0], type), v.size() > 1 ? Unsigned(v[1], type) : 0), result));
  };
}

Want Divide(Type type, const std::vector<uint64_t>& v, bool is_signed, bool wants_remainder) {
  const Int128 a = is_signed ? SignedOf(v[0], type) : Unsigned(v[0], type);
  const Int128 b = is_signed ? SignedOf(v[1], type) : Unsigned(v[1], type);
  if (b == 0) {
    return {TrapCode::kDivideByZero, 0};
  }
  if (!wants_remainder && is_signed && a / b == Int128{1} << (Width(type) - 1)) {
    return {TrapCode::kIntegerOverflow, 0};
  }
  return Value(Cut(wants_remainder ? a % b : a / b, type));
}
Reference Division(bool is_signed, bool wants_remainder) {
  return [=](Type type, Type, const std::vector<uint64_t>& v) { return Divide(type, v, is_signed, wants_remainder); };
}

// Divides by a power of two, rounding down.
Reference ShiftRight(bool is_signed) {
  return [=](Type type, Type, const std::vector<uint64_t>& v) {
    const Int128 a = is_signed ? SignedOf(v[0], type) : Unsigned(v[0], type);
    const Int128 divisor = Int128{1} << (v[1] % Width(type));
    const Int128 quotient = a / divisor - (a % divisor < 0 ? 1 : 0);
    return Value(Cut(quotient, type));
  };
}

std::map<Opcode, Reference> IntegerReferences() {
  using enum Opcode;
  return {
      {kClz, OnBits([](uint64_t a, uint64_t, Type t) { return CountFrom(a, t, true); })},
      {kCtz, OnBits([](uint64_t a, uint64_t, Type t) { return CountFrom(a, t, false); })},
      {kPopcnt, OnBits([](uint64_t a, uint64_t, Type t) { return Population(a, t); })},
      {kExtend8, Narrow(8)},
      {kExtend16, Narrow(16)},
      {kExtend32, Narrow(32)},
      {kAdd, OnSigned([](Int128 a, Int128 b) { return a + b; })},
      {kSub, OnSigned([](Int128 a, Int128 b) { return a - b; })},
      {kMul, OnSigned([](Int128 a, Int128 b) { return a * b; })},
      {kDivS, Division(true, false)},
      {kDivU, Division(false, false)},
      {kRemS, Division(true, true)},
      {kRemU, Division(false, true)},
      // Computed by sums, so that the operators under test are not used.
      {kAnd, OnBits([](uint64_t a, uint64_t b, Type) { return ~(~a | ~b); })},
      {kOr, OnBits([](uint64_t a, uint64_t b, Type) { return ~(~a & ~b); })},
      {kXor, OnBits([](uint64_t a, uint64_t b, Type) { return (a | b) - (a & b); })},
      {kShl, OnBits([](uint64_t a, uint64_t b, Type t) {
         for (uint64_t i = 0; i < b % Width(t); ++i) {
           a += a;
         }
         return a;
       })},
      {kShrU, ShiftRight(false)},
      {kShrS, ShiftRight(true)},
      {kRotl, OnBits(RotateLeft)},
      {kRotr, OnBits([](uint64_t a, uint64_t b, Type t) { return RotateLeft(a, Width(t) - b % Width(t), t); })},
      {kEqz, OnSigned([](Int128 a, Int128) { return Int128{a == 0}; })},
      {kEq, OnSigned([](Int128 a, Int128 b) { return Int128{a == b}; })},
      {kNe, OnSigned([](Int128 a, Int128 b) { return Int128{a != b}; })},
      {kLtS, OnSigned([](Int128 a, Int128 b) { return Int128{a < b}; })},
      {kGtS, OnSigned([](Int128 a, Int128 b) { return Int128{a > b}; })},
      {kLeS, OnSigned([](Int128 a, Int128 b) { return Int128{a <= b}; })},
      {kGeS, OnSigned([](Int128 a, Int128 b) { return Int128{a >= b}; })},
      {kLtU, OnUnsigned([](Int128 a, Int128 b) { return Int128{a < b}; })},
      {kGtU, OnUnsigned([](Int128 a, Int128 b) { return Int128{a > b}; })},
      {kLeU, OnUnsigned([](Int128 a, Int128 b) { return Int128{a <= b}; })},
      {kGeU, OnUnsigned([](Int128 a, Int128 b) { return Int128{a >= b}; })},
  };
}

Reference OnFloats(Float128 (*compute)(Float128 a, Float128 b)) {
  return [compute](Type type, Type, const std::vector<uint64_t>& v) {
    return Value(Rounded(compute(AsDouble(v[0], type), AsDouble(v[1], type)), type));
  };
}

// Rounds to an integral value; `choose` returns the correction of the floor, given the fraction above it and whether
// the floor is odd.
Reference Integral(int (*choose)(double fraction, bool is_odd, bool is_negative)) {
  return [choose](Type type, Type, const std::vector<uint64_t>& v) {
    const double a = AsDouble(v[0], type);
    if (std::isnan(a) || !(a < 4503599627370496.0 && a > -4503599627370496.0)) {
      return Value(v[0]);
    }
    int64_t below = static_cast<int64_t>(a);
    below -= static_cast<double>(below) > a ? 1 : 0;
    const double fraction = a - static_cast<double>(below);
    const double result = static_cast<double>(below + (fraction == 0 ? 0 : choose(fraction, below % 2 != 0, a < 0)));
    const uint64_t sign = v[0] >> (Width(type) - 1) << (Width(type) - 1);
    return Value(Rounded(result < 0 ? -result : result, type) | sign);
  };
}

// r is the correctly rounded root if and only if x lies between the squares of the midpoints around r.
Want Root(Type type, Type, const std::vector<uint64_t>& v) {
  const double x = AsDouble(v[0], type);
  if (x == 0 || std::isnan(x) || (std::isinf(x) && x > 0)) {
    return Value(v[0]);
  }
  if (x < 0) {
    return Value(Nan(type));
  }
  // Bisects the bit patterns of positive floats, which are ordered as their values are.
  uint64_t low = 0, high = type == Type::kF32 ? 0x7f7fffffu : 0x7fefffffffffffffu;
  while (low < high) {
    const uint64_t middle = low + (high - low + 1) / 2;
    const Float128 value = AsDouble(middle, type);
    if (value * value <= x) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  const Float128 half = (static_cast<Float128>(AsDouble(low, type)) + AsDouble(low + 1, type)) / 2;
  return Value(half * half < x ? low + 1 : low);
}

// Orders floats as integers, with -0 below +0.
int64_t Key(uint64_t bits, Type type) {
  const uint64_t sign = uint64_t{1} << (Width(type) - 1);
  return (bits & sign) != 0 ? -static_cast<int64_t>(bits & (sign - 1)) - 1 : static_cast<int64_t>(bits);
}
Reference Extreme(bool wants_greater) {
  return [=](Type type, Type, const std::vector<uint64_t>& v) {
    if (IsNan(v[0], type) || IsNan(v[1], type)) {
      return Value(Nan(type));
    }
    return Value((Key(v[0], type) > Key(v[1], type)) == wants_greater ? v[0] : v[1]);
  };
}
Reference FloatCompare(bool less, bool equal, bool greater, bool unordered) {
  return [=](Type type, Type, const std::vector<uint64_t>& v) {
    if (IsNan(v[0], type) || IsNan(v[1], type)) {
      return Value(unordered);
    }
    const uint64_t magnitude = Mask(type) >> 1;
    const bool zeros = (v[0] & magnitude) == 0 && (v[1] & magnitude) == 0;
    const int64_t a = zeros ? 0 : Key(v[0], type), b = zeros ? 0 : Key(v[1], type);
    return Value(a < b ? less : a == b ? equal : greater);
  };
}

std::map<Opcode, Reference> FloatReferences() {
  using enum Opcode;
  return {
      {kFAbs, OnBits([](uint64_t a, uint64_t, Type t) { return a % (uint64_t{1} << (Width(t) - 1)); })},
      {kFNeg, OnBits([](uint64_t a, uint64_t, Type t) { return a + (uint64_t{1} << (Width(t) - 1)); })},
      {kFCopysign, OnBits([](uint64_t a, uint64_t b, Type t) {
         const uint64_t sign = uint64_t{1} << (Width(t) - 1);
         return a % sign + (Bit(b, Width(t) - 1) ? sign : 0);
       })},
      {kFCeil, Integral([](double, bool, bool) { return 1; })},
      {kFFloor, Integral([](double, bool, bool) { return 0; })},
      {kFTrunc, Integral([](double, bool, bool is_negative) { return is_negative ? 1 : 0; })},
      {kFNearest, Integral([](double f, bool is_odd, bool) { return f > 0.5 || (f == 0.5 && is_odd) ? 1 : 0; })},
      {kFSqrt, Root},
      {kFAdd, OnFloats([](Float128 a, Float128 b) { return a + b; })},
      {kFSub, OnFloats([](Float128 a, Float128 b) { return a - b; })},
      {kFMul, OnFloats([](Float128 a, Float128 b) { return a * b; })},
      {kFDiv, OnFloats([](Float128 a, Float128 b) { return a / b; })},
      {kFMin, Extreme(false)},
      {kFMax, Extreme(true)},
      {kFEq, FloatCompare(false, true, false, false)},
      {kFNe, FloatCompare(true, false, true, true)},
      {kFLt, FloatCompare(true, false, false, false)},
      {kFGt, FloatCompare(false, false, true, false)},
      {kFLe, FloatCompare(true, true, false, false)},
      {kFGe, FloatCompare(false, true, true, false)},
  };
}

Want Truncate(Type type, Type result, const std::vector<uint64_t>& v, bool is_signed, bool saturates) {
  const double a = AsDouble(v[0], type);
  const Int128 most = is_signed ? (Int128{1} << (Width(result) - 1)) - 1 : (Int128{1} << Width(result)) - 1;
  const Int128 least = is_signed ? -(Int128{1} << (Width(result) - 1)) : 0;
  if (std::isnan(a)) {
    return saturates ? Value(0) : Want{TrapCode::kInvalidConversion, 0};
  }
  // 128 bits hold numbers near the limits; anything larger is out of range.
  const bool is_huge = a > 1e30 || a < -1e30;
  const Int128 cut = is_huge ? (a > 0 ? most + 1 : least - 1) : static_cast<Int128>(a);
  if (cut > most || cut < least) {
    return saturates ? Value(Cut(cut > most ? most : least, result)) : Want{TrapCode::kIntegerOverflow, 0};
  }
  return Value(Cut(cut, result));
}
Reference Truncation(bool is_signed, bool saturates) {
  return [=](Type type, Type result, const std::vector<uint64_t>& v) {
    return Truncate(type, result, v, is_signed, saturates);
  };
}

std::map<Opcode, Reference> ConversionReferences() {
  using enum Opcode;
  const Reference same = [](Type, Type, const std::vector<uint64_t>& v) { return Value(v[0]); };
  const Reference change_float = [](Type type, Type result, const std::vector<uint64_t>& v) {
    return Value(Rounded(AsDouble(v[0], type), result));
  };
  return {
      {kWrap, OnUnsigned([](Int128 a, Int128) { return a % (Int128{1} << 32); })},
      {kExtendS, OnSigned([](Int128 a, Int128) { return a; })},
      {kExtendU, OnUnsigned([](Int128 a, Int128) { return a; })},
      {kTruncS, Truncation(true, false)},
      {kTruncU, Truncation(false, false)},
      {kTruncSatS, Truncation(true, true)},
      {kTruncSatU, Truncation(false, true)},
      {kConvertS,
       [](Type type, Type result, const std::vector<uint64_t>& v) {
         return Value(Rounded(static_cast<Float128>(SignedOf(v[0], type)), result));
       }},
      {kConvertU,
       [](Type type, Type result, const std::vector<uint64_t>& v) {
         return Value(Rounded(static_cast<Float128>(Unsigned(v[0], type)), result));
       }},
      {kDemote, change_float},
      {kPromote, change_float},
      {kReinterpret, same},
  };
}

bool KeepsNanBits(Opcode code) {
  return code == Opcode::kFAbs || code == Opcode::kFNeg || code == Opcode::kFCopysign || code == Opcode::kReinterpret;
}

// Runs every combination of edge operands.
void CheckOp(Opcode code, Type type, Type result, uint32_t operand_count, const Reference& reference) {
  SCOPED_TRACE(std::string(Info(code).text) + "." + std::string(Name(type)) + " -> " + std::string(Name(result)));
  const OpRunner runner(code, type, std::vector<Type>(operand_count, type), result);
  const std::vector<uint64_t> edges = Edges(type);
  for (const uint64_t a : edges) {
    for (const uint64_t b : operand_count > 1 ? edges : std::vector<uint64_t>{0}) {
      std::vector<uint64_t> operands{a, b};
      operands.resize(operand_count);
      const Want want = reference(type, result, operands);
      const OpOutcome found = runner.Run(operands);
      ASSERT_EQ(found.trap, want.trap) << std::hex << a << ", " << b;
      if (IsNan(want.bits, result) && !KeepsNanBits(code)) {
        ASSERT_TRUE(IsNan(found.bits, result)) << std::hex << a << ", " << b << ": " << found.bits;
      } else {
        ASSERT_EQ(found.bits, want.bits) << std::hex << a << ", " << b;
      }
    }
  }
}

uint32_t OperandCount(Opcode code) {
  const Family family = Info(code).family;
  return family == Family::kIntBinary || family == Family::kFloatBinary || family == Family::kFloatCompare ||
                 (family == Family::kIntCompare && code != Opcode::kEqz)
             ? 2
             : 1;
}

std::vector<Opcode> OpcodesOf(std::initializer_list<Family> families) {
  std::vector<Opcode> codes;
  for (int i = 0; i <= static_cast<int>(Opcode::kTrap); ++i) {
    for (const Family family : families) {
      if (Info(static_cast<Opcode>(i)).family == family) {
        codes.push_back(static_cast<Opcode>(i));
      }
    }
  }
  return codes;
}

// Tests every integer operation, i32 and i64, on all pairs of edge values.
TEST(IrOpsTest, Integers) {
  std::map<Opcode, Reference> references = IntegerReferences();
  for (const Opcode code : OpcodesOf({Family::kIntUnary, Family::kIntBinary, Family::kIntCompare})) {
    ASSERT_TRUE(references.count(code)) << Info(code).text;
    for (const Type type : {Type::kI32, Type::kI64}) {
      if (code == Opcode::kExtend32 && type == Type::kI32) {
        continue;
      }
      const Type result = Info(code).family == Family::kIntCompare ? Type::kI32 : type;
      CheckOp(code, type, result, OperandCount(code), references[code]);
    }
  }
}

// Tests every float operation, f32 and f64, on all pairs of edge values.
TEST(IrOpsTest, Floats) {
  std::map<Opcode, Reference> references = FloatReferences();
  for (const Opcode code : OpcodesOf({Family::kFloatUnary, Family::kFloatBinary, Family::kFloatCompare})) {
    ASSERT_TRUE(references.count(code)) << Info(code).text;
    for (const Type type : {Type::kF32, Type::kF64}) {
      const Type result = Info(code).family == Family::kFloatCompare ? Type::kI32 : type;
      CheckOp(code, type, result, OperandCount(code), references[code]);
    }
  }
}

// Operations that devices approximate return the rounded exact value.
TEST(IrOpsTest, Approximations) {
  const auto rounded = [](double (*compute)(double)) {
    return [=](Type type, Type, const std::vector<uint64_t>& v) {
      return Value(std::bit_cast<uint32_t>(static_cast<float>(compute(AsDouble(v[0], type)))));
    };
  };
  std::map<Opcode, Reference> references = {{Opcode::kApproxSin, rounded(std::sin)},
                                            {Opcode::kApproxCos, rounded(std::cos)},
                                            {Opcode::kApproxExp2, rounded(std::exp2)},
                                            {Opcode::kApproxLog2, rounded(std::log2)}};
  for (const Opcode code : OpcodesOf({Family::kApprox})) {
    ASSERT_TRUE(references.count(code)) << Info(code).text;
    CheckOp(code, Type::kF32, Type::kF32, 1, references[code]);
  }
}

// Tests every conversion between every pair of types for which it exists.
TEST(IrOpsTest, Conversions) {
  std::map<Opcode, Reference> references = ConversionReferences();
  const std::map<Opcode, std::vector<std::pair<Type, Type>>> fixed = {
      {Opcode::kWrap, {{Type::kI64, Type::kI32}}},
      {Opcode::kExtendS, {{Type::kI32, Type::kI64}}},
      {Opcode::kExtendU, {{Type::kI32, Type::kI64}}},
      {Opcode::kDemote, {{Type::kF64, Type::kF32}}},
      {Opcode::kPromote, {{Type::kF32, Type::kF64}}},
      {Opcode::kReinterpret,
       {{Type::kI32, Type::kF32}, {Type::kF32, Type::kI32}, {Type::kI64, Type::kF64}, {Type::kF64, Type::kI64}}},
  };
  for (const Opcode code : OpcodesOf({Family::kConvert})) {
    ASSERT_TRUE(references.count(code)) << Info(code).text;
    std::vector<std::pair<Type, Type>> pairs;
    if (const auto found = fixed.find(code); found != fixed.end()) {
      pairs = found->second;
    } else {
      const bool from_int = code == Opcode::kConvertS || code == Opcode::kConvertU;
      for (const Type i : {Type::kI32, Type::kI64}) {
        for (const Type f : {Type::kF32, Type::kF64}) {
          pairs.push_back(from_int ? std::pair(i, f) : std::pair(f, i));
        }
      }
    }
    for (const auto& [type, result] : pairs) {
      CheckOp(code, type, result, 1, references[code]);
    }
  }
}

// select returns the first value unless the condition is 0.
TEST(IrOpsTest, Select) {
  for (const Type type : {Type::kI32, Type::kI64, Type::kF32, Type::kF64}) {
    const OpRunner runner(Opcode::kSelect, type, {Type::kI32, type, type}, type);
    for (const uint64_t condition : {0u, 1u, 0x80000000u, 0xffffffffu}) {
      EXPECT_EQ(runner.Run({condition, 11, 22}).bits, condition != 0 ? 11u : 22u) << condition;
    }
  }
}

}  // namespace
}  // namespace hpvm::ir::testing
