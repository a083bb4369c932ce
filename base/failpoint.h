// SPDX-License-Identifier: Apache-2.0
// Failpoints: places where a test can make the program fail, at every durable write and every message.
//
//   HPVMD_RETURN_IF_ERROR(HPVMD_FAILPOINT("store.commit.before"));
//
// Each failpoint has a name, "part.what.when", listed in docs/FAILPOINTS.md, as a test verifies. The environment
// variable HPVMD_FAILPOINTS, read when the first failpoint is reached, or SetFailpoints sets what happens there:
//
//   store.commit.before=error(unavailable)      a status with that code
//   store.commit.after=kill@3                   SIGKILL to this process, the third time
//   link.send=sleep(250)%10                     milliseconds, in one of ten cases (from a seed: HPVMD_FAILPOINT_SEED)
//   a=abort;b=error(resource_exhausted)@2+      several; from the second time on
//
// Compiled out (a constant OK) when the build option HPVMD_FAILPOINTS is off, as in packages. A failpoint without
// settings costs one relaxed load.
#ifndef HPVMD_BASE_FAILPOINT_H_
#define HPVMD_BASE_FAILPOINT_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/status.h"

namespace hpvm {

// Replaces all settings; empty text removes them. Returns kInvalidArgument naming the invalid part, or
// kFailedPrecondition when failpoints are compiled out. Thread-safe.
Status SetFailpoints(std::string_view settings, uint64_t seed = 1);
// Reads the settings from the environment and returns their errors; for the start of main. A process that does not call
// it reads them at the first failpoint and exits there when they are invalid. When failpoints are compiled out, it
// prints one line on stderr saying that the settings have no effect.
Status SetFailpointsFromEnvironment();
// Returns how often each failpoint with a setting was reached since the setting was made.
std::map<std::string, uint64_t> FailpointHits();

namespace failpoint_detail {
extern std::atomic<bool> any_set;
Status Reach(std::string_view name);
}  // namespace failpoint_detail

}  // namespace hpvm

#ifndef HPVMD_NO_FAILPOINTS
#define HPVMD_FAILPOINT(name)                                                   \
  (::hpvm::failpoint_detail::any_set.load(std::memory_order_relaxed)            \
       ? ::hpvm::failpoint_detail::Reach(name)                                  \
       : ::absl::OkStatus())
#else
#define HPVMD_FAILPOINT(name) (::absl::OkStatus())
#endif

#endif  // HPVMD_BASE_FAILPOINT_H_
