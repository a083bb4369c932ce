// SPDX-License-Identifier: Apache-2.0
// Method: the number N of iterations that run together begins at eight and is halved until their words and
// operations fit. A loop of N iterations runs while more than N are left; the original loop runs the rest, at least
// one.
// Invariants: operations keep their order, and no load is added that the original would not have executed.
// Parameters that grow alike are carried as one leader; the others are the leader plus a distance that the loop
// does not change. If the bound is so near to the end of its type that the last of N tests could wrap, none run
// together.
// Limits: one exit, no inner loop, and kAheadKernelOpsMax operations of all loops.
// Source: partial unrolling with a remainder, as in LLVM's runtime unrolling (see loads_ahead.h).
#include "compiler/pass/tile/loads_ahead.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <span>
#include <utility>

#include "compiler/analysis/counted_loops.h"
#include "compiler/analysis/linear_form.h"
#include "compiler/analysis/trailing_zeros.h"
#include "compiler/analysis/value_ranges.h"
#include "compiler/ir/op_syntax.h"
#include "compiler/ir/walk.h"
#include "compiler/pass/tile/form_copier.h"

namespace hpvm::pass {
namespace {

using Test = analysis::LoopCount::Test;

constexpr uint32_t kTogetherMax = 8;
// N - 1 steps stay far below the range of a counter.
constexpr uint64_t kStepMax = 1 << 20;

struct LoopPlan {
  analysis::LoopEnd end;
  analysis::LoopCount count;
  uint32_t together = 1, ops = 0;  // Iterations, and operations of all of them.
  uint32_t width_max = 1;          // Bytes of the widest load.
  // Indexed by parameter of the loop: the first parameter that grows by the same step; itself, if there is none.
  std::vector<uint32_t> leader;
  // Returns the distance from the first test of N iterations to the last.
  uint64_t way() const { return (together - 1) * count.step_size(); }
};

// Content summarises the operations of a loop.
class Content {
 public:
  Content(const ir::Function& f, OpId loop, const std::vector<bool>& is_free) : f_(f), is_free_(is_free), open_{loop} {
    fits_ = Count(f.op(loop).body);
  }
  // Returns the number of iterations that may run together; 1: the loop remains unchanged.
  uint32_t Together() const {
    uint32_t together = fits_ && words_ != 0 ? kTogetherMax : 1;
    while (together > 1 && (together * words_ > kAheadWordsMax || together * ops_ > kAheadOpsMax)) {
      together /= 2;
    }
    return together;
  }
  uint32_t ops() const { return ops_; }
  uint32_t width_max() const { return width_max_; }

 private:
  bool Count(RegionId region) {
    return std::ranges::all_of(f_.region(region).ops, [&](OpId id) {
      const Op& op = f_.op(id);
      if (++ops_ > kAheadOpsMax || op.code == Opcode::kLoop || !Fits(id)) {
        return false;
      }
      if (!ir::OwnsRegions(op.code)) {
        return true;
      }
      open_.push_back(id);
      const bool fits = Count(op.body) && (op.code != Opcode::kIf || Count(op.otherwise));
      open_.pop_back();
      return fits;
    });
  }
  bool Fits(OpId id) {
    const Op& op = f_.op(id);
    if (ir::IsTerminator(op.code)) {
      return !Leaves(op) || ++exits_ == 1;
    }
    const bool is_load = ir::HasSpace(op.code) && op.space == ir::Space::kParam && is_free_[id.index];
    width_max_ = is_load ? std::max<uint32_t>(width_max_, op.width) : width_max_;
    words_ += is_load ? std::max<uint32_t>(1, op.width / 4) : 0;
    const uint8_t allowed = ir::kReads | ir::kControl | (is_load ? ir::kTraps : 0);
    return (is_load || !ir::HasSpace(op.code)) && (ir::Info(op.code).effects & ~allowed) == 0;
  }
  // Returns true if any target of the jump is outside of the loop.
  bool Leaves(const Op& op) const {
    const std::span<const ir::Target> targets = f_.targets_of(op);
    return targets.empty() || std::ranges::any_of(targets, [&](const ir::Target& target) {
             return !(target.op == open_.front() && target.is_continue) &&
                    std::find(open_.begin() + 1, open_.end(), target.op) == open_.end();
           });
  }

