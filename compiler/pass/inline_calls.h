// SPDX-License-Identifier: Apache-2.0
// Puts the bodies of called functions in the place of their calls, callees first, so that what is known of a kernel's
// parameters (provenance, shapes, ranges) reaches the functions it is divided into.
//
// Functions that call themselves, in whatever round-about way, stay calls, and so do calls whose inlining would make
// the caller larger or deeper than the limits below, and those of functions that use scratch state (parts of the
// math library that are seldom reached). An inlined operation remembers where it was written (Op::origin),
// so that traps name the right function; the traps of a language's own library name the call. Requires a verified
// module.
#ifndef HPVMD_COMPILER_PASS_INLINE_CALLS_H_
#define HPVMD_COMPILER_PASS_INLINE_CALLS_H_

#include <cstdint>

#include "base/status.h"
#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

// Operations of a function after inlining: what later stages handle in well under a second.
inline constexpr uint32_t kInlinedOpsMax = 20'000;
// Operations that inlining adds to a module.
inline constexpr uint32_t kInlinedTotalMax = 200'000;
// Nested regions.
inline constexpr uint32_t kInlinedDepthMax = 512;

Status InlineCalls(ir::Module& module);

// For devices without a call stack: every call but those of functions that call themselves, also of what uses scratch
// state, up to limits that keep a driver's compiler within seconds.
inline constexpr uint32_t kInlinedOpsMaxGpu = 200'000;
inline constexpr uint32_t kInlinedTotalMaxGpu = 1'000'000;
Status InlineAllCalls(ir::Module& module);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_INLINE_CALLS_H_
