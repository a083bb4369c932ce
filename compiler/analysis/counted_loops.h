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
#include "compiler/analysis/nesting.h"
#include "compiler/analysis/words.h"

namespace hpvm::analysis {

// The one place from which a loop goes on, under one condition: the loop's body ends in `if c { continue } else { leave
// the if }  leave the loop`, or in `block { ... if c { leave the block } ... }  ...  continue`, where nothing else
// leaves the block.
struct LoopEnd {
  ir::OpId again;         // The `continue`.
  ir::ValueId condition;  // Not 0: another iteration follows.
  ir::OpId branch;        // The `if` on it.
  ir::OpId block;         // Around the branch, in the second form; else invalid.
};

// In iteration k of a loop, from 0: the terms, of values that are there before the loop begins, and constant + k *
// step. Modulo 2^32 for an i32, else 2^64.
struct LoopForm {
  std::vector<std::pair<ir::ValueId, uint64_t>> terms;  // Value and factor.
  uint64_t constant = 0;
  int64_t step = 0;
};

// A loop's parameter, plus a constant.
struct ParamSum {
  uint32_t param = 0;
  uint64_t constant = 0;
};

// The loop begins another iteration while `tested` and `bound` compare so.
struct LoopCount {
  enum class Test : uint8_t { kNotEqual, kLess, kLessOrEqual, kGreater, kGreaterOrEqual };
  Test test = Test::kNotEqual;
  bool is_signed = false;
  ir::Type type = ir::Type::kI32;        // Both numbers have it.
  LoopForm tested;                       // Its step is a power of two, or the negative of one, and leads to the bound.
  LoopForm bound;                        // Its step is 0.
  std::optional<ParamSum> tested_param;  // The same as `tested`, if it is such a sum.
  uint64_t step_size() const {           // Of `tested`, without its sign.
    return tested.step < 0 ? 0 - static_cast<uint64_t>(tested.step) : static_cast<uint64_t>(tested.step);
  }
};

class CountedLoops;

// The forms of one loop's values; made by CountedLoops, which it borrows.
class LoopForms {
 public:
  LoopForms(const CountedLoops& loops, ir::OpId loop);
  // Nothing for values that do not grow by a constant, and for loops without a LoopEnd.
  std::optional<LoopForm> Of(ir::ValueId value) const;
  std::optional<ParamSum> ParamSumOf(ir::ValueId value) const;
  // A parameter's step from one iteration to the next, as bits; nothing if that is no constant.
  std::optional<uint64_t> StepOf(uint32_t param) const { return steps_[param]; }
  // Nothing if it is not known where the loop begins how often it runs.
  std::optional<LoopCount> Count() const;

 private:
  const CountedLoops& loops_;
  const ir::Op& loop_;
  const ir::Region& body_;
  const ir::OpId id_;
  std::optional<LoopEnd> end_;
  std::vector<std::optional<uint64_t>> steps_;  // By the loop's parameters.
};

// Looks at all loops of a function once, in time linear in its operations. Borrows the function, whose operations must
// stay as they are.
class CountedLoops {
 public:
  explicit CountedLoops(const ir::Function& function);

  std::optional<LoopEnd> EndOf(ir::OpId loop) const;
  // The operations in a loop, those of loops in it too.
  uint32_t ops_in(ir::OpId loop) const { return static_cast<uint32_t>(nesting_.OpsOf(loop).size() - 1); }
  // True if the loop, or an operation in it, defines the value.
  bool IsInside(ir::ValueId value, ir::OpId loop) const { return nesting_.IsMadeIn(value, loop); }

 private:
  friend class LoopForms;
  bool IsBranch(ir::OpId id, ir::Opcode jump, ir::OpId to) const;

  const ir::Function& f_;
  const Definitions definitions_{f_};
  const LinearForms linear_{f_};
  const Nesting nesting_{f_};
  std::vector<uint32_t> continues_, leaves_;  // By OpId: the jumps that go on with it, or leave it.
};

}  // namespace hpvm::analysis

#endif  // HPVMD_COMPILER_ANALYSIS_COUNTED_LOOPS_H_
