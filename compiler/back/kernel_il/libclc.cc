// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/kernel_il/libclc.h"

// The build defines HPVMD_LIBCLC as the path of libclc's bitcode.
asm(".section .rodata, \"a\"\n"
    ".balign 16\n"
    "hpvmd_libclc_begin:\n"
    ".incbin \"" HPVMD_LIBCLC
    "\"\n"
    "hpvmd_libclc_end:\n"
    ".byte 0\n"
    ".previous\n");

extern "C" {
__attribute__((visibility("hidden"))) extern const char hpvmd_libclc_begin[];
__attribute__((visibility("hidden"))) extern const char hpvmd_libclc_end[];
}

namespace hpvm::kernel_il {
namespace {

constexpr char kRest[] = {
#include "compiler/back/kernel_il/libclc_rest.inc"
    '\0'};

}  // namespace

std::string_view LibclcBitcode() {
  return {hpvmd_libclc_begin, static_cast<size_t>(hpvmd_libclc_end - hpvmd_libclc_begin)};
}
std::string_view LibclcRest() { return kRest; }

}  // namespace hpvm::kernel_il
