// SPDX-License-Identifier: Apache-2.0
// When a tenant's own device code crashes its executors: that module is left out on that device for a while, and the
// rest of the tenant's work goes on.
//
// Which modules were in flight when an executor ended is all that the daemon knows, so each of them is held
// responsible; one that was there by chance is so only if it was there each time. What executors say of their modules
// hurts and helps their own tenant alone.
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

// A module that was written for a device, and may run there as its author made it.
struct NativeUse {
  std::string module;  // What tells it from others: the hash of its bytes.
  std::string device;  // "opencl:0".
  std::string name;    // In its document, for people.
  friend bool operator<(const NativeUse& a, const NativeUse& b) {
    return std::tie(a.module, a.device) < std::tie(b.module, b.device);
  }
};

// Guarded by its owner.
class ModuleBreaker {
 public:
  // More are forgotten, those that crashed longest ago first: the bound on a tenant's crashes in all holds for them.
  static constexpr size_t kKeptMax = 64;

  // An executor ended while these were in flight.
  void Crashed(std::span<const NativeUse> in_flight, Time now, const CrashBreaker::Limits& limits, Rng& rng);

  struct Refusal {
    NativeUse use;
    uint64_t crashes = 0;
    Duration pause{0};  // Until it may try again.
  };
  // Which of `uses` may not run now, the one that has to wait longest.
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
