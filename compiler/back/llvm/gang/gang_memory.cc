// SPDX-License-Identifier: Apache-2.0
// Addresses of the lanes' bytes, and vector accesses where these are contiguous.
#include "compiler/back/llvm/gang/gang_memory.h"

#include <algorithm>
#include <cstddef>

#include "compiler/back/llvm/gang/gang.h"
#include "compiler/back/llvm/gang/gang_record.h"
#include "compiler/back/llvm/gang/gang_stack.h"
#include "compiler/ir/cpu_abi.h"

namespace hpvm::cpu {

namespace {

bool Is128(const ir::Op& op) { return op.code == Opcode::kLoad128 || op.code == Opcode::kStore128; }

// Limit in elements of strides accessed by wide vectors and shuffles, which need at least as many lanes: with fewer a
// vector would reach beyond the last lane's element.
constexpr uint32_t kStrideMax = 4;

int64_t SignedStep(const pass::Layout& layout, ir::Type type) {
  return type == ir::Type::kI32 ? int64_t{static_cast<int32_t>(layout.step)} : static_cast<int64_t>(layout.step);
}

}  // namespace

Status GangEmitter::EmitMemory(const ir::Op& op, ir::OpId id) {
  if (op.space == Space::kPrivate) {
    return ops_.EmitKept(op);
  }
  if (op.space == Space::kStack) {
    GangStackAccess(tile_, masks_, traps_, frame_, op, id).Emit();
    return absl::OkStatus();
  }
  if (EmitOfRecord(id)) {
    return absl::OkStatus();
  }
  switch (op.code) {
    case Opcode::kLoad:
    case Opcode::kLoad128:
      return GangAccess(tile_, masks_, traps_, frame_, op, id).EmitLoad();
    case Opcode::kStore:
    case Opcode::kStore128:
      return GangAccess(tile_, masks_, traps_, frame_, op, id).EmitStore();
    case Opcode::kMemorySize: {
      llvm::Value* bytes = tile_.fields.LoadInvariant(b_.getInt64Ty(), offsetof(CpuContext, memory_bytes));
      llvm::Value* pages = b_.CreateTrunc(b_.CreateLShr(bytes, 16), m_.TypeOf(f_.type_of(op.first_result)));
      const pass::Layout& layout = tile_.LayoutOf(op.first_result);
      const bool is_vector = layout.kind == pass::Layout::Kind::kVarying;
      const unsigned count = (layout.by_row ? tile_.kind.shape.rows : 1) * (is_vector ? tile_.kind.shape.columns : 1);
      tile_.Set(op.first_result, Tiled(count, is_vector ? b_.CreateVectorSplat(tile_.kind.shape.lanes, pages) : pages));
      return absl::OkStatus();
    }
    default:
      return Unimplemented("Instances in lockstep have no \"" + std::string(ir::Info(op.code).text) +
                           "\" (function \"" + f_.name + "\").");
  }
}

bool GangEmitter::EmitOfRecord(ir::OpId id) {
  const int32_t index = records_.of.empty() ? -1 : records_.of[id.index];
  if (index < 0 || !masks_.IsWhole()) {
    return false;
  }
  const pass::GangRecord& record = records_.records[static_cast<size_t>(index)];
  const bool is_proven =
      std::ranges::all_of(record.members, [&](ir::OpId member) { return tile_.proven[member.index]; });
  if (!is_proven || !GangRecordAccess::IsPossible(tile_, record)) {
    return false;
  }
  tile_.RemarkAccess(f_.op(id), std::string(record.is_store ? "The store" : "The load") + " is part of a record of " +
                                    std::to_string(record.span) + " words: whole vectors are transposed in registers.");
  if (id == (record.is_store ? record.members.back() : record.members.front())) {
    GangRecordAccess access(tile_, traps_, frame_, record);
    record.is_store ? access.EmitStores() : access.EmitLoads();
  }
  return true;
}

GangAccess::GangAccess(GangTile& tile, GangMasks& masks, GangTraps& traps, GangFrame& frame, const ir::Op& op,
                       ir::OpId id)
    : tile_(tile),
      masks_(masks),
      traps_(traps),
      frame_(frame),
      op_(op),
      place_(tile, traps, frame, op, id),
      at_(tile.LayoutOf(tile.f.operands_of(op)[0])),
      lanes_(tile.lanes()),
      columns_(tile.columns()),
      words_(Is128(op) ? 4 : 1),
      word_bytes_(op.width / words_),
      gives_up_(!tile.gives_up.empty() && tile.gives_up[id.index] &&
                (op.code == Opcode::kLoad || op.code == Opcode::kLoad128)) {
  const bool is_whole = words_ > 1 || op.width == ir::Bytes(op.type);
  stored_ = words_ > 1 ? b_.getInt32Ty() : is_whole ? m_.TypeOf(op.type) : b_.getIntNTy(8u * op.width);
  FindForm();
}

// --- Addresses.

GangAddress::GangAddress(GangTile& tile, GangTraps& traps, GangFrame& frame, const ir::Op& op, ir::OpId id)
    : is_store((ir::Info(op.code).effects & ir::kWrites) != 0),
      is_known(tile.kind.is_unchecked && (op.space == Space::kParam || op.space == Space::kGroup) &&
               tile.proven[id.index]),
      tile_(tile),
      traps_(traps),
      frame_(frame),
      op_(op) {
  if (op.imm <= ~uint64_t{0} - (op.width - 1u)) {
    reach = op.imm + (op.width - 1u);
  }
  FindPlace();
}

llvm::Value* GangFrame::OfContext(llvm::Type* type, uint64_t offset) {
  llvm::Value*& value = loaded_[{kOfContext, offset}];
  if (value == nullptr) {
    value = tile_.entry_fields.LoadInvariant(type, offset);
  }
  return value;
}

llvm::Value* GangFrame::OfParam(llvm::Type* type, uint32_t param, uint64_t offset) {
  llvm::Value*& value = loaded_[{param, offset}];
  if (value == nullptr) {
    value = tile_.entry_fields.LoadArgument(type, param, offset);
  }
  return value;
}

void GangAddress::FindPlace() {
  llvm::Type* i64 = b_.getInt64Ty();
  imm = op_.imm;
  switch (op_.space) {
    case Space::kParam:
      data = frame_.OfParam(b_.getPtrTy(), op_.space_index, offsetof(CpuArgument, data));
      bytes = frame_.OfParam(i64, op_.space_index, offsetof(CpuArgument, bytes));
      return;
    case Space::kGroup: {
      // The immediate is part of the bias: only the sum has to lie above the base.
      data = frame_.OfContext(b_.getPtrTy(), offsetof(CpuContext, group_memory));
      llvm::Value* base = frame_.OfContext(i64, offsetof(CpuContext, group_memory_base));
      bias_ = tile_.entry.CreateTrunc(tile_.entry.CreateSub(base, I64(op_.imm)), AddressType());
      imm = 0;
      // Group memory may grow between accesses.
      bytes = tile_.fields.Load(i64, offsetof(CpuContext, group_memory_used));
      return;
    }
    case Space::kState:
    case Space::kScratch:
      data = frame_.OfContext(b_.getPtrTy(), offsetof(CpuContext, state));
      bytes = I64(m_.source.state_bytes);
      return;
    default:
      data = frame_.OfContext(b_.getPtrTy(), offsetof(CpuContext, memory));
      bytes = frame_.OfContext(i64, offsetof(CpuContext, memory_bytes));
      return;
  }
}

llvm::Value* GangAddress::ValidOf(uint64_t span) {
  llvm::IRBuilder<>& b = op_.space == Space::kGroup ? b_ : tile_.entry;
  if (!reach.has_value() || *reach > ~uint64_t{0} - span) {
    return I64(0);
  }
  llvm::Value* inside = bytes;
  if (op_.space == Space::kParam && is_store) {
    // No access fits into a buffer that must not be written; the search then reports it.
    llvm::Value* writable = frame_.OfParam(b_.getInt64Ty(), op_.space_index, offsetof(CpuArgument, writable));
    inside = b.CreateSelect(b.CreateICmpNE(writable, I64(0)), inside, I64(0));
  } else if (op_.space == Space::kGroup) {
    // If the immediate were above the base, an address could wrap in its type and seem to be inside.
    llvm::Value* base = frame_.OfContext(b_.getInt64Ty(), offsetof(CpuContext, group_memory_base));
    inside = b.CreateSelect(b.CreateICmpUGE(base, I64(op_.imm)), inside, I64(0));
    return b.CreateBinaryIntrinsic(llvm::Intrinsic::usub_sat, inside, I64(op_.width - 1u + span));
  }
  return b.CreateBinaryIntrinsic(llvm::Intrinsic::usub_sat, inside, I64(*reach + span));
}

void GangAccess::FindForm() {
  is_shared_ = !at_.by_row;
  for (uint32_t i = 1; i < op_.operand_count; ++i) {
    is_shared_ = is_shared_ && !tile_.LayoutOf(tile_.f.operands_of(op_)[i]).by_row;
  }
  if (at_.kind == pass::Layout::Kind::kUniform) {
    form_ = Form::kUniform;
    return;
  }
  if (IsTransposed() && ir::Info(op_.code).family == ir::Family::kMemory) {
    form_ = Form::kTransposed;
  }
  if (at_.kind != pass::Layout::Kind::kLinear) {
    return;
  }
  step_ = SignedStep(at_, tile_.f.type_of(tile_.f.operands_of(op_)[0]));
  const int64_t width = op_.width;
  if (step_ == width) {
    form_ = words_ == 1 ? Form::kContiguous : Form::kStrided;
  } else if (step_ == -width && words_ == 1) {
    form_ = Form::kReversed;
  } else if (words_ == 1 && masks_.IsWhole() && step_ % width == 0 && step_ / width >= 2 &&
             step_ / width <= kStrideMax && lanes_ >= kStrideMax) {
    form_ = Form::kStrided;
  }
}

void GangAccess::Remark() const {
  const std::string what = place_.is_store ? "The store " : "The load ";
  const std::string how =
      form_ == Form::kUniform      ? "is one scalar for all lanes"
      : form_ == Form::kContiguous ? "is contiguous"
      : form_ == Form::kReversed   ? "is contiguous in reverse"
      : form_ == Form::kTransposed ? "is contiguous along y: vectors of rows are transposed in registers"
      : form_ == Form::kStrided    ? "has a stride of " + std::to_string(step_) + " bytes: " +
                                      (!place_.is_store ? "wide loads and shuffles"
                                       : words_ > 1     ? "shuffles and wide stores"
                                                        : "shuffles and masked stores")
      : at_.kind == pass::Layout::Kind::kLinear
          ? "has a stride of " + std::to_string(step_) + " bytes: " + (place_.is_store ? "a scatter" : "a gather")
          : std::string(place_.is_store ? "scatters" : "gathers");
  const std::string rows_share = tile_.rows() > 1 && is_shared_ ? "; rows share it" : "";
  tile_.RemarkAccess(op_, what + how + rows_share + ".");
}

void GangTile::RemarkAccess(const ir::Op& op, std::string text) const {
  if (report == nullptr) {
    return;
  }
  KernelRemark remark{KernelRemark::Kind::kAccess, op.source, std::move(text)};
  const bool is_new = std::ranges::none_of(
      report->remarks, [&](const KernelRemark& r) { return r.kind == remark.kind && r.source == remark.source; });
  if (is_new) {
    report->remarks.push_back(std::move(remark));
  }
}

llvm::Value* GangAccess::MaskOf(unsigned row, unsigned column) {
  if (masks_.IsWhole()) {
    return nullptr;
  }
  return masks_.PartMask(row, column);
}

llvm::Value* GangAddress::OffsetOf(llvm::Value* operand) {
  return bias_ == nullptr ? operand : b_.CreateSub(operand, bias_);
}

llvm::Value* GangAddress::Offset(unsigned row) { return OffsetOf(tile_.Operand(op_, 0, row)); }

llvm::Value* GangAddress::Offsets(unsigned row, unsigned column) {
  llvm::Value* operand = tile_.Operand(op_, 0, row, column);
  return bias_ == nullptr ? operand : b_.CreateSub(operand, tile_.Splat(bias_));
}

llvm::Value* GangAddress::Wide(llvm::Value* value) {
  llvm::Type* i64 = b_.getInt64Ty();
  return b_.CreateZExt(value, value->getType()->isVectorTy() ? tile_.VectorOf(i64) : i64);
}

llvm::Value* GangAddress::Added(llvm::Value* pointer, uint64_t bytes) {
  return bytes == 0 ? pointer : b_.CreateGEP(b_.getInt8Ty(), pointer, I64(bytes));
}

// Excludes the immediate. `may_be_below`: the offset may be that of an inactive lane and then negative. Buffers of
// accesses known to be inside have at most 2^31 bytes, so the offset's sign is well defined.
llvm::Value* GangAddress::Pointer(llvm::Value* offset, bool may_be_below) {
  llvm::Type* i64 = b_.getInt64Ty();
  if (offset->getType() != i64) {
    offset = is_known && may_be_below ? b_.CreateSExt(offset, i64) : b_.CreateZExt(offset, i64, "", is_known);
  }
  return b_.CreateGEP(b_.getInt8Ty(), data, offset);
}

// Finds the address of the lowest lane, and whether the row is inside. Accesses known to be inside, and whole rows,
// count from the row's first lane.
GangAccess::Run GangAccess::FindRun(unsigned row) {
  if (!place_.is_known && !masks_.IsWhole()) {
    return FindMaskedRun(row);
  }
  Run run;
  const uint64_t stride = static_cast<uint64_t>(step_ < 0 ? -step_ : step_);
  const uint64_t span = (lanes_ * columns_ - 1) * stride;
  llvm::Value* lowest = place_.Offset(row);
  if (step_ < 0) {
    lowest = b_.CreateSub(lowest, llvm::ConstantInt::get(lowest->getType(), span));
  }
  if (!place_.is_known) {
    run.misses = b_.CreateICmpUGE(place_.Wide(lowest), place_.ValidOf(span));
  }
  llvm::Value* pointer = place_.Pointer(lowest, !masks_.IsWhole());
  for (unsigned c = 0; c < columns_; ++c) {
    const uint64_t before = step_ < 0 ? columns_ - 1 - c : c;
    run.columns.push_back(place_.Added(pointer, before * lanes_ * stride + place_.imm));
  }
  return run;
}

// Tests each column from the first to the last active lane, because the offsets of other lanes may have wrapped.
GangAccess::Run GangAccess::FindMaskedRun(unsigned row) {
  Run run;
  llvm::Type* i64 = b_.getInt64Ty();
  const uint64_t stride = static_cast<uint64_t>(step_ < 0 ? -step_ : step_);
  llvm::Value* offset = place_.Offset(row);
  llvm::Type* type = offset->getType();
  for (unsigned c = 0; c < columns_; ++c) {
    llvm::Value* bits = b_.CreateBitCast(MaskOf(row, c), b_.getIntNTy(lanes_));
    auto count = [&](llvm::Intrinsic::ID id) {
      return b_.CreateZExtOrTrunc(b_.CreateBinaryIntrinsic(id, bits, b_.getFalse()), i64);
    };
    llvm::Value* first = count(llvm::Intrinsic::cttz);
    llvm::Value* last = b_.CreateSub(I64(lanes_ - 1), count(llvm::Intrinsic::ctlz));
    llvm::Value* low_lane = step_ < 0 ? last : first;
    llvm::Value* steps = b_.CreateMul(b_.CreateTrunc(low_lane, type), llvm::ConstantInt::getSigned(type, step_));
    llvm::Value* before = llvm::ConstantInt::get(type, static_cast<uint64_t>(step_) * c * lanes_, false, true);
    llvm::Value* low = place_.Wide(b_.CreateAdd(b_.CreateAdd(offset, before), steps));
    llvm::Value* span = b_.CreateMul(b_.CreateSub(last, first), I64(stride));
    llvm::Value* valid = b_.CreateBinaryIntrinsic(llvm::Intrinsic::usub_sat, place_.ValidOf(0), span);
    llvm::Value* some = b_.CreateICmpNE(bits, llvm::ConstantInt::get(bits->getType(), 0));
    llvm::Value* misses = b_.CreateSelect(some, b_.CreateICmpUGE(low, valid), b_.getFalse());
    run.misses = run.misses == nullptr ? misses : b_.CreateOr(run.misses, misses);
    llvm::Value* back = step_ < 0 ? b_.CreateSub(I64(lanes_ - 1), last) : first;
    llvm::Value* start = b_.CreateSub(low, b_.CreateMul(back, I64(stride)));
    run.columns.push_back(place_.Added(b_.CreateGEP(b_.getInt8Ty(), place_.data, start), place_.imm));
  }
  return run;
}

// --- Accesses inside.

llvm::Instruction* GangAccess::Tag(llvm::Instruction* access) {
  access->setMetadata(llvm::LLVMContext::MD_tbaa, m_.kernel_tag);
  return access;
}

llvm::Value* GangAccess::Narrow(llvm::Value* value) {
  llvm::Type* type = value->getType()->isVectorTy() ? tile_.VectorOf(stored_) : stored_;
  return value->getType() == type ? value : b_.CreateTrunc(value, type);
}

llvm::Value* GangAccess::Widen(llvm::Value* value) {
  llvm::Type* type = words_ > 1 ? stored_ : m_.TypeOf(op_.type);
  type = value->getType()->isVectorTy() ? tile_.VectorOf(type) : type;
  return value->getType() == type ? value : op_.sign ? b_.CreateSExt(value, type) : b_.CreateZExt(value, type);
}

llvm::Value* GangAccess::LoadColumn(llvm::Value* pointer, llvm::Value* mask) {
  llvm::Type* type = tile_.VectorOf(stored_);
  if (mask == nullptr) {
    return Tag(b_.CreateAlignedLoad(type, pointer, llvm::Align(1)));
  }
  return Tag(b_.CreateMaskedLoad(type, pointer, llvm::Align(1), mask, llvm::PoisonValue::get(type)));
}

void GangAccess::StoreColumn(llvm::Value* pointer, llvm::Value* mask, llvm::Value* value) {
  Tag(mask == nullptr ? static_cast<llvm::Instruction*>(b_.CreateAlignedStore(value, pointer, llvm::Align(1)))
                      : b_.CreateMaskedStore(value, pointer, llvm::Align(1), mask));
}

GangAccess::Row GangAccess::LoadInside(unsigned row, const Run& run) {
  Row result;
  for (unsigned c = 0; c < columns_; ++c) {
    llvm::Value* mask = MaskOf(row, c);
    switch (form_) {
      case Form::kContiguous:
        result.push_back(LoadColumn(run.columns[c], mask));
        break;
      case Form::kReversed:
        mask = mask == nullptr ? nullptr : b_.CreateVectorReverse(mask);
        result.push_back(b_.CreateVectorReverse(LoadColumn(run.columns[c], mask)));
        break;
      case Form::kStrided:
        if (words_ > 1) {
          LoadInterleaved(run.columns[c], mask, &result);
        } else {
          result.push_back(LoadStrided(run.columns[c]));
        }
        break;
      default:
        for (unsigned w = 0; w < words_; ++w) {
          result.push_back(Gather(row, c, w));
        }
    }
  }
  return result;
}

void GangAccess::StoreInside(unsigned row, const Run& run) {
  for (unsigned c = 0; c < columns_; ++c) {
    llvm::Value* mask = MaskOf(row, c);
    const Row words = StoredWords(row, c);
    if (form_ == Form::kContiguous) {
      StoreColumn(run.columns[c], mask, words[0]);
    } else if (form_ == Form::kReversed) {
      mask = mask == nullptr ? nullptr : b_.CreateVectorReverse(mask);
      StoreColumn(run.columns[c], mask, b_.CreateVectorReverse(words[0]));
    } else if (form_ == Form::kStrided && words_ > 1) {
      StoreInterleaved(run.columns[c], mask, words);
    } else if (form_ == Form::kStrided) {
      StoreStrided(run.columns[c], words[0]);
    } else {
      for (unsigned w = 0; w < words_; ++w) {
        Scatter(row, c, w, words[w]);
      }
    }
  }
}

llvm::Value* GangAccess::Misses(unsigned row, const Run& run) {
  if (place_.is_known || form_ != Form::kVarying) {
    return run.misses;
  }
  llvm::Value* misses = nullptr;
  llvm::Value* valid = place_.ValidOf(0);
  for (unsigned c = 0; c < columns_; ++c) {
    llvm::Value* lanes = place_.LaneMisses(row, c, valid);
    llvm::Value* mask = MaskOf(row, c);
    lanes = masks_.Both(mask, lanes);
    misses = misses == nullptr ? lanes : b_.CreateOr(misses, lanes);
  }
  return masks_.AnyOf(misses);
}

GangAccess::Row GangAccess::Split(llvm::Value* misses, llvm::function_ref<Row()> inside,
                                  llvm::function_ref<Row()> search) {
  if (misses == nullptr) {
    return inside();
  }
  llvm::BasicBlock* inside_block = tile_.NewBlock("inside");
  if (gives_up_) {
    b_.CreateCondBr(misses, tile_.Mixed(), inside_block, llvm::MDBuilder(m_.context()).createUnlikelyBranchWeights());
    b_.SetInsertPoint(inside_block);
    return inside();
  }
  llvm::BasicBlock* search_block = tile_.NewBlock("search");
  llvm::BasicBlock* done = tile_.NewBlock("accessed");
  b_.CreateCondBr(misses, search_block, inside_block, llvm::MDBuilder(m_.context()).createUnlikelyBranchWeights());
  b_.SetInsertPoint(search_block);
  const Row searched = search();
  llvm::BasicBlock* search_end = b_.GetInsertBlock();
  b_.CreateBr(done);
  b_.SetInsertPoint(inside_block);
  const Row found = inside();
  llvm::BasicBlock* inside_end = b_.GetInsertBlock();
  b_.CreateBr(done);
  b_.SetInsertPoint(done);
  Row result;
  for (size_t i = 0; i < found.size(); ++i) {
    llvm::PHINode* merged = b_.CreatePHI(found[i]->getType(), 2);
    merged->addIncoming(searched[i], search_end);
    merged->addIncoming(found[i], inside_end);
    result.push_back(merged);
  }
  return result;
}

void GangAccess::Guarded(llvm::Value* condition, llvm::function_ref<void()> body) {
  if (condition == nullptr) {
    return body();
  }
  llvm::BasicBlock* some = tile_.NewBlock("some");
  llvm::BasicBlock* next = tile_.NewBlock("next");
  b_.CreateCondBr(condition, some, next);
  b_.SetInsertPoint(some);
  body();
  b_.CreateBr(next);
  b_.SetInsertPoint(next);
}

// --- Whole operations.

// Before an access that is known to be inside: traps in lanes that are outside. Compares each lane's own offset,
// because an audit must not depend on how the access is emitted.
void GangAddress::Audit() {
  if (!is_known || !m_.machine.audits_proofs) {
    return;
  }
  for (unsigned row = 0; row < tile_.rows(); ++row) {
    for (unsigned column = 0; column < tile_.columns(); ++column) {
      llvm::Value* misses = b_.CreateICmpUGE(Wide(Offsets(row, column)), tile_.Splat(ValidOf(0)));
      traps_.TrapIf(row, column, misses, b_.getInt32(static_cast<uint32_t>(ir::TrapCode::kWrongProof)), op_.source,
                    FlatAddress(tile_.Operand(op_, 0, row, column)), I64(op_.width));
    }
  }
}

Status GangAccess::EmitLoad() {
  Remark();
  place_.Audit();
  if (form_ == Form::kTransposed) {
    tile_.Set(op_.first_result, LoadTransposed());
    return absl::OkStatus();
  }
  const pass::Layout& layout = tile_.LayoutOf(op_.first_result);
  const bool is_vector = layout.kind == pass::Layout::Kind::kVarying;
  llvm::SmallVector<Tiled, 4> results(words_);
  Row row_words;
  for (unsigned r = 0; r < tile_.RowsOf(layout); ++r) {
    const unsigned row = at_.by_row ? r : kAllRows;
    if (r != 0 && !at_.by_row) {
      // Rows share the address and the loaded value.
    } else if (form_ == Form::kUniform) {
      row_words = LoadUniform(row);
    } else {
      const Run run = form_ == Form::kVarying ? Run() : FindRun(row);
      row_words = Split(
          Misses(row, run), [&] { return LoadInside(row, run); }, [&] { return SearchLoad(row); });
    }
    for (unsigned i = 0; i < (is_vector ? columns_ : 1) * words_; ++i) {
      llvm::Value* value = Widen(row_words[form_ == Form::kUniform ? i % words_ : i]);
      results[i % words_].push_back(is_vector && form_ == Form::kUniform ? tile_.Splat(value) : value);
    }
  }
  for (unsigned w = 0; w < words_; ++w) {
    tile_.Set(ir::ValueId(op_.first_result.index + w), std::move(results[w]));
  }
  return absl::OkStatus();
}

Status GangAccess::EmitStore() {
  if (op_.space != Space::kParam && op_.space != Space::kGroup) {
    return Unimplemented("Instances in lockstep cannot store to space " + std::string(ir::Name(op_.space)) +
                         " (function \"" + tile_.f.name + "\").");
  }
  Remark();
  place_.Audit();
  if (form_ == Form::kTransposed) {
    StoreTransposed();
    return absl::OkStatus();
  }
  for (unsigned r = 0; r < (is_shared_ ? 1 : tile_.rows()); ++r) {
    const unsigned row = is_shared_ ? kAllRows : r;
    if (form_ == Form::kUniform) {
      StoreUniform(row);
      continue;
    }
    const Run run = form_ == Form::kVarying ? Run() : FindRun(row);
    auto inside = [&] {
      StoreInside(row, run);
      return Row();
    };
    Split(Misses(row, run), inside, [&] {
      SearchStore(row);
      return Row();
    });
  }
  return absl::OkStatus();
}

}  // namespace hpvm::cpu
