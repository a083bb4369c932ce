// SPDX-License-Identifier: Apache-2.0
// Adds source information to an artifact: lines for operations that may trap or be reported, and readable names. Runs
// in the compile child.
#ifndef HPVMD_COMPILER_DEBUG_SOURCE_INFO_H_
#define HPVMD_COMPILER_DEBUG_SOURCE_INFO_H_

#include <span>
#include <string>
#include <string_view>

#include "base/diagnostic.h"
#include "compiler/api/artifact.h"
#include "compiler/ir/source_location.h"

namespace hpvm::debug {

// Fills the artifact's files and lines from the debug information in `bytes`, for positions that `module` may have to
// name and for the artifact's remarks, and makes its function names readable. Malformed debug information gives a
// warning, but never costs the artifact. `places`, sorted by source, take precedence over the debug information of
// their bytes.
void AddSourceInfo(std::span<const uint8_t> bytes, const ir::Module& module, std::span<const ir::SourceLocation> places,
                   Artifact* artifact, Diagnostics* diagnostics);

// Returns "core::ptr::write" for "_ZN4core3ptr5write17h0123456789abcdefE"; C names, and names that would take too
// long, unchanged. Cut after 256 bytes.
std::string ReadableName(std::string_view name);

}  // namespace hpvm::debug

#endif  // HPVMD_COMPILER_DEBUG_SOURCE_INFO_H_
