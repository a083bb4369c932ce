// SPDX-License-Identifier: Apache-2.0
// LoopRanges bounds the parameters of counted loops by the ranges known at loop entry.
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
  __int128 lo = 0, hi = 0;  // Both are inclusive.
};

class LoopRanges {
 public:
  // Borrows the function.
  explicit LoopRanges(const ir::Function& function);

  // Returns true if the loop is counted and its parameter grows by a nonzero constant.
  bool IsCounted(ir::OpId loop, uint32_t param) const;

  // Returns the unsigned range of a value; nothing if it is not known yet.
  using RangeOf = std::function<std::optional<Range128>(ir::ValueId)>;
  // Returns the unsigned range of the parameter over all iterations; nothing if the parameter or the loop's end may
  // wrap around.
  std::optional<Range128> Of(ir::OpId loop, uint32_t param, const RangeOf& range_of) const;

 private:
  struct Counted {
    LoopCount count;
    std::vector<std::optional<uint64_t>> steps;  // Indexed by the loop's parameter.
  };
  const ir::Function& f_;
  std::vector<std::optional<Counted>> loops_;  // Indexed by OpId.
};

}  // namespace hpvm::analysis

#endif  // HPVMD_COMPILER_ANALYSIS_LOOP_RANGES_H_
