// SPDX-License-Identifier: Apache-2.0
// Links the math library into a kernel: hpvm.exp_f32 and similar imports become calls of functions that are lowered
// from compiler/math's module into the kernel's own.
//
// The library's memory becomes state (ir::Space::kState): its tables are initial state, and its stack is scratch
// state that no function reads before writing it. No function of the library is recursive, so that each function's
// frame has a fixed place, and the stack pointer is a constant.
#ifndef HPVMD_COMPILER_FRONT_WASM_LOWER_MATH_H_
#define HPVMD_COMPILER_FRONT_WASM_LOWER_MATH_H_

#include <cstdint>
#include <span>
#include <vector>

#include "compiler/ir/ir.h"

namespace hpvm::wasm {

// When a function lacks a form, the form listed before it is used.
enum class MathForms : uint8_t {
  kExact,
  kFast,
  kDevice,  // The fast form with operations of ir::Family::kApprox.
};

// Appends the functions math::MathFunctions()[i] for each i in `needed`, and their callees, to the kernel's
// functions, and their tables to its state. All but exact forms state how far fast math may change them
// (ir::Function::fast_math). Returns their ids by index in MathFunctions(), invalid for the others. Call it once,
// when the number of the kernel's own functions and the size of its state are final.
std::vector<ir::FunctionId> AppendMath(std::span<const uint32_t> needed, MathForms forms, ir::Module& out);

// Reads the library now, before a fork, instead of when the first kernel needs it.
void PrepareMath();

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_LOWER_MATH_H_
