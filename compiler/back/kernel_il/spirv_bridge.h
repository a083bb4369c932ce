// SPDX-License-Identifier: Apache-2.0
// The SPIR-V translator, which comes with an LLVM of its own (15; hpvm-compiler's is 22). It stands in a shared object
// with one plain C function, loaded into a scope of its own, so that neither LLVM sees the other's symbols.
#ifndef HPVMD_COMPILER_BACK_KERNEL_IL_SPIRV_BRIDGE_H_
#define HPVMD_COMPILER_BACK_KERNEL_IL_SPIRV_BRIDGE_H_

#include <cstddef>

extern "C" {

// Receives the bitcode, in one call; `error` receives a message that ends in a zero byte when the result is not 0.
typedef void (*hpvm_spirv_write)(void* context, const char* bytes, size_t count);
typedef int (*hpvm_spirv_translate_function)(const char* spirv, size_t spirv_bytes, hpvm_spirv_write write,
                                             void* context, char* error, size_t error_bytes);
__attribute__((visibility("default"))) int hpvm_spirv_translate(const char* spirv, size_t spirv_bytes,
                                                                hpvm_spirv_write write, void* context, char* error,
                                                                size_t error_bytes);
}

#endif  // HPVMD_COMPILER_BACK_KERNEL_IL_SPIRV_BRIDGE_H_
