// SPDX-License-Identifier: Apache-2.0
// What functions can reach: only that is lowered.
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
  std::vector<ir::FunctionId> ids;  // By function index; invalid where not reached.
  std::vector<uint32_t> order;      // Function indices, by id: the roots first, then in order of discovery.
  // Signatures that references or calls through them have: by signature the place in type_order, or kNowhere. Equal
  // ones share it.
  std::vector<uint32_t> types;
  std::vector<uint32_t> type_order;
  // Functions that references can name, in the order of the references, which begin at 1.
  std::vector<uint32_t> references;
  // By table: whether anything reads or writes it, and whether table.grow does.
  std::vector<bool> tables, grown;
  // By segment: whether table.init or memory.init reads it, and whether data.drop drops it.
  std::vector<bool> elems, data, data_dropped;
  std::vector<uint32_t> math;  // In math::MathFunctions(), each once.
  bool grows_memory = false;
  bool uses_barrier = false;
  bool uses_group_memory = false;

  bool UsesState() const;
};

// `references` are functions that references name although nothing of this reach makes them.
Reach Walk(const Module& module, std::span<const uint32_t> roots, std::span<const uint32_t> references);

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_LOWER_REACH_H_
