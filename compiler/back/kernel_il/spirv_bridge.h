// SPDX-License-Identifier: Apache-2.0
// Wraps the SPIR-V translator, which comes with an LLVM of its own (15; hpvm-compiler's is 22). It is in a shared
// object with one plain C function, loaded into a separate scope, so that neither LLVM sees the other's symbols.
#ifndef HPVMD_COMPILER_BACK_KERNEL_IL_SPIRV_BRIDGE_H_
#define HPVMD_COMPILER_BACK_KERNEL_IL_SPIRV_BRIDGE_H_

#include <cstddef>

extern "C" {

// Receives the bitcode in one call. When the result is not 0, `error` receives a null-terminated message.
typedef void (*hpvm_spirv_write)(void* context, const char* bytes, size_t count);
typedef int (*hpvm_spirv_translate_function)(const char* spirv, size_t spirv_bytes, hpvm_spirv_write write,
                                             void* context, char* error, size_t error_bytes);
__attribute__((visibility("default"))) int hpvm_spirv_translate(const char* spirv, size_t spirv_bytes,
                                                                hpvm_spirv_write write, void* context, char* error,
                                                                size_t error_bytes);
}

#endif  // HPVMD_COMPILER_BACK_KERNEL_IL_SPIRV_BRIDGE_H_
