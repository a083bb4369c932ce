// SPDX-License-Identifier: Apache-2.0
// Tests conclusions that the prover must not draw, on programs made by hand. compiler/pass/find_bounds_test.cc tests
// programs from FindBounds.
#include "compiler/ir/bounds.h"

#include <gtest/gtest.h>

#include <optional>

namespace hpvm::ir {
namespace {

// A program of one access of 4 bytes, to which tests add atoms.
class Sample {
 public:
  Sample() {
    program.is_wide = true;
    program.accesses.resize(1);
    program.accesses[0].reach = program.accesses[0].width = 4;
    facts.params = {{true, true, 1024, 64}, {false, false, 0, 64}};
  }
  Polynomial Range(const Interval& range) {
    Atom atom;
    atom.range = range;
    return Add(atom);
  }
  Polynomial Scalar(uint64_t value) {
    facts.params[1].value = value;
    Atom atom;
    atom.kind = Atom::Kind::kScalar;
    atom.index = 1;
    return Add(atom);
  }
  Polynomial Operation(Opcode code, uint8_t bits, std::vector<Polynomial> operands) {
    Atom atom;
    atom.kind = Atom::Kind::kOperation;
    atom.code = code;
    atom.bits = bits;
    atom.operands = std::move(operands);
    return Add(atom);
  }
  bool Proves(const Polynomial& offset) {
    program.accesses[0].offset = offset;
    return ProveBounds(program, facts);
  }

  Polynomial Add(const Atom& atom) {
    program.atoms.push_back(atom);
    return AtomPolynomial(AtomId(program.atoms.size() - 1));
  }

