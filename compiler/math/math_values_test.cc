// SPDX-License-Identifier: Apache-2.0
// Tests special values as in C's Annex F, and the rounding of fma, for both types.
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "compiler/math/testing/kernel.h"
#include "compiler/math/testing/reference.h"

namespace hpvm::math {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Case {
  std::string_view function;
  Arguments at;
  double want;
};

// Results here are the same for float and double.
constexpr Case kCases[] = {
    {"exp", {0.0}, 1},
    {"exp", {-0.0}, 1},
    {"exp", {kInf}, kInf},
    {"exp", {-kInf}, 0},
    {"exp", {1e6}, kInf},
    {"exp", {-1e6}, 0},
    {"exp2", {0.0}, 1},
    {"exp2", {10}, 1024},
    {"exp2", {-3}, 0.125},
    {"exp2", {kInf}, kInf},
    {"exp2", {-kInf}, 0},
    {"exp10", {0.0}, 1},
    {"exp10", {2}, 100},
    {"exp10", {kInf}, kInf},
    {"exp10", {-kInf}, 0},
    {"expm1", {0.0}, 0.0},
    {"expm1", {-0.0}, -0.0},
    {"expm1", {kInf}, kInf},
    {"expm1", {-kInf}, -1},
    {"log", {1}, 0},
    {"log", {0.0}, -kInf},
    {"log", {-0.0}, -kInf},
    {"log", {-1}, kNan},
    {"log", {kInf}, kInf},
    {"log", {-kInf}, kNan},
    {"log2", {1}, 0},
    {"log2", {1024}, 10},
    {"log2", {0.0}, -kInf},
    {"log2", {-1}, kNan},
    {"log2", {kInf}, kInf},
    {"log10", {1}, 0},
    {"log10", {1000}, 3},
    {"log10", {0.0}, -kInf},
    {"log10", {-1}, kNan},
    {"log10", {kInf}, kInf},
    {"log1p", {0.0}, 0.0},
    {"log1p", {-0.0}, -0.0},
    {"log1p", {-1}, -kInf},
    {"log1p", {-2}, kNan},
    {"log1p", {kInf}, kInf},
    {"sin", {0.0}, 0.0},
    {"sin", {-0.0}, -0.0},
    {"sin", {kInf}, kNan},
    {"sin", {-kInf}, kNan},
    {"cos", {0.0}, 1},
    {"cos", {-0.0}, 1},
    {"cos", {kInf}, kNan},
    {"tan", {0.0}, 0.0},
    {"tan", {-0.0}, -0.0},
    {"tan", {-kInf}, kNan},
    {"asin", {0.0}, 0.0},
    {"asin", {-0.0}, -0.0},
    {"asin", {1.5}, kNan},
    {"acos", {1}, 0},
    {"acos", {1.5}, kNan},
    {"acos", {-1.5}, kNan},
    {"atan", {0.0}, 0.0},
    {"atan", {-0.0}, -0.0},
    {"atan", {kInf}, M_PI_2},
    {"atan", {-kInf}, -M_PI_2},
    {"sinh", {0.0}, 0.0},
    {"sinh", {-0.0}, -0.0},
    {"sinh", {kInf}, kInf},
    {"sinh", {-kInf}, -kInf},
    {"cosh", {0.0}, 1},
    {"cosh", {kInf}, kInf},
    {"cosh", {-kInf}, kInf},
    {"tanh", {0.0}, 0.0},
    {"tanh", {-0.0}, -0.0},
    {"tanh", {kInf}, 1},
    {"tanh", {-kInf}, -1},
    {"asinh", {0.0}, 0.0},
    {"asinh", {-0.0}, -0.0},
    {"asinh", {kInf}, kInf},
    {"asinh", {-kInf}, -kInf},
    {"acosh", {1}, 0},
    {"acosh", {0.5}, kNan},
    {"acosh", {-1e10}, kNan},
    {"acosh", {-kInf}, kNan},
    {"acosh", {kInf}, kInf},
    {"atanh", {0.0}, 0.0},
    {"atanh", {-0.0}, -0.0},
    {"atanh", {1}, kInf},
    {"atanh", {-1}, -kInf},
    {"atanh", {1.5}, kNan},
    {"erf", {0.0}, 0.0},
    {"erf", {-0.0}, -0.0},
    {"erf", {kInf}, 1},
    {"erf", {-kInf}, -1},
    {"erfc", {0.0}, 1},
    {"erfc", {kInf}, 0},
    {"erfc", {-kInf}, 2},
    {"tgamma", {0.0}, kInf},
    {"tgamma", {-0.0}, -kInf},
    {"tgamma", {-1}, kNan},
    {"tgamma", {-kInf}, kNan},
    {"tgamma", {kInf}, kInf},
    {"tgamma", {5}, 24},
    {"tgamma", {1}, 1},
    {"lgamma", {1}, 0},
    {"lgamma", {2}, 0},
    {"lgamma", {0.0}, kInf},
    {"lgamma", {-1}, kInf},
    {"lgamma", {kInf}, kInf},
    {"lgamma", {-kInf}, kInf},
    {"cbrt", {0.0}, 0.0},
    {"cbrt", {-0.0}, -0.0},
    {"cbrt", {27}, 3},
    {"cbrt", {-8}, -2},
    {"cbrt", {kInf}, kInf},
    {"cbrt", {-kInf}, -kInf},
    {"rsqrt", {4}, 0.5},
    {"rsqrt", {0.0}, kInf},
    {"rsqrt", {-0.0}, -kInf},
    {"rsqrt", {kInf}, 0},
    {"rsqrt", {-1}, kNan},
    {"pow", {0.0, -3}, kInf},
    {"pow", {-0.0, -3}, -kInf},
    {"pow", {-0.0, -2}, kInf},
    {"pow", {0.0, -kInf}, kInf},
    {"pow", {-0.0, 3}, -0.0},
    {"pow", {-0.0, 2}, 0.0},
    {"pow", {-1, kInf}, 1},
    {"pow", {-1, -kInf}, 1},
    {"pow", {1, kNan}, 1},
    {"pow", {kNan, 0.0}, 1},
    {"pow", {kNan, -0.0}, 1},
    {"pow", {-8, 1.5}, kNan},
    {"pow", {0.5, -kInf}, kInf},
    {"pow", {2, -kInf}, 0},
    {"pow", {0.5, kInf}, 0},
    {"pow", {-2, kInf}, kInf},
    {"pow", {-kInf, -3}, -0.0},
    {"pow", {-kInf, -2}, 0.0},
    {"pow", {-kInf, 3}, -kInf},
    {"pow", {-kInf, 2}, kInf},
    {"pow", {kInf, -1}, 0},
    {"pow", {kInf, 1}, kInf},
    {"pow", {-2, 3}, -8},
    {"pow", {kNan, 1}, kNan},
    {"atan2", {0.0, -0.0}, M_PI},
    {"atan2", {-0.0, -0.0}, -M_PI},
    {"atan2", {0.0, 0.0}, 0.0},
    {"atan2", {-0.0, 0.0}, -0.0},
    {"atan2", {0.0, -1}, M_PI},
    {"atan2", {-0.0, 1}, -0.0},
    {"atan2", {1, 0.0}, M_PI_2},
    {"atan2", {-1, -0.0}, -M_PI_2},
    {"atan2", {1, -kInf}, M_PI},
    {"atan2", {-1, kInf}, -0.0},
    {"atan2", {kInf, 1}, M_PI_2},
    {"atan2", {kInf, kInf}, M_PI_4},
    {"atan2", {-kInf, -kInf}, -3 * M_PI_4},
    {"atan2", {kNan, 1}, kNan},
    {"hypot", {3, 4}, 5},
    {"hypot", {kInf, kNan}, kInf},
    {"hypot", {kNan, -kInf}, kInf},
    {"hypot", {-0.0, 0.0}, 0.0},
    {"hypot", {kNan, 1}, kNan},
    {"fmod", {5, 3}, 2},
    {"fmod", {-5, 3}, -2},
    {"fmod", {0.0, 3}, 0.0},
    {"fmod", {-0.0, 3}, -0.0},
    {"fmod", {kInf, 3}, kNan},
    {"fmod", {5, 0}, kNan},
    {"fmod", {5, kInf}, 5},
    {"fmod", {-6, 3}, -0.0},
    {"remainder", {5, 3}, -1},
    {"remainder", {0.0, 3}, 0.0},
    {"remainder", {-0.0, 3}, -0.0},
    {"remainder", {kInf, 3}, kNan},
    {"remainder", {5, 0}, kNan},
    {"remainder", {5, kInf}, 5},
    {"remainder", {1.5, 1}, -0.5},
    {"remainder", {0.5, 1}, 0.5},
    {"fma", {kInf, 0.0, 1}, kNan},
    {"fma", {kInf, 1, -kInf}, kNan},
    {"fma", {0.0, 5, -0.0}, 0.0},
    {"fma", {-0.0, 5, -0.0}, -0.0},
    {"fma", {1, 1, -1}, 0.0},
    {"fma", {2, 3, 4}, 10},
    {"fma", {1, kInf, 5}, kInf},
    {"fma", {1, 1, -kInf}, -kInf},
};

uint64_t BitsOf(double value, bool is_f64) {
  return is_f64 ? std::bit_cast<uint64_t>(value) : std::bit_cast<uint32_t>(static_cast<float>(value));
}
double ValueOf(uint64_t bits, bool is_f64) {
  return is_f64 ? std::bit_cast<double>(bits) : std::bit_cast<float>(static_cast<uint32_t>(bits));
}

// Fractions of pi may be the float beside the nearest; all other results are exact. With `is_fast`, finite non-zero
// results may be off by 3 ulp, but zeros, infinities and their signs are exact there too.
bool IsWanted(uint64_t bits, double want, bool is_f64, bool is_fast = false) {
  const double got = ValueOf(bits, is_f64);
  if (std::isnan(want)) {
    return std::isnan(got);
  }
  const uint64_t wanted = BitsOf(want, is_f64);
  const bool is_rounded = std::fmod(want, M_PI_4) == 0 && want != 0;
  if (is_fast && want != 0 && std::isfinite(want)) {
    return std::fabs(static_cast<double>(static_cast<int64_t>(bits) - static_cast<int64_t>(wanted))) <= 3;
  }
  return bits == wanted || (is_rounded && (bits + 1 == wanted || bits - 1 == wanted));
}

// `is_fast`: tests the fast-math forms of the functions that have one.
void ExpectAnnexF(bool is_fast) {
  for (const Reference& function : References()) {
    for (const bool is_f64 : {false, true}) {
      if (is_fast && (is_f64 ? function.fast_f64 : function.fast_f32) == 0) {
        continue;
      }
      CompiledFunction compiled(function, is_f64, is_fast);
      int checked = 0;
      for (const Case& item : kCases) {
        if (item.function != function.name) {
          continue;
        }
        std::vector<std::vector<uint64_t>> arguments;
        for (uint32_t k = 0; k < function.arity; ++k) {
          arguments.push_back({BitsOf(item.at[k], is_f64)});
        }
        const uint64_t bits = compiled.Run(arguments)[0];
        EXPECT_TRUE(IsWanted(bits, item.want, is_f64, is_fast))
            << (is_fast ? "fast " : "") << function.name << (is_f64 ? "_f64(" : "_f32(") << item.at[0] << ", "
            << item.at[1] << ", " << item.at[2] << ") is " << ValueOf(bits, is_f64) << ", not " << item.want;
        ++checked;
      }
      EXPECT_GE(checked, 3) << function.name;
      // A NaN gives a NaN, except where C says otherwise above.
      const std::vector<std::vector<uint64_t>> nans(function.arity, {BitsOf(kNan, is_f64)});
      EXPECT_TRUE(std::isnan(ValueOf(compiled.Run(nans)[0], is_f64))) << function.name;
    }
  }
}

TEST(MathValuesTest, FollowsAnnexF) { ExpectAnnexF(/*is_fast=*/false); }
// Results are not exact, but special values are.
TEST(MathValuesTest, FastFormsFollowAnnexFNearly) { ExpectAnnexF(/*is_fast=*/true); }

// Covers sums that are half way between two numbers, just beside it, that cancel, or become denormal: rounded once, as
// by the host's fma.
TEST(MathValuesTest, FmaIsExact) {
  const Reference* fma = nullptr;
  for (const Reference& function : References()) {
    fma = function.name == "fma" ? &function : fma;
  }
  ASSERT_NE(fma, nullptr);
  std::mt19937_64 random(5);
  for (const bool is_f64 : {false, true}) {
    constexpr int kCount = 200'000;
    std::vector<std::vector<uint64_t>> bits(3, std::vector<uint64_t>(kCount));
    const auto number = [&](int spread) {
      const double mantissa = 1 + std::ldexp(static_cast<double>(random() % (1u << 12)), -12);
      const int exponent = static_cast<int>(random() % (2 * static_cast<unsigned>(spread))) - spread;
      return std::ldexp((random() & 1) != 0 ? -mantissa : mantissa, exponent);
    };
    for (int i = 0; i < kCount; ++i) {
      const int spread = i % 4 == 0 ? (is_f64 ? 540 : 74) : 30;
      const double x = number(spread);
      const double y = (random() & 1) != 0 ? number(spread) : std::nextafter(1.0, 2.0) * number(3);
      const auto rounded = [&](double value) {
        return is_f64 ? value : static_cast<double>(static_cast<float>(value));
      };
      // Far below, far above or opposite to the product.
      const int shift = static_cast<int>(random() % 130) - 65;
      const double z = (random() & 1) != 0 ? std::ldexp(x * y, shift) : -x * y * (1 + std::ldexp(1.0, -shift));
      bits[0][i] = BitsOf(rounded(x), is_f64);
      bits[1][i] = BitsOf(rounded(y), is_f64);
      bits[2][i] = BitsOf(rounded(z), is_f64);
    }
    CompiledFunction compiled(*fma, is_f64);
    const std::vector<uint64_t> results = compiled.Run(bits);
    int wrong = 0;
    for (int i = 0; i < kCount; ++i) {
      const double x = ValueOf(bits[0][i], is_f64);
      const double y = ValueOf(bits[1][i], is_f64);
      const double z = ValueOf(bits[2][i], is_f64);
      const double want =
          is_f64 ? std::fma(x, y, z) : std::fmaf(static_cast<float>(x), static_cast<float>(y), static_cast<float>(z));
      wrong += !IsWanted(results[i], want, is_f64);
    }
    EXPECT_EQ(wrong, 0) << (is_f64 ? "f64" : "f32");
  }
}

}  // namespace
}  // namespace hpvm::math
