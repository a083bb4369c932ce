// SPDX-License-Identifier: Apache-2.0
// Ends an instance where it begins to panic: a call that never returns, and whose effects nobody sees, becomes the trap
// in which it would end.
//
// A panic of Rust's std formats a message that no kernel can show, calls hooks through tables, and ends in
// `unreachable`: a hundred thousand operations behind each checked index, which would be compiled, keep a kernel's
// instances apart, and be refused by GPUs, which have no call stack. Nothing of it shows: the launch fails, and what is
// in its buffers then is undefined.
//
// A function never returns when no path of it reaches a return, calls of such functions ending a path. A call of one is
// cut if the function belongs to a language's library, by its name, or if it and what it calls are large, and
// if nothing it reaches prints, asserts, waits for other instances, touches memory atomically, or loops with no way
// out. Small functions of the author's own stay: their traps are reported with their own reasons.
//
// The trap has the call's place. Rust hands each panic its place in the source as a constant; where there is one it is
// returned. Requires a verified module, which still verifies.
#ifndef HPVMD_COMPILER_PASS_CUT_PANICS_H_
#define HPVMD_COMPILER_PASS_CUT_PANICS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compiler/ir/source_place.h"
#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

// Operations of a function, and of all that it calls, from which on it counts as large.
inline constexpr uint32_t kPanicOpsMin = 256;
// Places that are kept of one module, and bytes of a file's name in one.
inline constexpr size_t kPanicPlacesMax = 10'000;
inline constexpr uint64_t kPanicFileBytesMax = 1024;

// The places, sorted by source.
std::vector<ir::SourcePlace> CutPanics(ir::Module& module);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_CUT_PANICS_H_
