// SPDX-License-Identifier: Apache-2.0
// The math library that kernels import from "hpvm": math.wasm, which build.sh links from musl's libm.
//
// Every device computes with these functions, so exact mode gives the same bits everywhere; fast math has forms of our
// own for some functions (fast.def, device.def). The module exports one function per form. It imports functions that a
// device computes natively from "device", named like the kernel IR's operations; only the forms of device.def call
// them. Its memory holds a small stack below constant tables.
#ifndef HPVMD_COMPILER_MATH_MATH_MODULE_H_
#define HPVMD_COMPILER_MATH_MATH_MODULE_H_

#include <cstdint>
#include <span>
#include <string_view>

namespace hpvm::math {

// Returns the module's bytes, which live as long as the program.
std::span<const uint8_t> MathModule();

struct MathFunction {
  std::string_view name;   // Name of the export: "exp_f32".
  uint32_t arguments = 1;  // All of the result's type.
  bool is_f64 = false;
  // The export for nodes with "math": "fast", "exp_f32.fast"; empty: they use `name`.
  std::string_view fast_name;
  // The same on devices with GpuTarget::device_math, "exp_f32.device"; empty: they use `fast_name`.
  std::string_view device_name;
};
// Returns all functions, f32 and f64 forms in turn.
std::span<const MathFunction> MathFunctions();

}  // namespace hpvm::math

#endif  // HPVMD_COMPILER_MATH_MATH_MODULE_H_
