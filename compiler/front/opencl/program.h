// SPDX-License-Identifier: Apache-2.0
// What a compiler says of a text in OpenCL C: clang, in the process that compiles, before any driver sees the text.
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

// By canonical type: typedefs hide nothing.
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
  uint32_t bits = 0;      // Of numbers.
  bool is_const = false;  // Pointers: nothing is written through it.
  std::string type;       // As written and, where it differs, as it is.
  Place place;
};

struct Kernel {
  std::string name;
  Place place;
  std::array<uint32_t, 3> group{};  // That it requires; zeros: none.
  std::vector<Parameter> parameters;
};

struct Variable {
  enum class Space : uint8_t { kPrivate, kLocal, kConstant };
  Space space = Space::kPrivate;
  uint64_t bytes = 0;
  std::string name;
  std::string function;  // Empty outside of functions.
  Place place;
};

struct TextFault {
  Place place;  // Line 0: of no place.
  std::string message;
};

struct Program {
  std::vector<TextFault> faults;  // With one, the rest is not to be relied upon.
  std::vector<Kernel> kernels;    // Those with a body.
  std::vector<Variable> variables;
  // Without conditions and macros, so that a driver has no choice of its own in what it reads.
  std::string text;
};

// Loads libhpvm-opencl.so. Before the process has threads, forks, or is locked away from files. Idempotent.
Status PrepareOpenCl();

// `arguments` are clang's: -D..., -cl-.... Fails when PrepareOpenCl has not succeeded.
StatusOr<Program> ReadProgram(std::string_view text, const std::vector<std::string>& arguments);

}  // namespace hpvm::opencl

#endif  // HPVMD_COMPILER_FRONT_OPENCL_PROGRAM_H_
