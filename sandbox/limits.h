// SPDX-License-Identifier: Apache-2.0
// Resource limits of a process, which only the superuser can raise again.
#ifndef HPVMD_SANDBOX_LIMITS_H_
#define HPVMD_SANDBOX_LIMITS_H_

#include <sys/resource.h>

#include <cstdint>

#include "base/status.h"

namespace hpvm::sandbox {

// At `value` a process is signalled or refused, at `value` + `hard_more` it is killed (RLIMIT_CPU). A lower existing
// limit is kept.
Status SetLimit(__rlimit_resource resource, uint64_t value, uint64_t hard_more = 0);

// Limits of a forked child that does one job. 0: the same as its parent's.
struct ChildLimits {
  uint64_t data_bytes = 0;
  uint64_t address_bytes = 0;  // Drivers reserve far more addresses than they use.
  uint32_t cpu_seconds = 0;    // It has one more second to report it.
  bool writes_files = true;
};
// Sets the limits, and makes the child die with its parent, whose process id is `parent`.
Status LimitChild(const ChildLimits& limits, int parent);

}  // namespace hpvm::sandbox

#endif  // HPVMD_SANDBOX_LIMITS_H_
