// SPDX-License-Identifier: Apache-2.0
// A tenant's OpenCL C, before any driver sees it. Drivers compile it with clang inside a process that may read little,
// and still it is held to what needs no file: no includes or their kin, no inline assembly, build options from a list,
// and a kernel of the entry's name whose parameters can be what the node passes.
//
// Macros are not expanded. A name pasted together from macro arguments is not seen here; the driver's process, which
// can open nothing of the host's, is what holds then.
#ifndef HPVMD_COMPILER_FRONT_OPENCL_OPENCL_FRONT_H_
#define HPVMD_COMPILER_FRONT_OPENCL_OPENCL_FRONT_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "compiler/service.h"

namespace hpvm::opencl {

struct FrontOptions {
  std::string module_name;
  std::string entry;
  std::span<const ParamSpec> params;
  std::string options;                // As the document has them.
  const GpuTarget* target = nullptr;  // Not null.
};

// Faults name line and column. The options as the driver gets them, one space between words; nothing when `diagnostics`
// has an error.
std::optional<std::string> VetOpenCl(std::span<const uint8_t> text, const FrontOptions& options,
                                     Diagnostics& diagnostics);

}  // namespace hpvm::opencl

#endif  // HPVMD_COMPILER_FRONT_OPENCL_OPENCL_FRONT_H_
