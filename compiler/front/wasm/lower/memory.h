// SPDX-License-Identifier: Apache-2.0
// Initial module memory.
#ifndef HPVMD_COMPILER_FRONT_WASM_LOWER_MEMORY_H_
#define HPVMD_COMPILER_FRONT_WASM_LOWER_MEMORY_H_

#include <span>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "compiler/front/wasm/read/decoded.h"
#include "compiler/ir/ir.h"

namespace hpvm::wasm {

// Sets is_memory64, memory_bytes, memory_bytes_max and data. `can_grow`: some reachable function has memory.grow.
void AssembleMemory(const Module& module, bool can_grow, const std::string& place, ir::Module& out,
                    Diagnostics& diagnostics);

// Segments in file order, later ones overwriting earlier ones, as sorted segments that neither overlap nor touch.
// Active ones only, at constant offsets.
std::vector<ir::DataSegment> MergeSegments(std::span<const DataSegment> segments);

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_LOWER_MEMORY_H_
