// SPDX-License-Identifier: Apache-2.0
// CutPanics ends an instance at the start of a panic: a call that never returns, and whose effects are unobservable,
// becomes the trap in which the call would end.
//
// A panic of Rust's std formats a message that no kernel can show, calls hooks through tables, and ends in
// `unreachable`: a hundred thousand operations behind each checked index, which would be compiled, would prevent
// lockstep execution of a kernel's instances, and would be refused by GPUs, which have no call stack. None of this is
// observable: the launch fails, and the contents of its buffers are then undefined.
//
// A function never returns when none of its paths reaches a return; a call of such a function ends a path. A call of
// one is cut if the function's name belongs to a language's library, or if the function and its callees are large, and
// if nothing that it reaches prints, asserts, waits for other instances, accesses memory atomically, or loops without
// an exit. Small functions of the author's own remain: their traps are reported with their own reasons.
//
// The trap has the call's place. Rust passes each panic its place in the source as a constant; CutPanics returns these
// places. Requires a verified module, which still verifies.
#ifndef HPVMD_COMPILER_PASS_CUT_PANICS_H_
#define HPVMD_COMPILER_PASS_CUT_PANICS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compiler/ir/source_location.h"
#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

// Minimum size of a large function, in operations including its callees.
inline constexpr uint32_t kPanicOpsMin = 256;
// Maximum number of places kept per module, and maximum length of a place's file name in bytes.
inline constexpr size_t kPanicPlacesMax = 10'000;
inline constexpr uint64_t kPanicFileBytesMax = 1024;

// Returns the places, sorted by source.
std::vector<ir::SourceLocation> CutPanics(ir::Module& module);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_CUT_PANICS_H_
