// SPDX-License-Identifier: Apache-2.0
// Method: sweeps over the structured code of all functions raise shapes along unset < linear < unknown < varying
// until nothing changes; calls pass shapes through one summary per function. A stack of the open regions holds, for
// each, the branch after which control varies in it.
// Invariants: shapes, summaries and varying_loop_ only rise, so every change is final. `since` of a region is set
// while some instances may have left it; a varying jump sets it in every region up to its target. A loop whose exit
// varies varies from its beginning, which the next sweep visits again.
// A value rises at most three times; after 64 sweeps without a fixed point there is no result. A sweep is linear in
// operations and jump targets, times the depth of nesting.
// Source: Karrenberg and Hack, CC 2012, for loops (see uniformity.h).
#include "compiler/analysis/uniformity.h"

#include <algorithm>
#include <unordered_map>

#include "compiler/analysis/definitions.h"
#include "compiler/analysis/edge_forms.h"
#include "compiler/ir/walk.h"

namespace hpvm::analysis {
namespace {

// Shapes rise three steps at most, but a change may need one sweep for every loop that it leaves.
constexpr int kSweepsMax = 64;

// Returns true if any operation stores to `state` memory.
bool StoresState(const ir::Module& module) {
  bool stores = false;
  for (const ir::Function& function : module.functions) {
    ir::ForEachOp(function, [&](OpId id) {
      const Op& op = function.op(id);
      stores |= ir::IsState(op.space) && (ir::Info(op.code).effects & ir::kWrites) != 0;
    });
  }
  return stores;
}

// The shapes that flow between the module's functions.
struct Summary {
  std::vector<Shape> params, results;
};

class FunctionSweep {
 public:
  FunctionSweep(const ir::Module& module, Lanes lanes, bool stores_state, ir::FunctionId id,
                std::vector<Summary>& summaries, FunctionUniformity& out, const std::vector<bool>* assumed)
      : module_(module),
        lanes_(lanes),
        stores_state_(stores_state),
        f_(module.function(id)),
        summary_(summaries[id.index]),
        summaries_(summaries),
        out_(out),
        assumed_(assumed),
        definitions_(f_),
        depth_(f_.values.size(), 1),
        level_of_(f_.ops.size()),
        edges_(f_.ops.size()),
        varying_loop_(f_.ops.size()) {
    out_.shapes.resize(f_.values.size());
    out_.decided_by.resize(f_.ops.size());
    ir::ForEachOp(f_, [&](OpId op) {
      for (const ir::Target& target : f_.targets_of(f_.op(op))) {
        ++(target.is_continue ? edges_[target.op.index].continues : edges_[target.op.index].leaves);
      }
    });
  }
  // Returns true if any shape or decision changed.
  bool Run() {
    changed_ = false;
    const ir::Region& body = f_.region(f_.body);
    for (uint32_t i = 0; i < body.param_count; ++i) {
      Raise(ValueId(body.first_param.index + i), summary_.params[i]);
    }
    levels_.assign(1, Level{});
    Walk(f_.body);
    return changed_;
  }

 private:
  // An open region: the function's body, or a region of an open block, loop or if.
  struct Level {
    OpId owner;
    OpId since;  // The branch after which control within this region varies; invalid while control is uniform.
  };
  // The numbers of edges that lead to the results of an operation or to the parameters of a loop.
  struct Edges {
    uint32_t leaves = 0, continues = 0;
  };

