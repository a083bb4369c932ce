// SPDX-License-Identifier: Apache-2.0
// Accesses of lanes whose bytes are not contiguous.
#include "compiler/back/llvm/gang/gang_memory.h"

namespace hpvm::cpu {

// Returns a pointer for each offset plus `imm`. Gathers take signed 32-bit indices: accesses known to be inside have
// offsets below 2^31; for others the offsets are lowered by 2^31, and the base raised.
llvm::Value* GangAccess::Pointers(llvm::Value* offsets, uint64_t imm) {
  llvm::Type* i64 = tile_.VectorOf(b_.getInt64Ty());
  uint64_t base = imm;
  if (offsets->getType() != i64) {
    if (!place_.is_known) {
      base += uint64_t{1} << 31;
      offsets = b_.CreateXor(offsets, tile_.Splat(b_.getInt32(uint32_t{1} << 31)));
    }
    offsets = b_.CreateSExt(offsets, i64);
  }
  return b_.CreateGEP(b_.getInt8Ty(), place_.Added(place_.data, base), offsets);
}

llvm::Value* GangAccess::Gather(unsigned row, unsigned column, unsigned word) {
  if (word_bytes_ < 4) {
    return GatherNarrow(row, column);
  }
  llvm::Value* pointers = Pointers(place_.Offsets(row, column), place_.imm + word * word_bytes_);
  return Tag(b_.CreateMaskedGather(tile_.VectorOf(stored_), pointers, llvm::Align(1), MaskOf(row, column)));
}

// The processor gathers at least 4 bytes: from the address on or, near the buffer's end, from before it.
llvm::Value* GangAccess::GatherNarrow(unsigned row, unsigned column) {
  llvm::Value* offsets = place_.Offsets(row, column);
  auto* type = llvm::cast<llvm::VectorType>(offsets->getType());
  llvm::Type* scalar = type->getElementType();
  offsets = b_.CreateAdd(offsets, tile_.Splat(llvm::ConstantInt::get(scalar, place_.imm, false, true)));
  llvm::Value* last = b_.CreateBinaryIntrinsic(llvm::Intrinsic::usub_sat, place_.bytes, I64(4));
  llvm::Value* lowered =
      b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, offsets, tile_.Splat(b_.CreateTrunc(last, scalar)));
  llvm::Value* behind = b_.CreateShl(b_.CreateSub(offsets, lowered), tile_.Splat(llvm::ConstantInt::get(scalar, 3)));
  llvm::Type* words = tile_.VectorOf(b_.getInt32Ty());
  auto many = [&]() -> Row {
    llvm::Value* pointers = Pointers(lowered, 0);
    return {Tag(b_.CreateMaskedGather(words, pointers, llvm::Align(1), MaskOf(row, column)))};
  };
  llvm::Value* is_tiny = b_.CreateICmpULT(place_.bytes, I64(4));
  llvm::Value* gathered = Split(is_tiny, many, [&]() -> Row { return {tile_.Splat(TinyWord())}; })[0];
  return b_.CreateTrunc(b_.CreateLShr(gathered, b_.CreateZExtOrTrunc(behind, words)), tile_.VectorOf(stored_));
}

// Returns the content of a buffer of less than 4 bytes as one word.
llvm::Value* GangAccess::TinyWord() {
  llvm::Value* word = b_.getInt32(0);
  for (unsigned i = 0; i < 3; ++i) {
    llvm::Value* pointer =
        b_.CreateSelect(b_.CreateICmpULT(I64(i), place_.bytes), place_.Added(place_.data, i), context());
    llvm::Value* byte = Tag(b_.CreateAlignedLoad(b_.getInt8Ty(), pointer, llvm::Align(1)));
    word = b_.CreateOr(word, b_.CreateShl(b_.CreateZExt(byte, b_.getInt32Ty()), 8 * i));
  }
  return word;
}

// Returns the starts, in elements from the first lane's, of the vectors that cover strides of two to four elements. As
// many adjacent vectors are needed; the last one ends with the last lane's element, because bytes after it may be
// outside.
llvm::SmallVector<unsigned, 4> GangAccess::StridedStarts() const {
  const auto stride = static_cast<unsigned>(step_ / op_.width);
  const unsigned end = (lanes_ - 1) * stride + 1;
  llvm::SmallVector<unsigned, 4> starts;
  for (unsigned i = 0; i < stride; ++i) {
    starts.push_back(i + 1 < stride ? i * lanes_ : end - lanes_);
  }
  return starts;
}

