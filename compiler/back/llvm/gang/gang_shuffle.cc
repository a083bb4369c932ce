// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/llvm/gang/gang_shuffle.h"

namespace hpvm::cpu {

void Transpose(llvm::IRBuilder<>& b, Block& block) {
  const auto size = static_cast<unsigned>(block.size());
  const unsigned lanes = llvm::cast<llvm::FixedVectorType>(block[0]->getType())->getNumElements();
  for (unsigned half = size / 2; half > 0; half /= 2) {
    llvm::SmallVector<int, 64> low, high;
    for (unsigned i = 0; i < lanes; ++i) {
      low.push_back(static_cast<int>((i & half) == 0 ? i : lanes + i - half));
      high.push_back(static_cast<int>((i & half) == 0 ? i + half : lanes + i));
    }
    for (unsigned i = 0; i < size; ++i) {
      if ((i & half) == 0) {
        llvm::Value* first = block[i];
        llvm::Value* second = block[i + half];
        block[i] = b.CreateShuffleVector(first, second, low);
        block[i + half] = b.CreateShuffleVector(first, second, high);
      }
    }
  }
}

llvm::Value* Part(llvm::IRBuilder<>& b, llvm::Value* vector, unsigned first, unsigned count) {
  llvm::SmallVector<int, 16> lanes;
  for (unsigned i = 0; i < count; ++i) {
    lanes.push_back(static_cast<int>(first + i));
  }
  return b.CreateShuffleVector(vector, lanes);
}

llvm::Value* Join(llvm::IRBuilder<>& b, llvm::ArrayRef<llvm::Value*> parts) {
  Block joined(parts.begin(), parts.end());
  while (joined.size() > 1) {
    const unsigned count = llvm::cast<llvm::FixedVectorType>(joined[0]->getType())->getNumElements();
    llvm::SmallVector<int, 64> lanes;
    for (unsigned i = 0; i < 2 * count; ++i) {
      lanes.push_back(static_cast<int>(i));
    }
    Block pairs;
    for (size_t i = 0; i < joined.size(); i += 2) {
      pairs.push_back(b.CreateShuffleVector(joined[i], joined[i + 1], lanes));
    }
    joined = std::move(pairs);
  }
  return joined[0];
}

}  // namespace hpvm::cpu
