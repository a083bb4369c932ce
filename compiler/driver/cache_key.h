// SPDX-License-Identifier: Apache-2.0
// Computes the name of a compiled artifact in the cache (base/io/cache_folder.h), so that each build of the compiler
// compiles a module once.
#ifndef HPVMD_COMPILER_DRIVER_CACHE_KEY_H_
#define HPVMD_COMPILER_DRIVER_CACHE_KEY_H_

#include <string_view>

#include "base/hash.h"
#include "compiler/api/service.h"

namespace hpvm::compile {

// Returns a hash of everything on which an artifact depends. `target` names the processor's features; `build`
// (base/io/build_id.h) identifies this compiler, LLVM, and any other library that takes part in such a compile.
Sha256 CacheKeyOf(const CompileRequest& request, std::string_view target, const Sha256& build);

}  // namespace hpvm::compile

#endif  // HPVMD_COMPILER_DRIVER_CACHE_KEY_H_
