// SPDX-License-Identifier: Apache-2.0
// Loops of which it is known, where they begin, how often they run; and values that grow by a constant in them.
#ifndef HPVMD_COMPILER_ANALYSIS_COUNTED_LOOPS_H_
#define HPVMD_COMPILER_ANALYSIS_COUNTED_LOOPS_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/analysis/definitions.h"
#include "compiler/analysis/linear_form.h"
#include "compiler/ir/ir.h"

namespace hpvm {

// The end of a loop that goes on from one place only, under one condition: its body ends in `if c { continue } else
// { leave the if }  leave the loop`, or in `block { ... if c { leave the block } ... }  ...  continue`, where nothing
// else leaves the block.
struct LoopEnd {
  ir::OpId again;         // The `continue`.
  ir::ValueId condition;  // Not 0: another iteration follows.
};
std::optional<LoopEnd> FindLoopEnd(const ir::Function& function, ir::OpId loop);

// In iteration k of a loop, from 0: the terms, of values that are there before the loop begins, and constant + k *
// step. Modulo 2^32 for an i32, else 2^64.
struct LoopForm {
  std::vector<std::pair<ir::ValueId, uint64_t>> terms;  // Value and factor.
  uint64_t constant = 0;
  int64_t step = 0;
};

// The forms of a loop's values. Borrows all that it is given.
class LoopForms {
 public:
  LoopForms(const ir::Function& function, const LinearForms& forms, ir::OpId loop);
  // Nothing for values that do not grow by a constant, and for loops without a LoopEnd.
  std::optional<LoopForm> Of(ir::ValueId value) const;
  // What the loop's parameter grows by in each iteration, as bits; nothing if that is no constant.
  std::optional<uint64_t> StepOf(uint32_t param) const { return steps_[param]; }
  // The loop's parameter of which the value is the sum with a constant.
  struct ParamSum {
    uint32_t param = 0;
    uint64_t constant = 0;
  };
  std::optional<ParamSum> ParamSumOf(ir::ValueId value) const;

 private:
  const ir::Function& f_;
  const LinearForms& forms_;
  const ir::Op& loop_;
  std::vector<bool> is_inside_;                 // By ValueId: defined in the loop, or by it.
  std::vector<std::optional<uint64_t>> steps_;  // By the loop's parameters.
};

// An iteration is followed by another while `tested` and `bound` compare so.
struct LoopCount {
  enum class Test : uint8_t { kNotEqual, kLess, kLessOrEqual, kGreater, kGreaterOrEqual };
  Test test = Test::kNotEqual;
  bool is_signed = false;
  ir::Type type = ir::Type::kI32;  // Of the two.
  ir::ValueId tested_value;
  LoopForm tested;  // Its step is a power of two, or the negative of one, and leads to the bound.
  LoopForm bound;   // Its step is 0.
};
std::optional<LoopCount> FindLoopCount(const ir::Function& function, const Definitions& definitions,
                                       const LoopForms& forms, ir::OpId loop);

}  // namespace hpvm

#endif  // HPVMD_COMPILER_ANALYSIS_COUNTED_LOOPS_H_
