// SPDX-License-Identifier: Apache-2.0
#include "server/jobs/clock_watch.h"

#include <algorithm>

namespace hpvm::server {
namespace {

constexpr Duration kJump = std::chrono::minutes(1);
// Long enough for a machine to learn the time.
constexpr Duration kAfterStart = std::chrono::hours(1);
// A clock that is corrected without a jump deviates in speed by at most one part in this number.
constexpr int64_t kSlew = 1'000;

Duration FromMs(uint64_t ms) {
  constexpr uint64_t kNsPerMs = 1'000'000;
  return Duration(static_cast<int64_t>(std::min<uint64_t>(ms, INT64_MAX / kNsPerMs) * kNsPerMs));
}

}  // namespace

ClockWatch::ClockWatch(const Clock& clock)
    : clock_(clock), started_(clock.Now()), looked_(started_), reference_(Offset()) {}

std::optional<Duration> ClockWatch::Look() {
  const Time now = clock_.Now();
  const Duration slew = std::max(now - looked_, Duration{0}) / kSlew;
  looked_ = now;
  const Duration by = Offset() - reference_;
  if (by >= -kJump && by <= kJump) {
    reference_ += std::clamp(by, -slew, slew);
    return std::nullopt;
  }
  reference_ += by;
  jumped_ = now;
  return by;
}

bool ClockWatch::Believes(uint64_t age_ms) const {
  const Duration age = FromMs(age_ms);
  return jumped_.has_value() ? looked_ - *jumped_ >= age : looked_ - started_ >= std::min(age, kAfterStart);
}

}  // namespace hpvm::server
