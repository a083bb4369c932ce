// SPDX-License-Identifier: Apache-2.0
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
#include "compiler/analysis/trailing_zeros.h"
#include "compiler/analysis/value_ranges.h"
#include "compiler/ir/spelling.h"
#include "compiler/ir/walk.h"
#include "compiler/pass/memory/copy_function.h"
#include "compiler/pass/tile/wide_loads.h"

namespace hpvm {
namespace {

using ir::Op;
using ir::Opcode;
using ir::OpId;
using ir::RegionId;
using ir::Type;
using ir::ValueId;

// With a step of at most kStepMax and fewer than 2^32 iterations all sums of a check stay below 2^63.
constexpr int64_t kStepMax = 1 << 20;
constexpr uint64_t kImmediateMax = 1 << 20;
// Bytes between the accesses that one check covers: a loop may be near a buffer's end.
constexpr int64_t kApartMax = 4'096;
// A loop that misses goes on to its end before that is seen.
constexpr int64_t kSearchedIterationsMax = 1 << 24;
constexpr size_t kHullsMax = 8;
constexpr size_t kSearchesMax = 4;

// Accesses to a parameter's buffer that differ by constants.
struct Hull {
  uint32_t param = 0;
  LoopForm lowest;                                 // The offset of the lowest of them, without its immediate.
  uint64_t reach = 0;                              // Bytes from `lowest` to the end of the last of them.
  std::vector<std::pair<OpId, uint64_t>> members;  // In order, with their forms' constants.
};
// Loads whose places come from memory: of one buffer and one reach, which is the immediate and the width.
struct Search {
  uint32_t param = 0;
  uint64_t reach = 0;
};
struct LoopPlan {
  LoopCount count;
  std::vector<Hull> hulls;
  std::vector<Search> searches;
  std::map<uint32_t, size_t> search_of;        // By OpId of a load: in `searches`.
  std::set<uint32_t> covered;                  // OpIds of the members of hulls.
  std::map<uint32_t, std::vector<OpId>> wide;  // By OpId of the load that is met first, which is the lowest.
  uint32_t ops = 0;
};

bool IsLoad(const Op& op) { return op.code == Opcode::kLoad || op.code == Opcode::kLoad128; }
bool IsOfParam(const Op& op) { return ir::HasSpace(op.code) && op.space == ir::Space::kParam; }

class Planner {
 public:
  Planner(const ir::Module& module, const std::vector<bool>& is_unproven)
      : module_(module), f_(module.function(module.entry)), is_unproven_(is_unproven) {}

  // The plans by OpId of their loops.
  std::map<uint32_t, LoopPlan> Run() {
    std::map<uint32_t, LoopPlan> plans;
    uint32_t left = kGuardedOpsMax;
    ir::ForEachOp(f_, [&](OpId id) {
      if (f_.op(id).code != Opcode::kLoop) {
        return;
      }
      std::optional<LoopPlan> plan = PlanOf(id);
      if (plan && plan->ops <= left) {
        left -= plan->ops;
        plans.emplace(id.index, *std::move(plan));
      }
    });
    return plans;
  }

 private:
  struct Content {
    std::vector<OpId> accesses;              // Loads and stores of parameters.
    std::map<uint32_t, RegionId> region_of;  // By OpId of an access.
    bool has_loop = false, has_wait = false, has_unproven = false;
    bool only_computes = true;  // But for its loads: no effect, no trap, no way out but the loop's end.
  };
  void Collect(OpId loop, RegionId region, Content& content) {
    for (OpId id : f_.region(region).ops) {
      const Op& op = f_.op(id);
      content.has_loop |= op.code == Opcode::kLoop;
      content.has_wait |= (ir::Info(op.code).effects & ir::kSyncs) != 0;
      const bool is_access = IsOfParam(op) && ir::Info(op.code).family == ir::Family::kMemory;
      if (is_access) {
        content.accesses.push_back(id);
        content.region_of[id.index] = region;
        content.has_unproven |= is_unproven_[id.index];
      }
      const uint8_t allowed = is_access && IsLoad(op) ? ir::kReads | ir::kTraps : ir::kReads | ir::kControl;
      content.only_computes &= (ir::Info(op.code).effects & ~allowed) == 0 && op.code != Opcode::kReturn;
      for (const ir::Target& target : f_.targets_of(op)) {
        content.only_computes &= target.op == loop || region_owners_.contains(target.op.index);
      }
      if (ir::OwnsRegions(op.code)) {
        region_owners_.insert(id.index);
        parent_of_[op.body.index] = region;
        Collect(loop, op.body, content);
        if (op.code == Opcode::kIf) {
          parent_of_[op.otherwise.index] = region;
          Collect(loop, op.otherwise, content);
        }
      }
    }
  }