  bool IsAssumed(OpId branch) const { return assumed_ != nullptr && (*assumed_)[branch.index]; }
  Shape At(const Op& op, uint32_t operand) const { return out_.shapes[f_.operands_of(op)[operand].index]; }
  void Raise(ValueId value, const Shape& shape) { RaiseSummary(out_.shapes[value.index], shape); }
  void RaiseSummary(Shape& known, const Shape& shape) {
    const Shape joined = Join(known, shape);
    changed_ |= joined != known;
    known = joined;
  }
  void Walk(ir::RegionId region) {
    for (OpId id : f_.region(region).ops) {
      out_.decided_by[id.index] = Decider(0);
      Visit(id);
    }
  }
  void Visit(OpId id) {
    const Op& op = f_.op(id);
    for (uint32_t i = 0; i < op.result_count; ++i) {
      depth_[op.first_result.index + i] = levels_.size();
    }
    switch (op.code) {
      case Opcode::kBlock:
      case Opcode::kLoop: {
        const ir::Region& body = f_.region(op.body);
        for (uint32_t i = 0; i < body.param_count; ++i) {
          depth_[body.first_param.index + i] = levels_.size() + 1;
          Raise(ValueId(body.first_param.index + i), At(op, i));
        }
        return Open(id, op.body, varying_loop_[id.index]);
      }
      case Opcode::kIf:
        return If(id, op);
      case Opcode::kBr:
      case Opcode::kContinue:
      case Opcode::kBrTable:
        return Jumps(id, op);
      case Opcode::kReturn:
        return Return(op);
      case Opcode::kTrap:
        return;
      case Opcode::kCall:
        return Call(op);
      default:
        for (uint32_t i = 0; i < op.result_count; ++i) {
          Raise(ValueId(op.first_result.index + i), IsAssumed(id) ? AssumedOf(op) : Of(op));
        }
    }
  }
  void Open(OpId id, ir::RegionId region, OpId since) {
    levels_.push_back({id, since});
    level_of_[id.index] = levels_.size() - 1;
    Walk(region);
    levels_.pop_back();
  }
  void If(OpId id, const Op& op) {
    const OpId since = At(op, 0).varies() && !IsAssumed(id) ? id : OpId();
    const std::vector<Level> before = levels_;
    Open(id, op.body, since);
    std::vector<Level> after = levels_;
    levels_ = before;  // The other region does not see divergence caused by the first region's branches.
    Open(id, op.otherwise, since);
    for (size_t i = 0; i < levels_.size(); ++i) {
      if (!levels_[i].since.valid()) {
        levels_[i].since = after[i].since;
      }
    }
  }
  void Jumps(OpId id, const Op& op) {
    const OpId decider = op.code == Opcode::kBrTable && At(op, 0).varies() && !IsAssumed(id) ? id : OpId();
    for (const ir::Target& target : f_.targets_of(op)) {
      Jump(op, target, decider);
    }
  }
  void Jump(const Op& op, const ir::Target& target, OpId decider) {
    const size_t level = level_of_[target.op.index];
    if (!decider.valid()) {
      decider = Decider(level);
    }
    const ir::Slots slots = ir::SlotsOf(f_, target);
    const Edges& edges = edges_[target.op.index];
    const bool merges = (target.is_continue ? edges.continues : edges.leaves) > 1;
    for (uint32_t i = 0; i < slots.count; ++i) {
      const ValueId slot = slots[i];
      const ValueId value = f_.operands_of(op)[ir::FirstBrought(op.code) + i];
      const Shape& shape = out_.shapes[value.index];
      // An instance's value depends on the path it took, or on the iteration in which it left.
      const bool differs =
          (merges && !IsSame(slot, value)) || IsOfInnerLoop(value, target.is_continue ? level + 1 : level);
      Raise(slot, decider.valid() && differs && shape.kind != Shape::Kind::kUnset ? Shape::Varying() : shape);
    }
    Diverge(level, target.is_continue, decider);
  }
  void Return(const Op& op) {
    const OpId decider = Decider(0);
    for (uint32_t i = 0; i < op.operand_count; ++i) {
      RaiseSummary(summary_.results[i], decider.valid() ? Shape::Varying() : At(op, i));
    }
    Diverge(0, false, decider);
  }
  void Call(const Op& op) {
    Summary& callee = summaries_[op.imm];
    for (uint32_t i = 0; i < op.operand_count; ++i) {
      RaiseSummary(callee.params[i], At(op, i));
    }
    for (uint32_t i = 0; i < op.result_count; ++i) {
      Raise(ValueId(op.first_result.index + i), callee.results[i]);
    }
  }
  // Returns the branch that makes control vary here, as seen from the region of level `from`; invalid if control is
  // uniform.
  OpId Decider(size_t from) const {
    for (size_t level = levels_.size(); level-- > from;) {
      if (levels_[level].since.valid()) {
        return levels_[level].since;
      }
    }
    return {};
  }
  // Marks control as varying in every region up to the target's, because some instances have left.
  void Diverge(size_t target_level, bool is_continue, OpId decider) {
    if (!decider.valid()) {
      return;
    }
    for (size_t level = target_level; level < levels_.size(); ++level) {
      levels_[level].since = decider;
      const OpId owner = levels_[level].owner;
      const bool leaves_it = level > target_level || !is_continue;
      if (leaves_it && owner.valid() && f_.op(owner).code == Opcode::kLoop && !varying_loop_[owner.index].valid()) {
        varying_loop_[owner.index] = decider;
        changed_ = true;  // The loop's beginning must be visited again.
      }
    }
  }
  // Returns true if the value is defined anew in each iteration of the outermost loop that is open at `level` or
  // inside it.
  bool IsOfInnerLoop(ValueId value, size_t level) const {
    for (size_t l = level; l < levels_.size(); ++l) {
      const OpId owner = levels_[l].owner;
      if (owner.valid() && f_.op(owner).code == Opcode::kLoop) {
        return depth_[value.index] > l;
      }
    }
    return false;
  }
  // Returns true if every edge so far brought the same value to the slot, so an instance's path does not matter.
  bool IsSame(ValueId slot, ValueId value) { return incoming_.emplace(slot.index, value).first->second == value; }

