// SPDX-License-Identifier: Apache-2.0
// Runs one program on all engines and compares the outcomes.
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
  kCpuDiffers,   // The CPU differs from the interpreter.
  kV8Fails,      // V8 refuses it, or its process is gone.
  kV8Differs,    // V8 differs from the interpreter, which agrees with the CPU.
  kCrash,        // A signal ended a process during the check.
  kHang,
};
std::string_view Name(Verdict verdict);

struct CheckOptions {
  V8* v8 = nullptr;            // Borrowed; null to leave V8 out.
  std::optional<Fault> fault;  // Injected into the CPU's module.
  CpuForm form;
  uint64_t steps_max = 100'000;
};

struct CheckResult {
  Verdict verdict = Verdict::kSame;
  std::string explanation;  // Explains the difference.
  std::vector<uint8_t> module;
  // The outcome of most engines.
  std::optional<Outcome> expected;
  bool ran_on_v8 = false;
};

CheckResult Check(const Program& program, const CheckOptions& options);

// Returns the first difference as a sentence; empty if there is none. With `only_whether`, two traps are equal
// whatever their code, and so are buffers after traps, because with barriers it is open which instance traps first.
std::string Compare(const Outcome& expected, const Outcome& got, bool only_whether);
// Returns the first of RunOnCpu's outcomes that differs, and how; the first one and "" if none does.
std::pair<Outcome, std::string> CompareEach(const Outcome& expected, const std::vector<Outcome>& got,
                                            bool only_whether);

}  // namespace hpvm::diff

#endif  // HPVMD_TESTS_DIFF_CHECK_H_
