// SPDX-License-Identifier: Apache-2.0
// The forms of device_f32.h hold the bounds that client/kernel/README.md states on any device whose functions hold the
// bounds that device_f32.h requires: here their errors are as large as allowed.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <random>
#include <string_view>

#include "gtest/gtest.h"

#include "compiler/math/testing/reference.h"

namespace hpvm::math {
namespace {

// The fraction of their bounds by which the device's functions are off: -1, 1, or any value in between.
struct Fault {
  double from = 0, to = 0;
} fault;
std::mt19937_64 fault_random(7);

double NextFault() { return std::uniform_real_distribution<double>(fault.from, fault.to)(fault_random); }

float Flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }
// A device rounds within its bounds; rounding here adds half an ulp.
float Sinusoid(double truth) {
  return static_cast<float>(std::clamp(truth + NextFault() * std::exp2(-20.5), -1.0, 1.0));
}
float ApproxSin(float x) { return Sinusoid(std::sin(double{x})); }
float ApproxCos(float x) { return Sinusoid(std::cos(double{x})); }
float ApproxExp2(float x) { return Flushed(static_cast<float>(std::exp2(double{x}) * (1 + NextFault() * 0x1p-22))); }
float ApproxLog2(float x) {
  const double log = std::log2(double{Flushed(x)});
  const bool is_near = x > 0.5f && x < 2;
  return static_cast<float>(is_near ? log + NextFault() * 0x1p-22 : log * (1 + NextFault() * 0x1p-22));
}
float ProductPlus(float a, float b, float c) { return std::fmaf(a, b, c); }
float InPlace(float x) { return x; }

#include "compiler/math/device_f32.h"

struct Form {
  std::string_view name;
  float (*compute)(float);
};
constexpr Form kForms[] = {
#define HPVM_DEVICE_F32(name, form) {#name, [](float x) -> float { return form; }},
#include "compiler/math/device.def"
#undef HPVM_DEVICE_F32
};

const Reference& ReferenceOf(std::string_view name) {
  for (const Reference& reference : References()) {
    if (reference.name == name) {
      return reference;
    }
  }
  ADD_FAILURE() << name;
  return References()[0];
}

class DeviceFormTest : public ::testing::TestWithParam<Form> {
 protected:
  double ErrorAt(float x, float got) const { return DeviceError(reference_, x, got); }
  void Measure(float x) {
    const double error = ErrorAt(x, GetParam().compute(x));
    if (!(error <= worst_)) {
      worst_ = error;
      worst_at_ = x;
    }
  }

  const Reference& reference_ = ReferenceOf(GetParam().name);
  double worst_ = 0;
  float worst_at_ = 0;
};

// Tests every 4,099th float, and as many from the range where the function varies, with each fault.
TEST_P(DeviceFormTest, HoldsItsBound) {
  std::mt19937_64 random(3);
  for (const Fault& one : {Fault{-1, -1}, Fault{1, 1}, Fault{-1, 1}}) {
    fault = one;
    for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 4099) {
      Measure(std::bit_cast<float>(static_cast<uint32_t>(bits)));
      Measure(static_cast<float>(Sample32(reference_, random)[0]));
    }
    // The largest arguments for which the bounds of sine and cosine hold.
    for (uint32_t i = 0; i < 400'000; ++i) {
      Measure(std::bit_cast<float>(std::bit_cast<uint32_t>(0x1p20f) - 399'999 + i));
    }
  }
  std::printf("%s: %.3f of %g at %a\n", GetParam().name.data(), worst_, reference_.device_f32, worst_at_);
  EXPECT_LE(worst_, reference_.device_f32);
  EXPECT_GT(worst_, reference_.device_f32 / 2) << "The bound says too little.";
}

// Special values are as in C, except for the sign of a zero.
TEST_P(DeviceFormTest, KeepsSpecialValues) {
  const float infinity = std::numeric_limits<float>::infinity();
  fault = {};
  for (const float x : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN(), 0.0f, -0.0f, -1.0f,
                        std::numeric_limits<float>::max(), std::numeric_limits<float>::lowest()}) {
    const float want = static_cast<float>(reference_.host1(x)), got = GetParam().compute(x);
    EXPECT_TRUE(std::isnan(want)   ? std::isnan(got)
                : std::isinf(want) ? got == want
                                   : ErrorAt(x, got) <= reference_.device_f32)
        << x << ": " << got << ", not " << want;
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, DeviceFormTest, ::testing::ValuesIn(kForms),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace hpvm::math