  Shape Of(const Op& op) const {
    switch (op.code) {
      case Opcode::kConst:
      case Opcode::kLocalAlloc:
        return Shape::Uniform();
      case Opcode::kInstanceId:
      case Opcode::kGroupId:
      case Opcode::kLocalId:
        return IdOf(op);
      case Opcode::kGlobalGet:
        return module_.globals[op.imm].is_mutable ? Unknown() : Shape::Uniform();
      case Opcode::kLoad:
      case Opcode::kLoad128:
        // In lockstep one load of a uniform address serves all instances, unless each has its own bytes there.
        if (lanes_ == Lanes::kGroup || At(op, 0).kind == Shape::Kind::kUnset) {
          return lanes_ == Lanes::kGroup ? Shape::Unknown() : Shape{};
        }
        return At(op, 0).is_uniform() && lanes_ != Lanes::kSurelyGroup && !IsOwn(op.space) ? Shape::Uniform()
                                                                                           : Shape::Varying();
      default:
        break;
    }
    const uint8_t effects = ir::Info(op.code).effects;
    if ((effects & (ir::kReads | ir::kWrites | ir::kSyncs)) != 0) {
      return Unknown();
    }
    bool varies = false, is_unknown = false;
    for (uint32_t i = 0; i < op.operand_count; ++i) {
      const Shape shape = At(op, i);
      if (shape.kind == Shape::Kind::kUnset) {
        return {};
      }
      varies |= shape.varies();
      is_unknown |= shape.kind == Shape::Kind::kUnknown;
    }
    if (!varies) {
      return is_unknown ? Unknown() : Shape::Uniform();
    }
    if (const Shape linear = LinearOf(op); linear.kind != Shape::Kind::kUnset) {
      return linear;
    }
    if (op.code == Opcode::kSelect && At(op, 0).is_uniform() && At(op, 1) == At(op, 2)) {
      return At(op, 1);
    }
    uint64_t mask = 0;
    switch (op.code) {
      // These may round an id down to a value that all instances of a group share.
      case Opcode::kDivS:
      case Opcode::kDivU:
      case Opcode::kShrS:
      case Opcode::kShrU:
        return Unknown();
      case Opcode::kAnd:
        return (ConstantAt(op, 0, &mask) || ConstantAt(op, 1, &mask)) && (mask & 1) == 0 ? Unknown() : Shape::Varying();
      default:
        return Shape::Varying();
    }
  }
  // Returns the shape of sums, differences and products with constants of linear values; unset for other operations.
  Shape LinearOf(const Op& op) const {
    const Shape a = At(op, 0);
    const Shape b = op.operand_count > 1 ? At(op, 1) : Shape::Uniform();
    if (a.kind != Shape::Kind::kLinear || b.kind != Shape::Kind::kLinear) {
      return {};
    }
    Shape shape = Shape::Uniform();
    uint64_t factor = 0;
    for (size_t d = 0; d < 3; ++d) {
      if (op.code == Opcode::kAdd) {
        shape.step[d] = a.step[d] + b.step[d];
      } else if (op.code == Opcode::kSub) {
        shape.step[d] = a.step[d] - b.step[d];
      } else if (op.code == Opcode::kMul && ConstantAt(op, 1, &factor)) {
        shape.step[d] = a.step[d] * factor;
      } else if (op.code == Opcode::kMul && ConstantAt(op, 0, &factor)) {
        shape.step[d] = b.step[d] * factor;
      } else if (op.code == Opcode::kShl && ConstantAt(op, 1, &factor)) {
        shape.step[d] = a.step[d] << (factor % (8 * ir::Bytes(op.type)));
      } else if (op.code == Opcode::kWrap) {
        shape.step[d] = a.step[d];
      } else {
        return {};
      }
      if (op.type == ir::Type::kI32 || op.code == Opcode::kWrap) {
        shape.step[d] &= 0xffffffffu;
      }
    }
    return shape;
  }
  // Returns the shape of a result that is assumed to meet no edge in any lane. Only lanes along x use the assumption.
  Shape AssumedOf(const Op& op) const {
    const Shape first = At(op, 0);
    if (lanes_ != Lanes::kAlongX) {
      return Of(op);
    }
    const EdgeForm form = FindEdgeForm(f_, definitions_, op);
    if (form.kind == EdgeForm::Kind::kChoice) {
      const Shape one = At(op, 1), other = At(op, 2);
      const bool is_linear = one.kind == Shape::Kind::kLinear && other.kind == Shape::Kind::kLinear;
      const bool is_unset = one.kind == Shape::Kind::kUnset || other.kind == Shape::Kind::kUnset;
      return is_unset    ? Shape()
             : is_linear ? At(op, UsualOperand(f_, definitions_, op, one.step[0], other.step[0]))
                         : Of(op);
    }
    if (first.kind != Shape::Kind::kLinear || (form.kind != EdgeForm::Kind::kNone && !At(op, 1).is_uniform())) {
      return Of(op);
    }
    if (form.kind == EdgeForm::Kind::kQuotient) {
      return Shape::Uniform();
    }
    return form.kind == EdgeForm::Kind::kRemainder ? first : ExtendedOf(first);
  }
  // Sign-extends the steps of an i32.
  static Shape ExtendedOf(Shape shape) {
    for (uint64_t& step : shape.step) {
      step = static_cast<uint64_t>(static_cast<int64_t>(static_cast<int32_t>(static_cast<uint32_t>(step))));
    }
    return shape;
  }
  // Returns the shape of an id query. In lockstep along one dimension the other coordinates, and the values derived
  // from them, are uniform.
  Shape IdOf(const Op& op) const {
    uint64_t dimension = 0;
    const bool is_known = ConstantAt(op, 0, &dimension);
    if (lanes_ == Lanes::kGroup || lanes_ == Lanes::kSurelyGroup) {
      if (op.code == Opcode::kGroupId) {
        return At(op, 0).is_uniform() ? Shape::Uniform() : Shape::Varying();
      }
      Shape shape = is_known ? Shape::Uniform() : Shape::Varying();
      if (is_known && dimension < 3) {
        shape.step[dimension] = 1;
      }
      return shape;
    }
    const auto own = static_cast<uint64_t>(lanes_) - static_cast<uint64_t>(Lanes::kAlongX);
    if (!is_known || dimension == own) {
      Shape shape = Shape::Uniform();
      shape.step[own] = 1;
      return is_known && op.code == Opcode::kInstanceId ? shape : Shape::Varying();
    }
    return Shape::Uniform();
  }
  bool ConstantAt(const Op& op, uint32_t operand, uint64_t* bits) const {
    const std::optional<uint64_t> constant = definitions_.ConstantOf(f_.operands_of(op)[operand]);
    *bits = constant.value_or(*bits);
    return constant.has_value();
  }

