// SPDX-License-Identifier: Apache-2.0
// Human-readable locations in a kernel's source. Independent of LLVM: devices and the engine use it.
#ifndef HPVMD_COMPILER_API_SOURCE_TEXT_H_
#define HPVMD_COMPILER_API_SOURCE_TEXT_H_

#include <cstdint>
#include <string>

#include "compiler/api/artifact.h"
#include "compiler/ir/launch.h"

namespace hpvm {

// Returns the entry of Artifact::lines for a byte of the module; null when no line is known.
const SourceLine* FindLine(const Artifact& artifact, uint32_t source);
// Returns "blur.c:17:9"; "byte 117 of module \"blur\"" when no line is known; empty when the byte is unknown, too (0).
std::string PlaceOf(const Artifact& artifact, uint32_t source);
// Returns "out of bounds memory access at address 65540 (4 bytes) in instance (3, 0, 0), function \"blur\",
// blur.c:17:9".
std::string DescribeTrap(const ir::TrapReport& trap, const Artifact& artifact);

}  // namespace hpvm

#endif  // HPVMD_COMPILER_API_SOURCE_TEXT_H_
