// SPDX-License-Identifier: Apache-2.0
// The places of a module's globals, tables and segments at run time, and the numbers of its functions' references.
//
// A table in the state (ir::Space::kState) is a u32 size followed by one u32 reference per entry of its capacity. An
// element segment that table.init reads is a table of the same form; elem.drop sets its size to 0.
#ifndef HPVMD_COMPILER_FRONT_WASM_LOWER_LAYOUT_H_
#define HPVMD_COMPILER_FRONT_WASM_LOWER_LAYOUT_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "compiler/front/wasm/lower/reach.h"
#include "compiler/front/wasm/read/decoded.h"
#include "compiler/ir/ir.h"

namespace hpvm::wasm {

struct TableLayout {
  uint32_t offset = kNowhere;  // Offset in the state.
  uint32_t capacity = 0;
  // The size when nothing can change it, else kNowhere.
  uint32_t fixed_size = kNowhere;
};

struct Layout {
  // Indexed by global: the index of its first entry in ir::Module::globals, or its offset in the state.
  std::vector<uint32_t> globals;
  bool has_globals_in_state = false;
  std::vector<TableLayout> tables;
  std::vector<TableLayout> elems;  // Indexed by segment; kNowhere when nothing reads it.
  // Indexed by data segment: the index in ir::Module::passive_segments, and the offset of the u32 that holds the
  // number of remaining bytes; kNowhere when nothing drops the segment.
  std::vector<uint32_t> data, data_left;
  std::vector<uint32_t> references;  // Indexed by function; 0 for functions without a reference.
};

// Lays out a kernel: every global becomes globals of the IR, and only tables and segments that `reach` reads or
// writes get a place. Sets globals, state_bytes, state (with the active segments applied) and passive_segments of
// `out`.
Layout LayOutKernel(const Module& module, const Reach& reach, const std::string& place, ir::Module& out,
                    Diagnostics& diagnostics);

// Returns the nonzero parts of `bytes` as segments; gaps of a few bytes are kept. Returns nothing when the segments
// have more than `bytes_max` bytes.
std::optional<std::vector<ir::DataSegment>> Compact(std::span<const uint8_t> bytes, uint64_t bytes_max);

// Appends the IR globals that represent a global with these bits.
void AppendGlobal(const Global& global, uint64_t low, uint64_t high, std::vector<ir::Global>& globals);

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_LOWER_LAYOUT_H_
