// SPDX-License-Identifier: Apache-2.0
// Method: accesses of a counted loop that differ by constants form a hull. The check computes the further
// iterations, and from them the first and last byte of each hull, in i64; the loop is written behind it without
// checks, and again unchanged.
// Invariants: an access is marked inside only if a hull of the check covers it in every iteration, or if it is a
// search, whose offset is replaced when it is too high. Only a loop without effects has searches or wide loads, so
// its second copy may begin anew. Steps and immediates are at most 2^20, so sums of the check stay below 2^63.
// Limits: 384 operations a loop, 1536 a kernel, eight hulls, four searches, and 2^24 iterations with searches.
// Source: docs/decisions/0024-checks-before-loops.md and 0025-indices-are-looked-at-once.md.
#include "compiler/pass/tile/guard_loops.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "compiler/analysis/counted_loops.h"
#include "compiler/analysis/nesting.h"
#include "compiler/analysis/trailing_zeros.h"
#include "compiler/ir/op_syntax.h"
#include "compiler/pass/tile/form_copier.h"
#include "compiler/pass/tile/wide_loads.h"

namespace hpvm::pass {
namespace {

// With a step of at most kStepMax and fewer than 2^32 iterations all sums of a check stay below 2^63.
constexpr int64_t kStepMax = 1 << 20;
constexpr uint64_t kImmediateMax = 1 << 20;
// Maximum distance in bytes between the accesses that one check covers, because a loop may be near a buffer's end.
constexpr int64_t kApartMax = 4'096;
// Maximum iterations of a loop with searches: a loop that misses runs to its end before the miss is noticed.
constexpr int64_t kSearchedIterationsMax = 1 << 24;
constexpr size_t kHullsMax = 8;
constexpr size_t kSearchesMax = 4;

// Accesses to a parameter's buffer that differ by constants.
struct Hull {
  uint32_t param = 0;
  analysis::LoopForm lowest;                       // The offset of the lowest access, without its immediate.
  uint64_t reach = 0;                              // Bytes from `lowest` to the end of the last access.
  std::vector<std::pair<OpId, uint64_t>> members;  // In order, with their forms' constants.
};
// Loads whose offsets come from memory: of one buffer and one reach, which is the immediate plus the width.
struct Search {
  uint32_t param = 0;
  uint64_t reach = 0;
};
struct LoopPlan {
  analysis::LoopCount count;
  std::vector<Hull> hulls;
  std::vector<Search> searches;
  std::map<uint32_t, size_t> search_of;        // Keyed by OpId of a load: index in `searches`.
  std::set<uint32_t> covered;                  // OpIds of the members of hulls.
  std::map<uint32_t, std::vector<OpId>> wide;  // Keyed by OpId of the first load, which is also the lowest.
  uint32_t ops = 0;
};

bool IsLoad(const Op& op) { return op.code == Opcode::kLoad || op.code == Opcode::kLoad128; }
bool IsOfParam(const Op& op) { return ir::HasSpace(op.code) && op.space == ir::Space::kParam; }

class GuardPlanner {
 public:
  GuardPlanner(const ir::Module& module, const std::vector<bool>& is_unproven)
      : module_(module),
        f_(module.function(module.entry)),
        is_unproven_(is_unproven),
        numbers_(module, analysis::kGpuIdMax) {}

  std::map<uint32_t, LoopPlan> Run() {
    return PlanLoops<LoopPlan>(f_, kGuardedOpsMax, [&](OpId id) { return PlanOf(id); });
  }

 private:
  struct Content {
    std::vector<OpId> accesses;  // Loads and stores of parameters.
    bool has_loop = false, has_wait = false, has_unproven = false;
    bool only_computes = true;  // Except for its loads: no effect, no trap, no exit except the loop's end.
  };
  Content ContentOf(OpId loop) const {
    Content content;
    for (OpId id : nesting_.OpsOf(loop).subspan(1)) {
      const Op& op = f_.op(id);
      content.has_loop |= op.code == Opcode::kLoop;
      content.has_wait |= (ir::Info(op.code).effects & ir::kSyncs) != 0;
      const bool is_access = IsOfParam(op) && ir::Info(op.code).family == ir::Family::kMemory;
      if (is_access) {
        content.accesses.push_back(id);
        content.has_unproven |= is_unproven_[id.index];
      }
      const uint8_t allowed = is_access && IsLoad(op) ? ir::kReads | ir::kTraps : ir::kReads | ir::kControl;
      content.only_computes &= (ir::Info(op.code).effects & ~allowed) == 0 && op.code != Opcode::kReturn;
      for (const ir::Target& target : f_.targets_of(op)) {
        content.only_computes &= nesting_.IsIn(target.op, loop);
      }
    }
    return content;
  }

