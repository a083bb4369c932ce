// SPDX-License-Identifier: Apache-2.0
// Accesses that miss their own space: each active lane goes through the search of the instance's space, or traps.
#include <cstddef>

#include "compiler/back/llvm/gang/gang_memory.h"
#include "compiler/ir/cpu_abi.h"

namespace hpvm::cpu {

namespace {

constexpr uint64_t kLanesMax = 64;

}  // namespace

llvm::Value* GangAddress::LaneMisses(unsigned row, unsigned column, llvm::Value* valid) {
  llvm::Value* offsets = Offsets(row, column);
  if (offsets->getType()->getScalarSizeInBits() == 64) {
    return b_.CreateICmpUGE(offsets, tile_.Splat(valid));
  }
  // An offset of 2^32 - 1 may count as a miss: then the search finds it.
  llvm::Value* most = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, valid, I64(0xffffffffu));
  return b_.CreateICmpUGE(offsets, tile_.Splat(b_.CreateTrunc(most, b_.getInt32Ty())));
}

// Returns the address in the instance's space. Base and operand wrap in the address type, the immediate does not; the
// highest address, which is never valid, stands for addresses above 2^64.
llvm::Value* GangAddress::FlatAddress(llvm::Value* operand) {
  const bool is_vector = operand->getType()->isVectorTy();
  if (op_.space == Space::kParam) {
    llvm::Value* base =
        b_.CreateTrunc(frame_.OfParam(b_.getInt64Ty(), op_.space_index, offsetof(CpuArgument, base)), AddressType());
    operand = b_.CreateAdd(is_vector ? tile_.Splat(base) : base, operand);
  }
  llvm::Value* immediate = I64(op_.imm);
  return b_.CreateBinaryIntrinsic(llvm::Intrinsic::uadd_sat, Wide(operand),
                                  is_vector ? tile_.Splat(immediate) : immediate);
}

bool GangAddress::TrapUnlessSearched(unsigned row, unsigned column) {
  const bool is_searched = op_.space == Space::kFlat || op_.space == Space::kParam || op_.space == Space::kGroup;
  if (is_searched && (op_.space != Space::kParam || !m_.source.has_separate_buffers)) {
    return false;
  }
  llvm::Value* misses = LaneMisses(row, column, ValidOf(0));
  llvm::Value* code = b_.getInt32(static_cast<uint32_t>(TrapCode::kOutOfBounds));
  if (ir::IsState(op_.space)) {  // The state has no flat address.
    traps_.TrapIf(row, column, misses, code, op_.source);
    return true;
  }
  if (is_searched) {
    // If buffers have separate address spaces, the search would find nothing.
    llvm::Value* is_alone =
        b_.CreateICmpEQ(frame_.OfContext(b_.getInt64Ty(), offsetof(CpuContext, argument_count)), I64(0));
    misses = b_.CreateSelect(tile_.Splat(is_alone), misses, llvm::Constant::getNullValue(misses->getType()));
    if (is_store && reach.has_value()) {
      // The store is inside, and missed because the buffer must not be written.
      llvm::Value* valid = b_.CreateBinaryIntrinsic(llvm::Intrinsic::usub_sat, bytes, I64(*reach));
      code = b_.CreateSelect(LaneMisses(row, column, valid), tile_.Splat(code),
                             tile_.Splat(b_.getInt32(static_cast<uint32_t>(TrapCode::kReadOnlyBuffer))));
    }
  }
  llvm::Value* addresses = FlatAddress(tile_.Operand(op_, 0, row, column));
  traps_.TrapIf(row, column, misses, code, op_.source, addresses, I64(op_.width));
  return !is_searched;
}

llvm::Value* GangFrame::Scratch(uint32_t which) {
  llvm::Value*& array = loaded_[{kOfFrame, which}];
  if (array == nullptr) {
    const uint64_t words = which == kValues ? 2 * kLanesMax : kLanesMax;
    array = tile_.entry.CreateAlloca(llvm::ArrayType::get(tile_.b.getInt64Ty(), words));
  }
  return array;
}

