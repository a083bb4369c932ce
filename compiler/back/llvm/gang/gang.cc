// SPDX-License-Identifier: Apache-2.0
// Values and masks of a tile, and the function around them.
#include "compiler/back/llvm/gang/gang.h"

#include "compiler/ir/cpu_abi.h"
#include "compiler/ir/walk.h"

namespace hpvm::cpu {

namespace {

// GangArith emits arithmetic for one part of the tile: a vector of its lanes, or a row's scalar.
class GangArith : public ArithEmitter {
 public:
  GangArith(GangTile& tile, GangMasks& masks, GangTraps& traps, unsigned row, unsigned column, bool is_scalar)
      : ArithEmitter(tile.b), masks_(masks), traps_(traps), row_(row), column_(column), is_scalar_(is_scalar) {}

 protected:
  void TrapIf(llvm::Value* condition, llvm::Value* code, const ir::Op& op) override {
    traps_.TrapIf(row_, column_, condition, code, op.source);
  }
  llvm::Value* ActiveMask() override {
    if (masks_.IsWhole()) {
      return nullptr;
    }
    return is_scalar_ ? masks_.RowIsActive(row_) : masks_.PartMask(row_, column_);
  }

 private:
  GangMasks& masks_;
  GangTraps& traps_;
  const unsigned row_, column_;
  const bool is_scalar_;
};

llvm::Function* DeclareGang(ModuleEmitter& m) {
  llvm::Type* i64 = llvm::Type::getInt64Ty(m.context());
  llvm::Type* pointer = llvm::PointerType::get(m.context(), 0);
  std::vector<llvm::Type*> params = {pointer, pointer, i64, i64, i64, i64};
  for (ir::Type param : m.source.function(m.source.entry).type.params) {
    params.push_back(m.TypeOf(param));
  }
  llvm::Function* function =
      llvm::Function::Create(llvm::FunctionType::get(llvm::Type::getInt32Ty(m.context()), params, false),
                             llvm::GlobalValue::InternalLinkage, "gang", m.module.get());
  function->setCallingConv(llvm::CallingConv::Fast);
  m.SetAttributes(function);
  if (!m.source.params.empty()) {
    const uint64_t bytes = m.source.params.size() * sizeof(ir::CpuArgument);
    function->addParamAttr(1, llvm::Attribute::getWithDereferenceableBytes(m.context(), bytes));
    function->addParamAttr(1, llvm::Attribute::getWithAlignment(m.context(), llvm::Align(alignof(ir::CpuArgument))));
  }
  return function;
}

}  // namespace

GangTile::GangTile(ModuleEmitter& module, const pass::GangPlan& gang_plan, const GangFunction& function_kind,
                   const std::vector<bool>& proven_accesses, KernelReport* kernel_report)
    : m(module),
      plan(gang_plan),
      kind(function_kind),
      proven(proven_accesses),
      report(kernel_report),
      f(m.source.function(m.source.entry)),
      function(DeclareGang(m)),
      b(m.context()),
      entry(m.context()),
      fields(m, b, function->getArg(0), function->getArg(1)),
      entry_fields(m, entry, function->getArg(0), function->getArg(1)),
      written_in(m.WrittenIn(m.source.entry.index)),
      gives_up(kind.gives_up ? analysis::FindBeforeEffects(m.source) : std::vector<bool>()),
      values_(f.values.size()) {}

GangEmitter::GangEmitter(ModuleEmitter& m, const pass::GangPlan& plan, const GangFunction& kind,
                         const std::vector<bool>& proven, KernelReport* report)
    : tile_(m, plan, kind, proven, report), open_(f_.ops.size()) {
  // An audit checks each access separately.
  if (kind.is_unchecked && !kind.is_masked && !m.machine.audits_proofs) {
    records_ = pass::FindRecords(m.source, plan);
  }
}

StatusOr<llvm::Function*> GangEmitter::Emit() {
  if (tile_.kind.is_masked && tile_.parts() != 1) {
    return Internal("A masked tile has " + std::to_string(tile_.parts()) + " parts instead of one.");
  }
  tile_.entry.SetInsertPoint(tile_.NewBlock("entry"));
  llvm::BasicBlock* body_block = tile_.NewBlock("body");
  done_ = join_ = tile_.NewBlock("done");
  b_.SetInsertPoint(body_block);
  const ir::Region& body = f_.region(f_.body);
  for (uint32_t i = 0; i < body.param_count; ++i) {
    tile_.Set(ir::ValueId(body.first_param.index + i), {tile_.function->getArg(kGangCount + 1 + i)});
  }
  if (tile_.kind.is_masked) {
    llvm::Value* count = b_.CreateTrunc(tile_.function->getArg(kGangCount), b_.getInt32Ty());
    masks_.Become({b_.CreateICmpULT(tile_.Spread(b_.getInt32(0), 1, 0), tile_.Splat(count))});
  }
  if (tile_.report != nullptr) {
    pass::ExplainGang(m_.source, tile_.plan, tile_.report);
  }
  NoteEdges();
  if (llvm::Value* lacks_stack = tile_.fields.LacksStack(f_)) {
    traps_.TrapIf(kAllRows, 0, lacks_stack, tile_.I32(static_cast<uint32_t>(TrapCode::kStackOverflow)), 0);
  }
  HPVMD_RETURN_IF_ERROR(EmitRegion(f_.body));
  b_.SetInsertPoint(done_);
  b_.CreateRet(tile_.I32(kGangDone));
  traps_.EmitTrapBlock();
  tile_.entry.CreateBr(body_block);
  return tile_.function;
}

llvm::BasicBlock* GangTile::Mixed() {
  if (mixed_ == nullptr) {
    mixed_ = NewBlock("mixed");
    llvm::ReturnInst::Create(m.context(), I32(kGangMixed), mixed_);
  }
  return mixed_;
}

llvm::Type* GangTile::VectorOf(llvm::Type* scalar) const { return llvm::FixedVectorType::get(scalar, lanes()); }

llvm::Value* GangTile::Scalar(ir::ValueId id, unsigned row) {
  const pass::Layout& layout = LayoutOf(id);
  const Tiled& value = values_[id.index];
  const unsigned r = layout.by_row && row != kAllRows ? row : 0;
  if (layout.kind == pass::Layout::Kind::kVarying) {  // Only in unreachable code.
    return b.CreateExtractElement(value[r * columns()], uint64_t{0});
  }
  return value[r];
}

llvm::Value* GangTile::Vector(ir::ValueId id, unsigned row, unsigned column) {
  const pass::Layout& layout = LayoutOf(id);
  const unsigned r = layout.by_row && row != kAllRows ? row : 0;
  if (layout.kind == pass::Layout::Kind::kVarying) {
    return values_[id.index][r * columns() + column];
  }
  return Spread(values_[id.index][r], layout.kind == pass::Layout::Kind::kLinear ? layout.step : 0, column);
}

llvm::Value* GangTile::Spread(llvm::Value* base, uint64_t step, unsigned column) {
  if (step == 0) {
    return Splat(base);
  }
  auto* type = llvm::cast<llvm::IntegerType>(base->getType());
  llvm::SmallVector<llvm::Constant*, 16> offsets;
  for (uint64_t i = 0; i < lanes(); ++i) {
    const uint64_t offset = (uint64_t{column} * lanes() + i) * step;
    offsets.push_back(llvm::ConstantInt::get(type, llvm::APInt(64, offset).trunc(type->getBitWidth())));
  }
  return b.CreateAdd(Splat(base), llvm::ConstantVector::get(offsets));
}

void GangTile::Set(ir::ValueId id, Tiled value) {
  const pass::Layout& layout = LayoutOf(id);
  HPVMD_CHECK(value.size() == RowsOf(layout) * (layout.kind == pass::Layout::Kind::kVarying ? columns() : 1));
  if (index_loads_[id.index]) {
    for (llvm::Value*& part : value) {
      part = b.CreateFreeze(part);
    }
  }
  values_[id.index] = std::move(value);
}

llvm::Value* GangTile::Operand(const ir::Op& op, uint32_t index, unsigned row) {
  return Scalar(OperandId(op, index), row);
}

llvm::Value* GangTile::Operand(const ir::Op& op, uint32_t index, unsigned row, unsigned column) {
  return Vector(OperandId(op, index), row, column);
}

void GangOps::EmitArith(const ir::Op& op) {
  const ir::ValueId result = op.first_result;
  const pass::Layout& layout = tile_.LayoutOf(result);
  const bool is_scalar = layout.kind != pass::Layout::Kind::kVarying;
  b_.setFastMathFlags(m_.FastMathOf(tile_.written_in));
  Tiled value;
  for (unsigned r = 0; r < tile_.RowsOf(layout); ++r) {
    const unsigned row = layout.by_row ? r : kAllRows;
    for (unsigned column = 0; column < (is_scalar ? 1 : tile_.columns()); ++column) {
      llvm::SmallVector<llvm::Value*, 3> operands;
      for (uint32_t i = 0; i < op.operand_count; ++i) {
        operands.push_back(is_scalar ? tile_.Operand(op, i, row) : tile_.Operand(op, i, row, column));
      }
      GangArith arith(tile_, masks_, traps_, row, column, is_scalar);
      value.push_back(arith.Emit(op, tile_.f.type_of(result), operands));
      if (!is_scalar && !value.back()->getType()->isVectorTy()) {
        value.back() = tile_.Splat(value.back());  // A constant in unreachable code.
      }
    }
  }
  tile_.Set(result, std::move(value));
}

llvm::Value* GangOps::EmitVector(const ir::Op& op, ir::Type result, llvm::ArrayRef<llvm::Value*> operands, unsigned row,
                                 unsigned column) {
  return GangArith(tile_, masks_, traps_, row, column, /*is_scalar=*/false).Emit(op, result, operands);
}

Slots GangTile::NewSlots(ir::ValueId like) {
  const pass::Layout& layout = LayoutOf(like);
  const bool is_scalar = layout.kind != pass::Layout::Kind::kVarying;
  llvm::Type* type = is_scalar ? TypeOf(like) : VectorOf(TypeOf(like));
  Slots slots;
  for (unsigned i = 0; i < RowsOf(layout) * (is_scalar ? 1 : columns()); ++i) {
    slots.push_back(entry.CreateAlloca(type));
  }
  return slots;
}

llvm::Value* GangMasks::PartMask(unsigned row, unsigned column) {
  if (mask_.empty()) {
    return llvm::ConstantInt::getTrue(tile_.VectorOf(b_.getInt1Ty()));
  }
  return row == kAllRows ? SharedMask(column) : mask_[row * tile_.columns() + column];
}

llvm::Value* GangMasks::SharedMask(unsigned column) {
  llvm::Value* shared = PartMask(0, column);
  for (unsigned row = 1; row < tile_.rows() && !mask_.empty(); ++row) {
    shared = b_.CreateOr(shared, PartMask(row, column));
  }
  return shared;
}

llvm::Value* GangMasks::RowIsActive(unsigned row) {
  if (mask_.empty() || tile_.rows() == 1 || row == kAllRows) {
    return nullptr;
  }
  llvm::Value* some = PartMask(row, 0);
  for (unsigned column = 1; column < tile_.columns(); ++column) {
    some = b_.CreateOr(some, PartMask(row, column));
  }
  return AnyOf(some);
}

llvm::Value* GangMasks::AnyOf(llvm::Value* lanes) {
  llvm::Type* bits = b_.getIntNTy(llvm::cast<llvm::FixedVectorType>(lanes->getType())->getNumElements());
  return b_.CreateICmpNE(b_.CreateBitCast(lanes, bits), llvm::ConstantInt::get(bits, 0));
}

llvm::Value* GangMasks::Any(const Mask& mask) {
  if (mask.empty()) {
    return b_.getTrue();
  }
  llvm::Value* some = mask[0];
  for (size_t i = 1; i < mask.size(); ++i) {
    some = b_.CreateOr(some, mask[i]);
  }
  return AnyOf(some);
}

llvm::Value* GangMasks::Both(llvm::Value* mask, llvm::Value* more) {
  return mask == nullptr ? more : b_.CreateSelect(mask, more, llvm::Constant::getNullValue(more->getType()));
}

llvm::Value* GangMasks::BitsOf(llvm::Value* lanes) {
  llvm::Type* bits = b_.getIntNTy(llvm::cast<llvm::FixedVectorType>(lanes->getType())->getNumElements());
  return b_.CreateZExt(b_.CreateBitCast(lanes, bits), b_.getInt64Ty());
}

llvm::Value* GangMasks::FirstLane(llvm::Value* lanes) {
  // The bit above the last lane stands for none. With 64 lanes there is no such bit, and cttz of zero gives 64.
  llvm::Value* first = b_.CreateBinaryIntrinsic(llvm::Intrinsic::cttz, BitsOf(lanes), b_.getFalse());
  return b_.CreateTrunc(b_.CreateAnd(first, tile_.I64(tile_.lanes() - 1)), b_.getInt32Ty());
}

}  // namespace hpvm::cpu