  BoundsProgram program;
  BoundsFacts facts;
};

Polynomial Times(const Polynomial& a, const Polynomial& b) {
  Polynomial product;
  EXPECT_TRUE(Multiply(a, b, &product));
  return product;
}
Polynomial Plus(const Polynomial& a, const Polynomial& b) {
  Polynomial sum;
  EXPECT_TRUE(Add(a, b, 1, &sum));
  return sum;
}
Polynomial Power4(const Polynomial& a) { return Times(Times(a, a), Times(a, a)); }
Polynomial Shifted(const Polynomial& a, int bits) { return Times(a, ConstantPolynomial(int64_t{1} << bits)); }

Constraint Less(const Polynomial& less, const Polynomial& more, bool or_equal = false) {
  return {.is_signed = true, .or_equal = or_equal, .bits = 64, .less = less, .more = more};
}

// A comparison of x + y bounds the sum, and multiples of it, although it bounds neither x nor y: from both sides,
// exactly, and nothing else.
TEST(BoundsTest, ConstraintsOfSumsBoundSums) {
  Sample sample;
  const Polynomial x = sample.Range({0, 1000}), y = sample.Range({0, 1000}), sum = Plus(x, y);
  const auto with = [&](int64_t least, int64_t most) {
    sample.program.constraints = {Less(ConstantPolynomial(least), sum, /*or_equal=*/true),
                                  Less(sum, ConstantPolynomial(most + 1))};
    sample.program.accesses[0].context = {0, 1};
  };
  const auto offset = [&](int64_t factor, int64_t added) {
    return Plus(Times(sum, ConstantPolynomial(factor)), ConstantPolynomial(added));
  };
  with(300, 500);  // The buffer has 1024 bytes; an access takes 4 of them.
  EXPECT_TRUE(sample.Proves(offset(1, -300)));
  EXPECT_FALSE(sample.Proves(offset(1, -301)));
  EXPECT_TRUE(sample.Proves(offset(1, 520)));
  EXPECT_FALSE(sample.Proves(offset(1, 521)));
  EXPECT_TRUE(sample.Proves(offset(4, -1200)));
  EXPECT_FALSE(sample.Proves(offset(4, -1201)));
  EXPECT_TRUE(sample.Proves(offset(5, -1500)));
  EXPECT_FALSE(sample.Proves(offset(6, -1800)));
  EXPECT_TRUE(sample.Proves(offset(-5, 2500)));
  EXPECT_FALSE(sample.Proves(offset(-5, 2499)));
  EXPECT_FALSE(sample.Proves(offset(-6, 3000)));
  // Another sum of the same two atoms.
  EXPECT_FALSE(sample.Proves(Plus(offset(1, -300), x)));
  EXPECT_FALSE(sample.Proves(Plus(offset(1, 0), Times(y, ConstantPolynomial(-2)))));
  with(300, 700);  // 2 x + y is the sum plus x, and x may be 700.
  EXPECT_FALSE(sample.Proves(Plus(offset(1, 0), x)));
  sample.program.accesses[0].context = {1};
  EXPECT_FALSE(sample.Proves(offset(1, -300)));
  sample.program.accesses[0].context = {};
  EXPECT_FALSE(sample.Proves(offset(1, -300)));
}

// A loop parameter that each iteration doubles stays within a test's limit, and stays a power of two if it begins as
// one.
TEST(BoundsTest, CarriedByInduction) {
  const auto with = [](int64_t first, int64_t factor, std::optional<int64_t> most) {
    Sample sample;
    sample.program.is_wide = false;
    Atom trip, carried;
    trip.kind = Atom::Kind::kTrip;
    carried.kind = Atom::Kind::kCarried;
    sample.Add(trip);
    const Polynomial s = sample.Add(carried);
    sample.program.loops.resize(1);
    sample.program.loops[0].trip = AtomId(0u);
    sample.program.loops[0].carried = {{AtomId(1u), ConstantPolynomial(first)}};
    sample.program.loops[0].ends.resize(1);
    sample.program.loops[0].ends[0].next = {Times(s, ConstantPolynomial(factor))};
    if (most) {
      sample.program.constraints = {{.or_equal = true, .bits = 32, .less = s, .more = ConstantPolynomial(*most)}};
      sample.program.loops[0].ends[0].goes_on = {0};
    }
    return sample;
  };
  const Polynomial s = AtomPolynomial(AtomId(1u));
  EXPECT_TRUE(with(3, 2, 510).Proves(s));  // Up to 1020.
  EXPECT_FALSE(with(3, 2, 511).Proves(s));
  EXPECT_FALSE(with(3, 2, {}).Proves(s));
  EXPECT_TRUE(with(3, 2, 510).Proves(Plus(s, ConstantPolynomial(-3))));
  EXPECT_FALSE(with(3, 2, 510).Proves(Plus(s, ConstantPolynomial(-4))));
  EXPECT_FALSE(with(3, 2, 0x80000000).Proves(Plus(s, ConstantPolynomial(-3))));  // The value wraps to 0.
  EXPECT_FALSE(with(-3, 2, 510).Proves(s));
  // x - (x & (s - 1)) + s is at most the next multiple of all strides, for x up to 767.
  const auto rounds = [&](int64_t first, int64_t factor, int64_t most, int64_t added) {
    Sample sample = with(first, factor, most);
    const Polynomial x = sample.Range({0, 767});
    const Polynomial y = sample.Operation(Opcode::kAnd, 32, {Plus(s, ConstantPolynomial(-1)), x});
    return sample.Proves(Plus(Plus(Plus(x, Times(y, ConstantPolynomial(-1))), s), ConstantPolynomial(added)));
  };
  EXPECT_TRUE(rounds(1, 2, 128, 1020 - 768));
  EXPECT_FALSE(rounds(1, 2, 128, 1021 - 768));
  EXPECT_FALSE(rounds(1, 2, 256, 1020 - 768));  // 512 does not divide 768.
  EXPECT_FALSE(rounds(3, 2, 128, 1020 - 768));
  EXPECT_FALSE(rounds(1, 3, 128, 1020 - 768));
  EXPECT_FALSE(rounds(1, 2, 128, -2));
}

// A remainder is less than the divisor, when dividend and divisor are known to be nonnegative.
TEST(BoundsTest, QuotientsLeaveLessThanTheDivisor) {
  for (const Opcode code : {Opcode::kDivU, Opcode::kDivS}) {
    Sample sample;
    const Polynomial x = sample.Range({0, 100'000}), d = sample.Scalar(1021);
    const Polynomial rest = Plus(x, Times(Times(sample.Operation(code, 64, {x, d}), d), ConstantPolynomial(-1)));
    EXPECT_TRUE(sample.Proves(rest));
    EXPECT_FALSE(sample.Proves(Plus(rest, ConstantPolynomial(1))));
    EXPECT_FALSE(sample.Proves(Plus(rest, ConstantPolynomial(-1))));
    EXPECT_FALSE(sample.Proves(Plus(rest, x)));
    for (const Interval& range : {Interval{-5, 100'000}, Interval::AtLeast(0), Interval{0, Wide{1} << 64}}) {
      const Polynomial y = sample.Range(range);
      EXPECT_FALSE(sample.Proves(Plus(y, Times(Times(sample.Operation(code, 64, {y, d}), d), ConstantPolynomial(-1)))));
    }
    sample.facts.params[1].value = uint64_t{0} - 1021;
    EXPECT_FALSE(sample.Proves(rest));
    sample.facts.params[1].value = 0;  // Traps.
    EXPECT_FALSE(sample.Proves(rest));
  }
}

// (x^4 + y^4) * 2^39 is at least 2^100, so it is unknown; it is not the single value 2^100, which is 0 modulo 2^64.
TEST(BoundsTest, WhatIsBeyondAllNumbersIsNotOneValue) {
  const Polynomial large = ConstantPolynomial((int64_t{3} << 40) + 5);
  for (const int64_t sign : {1, -1}) {
    Sample sample;
    const Polynomial x = sample.Range({32768, 65535}), y = sample.Range({32768, 65535});
    const Polynomial sum = Times(Shifted(Plus(Power4(x), Power4(y)), 39), ConstantPolynomial(sign));
    for (const Opcode code : {Opcode::kShrU, Opcode::kShrS}) {
      EXPECT_FALSE(sample.Proves(sample.Operation(code, 64, {sum, ConstantPolynomial(34)}))) << static_cast<int>(code);
    }
    for (const Opcode code :
         {Opcode::kAnd, Opcode::kOr, Opcode::kXor, Opcode::kDivU, Opcode::kDivS, Opcode::kRemU, Opcode::kRemS}) {
      EXPECT_FALSE(sample.Proves(sample.Operation(code, 64, {sum, large}))) << static_cast<int>(code);
      EXPECT_FALSE(sample.Proves(sample.Operation(code, 64, {large, sum}))) << static_cast<int>(code);
    }
    EXPECT_FALSE(sample.Proves(sum));
  }
}

TEST(BoundsTest, ExtensionsOfWhatIsBeyondAllNumbers) {
  for (const Opcode code :
       {Opcode::kExtendU, Opcode::kExtendS, Opcode::kExtend8, Opcode::kExtend16, Opcode::kExtend32}) {
    Sample sample;
    const Polynomial x = sample.Range({32768, 65535});
    EXPECT_FALSE(sample.Proves(sample.Operation(code, 64, {Shifted(Power4(x), 40)}))) << static_cast<int>(code);
  }
}

// When a factor made of scalars exceeds all kept numbers, the sum is unknown.
TEST(BoundsTest, FactorsBeyondAllNumbersAreNotKnown) {
  for (const uint64_t scalar : {uint64_t{1} << 62, uint64_t{0} - (uint64_t{1} << 62), uint64_t{1} << 63}) {
    Sample sample;
    const Polynomial n = sample.Scalar(scalar);
    const Polynomial power = Times(n, n);
    EXPECT_FALSE(sample.Proves(sample.Operation(Opcode::kShrU, 64, {power, ConstantPolynomial(2)})));
    EXPECT_FALSE(sample.Proves(power));
    // Such factors do not cancel each other, either.
    EXPECT_FALSE(sample.Proves(Plus(power, Times(power, ConstantPolynomial(-3)))));
  }
}

// 2^61 x 2^61 - 2^60 x 2^60 is not 0: factors that do not fit make the product of polynomials fail.
TEST(BoundsTest, ProductsOfFactorsAreExact) {
  Sample sample;
  const Polynomial x = sample.Range({0, 9}), y = sample.Range({0, 9});
  const int64_t large = (int64_t{1} << 61) - 1, other = (int64_t{1} << 60) - 1;
  Polynomial product;
  EXPECT_FALSE(Multiply(Plus(Times(x, ConstantPolynomial(large)), Times(y, ConstantPolynomial(-other))),
                        Plus(Times(x, ConstantPolynomial(other)), Times(y, ConstantPolynomial(large))), &product));
}

// An offset fits from the buffer's beginning to its end; no offset below the beginning fits.
TEST(BoundsTest, WhatMayBeginBelowIsNotProven) {
  Sample sample;
  EXPECT_TRUE(sample.Proves(sample.Range({0, 1020})));
  EXPECT_FALSE(sample.Proves(sample.Range({-1, 1020})));
  EXPECT_FALSE(sample.Proves(sample.Range({0, 1021})));
  EXPECT_FALSE(sample.Proves(ConstantPolynomial(-4)));
}

// A store into a read-only buffer traps at any offset.
TEST(BoundsTest, StoresToWhatMustNotBeWrittenAreNotProven) {
  for (const bool is_writable : {true, false}) {
    Sample sample;
    sample.facts.params[0].is_writable = is_writable;
    EXPECT_TRUE(sample.Proves(ConstantPolynomial(0)));
    sample.program.accesses[0].is_store = true;
    EXPECT_EQ(sample.Proves(ConstantPolynomial(0)), is_writable);
  }
}

// Or and xor of two values may give all ones below the next power of two.
TEST(BoundsTest, BitsOfTwoValues) {
  Sample sample;
  const Polynomial low = sample.Range({0, 15}), high = sample.Range({3, 16});
  EXPECT_TRUE(sample.Proves(sample.Operation(Opcode::kXor, 32, {low, high})));
  for (const Opcode code : {Opcode::kOr, Opcode::kXor}) {
    sample.facts.params[0].value = 16 + 4;
    EXPECT_FALSE(sample.Proves(sample.Operation(code, 32, {low, high}))) << static_cast<int>(code);
    sample.facts.params[0].value = 31 + 4;
    EXPECT_TRUE(sample.Proves(sample.Operation(code, 32, {low, high}))) << static_cast<int>(code);
  }
  sample.facts.params[0].value = 15 + 4;
  EXPECT_TRUE(sample.Proves(sample.Operation(Opcode::kAnd, 32, {low, high})));
  sample.facts.params[0].value = 3 + 4;
  EXPECT_FALSE(sample.Proves(sample.Operation(Opcode::kAnd, 32, {low, high})));
}

// A dropped program has no accesses, which proves nothing.
TEST(BoundsTest, AnEmptyProgramProvesNothing) {
  BoundsFacts facts;
  EXPECT_FALSE(ProveBounds(BoundsProgram(), facts));
  facts.extent = {0, 1, 1};
  EXPECT_FALSE(ProveBounds(BoundsProgram(), facts));
}

TEST(BoundsTest, GroupsOfNoInstancesProveNothing) {
  Sample sample;
  EXPECT_TRUE(sample.Proves(ConstantPolynomial(0)));
  sample.facts.group = {1, 0, 1};
  EXPECT_FALSE(sample.Proves(ConstantPolynomial(0)));
}

}  // namespace
}  // namespace hpvm::ir
