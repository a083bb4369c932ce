// SPDX-License-Identifier: Apache-2.0
// Functions of libraries that are resolved at run time.
#ifndef HPVMD_BENCH_GPU_LIBRARY_H_
#define HPVMD_BENCH_GPU_LIBRARY_H_

#include <dlfcn.h>

namespace hpvm::bench {

// `library` comes from dlopen. Returns false when it has no such function.
template <typename Function>
bool FindFunction(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_GPU_LIBRARY_H_
