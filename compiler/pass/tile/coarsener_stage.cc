// SPDX-License-Identifier: Apache-2.0
// Emits a loop whose loads go through group memory (stage_loads.h).
//
//   pieces = if blocks > 0 { loads of the first block } else { zeros }
//   loop blocks (b = 0, sums..., pieces...) {
//     if b < blocks {} else { br blocks (sums) }
//     barrier                                    all reads of the last block's panels are done
//     panels = pieces
//     barrier
//     pieces = loads of iterations n * block ... n * block + block - 1, n = min(b + 1, blocks - 1)
//     loop inner (t = 0, sums...) { the body, with its loads from the panels }
//     continue blocks (b + 1, sums, pieces)
//   }
//   the original loop, for the remaining iterations; at least one, whose values are the loop's results
#include <bit>
#include <utility>

#include "compiler/pass/tile/coarsener.h"

namespace hpvm::pass {

namespace {

constexpr Type kI32 = Type::kI32;

uint64_t Log2(uint64_t power) { return static_cast<uint64_t>(std::countr_zero(power)); }

}  // namespace

// Emits the work item's local id, and the group's first instance.
void Coarsener::EmitLocalId() {
  for (uint64_t d = 0; d < 2; ++d) {
    Op query{.code = Opcode::kInstanceId, .type = kI32};
    const ValueId id = builder_.Append1(query, std::array{Number(kI32, d)}, kI32);
    const ValueId first = Compute(Opcode::kAnd, id, ~uint64_t{plan_.tile[d] - 1});
    const ValueId item = Compute(Opcode::kShrU, first, Log2(plan_.tile[d]));
    stage_.local[d] = Compute(Opcode::kAnd, item, plan_.stage->group[d] - 1);
    const ValueId before = Compute(Opcode::kShl, stage_.local[d], Log2(plan_.tile[d]));
    stage_.first[d] = Add(Opcode::kSub, kI32, std::array{first, before});
  }
  const ValueId row = Compute(Opcode::kShl, stage_.local[1], Log2(plan_.stage->group[0]));
  stage_.item = Add(Opcode::kAdd, kI32, std::array{row, stage_.local[0]});
}

// Emits the number of blocks of iterations that certainly run, with at least one iteration after them.
ValueId Coarsener::EmitBlockCount(const Op& loop) {
  const StagePlan& stage = *plan_.stage;
  const ValueId init = At(f_.operands_of(loop)[stage.counter], {});
  const ValueId bound = stage.bound.valid() ? At(stage.bound, {}) : Number(kI32, 0);
  const bool is_up = stage.stride > 0;
  const uint64_t size = static_cast<uint64_t>(is_up ? stage.stride : -stage.stride);
  const ValueId way = Add(Opcode::kSub, kI32, is_up ? std::array{bound, init} : std::array{init, bound});
  // A distance that is no multiple of the stride never meets the bound; a distance of 0 wraps around completely.
  const ValueId is_sure = stage.is_below ? Add(Opcode::kLtS, kI32, std::array{init, bound})
                                         : Add(Opcode::kEqz, kI32, std::array{Compute(Opcode::kAnd, way, size - 1)});
  const ValueId turns = Compute(Opcode::kShrU, way, Log2(size));
  const ValueId none = Number(kI32, 0);
  const ValueId some = Add(Opcode::kSelect, kI32, std::array{is_sure, turns, none});
  const ValueId but_last = Add(Opcode::kSelect, kI32, std::array{some, Compute(Opcode::kSub, some, 1), none});
  return Compute(Opcode::kShrU, but_last, Log2(stage.block));
}

// Emits the value for another instance and iteration.
ValueId Coarsener::Slice(ValueId id, const Elsewhere& where, std::map<uint32_t, ValueId>* known) {
  if (const auto found = known->find(id.index); found != known->end()) {
    return found->second;
  }
  const Op& loop = f_.op(plan_.stage->loop);
  const ir::Region& body = f_.region(loop.body);
  const uint32_t index = id.index - body.first_param.index;
  const OpId by = definitions_.Of(id);
  const auto compute = [&]() -> ValueId {
    if (id.index >= body.first_param.index && index < body.param_count) {
      const ValueId init = Slice(f_.operands_of(loop)[index], where, known);
      return AfterTurns(init, where.turn, Slice(*plan_.stage->steps[index], where, known));
    }
    if (by.valid() && f_.op(by).code == Opcode::kInstanceId) {
      const uint64_t d = definitions_.ConstantOf(f_.operands_of(f_.op(by))[0]).value_or(3);
      if (d < 2) {
        return f_.type_of(id) == kI32 ? where.id[d] : Widened(where.id[d]);
      }
    }
    const bool is_inside = by.valid() && std::ranges::find(body.ops, by) != body.ops.end();
    if (!by.valid() || (!LayoutOf(id).Differs(0) && !LayoutOf(id).Differs(1) && !is_inside)) {
      return At(id, {});
    }
    const Op& op = f_.op(by);
    if (op.code == Opcode::kConst) {
      return Number(op.type, op.imm);
    }
    std::vector<ValueId> operands;
    for (ValueId operand : f_.operands_of(op)) {
      operands.push_back(Slice(operand, where, known));
    }
    Charge(op);
    return builder_.Append1(op, operands, f_.type_of(id));
  };
  const ValueId value = compute();
  (*known)[id.index] = value;
  return value;
}

// Emits `init` after `turns` iterations of a loop that adds `step`.
ValueId Coarsener::AfterTurns(ValueId init, ValueId turns, ValueId step) {
  const Type type = out_.type_of(init);
  const ValueId count = type == kI32 ? turns : Widened(turns);
  return Add(Opcode::kAdd, type, std::array{init, Add(Opcode::kMul, type, std::array{count, step})});
}

// The group's work items load the pieces of a panel together: neighbouring work items load neighbours in memory.
// Appends the values to `pieces`.
void Coarsener::EmitFetch(const StagePanel& panel, ValueId block, std::vector<ValueId>* pieces) {
  const Op& op = f_.op(panel.load);
  const uint32_t d = panel.is_along_x ? 0 : 1;
  const ValueId first_turn = Compute(Opcode::kShl, block, Log2(plan_.stage->block));
  for (const PanelPiece& piece : EmitPieces(panel)) {
    const ValueId element = Compute(Opcode::kShl, piece.lane, Log2(panel.is_along_x ? 16 / op.width : 1));
    Elsewhere where;
    where.id = stage_.first;
    where.id[d] = Add(Opcode::kAdd, kI32, std::array{stage_.first[d], element});
    where.turn = Add(Opcode::kAdd, kI32, std::array{first_turn, piece.turn});
    std::map<uint32_t, ValueId> known;
    const ValueId source = Slice(f_.operands_of(op)[0], where, &known);
    Op access = op;
    access.operand_count = access.result_count = 0;
    if (panel.is_along_x) {
      access.code = Opcode::kLoad128;
      access.type = kI32;
      access.width = 16;
    }
    Charge(access);
    const std::vector<ValueId> found =
        builder_.Results(AppendAccess(panel.load, access, std::array{source}, TypesOfPiece(panel)));
    pieces->insert(pieces->end(), found.begin(), found.end());
  }
}

// Emits the positions of the pieces of a panel that a work item loads: along x a row's pieces are adjacent in memory,
// along y the pieces of one instance's iterations are.
std::vector<Coarsener::PanelPiece> Coarsener::EmitPieces(const StagePanel& panel) {
  const StagePlan& stage = *plan_.stage;
  const uint32_t items = stage.group[0] * stage.group[1], row = PiecesOfRow(panel);
  std::vector<PanelPiece> pieces;
  for (uint32_t i = 0; i < PiecesOfItem(panel); ++i) {
    const ValueId number = Plus(stage_.item, uint64_t{i} * items);
    const bool by_row = panel.is_along_x;
    pieces.push_back(
        {by_row ? Compute(Opcode::kShrU, number, Log2(row)) : Compute(Opcode::kAnd, number, stage.block - 1),
         by_row ? Compute(Opcode::kAnd, number, row - 1) : Compute(Opcode::kShrU, number, Log2(stage.block))});
  }
  return pieces;
}

uint32_t Coarsener::PiecesOfRow(const StagePanel& panel) const {
  const uint32_t d = panel.is_along_x ? 0 : 1;
  return plan_.stage->group[d] * plan_.tile[d] / (panel.is_along_x ? 16 / f_.op(panel.load).width : 1);
}

uint32_t Coarsener::PiecesOfItem(const StagePanel& panel) const {
  const StagePlan& stage = *plan_.stage;
  return PiecesOfRow(panel) * stage.block / (stage.group[0] * stage.group[1]);
}

std::vector<Type> Coarsener::TypesOfPiece(const StagePanel& panel) const {
  return panel.is_along_x ? std::vector<Type>(4, kI32) : std::vector<Type>{f_.op(panel.load).type};
}

// Stores the pieces that EmitFetch loaded into group memory; leaves the following panels' in `pieces`.
void Coarsener::EmitFill(const StagePanel& panel, std::span<const ValueId>* pieces) {
  const Op& op = f_.op(panel.load);
  const size_t words = TypesOfPiece(panel).size();
  for (const PanelPiece& piece : EmitPieces(panel)) {
    const ValueId row_at = Compute(Opcode::kMul, piece.turn, panel.row_bytes);
    ValueId in_row = Compute(Opcode::kShl, piece.lane, Log2(op.width));
    if (panel.is_along_x) {
      // The first pieces of all work items are adjacent, then the second pieces: neighbours then read adjacent data.
      const ValueId section = Compute(Opcode::kAnd, piece.lane, panel.sections - 1);
      const ValueId item = Compute(Opcode::kShrU, piece.lane, Log2(panel.sections));
      in_row =
          Add(Opcode::kAdd, kI32,
              std::array{Compute(Opcode::kMul, section, panel.section_bytes), Compute(Opcode::kShl, item, Log2(16))});
    }
    const ValueId at = Add(Opcode::kAdd, kI32, std::array{row_at, in_row});
    std::vector<ValueId> operands = {Add(Opcode::kAdd, kI32, std::array{stage_.memory, at})};
    operands.insert(operands.end(), pieces->begin(), pieces->begin() + static_cast<ptrdiff_t>(words));
    *pieces = pieces->subspan(words);
    Op access = op;
    access.operand_count = access.result_count = 0;
    access.code = panel.is_along_x ? Opcode::kStore128 : Opcode::kStore;
    if (panel.is_along_x) {
      access.type = kI32;
      access.width = 16;
    }
    access.space = ir::Space::kGroup;
    access.space_index = 0;
    access.imm = panel.offset;
    AppendAccess(panel.load, access, operands, {});
  }
}

// Emits loads of the first block's pieces; zeros if there is no block.
std::vector<ValueId> Coarsener::EmitFirstFetch(ValueId blocks) {
  std::vector<Type> types;
  for (const StagePanel& panel : plan_.stage->panels) {
    for (uint32_t i = 0; i < PiecesOfItem(panel); ++i) {
      const std::vector<Type> more = TypesOfPiece(panel);
      types.insert(types.end(), more.begin(), more.end());
    }
  }
  const OpId check = builder_.BeginIf(Add(Opcode::kLtU, kI32, std::array{Number(kI32, 0), blocks}), types);
  OpenScope();
  std::vector<ValueId> pieces;
  for (const StagePanel& panel : plan_.stage->panels) {
    EmitFetch(panel, Number(kI32, 0), &pieces);
  }
  builder_.Leave(check, pieces);
  CloseScope();
  builder_.Else();
  OpenScope();
  std::vector<ValueId> zeros;
  for (const Type type : types) {
    zeros.push_back(Number(type, 0));
  }
  builder_.Leave(check, zeros);
  CloseScope();
  builder_.End();
  return builder_.Results(check);
}

// Emits loads of the tile's part of a panel's row.
void Coarsener::EmitPanelLoad(const StagePanel& panel) {
  const Op& op = f_.op(panel.load);
  const uint32_t d = panel.is_along_x ? 0 : 1;
  const uint32_t per_access = 16 / op.width, words = op.width / 4;
  const ValueId row = Compute(Opcode::kMul, stage_.turn, panel.row_bytes);
  const ValueId own =
      Compute(Opcode::kMul, stage_.local[d], panel.is_along_x ? 16 : uint64_t{plan_.tile[d]} * op.width);
  const ValueId own_at = Add(Opcode::kAdd, kI32, std::array{stage_.memory, own});
  const ValueId at = Add(Opcode::kAdd, kI32, std::array{own_at, row});
  constexpr std::array kWords = {kI32, kI32, kI32, kI32};
  for (uint32_t i = 0; i < plan_.tile[d]; i += per_access) {
    Op access = op;
    access.operand_count = access.result_count = 0;
    access.code = Opcode::kLoad128;
    access.type = kI32;
    access.width = 16;
    access.space = ir::Space::kGroup;
    access.space_index = 0;
    access.imm = panel.offset + (panel.is_along_x ? i / per_access * panel.section_bytes : uint64_t{i} * op.width);
    cost_ += weight_;
    const std::vector<ValueId> found = builder_.Results(AppendAccess(panel.load, access, std::array{at}, kWords));
    for (uint32_t j = 0; j < per_access; ++j) {
      const Lane lane = panel.is_along_x ? Lane{i + j, 0} : Lane{0, i + j};
      Keep(op.first_result, lane, FromWords(op.type, std::span(found).subspan(j * words, words)));
    }
  }
}

// Emits one iteration of the loop, `turns` after its first, with the accumulated values `sums`; returns the new
// accumulated values.
std::vector<ValueId> Coarsener::EmitTurn(const Op& loop, ValueId turns, std::span<const ValueId> sums) {
  const StagePlan& stage = *plan_.stage;
  const ir::Region& body = f_.region(loop.body);
  for (uint32_t i = 0; i < body.param_count; ++i) {
    const ValueId param(body.first_param.index + i);
    if (!stage.steps[i]) {
      const size_t own = size_t{Count(0, LayoutOf(param).varies[0])} * Count(1, LayoutOf(param).varies[1]);
      KeepAll(param, 1, sums.first(own));
      sums = sums.subspan(own);
      continue;
    }
    std::vector<ValueId> now = Flatten(f_.operands_of(loop).subspan(i, 1), param);
    for (ValueId& copy : now) {
      copy = AfterTurns(copy, turns, StepOf(i));
    }
    KeepAll(param, 1, now);
  }
  for (size_t i = 0; i + 2 < body.ops.size(); ++i) {
    const auto panel = std::ranges::find(stage.panels, body.ops[i], &StagePanel::load);
    panel != stage.panels.end() ? EmitPanelLoad(*panel) : EmitOp(body.ops[i]);
  }
  const Op& again = f_.op(f_.region(f_.op(body.ops[body.ops.size() - 2]).body).ops[0]);
  return FlattenSums(f_.operands_of(again), body.first_param);
}

// Returns copies of the values for the parameters that do not grow by steps.
std::vector<ValueId> Coarsener::FlattenSums(std::span<const ValueId> values, ValueId first_param) {
  std::vector<ValueId> flat;
  for (uint32_t i = 0; i < values.size(); ++i) {
    if (!plan_.stage->steps[i]) {
      const std::vector<ValueId> copies = Flatten(values.subspan(i, 1), ValueId(first_param.index + i));
      flat.insert(flat.end(), copies.begin(), copies.end());
    }
  }
  return flat;
}

ValueId Coarsener::StepOf(uint32_t param) {
  std::map<uint32_t, ValueId> known;
  return Slice(*plan_.stage->steps[param], {}, &known);  // Steps are the same for all instances and iterations.
}

// Emits the iterations of a block, with loads from the panels; returns the accumulated values.
std::vector<ValueId> Coarsener::EmitBlock(const Op& loop, ValueId block, std::span<const ValueId> sums) {
  const uint64_t count = plan_.stage->block;
  const ValueId first_turn = Compute(Opcode::kShl, block, Log2(count));
  std::vector<ValueId> arguments = {Number(kI32, 0)};
  arguments.insert(arguments.end(), sums.begin(), sums.end());
  const OpId inner = builder_.BeginBlock(Opcode::kLoop, arguments, out_.types_of(sums), loop.source);
  OpenScope();
  const std::vector<ValueId> params = builder_.Params(inner);
  stage_.turn = params[0];
  const double outside = std::exchange(weight_, weight_ * 16);
  const ValueId turns = Add(Opcode::kAdd, kI32, std::array{first_turn, stage_.turn});
  std::vector<ValueId> next = EmitTurn(loop, turns, std::span(params).subspan(1));
  weight_ = outside;
  const ValueId next_turn = Plus(stage_.turn, 1);
  const OpId again = builder_.BeginIf(Add(Opcode::kLtU, kI32, std::array{next_turn, Number(kI32, count)}), {});
  next.insert(next.begin(), next_turn);
  builder_.Continue(inner, next, loop.source);
  builder_.Else();
  builder_.Leave(again, {});
  builder_.End();
  builder_.Leave(inner, std::span(next).subspan(1));
  CloseScope();
  builder_.End();
  return builder_.Results(inner);
}

// Emits all blocks; returns the accumulated values.
std::vector<ValueId> Coarsener::EmitBlocks(const Op& loop, ValueId blocks) {
  const StagePlan& stage = *plan_.stage;
  const std::vector<ValueId> sums = FlattenSums(f_.operands_of(loop), f_.region(loop.body).first_param);
  const std::vector<ValueId> first = EmitFirstFetch(blocks);
  std::vector<ValueId> arguments = {Number(kI32, 0)};
  arguments.insert(arguments.end(), sums.begin(), sums.end());
  arguments.insert(arguments.end(), first.begin(), first.end());
  const OpId outer = builder_.BeginBlock(Opcode::kLoop, arguments, out_.types_of(sums), loop.source);
  OpenScope();
  const std::vector<ValueId> params = builder_.Params(outer);
  const ValueId block = params[0];
  const std::span<const ValueId> sums_now = std::span(params).subspan(1, sums.size());
  std::span<const ValueId> pieces_now = std::span(params).subspan(1 + sums.size());
  const OpId check = builder_.BeginIf(Add(Opcode::kLtU, kI32, std::array{block, blocks}), {});
  builder_.Leave(check, {});
  builder_.Else();
  builder_.Leave(outer, sums_now);
  builder_.End();
  builder_.Append(Op{.code = Opcode::kBarrier}, {}, {});
  for (const StagePanel& panel : stage.panels) {
    EmitFill(panel, &pieces_now);
  }
  builder_.Append(Op{.code = Opcode::kBarrier}, {}, {});
  const double outside = std::exchange(weight_, weight_ * 16.0 / stage.block);
  const ValueId next = Plus(block, 1);
  const ValueId is_last = Add(Opcode::kEq, kI32, std::array{next, blocks});
  const ValueId ahead = Add(Opcode::kSelect, kI32, std::array{is_last, block, next});
  std::vector<ValueId> pieces;
  for (const StagePanel& panel : stage.panels) {
    EmitFetch(panel, ahead, &pieces);
  }
  weight_ = outside;
  std::vector<ValueId> carried = EmitBlock(loop, block, sums_now);
  carried.insert(carried.begin(), next);
  carried.insert(carried.end(), pieces.begin(), pieces.end());
  builder_.Continue(outer, carried, loop.source);
  CloseScope();
  builder_.End();
  return builder_.Results(outer);
}

// Emits the blocks; returns the values of the loop's parameters after them.
std::vector<ValueId> Coarsener::EmitStage(const Op& loop) {
  const StagePlan& stage = *plan_.stage;
  const ir::Region& body = f_.region(loop.body);
  EmitLocalId();
  Op allocate{.code = Opcode::kLocalAlloc};
  stage_.memory = builder_.Append1(allocate, std::array{Number(kI32, stage.bytes)}, kI32);
  const ValueId blocks = EmitBlockCount(loop);
  const std::vector<ValueId> found = EmitBlocks(loop, blocks);
  const ValueId done = Compute(Opcode::kShl, blocks, Log2(stage.block));
  std::vector<ValueId> arguments;
  size_t at = 0;
  for (uint32_t i = 0; i < body.param_count; ++i) {
    for (ValueId copy : Flatten(f_.operands_of(loop).subspan(i, 1), ValueId(body.first_param.index + i))) {
      arguments.push_back(stage.steps[i] ? AfterTurns(copy, done, StepOf(i)) : found[at++]);
    }
  }
  return arguments;
}

}  // namespace hpvm::pass
