// SPDX-License-Identifier: Apache-2.0
// What the zygote and its children deny themselves. zygote.h lists what they need; everything else is refused by the
// kernel.
#ifndef HPVMD_COMPILER_DRIVER_ZYGOTE_SANDBOX_H_
#define HPVMD_COMPILER_DRIVER_ZYGOTE_SANDBOX_H_

#include <linux/filter.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <vector>

#include "base/io/fd.h"
#include "base/status.h"

namespace hpvm {

// A filter of system calls, made ready ahead, since building it takes longer than a compile should wait. What it lacks
// is refused with `refuse_errno`. tests/golden/sandbox/compile*_syscalls.txt are the resulting tables.
class CallFilter {
 public:
  static StatusOr<CallFilter> ForZygote(int refuse_errno = EPERM);
  static StatusOr<CallFilter> ForChild(int refuse_errno = EPERM);
  // Applies it to this process for good; it has no_new_privs by then.
  Status Apply() const;

 private:
  std::vector<sock_filter> program_;
};

// Locks this process down for good: no new privileges, no debugger, no file outside `folder` (empty: none at all), only
// the zygote's system calls. Where the kernel lacks Landlock it fails if that is needed; else the rest still holds, and
// a line on stderr says so.
Status LockDownZygote(const std::string& folder, const CallFilter& filter, bool needs_landlock);

// As fork, for a process with one thread, and the child's descriptor with it: the only way to signal it under the
// filter. -1 and errno on failure. The C library does not know of it, so that functions for pthread_atfork are not
// called.
int ForkWithDescriptor(UniqueFd* descriptor);
// Kills the child.
void KillChild(const UniqueFd& descriptor);

// A child's resource limits, and its death with the zygote `parent`.
struct ChildLimits {
  uint64_t memory_bytes = 0;
  uint32_t cpu_seconds = 0;
};
Status LimitChild(const ChildLimits& limits, int parent);

}  // namespace hpvm

#endif  // HPVMD_COMPILER_DRIVER_ZYGOTE_SANDBOX_H_
