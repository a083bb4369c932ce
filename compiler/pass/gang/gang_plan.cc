// SPDX-License-Identifier: Apache-2.0
// Method: the planner alternates uniformity analysis and assumptions until no further guard can be assumed: each
// assumed guard may let later operations be reached together. It then marks masked constructs to a fixed point,
// following each jump outwards: lanes that diverge stay apart until the end of the construct that they leave.
// Invariants: assumptions and masks are only added. A guard is assumed only where all lanes arrive together and
// before any effect, so a tile that breaks the assumption can give up and run again otherwise. The last analysis
// has seen every assumption.
// At most 16 rounds of assumptions, of which the last adds none; marking ends after at most one sweep for each
// construct. Entries of more than 8000 operations and jump targets are refused before.
// Source: Pharr and Mark, InPar 2012, for gangs (see gang_plan.h).
#include "compiler/pass/gang/gang_plan.h"

#include <algorithm>
#include <span>
#include <utility>

#include "compiler/analysis/before_effects.h"
#include "compiler/analysis/definitions.h"
#include "compiler/analysis/edge_forms.h"
#include "compiler/analysis/nesting.h"
#include "compiler/analysis/uniformity.h"
#include "compiler/analysis/value_ranges.h"
#include "compiler/ir/walk.h"

namespace hpvm::pass {
namespace {

// --- Reasons against lockstep.

// Maximum number of the entry's operations and jump targets. Beyond it compile time goes to kernels that are mostly
// branches; each operation becomes code in up to seven functions.
constexpr size_t kOpsMax = 8'000;

bool IsBulk(Opcode code) {
  return code == Opcode::kMemoryGrow || code == Opcode::kMemoryCopy || code == Opcode::kMemoryFill ||
         code == Opcode::kMemoryInit;
}

bool IsSync(Opcode code) { return code == Opcode::kBarrier || code == Opcode::kLocalAlloc; }

// Returns the reason why a function's operation prevents lockstep execution, or null. Functions other than the entry
// run one lane after the other, and may write memory that no other instance reads.
const char* ReasonOf(const Op& op, bool is_entry, const std::optional<uint32_t>& stack_pointer) {
  if (IsBulk(op.code)) {
    return "it grows, copies or fills memory that belongs to one instance";
  }
  if (op.code == Opcode::kGlobalSet && stack_pointer == op.imm) {
    return "it moves the stack's pointer, as it keeps an array or structure in memory of its own (one whose address is "
           "passed on, or whose index is known only at run time)";
  }
  if (op.code == Opcode::kGlobalSet) {
    return "it writes a global, and each instance has its own";
  }
  if (op.code == Opcode::kCallRef) {
    return "it calls through a table";
  }
  if (IsSync(op.code) && !is_entry) {
    return "a function that is not part of the kernel's body waits for other instances";
  }
  const ir::Family family = ir::Info(op.code).family;
  const bool writes = (family == ir::Family::kMemory || family == ir::Family::kAtomic) &&
                      (ir::Info(op.code).effects & ir::kWrites) != 0;
  if (family == ir::Family::kAtomic && op.space != Space::kParam && op.space != Space::kGroup) {
    return "an atomic operation's address is not known to lie in one buffer";
  }
  if (!writes) {
    // Lanes share one worker's bytes: after functions that ran lane by lane, only the last lane's values are there.
    return is_entry && op.space == Space::kScratch ? "it reads memory that belongs to one instance" : nullptr;
  }
  switch (op.space) {
    case Space::kStack:
      return nullptr;
    case Space::kParam:
    case Space::kGroup:
      return is_entry ? nullptr : "a function that is not part of the kernel's body writes a buffer";
    case Space::kScratch:
      return is_entry ? "it writes memory that belongs to one instance" : nullptr;
    case Space::kFlat:
      return "a store's address is not known to lie in one buffer, so it may be in memory that belongs to one instance";
    default:
      return "it writes memory that belongs to one instance";
  }
}

// Refuses the first store of the entry to an address for which ResolveProvenance guessed a buffer, but that may be in
// module memory.
std::optional<GangRefusal> RefuseOddStores(const ir::Module& module) {
  std::optional<GangRefusal> refusal;
  if (module.has_separate_buffers) {
    return refusal;
  }
  const std::vector<analysis::ValueRange> ranges = analysis::FindValueRanges(module, ~uint64_t{0});
  const ir::Function& f = module.function(module.entry);
  ir::ForEachOp(f, [&](OpId id) {
    const Op& op = f.op(id);
    const bool writes = (ir::Info(op.code).effects & ir::kWrites) != 0 && op.space == Space::kParam;
    const ir::Family family = ir::Info(op.code).family;
    if (writes && (family == ir::Family::kMemory || family == ir::Family::kAtomic) && !refusal.has_value() &&
        ranges[f.operands_of(op)[0].index].origin.how == analysis::PointerOrigin::How::kBits) {
      refusal = GangRefusal{op.source,
                            "Instances run one at a time: a store's address is computed from bits of a "
                            "buffer's address, so it may be in memory that belongs to one instance."};
    }
  });
  return refusal;
}

// --- Constructs.

class GangPlanner {
 public:
  GangPlanner(const ir::Module& module, const GangPlanOptions& options)
      : module_(module), options_(options), f_(module.function(module.entry)) {}
  std::optional<GangPlan> Run() {
    plan_.is_assumed.assign(f_.ops.size(), false);
    // Each assumed guard may let later operations be reached together.
    constexpr int kRoundsMax = 16;
    for (int round = 0; round < kRoundsMax; ++round) {
      if (!Analyse()) {
        return std::nullopt;
      }
      if (!options_.assumes_guards || round + 1 == kRoundsMax || !AssumeMore()) {
        break;
      }
    }
    FindMasked();
    plan_.layouts = Layouts();
    plan_.row_steps = RowSteps();
    return std::move(plan_);
  }

