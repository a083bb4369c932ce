// SPDX-License-Identifier: Apache-2.0
// Kernels that can be seen in a text without expanding macros.
#ifndef HPVMD_COMPILER_FRONT_OPENCL_KERNELS_H_
#define HPVMD_COMPILER_FRONT_OPENCL_KERNELS_H_

#include <span>
#include <string>
#include <vector>

#include "compiler/front/opencl/lexer.h"

namespace hpvm::opencl {

struct KernelDeclaration {
  std::string name;
  Place place;
  // The tokens of each parameter. Not to be believed when a directive stands between them (`is_whole` is false).
  std::vector<std::vector<Token>> parameters;
  bool is_whole = true;
};

// Every `kernel` or `__kernel` with a name and a parameter list, declarations and definitions alike.
std::vector<KernelDeclaration> FindKernels(std::span<const Token> tokens);

struct ParameterShape {
  enum class Kind : uint8_t {
    kUnknown,  // A macro or a type of the program's own: the driver knows.
    kGlobal,   // A pointer to global or constant memory.
    kLocal,
    kInteger,
    kFloat,
    kOther,  // Nothing that a node can pass.
  };
  Kind kind = Kind::kUnknown;
  uint32_t width = 0;     // Bits of numbers.
  bool is_const = false;  // Pointers: nothing is written through it.
  std::string text;       // The parameter as written.
};
ParameterShape ShapeOf(std::span<const Token> parameter);

}  // namespace hpvm::opencl

#endif  // HPVMD_COMPILER_FRONT_OPENCL_KERNELS_H_
