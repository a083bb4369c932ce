// SPDX-License-Identifier: Apache-2.0
#include "server/executors/crash_breaker.h"

#include <algorithm>

namespace hpvm::server {
namespace {

constexpr uint32_t kDoublingsMax = 20;

}  // namespace

void CrashBreaker::Forget(Time now, const Limits& limits) {
  while (!crashes_.empty() && now - crashes_.front() >= limits.window) {
    crashes_.pop_front();
  }
}

void CrashBreaker::Crashed(Time now, Duration lived, const Limits& limits, Rng& rng) {
  if (lived >= limits.window || now - open_until_ >= limits.window) {
    openings_ = 0;  // The executor had proven itself, or all crashes are long past.
  }
  Forget(now, limits);
  crashes_.push_back(now);
  if (openings_ == 0) {
    if (crashes_.size() >= limits.crashes_max) {
      openings_ = 1;
      open_until_ = crashes_.front() + limits.window;
    }
    return;
  }
  // The executor that was to try has crashed. The jitter separates the tries of tenants that crash together.
  const Duration most = std::max(kPauseMax, limits.window);
  const uint32_t doublings = std::min(openings_++, kDoublingsMax);
  const int64_t times = int64_t{1} << doublings;
  const Duration pause = limits.window > most / times ? most : limits.window * times;
  const auto jitter = Duration(static_cast<int64_t>(rng.Below(static_cast<uint64_t>(pause.count() / 4) + 1)));
  open_until_ = now + pause - jitter;
}

Duration CrashBreaker::Pause(Time now, const Limits& limits) {
  Forget(now, limits);
  if (openings_ == 0 || now >= open_until_) {
    return Duration{0};
  }
  return open_until_ - now;
}

}  // namespace hpvm::server
