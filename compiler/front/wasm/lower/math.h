// SPDX-License-Identifier: Apache-2.0
// The math library as part of a kernel: hpvm.exp_f32 and its like become calls of functions that are lowered from
// compiler/math's module into the kernel's own.
//
// The library's memory becomes state (ir::Space::kState): its tables are initial state, its stack is scratch state that
// nothing reads before writing it. Nothing of it is recursive, so that each function's frame has a fixed place, and the
// stack pointer is a constant.
#ifndef HPVMD_COMPILER_FRONT_WASM_LOWER_MATH_H_
#define HPVMD_COMPILER_FRONT_WASM_LOWER_MATH_H_

#include <cstdint>
#include <span>
#include <vector>

#include "compiler/ir/ir.h"

namespace hpvm::wasm {

// The form before it is taken where there is none of the kind.
enum class MathForms : uint8_t {
  kExact,
  kFast,
  kDevice,  // Fast ones that use operations of ir::Family::kApprox.
};

// Appends the functions math::MathFunctions()[i] for each i of `needed`, and what they call, to the kernel's functions,
// and their tables to its state. All but exact forms say how far fast math may reach into them
// (ir::Function::fast_math). Returns their ids by index in MathFunctions(), invalid for the others. To be called once,
// when the kernel's own functions and state have their final number and size.
std::vector<ir::FunctionId> AppendMath(std::span<const uint32_t> needed, MathForms forms, ir::Module& out);

// Reads the library now instead of when the first kernel needs it: before forking.
void PrepareMath();

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_LOWER_MATH_H_
