// SPDX-License-Identifier: Apache-2.0
// The one list of system calls: for each call, and for arguments where these decide, what each role's filter does.
#ifndef HPVMD_SANDBOX_CALL_RULES_H_
#define HPVMD_SANDBOX_CALL_RULES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace hpvm::sandbox {

// The work of a process, which decides the system calls that it keeps: a column of the table each.
enum class SandboxRole : uint8_t {
  kRunner = 0,       // Runs kernels on the processor: no file, no device. The launcher becomes it.
  kDriver = 1,       // Runners and probes that load drivers: files and device nodes, within what Landlock leaves.
  kBuilder = 2,      // The same, and starts the linker that a driver's compiler may need. Probes of defects, too.
  kSupervisor = 3,   // Starts and ends builders, which lock themselves down further.
  kCompiler = 4,     // The zygote: forks compiles, ends them, keeps their cache.
  kCompileChild = 5  // One compile, below the zygote's filter: computes.
};
inline constexpr size_t kSandboxRoles = 6;

// Holds where the argument's bits below `mask` are those of `value`.
struct ArgumentRule {
  unsigned argument = 0;
  uint64_t mask = 0;  // 0: there is no rule.
  uint64_t value = 0;
  bool is_own_process = false;  // `value` is the number of the process that builds the filter.
};

struct CallRule {
  int call = 0;  // Negative where the machine has no such call.
  // By role: 'a' allows the call, 'k' ends the process, 'n' says that there is no such call (ENOSYS), '.' leaves it to
  // other rules. A call that no rule names is refused.
  const char* verdicts = nullptr;
  std::array<ArgumentRule, 2> arguments{};  // All of them hold.
};

std::span<const CallRule> CallRules();

}  // namespace hpvm::sandbox

#endif  // HPVMD_SANDBOX_CALL_RULES_H_
