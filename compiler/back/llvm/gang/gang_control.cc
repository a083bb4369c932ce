// SPDX-License-Identifier: Apache-2.0
// Control of a tile: constructs that all lanes take together are branches, others are linearised under masks
// (gang_tile.h).
#include <algorithm>

#include "compiler/back/llvm/gang/gang.h"

namespace hpvm::cpu {

Status GangEmitter::EmitRegion(RegionId region) {
  for (OpId id : f_.region(region).ops) {
    HPVMD_RETURN_IF_ERROR(EmitOp(f_.op(id), id));
  }
  return absl::OkStatus();
}

Status GangEmitter::EmitOp(const ir::Op& op, OpId id) {
  tile_.written_in = op.origin != 0 ? op.origin - 1 : m_.WrittenIn(m_.source.entry.index);
  if (ArithEmitter::Handles(op)) {
    if (tile_.plan.is_assumed[id.index] && !masks_.IsWhole()) {
      return Unimplemented("A value that is assumed to be linear is used where lanes have diverged (function \"" +
                           f_.name + "\").");
    }
    tile_.plan.is_assumed[id.index] ? EmitAssumed(op) : ops_.EmitArith(op);
    return absl::OkStatus();
  }
  switch (ir::Info(op.code).family) {
    case ir::Family::kMemory:
      return EmitMemory(op, id);
    case ir::Family::kAtomic:
      return EmitAtomic(op, id);
    case ir::Family::kGlobal:
      return ops_.EmitGlobal(op);
    case ir::Family::kCall:
      op.code == Opcode::kPrint ? ops_.EmitPrint(op) : ops_.EmitCall(op);
      return absl::OkStatus();
    case ir::Family::kQuery:
      return ops_.EmitQuery(op);
    case ir::Family::kControl:
      return EmitControl(op, id);
    default:
      return Internal("The operation \"" + std::string(ir::Info(op.code).text) + "\" does not run in lockstep.");
  }
}

Status GangEmitter::EmitControl(const ir::Op& op, OpId id) {
  switch (op.code) {
    case Opcode::kBlock:
      return EmitBlock(op, id);
    case Opcode::kLoop:
      return IsMasked(id) ? EmitMaskedLoop(op, id) : EmitLoop(op, id);
    case Opcode::kIf:
      return EmitIf(op, id);
    case Opcode::kBr:
    case Opcode::kContinue:
      Jump(f_.targets_of(op)[0], op, 0);
      return absl::OkStatus();
    case Opcode::kBrTable:
      tile_.IsOne(tile_.OperandId(op, 0)) ? EmitBrTable(op) : EmitMaskedTable(op);
      return absl::OkStatus();
    case Opcode::kReturn:
      b_.CreateBr(tile_.plan.body_is_masked ? join_ : done_);
      return absl::OkStatus();
    case Opcode::kTrap:
      traps_.TrapNow(kAllRows, 0, nullptr, tile_.I32(static_cast<uint32_t>(op.imm)), op.source, nullptr, nullptr);
      return absl::OkStatus();
    default:
      return Internal("The operation \"" + std::string(ir::Info(op.code).text) + "\" is not a control operation.");
  }
}

// --- Slots.

Tiled GangTile::As(ValueId like, ValueId value) {
  const pass::Layout& layout = LayoutOf(like);
  Tiled tiled;
  for (unsigned row = 0; row < RowsOf(layout); ++row) {
    if (layout.kind != pass::Layout::Kind::kVarying) {
      tiled.push_back(Scalar(value, row));
      continue;
    }
    for (unsigned column = 0; column < columns(); ++column) {
      tiled.push_back(Vector(value, row, column));
    }
  }
  return tiled;
}

void GangMasks::StoreTo(const Slots& slots, ValueId like, ValueId value, bool blends) {
  const pass::Layout& layout = tile_.LayoutOf(like);
  const Tiled tiled = tile_.As(like, value);
  for (size_t i = 0; i < slots.size(); ++i) {
    llvm::Value* active = nullptr;
    if (blends && !mask_.empty()) {
      // All lanes that bring a scalar bring the same value, except that rows may differ.
      active = layout.kind != pass::Layout::Kind::kVarying ? (layout.by_row ? RowIsActive(i) : nullptr)
               : layout.by_row                             ? mask_[i]
                                                           : SharedMask(i);
    }
    llvm::Value* next = tiled[i];
    if (active != nullptr) {
      next = b_.CreateSelect(active, next, b_.CreateLoad(next->getType(), slots[i]));
    }
    b_.CreateStore(next, slots[i]);
  }
}

Tiled GangTile::LoadFrom(const Slots& slots) {
  Tiled tiled;
  for (llvm::AllocaInst* slot : slots) {
    tiled.push_back(b.CreateLoad(slot->getAllocatedType(), slot));
  }
  return tiled;
}

void GangTile::StorePoison(const Slots& slots) {
  for (llvm::AllocaInst* slot : slots) {
    b.CreateStore(llvm::PoisonValue::get(slot->getAllocatedType()), slot);
  }
}

Slots GangMasks::NewMaskSlots() {
  Slots slots;
  for (unsigned i = 0; i < tile_.parts(); ++i) {
    slots.push_back(tile_.entry.CreateAlloca(tile_.VectorOf(b_.getInt1Ty())));
    b_.CreateStore(llvm::Constant::getNullValue(slots.back()->getAllocatedType()), slots.back());
  }
  return slots;
}

void GangMasks::StoreMask(const Slots& slots, const Mask& mask) {
  for (size_t i = 0; i < slots.size(); ++i) {
    b_.CreateStore(mask[i], slots[i]);
  }
}

// Masks themselves are never poison, because they are made by selects under other masks.
void GangMasks::AddMask(const Slots& slots) {
  for (unsigned i = 0; i < tile_.parts(); ++i) {
    llvm::Value* part = PartMask(i / tile_.columns(), i % tile_.columns());
    b_.CreateStore(b_.CreateOr(b_.CreateLoad(part->getType(), slots[i]), part), slots[i]);
  }
}

Mask GangMasks::LoadMask(const Slots& slots) { return tile_.LoadFrom(slots); }

Mask GangMasks::Explicit(const Mask& mask) {
  return mask.empty() ? Mask(tile_.parts(), llvm::ConstantInt::getTrue(tile_.VectorOf(b_.getInt1Ty()))) : mask;
}

// Returns the active lanes for which the condition is, or is not, 0.
Mask GangMasks::Narrowed(ValueId condition, bool holds) {
  Mask narrowed;
  for (unsigned i = 0; i < tile_.parts(); ++i) {
    llvm::Value* lanes = tile_.Vector(condition, i / tile_.columns(), i % tile_.columns());
    llvm::Value* zero = llvm::Constant::getNullValue(lanes->getType());
    llvm::Value* taken = holds ? b_.CreateICmpNE(lanes, zero) : b_.CreateICmpEQ(lanes, zero);
    narrowed.push_back(Both(mask_.empty() ? nullptr : mask_[i], taken));
  }
  return narrowed;
}

bool GangTile::IsOne(ValueId id) const {
  const pass::Layout& layout = LayoutOf(id);
  return layout.kind == pass::Layout::Kind::kUniform && RowsOf(layout) == 1;
}

// --- Constructs.

void GangEmitter::Begin(const ir::Op& op, OpId id) {
  Open& open = open_[id.index];
  open.exit = tile_.NewBlock("exit");
  open.before = masks_.mask();
  open.blends_results = IsMasked(id) && leaves_[id.index] > 1;
  open.blends_next = IsMasked(id) && continues_[id.index] > 1;
  for (uint32_t i = 0; i < op.result_count; ++i) {
    open.results.push_back(tile_.NewSlots(ValueId(op.first_result.index + i)));
    tile_.StorePoison(open.results.back());  // Discards values of an earlier run.
  }
  if (IsMasked(id) && is_passed_[id.index]) {
    open.left = masks_.NewMaskSlots();
  }
}

void GangEmitter::End(const ir::Op& op, OpId id) {
  Open open = std::move(open_[id.index]);
  open_[id.index] = Open{};
  b_.SetInsertPoint(open.exit);
  masks_.Become(open.before);
  if (!open.left.empty()) {
    masks_.Become(masks_.LoadMask(open.left));
    llvm::BasicBlock* some = tile_.NewBlock("some");
    b_.CreateCondBr(masks_.Any(masks_.mask()), some, join_);
    b_.SetInsertPoint(some);
  }
  for (uint32_t i = 0; i < op.result_count; ++i) {
    tile_.Set(ValueId(op.first_result.index + i), tile_.LoadFrom(open.results[i]));
  }
}

Status GangEmitter::EmitBlock(const ir::Op& op, OpId id) {
  Begin(op, id);
  const ir::Region& body = f_.region(op.body);
  for (uint32_t i = 0; i < body.param_count; ++i) {
    const ValueId param(body.first_param.index + i);
    tile_.Set(param, tile_.As(param, tile_.OperandId(op, i)));
  }
  llvm::BasicBlock* const join = join_;
  join_ = IsMasked(id) ? open_[id.index].exit : join;
  HPVMD_RETURN_IF_ERROR(EmitRegion(op.body));
  join_ = join;
  End(op, id);
  return absl::OkStatus();
}

// Initializes a loop's parameters with its operands.
void GangEmitter::BeginParams(const ir::Op& op, Open& open) {
  for (uint32_t i = 0; i < f_.region(op.body).param_count; ++i) {
    const ValueId param(f_.region(op.body).first_param.index + i);
    open.next.push_back(tile_.NewSlots(param));
    masks_.StoreTo(open.next.back(), param, tile_.OperandId(op, i), false);
  }
}

Status GangEmitter::EmitLoop(const ir::Op& op, OpId id) {
  Begin(op, id);
  Open& open = open_[id.index];
  open.header = tile_.NewBlock("loop");
  const ir::Region& body = f_.region(op.body);
  BeginParams(op, open);
  b_.CreateBr(open.header);
  b_.SetInsertPoint(open.header);
  for (uint32_t i = 0; i < body.param_count; ++i) {
    tile_.Set(ValueId(body.first_param.index + i), tile_.LoadFrom(open.next[i]));
  }
  HPVMD_RETURN_IF_ERROR(EmitRegion(op.body));
  End(op, id);
  return absl::OkStatus();
}

// Emits a loop that runs as long as some lane continues.
Status GangEmitter::EmitMaskedLoop(const ir::Op& op, OpId id) {
  Begin(op, id);
  Open& open = open_[id.index];
  open.again = masks_.NewMaskSlots();
  masks_.StoreMask(open.again, masks_.Explicit(masks_.mask()));
  const ir::Region& body = f_.region(op.body);
  BeginParams(op, open);
  llvm::BasicBlock* header = tile_.NewBlock("masked.loop");
  llvm::BasicBlock* latch = tile_.NewBlock("latch");
  b_.CreateBr(header);
  b_.SetInsertPoint(header);
  masks_.Become(masks_.LoadMask(open.again));
  masks_.StoreMask(open.again, Mask(tile_.parts(), llvm::Constant::getNullValue(tile_.VectorOf(b_.getInt1Ty()))));
  for (uint32_t i = 0; i < body.param_count; ++i) {
    tile_.Set(ValueId(body.first_param.index + i), tile_.LoadFrom(open.next[i]));
    tile_.StorePoison(open.next[i]);
  }
  llvm::BasicBlock* const join = join_;
  join_ = latch;
  HPVMD_RETURN_IF_ERROR(EmitRegion(op.body));
  join_ = join;
  b_.SetInsertPoint(latch);
  masks_.Become(masks_.LoadMask(open.again));
  llvm::BasicBlock* back = tile_.NewBlock("back");
  b_.CreateCondBr(masks_.Any(masks_.mask()), back, open.exit);
  b_.SetInsertPoint(back);
  traps_.TrapIfStopped(op.source);
  b_.CreateBr(header);
  End(op, id);
  return absl::OkStatus();
}

Status GangEmitter::EmitIf(const ir::Op& op, OpId id) {
  const ValueId condition = tile_.OperandId(op, 0);
  if (!tile_.IsOne(condition)) {
    return tile_.plan.is_assumed[id.index] ? EmitAssumedIf(op, id) : EmitMaskedIf(op, id);
  }
  Begin(op, id);
  llvm::BasicBlock* then_block = tile_.NewBlock("then");
  llvm::BasicBlock* else_block = tile_.NewBlock("else");
  b_.CreateCondBr(b_.CreateICmpNE(tile_.Scalar(condition, 0), tile_.I32(0)), then_block, else_block);
  return EmitWays(op, id, then_block, else_block);
}

// Emits the arms of an if whose active lanes all take the same arm; they may still leave it separately.
Status GangEmitter::EmitWays(const ir::Op& op, OpId id, llvm::BasicBlock* then_block, llvm::BasicBlock* else_block) {
  llvm::BasicBlock* const join = join_;
  join_ = IsMasked(id) ? open_[id.index].exit : join;
  b_.SetInsertPoint(then_block);
  HPVMD_RETURN_IF_ERROR(EmitRegion(op.body));
  b_.SetInsertPoint(else_block);
  masks_.Become(open_[id.index].before);
  HPVMD_RETURN_IF_ERROR(EmitRegion(op.otherwise));
  join_ = join;
  End(op, id);
  return absl::OkStatus();
}

Status GangEmitter::EmitMaskedIf(const ir::Op& op, OpId id) {
  Begin(op, id);
  const Mask then_mask = masks_.Narrowed(tile_.OperandId(op, 0), true);
  const Mask else_mask = masks_.Narrowed(tile_.OperandId(op, 0), false);
  HPVMD_RETURN_IF_ERROR(EmitArm(op.body, then_mask, tile_.NewBlock("else")));
  HPVMD_RETURN_IF_ERROR(EmitArm(op.otherwise, else_mask, open_[id.index].exit));
  End(op, id);
  return absl::OkStatus();
}

// Emits one arm of a masked if; continues at `behind`, which becomes the current position.
Status GangEmitter::EmitArm(RegionId region, const Mask& mask, llvm::BasicBlock* behind) {
  llvm::BasicBlock* arm = tile_.NewBlock("arm");
  if (IsCheap(region)) {
    b_.CreateBr(arm);
  } else {
    b_.CreateCondBr(masks_.Any(mask), arm, behind);
  }
  b_.SetInsertPoint(arm);
  const Mask before = masks_.mask();
  llvm::BasicBlock* const join = join_;
  masks_.Become(mask);
  join_ = behind;
  HPVMD_RETURN_IF_ERROR(EmitRegion(region));
  masks_.Become(before);
  join_ = join;
  b_.SetInsertPoint(behind);
  return absl::OkStatus();
}

// Returns true if running the region without an active lane does no harm and costs less than a branch. Scalars that
// its jump brings are the same for all lanes (compiler/analysis/uniformity.h), or belong to a row and are blended.
bool GangEmitter::IsCheap(RegionId region) const {
  constexpr size_t kOpsMax = 6;
  const std::vector<OpId>& ops = f_.region(region).ops;
  return ops.size() <= kOpsMax && std::ranges::all_of(ops, [&](OpId id) {
           const Opcode code = f_.op(id).code;
           if (ir::IsTerminator(code)) {
             return code == Opcode::kBr || code == Opcode::kContinue || code == Opcode::kReturn;
           }
           return ir::Info(code).effects == ir::kPure && code != Opcode::kFDiv && code != Opcode::kFSqrt;
         });
}

}  // namespace hpvm::cpu
