// SPDX-License-Identifier: Apache-2.0
// Accesses in which all lanes of a row want the same bytes: one scalar access.
#include "compiler/back/llvm/gang/gang_memory.h"

namespace hpvm::cpu {

// Returns the address; a row without an active lane loads some other bytes, which are never used.
llvm::Value* GangAccess::UniformPointer(unsigned row, llvm::Value* active, llvm::Value** misses) {
  llvm::Value* offset = place_.Offset(row);
  llvm::Value* pointer = place_.Added(place_.Pointer(offset, false), place_.imm);
  *misses = place_.is_known ? nullptr : b_.CreateICmpUGE(place_.Wide(offset), place_.ValidOf(0));
  if (active != nullptr) {
    pointer = b_.CreateSelect(active, pointer, context());
    *misses = *misses == nullptr ? nullptr : b_.CreateSelect(active, *misses, b_.getFalse());
  }
  return pointer;
}

GangAccess::Row GangAccess::LoadScalars(llvm::Value* pointer) {
  if (words_ == 1) {
    return {Tag(b_.CreateAlignedLoad(stored_, pointer, llvm::Align(1)))};
  }
  llvm::Value* words = Tag(b_.CreateAlignedLoad(llvm::FixedVectorType::get(stored_, words_), pointer, llvm::Align(1)));
  Row result;
  for (unsigned w = 0; w < words_; ++w) {
    result.push_back(b_.CreateExtractElement(words, uint64_t{w}));
  }
  return result;
}

void GangAccess::StoreScalars(llvm::Value* pointer, const Row& values) {
  for (unsigned w = 0; w < words_; ++w) {
    Tag(b_.CreateAlignedStore(values[w], place_.Added(pointer, w * word_bytes_), llvm::Align(1)));
  }
}

GangAccess::Row GangAccess::LoadUniform(unsigned row) {
  llvm::Value* misses = nullptr;
  llvm::Value* pointer = UniformPointer(row, masks_.RowIsActive(row), &misses);
  return Split(
      misses, [&] { return LoadScalars(pointer); }, [&] { return SearchUniformLoad(row); });
}

// Returns the value of the last active lane, because lanes take effect as if they ran one after the other.
llvm::Value* GangAccess::LastActive(unsigned row, uint32_t operand) {
  if (tile_.LayoutOf(tile_.f.operands_of(op_)[operand]).kind == pass::Layout::Kind::kUniform) {
    return tile_.Operand(op_, operand, row);
  }
  if (masks_.IsWhole()) {
    return b_.CreateExtractElement(tile_.Operand(op_, operand, row, columns_ - 1), uint64_t{lanes_ - 1});
  }
  llvm::Value* last = nullptr;
  for (unsigned c = 0; c < columns_; ++c) {
    llvm::Value* bits = masks_.BitsOf(MaskOf(row, c));
    llvm::Value* lane = b_.CreateSub(I64(63), b_.CreateBinaryIntrinsic(llvm::Intrinsic::ctlz, bits, b_.getFalse()));
    llvm::Value* some = b_.CreateICmpNE(bits, I64(0));
    llvm::Value* value = tile_.Operand(op_, operand, row, c);
    value = b_.CreateExtractElement(value, b_.CreateSelect(some, lane, I64(0)));
    last = last == nullptr ? value : b_.CreateSelect(some, value, last);
  }
  return last;
}

void GangAccess::StoreUniform(unsigned row) {
  Guarded(masks_.RowIsActive(row), [&] {
    llvm::Value* misses = nullptr;
    llvm::Value* pointer = UniformPointer(row, nullptr, &misses);
    auto inside = [&] {
      Row values;
      for (unsigned w = 0; w < words_; ++w) {
        values.push_back(Narrow(LastActive(row, 1 + w)));
      }
      StoreScalars(pointer, values);
      return Row();
    };
    Split(misses, inside, [&] {
      SearchStore(row);
      return Row();
    });
  });
}

}  // namespace hpvm::cpu
