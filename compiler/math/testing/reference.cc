// SPDX-License-Identifier: Apache-2.0
#include "compiler/math/testing/reference.h"

#include <mpfr.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace hpvm::math {
namespace {

struct Format {
  int precision;                   // Bits.
  int exponent_min, exponent_max;  // Range for normal numbers, as 1.f * 2^e.
};
constexpr Format kF32{24, -126, 127};
constexpr Format kF64{53, -1022, 1023};

constexpr Reference kReferences[] = {
    {.name = "exp",
     .focus_begin = -110,
     .focus_end = 95,
     .host1 = std::exp,
     .fast_f32 = 1.5,
     .fast_f64 = 1.5,
     .device_f32 = 6},
    {.name = "exp2",
     .focus_begin = -155,
     .focus_end = 130,
     .host1 = std::exp2,
     .fast_f32 = 1.5,
     .fast_f64 = 1.5,
     .device_f32 = 5},
    {.name = "exp10", .focus_begin = -48, .focus_end = 40, .host1 = exp10, .fast_f32 = 1.5, .device_f32 = 7},
    {.name = "expm1", .focus_begin = -30, .focus_end = 95, .host1 = std::expm1, .fast_f32 = 2},
    {.name = "log",
     .focus_begin = 0,
     .focus_end = 4,
     .host1 = std::log,
     .fast_f32 = 1,
     .fast_f64 = 1.5,
     .device_f32 = 6,
     .is_absolute_on_devices = true},
    {.name = "log2",
     .focus_begin = 0,
     .focus_end = 4,
     .host1 = std::log2,
     .fast_f32 = 1.5,
     .device_f32 = 5,
     .is_absolute_on_devices = true},
    {.name = "log10",
     .focus_begin = 0,
     .focus_end = 4,
     .host1 = std::log10,
     .fast_f32 = 2,
     .device_f32 = 6,
     .is_absolute_on_devices = true},
    {.name = "log1p", .focus_begin = -1, .focus_end = 4, .host1 = std::log1p, .fast_f32 = 2},
    {.name = "sin",
     .host1 = std::sin,
     .fast_f32 = 2.5,
     .fast_f64 = 2,
     .device_f32 = 8,
     .is_absolute_on_devices = true,
     .device_argument_max = 0x1p20},
    {.name = "cos",
     .host1 = std::cos,
     .fast_f32 = 2.5,
     .fast_f64 = 2,
     .device_f32 = 8,
     .is_absolute_on_devices = true,
     .device_argument_max = 0x1p20},
    {.name = "tan", .host1 = std::tan, .fast_f32 = 4},
    {.name = "asin", .focus_begin = -1, .focus_end = 1, .host1 = std::asin, .fast_f32 = 2.5},
    {.name = "acos", .focus_begin = -1, .focus_end = 1, .host1 = std::acos, .fast_f32 = 1.5},
    {.name = "atan", .focus_begin = -10, .focus_end = 10, .host1 = std::atan, .fast_f32 = 3.5},
    {.name = "sinh", .focus_begin = -12, .focus_end = 12, .host1 = std::sinh, .bound_f64 = 2, .fast_f32 = 2.5},
    {.name = "cosh", .focus_begin = -12, .focus_end = 12, .host1 = std::cosh, .bound_f64 = 1.1, .fast_f32 = 1.5},
    {.name = "tanh",
     .focus_begin = -10,
     .focus_end = 10,
     .host1 = std::tanh,
     .bound_f64 = 2.5,
     .fast_f32 = 3,
     .device_f32 = 7},
    {.name = "asinh", .focus_begin = -10, .focus_end = 10, .host1 = std::asinh, .bound_f64 = 2, .fast_f32 = 2.5},
    {.name = "acosh", .focus_begin = 1, .focus_end = 10, .host1 = std::acosh, .bound_f64 = 2.5, .fast_f32 = 2},
    {.name = "atanh", .focus_begin = -1, .focus_end = 1, .host1 = std::atanh, .bound_f64 = 2, .fast_f32 = 2.5},
    {.name = "erf", .focus_begin = -6, .focus_end = 6, .host1 = std::erf, .fast_f32 = 1.5},
    {.name = "erfc", .focus_begin = -6, .focus_end = 27, .host1 = std::erfc, .bound_f64 = 3},
    {.name = "tgamma", .focus_begin = -45, .focus_end = 172, .host1 = std::tgamma, .bound_f64 = 10},
    {.name = "lgamma",
     .focus_begin = -20,
     .focus_end = 20,
     .host1 = std::lgamma,
     .is_absolute_below_0 = true,
     .bound_f64 = 10},
    {.name = "cbrt", .host1 = std::cbrt, .fast_f32 = 1.5},
    {.name = "rsqrt",
     .focus_begin = 0,
     .focus_end = 4,
     .host1 = [](double x) { return 1 / std::sqrt(x); },
     .bound_f32 = 1.5,
     .bound_f64 = 1.5},
    {.name = "pow", .arity = 2, .focus_begin = 0, .focus_end = 4, .host2 = std::pow, .fast_f32 = 1.5},
    {.name = "atan2",
     .arity = 2,
     .focus_begin = -4,
     .focus_end = 4,
     .host2 = std::atan2,
     .bound_f64 = 1.5,
     .fast_f32 = 4},
    {.name = "hypot", .arity = 2, .focus_begin = -4, .focus_end = 4, .host2 = std::hypot, .fast_f32 = 1.5},
    {.name = "fmod", .arity = 2, .host2 = std::fmod, .bound_f32 = 0, .bound_f64 = 0},
    {.name = "remainder", .arity = 2, .host2 = std::remainder, .bound_f32 = 0, .bound_f64 = 0},
    {.name = "fma", .arity = 3, .focus_begin = -4, .focus_end = 4, .bound_f32 = 0.5, .bound_f64 = 0.5},
};

struct Number {
  explicit Number(mpfr_prec_t precision) { mpfr_init2(value, precision); }
  ~Number() { mpfr_clear(value); }
  Number(const Number&) = delete;
  Number& operator=(const Number&) = delete;
  mpfr_t value;
};

using Unary = int (*)(mpfr_t, const mpfr_t, mpfr_rnd_t);
using Binary = int (*)(mpfr_t, const mpfr_t, const mpfr_t, mpfr_rnd_t);

int LogGamma(mpfr_t out, const mpfr_t x, mpfr_rnd_t round) {
  int sign = 0;
  return mpfr_lgamma(out, &sign, x, round);
}

Unary UnaryOf(std::string_view name) {
  static constexpr std::pair<std::string_view, Unary> kUnaries[] = {
      {"exp", mpfr_exp},   {"exp2", mpfr_exp2},      {"exp10", mpfr_exp10},  {"expm1", mpfr_expm1},
      {"log", mpfr_log},   {"log2", mpfr_log2},      {"log10", mpfr_log10},  {"log1p", mpfr_log1p},
      {"sin", mpfr_sin},   {"cos", mpfr_cos},        {"tan", mpfr_tan},      {"asin", mpfr_asin},
      {"acos", mpfr_acos}, {"atan", mpfr_atan},      {"sinh", mpfr_sinh},    {"cosh", mpfr_cosh},
      {"tanh", mpfr_tanh}, {"asinh", mpfr_asinh},    {"acosh", mpfr_acosh},  {"atanh", mpfr_atanh},
      {"erf", mpfr_erf},   {"erfc", mpfr_erfc},      {"tgamma", mpfr_gamma}, {"lgamma", LogGamma},
      {"cbrt", mpfr_cbrt}, {"rsqrt", mpfr_rec_sqrt},
  };
  for (const auto& [text, function] : kUnaries) {
    if (text == name) {
      return function;
    }
  }
  return nullptr;
}

Binary BinaryOf(std::string_view name) {
  static constexpr std::pair<std::string_view, Binary> kBinaries[] = {{"pow", mpfr_pow},
                                                                      {"atan2", mpfr_atan2},
                                                                      {"hypot", mpfr_hypot},
                                                                      {"fmod", mpfr_fmod},
                                                                      {"remainder", mpfr_remainder}};
  for (const auto& [text, function] : kBinaries) {
    if (text == name) {
      return function;
    }
  }
  return nullptr;
}

void TrueValue(const Reference& function, const Arguments& at, mpfr_t out) {
  Number x(53), y(53), z(53);
  mpfr_set_d(x.value, at[0], MPFR_RNDN);
  mpfr_set_d(y.value, at[1], MPFR_RNDN);
  mpfr_set_d(z.value, at[2], MPFR_RNDN);
  if (function.name == "rsqrt" && at[0] == 0) {
    mpfr_set_inf(out, std::signbit(at[0]) ? -1 : 1);  // As in IEEE 754; MPFR's is always positive.
  } else if (function.arity == 1) {
    UnaryOf(function.name)(out, x.value, MPFR_RNDN);
  } else if (function.arity == 2) {
    BinaryOf(function.name)(out, x.value, y.value, MPFR_RNDN);
  } else {
    mpfr_fma(out, x.value, y.value, z.value, MPFR_RNDN);
  }
}

// Returns log2 of the unit in the last place at a value of that binary exponent.
int UlpExponent(int exponent, const Format& format) {
  return std::max(exponent, format.exponent_min) - format.precision + 1;
}

// `exponent_min` is the least binary exponent whose unit is used to measure errors.
double UlpErrorOf(const mpfr_t truth, double got, const Format& format, int exponent_min) {
  const double infinity = std::numeric_limits<double>::infinity();
  if (mpfr_nan_p(truth) || std::isnan(got)) {
    return mpfr_nan_p(truth) && std::isnan(got) ? 0 : infinity;
  }
  Number value(96), limit(2), error(96);
  mpfr_set(value.value, truth, MPFR_RNDN);
  mpfr_set_ui_2exp(limit.value, 1, format.exponent_max + 1, MPFR_RNDN);
  // Beyond the largest finite number every value counts as the first power of two that does not fit, also an infinity.
  if (mpfr_cmpabs(value.value, limit.value) > 0) {
    mpfr_setsign(value.value, limit.value, mpfr_signbit(truth), MPFR_RNDN);
  }
  Number result(53);
  mpfr_set_d(result.value, got, MPFR_RNDN);
  if (std::isinf(got)) {
    mpfr_setsign(result.value, limit.value, got < 0, MPFR_RNDN);
  }
  mpfr_sub(error.value, result.value, value.value, MPFR_RNDN);
  if (mpfr_zero_p(error.value)) {
    return 0;
  }
  const int exponent = mpfr_zero_p(value.value) ? exponent_min : static_cast<int>(mpfr_get_exp(value.value)) - 1;
  const int measured = std::clamp(exponent, exponent_min, format.exponent_max);
  mpfr_mul_2si(error.value, error.value, -UlpExponent(measured, format), MPFR_RNDN);
  return std::fabs(mpfr_get_d(error.value, MPFR_RNDN));
}

double UlpError(const Reference& function, const Arguments& at, double got, const Format& format) {
  Number truth(format.precision + 40);
  TrueValue(function, at, truth.value);
  // Between the poles of lgamma below 0 are zeros at which no relative bound holds.
  const bool is_absolute = function.is_absolute_below_0 && at[0] < 0 && format.precision == kF64.precision;
  return UlpErrorOf(truth.value, got, format, is_absolute ? 0 : format.exponent_min);
}

double Focused(const Reference& function, std::mt19937_64& random) {
  return std::uniform_real_distribution<double>(function.focus_begin, function.focus_end)(random);
}

// pow over all exponents nearly always overflows: half of its exponents keep the result finite.
double PowExponent(double base, double range, std::mt19937_64& random) {
  return std::uniform_real_distribution<double>(-range, range)(random) / std::log2(std::fabs(base));
}

}  // namespace

