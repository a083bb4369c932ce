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

// Sets is_memory64, memory_bytes, memory_bytes_max and data. `can_grow` is true when a reachable function has
// memory.grow.
void AssembleMemory(const Module& module, bool can_grow, const std::string& place, ir::Module& out,
                    Diagnostics& diagnostics);

// Merges active segments at constant offsets, given in file order, where later ones overwrite earlier ones. Returns
// sorted segments that neither overlap nor touch.
std::vector<ir::DataSegment> MergeSegments(std::span<const DataSegment> segments);

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_LOWER_MEMORY_H_
