// SPDX-License-Identifier: Apache-2.0
// One program on all engines, and what they disagree about.
#ifndef HPVMD_TESTS_DIFF_CHECK_H_
#define HPVMD_TESTS_DIFF_CHECK_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/diff/engines.h"
#include "tests/diff/program.h"
#include "tests/diff/v8.h"

namespace hpvm::diff {

enum class Verdict : uint8_t {
  kSame,
  kTooLong,      // More steps than the limit; nothing was compared.
  kInvalid,      // Not a module: a cut program.
  kRefused,      // The front end refuses it.
  kInterpreter,  // The interpreter fails to run it.
  kCpuFails,     // The CPU back end fails to compile or run it.
  kCpuDiffers,   // From the interpreter.
  kV8Fails,      // V8 refuses it, or its process is gone.
  kV8Differs,    // From the interpreter, which agrees with the CPU.
  kCrash,        // A process ended by a signal while it was at work.
  kHang,
};
std::string_view Name(Verdict verdict);

struct CheckOptions {
  V8* v8 = nullptr;            // Borrowed; null leaves V8 out.
  std::optional<Fault> fault;  // In the CPU's module.
  CpuForm form;
  uint64_t steps_max = 100'000;
};

struct CheckResult {
  Verdict verdict = Verdict::kSame;
  std::string explanation;  // Of what differs.
  std::vector<uint8_t> module;
  // What most engines say.
  std::optional<Outcome> expected;
  bool ran_on_v8 = false;
};

CheckResult Check(const Program& program, const CheckOptions& options);

// The first difference as a sentence; empty if there is none. With `only_whether` two traps are alike whatever their
// code, and so are buffers after traps: barriers leave open which instance traps first.
std::string Compare(const Outcome& expected, const Outcome& got, bool only_whether);
// The first of RunOnCpu's outcomes that differs and how; the first one and "" if none does.
std::pair<Outcome, std::string> CompareEach(const Outcome& expected, const std::vector<Outcome>& got,
                                            bool only_whether);

}  // namespace hpvm::diff

#endif  // HPVMD_TESTS_DIFF_CHECK_H_