std::span<const Reference> References() { return kReferences; }

double UlpError32(const Reference& function, const Arguments& at, float got) {
  return UlpError(function, at, got, kF32);
}
double UlpError64(const Reference& function, const Arguments& at, double got) {
  return UlpError(function, at, got, kF64);
}

namespace {

double ErrorFrom(double nearly, float got, int exponent_min) {
  if (std::isnan(nearly) || std::isnan(got)) {
    return std::isnan(nearly) && std::isnan(got) ? 0 : std::numeric_limits<double>::infinity();
  }
  constexpr double kLimit = 0x1p128;
  const double truth = std::fabs(nearly) > kLimit ? std::copysign(kLimit, nearly) : nearly;
  const double result = std::isinf(got) ? std::copysign(kLimit, got) : got;
  if (truth == result) {
    return 0;
  }
  const int exponent = truth == 0 ? exponent_min : std::clamp(std::ilogb(truth), exponent_min, kF32.exponent_max);
  return std::fabs(std::ldexp(result - truth, -UlpExponent(exponent, kF32)));
}

}  // namespace

double UlpErrorFrom(double nearly, float got) { return ErrorFrom(nearly, got, kF32.exponent_min); }

double FlushedError(const Reference& function, float at, float got, bool is_absolute) {
  const int least = is_absolute ? 0 : kF32.exponent_min;
  const double truth = function.host1(at);
  // An intermediate denormal number counted as zero.
  if (std::fabs(got - truth) <= std::numeric_limits<float>::min()) {
    return 0;
  }
  const double error = ErrorFrom(truth, got, least);
  if (std::fpclassify(at) != FP_SUBNORMAL) {
    return error;
  }
  const bool is_less = std::signbit(got) == std::signbit(truth) && std::fabs(got) <= 2 * std::fabs(truth);
  return is_less ? 0 : std::min(error, ErrorFrom(function.host1(0 * at), got, least));
}

