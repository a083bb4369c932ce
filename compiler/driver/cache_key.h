// SPDX-License-Identifier: Apache-2.0
// What a compiled artifact is called in the cache (base/io/cache_folder.h), so that a module is compiled once by each
// build of the compiler.
#ifndef HPVMD_COMPILER_DRIVER_CACHE_KEY_H_
#define HPVMD_COMPILER_DRIVER_CACHE_KEY_H_

#include <string_view>

#include "base/hash.h"
#include "compiler/api/service.h"

namespace hpvm::compile {

// Names what an artifact depends on; `target` names the processor's features, `build` (base/io/build_id.h) is of this
// compiler, LLVM, and whatever else of a library takes part in such a compile.
Sha256 CacheKeyOf(const CompileRequest& request, std::string_view target, const Sha256& build);

}  // namespace hpvm::compile

#endif  // HPVMD_COMPILER_DRIVER_CACHE_KEY_H_