llvm::Value* GangAccess::SearchColumn(unsigned row, unsigned column, llvm::Value* values) {
  llvm::Value* array = frame_.Scratch(GangFrame::kValues);
  if (values != nullptr) {
    b_.CreateAlignedStore(values, array, llvm::Align(8));
  }
  llvm::Value* addresses = place_.FlatAddress(tile_.Operand(op_, 0, row, column));
  if (op_.space == Space::kParam && m_.source.stack_frame.has_value()) {
    traps_.TrapIf(row, column, m_.IsOnStack(b_, op_, addresses),
                  b_.getInt32(static_cast<uint32_t>(TrapCode::kOutOfBounds)), op_.source, addresses, I64(op_.width));
  }
  b_.CreateAlignedStore(addresses, frame_.Scratch(GangFrame::kAddresses), llvm::Align(8));
  llvm::Value* lanes = masks_.BitsOf(masks_.PartMask(row, column));
  llvm::SmallVector<llvm::Value*, 6> arguments = {context(), frame_.Scratch(GangFrame::kAddresses), lanes, array};
  if (words_ == 1) {
    arguments.push_back(I64(op_.width));
  }
  const char* helper = place_.is_store ? (words_ > 1 ? "hpvm.gang.store128" : "hpvm.gang.store")
                                       : (words_ > 1 ? "hpvm.gang.load128" : "hpvm.gang.load");
  llvm::Value* found = b_.CreateCall(m_.Helper(helper), arguments);
  llvm::Value* code = b_.CreateExtractValue(found, 0);
  llvm::Value* lane = b_.CreateExtractValue(found, 1);
  llvm::Value* address = b_.CreateExtractElement(addresses, lane);
  traps_.TrapLaneIf(row, column, lane, b_.CreateICmpNE(code, b_.getInt32(0)), code, op_.source, address,
                    I64(op_.width));
  return array;
}

GangAccess::Row GangAccess::SearchLoad(unsigned row) {
  Row result;
  for (unsigned c = 0; c < columns_; ++c) {
    if (place_.TrapUnlessSearched(row, c)) {
      result.append(words_, llvm::PoisonValue::get(tile_.VectorOf(stored_)));
      continue;
    }
    llvm::Value* array = SearchColumn(row, c, nullptr);
    if (words_ == 1) {
      llvm::Value* bits = b_.CreateAlignedLoad(tile_.VectorOf(b_.getInt64Ty()), array, llvm::Align(8));
      bits = b_.CreateTrunc(bits, tile_.VectorOf(b_.getIntNTy(8 * word_bytes_)));
      result.push_back(b_.CreateBitCast(bits, tile_.VectorOf(stored_)));
      continue;
    }
    auto* type = llvm::FixedVectorType::get(stored_, lanes_ * words_);
    llvm::Value* all = b_.CreateAlignedLoad(type, array, llvm::Align(8));
    Deinterleave(all, &result);
  }
  return result;
}

// The row has one address: all columns load the same value, each on behalf of its own lanes.
GangAccess::Row GangAccess::SearchUniformLoad(unsigned row) {
  const Row columns = SearchLoad(row);
  Row result;
  for (unsigned w = 0; w < words_; ++w) {
    llvm::Value* value = nullptr;
    for (unsigned c = 0; c < columns_; ++c) {
      llvm::Value* lanes = masks_.PartMask(row, c);
      llvm::Value* found = b_.CreateExtractElement(columns[c * words_ + w], masks_.FirstLane(lanes));
      value = value == nullptr ? found : b_.CreateSelect(masks_.AnyOf(lanes), found, value);
    }
    result.push_back(value);
  }
  return result;
}

GangAccess::Row GangAccess::StoredWords(unsigned row, unsigned column) {
  Row words;
  for (unsigned w = 0; w < words_; ++w) {
    words.push_back(Narrow(tile_.Operand(op_, 1 + w, row, column)));
  }
  return words;
}

void GangAccess::SearchStore(unsigned row) {
  for (unsigned c = 0; c < columns_; ++c) {
    if (place_.TrapUnlessSearched(row, c)) {
      continue;
    }
    const Row words = StoredWords(row, c);
    if (words_ == 1) {
      SearchColumn(row, c, place_.Wide(b_.CreateBitCast(words[0], tile_.VectorOf(b_.getIntNTy(8 * word_bytes_)))));
      continue;
    }
    SearchColumn(row, c, Interleave(words));
  }
}

}  // namespace hpvm::cpu
