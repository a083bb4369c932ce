// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/opencl/bridge/header.h"

// HPVMD_OPENCL_HEADER is the path of the header that the build found.
asm(".section .rodata, \"a\"\n"
    "hpvmd_opencl_header_begin:\n"
    ".incbin \"" HPVMD_OPENCL_HEADER
    "\"\n"
    "hpvmd_opencl_header_end:\n"
    ".byte 0\n"
    ".previous\n");

extern "C" {
__attribute__((visibility("hidden"))) extern const char hpvmd_opencl_header_begin[];
__attribute__((visibility("hidden"))) extern const char hpvmd_opencl_header_end[];
}

namespace hpvm::opencl {

llvm::StringRef BaseHeader() {
  return {hpvmd_opencl_header_begin, static_cast<size_t>(hpvmd_opencl_header_end - hpvmd_opencl_header_begin)};
}

}  // namespace hpvm::opencl
