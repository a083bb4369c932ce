// SPDX-License-Identifier: Apache-2.0
#include "server/executors/module_breaker.h"

#include <algorithm>

namespace hpvm::server {

void ModuleBreaker::Crashed(std::span<const NativeUse> in_flight, Time now, const CrashBreaker::Limits& limits,
                            Rng& rng) {
  for (const NativeUse& use : in_flight) {
    if (!entries_.contains(use) && entries_.size() >= kKeptMax) {
      entries_.erase(std::min_element(entries_.begin(), entries_.end(),
                                      [](const auto& a, const auto& b) { return a.second.last < b.second.last; }));
    }
    Entry& entry = entries_[use];
    entry.last = now;
    // The life of the process says nothing about the module.
    entry.breaker.Crashed(now, Duration{0}, limits, rng);
  }
}

std::optional<ModuleBreaker::Refusal> ModuleBreaker::Refused(std::span<const NativeUse> uses, Time now,
                                                             const CrashBreaker::Limits& limits) {
  std::optional<Refusal> refusal;
  for (const NativeUse& use : uses) {
    const auto found = entries_.find(use);
    if (found == entries_.end()) {
      continue;
    }
    const Duration pause = found->second.breaker.Pause(now, limits);
    if (pause > Duration{0} && (!refusal.has_value() || pause > refusal->pause)) {
      refusal = Refusal{use, found->second.breaker.crashes(), pause};
    }
  }
  return refusal;
}

}  // namespace hpvm::server
