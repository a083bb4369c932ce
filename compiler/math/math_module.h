// SPDX-License-Identifier: Apache-2.0
// The math library that kernels import from "hpvm": math.wasm, made by build.sh of musl's libm.
//
// Every device computes with these very functions, so exact mode gives the same bits everywhere; fast math has forms of
// our own for some (fast.def, device.def). The module exports one function a form, and imports what a device computes
// by itself, as functions of "device" that are named like the kernel IR's operations; only the forms of device.def call
// those. Its memory holds a small stack below constant tables.
#ifndef HPVMD_COMPILER_MATH_MATH_MODULE_H_
#define HPVMD_COMPILER_MATH_MATH_MODULE_H_

#include <cstdint>
#include <span>
#include <string_view>

namespace hpvm::math {

// The module's bytes; they live as long as the program.
std::span<const uint8_t> MathModule();

struct MathFunction {
  std::string_view name;   // The export's: "exp_f32".
  uint32_t arguments = 1;  // All of the result's type.
  bool is_f64 = false;
  // The export for nodes with "math": "fast", "exp_f32.fast"; empty: they get the one above.
  std::string_view fast_name;
  // The same on devices with GpuTarget::device_math, "exp_f32.device"; empty: they get the one above.
  std::string_view device_name;
};
// All of them, f32 and f64 forms in turn.
std::span<const MathFunction> MathFunctions();

}  // namespace hpvm::math

#endif  // HPVMD_COMPILER_MATH_MATH_MODULE_H_
