// SPDX-License-Identifier: Apache-2.0
// clang's own header for OpenCL C as the build found it: the language's built-in types and constants.
#ifndef HPVMD_COMPILER_FRONT_OPENCL_BRIDGE_HEADER_H_
#define HPVMD_COMPILER_FRONT_OPENCL_BRIDGE_HEADER_H_

#include <llvm/ADT/StringRef.h>

namespace hpvm::opencl {

// A zero byte follows the header's text.
llvm::StringRef BaseHeader();

}  // namespace hpvm::opencl

#endif  // HPVMD_COMPILER_FRONT_OPENCL_BRIDGE_HEADER_H_
