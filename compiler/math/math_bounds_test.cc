// SPDX-License-Identifier: Apache-2.0
// Measures the error bounds that client/kernel/README.md promises against MPFR.
//
// HPVMD_MATH_SAMPLES=n takes n random arguments per function instead of the few of a usual run.
// HPVMD_MATH_EXHAUSTIVE=1 runs the f32 functions of one argument over all 2^32 arguments, each a separate test that
// takes minutes; =n takes every n-th.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "compiler/math/testing/kernel.h"
#include "compiler/math/testing/reference.h"

namespace hpvm::math {
namespace {

// The f64 functions, and f32 functions that the host's double form cannot check, use MPFR for every argument.
constexpr uint64_t kSamples = 400'000;
constexpr uint64_t kSlowSamples = 20'000;

struct Case {
  const Reference* function;
  bool is_f64;
  bool is_fast = false;
};

double BoundOf(const Case& item) {
  const Reference& function = *item.function;
  return item.is_fast ? (item.is_f64 ? function.fast_f64 : function.fast_f32)
                      : (item.is_f64 ? function.bound_f64 : function.bound_f32);
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const Reference& function : References()) {
    cases.push_back({&function, false});
    cases.push_back({&function, true});
    for (const bool is_f64 : {false, true}) {
      if (const Case fast{&function, is_f64, true}; BoundOf(fast) != 0) {
        cases.push_back(fast);
      }
    }
  }
  return cases;
}

std::string NameOf(const Case& item) {
  return std::string(item.function->name) + (item.is_f64 ? "_f64" : "_f32") + (item.is_fast ? "_fast" : "");
}

// Returns zeros, limits of the format and of its denormals, infinities, a NaN, and the neighbours of critical points
// of functions.
std::vector<double> Edges(bool is_f64) {
  std::vector<double> edges = {0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()};
  const double tiny = is_f64 ? std::numeric_limits<double>::denorm_min() : std::numeric_limits<float>::denorm_min();
  const double small = is_f64 ? std::numeric_limits<double>::min() : std::numeric_limits<float>::min();
  const double large = is_f64 ? std::numeric_limits<double>::max() : std::numeric_limits<float>::max();
  for (const double value : {tiny,
                             small,
                             large,
                             0.25,
                             0.5,
                             1.0,
                             1.5,
                             2.0,
                             3.0,
                             10.0,
                             100.0,
                             1e30,
                             M_PI,
                             M_PI_2,
                             M_PI_4,
                             M_E,
                             M_LN2,
                             0.4375,
                             0.6875,
                             1.1875,
                             2.4375,
                             22.0,
                             88.72283905206835,
                             709.782712893384,
                             745.13321910194122,
                             103.97207708399179,
                             1024.0,
                             1075.0,
                             128.0,
                             150.0,
                             308.25471555991674,
                             38.531839444989588,
                             171.62437695630272,
                             35.040096282958984,
                             0.84375,
                             1.25,
                             28.0}) {
    for (const int step : {-1, 0, 1}) {
      if (is_f64) {
        edges.push_back(step == 0 ? value : std::nextafter(value, step * 1e308));
      } else {
        const auto near = static_cast<float>(value);
        edges.push_back(step == 0 ? near : std::nextafterf(near, static_cast<float>(step) * 3e38f));
      }
    }
  }
  if (is_f64) {
    edges.push_back(0x1.6ac5b262ca1ffp+849);  // The double nearest to a multiple of pi/2.
    edges.push_back(1e22);
  } else {
    edges.push_back(0x1.f9cbe2p+7);
    edges.push_back(0x1.33333p+13);
  }
  for (size_t i = 0, count = edges.size(); i < count; ++i) {
    edges.push_back(-edges[i]);
  }
  return edges;
}

std::vector<Arguments> EdgeArguments(const Case& item) {
  const std::vector<double> edges = Edges(item.is_f64);
  std::vector<Arguments> arguments;
  for (const double x : edges) {
    if (item.function->arity == 1) {
      arguments.push_back({x, 0, 0});
      continue;
    }
    for (const double y : edges) {
      arguments.push_back({x, y, item.function->arity == 3 ? -x * y : 0});
      if (item.function->arity == 3 && !item.is_f64) {
        arguments.back()[2] = static_cast<float>(-x * y);
      }
    }
  }
  return arguments;
}

uint64_t BitsOf(double value, bool is_f64) {
  return is_f64 ? std::bit_cast<uint64_t>(value) : std::bit_cast<uint32_t>(static_cast<float>(value));
}

std::vector<std::vector<uint64_t>> BitsOf(const std::vector<Arguments>& arguments, const Case& item) {
  std::vector<std::vector<uint64_t>> bits(item.function->arity);
  for (const Arguments& at : arguments) {
    for (uint32_t k = 0; k < item.function->arity; ++k) {
      bits[k].push_back(BitsOf(at[k], item.is_f64));
    }
  }
  return bits;
}

double ErrorOf(const Case& item, const Arguments& at, uint64_t bits, bool with_host) {
  if (item.is_f64) {
    return UlpError64(*item.function, at, std::bit_cast<double>(bits));
  }
  const float got = std::bit_cast<float>(static_cast<uint32_t>(bits));
  if (with_host && item.function->host1 != nullptr) {
    return UlpErrorFrom(item.function->host1(at[0]), got);
  }
  if (with_host && item.function->host2 != nullptr) {
    return UlpErrorFrom(item.function->host2(at[0], at[1]), got);
  }
  return UlpError32(*item.function, at, got);
}

struct Worst {
  double error = 0;
  Arguments at{};
  uint64_t bits = 0;
};

void Report(const Case& item, const Worst& worst, uint64_t samples) {
  const double bound = BoundOf(item);
  std::printf("%-13s %8.4f ulp (bound %g) at %a, %a, %a -> bits 0x%llx; %llu arguments\n", NameOf(item).c_str(),
              worst.error, bound, worst.at[0], worst.at[1], worst.at[2], static_cast<unsigned long long>(worst.bits),
              static_cast<unsigned long long>(samples));
  EXPECT_LE(worst.error, bound);
}

class MathBoundsTest : public ::testing::TestWithParam<Case> {};

uint64_t SamplesOf(const Case& item) {
  const char* text = std::getenv("HPVMD_MATH_SAMPLES");
  if (text != nullptr) {
    return std::strtoull(text, nullptr, 10);
  }
  const bool has_host = item.function->host1 != nullptr || item.function->host2 != nullptr;
  return !item.is_f64 && has_host ? kSamples : kSlowSamples;
}

Worst WorstOf(const Case& item, const std::vector<Arguments>& arguments, const std::vector<uint64_t>& results,
              size_t edges) {
  Worst worst;
  for (size_t i = 0; i < results.size(); ++i) {
    const double error = ErrorOf(item, arguments[i], results[i], i >= edges);
    if (!(error <= worst.error)) {
      worst = {error, arguments[i], results[i]};
    }
  }
  worst.error = worst.error == 0 ? 0 : ErrorOf(item, worst.at, worst.bits, false);
  return worst;
}

void ExpectSame(const Case& item, const std::vector<Arguments>& arguments, const std::vector<uint64_t>& wanted,
                const std::vector<uint64_t>& got, const char* what) {
  const auto is_nan = [&](uint64_t bits) {
    return item.is_f64 ? std::isnan(std::bit_cast<double>(bits))
                       : std::isnan(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  };
  for (size_t i = 0; i < std::min(wanted.size(), got.size()); ++i) {
    ASSERT_TRUE((is_nan(wanted[i]) && is_nan(got[i])) || wanted[i] == got[i])
        << NameOf(item) << " at " << arguments[i][0] << ", " << arguments[i][1] << ": " << what << " 0x" << std::hex
        << got[i] << ", not 0x" << wanted[i];
  }
}

// Random arguments and the edges stay within the bound. Exact forms give the same bits by the interpreter and in
// lockstep; fast forms stay within the bound there too, where products and sums are contracted differently.
TEST_P(MathBoundsTest, HoldsForSamples) {
  const Case item = GetParam();
  std::mt19937_64 random(20);
  std::vector<Arguments> arguments = EdgeArguments(item);
  const size_t edges = arguments.size();
  const uint64_t samples = SamplesOf(item);
  for (uint64_t i = 0; i < samples; ++i) {
    arguments.push_back(item.is_f64 ? Sample64(*item.function, random) : Sample32(*item.function, random));
  }
  CompiledFunction function(*item.function, item.is_f64, item.is_fast);
  const std::vector<uint64_t> results = function.Run(BitsOf(arguments, item));
  Report(item, WorstOf(item, arguments, results, edges), arguments.size());

  const std::optional<std::vector<uint64_t>> tiles = function.RunTiles(BitsOf(arguments, item));
  std::vector<Arguments> compared(arguments.begin(), arguments.begin() + std::min(arguments.size(), edges + 500));
  const std::vector<uint64_t> interpreted = function.Interpret(BitsOf(compared, item));
  if (item.is_fast) {
    EXPECT_LE(WorstOf(item, compared, interpreted, edges).error, BoundOf(item)) << "interpreted";
    EXPECT_LE(tiles ? WorstOf(item, arguments, *tiles, edges).error : 0, BoundOf(item)) << "in lockstep";
    return;
  }
  ExpectSame(item, arguments, results, interpreted, "interpreted");
  ExpectSame(item, arguments, results, tiles.value_or(std::vector<uint64_t>()), "in lockstep");
}

INSTANTIATE_TEST_SUITE_P(Functions, MathBoundsTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return NameOf(info.param); });

class MathExhaustiveTest : public ::testing::TestWithParam<Case> {};

// Tests every float. The host's double form finds the worst argument; MPFR gives its exact error.
TEST_P(MathExhaustiveTest, HoldsForEveryFloat) {
  const char* text = std::getenv("HPVMD_MATH_EXHAUSTIVE");
  if (text == nullptr) {
    GTEST_SKIP() << "HPVMD_MATH_EXHAUSTIVE=1 runs it.";
  }
  const uint64_t stride = std::max<uint64_t>(1, std::strtoull(text, nullptr, 10));
  const Case item = GetParam();
  CompiledFunction function(*item.function, false, item.is_fast);
  constexpr uint32_t kBatch = 1u << 20;
  std::vector<float> in(kBatch), out(kBatch);
  Worst worst;
  constexpr uint64_t kFloats = uint64_t{1} << 32;
  for (uint64_t first = 0; first < kFloats; first += kBatch * stride) {
    for (uint32_t i = 0; i < kBatch; ++i) {
      in[i] = std::bit_cast<float>(static_cast<uint32_t>(std::min(first + i * stride, kFloats - 1)));
    }
    function.Run32(in.data(), out.data(), kBatch);
    for (uint32_t i = 0; i < kBatch; ++i) {
      const double error = UlpErrorFrom(item.function->host1(in[i]), out[i]);
      if (!(error <= worst.error)) {
        worst = {error, {in[i], 0, 0}, std::bit_cast<uint32_t>(out[i])};
      }
    }
  }
  worst.error = worst.error == 0 ? 0 : ErrorOf(item, worst.at, worst.bits, false);
  Report(item, worst, (kFloats + stride - 1) / stride);
}

std::vector<Case> ExhaustiveCases() {
  std::vector<Case> cases;
  for (const Reference& function : References()) {
    if (function.host1 != nullptr) {
      cases.push_back({&function, false});
      if (function.fast_f32 != 0) {
        cases.push_back({&function, false, true});
      }
    }
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Functions, MathExhaustiveTest, ::testing::ValuesIn(ExhaustiveCases()),
                         [](const auto& info) { return NameOf(info.param); });

}  // namespace
}  // namespace hpvm::math
