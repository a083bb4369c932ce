// SPDX-License-Identifier: Apache-2.0
// Counted loops, whose number of iterations is known at loop entry, and values that grow by a constant per iteration.
#ifndef HPVMD_COMPILER_ANALYSIS_COUNTED_LOOPS_H_
#define HPVMD_COMPILER_ANALYSIS_COUNTED_LOOPS_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/analysis/definitions.h"
#include "compiler/analysis/linear_form.h"
#include "compiler/analysis/nesting.h"
#include "compiler/analysis/words.h"

namespace hpvm::analysis {

// The only place from which a loop continues, under one condition. The loop's body ends in `if c { continue } else {
// leave the if }  leave the loop`, or in `block { ... if c { leave the block } ... }  ...  continue`, where nothing
// else leaves the block.
struct LoopEnd {
  ir::OpId again;         // The `continue`.
  ir::ValueId condition;  // Nonzero: another iteration follows.
  ir::OpId branch;        // The `if` that tests the condition.
  ir::OpId block;         // The block around the branch, in the second form; else invalid.
};

// The value in iteration k of a loop, counted from 0: the sum of the terms, whose values are defined before the loop,
// and of constant + k * step. Arithmetic is modulo 2^32 for an i32, else modulo 2^64.
struct LoopForm {
  std::vector<std::pair<ir::ValueId, uint64_t>> terms;  // Value and factor.
  uint64_t constant = 0;
  int64_t step = 0;
};

// The sum of a loop's parameter and a constant.
struct ParamSum {
  uint32_t param = 0;
  uint64_t constant = 0;
};

// The loop starts another iteration while comparing `tested` with `bound` by `test` yields true.
struct LoopCount {
  enum class Test : uint8_t { kNotEqual, kLess, kLessOrEqual, kGreater, kGreaterOrEqual };
  Test test = Test::kNotEqual;
  bool is_signed = false;
  ir::Type type = ir::Type::kI32;        // The type of both numbers.
  LoopForm tested;                       // Its step is plus or minus a power of two and leads to the bound.
  LoopForm bound;                        // Its step is 0.
  std::optional<ParamSum> tested_param;  // The same value as `tested`, if it has this form.
  uint64_t step_size() const {           // The absolute value of the step of `tested`.
    return tested.step < 0 ? 0 - static_cast<uint64_t>(tested.step) : static_cast<uint64_t>(tested.step);
  }
};

class CountedLoops;

// LoopForms finds the linear forms of one loop's values. Borrows the CountedLoops object.
class LoopForms {
 public:
  LoopForms(const CountedLoops& loops, ir::OpId loop);
  // Returns nothing for values that do not grow by a constant, and for loops without a LoopEnd.
  std::optional<LoopForm> Of(ir::ValueId value) const;
  std::optional<ParamSum> ParamSumOf(ir::ValueId value) const;
  // Returns a parameter's step from one iteration to the next, as bits; nothing if the step is not constant.
  std::optional<uint64_t> StepOf(uint32_t param) const { return steps_[param]; }
  // Returns nothing if the number of iterations is not known at loop entry.
  std::optional<LoopCount> Count() const;

 private:
  const CountedLoops& loops_;
  const ir::Op& loop_;
  const ir::Region& body_;
  const ir::OpId id_;
  std::optional<LoopEnd> end_;
  std::vector<std::optional<uint64_t>> steps_;  // Indexed by the loop's parameter.
};

// CountedLoops examines all loops of a function once, in time linear in its operations. Borrows the function, whose
// operations must not change.
class CountedLoops {
 public:
  explicit CountedLoops(const ir::Function& function);

  std::optional<LoopEnd> EndOf(ir::OpId loop) const;
  // Returns the number of operations in a loop, including those of nested loops.
  uint32_t ops_in(ir::OpId loop) const { return static_cast<uint32_t>(nesting_.OpsOf(loop).size() - 1); }
  // Returns true if the loop, or an operation in it, defines the value.
  bool IsInside(ir::ValueId value, ir::OpId loop) const { return nesting_.IsMadeIn(value, loop); }

 private:
  friend class LoopForms;
  bool IsBranch(ir::OpId id, ir::Opcode jump, ir::OpId to) const;

  const ir::Function& f_;
  const Definitions definitions_{f_};
  const LinearForms linear_{f_};
  const Nesting nesting_{f_};
  std::vector<uint32_t> continues_, leaves_;  // Indexed by OpId: the jumps that continue, or leave, the operation.
};

}  // namespace hpvm::analysis

#endif  // HPVMD_COMPILER_ANALYSIS_COUNTED_LOOPS_H_
