// SPDX-License-Identifier: Apache-2.0
// What an artifact says of a module's source: lines for whatever may trap or be reported, and readable names. Part of
// the compile child.
#ifndef HPVMD_COMPILER_DEBUG_SOURCE_INFO_H_
#define HPVMD_COMPILER_DEBUG_SOURCE_INFO_H_

#include <span>
#include <string>
#include <string_view>

#include "base/diagnostic.h"
#include "compiler/api/artifact.h"
#include "compiler/ir/source_place.h"

namespace hpvm::debug {

// Fills artifact's files and lines from the debug information in `bytes`, for what `module` may have to name and
// for the artifact's remarks, and makes its function names readable. Debug information that is malformed costs a
// warning, never the artifact.
// `places`, sorted by source, come before what debug information says of their bytes.
void AddSourceInfo(std::span<const uint8_t> bytes, const ir::Module& module, std::span<const ir::SourcePlace> places,
                   Artifact* artifact, Diagnostics* diagnostics);

// "core::ptr::write" for "_ZN4core3ptr5write17h0123456789abcdefE"; names of C, and those that would take too long, as
// they are. Cut after 256 bytes.
std::string ReadableName(std::string_view name);

}  // namespace hpvm::debug

#endif  // HPVMD_COMPILER_DEBUG_SOURCE_INFO_H_
