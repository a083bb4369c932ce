// SPDX-License-Identifier: Apache-2.0
// Locking the executor down: what a process that runs tenants' kernels may still ask of the system.
//
// Called by the launcher, in this order and with one thread: Isolate, (start the compiler process), Confine. Nothing of
// a tenant's is read before Confine has returned. Each step is tried and reported rather than probed for, because
// containers refuse different ones.
#ifndef HPVMD_EXECUTOR_SANDBOX_H_
#define HPVMD_EXECUTOR_SANDBOX_H_

#include <cstdint>
#include <string>

#include "base/status.h"

namespace hpvm {

// The sandbox's levels; each includes those below it.
enum class SandboxLevel : uint8_t {
  kProcess = 0,   // A process of its own: limits, no environment, dies with its parent, cannot be traced.
  kSyscalls = 1,  // no_new_privs and the system call filter.
  kFiles = 2,     // Landlock: no file, no TCP, no signal or abstract socket to processes outside.
  kIdentity = 3,  // A user of its own and no capabilities.
};

struct SandboxReport {
  SandboxLevel level = SandboxLevel::kProcess;
  bool has_own_user = false;
  std::string detail;  // What was and was not possible, one line.
};

struct IsolateOptions {
  uint32_t uid = 0, gid = 0;  // Taken when not 0; needs root.
};

// Limits, session, identity, capabilities, death with the parent, not dumpable. What a started program inherits.
Status Isolate(const IsolateOptions& options, SandboxReport* report);

// no_new_privs, Landlock, system calls. Irrevocable. A status when not even the filter can be installed.
Status Confine(SandboxReport* report);

// The parts of Confine, for tests. `refuse_errno` is what a refused call returns.
Status ForbidFiles(int* landlock_abi);
Status InstallRunnerFilter(int refuse_errno);

}  // namespace hpvm

#endif  // HPVMD_EXECUTOR_SANDBOX_H_
