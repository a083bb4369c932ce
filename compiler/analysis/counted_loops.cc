// SPDX-License-Identifier: Apache-2.0
#include "compiler/analysis/counted_loops.h"

#include <algorithm>
#include <bit>

#include "compiler/ir/spelling.h"

namespace hpvm {
namespace {

using ir::Op;
using ir::Opcode;
using ir::OpId;
using ir::RegionId;
using ir::ValueId;
using Test = LoopCount::Test;

void MarkDefined(const ir::Function& f, RegionId region, std::vector<bool>& is_inside) {
  const auto mark = [&](ValueId first, uint32_t count) { std::fill_n(is_inside.begin() + first.index, count, true); };
  if (f.region(region).param_count != 0) {
    mark(f.region(region).first_param, f.region(region).param_count);
  }
  for (OpId id : f.region(region).ops) {
    const Op& op = f.op(id);
    if (op.result_count != 0) {
      mark(op.first_result, op.result_count);
    }
    if (ir::OwnsRegions(op.code)) {
      MarkDefined(f, op.body, is_inside);
    }
    if (op.code == Opcode::kIf) {
      MarkDefined(f, op.otherwise, is_inside);
    }
  }
}

// Operations in the region that go to the target.
size_t CountJumps(const ir::Function& f, RegionId region, OpId to, bool is_continue) {
  size_t count = 0;
  for (OpId id : f.region(region).ops) {
    const Op& op = f.op(id);
    for (const ir::Target& target : f.targets_of(op)) {
      count += target.op == to && target.is_continue == is_continue ? 1 : 0;
    }
    if (ir::OwnsRegions(op.code)) {
      count += CountJumps(f, op.body, to, is_continue);
    }
    if (op.code == Opcode::kIf) {
      count += CountJumps(f, op.otherwise, to, is_continue);
    }
  }
  return count;
}

// Whether the operation is `if c { the jump } else { leave the if }`.
bool IsBranch(const ir::Function& f, OpId id, Opcode jump, OpId to) {
  const Op& branch = f.op(id);
  if (branch.code != Opcode::kIf) {
    return false;
  }
  const Op &taken = f.op(f.region(branch.body).ops[0]), &over = f.op(f.region(branch.otherwise).ops[0]);
  return taken.code == jump && f.targets_of(taken)[0].op == to && over.code == Opcode::kLeave &&
         f.targets_of(over)[0].op == id;
}

uint64_t MaskOf(const ir::Function& f, ValueId value) {
  return ir::Bytes(f.type_of(value)) == 4 ? 0xffffffffu : ~uint64_t{0};
}

int64_t Signed(uint64_t value, uint64_t mask) {
  return mask == ~uint64_t{0} ? static_cast<int64_t>(value) : static_cast<int32_t>(static_cast<uint32_t>(value));
}

struct Comparison {
  Test test;
  bool is_signed;
};
std::optional<Comparison> ComparisonOf(Opcode code) {
  switch (code) {
    case Opcode::kNe:
      return Comparison{Test::kNotEqual, false};
    case Opcode::kLtS:
      return Comparison{Test::kLess, true};
    case Opcode::kLtU:
      return Comparison{Test::kLess, false};
    case Opcode::kLeS:
      return Comparison{Test::kLessOrEqual, true};
    case Opcode::kLeU:
      return Comparison{Test::kLessOrEqual, false};
    case Opcode::kGtS:
      return Comparison{Test::kGreater, true};
    case Opcode::kGtU:
      return Comparison{Test::kGreater, false};
    case Opcode::kGeS:
      return Comparison{Test::kGreaterOrEqual, true};
    case Opcode::kGeU:
      return Comparison{Test::kGreaterOrEqual, false};
    default:
      return std::nullopt;
  }
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

// Whether the tested value comes to the bound by steps of that direction.
bool LeadsToBound(Test test, int64_t step) {
  if (test == Test::kNotEqual) {
    return step != 0;
  }
  return test == Test::kLess || test == Test::kLessOrEqual ? step > 0 : step < 0;
}

}  // namespace

std::optional<LoopEnd> FindLoopEnd(const ir::Function& f, OpId loop) {
  const std::vector<OpId>& ops = f.region(f.op(loop).body).ops;
  if (ops.size() < 2 || CountJumps(f, f.op(loop).body, loop, /*is_continue=*/true) != 1) {
    return std::nullopt;
  }
  const Op& end = f.op(ops.back());
  if (end.code == Opcode::kLeave && f.targets_of(end)[0].op == loop) {
    const OpId branch = ops[ops.size() - 2];
    return IsBranch(f, branch, Opcode::kContinue, loop)
               ? std::optional(LoopEnd{f.region(f.op(branch).body).ops[0], f.operands_of(f.op(branch))[0]})
               : std::nullopt;
  }
  if (end.code != Opcode::kContinue) {
    return std::nullopt;
  }
  for (OpId block : ops) {
    if (f.op(block).code != Opcode::kBlock || CountJumps(f, f.op(block).body, block, false) != 1) {
      continue;
    }
    for (OpId branch : f.region(f.op(block).body).ops) {
      if (IsBranch(f, branch, Opcode::kLeave, block)) {
        return LoopEnd{ops.back(), f.operands_of(f.op(branch))[0]};
      }
    }
  }
  return std::nullopt;
}

LoopForms::LoopForms(const ir::Function& function, const LinearForms& forms, OpId loop)
    : f_(function), forms_(forms), loop_(function.op(loop)), is_inside_(function.values.size()) {
  const ir::Region& body = f_.region(loop_.body);
  MarkDefined(f_, loop_.body, is_inside_);
  steps_.resize(body.param_count);
  const std::optional<LoopEnd> end = FindLoopEnd(f_, loop);
  for (uint32_t i = 0; end && i < body.param_count; ++i) {
    const ValueId param(body.first_param.index + i);
    if (!ir::IsInt(f_.type_of(param))) {
      continue;
    }
    const LinearForm next = forms_.Of(f_.operands_of(f_.op(end->again))[i]);
    if (next.terms.size() == 1 && next.terms[0] == std::pair(param.index, uint64_t{1})) {
      steps_[i] = next.constant;
    }
  }
}

std::optional<LoopForm> LoopForms::Of(ValueId value) const {
  if (!ir::IsInt(f_.type_of(value))) {
    return std::nullopt;
  }
  const ir::Region& body = f_.region(loop_.body);
  const uint64_t mask = MaskOf(f_, value);
  const LinearForm linear = forms_.Of(value);
  LoopForm form;
  form.constant = linear.constant;
  uint64_t step = 0;
  for (const auto& [index, factor] : linear.terms) {
    if (!is_inside_[index]) {
      form.terms.emplace_back(ValueId(index), factor);
      continue;
    }
    const uint32_t param = index - body.first_param.index;
    if (index < body.first_param.index || param >= body.param_count || !steps_[param]) {
      return std::nullopt;
    }
    form.terms.emplace_back(f_.operands_of(loop_)[param], factor);
    step += factor * *steps_[param];
  }
  form.step = Signed(step & mask, mask);
  return form;
}

std::optional<LoopForms::ParamSum> LoopForms::ParamSumOf(ValueId value) const {
  const ir::Region& body = f_.region(loop_.body);
  const LinearForm linear = forms_.Of(value);
  if (linear.terms.size() != 1 || linear.terms[0].second != 1 || linear.terms[0].first < body.first_param.index ||
      linear.terms[0].first >= body.first_param.index + body.param_count) {
    return std::nullopt;
  }
  return ParamSum{linear.terms[0].first - body.first_param.index, linear.constant};
}

std::optional<LoopCount> FindLoopCount(const ir::Function& f, const Definitions& definitions, const LoopForms& forms,
                                       OpId loop) {
  const std::optional<LoopEnd> end = FindLoopEnd(f, loop);
  if (!end) {
    return std::nullopt;
  }
  LoopCount count;
  std::optional<LoopForm> tested, bound = LoopForm{};
  const Op* by = definitions.OpOf(end->condition);
  const std::optional<Comparison> comparison = by != nullptr ? ComparisonOf(by->code) : std::nullopt;
  if (comparison) {
    count.test = comparison->test;
    count.is_signed = comparison->is_signed;
    count.type = by->type;
    count.tested_value = f.operands_of(*by)[0];
    tested = forms.Of(count.tested_value);
    bound = forms.Of(f.operands_of(*by)[1]);
    if (tested && tested->step == 0) {
      std::swap(tested, bound);
      count.tested_value = f.operands_of(*by)[1];
      count.test = Mirrored(count.test);
    }
  } else {
    count.tested_value = end->condition;
    tested = forms.Of(end->condition);
  }
  if (!tested || !bound || bound->step != 0 || !LeadsToBound(count.test, tested->step) ||
      !std::has_single_bit(static_cast<uint64_t>(std::abs(tested->step)))) {
    return std::nullopt;
  }
  count.tested = *std::move(tested);
  count.bound = *std::move(bound);
  return count;
}

}  // namespace hpvm
