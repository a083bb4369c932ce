// SPDX-License-Identifier: Apache-2.0
// Where a module's globals, tables and segments are while it runs, and what its functions are called.
//
// A table in the state (ir::Space::kState) is a u32 size and then a u32 reference an entry up to its capacity. An
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

struct TablePlace {
  uint32_t offset = kNowhere;  // In the state.
  uint32_t capacity = 0;
  // The size if nothing can change it, else kNowhere.
  uint32_t fixed_size = kNowhere;
};

struct Layout {
  // By index of the global: its first ir::Module::globals, or its offset in the state.
  std::vector<uint32_t> globals;
  bool has_globals_in_state = false;
  std::vector<TablePlace> tables;
  std::vector<TablePlace> elems;  // By segment; without a place if nothing reads it.
  // By data segment: the index in ir::Module::passive_segments, and the offset of the u32 that says how many of its
  // bytes are left; kNowhere where nothing drops it.
  std::vector<uint32_t> data, data_left;
  std::vector<uint32_t> references;  // By function; 0 for those that have none.
};

// A kernel's layout: every global is one of the IR's, and only tables and segments that `reach` reads or writes have a
// place. Sets globals, state_bytes, state (with the active segments applied) and passive_segments of `out`.
Layout LayOutKernel(const Module& module, const Reach& reach, const std::string& place, ir::Module& out,
                    Diagnostics& diagnostics);

// What is not zero in `bytes`, as segments; gaps of a few bytes are kept. Nothing if they have more than `bytes_max`.
std::optional<std::vector<ir::DataSegment>> Compact(std::span<const uint8_t> bytes, uint64_t bytes_max);

// The IR's globals that a global with these bits becomes.
void AppendGlobal(const Global& global, uint64_t low, uint64_t high, std::vector<ir::Global>& globals);

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_LOWER_LAYOUT_H_
