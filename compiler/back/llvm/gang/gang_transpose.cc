// SPDX-License-Identifier: Apache-2.0
// Accesses that are contiguous along rows, not lanes: each lane's elements of several rows are one vector, and square
// blocks of such vectors are transposed in registers.
#include <algorithm>

#include "compiler/back/llvm/gang/gang_memory.h"
#include "compiler/back/llvm/gang/gang_shuffle.h"

namespace hpvm::cpu {

// Returns true if rows are adjacent, in code where all of the tile's lanes are active and known to be inside.
bool GangAccess::IsTransposed() const {
  const ir::ValueId address = tile_.OperandId(op_, 0);
  if (!place_.is_known || !masks_.IsWhole() || !at_.by_row || tile_.rows() < 4 || words_ != 1 || op_.width < 4 ||
      address.index >= tile_.plan.row_steps.size()) {
    return false;
  }
  const std::optional<uint64_t> step = tile_.plan.row_steps[address.index];
  return step.has_value() && *step == op_.width;
}

// Returns the number of rows from `row` on that form one block.
unsigned GangAccess::BlockRows(unsigned row) const {
  constexpr unsigned kVectorBytes = 64;
  unsigned size = std::min(lanes_, kVectorBytes / op_.width);
  while (size > tile_.rows() - row) {
    size /= 2;
  }
  return size;
}

// Returns the address of each lane of row 0.
llvm::SmallVector<llvm::Value*, 16> GangAccess::LanePointers(unsigned column) {
  llvm::Value* offsets = place_.Offsets(0, column);
  llvm::SmallVector<llvm::Value*, 16> pointers;
  for (unsigned i = 0; i < lanes_; ++i) {
    pointers.push_back(place_.Added(place_.Pointer(b_.CreateExtractElement(offsets, uint64_t{i}), false), place_.imm));
  }
  return pointers;
}

// Returns the vectors of all parts of the tile.
Tiled GangAccess::LoadTransposed() {
  Tiled parts(tile_.parts());
  for (unsigned c = 0; c < columns_; ++c) {
    const auto pointers = LanePointers(c);
    for (unsigned row = 0, size = 0; row < tile_.rows(); row += size) {
      size = BlockRows(row);
      auto* type = llvm::FixedVectorType::get(stored_, size);
      std::vector<Block> rows(size);
      for (unsigned first = 0; first < lanes_; first += size) {
        Block block;
        for (unsigned i = 0; i < size; ++i) {
          llvm::Value* pointer = place_.Added(pointers[first + i], uint64_t{row} * op_.width);
          block.push_back(Tag(b_.CreateAlignedLoad(type, pointer, llvm::Align(1))));
        }
        Transpose(b_, block);
        for (unsigned r = 0; r < size; ++r) {
          rows[r].push_back(block[r]);
        }
      }
      for (unsigned r = 0; r < size; ++r) {
        parts[(row + r) * columns_ + c] = Widen(Join(b_, rows[r]));
      }
    }
  }
  return parts;
}

void GangAccess::StoreTransposed() {
  for (unsigned c = 0; c < columns_; ++c) {
    const auto pointers = LanePointers(c);
    for (unsigned row = 0, size = 0; row < tile_.rows(); row += size) {
      size = BlockRows(row);
      Block rows;
      for (unsigned r = 0; r < size; ++r) {
        rows.push_back(StoredWords(row + r, c)[0]);
      }
      for (unsigned first = 0; first < lanes_; first += size) {
        Block block;
        for (unsigned r = 0; r < size; ++r) {
          block.push_back(Part(b_, rows[r], first, size));
        }
        Transpose(b_, block);
        for (unsigned i = 0; i < size; ++i) {
          llvm::Value* pointer = place_.Added(pointers[first + i], uint64_t{row} * op_.width);
          Tag(b_.CreateAlignedStore(block[i], pointer, llvm::Align(1)));
        }
      }
    }
  }
}

}  // namespace hpvm::cpu
