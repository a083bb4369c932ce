// SPDX-License-Identifier: Apache-2.0
// Finds what functions can reach: only that is lowered.
#ifndef HPVMD_COMPILER_FRONT_WASM_LOWER_REACH_H_
#define HPVMD_COMPILER_FRONT_WASM_LOWER_REACH_H_

#include <cstdint>
#include <span>
#include <vector>

#include "compiler/front/wasm/read/decoded.h"
#include "compiler/ir/ir.h"

namespace hpvm::wasm {

inline constexpr uint32_t kNowhere = 0xffffffffu;

struct Reach {
  std::vector<ir::FunctionId> ids;  // Indexed by function; invalid for unreachable functions.
  std::vector<uint32_t> order;      // Function indices by id: the roots first, then in order of discovery.
  // Indexed by signature: the index in type_order when references or calls through references have that signature,
  // else kNowhere. Equal signatures share an index.
  std::vector<uint32_t> types;
  std::vector<uint32_t> type_order;
  // Functions that references can name, in the order of the references, which begin at 1.
  std::vector<uint32_t> references;
  // Indexed by table: true when anything reads or writes it, and true when table.grow does.
  std::vector<bool> tables, grown;
  // Indexed by segment: true when table.init or memory.init reads it, and true when data.drop drops it.
  std::vector<bool> elems, data, data_dropped;
  std::vector<uint32_t> math;  // Indices in math::MathFunctions(), each once.
  bool grows_memory = false;
  bool uses_barrier = false;
  bool uses_group_memory = false;

  bool UsesState() const;
};

// `references` lists functions that have references although no code in this reach creates them.
Reach Walk(const Module& module, std::span<const uint32_t> roots, std::span<const uint32_t> references);

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_LOWER_REACH_H_
