// SPDX-License-Identifier: Apache-2.0
// The only list of system calls: for each call, and for arguments where these decide, the action of each role's filter.
#ifndef HPVMD_SANDBOX_CALL_RULES_H_
#define HPVMD_SANDBOX_CALL_RULES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace hpvm::sandbox {

// Purpose of a process, which determines its available system calls: one column of the table each.
enum class SandboxRole : uint8_t {
  // Runs kernels on the processor: no files, no devices. The launcher becomes it.
  kRunner = 0,
  // Runners and probes that load drivers: files and device nodes, within Landlock's rules.
  kDriver = 1,
  // Like kDriver, and starts the linker that a driver's compiler may need. Also probes of defects.
  kBuilder = 2,
  kSupervisor = 3,   // Starts and ends builders, which lock themselves down further.
  kCompiler = 4,     // The zygote: forks compiles, ends them, manages their cache.
  kCompileChild = 5  // One compile, below the zygote's filter: computes.
};
inline constexpr size_t kSandboxRoles = 6;

// Holds when the argument's bits selected by `mask` equal those of `value`.
struct ArgumentRule {
  unsigned argument = 0;
  uint64_t mask = 0;  // 0: there is no rule.
  uint64_t value = 0;
  // `value` is the id of the process that builds the filter.
  bool is_own_process = false;
};

struct CallRule {
  int call = 0;  // Negative when the machine has no such call.
  // Indexed by role: 'a' allows the call, 'k' ends the process, 'n' returns ENOSYS, '.' leaves it to other rules. A
  // call that no rule names is refused.
  const char* verdicts = nullptr;
  std::array<ArgumentRule, 2> arguments{};  // All of them must hold.
};

std::span<const CallRule> CallRules();

}  // namespace hpvm::sandbox

#endif  // HPVMD_SANDBOX_CALL_RULES_H_
