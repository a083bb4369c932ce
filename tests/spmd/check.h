// SPDX-License-Identifier: Apache-2.0
// Runs one kernel on the interpreter and as compiled code of several shapes: every run must leave the same bytes and
// trap.
#ifndef HPVMD_TESTS_SPMD_CHECK_H_
#define HPVMD_TESTS_SPMD_CHECK_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/ir.h"
#include "compiler/pass/gang/gang_plan.h"
#include "tests/spmd/kernel.h"

namespace hpvm::spmd {

// Replaces one operation by another in the compiled code, to show that differences are noticed.
struct Fault {
  ir::Opcode from, to;
};

struct CheckOptions {
  std::vector<std::string> levels;      // When empty, one is chosen by the kernel's seed.
  std::vector<pass::GangShape> shapes;  // When empty, some are chosen by the kernel's seed.
  std::optional<Fault> fault;
  bool is_race_checked = false;  // Refuses kernels whose instances race, which shrinking can produce.
  char* stage = nullptr;         // Receives the current step, at most kStageBytes; for reports of crashes.
};
inline constexpr size_t kStageBytes = 160;

enum class Verdict : uint8_t {
  kSame,
  kTooLong,  // More steps than one kernel may cost.
  kInvalid,  // The kernel does not verify, or its launch is refused: a fault of the generator or the shrinker.
  kRaces,
  kPassFails,    // A pass failed, broke the IR, or changed the interpreter's result.
  kEmitFails,    // The back end refused it.
  kDiffers,      // Other bytes.
  kTrapDiffers,  // Another trap, or a trap on one side only.
  kStray,        // Bytes around a buffer were written.
  kCrash,
  kHang,
};
std::string_view Name(Verdict verdict);
constexpr bool IsFinding(Verdict verdict) { return verdict != Verdict::kSame && verdict != Verdict::kTooLong; }

struct CheckResult {
  Verdict verdict = Verdict::kSame;
  std::string explanation;
  bool has_trapped = false;  // In the interpreter.
  uint32_t images = 0, runs = 0;
  uint32_t gang_runs = 0;  // Number of variants that run instances in lockstep.
  uint32_t unchecked_runs = 0;
  bool is_refused = false;  // Only one instance at a time.
};

CheckResult Check(const Kernel& kernel, const CheckOptions& options);

}  // namespace hpvm::spmd

#endif  // HPVMD_TESTS_SPMD_CHECK_H_