 private:
  bool Analyse() {
    along_x_ = analysis::AnalyseUniformity(module_, analysis::Lanes::kAlongX, &plan_.is_assumed);
    if (options_.has_rows) {
      along_y_ = analysis::AnalyseUniformity(module_, analysis::Lanes::kAlongY, &plan_.is_assumed);
    }
    return along_x_.has_value() && along_y_.has_value() == options_.has_rows;
  }
  // Returns true if the value may differ between lanes of a tile.
  bool Differs(ValueId id) const {
    const uint32_t entry = module_.entry.index;
    return !along_x_->functions[entry].shapes[id.index].is_uniform() ||
           (options_.has_rows && !along_y_->functions[entry].shapes[id.index].is_uniform());
  }
  bool IsFree(const analysis::Shape& shape) const { return shape.kind == analysis::Shape::Kind::kLinear; }
  bool IsReachedTogether(OpId id) const {
    const uint32_t entry = module_.entry.index;
    return !along_x_->functions[entry].decided_by[id.index].valid() &&
           !(options_.has_rows && along_y_->functions[entry].decided_by[id.index].valid());
  }
  // Marks guards that are reached before any effect. Returns true if any was found.
  bool AssumeMore() {
    bool found = false;
    ir::ForEachOp(f_, [&](OpId id) {
      const Op& op = f_.op(id);
      if (!before_effects_[id.index] || plan_.is_assumed[id.index] || !IsReachedTogether(id)) {
        return;
      }
      const bool is_edge = options_.assumes_edges && MeetsEdge(op);
      plan_.has_edges = plan_.has_edges || is_edge;
      if (is_edge || (!IsInLoop(id) && (op.code == Opcode::kIf ? IsGuardedIf(op) : ExtendsLinear(op)))) {
        plan_.is_assumed[id.index] = found = true;
      }
    });
    return found;
  }
  bool IsInLoop(OpId id) const {
    for (OpId owner = nesting_.OwnerOf(id); owner.valid(); owner = nesting_.OwnerOf(owner)) {
      if (f_.op(owner).code == Opcode::kLoop) {
        return true;
      }
    }
    return false;
  }
  bool IsGuardedIf(const Op& op) const {
    const ValueId condition = f_.operands_of(op)[0];
    return Differs(condition) && IsGuard(condition, 0);
  }
  const analysis::Shape& AlongX(const Op& op, uint32_t operand) const {
    return along_x_->functions[module_.entry.index].shapes[f_.operands_of(op)[operand].index];
  }
  // Returns the operand's step along x, or nothing if a tile could make the operand wrap around its type's range.
  std::optional<int64_t> StepOf(const Op& op, uint32_t operand) const {
    constexpr int64_t kStepMax = 1 << 20;
    const analysis::Shape& shape = AlongX(op, operand);
    const int64_t step = ir::SignedBits(f_.type_of(f_.operands_of(op)[operand]), shape.step[0]);
    const bool is_linear = shape.kind == analysis::Shape::Kind::kLinear && step <= kStepMax && step >= -kStepMax;
    return is_linear ? std::optional(step) : std::nullopt;
  }
  // Returns true if the result varies along x, but only as an edge form does.
  bool MeetsEdge(const Op& op) const {
    // With a smaller divisor nearly every tile would meet an edge.
    constexpr uint64_t kDivisorMin = 64;
    const analysis::EdgeForm form = analysis::FindEdgeForm(f_, definitions_, op);
    if (form.kind == analysis::EdgeForm::Kind::kNone ||
        along_x_->functions[module_.entry.index].shapes[op.first_result.index].kind !=
            analysis::Shape::Kind::kVarying) {
      return false;
    }
    if (form.kind == analysis::EdgeForm::Kind::kChoice) {
      const std::optional<int64_t> one = StepOf(op, 1), other = StepOf(op, 2);
      const ValueId condition = f_.operands_of(op)[0];
      return one.has_value() && other.has_value() && (*one != 0 || *other != 0) &&
             (AlongX(op, 0).kind == analysis::Shape::Kind::kLinear || IsGuard(condition, 0));
    }
    const std::optional<int64_t> step = StepOf(op, 0);
    return step.value_or(0) != 0 && AlongX(op, 1).is_uniform() && (form.divisor == 0 || form.divisor >= kDivisorMin);
  }
  // Returns true if the operation extends an i32 that grows along x by a step too small to leave the i32's range in a
  // tile.
  bool ExtendsLinear(const Op& op) const {
    return (op.code == Opcode::kExtendS || op.code == Opcode::kExtendU) && StepOf(op, 0).value_or(0) != 0;
  }
  // Returns true if the value is computed from comparisons of ids, as guards at the edges of an extent are.
  bool IsGuard(ValueId id, int depth) const {
    constexpr int kDepthMax = 16;
    if (!Differs(id)) {
      return true;
    }
    const Op* definition = definitions_.OpOf(id);
    if (definition == nullptr || depth == kDepthMax) {
      return false;
    }
    const Op& op = *definition;
    const std::span<const ValueId> operands = f_.operands_of(op);
    auto is_guard = [&](ValueId operand) { return IsGuard(operand, depth + 1); };
    switch (op.code) {
      case Opcode::kAnd:
      case Opcode::kOr:
      case Opcode::kXor:
      case Opcode::kSelect:
        return std::ranges::all_of(operands, is_guard);
      case Opcode::kEqz:
        if (is_guard(operands[0])) {
          return true;
        }
        break;
      default:
        break;
    }
    if (ir::Info(op.code).family != ir::Family::kIntCompare) {
      return false;
    }
    const uint32_t entry = module_.entry.index;
    return std::ranges::all_of(operands, [&](ValueId operand) {
      const Op* by = definitions_.OpOf(operand);
      if (by != nullptr && (by->code == Opcode::kExtendS || by->code == Opcode::kExtendU)) {
        operand = f_.operands_of(*by)[0];
      }
      return along_x_->functions[entry].shapes[operand.index].kind == analysis::Shape::Kind::kLinear &&
             (!options_.has_rows ||
              along_y_->functions[entry].shapes[operand.index].kind == analysis::Shape::Kind::kLinear);
    });
  }
  void FindMasked() {
    plan_.is_masked.assign(f_.ops.size(), false);
    ir::ForEachOp(f_, [&](OpId id) {
      const Op& op = f_.op(id);
      if (op.code == Opcode::kIf && !plan_.is_assumed[id.index] && Differs(f_.operands_of(op)[0])) {
        plan_.is_masked[id.index] = true;
      }
    });
    for (bool changed = true; changed;) {
      changed = false;
      ir::ForEachOp(f_, [&](OpId id) { changed |= MarkJump(id, f_.op(id)); });
    }
  }
  bool MarkJump(OpId id, const Op& op) {
    const OpId from = nesting_.OwnerOf(id);
    if (op.code == Opcode::kReturn) {
      return MarkWay(from, OpId(), false);
    }
    const bool parts = op.code == Opcode::kBrTable && Differs(f_.operands_of(op)[0]);
    bool changed = false;
    for (const ir::Target& target : f_.targets_of(op)) {
      changed |= MarkWay(from, target.op, parts);
    }
    return changed;
  }
  // Walks from a jump's region out to its target. Lanes that diverge stay apart until the end of the construct that
  // they leave. Returns true if any construct is newly masked.
  bool MarkWay(OpId from, OpId target, bool is_apart) {
    bool changed = false;
    auto mark = [&](std::vector<bool>::reference masked) {
      changed |= !masked;
      masked = true;
    };
    for (OpId id = from; id.valid(); id = nesting_.OwnerOf(id)) {
      if (is_apart) {
        mark(plan_.is_masked[id.index]);
      }
      if (id == target) {
        return changed;
      }
      is_apart = plan_.is_masked[id.index];
    }
    if (is_apart && !plan_.body_is_masked) {
      plan_.body_is_masked = changed = true;
    }
    return changed;
  }
  std::vector<Layout> Layouts() const {
    const uint32_t entry = module_.entry.index;
    std::vector<Layout> layouts(f_.values.size());
    for (size_t i = 0; i < layouts.size(); ++i) {
      const analysis::Shape& x = along_x_->functions[entry].shapes[i];
      Layout& layout = layouts[i];
      if (x.kind == analysis::Shape::Kind::kLinear) {
        layout.kind = x.is_uniform() ? Layout::Kind::kUniform : Layout::Kind::kLinear;
        layout.step = x.step[0];
      }
      // Unreachable values have no shape; they count as varying, so that their users need no check.
      layout.by_row = options_.has_rows && !along_y_->functions[entry].shapes[i].is_uniform();
    }
    return layouts;
  }
  std::vector<std::optional<uint64_t>> RowSteps() const {
    std::vector<std::optional<uint64_t>> steps(f_.values.size());
    for (size_t i = 0; i < steps.size() && options_.has_rows; ++i) {
      const analysis::Shape& y = along_y_->functions[module_.entry.index].shapes[i];
      if (y.kind == analysis::Shape::Kind::kLinear && !y.is_uniform()) {
        steps[i] = y.step[1];
      }
    }
    return steps;
  }

