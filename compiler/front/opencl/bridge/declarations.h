// SPDX-License-Identifier: Apache-2.0
// What a parsed text declares, told to a listener.
#ifndef HPVMD_COMPILER_FRONT_OPENCL_BRIDGE_DECLARATIONS_H_
#define HPVMD_COMPILER_FRONT_OPENCL_BRIDGE_DECLARATIONS_H_

#include <clang/AST/ASTConsumer.h>
#include <clang/Basic/SourceManager.h>

#include <memory>

#include "compiler/front/opencl/bridge/bridge.h"

namespace hpvm::opencl {

// By line markers, so that places of preprocessed text are those of the tenant's. Zeros for none.
hpvm_opencl_place PlaceOf(clang::SourceLocation location, const clang::SourceManager& sources);

// `listener` outlives the consumer. Inline assembly and printf are faults here: macros cannot hide them any more.
std::unique_ptr<clang::ASTConsumer> ListDeclarations(const hpvm_opencl_listener& listener);

}  // namespace hpvm::opencl

#endif  // HPVMD_COMPILER_FRONT_OPENCL_BRIDGE_DECLARATIONS_H_
