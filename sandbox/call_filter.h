// SPDX-License-Identifier: Apache-2.0
// A role's system call filter, built from the table of call_rules.h. tests/golden/sandbox/*_syscalls.txt list the
// result, number by number.
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
  // Builds a filter for this process or its children, in advance when building would take longer than a child should
  // wait. Calls that the table does not allow are refused with `refuse_errno`, which libraries interpret as a missing
  // feature.
  static StatusOr<CallFilter> For(SandboxRole role, int refuse_errno = EPERM);
  // Applies the filter permanently to this process, which must have no_new_privs.
  Status Apply() const;

  std::span<const sock_filter> program() const { return program_; }

 private:
  std::vector<sock_filter> program_;
};

}  // namespace hpvm::sandbox

#endif  // HPVMD_SANDBOX_CALL_FILTER_H_
