// SPDX-License-Identifier: Apache-2.0
// Places where a test can make the program fail: at every durable write and every message.
//
//   HPVMD_RETURN_IF_ERROR(HPVMD_FAILPOINT("store.commit.before"));
//
// Each place has a name, "part.what.when", listed in docs/FAILPOINTS.md, as a test checks. What happens there is set by
// the environment variable HPVMD_FAILPOINTS, read when the first place is reached, or by SetFailpoints:
//
//   store.commit.before=error(unavailable)      a status with that code
//   store.commit.after=kill@3                   SIGKILL to this process, the third time
//   link.send=sleep(250)%10                     milliseconds, in one of ten cases (from a seed: HPVMD_FAILPOINT_SEED)
//   a=abort;b=error(resource_exhausted)@2+      several; from the second time on
//
// Compiled out (a constant OK) where the build option HPVMD_FAILPOINTS is off, as in packages. Without settings a place
// costs one relaxed load.
#ifndef HPVMD_BASE_FAILPOINT_H_
#define HPVMD_BASE_FAILPOINT_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/status.h"

namespace hpvm {

// Replaces all settings; empty: none. kInvalidArgument naming the part that is wrong; kFailedPrecondition where places
// are compiled out. Any thread.
Status SetFailpoints(std::string_view settings, uint64_t seed = 1);
// For the start of main: takes the settings from the environment now and says what is wrong with them. A process that
// does not call it reads them at the first place, and ends there when they are wrong. Where places are compiled out,
// one line on stderr says that the settings do nothing.
Status SetFailpointsFromEnvironment();
// How often each place that has a setting was reached since then.
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