  std::optional<LoopPlan> PlanOf(OpId loop) {
    LoopPlan plan;
    plan.ops = loops_.ops_in(loop);
    if (plan.ops > kGuardedLoopOpsMax) {
      return std::nullopt;
    }
    const Content content = ContentOf(loop);
    const analysis::LoopForms forms(loops_, loop);
    std::optional<analysis::LoopCount> count = forms.Count();
    if (content.has_loop || content.has_wait || !content.has_unproven || !count || count->type != Type::kI32) {
      return std::nullopt;
    }
    plan.count = *std::move(count);
    std::vector<OpId> others;
    for (OpId id : content.accesses) {
      if (!Cover(id, forms, plan)) {
        others.push_back(id);
      }
    }
    if (content.only_computes) {
      PlanSearches(others, f_.op(loop).body, plan);
      for (const Hull& hull : plan.hulls) {
        FindWide(hull, plan);
      }
    }
    const auto gains = [&](OpId id) {
      return is_unproven_[id.index] && (plan.covered.contains(id.index) || plan.search_of.contains(id.index));
    };
    if (std::ranges::none_of(content.accesses, gains)) {
      return std::nullopt;
    }
    return plan;
  }

  // Returns the distance of an offset from the hull's lowest one.
  static int64_t From(const Hull& hull, uint64_t constant) {
    return ir::SignedBits(Type::kI32, constant - hull.lowest.constant);
  }
  bool Cover(OpId id, const analysis::LoopForms& forms, LoopPlan& plan) const {
    const Op& op = f_.op(id);
    const std::optional<analysis::LoopForm> form = forms.Of(f_.operands_of(op)[0]);
    if (!form || std::abs(form->step) > kStepMax || op.imm > kImmediateMax ||
        (!IsLoad(op) && !module_.params[op.space_index].is_writable)) {
      return false;
    }
    const uint64_t reach = op.imm + op.width;
    for (Hull& hull : plan.hulls) {
      if (hull.param != op.space_index || hull.lowest.terms != form->terms || hull.lowest.step != form->step) {
        continue;
      }
      const int64_t apart = From(hull, form->constant);
      if (std::abs(apart) > kApartMax || static_cast<int64_t>(hull.reach) - apart > 2 * kApartMax) {
        continue;
      }
      if (apart < 0) {
        hull.reach += static_cast<uint64_t>(-apart);
        hull.lowest.constant = form->constant;
      }
      hull.reach = std::max(hull.reach, static_cast<uint64_t>(std::max<int64_t>(apart, 0)) + reach);
      hull.members.emplace_back(id, form->constant);
      plan.covered.insert(id.index);
      return true;
    }
    if (plan.hulls.size() == kHullsMax) {
      return false;
    }
    plan.hulls.push_back({op.space_index, *form, reach, {{id, form->constant}}});
    plan.covered.insert(id.index);
    return true;
  }

  // Plans all loads that no hull covers, or none: a value read in place of a missed load must not cause a trap.
  void PlanSearches(const std::vector<OpId>& loads, RegionId body, LoopPlan& plan) const {
    std::vector<Search> searches;
    std::map<uint32_t, size_t> search_of;
    for (OpId id : loads) {
      const Op& op = f_.op(id);
      if (nesting_.RegionOf(id) != body || op.imm > kImmediateMax) {
        return;
      }
      const Search search = {op.space_index, op.imm + op.width};
      const auto known = std::ranges::find_if(
          searches, [&](const Search& s) { return s.param == search.param && s.reach == search.reach; });
      search_of[id.index] = static_cast<size_t>(known - searches.begin());
      if (known == searches.end()) {
        searches.push_back(search);
      }
    }
    if (searches.size() <= kSearchesMax) {
      plan.searches = std::move(searches);
      plan.search_of = std::move(search_of);
    }
  }

