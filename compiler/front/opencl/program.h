// SPDX-License-Identifier: Apache-2.0
// Reads an OpenCL C program with clang, inside the compiling process, before any driver sees the text.
#ifndef HPVMD_COMPILER_FRONT_OPENCL_PROGRAM_H_
#define HPVMD_COMPILER_FRONT_OPENCL_PROGRAM_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "compiler/front/opencl/lexer.h"

namespace hpvm::opencl {

// A kernel parameter, described by its canonical type: typedefs hide nothing.
struct Parameter {
  enum class Kind : uint8_t {
    kGlobal,  // A pointer to global or constant memory.
    kLocal,
    kInteger,
    kFloat,
    kVector,
    kRecord,  // A struct or union by value.
    kOpaque,  // An image, sampler, event, queue or pipe.
    kOther,
  };
  Kind kind = Kind::kOther;
  uint32_t bits = 0;      // Width of integers and floats.
  bool is_const = false;  // For pointers: the kernel does not write through it.
  std::string type;       // The type as written and, where it differs, the canonical type.
  SourcePosition place;
};

struct Kernel {
  std::string name;
  SourcePosition place;
  std::array<uint32_t, 3> group{};  // Required work-group size; zeros when the kernel requires none.
  std::vector<Parameter> parameters;
};

struct Variable {
  enum class Space : uint8_t { kPrivate, kLocal, kConstant };
  Space space = Space::kPrivate;
  uint64_t bytes = 0;
  std::string name;
  std::string function;  // Empty for variables outside functions.
  SourcePosition place;
};

struct TextFault {
  SourcePosition place;  // Line 0 when the fault has no position.
  std::string message;
};

struct Program {
  std::vector<TextFault> faults;  // When there is a fault, the other members are unreliable.
  std::vector<Kernel> kernels;    // Kernels that have a body.
  std::vector<Variable> variables;
  // The text with conditions and macros resolved, so that the driver cannot take another branch.
  std::string text;
};

// Loads libhpvm-opencl.so. Call it before the process starts threads, forks, or loses access to files. Idempotent.
Status PrepareOpenCl();

// `arguments` are for clang: -D..., -cl-.... Fails when PrepareOpenCl has not succeeded.
StatusOr<Program> ReadProgram(std::string_view text, const std::vector<std::string>& arguments);

}  // namespace hpvm::opencl

#endif  // HPVMD_COMPILER_FRONT_OPENCL_PROGRAM_H_