  const ir::Function& f_;
  const std::vector<bool>& is_free_;
  std::vector<OpId> open_;  // The loop, and the enclosing constructs of the current place.
  uint32_t ops_ = 0, words_ = 0, exits_ = 0, width_max_ = 1;
  bool fits_ = false;
};

class PrefetchPlanner {
 public:
  PrefetchPlanner(const ir::Module& module, const std::vector<bool>& is_free)
      : f_(module.function(module.entry)), is_free_(is_free), numbers_(module, analysis::kGpuIdMax) {}

  std::map<uint32_t, LoopPlan> Run() {
    return PlanLoops<LoopPlan>(f_, kAheadKernelOpsMax, [&](OpId id) { return PlanOf(id); });
  }

 private:
  std::optional<LoopPlan> PlanOf(OpId id) {
    const Content content(f_, id, is_free_);
    LoopPlan plan;
    plan.together = content.Together();
    plan.width_max = content.width_max();
    plan.ops = plan.together * content.ops();
    const std::optional<analysis::LoopEnd> end = loops_.EndOf(id);
    std::optional<analysis::LoopCount> count = analysis::LoopForms(loops_, id).Count();
    if (plan.together == 1 || !end || !count || !count->tested_param || count->step_size() > kStepMax) {
      return std::nullopt;
    }
    plan.end = *end;
    plan.count = *std::move(count);
    FindLeaders(id, plan);
    return IsShort(id, plan) ? std::nullopt : std::optional(std::move(plan));
  }
  // Compilers that unroll loops give each access a separate offset, and the offsets grow alike. Each takes a register,
  // and NVIDIA's OpenCL compiler delays loads rather than use more than 32 registers.
  void FindLeaders(OpId id, LoopPlan& plan) {
    std::vector<std::optional<analysis::LinearForm>> steps;
    for (uint32_t i = 0; i < f_.region(f_.op(id).body).param_count; ++i) {
      steps.push_back(StepOf(id, plan.end, i));
      uint32_t leader = 0;
      while (leader < i &&
             !(steps[i] && steps[leader] && steps[i]->terms == steps[leader]->terms &&
               steps[i]->constant == steps[leader]->constant && MayFollow(id, i, leader, plan.width_max))) {
        ++leader;
      }
      plan.leader.push_back(leader);
    }
  }
  // Returns true if both have the same type, and the leader is at least as aligned as the parameter, as far as loads
  // require.
  bool MayFollow(OpId id, uint32_t param, uint32_t leader, uint32_t width_max) {
    const uint32_t first = f_.region(f_.op(id).body).first_param.index;
    const ValueId own(first + param), other(first + leader);
    return f_.type_of(own) == f_.type_of(other) &&
           numbers_.ZerosOf(other) >= std::min<int>(numbers_.ZerosOf(own), std::countr_zero(width_max));
  }
  // Returns the value that an iteration adds to the loop's parameter, if it is the same in all iterations.
  std::optional<analysis::LinearForm> StepOf(OpId id, const analysis::LoopEnd& end, uint32_t param) const {
    const ValueId value(f_.region(f_.op(id).body).first_param.index + param);
    if (!ir::IsInt(f_.type_of(value))) {
      return std::nullopt;
    }
    analysis::LinearForm next = linear_.Of(f_.operands_of(f_.op(end.again))[param]);
    const auto own = std::ranges::find(next.terms, std::pair(value.index, uint64_t{1}));
    if (own == next.terms.end()) {
      return std::nullopt;
    }
    next.terms.erase(own);
    const bool is_fixed =
        std::ranges::none_of(next.terms, [&](const auto& term) { return loops_.IsInside(ValueId(term.first), id); });
    return is_fixed ? std::optional(std::move(next)) : std::nullopt;
  }
  // Returns true for the remainder of a previously unrolled loop, which has fewer iterations than would run together:
  // it counts from a small number down to 0.
  bool IsShort(OpId id, const LoopPlan& plan) {
    const analysis::LoopForm& bound = plan.count.bound;
    if (plan.count.test != Test::kNotEqual || plan.count.tested.step >= 0 || !bound.terms.empty() ||
        bound.constant != 0) {
      return false;
    }
    const ValueId first = f_.operands_of(f_.op(id))[plan.count.tested_param->param];
    return numbers_.RangeOf(first).hi <= plan.together * plan.count.step_size();
  }