llvm::Value* GangAccess::LoadStrided(llvm::Value* pointer) {
  const auto stride = static_cast<unsigned>(step_ / op_.width);
  const llvm::SmallVector<unsigned, 4> starts = StridedStarts();
  llvm::SmallVector<llvm::Value*, 4> parts;
  for (const unsigned start : starts) {
    parts.push_back(LoadColumn(place_.Added(pointer, start * op_.width), nullptr));
  }
  // Lanes of `a` come first; lanes in neither vector may hold any value.
  auto pick = [&](unsigned a, unsigned b) {
    llvm::SmallVector<int, 64> lanes;
    for (unsigned i = 0; i < lanes_; ++i) {
      const unsigned at = i * stride;
      const unsigned part = std::min(at / lanes_, stride - 1);
      lanes.push_back(part == a   ? static_cast<int>(at - starts[a])
                      : part == b ? static_cast<int>(lanes_ + at - starts[b])
                                  : -1);
    }
    return b_.CreateShuffleVector(parts[a], parts[b], lanes);
  };
  llvm::Value* result = pick(0, 1);
  if (stride == 2) {
    return result;
  }
  llvm::Value* rest = stride == 3 ? pick(2, 2) : pick(2, 3);
  llvm::SmallVector<int, 64> lanes;
  for (unsigned i = 0; i < lanes_; ++i) {
    lanes.push_back(static_cast<int>(i * stride / lanes_ < 2 ? i : lanes_ + i));
  }
  return b_.CreateShuffleVector(result, rest, lanes);
}

// Does not touch the bytes between the lanes' elements, which other instances may write at the same time.
void GangAccess::StoreStrided(llvm::Value* pointer, llvm::Value* value) {
  const auto stride = static_cast<unsigned>(step_ / op_.width);
  const llvm::SmallVector<unsigned, 4> starts = StridedStarts();
  for (unsigned part = 0; part < stride; ++part) {
    llvm::SmallVector<int, 64> lanes(lanes_, -1);
    llvm::SmallVector<llvm::Constant*, 64> is_stored(lanes_, b_.getFalse());
    for (unsigned i = 0; i < lanes_; ++i) {
      if (std::min(i * stride / lanes_, stride - 1) == part) {
        lanes[i * stride - starts[part]] = static_cast<int>(i);
        is_stored[i * stride - starts[part]] = b_.getTrue();
      }
    }
    StoreColumn(place_.Added(pointer, uint64_t{starts[part]} * op_.width), llvm::ConstantVector::get(is_stored),
                b_.CreateShuffleVector(value, lanes));
  }
}

// Returns the lanes' mask with each lane repeated for its four words.
llvm::Value* GangAccess::InterleavedMask(llvm::Value* mask) {
  llvm::SmallVector<int, 64> lanes;
  for (unsigned i = 0; i < lanes_ * words_; ++i) {
    lanes.push_back(static_cast<int>(i / words_));
  }
  return b_.CreateShuffleVector(mask, lanes);
}

// Loads four words per lane, lane after lane.
void GangAccess::LoadInterleaved(llvm::Value* pointer, llvm::Value* mask, Row* row) {
  auto* type = llvm::FixedVectorType::get(stored_, lanes_ * words_);
  llvm::Value* all = nullptr;
  if (mask == nullptr) {
    all = Tag(b_.CreateAlignedLoad(type, pointer, llvm::Align(1)));
  } else {
    all = Tag(b_.CreateMaskedLoad(type, pointer, llvm::Align(1), InterleavedMask(mask), llvm::PoisonValue::get(type)));
  }
  Deinterleave(all, row);
}

void GangAccess::StoreInterleaved(llvm::Value* pointer, llvm::Value* mask, const Row& words) {
  StoreColumn(pointer, mask == nullptr ? nullptr : InterleavedMask(mask), Interleave(words));
}

void GangAccess::Deinterleave(llvm::Value* all, Row* row) {
  for (unsigned w = 0; w < words_; ++w) {
    llvm::SmallVector<int, 64> lanes;
    for (unsigned i = 0; i < lanes_; ++i) {
      lanes.push_back(static_cast<int>(i * words_ + w));
    }
    row->push_back(b_.CreateShuffleVector(all, lanes));
  }
}

llvm::Value* GangAccess::Interleave(const Row& words) {
  llvm::SmallVector<int, 64> pick, join;
  for (unsigned i = 0; i < 2 * lanes_; ++i) {
    pick.push_back(static_cast<int>(i));
  }
  llvm::Value* low = b_.CreateShuffleVector(words[0], words[1], pick);
  llvm::Value* high = b_.CreateShuffleVector(words[2], words[3], pick);
  for (unsigned i = 0; i < lanes_ * words_; ++i) {
    join.push_back(static_cast<int>((i % words_) * lanes_ + i / words_));
  }
  return b_.CreateShuffleVector(low, high, join);
}

void GangAccess::Scatter(unsigned row, unsigned column, unsigned word, llvm::Value* value) {
  llvm::Value* pointers = Pointers(place_.Offsets(row, column), place_.imm + word * word_bytes_);
  Tag(b_.CreateMaskedScatter(value, pointers, llvm::Align(1), MaskOf(row, column)));
}

}  // namespace hpvm::cpu