  // All members are inside in every iteration, so each may be loaded earlier than in the original.
  void FindWide(const Hull& hull, LoopPlan& plan) {
    std::map<int64_t, OpId> words;  // Keyed by offset; the first of equal offsets.
    for (const auto& [id, constant] : hull.members) {
      const Op& op = f_.op(id);
      if (op.code == Opcode::kLoad && op.width == 4 && ir::Bytes(op.type) == 4) {
        words.emplace(From(hull, constant) + static_cast<int64_t>(op.imm), id);
      }
    }
    const auto is_aligned = [&](OpId lowest) { return numbers_.IsAligned(f_.op(lowest), 4); };
    const auto may_join = [&](OpId lowest, OpId other) {
      return IsBefore(hull, lowest, other) && nesting_.Encloses(nesting_.RegionOf(lowest), nesting_.RegionOf(other));
    };
    for (std::vector<OpId>& wide : FindWideLoads(words, 4, is_aligned, may_join)) {
      plan.wide.emplace(wide[0].index, std::move(wide));
    }
  }
  static bool IsBefore(const Hull& hull, OpId a, OpId b) {
    const auto place = [&](OpId id) {
      return std::ranges::find_if(hull.members, [&](const auto& m) { return m.first == id; });
    };
    return place(a) < place(b);
  }
  const ir::Module& module_;
  const ir::Function& f_;
  const std::vector<bool>& is_unproven_;
  const analysis::CountedLoops loops_{f_};
  const analysis::Nesting nesting_{f_};
  analysis::EntryNumbers numbers_;
};

class Writer final : public FormCopier {
 public:
  Writer(const ir::Module& module, const std::map<uint32_t, LoopPlan>& plans)
      : FormCopier(module, nullptr), plans_(plans), is_done_(f_.ops.size()) {}

  CoarseModule Run() && {
    CoarseModule guarded = Copy();
    guarded.needs_alignment = has_wide_;
    return guarded;
  }

 private:
  void CopyOp(OpId id) override {
    const Op& op = f_.op(id);
    if (const auto plan = plans_.find(id.index); op.code == Opcode::kLoop && plan != plans_.end()) {
      return WriteGuarded(id, plan->second);
    }
    if (plan_ == nullptr || !IsOfParam(op) || !CopyAccess(id)) {
      FormCopier::CopyOp(id);
    }
  }

  // block { if check { first copy; br block }  second copy; br block }
  void WriteGuarded(OpId id, const LoopPlan& plan) {
    const Op& loop = f_.op(id);
    SetSource(loop.source);
    const OpId block = b_.BeginBlock(Opcode::kBlock, {}, ResultTypes(loop), loop.source);
    const OpId choice = b_.BeginIf(WriteCheck(plan), {}, loop.source);
    highest_.assign(plan.searches.size(), b_.Const(Type::kI32, 0));
    plan_ = &plan;
    CopyConstruct(id);
    plan_ = nullptr;
    if (plan.searches.empty()) {
      b_.Leave(block, Results(loop));
    } else {
      const OpId found = b_.BeginIf(HaveMissed(), {}, loop.source);
      b_.Leave(found, {});
      b_.Else();
      b_.Leave(block, Results(loop));
      b_.End();
      b_.Leave(choice, {});
    }
    b_.Else();
    b_.Leave(choice, {});
    b_.End();
    CopyConstruct(id);
    b_.Leave(block, Results(loop));
    b_.End();
    Bind(loop.first_result, b_.Results(block));
  }
  std::vector<ValueId> Results(const Op& op) const {
    std::vector<ValueId> values;
    for (uint32_t i = 0; i < op.result_count; ++i) {
      values.push_back(values_[op.first_result.index + i]);
    }
    return values;
  }

  ValueId Number(int64_t value) { return b_.Const(Type::kI64, static_cast<uint64_t>(value)); }
  ValueId Wide(ValueId value, bool is_signed) {
    return Make(is_signed ? Opcode::kExtendS : Opcode::kExtendU, Type::kI32, std::array{value}, Type::kI64);
  }
  ValueId Choose(ValueId condition, ValueId a, ValueId b) {
    return Make(Opcode::kSelect, to_.type_of(a), std::array{condition, a, b}, to_.type_of(a));
  }
  ValueId Size(uint32_t param) {
    ValueId& size = sizes_[param];
    if (!size.valid()) {
      size = Make(Opcode::kBufferSize, Type::kI64, std::array{b_.Const(Type::kI32, param)}, Type::kI64);
    }
    return size;
  }
  void Require(ValueId condition) { check_ = check_.valid() ? Make(Opcode::kAnd, check_, condition) : condition; }

