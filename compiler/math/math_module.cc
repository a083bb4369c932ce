// SPDX-License-Identifier: Apache-2.0
#include "compiler/math/math_module.h"

namespace hpvm::math {
namespace {

constexpr uint8_t kModule[] = {
#include "compiler/math/math.inc"
};

constexpr std::string_view kFastNames[] = {
#define HPVM_FAST_F32(arguments, name, form) #name "_f32.fast",
#define HPVM_FAST_F64(arguments, name, form) #name "_f64.fast",
#include "compiler/math/fast.def"
#undef HPVM_FAST_F32
#undef HPVM_FAST_F64
};

constexpr std::string_view FastName(std::string_view name) {
  for (const std::string_view fast : kFastNames) {
    if (fast.substr(0, fast.size() - 5) == name) {
      return fast;
    }
  }
  return {};
}

constexpr MathFunction kFunctions[] = {
#define HPVM_MATH(arguments, name, f32, f64) \
  {#name "_f32", arguments, false, FastName(#name "_f32")}, {#name "_f64", arguments, true, FastName(#name "_f64")},
#include "compiler/math/functions.def"
#undef HPVM_MATH
};

}  // namespace

std::span<const uint8_t> MathModule() { return kModule; }
std::span<const MathFunction> MathFunctions() { return kFunctions; }

}  // namespace hpvm::math
