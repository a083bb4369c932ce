// SPDX-License-Identifier: Apache-2.0
#include "compiler/math/math_module.h"

namespace hpvm::math {
namespace {

constexpr uint8_t kModule[] = {
#include "compiler/math/math_bytes.inc"
};

constexpr MathFunction kFunctions[] = {
#define HPVM_MATH(arguments, name, f32, f64) {#name "_f32", arguments, false}, {#name "_f64", arguments, true},
#include "compiler/math/functions.def"
#undef HPVM_MATH
};

}  // namespace

std::span<const uint8_t> MathModule() { return kModule; }
std::span<const MathFunction> MathFunctions() { return kFunctions; }

}  // namespace hpvm::math