  // Emits the condition, in i64 arithmetic, under which the first copy may run.
  ValueId WriteCheck(const LoopPlan& plan) {
    check_ = ValueId();
    sizes_.clear();
    const ValueId more = WriteCount(plan.count);
    for (const Hull& hull : plan.hulls) {
      const ValueId first = Wide(First(hull.lowest, Type::kI32), false);
      const ValueId way = Make(Opcode::kMul, more, Number(std::abs(hull.lowest.step)));
      ValueId last = first;
      if (hull.lowest.step > 0) {
        last = Make(Opcode::kAdd, first, way);
      } else if (hull.lowest.step < 0) {
        Require(Make(Opcode::kGeS, first, way));
      }
      Require(Make(Opcode::kLeS, Make(Opcode::kAdd, last, Number(static_cast<int64_t>(hull.reach))), Size(hull.param)));
    }
    if (!plan.searches.empty()) {
      Require(Make(Opcode::kLeS, more, Number(kSearchedIterationsMax)));
    }
    last_place_.clear();
    for (const Search& search : plan.searches) {
      const ValueId last = Make(Opcode::kSub, Size(search.param), Number(static_cast<int64_t>(search.reach)));
      Require(Make(Opcode::kGeS, last, Number(0)));
      last_place_.push_back(Make(Opcode::kWrap, Type::kI64, std::array{last}, Type::kI32));
    }
    return check_;
  }
  // Emits the number of iterations after the first, as an i64.
  ValueId WriteCount(const analysis::LoopCount& count) {
    const int64_t step = count.tested.step;
    const uint64_t size = count.step_size();
    const auto log2 = std::countr_zero(size);
    const ValueId tested = First(count.tested, Type::kI32), bound = First(count.bound, Type::kI32);
    if (count.test == analysis::LoopCount::Test::kNotEqual) {
      // Modulo 2^32 the bound is first met after this distance, if at all.
      const ValueId way = step > 0 ? Make(Opcode::kSub, bound, tested) : Make(Opcode::kSub, tested, bound);
      if (log2 != 0) {
        const ValueId rest = Make(Opcode::kAnd, way, b_.Const(Type::kI32, size - 1));
        Require(Make(Opcode::kEqz, Type::kI32, std::array{rest}, Type::kI32));
      }
      return Wide(Make(Opcode::kShrU, way, b_.Const(Type::kI32, static_cast<uint64_t>(log2))), false);
    }
    const bool or_equal = count.test == analysis::LoopCount::Test::kLessOrEqual ||
                          count.test == analysis::LoopCount::Test::kGreaterOrEqual;
    const ValueId from = Wide(tested, count.is_signed), to = Wide(bound, count.is_signed);
    const ValueId way = step > 0 ? Make(Opcode::kSub, to, from) : Make(Opcode::kSub, from, to);
    const ValueId up = Make(Opcode::kAdd, way, Number(static_cast<int64_t>(size) - (or_equal ? 0 : 1)));
    const ValueId none = Number(0);
    const ValueId more = Choose(Make(Opcode::kGtS, up, none), Make(Opcode::kShrU, up, Number(log2)), none);
    if (or_equal || size != 1) {
      // The value that ends the loop must not have wrapped around.
      const ValueId last = Make(step > 0 ? Opcode::kAdd : Opcode::kSub, from, Make(Opcode::kShl, more, Number(log2)));
      const int64_t least = count.is_signed ? -(int64_t{1} << 31) : 0;
      const int64_t most = count.is_signed ? (int64_t{1} << 31) - 1 : (int64_t{1} << 32) - 1;
      Require(step > 0 ? Make(Opcode::kLeS, last, Number(most)) : Make(Opcode::kGeS, last, Number(least)));
    }
    return more;
  }