double DeviceError(const Reference& function, float at, float got) {
  if (std::isfinite(at) && std::fabs(at) > function.device_argument_max) {
    return std::fabs(got) <= 1 ? 0 : std::numeric_limits<double>::infinity();
  }
  return FlushedError(function, at, got, function.is_absolute_on_devices);
}

Arguments Sample32(const Reference& function, std::mt19937_64& random) {
  Arguments at{};
  const bool is_focused = (random() & 1) != 0;
  for (uint32_t i = 0; i < function.arity; ++i) {
    at[i] = is_focused ? static_cast<float>(Focused(function, random))
                       : std::bit_cast<float>(static_cast<uint32_t>(random()));
  }
  if (function.name == "pow" && (random() & 1) != 0) {
    at[1] = static_cast<float>(PowExponent(at[0], 150, random));
  }
  return at;
}

Arguments Sample64(const Reference& function, std::mt19937_64& random) {
  Arguments at{};
  const bool is_focused = (random() & 1) != 0;
  for (uint32_t i = 0; i < function.arity; ++i) {
    at[i] = is_focused ? Focused(function, random) : std::bit_cast<double>(random());
  }
  if (function.name == "pow" && (random() & 1) != 0) {
    at[1] = PowExponent(at[0], 1080, random);
  }
  return at;
}

}  // namespace hpvm::math
