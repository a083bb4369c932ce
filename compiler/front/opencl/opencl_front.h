// SPDX-License-Identifier: Apache-2.0
// Checks a tenant's OpenCL C before any driver sees it. Drivers compile it with clang inside a process that may read
// little; nevertheless it must need no file: no includes or similar directives, no inline assembly, build options
// from a list, and a kernel with the entry's name whose parameters can take what the node passes. Our own clang
// determines the parameters' types and the memory that variables take. It reads what the driver will read, because
// the driver gets the text with conditions and macros resolved.
#ifndef HPVMD_COMPILER_FRONT_OPENCL_OPENCL_FRONT_H_
#define HPVMD_COMPILER_FRONT_OPENCL_OPENCL_FRONT_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/diagnostic.h"
#include "compiler/api/service.h"
#include "compiler/front/opencl/build_options.h"

namespace hpvm::opencl {

struct FrontOptions {
  std::string module_name;
  std::string entry;
  std::span<const ParamSpec> params;
  std::string options;                // As written in the document.
  const GpuTarget* target = nullptr;  // Not null.
};

// The text and options that the driver gets.
struct Vetted {
  std::string text;
  std::string options;  // Words separated by one space, without definitions, which are already applied.
};

// Faults name line and column of `text`. Returns nothing when `diagnostics` has an error. Needs PrepareOpenCl
// (program.h).
std::optional<Vetted> VetOpenCl(std::span<const uint8_t> text, const FrontOptions& options, Diagnostics& diagnostics);

// Does the part of VetOpenCl that needs no compiler: words, directives and options.
std::optional<BuildOptions> VetText(std::span<const uint8_t> text, const FrontOptions& options,
                                    Diagnostics& diagnostics);

}  // namespace hpvm::opencl

#endif  // HPVMD_COMPILER_FRONT_OPENCL_OPENCL_FRONT_H_
