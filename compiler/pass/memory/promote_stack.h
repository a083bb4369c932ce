// SPDX-License-Identifier: Apache-2.0
// PromoteStack turns a kernel's frame on the shadow stack into memory of Space::kStack, of which each instance in
// lockstep has a lane, and which LLVM keeps in registers where it can.
#ifndef HPVMD_COMPILER_PASS_MEMORY_PROMOTE_STACK_H_
#define HPVMD_COMPILER_PASS_MEMORY_PROMOTE_STACK_H_

#include <cstdint>
#include <vector>

#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

// Maximum bytes of an instance's frame; a larger one stays in module memory. Zeroing it takes an instruction per
// vector.
inline constexpr uint64_t kStackFrameBytesMax = 2'048;

// Requires inlined calls. Does nothing unless the frame is known: the stack's pointer is a constant wherever it is
// read, every access at an unknown address derives it from the stack's pointer or from a buffer's parameter, and
// nothing else (called functions, copies of a size that is not constant, atomics) may touch the frame. Copies and
// fills of a small constant size in the frame first become loads and stores, and an unaligned access becomes several.
// Operations on the stack's pointer are removed. Returns true if the frame is known afterwards, or there is none.
//
// As on GPUs, an access that is computed from the stack's pointer and misses the frame then traps, and so does one
// that is computed from a buffer's parameter and lands in the frame (docs/KERNELS.md, "Addresses").
bool PromoteStack(ir::Module& module);

// Returns true if the kernel may keep a frame: instances that share a group have no separate frames
// (compiler/back/llvm/group.h).
inline bool MayKeepFrame(const ir::Module& module) { return !module.uses_barrier && !module.uses_group_memory; }

// Returns true if the bytes [begin, end) are in memory, and zeros when an instance begins.
bool BeginsAsZeros(const ir::Module& module, uint64_t begin, uint64_t end);

// The result, by OpId of the entry, is true for accesses of Space::kStack that are certainly inside the frame.
std::vector<bool> FindInsideStack(const ir::Module& module);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_MEMORY_PROMOTE_STACK_H_
