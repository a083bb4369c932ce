// SPDX-License-Identifier: Apache-2.0
#include "client/status/retry.h"

#include <algorithm>

#include "client/status/status.h"

#include "base/bytes.h"

namespace hpvm {
namespace {

constexpr Duration kFirst = std::chrono::milliseconds(50);
constexpr Duration kLongest = std::chrono::seconds(2);
// 50 ms doubled this often passes kLongest.
constexpr uint32_t kDoublingsMax = 6;

}  // namespace

bool MayRetry(const Status& failure) {
  // gRPC's own code for a connection that broke under a call is one of these. It cancels calls that reach a server in
  // its last moments; hpvmd has sentences where it cancels.
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
    // A server that asks for more than the patience gets the patience's end.
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
