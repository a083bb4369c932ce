// SPDX-License-Identifier: Apache-2.0
// A role's filter of system calls, built from the table of call_rules.h. tests/golden/sandbox/*_syscalls.txt say what
// comes of it, number by number.
#ifndef HPVMD_SANDBOX_CALL_FILTER_H_
#define HPVMD_SANDBOX_CALL_FILTER_H_

#include <linux/filter.h>

#include <cerrno>
#include <span>
#include <vector>

#include "base/status.h"
#include "sandbox/call_rules.h"

namespace hpvm::sandbox {

class CallFilter {
 public:
  // For this process, or a child of it: made ahead where building it would take longer than a child should wait. What
  // the table does not allow is refused with `refuse_errno`, which libraries take for a missing feature.
  static StatusOr<CallFilter> For(SandboxRole role, int refuse_errno = EPERM);
  // Applies it to this process for good; it has no_new_privs by then.
  Status Apply() const;

  std::span<const sock_filter> program() const { return program_; }

 private:
  std::vector<sock_filter> program_;
};

}  // namespace hpvm::sandbox

#endif  // HPVMD_SANDBOX_CALL_FILTER_H_
