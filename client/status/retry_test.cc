// SPDX-License-Identifier: Apache-2.0
#include "client/status/retry.h"

#include <set>

#include "client/status/status.h"
#include "gtest/gtest.h"

namespace hpvm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Only failures that leave open whether the call was carried out, or that may pass later, are retried.
TEST(RetryTest, RepeatsWhatGotNoAnswer) {
  struct Case {
    const char* name;
    Status failure;
    bool again;
  };
  const Case cases[] = {
      {"NoServer", Unavailable("Connection refused."), true},
      {"StreamBroke", MakeStatus(absl::StatusCode::kUnknown, "Stream removed"), true},
      {"CancelledByGrpc", MakeStatus(absl::StatusCode::kCancelled, "CANCELLED"), true},
      {"Cancelled", Cancelled("The job was cancelled."), false},
      {"OtherUnknown", MakeStatus(absl::StatusCode::kUnknown, "?"), false},
      {"QueueFull", ResourceExhausted("The queue is full."), false},
      {"Late", DeadlineExceeded("Too late."), false},
      {"Wrong", InvalidArgument("No."), false},
      {"Fine", absl::OkStatus(), false},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(MayRetry(c.failure), c.again) << c.name;
  }
}

// Each delay lies between half of its step and the step; the steps double up to 2 s.
TEST(RetryTest, BacksOffWithJitter) {
  SeededRng rng(1);
  Retries retries(seconds(3600), rng);
  std::set<int64_t> seen;
  Duration step = milliseconds(50);
  for (int i = 0; i < 40; ++i) {
    const std::optional<Duration> delay = retries.After(Unavailable("x"), seconds(1));
    ASSERT_TRUE(delay.has_value());
    EXPECT_GE(*delay, step / 2) << i;
    EXPECT_LE(*delay, step) << i;
    EXPECT_EQ(retries.IsFirst(), i == 0);
    seen.insert(delay->count());
    step = std::min<Duration>(step * 2, seconds(2));
  }
  EXPECT_GT(seen.size(), 30u);  // Random, not all alike.
}

// An outage longer than the patience ends the call; a response resets the count.
TEST(RetryTest, PatienceIsForOneOutage) {
  SeededRng rng(2);
  Retries retries(seconds(10), rng);
  EXPECT_TRUE(retries.After(Unavailable("x"), seconds(100)).has_value());
  EXPECT_TRUE(retries.After(Unavailable("x"), seconds(105)).has_value());
  EXPECT_FALSE(retries.After(Unavailable("x"), seconds(110)).has_value());
  retries.Answered();
  EXPECT_TRUE(retries.After(Unavailable("x"), seconds(110)).has_value());
  EXPECT_TRUE(retries.IsFirst());
  Retries none(Duration(0), rng);
  EXPECT_FALSE(none.After(Unavailable("x"), seconds(1)).has_value());
}

// The server's delay is a lower bound; a delay beyond the patience ends the call at once instead of sleeping in vain.
TEST(RetryTest, ObeysRetryAfter) {
  const auto failure = [](uint64_t ns) {
    v1::ErrorDetail detail;
    detail.set_retryable(true);
    detail.set_retry_after_ns(ns);
    v1::Status status;
    status.set_code(static_cast<int>(absl::StatusCode::kUnavailable));
    status.set_message("The server drains.");
    status.add_details()->PackFrom(detail);
    return FromProto(status);
  };
  SeededRng rng(3);
  Retries retries(seconds(10), rng);
  EXPECT_GE(*retries.After(failure(3'000'000'000), seconds(1)), seconds(3));
  EXPECT_FALSE(retries.After(failure(11'000'000'000), seconds(1)).has_value());
  EXPECT_FALSE(retries.After(failure(UINT64_MAX), seconds(1)).has_value());
}

// Keys must differ, and the server must accept them.
TEST(RetryTest, KeysAreRandomText) {
  std::set<std::string> keys;
  for (int i = 0; i < 1000; ++i) {
    const std::string key = NewIdempotencyKey();
    EXPECT_EQ(key.size(), 36u);
    keys.insert(key);
  }
  EXPECT_EQ(keys.size(), 1000u);
}

}  // namespace
}  // namespace hpvm
