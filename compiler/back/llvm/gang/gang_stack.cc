// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/llvm/gang/gang_stack.h"

#include <algorithm>
#include <bit>

namespace hpvm::cpu {

llvm::Value* GangFrame::Stack(unsigned part) {
  llvm::Value*& array = loaded_[{kOfStack, part}];
  if (array == nullptr) {
    const ir::StackFrame& frame = *tile_.m.source.stack_frame;
    llvm::IRBuilder<>& b = tile_.entry;
    llvm::Type* vector = tile_.VectorOf(b.getIntNTy(8 * frame.unit));
    llvm::AllocaInst* made = b.CreateAlloca(llvm::ArrayType::get(vector, frame.bytes() / frame.unit));
    b.CreateMemSetInline(made, made->getAlign(), b.getInt8(0), b.getInt64(frame.bytes() * tile_.lanes()));
    array = made;
  }
  return array;
}

GangStackAccess::GangStackAccess(GangTile& tile, GangMasks& masks, GangTraps& traps, GangFrame& frame, const ir::Op& op,
                                 ir::OpId id)
    : tile_(tile),
      masks_(masks),
      traps_(traps),
      frame_(frame),
      op_(op),
      is_inside_(m_.is_inside_stack[id.index]),
      is_uniform_(tile.LayoutOf(tile.f.operands_of(op)[0]).kind == pass::Layout::Kind::kUniform),
      units_(std::max(op.width / of_.unit, 1u)),
      unit_type_(b_.getIntNTy(8 * of_.unit)) {}

llvm::Value* GangStackAccess::SplatConstant(llvm::Type* type, uint64_t bits) {
  return tile_.Splat(llvm::ConstantInt::get(type, bits));
}

// Inactive lanes may have any offset.
llvm::Value* GangStackAccess::Offset(unsigned row, unsigned column) {
  llvm::Value* address = is_uniform_ ? tile_.Operand(op_, 0, row) : tile_.Operand(op_, 0, row, column);
  llvm::Type* type = address->getType()->getScalarType();
  llvm::Constant* begin = llvm::ConstantInt::get(type, of_.begin - op_.imm);
  if (!is_uniform_) {
    return b_.CreateSub(address, tile_.Splat(begin));
  }
  llvm::Value* offset = b_.CreateSub(address, begin);
  if (llvm::Value* active = masks_.RowIsActive(row); active != nullptr) {
    offset = b_.CreateSelect(active, offset, llvm::ConstantInt::get(type, 0));
  }
  return offset;
}

void GangStackAccess::TrapIfMisses(unsigned row, unsigned column, llvm::Value* offset) {
  llvm::Type* type = offset->getType()->getScalarType();
  llvm::Value* end = llvm::ConstantInt::get(type, of_.bytes() - std::min<uint64_t>(op_.width - 1u, of_.bytes()));
  llvm::Value* misses = b_.CreateICmpUGE(offset, is_uniform_ ? end : tile_.Splat(end));
  llvm::Value* address =
      b_.CreateAdd(offset, is_uniform_ ? llvm::ConstantInt::get(type, of_.begin) : SplatConstant(type, of_.begin));
  llvm::Type* i64 = b_.getInt64Ty();
  address = b_.CreateZExt(address, is_uniform_ ? i64 : tile_.VectorOf(i64));
  traps_.TrapIf(row, column, misses, b_.getInt32(static_cast<uint32_t>(ir::TrapCode::kOutOfBounds)), op_.source,
                address, b_.getInt64(op_.width));
}

GangStackAccess::Where GangStackAccess::Find(unsigned row, unsigned column) {
  llvm::Value* offset = Offset(row, column);
  if (!is_inside_) {
    TrapIfMisses(row, column, offset);
  }
  const auto constant = [&](llvm::Type* type, uint64_t bits) -> llvm::Value* {
    return is_uniform_ ? llvm::ConstantInt::get(type, bits) : SplatConstant(type, bits);
  };
  llvm::Type* type = offset->getType()->getScalarType();
  Where where;
  if (op_.width < of_.unit) {
    llvm::Value* bytes = b_.CreateAnd(offset, constant(type, of_.unit - op_.width));
    llvm::Type* wanted = is_uniform_ ? unit_type_ : tile_.VectorOf(unit_type_);
    where.shift = b_.CreateShl(b_.CreateZExtOrTrunc(bytes, wanted), constant(unit_type_, 3));
    where.shift = is_uniform_ ? tile_.Splat(where.shift) : where.shift;
  }
  llvm::Value* unit = b_.CreateLShr(offset, constant(type, std::countr_zero(of_.unit)));
  unit = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, unit, constant(type, of_.bytes() / of_.unit - units_));
  llvm::Type* i32 = b_.getInt32Ty();
  where.unit = b_.CreateZExtOrTrunc(unit, is_uniform_ ? i32 : tile_.VectorOf(i32));
  return where;
}