  const ir::Function& f_;
  const std::vector<bool>& is_free_;
  analysis::EntryNumbers numbers_;
  const analysis::CountedLoops loops_{f_};
  const analysis::LinearForms linear_{f_};
};

class Writer final : public FormCopier {
 public:
  Writer(const ir::Module& module, const std::map<uint32_t, LoopPlan>& plans, const CoarseModule* coarse)
      : FormCopier(module, coarse), plans_(plans) {}

  CoarseModule Run() && { return Copy(); }

 private:
  void CopyOp(OpId id) override {
    if (const auto plan = plans_.find(id.index); plan != plans_.end()) {
      return WriteTwice(id, plan->second);
    }
    FormCopier::CopyOp(id);
  }

  // rest = block { if more { values = loop { N iterations; if more { continue } br }  br block (values) }
  //                br block (the loop's initial values) }
  // the original loop, starting from `rest`
  void WriteTwice(OpId id, const LoopPlan& plan) {
    const Op& loop = f_.op(id);
    SetSource(loop.source);
    const std::vector<ValueId> first = Map(loop);
    WriteLimit(plan);
    MeasureDistances(plan, first);
    const std::vector<Type> types = to_.types_of(first), led_types = to_.types_of(Leaders(plan, first));
    const OpId rest = b_.BeginBlock(Opcode::kBlock, {}, types, loop.source);
    ValueId more = More(plan, first);
    more = has_room_.valid() ? Make(Opcode::kAnd, more, has_room_) : more;
    const OpId choice = b_.BeginIf(more, {}, loop.source);
    const OpId ahead = b_.BeginBlock(Opcode::kLoop, Leaders(plan, first), led_types, loop.source);
    to_.op(ahead).origin = loop.origin;
    std::vector<ValueId> next = WithFollowers(plan, b_.Params(ahead));
    for (uint32_t i = 0; i < plan.together; ++i) {
      Bind(f_.region(loop.body).first_param, next);
      CopyIteration(loop.body, plan.end);
      next = WithFollowers(plan, Leaders(plan, next_));
    }
    const OpId again = b_.BeginIf(More(plan, next), {}, loop.source);
    b_.Continue(ahead, Leaders(plan, next));
    b_.Else();
    b_.Leave(again, {});
    b_.End();
    b_.Leave(ahead, Leaders(plan, next));
    b_.End();
    b_.Leave(rest, WithFollowers(plan, b_.Results(ahead)));
    b_.Else();
    b_.Leave(choice, {});
    b_.End();
    b_.Leave(rest, first);
    b_.End();
    CopyLoopFrom(id, b_.Results(rest));
  }

  // Emits the distances of parameters from their leaders, which are the same in every iteration.
  void MeasureDistances(const LoopPlan& plan, const std::vector<ValueId>& first) {
    distances_.assign(first.size(), ValueId());
    for (uint32_t i = 0; i < first.size(); ++i) {
      distances_[i] = plan.leader[i] == i ? ValueId() : Make(Opcode::kSub, first[i], first[plan.leader[i]]);
    }
  }
  static std::vector<ValueId> Leaders(const LoopPlan& plan, const std::vector<ValueId>& values) {
    std::vector<ValueId> leaders;
    for (uint32_t i = 0; i < values.size(); ++i) {
      if (plan.leader[i] == i) {
        leaders.push_back(values[i]);
      }
    }
    return leaders;
  }
  std::vector<ValueId> WithFollowers(const LoopPlan& plan, const std::vector<ValueId>& leaders) {
    std::vector<ValueId> values;
    for (size_t led = 0; values.size() < plan.leader.size();) {
      const auto i = static_cast<uint32_t>(values.size());
      values.push_back(plan.leader[i] == i ? leaders[led++]
                                           : Make(Opcode::kAdd, values[plan.leader[i]], distances_[i]));
    }
    return values;
  }

  // Copies an iteration from its start to the next one's, whose values are then in next_. Returns false if it
  // continues after plan.end.block.
  bool CopyIteration(RegionId region, const analysis::LoopEnd& end) {
    for (OpId id : f_.region(region).ops) {
      const Op& op = f_.op(id);
      if (id == end.block && !CopyIteration(op.body, end)) {
        continue;
      }
      if (id == end.branch) {
        const Op& taken = f_.op(f_.region(op.body).ops[0]);
        if (end.block.valid()) {
          Bind(f_.op(end.block).first_result, Map(taken));
          return false;
        }
        next_ = Map(taken);
        return true;
      }
      if (op.code == Opcode::kContinue) {
        next_ = Map(op);
        return true;
      }
      CopyOp(id);
    }
    return true;
  }