  const ir::Module& module_;
  const GangPlanOptions& options_;
  const ir::Function& f_;
  const std::vector<bool> before_effects_ = analysis::FindBeforeEffects(module_);
  const analysis::Definitions definitions_{f_};
  const analysis::Nesting nesting_{f_};
  std::optional<analysis::Uniformity> along_x_, along_y_;
  GangPlan plan_;
};

}  // namespace

std::optional<GangRefusal> RefuseGang(const ir::Module& module) {
  if (module.is_linked) {
    return GangRefusal{0, "The module is linked with others."};
  }
  size_t ops = 0;
  const ir::Function& entry = module.function(module.entry);
  ir::ForEachOp(entry, [&](OpId id) { ops += 1 + entry.op(id).target_count; });
  if (ops > kOpsMax) {
    return GangRefusal{0, "The kernel's size (" + std::to_string(ops) +
                              " operations and targets) is above the limit for instances in lockstep (" +
                              std::to_string(kOpsMax) + ")."};
  }
  std::vector<bool> reached(module.functions.size());
  std::vector<uint32_t> work = {module.entry.index};
  reached[module.entry.index] = true;
  std::optional<GangRefusal> refusal;
  while (!work.empty() && !refusal.has_value()) {
    const uint32_t index = work.back();
    work.pop_back();
    const ir::Function& function = module.functions[index];
    ir::ForEachOp(function, [&](OpId id) {
      const Op& op = function.op(id);
      if (const char* reason = ReasonOf(op, index == module.entry.index, module.stack_pointer);
          reason != nullptr && !refusal.has_value()) {
        refusal = GangRefusal{op.source, "Instances run one at a time: " + std::string(reason) + "."};
      }
      if (op.code == Opcode::kCall && !reached[op.imm]) {
        reached[op.imm] = true;
        work.push_back(static_cast<uint32_t>(op.imm));
      }
    });
  }
  return refusal.has_value() ? refusal : RefuseOddStores(module);
}

std::optional<GangPlan> PlanGang(const ir::Module& module, const GangPlanOptions& options) {
  return GangPlanner(module, options).Run();
}

}  // namespace hpvm::pass