  std::optional<LoopPlan> PlanOf(OpId loop) {
    LoopPlan plan;
    plan.ops = loops_.ops_in(loop);
    if (plan.ops > kGuardedLoopOpsMax) {
      return std::nullopt;
    }
    Content content;
    region_owners_.clear();
    parent_of_.clear();
    Collect(loop, f_.op(loop).body, content);
    const LoopForms forms(loops_, loop);
    std::optional<LoopCount> count = forms.Count();
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
      PlanSearches(others, content, f_.op(loop).body, plan);
      for (const Hull& hull : plan.hulls) {
        FindWide(hull, content, plan);
      }
    }
    const auto gains = [&](OpId id) {
      return is_unproven_[id.index] && (plan.covered.contains(id.index) || plan.search_of.contains(id.index));
    };
    if (std::none_of(content.accesses.begin(), content.accesses.end(), gains)) {
      return std::nullopt;
    }
    return plan;
  }

  // The distance of a place from the hull's lowest one.
  static int64_t From(const Hull& hull, uint64_t constant) {
    return ir::SignedBits(Type::kI32, constant - hull.lowest.constant);
  }
  bool Cover(OpId id, const LoopForms& forms, LoopPlan& plan) const {
    const Op& op = f_.op(id);
    const std::optional<LoopForm> form = forms.Of(f_.operands_of(op)[0]);
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

  // All of the loads that no hull covers, or none: what is read in place of what they miss must not lead to a trap.
  void PlanSearches(const std::vector<OpId>& loads, const Content& content, RegionId body, LoopPlan& plan) const {
    std::vector<Search> searches;
    std::map<uint32_t, size_t> search_of;
    for (OpId id : loads) {
      const Op& op = f_.op(id);
      if (content.region_of.at(id.index) != body || op.imm > kImmediateMax) {
        return;
      }
      const Search search = {op.space_index, op.imm + op.width};
      const auto known = std::find_if(searches.begin(), searches.end(), [&](const Search& s) {
        return s.param == search.param && s.reach == search.reach;
      });
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

  // True if the region is `inner`, or around it.
  bool IsAround(RegionId region, RegionId inner) const {
    for (;;) {
      if (region == inner) {
        return true;
      }
      const auto parent = parent_of_.find(inner.index);
      if (parent == parent_of_.end()) {
        return false;
      }
      inner = parent->second;
    }
  }
  // All members lie inside in every iteration, so that each may be loaded before it is asked for.
  void FindWide(const Hull& hull, const Content& content, LoopPlan& plan) {
    std::map<int64_t, OpId> words;  // By place; the first of those alike.
    for (const auto& [id, constant] : hull.members) {
      const Op& op = f_.op(id);
      if (op.code == Opcode::kLoad && op.width == 4 && ir::Bytes(op.type) == 4) {
        words.emplace(From(hull, constant) + static_cast<int64_t>(op.imm), id);
      }
    }
    const auto is_aligned = [&](OpId lowest) { return IsAligned(f_.op(lowest)); };
    const auto may_join = [&](OpId lowest, OpId other) {
      return IsBefore(hull, lowest, other) &&
             IsAround(content.region_of.at(lowest.index), content.region_of.at(other.index));
    };
    for (std::vector<OpId>& wide : FindWideLoads(words, 4, is_aligned, may_join)) {
      plan.wide.emplace(wide[0].index, std::move(wide));
    }
  }
  static bool IsBefore(const Hull& hull, OpId a, OpId b) {
    const auto place = [&](OpId id) {
      return std::find_if(hull.members.begin(), hull.members.end(), [&](const auto& m) { return m.first == id; });
    };
    return place(a) < place(b);
  }
  bool IsAligned(const Op& op) {
    if (zeros_.empty()) {
      const std::vector<ValueRange> ranges = FindValueRanges(module_, kGpuIdMax);
      zeros_ = FindTrailingZeros(f_, {.params = ZerosOfParams(module_), .ranges = &ranges});
    }
    return zeros_[f_.operands_of(op)[0].index] >= 4 && op.imm % 16 == 0;
  }

  const ir::Module& module_;
  const ir::Function& f_;
  const std::vector<bool>& is_unproven_;
  const CountedLoops loops_{f_};
  std::vector<uint8_t> zeros_;              // By ValueId; made when first asked for.
  std::set<uint32_t> region_owners_;        // The constructs in the loop that is being looked at.
  std::map<uint32_t, RegionId> parent_of_;  // By RegionId: the region around one of theirs.
};

class Writer final : public FunctionCopier {
 public:
  Writer(const ir::Module& module, const std::map<uint32_t, LoopPlan>& plans)
      : FunctionCopier(module.function(module.entry)), plans_(plans), is_done_(f_.ops.size()) {}

  CoarseModule Run(const ir::Module& module) && {
    CopyAll();
    CoarseModule guarded;
    guarded.module = module;
    original_.resize(to_.ops.size());
    guarded.original = std::move(original_);
    guarded.place.resize(to_.ops.size());
    guarded.needs_alignment = has_wide_;
    guarded.module.function(module.entry) = std::move(to_);
    return guarded;
  }

 private:
  void CopyOp(OpId id) override {
    const Op& op = f_.op(id);
    if (const auto plan = plans_.find(id.index); op.code == Opcode::kLoop && plan != plans_.end()) {
      return WriteGuarded(id, plan->second);
    }
    if (plan_ == nullptr || !IsOfParam(op) || !CopyAccess(id)) {
      FunctionCopier::CopyOp(id);
      if (!ir::OwnsRegions(op.code)) {
        NoteOriginal(id);
      }
    }
  }
  void NoteOriginal(OpId id) {
    original_.resize(to_.ops.size());
    original_.back() = id;
  }

  // block { if check { first copy; leave block }  second copy; leave block }
  void WriteGuarded(OpId id, const LoopPlan& plan) {
    const Op& loop = f_.op(id);
    source_ = loop.source;
    const OpId block = b_.BeginBlock(Opcode::kBlock, {}, ResultTypes(loop), loop.source);
    const OpId choice = b_.BeginIf(WriteCheck(plan), {}, loop.source);
    highest_.assign(plan.searches.size(), b_.Const(Type::kI32, 0));
    plan_ = &plan;
    FunctionCopier::CopyConstruct(id);
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
    FunctionCopier::CopyConstruct(id);
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

  ValueId Make(Opcode code, Type type, std::initializer_list<ValueId> operands, Type result) {
    Op op{.code = code, .type = type};
    op.source = source_;
    return b_.Append1(op, operands, result);
  }
  ValueId Make(Opcode code, ValueId a, ValueId b) {
    const Type type = to_.type_of(a);
    const bool is_comparison = ir::Info(code).family == ir::Family::kIntCompare;
    return Make(code, type, {a, b}, is_comparison ? Type::kI32 : type);
  }
  ValueId Number(int64_t value) { return b_.Const(Type::kI64, static_cast<uint64_t>(value)); }
  ValueId Wide(ValueId value, bool is_signed) {
    return Make(is_signed ? Opcode::kExtendS : Opcode::kExtendU, Type::kI32, {value}, Type::kI64);
  }
  ValueId Choose(ValueId condition, ValueId a, ValueId b) {
    return Make(Opcode::kSelect, to_.type_of(a), {condition, a, b}, to_.type_of(a));
  }
  // The form in the loop's first iteration.
  ValueId First(const LoopForm& form) {
    ValueId sum = b_.Const(Type::kI32, form.constant);
    for (const auto& [value, factor] : form.terms) {
      const ValueId term = values_[value.index];
      const bool is_one = factor == 1;
      sum = Make(Opcode::kAdd, sum, is_one ? term : Make(Opcode::kMul, term, b_.Const(Type::kI32, factor)));
    }
    return sum;
  }
  ValueId Size(uint32_t param) {
    ValueId& size = sizes_[param];
    if (!size.valid()) {
      size = Make(Opcode::kBufferSize, Type::kI64, {b_.Const(Type::kI32, param)}, Type::kI64);
    }
    return size;
  }
  void Require(ValueId condition) { check_ = check_.valid() ? Make(Opcode::kAnd, check_, condition) : condition; }

  // Says, by sums in i64, whether the first copy may run.
  ValueId WriteCheck(const LoopPlan& plan) {
    check_ = ValueId();
    sizes_.clear();
    const ValueId more = WriteCount(plan.count);
    for (const Hull& hull : plan.hulls) {
      const ValueId first = Wide(First(hull.lowest), false);
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
      last_place_.push_back(Make(Opcode::kWrap, Type::kI64, {last}, Type::kI32));
    }
    return check_;
  }
  // How many iterations follow the first, as an i64.
  ValueId WriteCount(const LoopCount& count) {
    const int64_t step = count.tested.step;
    const uint64_t size = count.step_size();
    const auto log2 = std::countr_zero(size);
    const ValueId tested = First(count.tested), bound = First(count.bound);
    if (count.test == LoopCount::Test::kNotEqual) {
      // Modulo 2^32 the bound is met first after this way, if at all.
      const ValueId way = step > 0 ? Make(Opcode::kSub, bound, tested) : Make(Opcode::kSub, tested, bound);
      if (log2 != 0) {
        const ValueId rest = Make(Opcode::kAnd, way, b_.Const(Type::kI32, size - 1));
        Require(Make(Opcode::kEqz, Type::kI32, {rest}, Type::kI32));
      }
      return Wide(Make(Opcode::kShrU, way, b_.Const(Type::kI32, static_cast<uint64_t>(log2))), false);
    }
    const bool or_equal = count.test == LoopCount::Test::kLessOrEqual || count.test == LoopCount::Test::kGreaterOrEqual;
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

  // The first copy carries the highest place of each search.
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

  // In the first copy. False for an access that keeps its check.
  bool CopyAccess(OpId id) {
    const Op& op = f_.op(id);
    if (is_done_[id.index] == plan_) {
      return true;  // It was loaded with another.
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
    NoteOriginal(id);
    Bind(op.first_result, b_.Results(made));
    return true;
  }
  void CopyWide(const std::vector<OpId>& loads) {
    has_wide_ = true;
    const WideLoad made = AppendWideLoad(b_, f_, loads, Map(f_.op(loads[0]))[0], /*is_inside=*/true);
    original_.resize(to_.ops.size());
    original_[made.op.index] = loads[0];
    for (size_t i = 0; i < loads.size(); ++i) {
      Bind(f_.op(loads[i]).first_result, std::span(made.values).subspan(i, 1));
      is_done_[loads[i].index] = plan_;
    }
  }

  const std::map<uint32_t, LoopPlan>& plans_;
  std::vector<OpId> original_;                 // By new OpId.
  std::vector<const LoopPlan*> is_done_;       // By OpId: the loop in whose first copy another load has loaded it.
  const LoopPlan* plan_ = nullptr;             // In a first copy: its loop's.
  ValueId check_;                              // Of the loop that is being written, as far as it has come.
  std::map<uint32_t, ValueId> sizes_;          // By parameter, for that check.
  std::vector<ValueId> last_place_, highest_;  // One a search.
  uint32_t source_ = 0;
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
  const std::map<uint32_t, LoopPlan> plans = Planner(module, is_unproven).Run();
  if (plans.empty()) {
    return std::nullopt;
  }
  for (const auto& [loop, plan] : plans) {
    if (report != nullptr) {
      report->Add(
          KernelRemark::Kind::kBounds, module.function(module.entry).ops[loop].source,
          "One check before the loop stands for those of " + Count(plan.covered.size(), "access", "accesses") +
              (plan.searches.empty() ? ""
                                     : ", and one behind it for " + Count(plan.search_of.size(), "load", "loads")) +
              "; a loop that fails it runs with all of them.");
    }
  }
  return Writer(module, plans).Run(module);
}

}  // namespace hpvm
