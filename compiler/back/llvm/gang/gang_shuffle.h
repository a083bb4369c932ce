// SPDX-License-Identifier: Apache-2.0
// Rearranges vectors in registers. Internal to this folder.
#ifndef HPVMD_COMPILER_BACK_LLVM_GANG_GANG_SHUFFLE_H_
#define HPVMD_COMPILER_BACK_LLVM_GANG_GANG_SHUFFLE_H_

#include "llvm/ADT/SmallVector.h"
#include "llvm/IR/IRBuilder.h"

namespace hpvm::cpu {

using Block = llvm::SmallVector<llvm::Value*, 16>;

// Takes n vectors, a power of two, of a multiple of n elements each, and swaps element j of vector i with element i of
// vector j, likewise in each following group of n elements. Works by halves, quarters and so on.
void Transpose(llvm::IRBuilder<>& b, Block& block);
// Returns `count` elements from `first` on.
llvm::Value* Part(llvm::IRBuilder<>& b, llvm::Value* vector, unsigned first, unsigned count);
// Concatenates the parts, whose number is a power of two.
llvm::Value* Join(llvm::IRBuilder<>& b, llvm::ArrayRef<llvm::Value*> parts);

}  // namespace hpvm::cpu

#endif  // HPVMD_COMPILER_BACK_LLVM_GANG_GANG_SHUFFLE_H_