  // Returns true if the bytes at one address may differ between instances. Module memory may differ too, but is
  // uniform as long as no operation writes it, which callers that ask for lockstep ensure
  // (compiler/pass/gang/gang_plan.h).
  bool IsOwn(ir::Space space) const {
    return space == ir::Space::kPrivate || space == ir::Space::kStack || (ir::IsState(space) && stores_state_);
  }
  // Returns the shape of values from a source whose contents cannot be compared between instances.
  Shape Unknown() const { return lanes_ == Lanes::kGroup ? Shape::Unknown() : Shape::Varying(); }

  const ir::Module& module_;
  const Lanes lanes_;
  const bool stores_state_;
  const ir::Function& f_;
  Summary& summary_;
  std::vector<Summary>& summaries_;
  FunctionUniformity& out_;
  const std::vector<bool>* assumed_;  // May be null.
  const Definitions definitions_;
  std::vector<size_t> depth_;       // Indexed by ValueId: the number of regions that are open where it is defined.
  std::vector<size_t> level_of_;    // Indexed by OpId of an open operation: the index of its region in levels_.
  std::vector<Edges> edges_;        // Indexed by OpId.
  std::vector<OpId> varying_loop_;  // Indexed by OpId of a loop: the branch that makes its exit vary.
  std::unordered_map<uint32_t, ValueId> incoming_;  // Keyed by slot: the first value that an edge brings.
  std::vector<Level> levels_;
  bool changed_ = false;
};

// Raises the parameters of functions that a reference names, because they can have any value.
void RaiseReferenced(const ir::Module& module, const Shape& anything, std::vector<Summary>& summaries) {
  auto raise = [&](ir::FunctionId id) {
    if (id.valid()) {
      summaries[id.index].params.assign(summaries[id.index].params.size(), anything);
    }
  };
  for (const ir::Reference& reference : module.references) {
    raise(reference.function);
  }
}

}  // namespace

Shape Join(const Shape& a, const Shape& b) {
  if (a.kind == Shape::Kind::kUnset || a == b) {
    return b;
  }
  if (b.kind == Shape::Kind::kUnset) {
    return a;
  }
  return a.varies() || b.varies() ? Shape::Varying() : Shape::Unknown();
}

std::optional<Uniformity> AnalyseUniformity(const ir::Module& module, Lanes lanes, const std::vector<bool>* assumed) {
  Uniformity result;
  result.functions.resize(module.functions.size());
  std::vector<Summary> summaries(module.functions.size());
  std::vector<FunctionSweep> sweeps;
  const bool stores_state = StoresState(module);
  sweeps.reserve(module.functions.size());
  for (uint32_t i = 0; i < module.functions.size(); ++i) {
    summaries[i].params.resize(module.functions[i].type.params.size());
    summaries[i].results.resize(module.functions[i].type.results.size());
    sweeps.emplace_back(module, lanes, stores_state, ir::FunctionId(i), summaries, result.functions[i],
                        i == module.entry.index ? assumed : nullptr);
  }
  for (Shape& param : summaries[module.entry.index].params) {
    param = Shape::Uniform();
  }
  RaiseReferenced(module, lanes == Lanes::kGroup ? Shape::Unknown() : Shape::Varying(), summaries);
  for (int sweep = 0; sweep < kSweepsMax; ++sweep) {
    bool changed = false;
    for (FunctionSweep& function : sweeps) {
      changed |= function.Run();
    }
    if (!changed) {
      return result;
    }
  }
  return std::nullopt;
}

std::vector<bool> FindFixed(const ir::Function& function, bool of_group) {
  std::vector<bool> is_fixed(function.values.size());
  const ir::Slots params = ir::ParamsOf(function.region(function.body));
  for (uint32_t i = 0; i < params.count; ++i) {
    is_fixed[params[i].index] = true;
  }
  // Pure operations follow the operations that define their operands.
  ir::ForEachOp(function, [&](OpId id) {
    const Op& op = function.op(id);
    const bool is_id = op.code == Opcode::kInstanceId || op.code == Opcode::kLocalId;
    const bool computes =
        (ir::Info(op.code).effects & ~ir::kTraps) == 0 && !is_id && (of_group || op.code != Opcode::kGroupId);
    const bool are_operands =
        std::ranges::all_of(function.operands_of(op), [&](ValueId v) { return is_fixed[v.index]; });
    for (uint32_t i = 0; i < op.result_count; ++i) {
      is_fixed[op.first_result.index + i] = (computes && are_operands) || (of_group && op.code == Opcode::kLocalAlloc);
    }
  });
  return is_fixed;
}

}  // namespace hpvm::analysis
