// SPDX-License-Identifier: Apache-2.0
// Reports the declarations of a parsed text to a listener.
#ifndef HPVMD_COMPILER_FRONT_OPENCL_BRIDGE_DECLARATIONS_H_
#define HPVMD_COMPILER_FRONT_OPENCL_BRIDGE_DECLARATIONS_H_

#include <clang/AST/ASTConsumer.h>
#include <clang/Basic/SourceManager.h>

#include <memory>

#include "compiler/front/opencl/bridge/bridge.h"

namespace hpvm::opencl {

// Returns the position that line markers give, so that positions in preprocessed text are those in the tenant's text;
// zeros for an invalid location.
hpvm_opencl_place PlaceOf(clang::SourceLocation location, const clang::SourceManager& sources);

// `listener` outlives the consumer. Inline assembly and printf are faults here, where macros are already expanded and
// cannot hide them.
std::unique_ptr<clang::ASTConsumer> ListDeclarations(const hpvm_opencl_listener& listener);

}  // namespace hpvm::opencl

#endif  // HPVMD_COMPILER_FRONT_OPENCL_BRIDGE_DECLARATIONS_H_
