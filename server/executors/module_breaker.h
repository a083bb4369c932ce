// SPDX-License-Identifier: Apache-2.0
// ModuleBreaker handles device code of a tenant that crashes its executors: the module is left out on that device for
// a while, and the rest of the tenant's work goes on.
//
// The daemon knows only which modules were in flight when an executor ended, so each of them is held responsible; a
// module that was there by chance is refused only if it was there each time. Executors' reports about their modules
// affect their own tenant only.
#ifndef HPVMD_SERVER_EXECUTORS_MODULE_BREAKER_H_
#define HPVMD_SERVER_EXECUTORS_MODULE_BREAKER_H_

#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>

#include "base/clock.h"
#include "server/executors/crash_breaker.h"

namespace hpvm::server {

// NativeUse is a module that was written for a device, and may run there as its author made it.
struct NativeUse {
  std::string module;  // Identity of the module: the hash of its bytes.
  std::string device;  // For example "opencl:0".
  std::string name;    // Name in its document, for people.
  friend bool operator<(const NativeUse& a, const NativeUse& b) {
    return std::tie(a.module, a.device) < std::tie(b.module, b.device);
  }
};

// Guarded by its owner.
class ModuleBreaker {
 public:
  // Limit on entries, of which those that crashed longest ago are forgotten first: for them the limit on all of a
  // tenant's crashes holds.
  static constexpr size_t kKeptMax = 64;

  // Records that an executor ended while these were in flight.
  void Crashed(std::span<const NativeUse> in_flight, Time now, const CrashBreaker::Limits& limits, Rng& rng);

  struct Refusal {
    NativeUse use;
    uint64_t crashes = 0;
    Duration pause{0};  // Time until it may try again.
  };
  // Returns the one of `uses` that may not run now and has to wait longest; nothing when all may run.
  std::optional<Refusal> Refused(std::span<const NativeUse> uses, Time now, const CrashBreaker::Limits& limits);

 private:
  struct Entry {
    CrashBreaker breaker;
    Time last{0};
  };
  std::map<NativeUse, Entry> entries_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_EXECUTORS_MODULE_BREAKER_H_
