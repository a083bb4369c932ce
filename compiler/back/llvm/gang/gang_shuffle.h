// SPDX-License-Identifier: Apache-2.0
// Vectors rearranged in registers. Internal to this folder.
#ifndef HPVMD_COMPILER_BACK_LLVM_GANG_GANG_SHUFFLE_H_
#define HPVMD_COMPILER_BACK_LLVM_GANG_GANG_SHUFFLE_H_

#include "llvm/ADT/SmallVector.h"
#include "llvm/IR/IRBuilder.h"

namespace hpvm::cpu {

using Block = llvm::SmallVector<llvm::Value*, 16>;

// Takes n vectors, a power of two, of a multiple of n elements each: element j of vector i changes places with element
// i of vector j, and so in each following n elements. By halves, quarters and so on.
void Transpose(llvm::IRBuilder<>& b, Block& block);
// `count` elements from `first` on.
llvm::Value* Part(llvm::IRBuilder<>& b, llvm::Value* vector, unsigned first, unsigned count);
// One after the other; a power of two of them.
llvm::Value* Join(llvm::IRBuilder<>& b, llvm::ArrayRef<llvm::Value*> parts);

}  // namespace hpvm::cpu

#endif  // HPVMD_COMPILER_BACK_LLVM_GANG_GANG_SHUFFLE_H_
