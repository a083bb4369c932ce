// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/tile/coarsener.h"

#include <algorithm>
#include <bit>

#include "compiler/ir/op_syntax.h"
#include "compiler/ir/walk.h"

namespace hpvm::pass {

namespace {

// Smaller steps sum to less than 64 KiB in a tile. No buffer extends so far that an offset inside it could wrap around
// when that much is added.
constexpr uint64_t kStepMax = 2048;

}  // namespace

// --- Values.

ValueId Coarsener::At(ValueId id, Lane lane) {
  const TileLayout& layout = LayoutOf(id);
  const uint32_t x = layout.varies[0] ? lane.x : 0, y = layout.varies[1] ? lane.y : 0;
  const ValueId base = copies_[id.index][y * Count(0, layout.varies[0]) + x];
  const uint64_t delta =
      (layout.varies[0] ? 0 : lane.x * layout.step[0]) + (layout.varies[1] ? 0 : lane.y * layout.step[1]);
  return Plus(base, delta);
}

// Keeps the copy of a lane; drops a copy that can be derived from another lane's.
void Coarsener::Keep(ValueId id, Lane lane, ValueId copy) {
  const TileLayout& layout = LayoutOf(id);
  if ((lane.x != 0 && !layout.varies[0]) || (lane.y != 0 && !layout.varies[1])) {
    return;
  }
  const uint32_t row = Count(0, layout.varies[0]);
  copies_[id.index].resize(row * Count(1, layout.varies[1]));
  copies_[id.index][lane.y * row + lane.x] = copy;
}

std::vector<Type> Coarsener::TypesOf(ValueId first, uint32_t count, bool is_flat) const {
  std::vector<Type> types;
  for (uint32_t i = 0; i < count; ++i) {
    const ValueId id(first.index + i);
    const TileLayout& layout = LayoutOf(id);
    const uint32_t copies = is_flat ? Count(0, layout.varies[0]) * Count(1, layout.varies[1]) : 1;
    types.insert(types.end(), copies, f_.type_of(id));
  }
  return types;
}

// Returns copies of values in the form of slots, for a construct's arguments and results, in the order of KeepAll.
std::vector<ValueId> Coarsener::Flatten(std::span<const ValueId> values, ValueId first_slot) {
  std::vector<ValueId> flat;
  for (uint32_t i = 0; i < values.size(); ++i) {
    const TileLayout& layout = LayoutOf(ValueId(first_slot.index + i));
    for (uint32_t y = 0; y < Count(1, layout.varies[1]); ++y) {
      for (uint32_t x = 0; x < Count(0, layout.varies[0]); ++x) {
        flat.push_back(At(values[i], {x, y}));
      }
    }
  }
  return flat;
}

void Coarsener::KeepAll(ValueId first, uint32_t count, std::span<const ValueId> copies) {
  for (uint32_t i = 0; i < count; ++i) {
    const ValueId id(first.index + i);
    const size_t own = size_t{Count(0, LayoutOf(id).varies[0])} * Count(1, LayoutOf(id).varies[1]);
    copies_[id.index].assign(copies.begin(), copies.begin() + static_cast<ptrdiff_t>(own));
    copies = copies.subspan(own);
  }
}

// --- Operations that the tile's instances run together.

void Coarsener::NoteDimensions(const Op& op, std::array<bool, 2>* dimensions) const {
  const ir::Family family = ir::Info(op.code).family;
  for (size_t d = 0; d < 2; ++d) {
    bool differs = family == ir::Family::kAtomic;  // Each instance performs its own.
    for (ValueId operand : f_.operands_of(op)) {
      differs |= LayoutOf(operand).Differs(d);
    }
    for (uint32_t i = 0; i < op.result_count; ++i) {
      differs |= LayoutOf(ValueId(op.first_result.index + i)).varies[d];
    }
    (*dimensions)[d] = (*dimensions)[d] || (differs && plan_.tile[d] > 1);
  }
}

void Coarsener::EmitPlain(OpId id) {
  const Op& op = f_.op(id);
  std::array<bool, 2> dimensions{};
  if ((ir::Info(op.code).effects & (ir::kReads | ir::kWrites | ir::kTraps)) != 0) {
    NoteDimensions(op, &dimensions);
  } else {
    for (uint32_t i = 0; i < op.result_count; ++i) {
      const TileLayout& layout = LayoutOf(ValueId(op.first_result.index + i));
      dimensions = {dimensions[0] || layout.varies[0], dimensions[1] || layout.varies[1]};
    }
  }
  const std::vector<Type> types = TypesOf(op.first_result, op.result_count, false);
  const bool is_access = op.code == Opcode::kLoad || op.code == Opcode::kStore;
  for (uint32_t y = 0; y < Count(1, dimensions[1]); ++y) {
    for (uint32_t x = 0; x < Count(0, dimensions[0]); ++x) {
      BeginLane(Lane{x, y});
      Op copy = op;
      std::vector<ValueId> operands;
      for (ValueId operand : f_.operands_of(op)) {
        operands.push_back(At(operand, {x, y}));
      }
      if (is_access) {
        // The distance from the first lane's address goes into the immediate, which does not wrap around: neither
        // does the sum, unless the first instance's own access is out of bounds.
        const TileLayout& layout = LayoutOf(f_.operands_of(op)[0]);
        const Lane held = {layout.varies[0] ? x : 0, layout.varies[1] ? y : 0};
        const uint64_t delta = (x - held.x) * layout.step[0] + (y - held.y) * layout.step[1];
        if (layout.step[0] < kStepMax && layout.step[1] < kStepMax) {
          operands[0] = At(f_.operands_of(op)[0], held);
          copy.imm += delta;
        }
      }
      Charge(op);
      const OpId made = AppendAccess(id, copy, operands, types);
      for (uint32_t i = 0; i < op.result_count; ++i) {
        Keep(ValueId(op.first_result.index + i), {x, y}, ValueId(out_.op(made).first_result.index + i));
      }
    }
  }
  BeginLane(Lane());
}

void Coarsener::EmitOp(OpId id) {
  const Op& op = f_.op(id);
  if (ir::OwnsRegions(op.code)) {
    return plan_.gang.is_masked[id.index] ? Replicate(id) : EmitConstruct(id);
  }
  if (ir::IsTerminator(op.code)) {
    return EmitTerminator(id);
  }
  if (plan_.is_vector[id.index]) {
    return op.code == Opcode::kLoad ? EmitVectorLoad(id) : EmitVectorStore(id);
  }
  if (op.code == Opcode::kInstanceId) {
    return Keep(op.first_result, {}, FirstId(id, At(f_.operands_of(op)[0], {})));
  }
  if (plan_.gang.is_assumed[id.index]) {
    return EmitExtension(id);
  }
  EmitPlain(id);
}

// Emits the id of the tile's first instance. A mask that changes nothing states that it is a multiple of the tile.
ValueId Coarsener::FirstId(OpId id, ValueId dimension) {
  const Op& op = f_.op(id);
  const ValueId first = builder_.Append1(op, std::array{dimension}, f_.type_of(op.first_result));
  const uint64_t d = definitions_.ConstantOf(f_.operands_of(op)[0]).value_or(3);
  if (d > 1 || plan_.tile[d] == 1 || !std::has_single_bit(plan_.tile[d])) {
    return first;
  }
  return Add(Opcode::kAnd, op.type, std::array{first, Number(op.type, ~uint64_t{plan_.tile[d] - 1})});
}

void Coarsener::EmitRegion(RegionId region) {
  OpenScope();
  for (OpId id : f_.region(region).ops) {
    EmitOp(id);
  }
  CloseScope();
}

void Coarsener::EmitConstruct(OpId id) {
  const Op& op = f_.op(id);
  const std::vector<Type> results = TypesOf(op.first_result, op.result_count, true);
  if (op.code == Opcode::kIf) {
    if (plan_.gang.is_assumed[id.index]) {
      EmitGuard(id);
    }
    new_ops_[id.index] = builder_.BeginIf(At(f_.operands_of(op)[0], {}), results, op.source);
    EmitRegion(op.body);
    builder_.Else();
    EmitRegion(op.otherwise);
  } else {
    const ValueId first = f_.region(op.body).first_param;
    const bool is_staged = plan_.stage && plan_.stage->loop == id;
    const std::vector<ValueId> arguments = is_staged ? EmitStage(op) : Flatten(f_.operands_of(op), first);
    const double cost = cost_;
    const OpId made = builder_.BeginBlock(op.code, arguments, results, op.source);
    new_ops_[id.index] = made;
    KeepAll(first, f_.region(op.body).param_count, builder_.Params(made));
    const double outside = weight_;
    weight_ *= op.code == Opcode::kLoop ? 16 : 1;
    EmitRegion(op.body);
    weight_ = outside;
    cost_ = is_staged ? cost : cost_;  // Few iterations are left.
  }
  builder_.End();
  out_.op(new_ops_[id.index]).origin = op.origin;
  KeepAll(op.first_result, op.result_count, builder_.Results(new_ops_[id.index]));
}

std::vector<ir::Target> Coarsener::NewTargets(const Op& op) const {
  std::vector<ir::Target> made;
  for (const ir::Target& target : f_.targets_of(op)) {
    made.push_back({new_ops_[target.op.index], target.is_continue});
  }
  return made;
}

void Coarsener::EmitTerminator(OpId id) {
  const Op& op = f_.op(id);
  const std::vector<ir::Target> targets = NewTargets(op);
  std::vector<ValueId> operands;
  if (op.code == Opcode::kBrTable) {
    operands.push_back(At(f_.operands_of(op)[0], {}));
  }
  if (!targets.empty()) {
    const std::vector<ValueId> brought =
        Flatten(f_.operands_of(op).subspan(ir::FirstBrought(op.code)), ir::SlotsOf(f_, f_.targets_of(op)[0]).first);
    operands.insert(operands.end(), brought.begin(), brought.end());
  }
  builder_.Terminate(op, operands, targets);
}

// --- Guards.

void Coarsener::LeaveIf(ValueId mixed) {
  const OpId check = builder_.BeginIf(mixed, {});
  builder_.Leave(fast_, {});
  builder_.Else();
  builder_.Leave(check, {});
  builder_.End();
}

// Takes the slow path when instances differ in the condition.
void Coarsener::EmitGuard(OpId id) {
  const ValueId condition = f_.operands_of(f_.op(id))[0];
  const TileLayout& layout = LayoutOf(condition);
  const Type type = Type::kI32;
  std::optional<ValueId> first, mixed;
  for (uint32_t y = 0; y < Count(1, layout.Differs(1)); ++y) {
    for (uint32_t x = 0; x < Count(0, layout.Differs(0)); ++x) {
      const ValueId here = Add(Opcode::kEqz, type, std::array{At(condition, {x, y})});
      if (!first) {
        first = here;
        continue;
      }
      const ValueId differs = Add(Opcode::kXor, type, std::array{*first, here});
      mixed = mixed ? Add(Opcode::kOr, type, std::array{*mixed, differs}) : differs;
    }
  }
  if (mixed) {
    LeaveIf(*mixed);
  }
}

// Assumes that the extension of an i32 that grows along x grows, too, and compares the last instance's value with the
// assumption.
void Coarsener::EmitExtension(OpId id) {
  const Op& op = f_.op(id);
  EmitPlain(id);
  const ValueId operand = f_.operands_of(op)[0];
  std::optional<ValueId> mixed;
  const TileLayout& layout = LayoutOf(op.first_result);
  for (uint32_t y = 0; y < Count(1, layout.Differs(1)) && layout.step[0] != 0; ++y) {
    const Lane last{plan_.tile[0] - 1, y};
    const ValueId found = builder_.Append1(op, std::array{At(operand, last)}, Type::kI64);
    const ValueId differs = Add(Opcode::kNe, Type::kI64, std::array{At(op.first_result, last), found});
    mixed = mixed ? Add(Opcode::kOr, Type::kI32, std::array{*mixed, differs}) : differs;
  }
  if (mixed) {
    LeaveIf(*mixed);
  }
}

// --- 16-byte accesses.

void Coarsener::EmitVectorLoad(OpId id) {
  const Op& op = f_.op(id);
  const ValueId address = f_.operands_of(op)[0];
  const uint32_t per_access = 16 / op.width, words = op.width / 4;
  constexpr std::array kWords = {Type::kI32, Type::kI32, Type::kI32, Type::kI32};
  for (uint32_t y = 0; y < Count(1, LayoutOf(address).Differs(1) || LayoutOf(op.first_result).varies[1]); ++y) {
    for (uint32_t x = 0; x < plan_.tile[0]; x += per_access) {
      Op access = op;
      access.code = Opcode::kLoad128;
      access.type = Type::kI32;
      access.width = 16;
      access.imm += x * op.width;
      Charge(access, plan_.tile[0] > per_access);
      const OpId made = AppendAccess(id, access, std::array{At(address, {0, y})}, kWords);
      const std::vector<ValueId> found = builder_.Results(made);
      for (uint32_t i = 0; i < per_access; ++i) {
        Keep(op.first_result, {x + i, y}, FromWords(op.type, std::span(found).subspan(i * words, words)));
      }
    }
  }
}

void Coarsener::EmitVectorStore(OpId id) {
  const Op& op = f_.op(id);
  const ValueId address = f_.operands_of(op)[0], value = f_.operands_of(op)[1];
  const uint32_t per_access = 16 / op.width;
  for (uint32_t y = 0; y < Count(1, LayoutOf(address).Differs(1) || LayoutOf(value).Differs(1)); ++y) {
    for (uint32_t x = 0; x < plan_.tile[0]; x += per_access) {
      Op access = op;
      access.code = Opcode::kStore128;
      access.type = Type::kI32;
      access.width = 16;
      access.imm += x * op.width;
      std::vector<ValueId> operands = {At(address, {0, y})};
      for (uint32_t i = 0; i < per_access; ++i) {
        ToWords(At(value, {x + i, y}), &operands);
      }
      Charge(access, plan_.tile[0] > per_access);
      AppendAccess(id, access, operands, {});
    }
  }
}

// --- The whole kernel.

void Coarsener::EmitParams() {
  const std::span<const ValueId> params = builder_.BeginBody();
  OpenScope();
  for (uint32_t i = 0; i < params.size(); ++i) {
    ValueId param = params[i];
    for (const GpuFactor& factor : plan_.factors) {
      if (factor.param == i) {
        const Type type = out_.type_of(param);
        param = Add(Opcode::kAnd, type, std::array{param, Number(type, ~((uint64_t{1} << factor.log2) - 1))});
      }
    }
    copies_[f_.region(f_.body).first_param.index + i] = {param};
  }
}

CoarseModule Coarsener::Run() {
  out_.name = f_.name;
  out_.type = f_.type;
  out_.fast_math = f_.fast_math;
  copies_.resize(f_.values.size());
  new_ops_.resize(f_.ops.size());
  const bool may_mix = std::ranges::find(plan_.gang.is_assumed, true) != plan_.gang.is_assumed.end();
  EmitParams();
  if (may_mix) {
    fast_ = builder_.BeginBlock(Opcode::kBlock, {}, {});
  }
  EmitRegion(f_.body);
  if (may_mix) {
    builder_.End();
    const double cost = cost_;
    EmitSlowWay();
    cost_ = cost;  // Rarely taken.
  }
  OrderByUse(out_);
  CoarseModule coarse;
  coarse.module = module_;
  if (plan_.stage) {
    coarse.group = {plan_.stage->group[0], plan_.stage->group[1], 1};
    coarse.module.uses_barrier = coarse.module.uses_group_memory = true;
  }
  coarse.factors = plan_.factors;
  coarse.needs_alignment = std::ranges::find(plan_.is_vector, true) != plan_.is_vector.end();
  original_.resize(out_.ops.size());
  coarse.original = std::move(original_);
  BeginLane(Lane());
  coarse.lane = std::move(lane_);
  coarse.computed = computed_;
  coarse.module.function(module_.entry) = std::move(out_);
  return coarse;
}

}  // namespace hpvm::pass