  // The first copy carries the highest offset of each search.
  bool HasSearches(OpId id) const { return plan_ != nullptr && f_.op(id).code == Opcode::kLoop; }
  std::vector<Type> MoreTypes(OpId id) const override {
    return std::vector<Type>(HasSearches(id) ? plan_->searches.size() : 0, Type::kI32);
  }
  std::vector<ValueId> MoreValues(OpId id) const override {
    return HasSearches(id) ? highest_ : std::vector<ValueId>{};
  }
  void Enter(OpId id, std::span<const ValueId> params) override {
    if (HasSearches(id)) {
      highest_.assign(params.begin(), params.end());
    }
  }
  void Leave(OpId id, std::span<const ValueId> results) override {
    if (HasSearches(id)) {
      highest_.assign(results.begin(), results.end());
    }
  }
  ValueId HaveMissed() {
    ValueId missed;
    for (size_t i = 0; i < highest_.size(); ++i) {
      const ValueId one = Make(Opcode::kGtU, highest_[i], last_place_[i]);
      missed = missed.valid() ? Make(Opcode::kOr, missed, one) : one;
    }
    return missed;
  }

  // Copies an access in the first copy. Returns false for an access that keeps its check.
  bool CopyAccess(OpId id) {
    const Op& op = f_.op(id);
    if (is_done_[id.index] == plan_) {
      return true;  // It was loaded together with another load.
    }
    if (const auto quad = plan_->wide.find(id.index); quad != plan_->wide.end()) {
      CopyWide(quad->second);
      return true;
    }
    std::vector<ValueId> operands = Map(op);
    if (const auto search = plan_->search_of.find(id.index); search != plan_->search_of.end()) {
      ValueId& highest = highest_[search->second];
      const ValueId last = last_place_[search->second];
      highest = Choose(Make(Opcode::kGtU, operands[0], highest), operands[0], highest);
      operands[0] = Choose(Make(Opcode::kGtU, operands[0], last), b_.Const(Type::kI32, 0), operands[0]);
    } else if (!plan_->covered.contains(id.index)) {
      return false;
    }
    Op inside = op;
    inside.is_inside = true;
    const OpId made = b_.Append(inside, operands, ResultTypes(op));
    NoteOriginal(made, id);
    Bind(op.first_result, b_.Results(made));
    return true;
  }
  void CopyWide(const std::vector<OpId>& loads) {
    has_wide_ = true;
    const WideLoad made = AppendWideLoad(b_, f_, loads, Map(f_.op(loads[0]))[0], /*is_inside=*/true);
    NoteOriginal(made.op, loads[0]);
    for (size_t i = 0; i < loads.size(); ++i) {
      Bind(f_.op(loads[i]).first_result, std::span(made.values).subspan(i, 1));
      is_done_[loads[i].index] = plan_;
    }
  }

  const std::map<uint32_t, LoopPlan>& plans_;
  std::vector<const LoopPlan*> is_done_;       // Indexed by OpId: the loop in whose first copy another load covers it.
  const LoopPlan* plan_ = nullptr;             // In a first copy: its loop's plan.
  ValueId check_;                              // The check of the current loop, as emitted so far.
  std::map<uint32_t, ValueId> sizes_;          // Keyed by parameter, for the current check.
  std::vector<ValueId> last_place_, highest_;  // One per search.
  bool has_wide_ = false;
};

std::string Count(size_t count, const std::string& one, const std::string& more) {
  return std::to_string(count) + " " + (count == 1 ? one : more);
}

}  // namespace

std::optional<CoarseModule> GuardLoops(const ir::Module& module, const std::vector<bool>& is_unproven,
                                       KernelReport* report) {
  if (module.is_memory64) {
    return std::nullopt;
  }
  const std::map<uint32_t, LoopPlan> plans = GuardPlanner(module, is_unproven).Run();
  if (plans.empty()) {
    return std::nullopt;
  }
  for (const auto& [loop, plan] : plans) {
    if (report != nullptr) {
      report->Add(
          KernelRemark::Kind::kBounds, module.function(module.entry).ops[loop].source,
          "One check before the loop replaces the checks of " + Count(plan.covered.size(), "access", "accesses") +
              (plan.searches.empty()
                   ? ""
                   : ", and one check after it replaces those of " + Count(plan.search_of.size(), "load", "loads")) +
              "; a loop that fails it runs with all checks.");
    }
  }
  return Writer(module, plans).Run();
}

}  // namespace hpvm::pass
