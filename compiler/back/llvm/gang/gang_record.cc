// SPDX-License-Identifier: Apache-2.0
// Records of up to four adjacent words are accessed as that many whole vectors, from which shuffles pick the words. In
// other records each lane's words are loaded in blocks, with lanes that are a block size apart side by side in one
// vector, and transposed.
#include "compiler/back/llvm/gang/gang_record.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace hpvm::cpu {

GangRecordAccess::GangRecordAccess(GangTile& tile, GangTraps& traps, GangFrame& frame, const pass::GangRecord& record)
    : tile_(tile),
      record_(record),
      first_(tile.f.op(record.members[0])),
      place_(tile, traps, frame, first_, record.members[0]),
      at_(tile.LayoutOf(tile.OperandId(first_, 0))),
      lanes_(tile.lanes()),
      word_(b_.getIntNTy(8 * record.width)) {}

bool GangRecordAccess::IsPossible(const GangTile& tile, const pass::GangRecord& record) {
  return !record.is_store || std::ranges::all_of(record.members, [&](ir::OpId id) {
    const ir::Op& op = tile.f.op(id);
    return tile.LayoutOf(tile.OperandId(op, 0)).by_row || !tile.LayoutOf(tile.OperandId(op, 1)).by_row;
  });
}

llvm::Instruction* GangRecordAccess::Tag(llvm::Instruction* access) {
  access->setMetadata(llvm::LLVMContext::MD_tbaa, m_.kernel_tag);
  return access;
}

llvm::Value* GangRecordAccess::Pointer(unsigned row, unsigned column) {
  const int64_t column_bytes = int64_t{column} * lanes_ * record_.stride * record_.width;
  const int64_t bytes = static_cast<int64_t>(place_.imm) + column_bytes - int64_t{record_.words[0]} * record_.width;
  llvm::Value* first = place_.Pointer(place_.Offset(row), false);
  return b_.CreateGEP(b_.getInt8Ty(), first, llvm::ConstantInt::getSigned(b_.getInt64Ty(), bytes));
}

unsigned GangRecordAccess::BlockSize() const {
  constexpr unsigned kVectorBytes = 64;
  return std::min({lanes_, std::bit_floor(record_.span), kVectorBytes / record_.width});
}

llvm::SmallVector<unsigned, 8> GangRecordAccess::Starts(unsigned size) const {
  llvm::SmallVector<unsigned, 8> starts;
  unsigned covered = 0;  // Words below this one are covered.
  for (unsigned at = 0; at < record_.span; at += size) {
    const bool is_asked = std::ranges::any_of(
        record_.words, [&](uint32_t word) { return word >= std::max(at, covered) && word < at + size; });
    if (is_asked) {
      starts.push_back(std::min(at, record_.span - size));
      covered = starts.back() + size;
    }
  }
  return starts;
}

void GangRecordAccess::Load(llvm::Value* pointer, Block& words) {
  const unsigned stride = record_.stride;
  if (record_.span == stride && stride <= 4) {
    auto* type = llvm::FixedVectorType::get(word_, lanes_ * stride);
    llvm::Value* all = Tag(b_.CreateAlignedLoad(type, pointer, llvm::Align(1)));
    for (unsigned word = 0; word < stride; ++word) {
      llvm::SmallVector<int, 64> picked;
      for (unsigned i = 0; i < lanes_; ++i) {
        picked.push_back(static_cast<int>(i * stride + word));
      }
      words[word] = b_.CreateShuffleVector(all, picked);
    }
    return;
  }
  const unsigned size = BlockSize();
  auto* type = llvm::FixedVectorType::get(word_, size);
  for (const unsigned start : Starts(size)) {
    Block block;
    for (unsigned i = 0; i < size; ++i) {
      Block parts;
      for (unsigned lane = i; lane < lanes_; lane += size) {
        llvm::Value* at = place_.Added(pointer, (uint64_t{lane} * stride + start) * record_.width);
        parts.push_back(Tag(b_.CreateAlignedLoad(type, at, llvm::Align(1))));
      }
      block.push_back(Join(b_, parts));
    }
    Transpose(b_, block);
    for (unsigned i = 0; i < size; ++i) {
      words[start + i] = words[start + i] == nullptr ? block[i] : words[start + i];
    }
  }
}

void GangRecordAccess::EmitLoads() {
  llvm::SmallVector<Tiled, 16> results(record_.members.size());
  for (unsigned r = 0; r < tile_.RowsOf(at_); ++r) {
    for (unsigned column = 0; column < tile_.columns(); ++column) {
      Block words(record_.span, nullptr);
      Load(Pointer(at_.by_row ? r : kAllRows, column), words);
      for (size_t i = 0; i < results.size(); ++i) {
        llvm::Type* type = tile_.VectorOf(m_.TypeOf(tile_.f.op(record_.members[i]).type));
        results[i].push_back(b_.CreateBitCast(words[record_.words[i]], type));
      }
    }
  }
  for (size_t i = 0; i < results.size(); ++i) {
    tile_.Set(tile_.f.op(record_.members[i]).first_result, std::move(results[i]));
  }
}

void GangRecordAccess::Store(llvm::Value* pointer, const Block& words) {
  const unsigned stride = record_.stride;
  if (record_.span == stride && stride <= 4) {
    Block parts(words.begin(), words.end());
    parts.resize(std::bit_ceil(stride), llvm::PoisonValue::get(words[0]->getType()));
    llvm::SmallVector<int, 256> order;
    for (unsigned i = 0; i < lanes_ * stride; ++i) {
      order.push_back(static_cast<int>(i % stride * lanes_ + i / stride));
    }
    Tag(b_.CreateAlignedStore(b_.CreateShuffleVector(Join(b_, parts), order), pointer, llvm::Align(1)));
    return;
  }
  const unsigned size = BlockSize();
  for (const unsigned start : Starts(size)) {
    Block block(words.begin() + start, words.begin() + start + size);
    Transpose(b_, block);
    for (unsigned lane = 0; lane < lanes_; ++lane) {
      llvm::Value* at = place_.Added(pointer, (uint64_t{lane} * stride + start) * record_.width);
      Tag(b_.CreateAlignedStore(Part(b_, block[lane % size], lane / size * size, size), at, llvm::Align(1)));
    }
  }
}

void GangRecordAccess::EmitStores() {
  for (unsigned r = 0; r < tile_.RowsOf(at_); ++r) {
    const unsigned row = at_.by_row ? r : kAllRows;
    for (unsigned column = 0; column < tile_.columns(); ++column) {
      Block words(record_.span, nullptr);
      for (size_t i = 0; i < record_.members.size(); ++i) {
        llvm::Value* value = tile_.Operand(tile_.f.op(record_.members[i]), 1, row, column);
        words[record_.words[i]] = b_.CreateBitCast(value, tile_.VectorOf(word_));
      }
      Store(Pointer(row, column), words);
    }
  }
}

}  // namespace hpvm::cpu
