// SPDX-License-Identifier: Apache-2.0
#include "client/status/retry.h"

#include <algorithm>

#include "client/status/status.h"

#include "base/bytes.h"

namespace hpvm {
namespace {

constexpr Duration kFirst = std::chrono::milliseconds(50);
constexpr Duration kLongest = std::chrono::seconds(2);
// 50 ms doubled this often exceeds kLongest.
constexpr uint32_t kDoublingsMax = 6;

}  // namespace

bool MayRetry(const Status& failure) {
  // kCancelled is gRPC's own code for a connection that broke during a call, and for calls that reach a server in its
  // last moments; where hpvmd itself cancels, the message is a sentence.
  return failure.code() == absl::StatusCode::kUnavailable ||
         (failure.code() == absl::StatusCode::kUnknown && Message(failure) == "Stream removed") ||
         (failure.code() == absl::StatusCode::kCancelled && Message(failure) == "CANCELLED");
}

std::optional<Duration> Retries::After(const Status& failure, Time now) {
  if (failures_ == 0) {
    since_ = now;
  }
  const Duration whole = std::min(kLongest, kFirst * (int64_t{1} << std::min(failures_, kDoublingsMax)));
  failures_ = std::min(failures_ + 1, uint32_t{1} << 30);
  Duration delay = whole / 2 + Duration(rng_.Below(static_cast<uint64_t>(whole.count() / 2)));
  if (const std::optional<v1::ErrorDetail> detail = DetailOf(failure)) {
    // When the server asks for a longer delay than the patience, the wait ends with the patience.
    delay = std::max(delay, Duration(static_cast<int64_t>(std::min<uint64_t>(detail->retry_after_ns(), INT64_MAX))));
  }
  if (delay > patience_ || now - since_ > patience_ - delay) {
    return std::nullopt;
  }
  return delay;
}

void Retries::Answered() { failures_ = 0; }

std::string NewIdempotencyKey() { return "key-" + HexOfNumber(SystemRng().Next()) + HexOfNumber(SystemRng().Next()); }

}  // namespace hpvm
