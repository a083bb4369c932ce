// SPDX-License-Identifier: Apache-2.0
// The true values of the math library's functions, by MPFR, and the error of a result.
#ifndef HPVMD_COMPILER_MATH_TESTING_REFERENCE_H_
#define HPVMD_COMPILER_MATH_TESTING_REFERENCE_H_

#include <array>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <string_view>

namespace hpvm::math {

struct Reference {
  std::string_view name;  // "exp".
  uint32_t arity = 1;
  // The interval of half of the samples; the other half is spread over all exponents.
  double focus_begin = -100, focus_end = 100;
  // The host's function in double: off by a few ulp of double, below 2^-25 ulp of float. Null for functions without
  // one.
  double (*host1)(double) = nullptr;
  double (*host2)(double, double) = nullptr;
  bool is_absolute_below_0 = false;  // f64: for x < 0 errors are in ulp of the larger of 1 and the result.
  // The largest errors that docs and tests allow, in ulp.
  double bound_f32 = 1, bound_f64 = 1;
  // The same for the fast-math forms; 0: there is none.
  double fast_f32 = 0, fast_f64 = 0;
  // The same for the forms that use a device's own functions; 0: there is none. If is_absolute_on_devices, errors are
  // in ulp of the larger of 1 and the result.
  double device_f32 = 0;
  bool is_absolute_on_devices = false;
  // Those bounds hold for |x| up to this; above, finite arguments give a value from -1 to 1.
  double device_argument_max = std::numeric_limits<double>::infinity();
};
std::span<const Reference> References();

using Arguments = std::array<double, 3>;  // For f32 each is a float.

// Returns the distance of `got` from the true value, in units in the last place of the true value. Returns 0 when both
// are NaNs or the same infinity; infinity when only one is. An overflow counts from the first power of two that does
// not fit.
double UlpError32(const Reference& function, const Arguments& at, float got);
double UlpError64(const Reference& function, const Arguments& at, double got);
// The same from a value in double that is nearly true.
double UlpErrorFrom(double nearly, float got);
// The same where denormal arguments, results and intermediate values may count as zeros: differences up to 2^-126 are
// ignored, and a denormal argument may give anything from zero to twice the result.
double FlushedError(const Reference& function, float at, float got, bool is_absolute);
// The same for a form that uses a device's own functions: 0 or infinite above device_argument_max.
double DeviceError(const Reference& function, float at, float got);

// Return arguments over all exponents or in the function's focus, signs included.
Arguments Sample32(const Reference& function, std::mt19937_64& random);
Arguments Sample64(const Reference& function, std::mt19937_64& random);

}  // namespace hpvm::math

#endif  // HPVMD_COMPILER_MATH_TESTING_REFERENCE_H_
