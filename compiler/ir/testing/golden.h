// SPDX-License-Identifier: Apache-2.0
// Runs the golden kernels of tests/golden/ir on any engine and compares the results.
//
// A file is IR text whose comments state the launch and the expected results:
//   ;; S5. The sentence of docs/KERNELS.md that it shows. The file's name begins with "s05-".
//   ;; run extent=4,2 group=2,2            also: `stop` (the stop word is set), `outputs` (compare buffers even after
//   a trap)
//   ;; arg x = i32 1 2 3 4                 a buffer's elements (i8 u8 i16 u16 i32 u32 i64 u64 f32 f64) or a scalar
//   ;; arg y = f32 0 * 16                  a repeated element
//   ;; arg z = view y 8 16                 a buffer of 16 bytes of another buffer, from its byte 8 on; not printed
//   ;; ends                                expected: every instance ended
//   ;; trap integer division by zero in instance (1, 0, 0), function "f"      or: ToString of the trap
//   ;; refused Buffer ...                  or: the launch is refused with that message
//   ;; out y = f32 3 5 7                   expected: content of each `inout` buffer after the launch
// HPVMD_BLESS=1 rewrites the expected lines from the engine's results.
#ifndef HPVMD_COMPILER_IR_TESTING_GOLDEN_H_
#define HPVMD_COMPILER_IR_TESTING_GOLDEN_H_

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "compiler/ir/ir.h"
#include "compiler/ir/launch.h"

namespace hpvm::ir::testing {

// Runs the whole launch, with the semantics of Interpreter::Run.
using Engine = std::function<StatusOr<TrapReport>(const Module&, const Launch&)>;

// Returns the file's text with the expected lines replaced by the engine's results; an error when the file is
// malformed or its module does not verify.
StatusOr<std::string> RunGoldenText(std::string_view text, const Engine& engine);

// Returns the paths of the golden kernels, sorted. Adds a GoogleTest failure for each other file in the folder.
std::vector<std::string> GoldenFiles(const std::string& folder);

// Compares one file with the engine's results: adds a GoogleTest failure with a diff, or with `may_bless` and
// HPVMD_BLESS=1 rewrites the file. Only the reference interpreter may bless.
void CheckGoldenFile(const std::string& path, const Engine& engine, bool may_bless = false);

// Returns the lines that differ, with "-" for wanted and "+" for found lines.
std::string Diff(std::string_view want, std::string_view found);

}  // namespace hpvm::ir::testing

#endif  // HPVMD_COMPILER_IR_TESTING_GOLDEN_H_
