// SPDX-License-Identifier: Apache-2.0
// A kernel's frame on the shadow stack becomes memory of Space::kStack, of which instances in lockstep have a lane
// each and LLVM keeps in registers where it can.
#ifndef HPVMD_COMPILER_PASS_MEMORY_PROMOTE_STACK_H_
#define HPVMD_COMPILER_PASS_MEMORY_PROMOTE_STACK_H_

#include <cstdint>
#include <vector>

#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

// An instance's frame; a larger one stays in module memory. Zeroing it takes an instruction for every vector.
inline constexpr uint64_t kStackFrameBytesMax = 2'048;

// Requires inlined calls. Does nothing unless the frame is known: the stack's pointer is a constant wherever it is
// read, every access of unknown place is one from the stack's pointer or from a buffer's parameter, and nothing else
// (called functions, copies of a size that is not constant, atomics) may touch the frame. Copies and fills of a small
// constant size in the frame become loads and stores first, and what is not aligned several of them. Operations on the
// stack's pointer go. True if the frame is known now, or there is none.
//
// As on GPUs, an access that is computed from the stack's pointer and misses the frame traps then, and so does one that
// is computed from a buffer's parameter and lands there (docs/KERNELS.md, "Addresses").
bool PromoteStack(ir::Module& module);

// True if the kernel may keep a frame: instances that see each other have none of their own
// (compiler/back/llvm/group.h).
inline bool MayKeepFrame(const ir::Module& module) { return !module.uses_barrier && !module.uses_group_memory; }

// True if the bytes [begin, end) are in memory, and zeros when an instance begins.
bool BeginsAsZeros(const ir::Module& module, uint64_t begin, uint64_t end);

// The result, by OpId of the entry, is true for accesses of Space::kStack that surely lie in the frame.
std::vector<bool> FindInsideStack(const ir::Module& module);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_MEMORY_PROMOTE_STACK_H_