  void CopyLoopFrom(OpId id, const std::vector<ValueId>& first) {
    const Op& loop = f_.op(id);
    const OpId made = b_.BeginBlock(Opcode::kLoop, first, ResultTypes(loop), loop.source);
    to_.op(made).origin = loop.origin;
    ops_[id.index] = made;
    const std::vector<ValueId> params = b_.Params(made);
    Bind(f_.region(loop.body).first_param, params);
    CopyRegion(loop.body);
    b_.End();
    const std::vector<ValueId> results = b_.Results(made);
    Bind(loop.first_result, results);
  }

  // Emits the limit with which a test of N iterations at once compares. The last of them is plan.way() further: if the
  // bound is too near to the end of its type for that, none run together (has_room_).
  void WriteLimit(const LoopPlan& plan) {
    const analysis::LoopCount& count = plan.count;
    const Type type = count.type;
    limit_ = First(count.bound, type);
    has_room_ = ValueId();
    if (count.test == Test::kNotEqual) {
      return;
    }
    const unsigned bits = type == Type::kI32 ? 32 : 64;
    const uint64_t all = ~uint64_t{0} >> (64 - bits), sign = uint64_t{1} << (bits - 1);
    const uint64_t least = count.is_signed ? sign : 0, most = count.is_signed ? sign - 1 : all;
    const ValueId way = b_.Const(type, plan.way());
    if (count.tested.step > 0) {
      has_room_ = Make(count.is_signed ? Opcode::kGeS : Opcode::kGeU, limit_, b_.Const(type, least + plan.way()));
      limit_ = Make(Opcode::kSub, limit_, way);
    } else {
      has_room_ = Make(count.is_signed ? Opcode::kLeS : Opcode::kLeU, limit_, b_.Const(type, most - plan.way()));
      limit_ = Make(Opcode::kAdd, limit_, way);
    }
  }
  // Emits a test that more than N iterations follow from these values, including this one. For `!=`, modulo 2^32: the
  // bound is met after |bound - tested|, if at all, so not within N - 1 steps if that is larger.
  ValueId More(const LoopPlan& plan, const std::vector<ValueId>& values) {
    const analysis::LoopCount& count = plan.count;
    const analysis::ParamSum& sum = *count.tested_param;
    ValueId tested = values[sum.param];
    if (sum.constant != 0) {
      tested = Make(Opcode::kAdd, tested, b_.Const(count.type, sum.constant));
    }
    const auto compare = [&](Opcode as_signed, Opcode as_unsigned) {
      return Make(count.is_signed ? as_signed : as_unsigned, tested, limit_);
    };
    switch (count.test) {
      case Test::kNotEqual: {
        const bool is_up = count.tested.step > 0;
        const ValueId way = is_up ? Make(Opcode::kSub, limit_, tested) : Make(Opcode::kSub, tested, limit_);
        return Make(Opcode::kGtU, way, b_.Const(count.type, plan.way()));
      }
      case Test::kLess:
        return compare(Opcode::kLtS, Opcode::kLtU);
      case Test::kLessOrEqual:
        return compare(Opcode::kLeS, Opcode::kLeU);
      case Test::kGreater:
        return compare(Opcode::kGtS, Opcode::kGtU);
      case Test::kGreaterOrEqual:
        break;
    }
    return compare(Opcode::kGeS, Opcode::kGeU);
  }

  const std::map<uint32_t, LoopPlan>& plans_;
  std::vector<ValueId> next_;       // Values for the next iteration.
  std::vector<ValueId> distances_;  // Indexed by parameter of the loop that is being written.
  ValueId limit_, has_room_;        // Belong to the loop that is being written.
};

}  // namespace

std::optional<CoarseModule> LoadAhead(const ir::Module& module, const std::vector<bool>& is_free,
                                      const CoarseModule* coarse) {
  // The form would have to recompute a computed place of traps.
  if (coarse != nullptr && (coarse->computed[0].valid() || coarse->computed[1].valid())) {
    return std::nullopt;
  }
  const std::map<uint32_t, LoopPlan> plans = PrefetchPlanner(module, is_free).Run();
  return plans.empty() ? std::nullopt : std::optional(Writer(module, plans, coarse).Run());
}

}  // namespace hpvm::pass
