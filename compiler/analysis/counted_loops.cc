// SPDX-License-Identifier: Apache-2.0
// Method: pattern matching. A loop has an end when exactly one `continue` leads back, in one of the two forms of
// LoopEnd. A parameter has a step when that edge brings the parameter plus a constant; linear forms of other values
// then follow by substitution.
// Invariants: terms of a LoopForm are defined before the loop, and its equation holds in each iteration modulo the
// type's size. A count has one side with a step, plus or minus a power of two, towards a bound without one. Other
// exits of the loop may end it sooner.
// Nothing is iterated: a query costs as much as the linear forms of its values.
#include "compiler/analysis/counted_loops.h"

#include <algorithm>
#include <bit>

#include "compiler/ir/walk.h"

namespace hpvm::analysis {
namespace {

using Test = LoopCount::Test;

struct Comparison {
  Test test;
  bool is_signed;
};
std::optional<Comparison> ComparisonOf(Opcode code) {
  constexpr Comparison kComparisons[] = {
      {Test::kNotEqual, false},    {Test::kLess, true},           {Test::kLess, false},
      {Test::kGreater, true},      {Test::kGreater, false},       {Test::kLessOrEqual, true},
      {Test::kLessOrEqual, false}, {Test::kGreaterOrEqual, true}, {Test::kGreaterOrEqual, false}};
  return code >= Opcode::kNe && code <= Opcode::kGeU ? std::optional(ir::RowOf(kComparisons, Opcode::kNe, code))
                                                     : std::nullopt;
}
Test Mirrored(Test test) {
  switch (test) {
    case Test::kLess:
      return Test::kGreater;
    case Test::kLessOrEqual:
      return Test::kGreaterOrEqual;
    case Test::kGreater:
      return Test::kLess;
    case Test::kGreaterOrEqual:
      return Test::kLessOrEqual;
    default:
      return test;
  }
}

// Returns true if steps of this sign bring the tested value closer to the bound.
bool LeadsToBound(Test test, int64_t step) {
  if (test == Test::kNotEqual) {
    return step != 0;
  }
  return test == Test::kLess || test == Test::kLessOrEqual ? step > 0 : step < 0;
}

}  // namespace

CountedLoops::CountedLoops(const ir::Function& function)
    : f_(function), continues_(f_.ops.size()), leaves_(f_.ops.size()) {
  ir::ForEachOp(f_, [&](OpId id) {
    for (const ir::Target& target : f_.targets_of(f_.op(id))) {
      ++(target.is_continue ? continues_ : leaves_)[target.op.index];
    }
  });
}

// Returns true for `if c { the jump } else { leave the if }`.
bool CountedLoops::IsBranch(OpId id, Opcode jump, OpId to) const {
  const Op& branch = f_.op(id);
  if (branch.code != Opcode::kIf) {
    return false;
  }
  const Op &taken = f_.op(f_.region(branch.body).ops[0]), &over = f_.op(f_.region(branch.otherwise).ops[0]);
  return taken.code == jump && f_.targets_of(taken)[0].op == to && over.code == Opcode::kBr &&
         f_.targets_of(over)[0].op == id;
}

std::optional<LoopEnd> CountedLoops::EndOf(OpId loop) const {
  const std::vector<OpId>& ops = f_.region(f_.op(loop).body).ops;
  if (ops.size() < 2 || continues_[loop.index] != 1) {
    return std::nullopt;
  }
  const Op& end = f_.op(ops.back());
  if (end.code == Opcode::kBr && f_.targets_of(end)[0].op == loop) {
    const OpId branch = ops[ops.size() - 2];
    return IsBranch(branch, Opcode::kContinue, loop)
               ? std::optional(
                     LoopEnd{f_.region(f_.op(branch).body).ops[0], f_.operands_of(f_.op(branch))[0], branch, OpId()})
               : std::nullopt;
  }
  if (end.code != Opcode::kContinue) {
    return std::nullopt;
  }
  for (OpId block : ops) {
    if (f_.op(block).code != Opcode::kBlock || leaves_[block.index] != 1) {
      continue;
    }
    for (OpId branch : f_.region(f_.op(block).body).ops) {
      if (IsBranch(branch, Opcode::kBr, block)) {
        return LoopEnd{ops.back(), f_.operands_of(f_.op(branch))[0], branch, block};
      }
    }
  }
  return std::nullopt;
}

LoopForms::LoopForms(const CountedLoops& loops, OpId loop)
    : loops_(loops),
      loop_(loops.f_.op(loop)),
      body_(loops.f_.region(loop_.body)),
      id_(loop),
      end_(loops.EndOf(loop)),
      steps_(body_.param_count) {
  const ir::Function& f = loops_.f_;
  for (uint32_t i = 0; end_ && i < body_.param_count; ++i) {
    const ValueId param(body_.first_param.index + i);
    if (!ir::IsInt(f.type_of(param))) {
      continue;
    }
    const LinearForm next = loops_.linear_.Of(f.operands_of(f.op(end_->again))[i]);
    if (next.terms.size() == 1 && next.terms[0] == std::pair(param.index, uint64_t{1})) {
      steps_[i] = next.constant;
    }
  }
}

std::optional<LoopForm> LoopForms::Of(ValueId value) const {
  const ir::Function& f = loops_.f_;
  if (!ir::IsInt(f.type_of(value))) {
    return std::nullopt;
  }
  const LinearForm linear = loops_.linear_.Of(value);
  LoopForm form;
  form.constant = linear.constant;
  uint64_t step = 0;
  for (const auto& [index, factor] : linear.terms) {
    if (!loops_.IsInside(ValueId(index), id_)) {
      form.terms.emplace_back(ValueId(index), factor);
      continue;
    }
    const uint32_t param = index - body_.first_param.index;
    if (index < body_.first_param.index || param >= body_.param_count || !steps_[param]) {
      return std::nullopt;
    }
    form.terms.emplace_back(f.operands_of(loop_)[param], factor);
    step += factor * *steps_[param];
  }
  form.step = ir::SignedBits(f.type_of(value), step);
  return form;
}

std::optional<ParamSum> LoopForms::ParamSumOf(ValueId value) const {
  const LinearForm linear = loops_.linear_.Of(value);
  if (linear.terms.size() != 1 || linear.terms[0].second != 1 || linear.terms[0].first < body_.first_param.index ||
      linear.terms[0].first >= body_.first_param.index + body_.param_count) {
    return std::nullopt;
  }
  return ParamSum{linear.terms[0].first - body_.first_param.index, linear.constant};
}

std::optional<LoopCount> LoopForms::Count() const {
  if (!end_) {
    return std::nullopt;
  }
  LoopCount count;
  ValueId tested_value = end_->condition;
  std::optional<LoopForm> tested, bound = LoopForm{};
  const Op* by = loops_.definitions_.OpOf(end_->condition);
  const std::optional<Comparison> comparison = by != nullptr ? ComparisonOf(by->code) : std::nullopt;
  if (comparison) {
    count.test = comparison->test;
    count.is_signed = comparison->is_signed;
    count.type = by->type;
    tested_value = loops_.f_.operands_of(*by)[0];
    bound = Of(loops_.f_.operands_of(*by)[1]);
  }
  tested = Of(tested_value);
  if (comparison && tested && tested->step == 0) {
    std::swap(tested, bound);
    tested_value = loops_.f_.operands_of(*by)[1];
    count.test = Mirrored(count.test);
  }
  if (!tested || !bound || bound->step != 0 || !LeadsToBound(count.test, tested->step)) {
    return std::nullopt;
  }
  count.tested_param = ParamSumOf(tested_value);
  count.tested = *std::move(tested);
  count.bound = *std::move(bound);
  return std::has_single_bit(count.step_size()) ? std::optional(count) : std::nullopt;
}

}  // namespace hpvm::analysis
