// SPDX-License-Identifier: Apache-2.0
// Finds, before lowering, the slots of the locals that each block, loop and if of a function sets.
#ifndef HPVMD_COMPILER_FRONT_WASM_LOWER_SET_LOCALS_H_
#define HPVMD_COMPILER_FRONT_WASM_LOWER_SET_LOCALS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "compiler/front/wasm/read/decoded.h"

namespace hpvm::wasm {

class SetLocals {
 public:
  // Returns nothing when there are more than `entries_max` pairs of a block and a slot set in it.
  static std::optional<SetLocals> Find(const Function& function, uint64_t entries_max);

  // Returns the slots set inside the n-th block, loop or if of the function, counted by where they begin; rising and
  // unique.
  std::span<const uint32_t> In(uint32_t n) const { return {pool_.data() + ranges_[n].first, ranges_[n].count}; }

 private:
  struct Range {
    uint64_t first = 0;
    uint64_t count = 0;
  };
  std::vector<Range> ranges_;
  std::vector<uint32_t> pool_;
};

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_LOWER_SET_LOCALS_H_
