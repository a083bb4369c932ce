// SPDX-License-Identifier: Apache-2.0
// Jumps of a tile: the constructs they leave, and the values they bring to their targets.
#include <map>
#include <span>
#include <utility>

#include "compiler/back/llvm/gang/gang.h"
#include "compiler/ir/walk.h"

namespace hpvm::cpu {

// --- Analysis of jumps.

void GangEmitter::NoteEdges() {
  is_passed_.assign(f_.ops.size(), false);
  leaves_.assign(f_.ops.size(), 0);
  continues_.assign(f_.ops.size(), 0);
  // Regions being walked, each with the index of its next operation; `open` holds their owners.
  std::vector<std::pair<RegionId, size_t>> walk = {{f_.body, 0}};
  std::vector<OpId> open = {OpId()};
  while (!walk.empty()) {
    auto& [region_id, next] = walk.back();
    const ir::Region& region = f_.region(region_id);
    if (next == region.ops.size()) {
      walk.pop_back();
      open.pop_back();
      continue;
    }
    const OpId id = region.ops[next++];
    const ir::Op& op = f_.op(id);
    if (ir::IsTerminator(op.code)) {
      NoteJump(op, std::span(open).subspan(1));
    }
    for (RegionId inner : {op.body, op.otherwise}) {
      if (inner.valid() && f_.region(inner).owner == id) {
        walk.push_back({inner, 0});
        open.push_back(id);
      }
    }
  }
}

// `open`: the constructs around the jump, outermost first.
void GangEmitter::NoteJump(const ir::Op& op, std::span<const OpId> open) {
  if (op.code == Opcode::kReturn) {
    for (OpId id : open) {
      is_passed_[id.index] = true;
    }
  }
  for (const ir::Target& target : f_.targets_of(op)) {
    bool repeats = false;  // The jump may run again before its target ends, for other lanes.
    for (size_t i = open.size(); i-- > 0 && open[i] != target.op;) {
      is_passed_[open[i].index] = true;
      repeats = repeats || (f_.op(open[i]).code == Opcode::kLoop && IsMasked(open[i]));
    }
    repeats = repeats || (!target.is_continue && f_.op(target.op).code == Opcode::kLoop);
    (target.is_continue ? continues_ : leaves_)[target.op.index] += repeats ? 2 : 1;
  }
}

// --- Jumps.

// Lanes that diverge are recorded in masks, and the code continues for the other lanes.
void GangEmitter::Jump(const ir::Target& target, const ir::Op& op, uint32_t first_operand) {
  if (IsMasked(target.op)) {
    Bring(target, op, first_operand);
    b_.CreateBr(join_);
    return;
  }
  if (target.is_continue) {
    traps_.TrapIfStopped(op.source);
  }
  Bring(target, op, first_operand);
  b_.CreateBr(target.is_continue ? open_[target.op.index].header : open_[target.op.index].exit);
}

// Stores the values that the active lanes bring to the target, and records that these lanes are there.
void GangEmitter::Bring(const ir::Target& target, const ir::Op& op, uint32_t first_operand) {
  Open& open = open_[target.op.index];
  const auto& slots = target.is_continue ? open.next : open.results;
  for (uint32_t i = 0; i < slots.size(); ++i) {
    masks_.StoreTo(slots[i], ir::SlotsOf(f_, target)[i], tile_.OperandId(op, first_operand + i),
                   target.is_continue ? open.blends_next : open.blends_results);
  }
  if (target.is_continue && IsMasked(target.op)) {
    masks_.AddMask(open.again);
  } else if (!open.left.empty()) {
    masks_.AddMask(open.left);
  }
}

void GangEmitter::EmitBrTable(const ir::Op& op) {
  const std::span<const ir::Target> targets = f_.targets_of(op);
  const auto count = static_cast<unsigned>(targets.size() - 1);
  std::map<std::pair<uint32_t, bool>, llvm::BasicBlock*> blocks;
  for (const ir::Target& target : targets) {
    llvm::BasicBlock*& block = blocks[{target.op.index, target.is_continue}];
    block = block != nullptr ? block : tile_.NewBlock("case");
  }
  auto block_of = [&](const ir::Target& target) { return blocks[{target.op.index, target.is_continue}]; };
  llvm::SwitchInst* branch = b_.CreateSwitch(tile_.Operand(op, 0, 0), block_of(targets[count]), count);
  for (unsigned i = 0; i < count; ++i) {
    branch->addCase(b_.getInt32(i), block_of(targets[i]));
  }
  for (const auto& [target, block] : blocks) {
    b_.SetInsertPoint(block);
    Jump({OpId(target.first), target.second}, op, 1);
  }
}

// Sends every lane to its own target; the values are the same for all targets.
void GangEmitter::EmitMaskedTable(const ir::Op& op) {
  const std::span<const ir::Target> targets = f_.targets_of(op);
  const auto count = static_cast<uint32_t>(targets.size() - 1);
  std::map<std::pair<uint32_t, bool>, Mask> masks;
  for (unsigned part = 0; part < tile_.parts(); ++part) {
    llvm::Value* index = tile_.Operand(op, 0, part / tile_.columns(), part % tile_.columns());
    llvm::Value* active = masks_.PartMask(part / tile_.columns(), part % tile_.columns());
    for (uint32_t i = 0; i <= count; ++i) {
      llvm::Value* number = tile_.Splat(tile_.I32(i));
      llvm::Value* taken = i < count ? b_.CreateICmpEQ(index, number) : b_.CreateICmpUGE(index, number);
      Mask& mask = masks[{targets[i].op.index, targets[i].is_continue}];
      mask.resize(tile_.parts(), llvm::Constant::getNullValue(taken->getType()));
      mask[part] = b_.CreateOr(mask[part], masks_.Both(active, taken));
    }
  }
  const Mask before = masks_.mask();
  for (const auto& [target, mask] : masks) {
    masks_.Become(mask);
    Bring({OpId(target.first), target.second}, op, 1);
  }
  masks_.Become(before);
  b_.CreateBr(join_);
}

}  // namespace hpvm::cpu
