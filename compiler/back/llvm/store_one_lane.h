// SPDX-License-Identifier: Apache-2.0
// Masked stores of a single lane become plain stores before LLVM selects instructions. Internal to this folder.
//
// LLVM 22.1 merges the narrowing of a vector with its masked store and then, where the mask is a constant with one
// lane, stores that lane before it is narrowed (llvm-project issue 179489, X86 with AVX-512): up to seven bytes behind
// the element, which may be behind the buffer.
#ifndef HPVMD_COMPILER_BACK_LLVM_STORE_ONE_LANE_H_
#define HPVMD_COMPILER_BACK_LLVM_STORE_ONE_LANE_H_

namespace llvm {
class Module;
}  // namespace llvm

namespace hpvm::cpu {

// After all optimisations, which make masks constants. Stores of no lane go.
void StoreOneLanePlainly(llvm::Module& module);

}  // namespace hpvm::cpu

#endif  // HPVMD_COMPILER_BACK_LLVM_STORE_ONE_LANE_H_
