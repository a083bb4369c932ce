// SPDX-License-Identifier: Apache-2.0
// Words on an instance's stack that are only touched whole, at places that are known, become values: results of
// branches and parameters of loops where several stores meet.
//
// As promotion to registers does in a control flow graph (Cytron et al., "Efficiently Computing Static Single
// Assignment Form", TOPLAS 1991); in structured control the places where stores meet are known from the nesting alone.
#ifndef HPVMD_COMPILER_PASS_MEMORY_STACK_VALUES_H_
#define HPVMD_COMPILER_PASS_MEMORY_STACK_VALUES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

// Words of a kernel that become values at most, and values that edges bring for them.
inline constexpr size_t kStackValuesMax = 256;
inline constexpr size_t kStackEdgesMax = 4'096;

// Looks at Space::kStack in the entry. The frame goes when nothing is left in it. True if any word became a value.
bool StackValues(ir::Module& module);

// Addresses of module memory.
struct StackBytes {
  uint64_t begin = 0, end = 0;
};

// The same of flat accesses whose addresses are computed from the stack's pointer, a mutable global, before anybody
// knows what else reaches the stack. The result is the bytes that have become values; it is empty where none have, and
// where some of them are no zeros when an instance begins, or lie outside of memory. The caller shows afterwards that
// nothing else touches those bytes, and drops the module where that cannot be shown: that every access is known by then
// (PromoteStack), and AvoidsStack. That suffices, though the proof rests on values that were assumed: no access could
// be the first to touch them.
std::vector<StackBytes> AssumeStackValues(ir::Module& module);

// True if no access that is left touches any of the bytes: those of the stack, and flat ones by their ranges. Accesses
// of a buffer or of group memory do not reach the stack (ir.h, Space).
bool AvoidsStack(const ir::Module& module, std::span<const StackBytes> bytes);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_MEMORY_STACK_VALUES_H_