// Returns pointers to unit `index` of the access: one pointer to a vector, or one per lane.
llvm::Value* GangStackAccess::Pointers(const Where& where, unsigned index) {
  llvm::Value* stack = frame_.Stack(row_ * tile_.columns() + column_);
  if (is_uniform_) {
    llvm::Value* unit = b_.CreateAdd(where.unit, b_.getInt32(index), "", /*HasNUW=*/true, /*HasNSW=*/true);
    return b_.CreateInBoundsGEP(tile_.VectorOf(unit_type_), stack, b_.CreateZExt(unit, b_.getInt64Ty(), "", true));
  }
  llvm::SmallVector<llvm::Constant*, 16> lanes;
  for (unsigned i = 0; i < tile_.lanes(); ++i) {
    lanes.push_back(b_.getInt32(index * tile_.lanes() + i));
  }
  llvm::Value* place =
      b_.CreateAdd(b_.CreateMul(where.unit, tile_.Splat(b_.getInt32(tile_.lanes()))), llvm::ConstantVector::get(lanes));
  return b_.CreateGEP(unit_type_, stack, b_.CreateZExt(place, tile_.VectorOf(b_.getInt64Ty()), "", true));
}

llvm::Value* GangStackAccess::LoadUnit(const Where& where, unsigned index) {
  llvm::Type* type = tile_.VectorOf(unit_type_);
  llvm::Value* pointers = Pointers(where, index);
  if (is_uniform_) {
    return b_.CreateLoad(type, pointers);
  }
  llvm::Value* mask = masks_.IsWhole() ? nullptr : masks_.PartMask(row_, column_);
  return b_.CreateMaskedGather(type, pointers, llvm::Align(of_.unit), mask);
}

void GangStackAccess::StoreUnit(const Where& where, unsigned index, llvm::Value* value) {
  llvm::Value* pointers = Pointers(where, index);
  llvm::Value* mask = masks_.IsWhole() ? nullptr : masks_.PartMask(row_, column_);
  if (!is_uniform_) {
    b_.CreateMaskedScatter(value, pointers, llvm::Align(of_.unit), mask);
    return;
  }
  if (mask != nullptr) {  // LLVM keeps an array in registers if it is loaded and stored whole.
    value = b_.CreateSelect(mask, value, b_.CreateLoad(value->getType(), pointers));
  }
  b_.CreateStore(value, pointers);
}

llvm::Value* GangStackAccess::LoadBits(const Where& where) {
  llvm::Type* type = tile_.VectorOf(b_.getIntNTy(std::min(8u * op_.width, 64u)));
  llvm::Value* bits = LoadUnit(where, 0);
  if (units_ == 1) {
    return where.shift == nullptr ? bits : b_.CreateTrunc(b_.CreateLShr(bits, where.shift), type);
  }
  llvm::Value* high = b_.CreateShl(b_.CreateZExt(LoadUnit(where, 1), type), SplatConstant(b_.getInt64Ty(), 32));
  return b_.CreateOr(b_.CreateZExt(bits, type), high);
}

void GangStackAccess::StoreBits(const Where& where, llvm::Value* bits) {
  llvm::Type* units = tile_.VectorOf(unit_type_);
  if (where.shift != nullptr) {
    llvm::Value* kept = b_.CreateShl(SplatConstant(unit_type_, (uint64_t{1} << (8 * op_.width)) - 1), where.shift);
    llvm::Value* others = b_.CreateAnd(LoadUnit(where, 0), b_.CreateNot(kept));
    return StoreUnit(where, 0, b_.CreateOr(others, b_.CreateShl(b_.CreateZExt(bits, units), where.shift)));
  }
  StoreUnit(where, 0, b_.CreateTrunc(bits, units));
  if (units_ == 2) {
    StoreUnit(where, 1, b_.CreateTrunc(b_.CreateLShr(bits, SplatConstant(b_.getInt64Ty(), 32)), units));
  }
}

llvm::Value* GangStackAccess::Loaded(llvm::Value* bits) {
  llvm::Type* type = tile_.VectorOf(m_.TypeOf(op_.type));
  if (!ir::IsInt(op_.type) || bits->getType() == type) {
    return b_.CreateBitCast(bits, type);
  }
  return op_.sign ? b_.CreateSExt(bits, type) : b_.CreateZExt(bits, type);
}

void GangStackAccess::Emit() {
  const bool is_quad = op_.code == Opcode::kLoad128 || op_.code == Opcode::kStore128;
  const bool is_store = (ir::Info(op_.code).effects & ir::kWrites) != 0;
  const unsigned values = is_quad ? 4 : 1;
  llvm::SmallVector<Tiled, 4> results(values);
  tile_.RemarkAccess(op_,
                     std::string(is_store ? "The store" : "The load") + " is on the instances' stacks: " +
                         (is_uniform_ ? "one vector holds every lane's word." : "each lane has an index of its own."));
  for (row_ = 0; row_ < tile_.rows(); ++row_) {
    for (column_ = 0; column_ < tile_.columns(); ++column_) {
      const Where where = Find(row_, column_);
      for (unsigned i = 0; i < values && !is_store; ++i) {
        results[i].push_back(Loaded(is_quad ? LoadUnit(where, i) : LoadBits(where)));
      }
      for (unsigned i = 0; i < values && is_store; ++i) {
        llvm::Value* value = tile_.Operand(op_, 1 + i, row_, column_);
        if (is_quad) {
          StoreUnit(where, i, value);
          continue;
        }
        llvm::Type* bits = tile_.VectorOf(b_.getIntNTy(8u * op_.width));
        StoreBits(where, ir::IsInt(op_.type) ? b_.CreateTrunc(value, bits) : b_.CreateBitCast(value, bits));
      }
    }
  }
  for (unsigned i = 0; i < values && !is_store; ++i) {
    tile_.Set(ir::ValueId(op_.first_result.index + i), std::move(results[i]));
  }
}

}  // namespace hpvm::cpu
