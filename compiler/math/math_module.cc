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

constexpr std::string_view kDeviceNames[] = {
#define HPVM_DEVICE_F32(name, form) #name "_f32.device",
#include "compiler/math/device.def"
#undef HPVM_DEVICE_F32
};

// Returns the form in `forms` whose name up to the point is `name`.
constexpr std::string_view FormOf(std::string_view name, std::span<const std::string_view> forms) {
  for (const std::string_view form : forms) {
    if (form.substr(0, form.find('.')) == name) {
      return form;
    }
  }
  return {};
}

constexpr MathFunction Row(std::string_view name, uint32_t arguments, bool is_f64) {
  return {name, arguments, is_f64, FormOf(name, kFastNames), FormOf(name, kDeviceNames)};
}

constexpr MathFunction kFunctions[] = {
#define HPVM_MATH(arguments, name, f32, f64) Row(#name "_f32", arguments, false), Row(#name "_f64", arguments, true),
#include "compiler/math/functions.def"
#undef HPVM_MATH
};

}  // namespace

std::span<const uint8_t> MathModule() { return kModule; }
std::span<const MathFunction> MathFunctions() { return kFunctions; }

}  // namespace hpvm::math
