// SPDX-License-Identifier: Apache-2.0
// InlineCalls replaces calls by the bodies of the called functions, callees first, so that facts about a kernel's
// parameters (provenance, shapes, ranges) reach the functions into which the kernel is divided.
//
// Directly or indirectly recursive functions remain calls. So do calls whose inlining would make the caller larger or
// deeper than the limits below, and those of functions that use scratch state (rarely reached parts of the math
// library). An inlined operation keeps its place of origin (Op::origin), so that traps name the right function; the
// traps of a language's own library name the call. Requires a verified module.
#ifndef HPVMD_COMPILER_PASS_INLINE_CALLS_H_
#define HPVMD_COMPILER_PASS_INLINE_CALLS_H_

#include <cstdint>

#include "base/status.h"
#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

// Maximum number of operations of a function after inlining; later stages process this in well under a second.
inline constexpr uint32_t kInlinedOpsMax = 20'000;
// Maximum number of operations that inlining adds to a module.
inline constexpr uint32_t kInlinedTotalMax = 200'000;
// Maximum depth of nested regions.
inline constexpr uint32_t kInlinedDepthMax = 512;

Status InlineCalls(ir::Module& module);

// For devices without a call stack: inlines every call except those of recursive functions, including those of
// functions that use scratch state, up to limits that keep a driver's compiler within seconds.
inline constexpr uint32_t kInlinedOpsMaxGpu = 200'000;
inline constexpr uint32_t kInlinedTotalMaxGpu = 1'000'000;
Status InlineAllCalls(ir::Module& module);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_INLINE_CALLS_H_
