// SPDX-License-Identifier: Apache-2.0
// Kernels of one mathematical function each, and a way to run them over many arguments.
#ifndef HPVMD_COMPILER_MATH_TESTING_KERNEL_H_
#define HPVMD_COMPILER_MATH_TESTING_KERNEL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "compiler/back/llvm/testing/image_runner.h"
#include "compiler/front/wasm/lower/math.h"
#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/ir.h"
#include "compiler/math/testing/reference.h"

namespace hpvm::math {

// Returns a kernel out[i] = f(x[i], ...) for instance i. `rsqrt` is as hpvm.h defines it.
ir::Module KernelOf(const Reference& function, bool is_f64, wasm::MathForms forms);

// CompiledFunction holds one function's compiled kernel. Not thread-safe.
class CompiledFunction {
 public:
  // `is_fast`: the forms and the code of a node with "math": "fast".
  CompiledFunction(const Reference& function, bool is_f64, bool is_fast = false);

  // Returns the bits of the results. `arguments` holds one list of bits per argument, all of one length.
  std::vector<uint64_t> Run(const std::vector<std::vector<uint64_t>>& arguments);
  // The same with the instances in lockstep, by the compiler's preferred variant; nothing when it made none.
  std::optional<std::vector<uint64_t>> RunTiles(const std::vector<std::vector<uint64_t>>& arguments);
  // The same by the interpreter, whose module does not use fast math.
  std::vector<uint64_t> Interpret(const std::vector<std::vector<uint64_t>>& arguments);
  // f32 only, without copies: out[i] = f(in[i]).
  void Run32(const float* in, float* out, uint32_t count);

 private:
  ir::Module module_;
  std::optional<ir::Interpreter> interpreter_;
  std::unique_ptr<cpu::testing::ImageRunner> image_;
  bool is_f64_;
};

}  // namespace hpvm::math

#endif  // HPVMD_COMPILER_MATH_TESTING_KERNEL_H_
