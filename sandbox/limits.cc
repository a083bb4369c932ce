// SPDX-License-Identifier: Apache-2.0
#include "sandbox/limits.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

namespace hpvm::sandbox {

Status SetLimit(__rlimit_resource resource, uint64_t value, uint64_t hard_more) {
  rlimit now{};
  if (getrlimit(resource, &now) != 0) {
    return FromErrno(errno, "Reading resource limit " + std::to_string(resource));
  }
  // RLIM_INFINITY is the largest number.
  if (now.rlim_max <= value) {
    return absl::OkStatus();
  }
  const rlimit wanted{value, std::min(value + hard_more, now.rlim_max)};
  return setrlimit(resource, &wanted) == 0 ? absl::OkStatus()
                                           : FromErrno(errno, "Setting resource limit " + std::to_string(resource));
}

Status LimitChild(const ChildLimits& limits, int parent) {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0 || getppid() != parent) {
    return FromErrno(errno, "Following the parent process");
  }
  HPVMD_RETURN_IF_ERROR(SetLimit(RLIMIT_CORE, 0));
  HPVMD_RETURN_IF_ERROR(limits.writes_files ? absl::OkStatus() : SetLimit(RLIMIT_FSIZE, 0));
  const auto set = [](__rlimit_resource resource, uint64_t value, uint64_t hard_more) {
    return value == 0 ? absl::OkStatus() : SetLimit(resource, value, hard_more);
  };
  HPVMD_RETURN_IF_ERROR(set(RLIMIT_CPU, limits.cpu_seconds, /*hard_more=*/1));
#ifdef HPVMD_TSAN
  return absl::OkStatus();  // The sanitizer's shadow memory exceeds any limit.
#else
  HPVMD_RETURN_IF_ERROR(set(RLIMIT_DATA, limits.data_bytes, 0));
  return set(RLIMIT_AS, limits.address_bytes, 0);
#endif
}

}  // namespace hpvm::sandbox
