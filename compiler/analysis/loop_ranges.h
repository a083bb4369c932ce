// SPDX-License-Identifier: Apache-2.0
// The values that parameters of counted loops have, from what is known where the loop begins.
#ifndef HPVMD_COMPILER_ANALYSIS_LOOP_RANGES_H_
#define HPVMD_COMPILER_ANALYSIS_LOOP_RANGES_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "compiler/analysis/counted_loops.h"
#include "compiler/analysis/words.h"

namespace hpvm::analysis {

struct Range128 {
  __int128 lo = 0, hi = 0;  // Both are in it.
};

class LoopRanges {
 public:
  // Borrows the function.
  explicit LoopRanges(const ir::Function& function);

  // True if the loop is counted and its parameter grows by a constant that is not 0.
  bool IsCounted(ir::OpId loop, uint32_t param) const;

  // The unsigned range of a value; nothing where it is not known yet.
  using RangeOf = std::function<std::optional<Range128>(ir::ValueId)>;
  // The unsigned range of the parameter in all iterations. Nothing if it may wrap around, or the loop's end may.
  std::optional<Range128> Of(ir::OpId loop, uint32_t param, const RangeOf& range_of) const;

 private:
  struct Counted {
    LoopCount count;
    std::vector<std::optional<uint64_t>> steps;  // By the loop's parameters.
  };
  const ir::Function& f_;
  std::vector<std::optional<Counted>> loops_;  // By OpId.
};

}  // namespace hpvm::analysis

#endif  // HPVMD_COMPILER_ANALYSIS_LOOP_RANGES_H_
