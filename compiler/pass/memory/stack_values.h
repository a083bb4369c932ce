// SPDX-License-Identifier: Apache-2.0
// StackValues turns words on an instance's stack that are only accessed whole, at constant addresses, into values:
// results of branches and parameters of loops where several stores meet.
//
// The method is promotion to registers as in a control-flow graph (Cytron et al., "Efficiently Computing Static Single
// Assignment Form", TOPLAS 1991); in structured control the merge points follow from the nesting alone.
#ifndef HPVMD_COMPILER_PASS_MEMORY_STACK_VALUES_H_
#define HPVMD_COMPILER_PASS_MEMORY_STACK_VALUES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

// Maximum number of words of a kernel that become values, and of values that edges bring for them.
inline constexpr size_t kStackValuesMax = 256;
inline constexpr size_t kStackEdgesMax = 4'096;

// Changes accesses of Space::kStack in the entry. Removes the frame when no access is left. Returns true if any word
// became a value.
bool StackValues(ir::Module& module);

// A range of addresses in module memory.
struct StackBytes {
  uint64_t begin = 0, end = 0;
};

// Does the same for flat accesses whose addresses are computed from the stack's pointer, a mutable global, before it
// is known which other accesses reach the stack. Returns the bytes that have become values; empty if there are none,
// or if some of them are not zeros when an instance begins, or lie outside of memory. The caller must prove afterwards
// that nothing else touches those bytes, or discard the module: every access must be known by then (PromoteStack), and
// AvoidsStack must hold. That suffices, although the proof relies on the assumed values: no access could be the first
// to touch the bytes.
std::vector<StackBytes> AssumeStackValues(ir::Module& module);

// Returns true if no remaining access touches any of the bytes, judged by the ranges of stack and flat accesses.
// Accesses of a buffer or of group memory do not reach the stack (ir.h, Space).
bool AvoidsStack(const ir::Module& module, std::span<const StackBytes> bytes);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_MEMORY_STACK_VALUES_H_
