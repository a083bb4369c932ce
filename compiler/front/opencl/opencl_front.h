// SPDX-License-Identifier: Apache-2.0
// A tenant's OpenCL C, before any driver sees it. Drivers compile it with clang inside a process that may read little,
// and still it is held to what needs no file: no includes or their kin, no inline assembly, build options from a list,
// and a kernel of the entry's name whose parameters can be what the node passes. The parameters' types and the memory
// that variables take come from a compiler of our own, which reads what the driver will read: the driver gets the text
// without conditions and macros.
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
  std::string options;                // As the document has them.
  const GpuTarget* target = nullptr;  // Not null.
};

// What the driver gets.
struct Vetted {
  std::string text;
  std::string options;  // One space between words; no definitions, as they have had their effect.
};

// Faults name line and column of `text`. Nothing when `diagnostics` has an error. Needs PrepareOpenCl (program.h).
std::optional<Vetted> VetOpenCl(std::span<const uint8_t> text, const FrontOptions& options, Diagnostics& diagnostics);

// The part of it that needs no compiler: words, directives and options.
std::optional<BuildOptions> VetText(std::span<const uint8_t> text, const FrontOptions& options,
                                    Diagnostics& diagnostics);

}  // namespace hpvm::opencl

#endif  // HPVMD_COMPILER_FRONT_OPENCL_OPENCL_FRONT_H_
