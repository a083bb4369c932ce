// SPDX-License-Identifier: Apache-2.0
#include "server/executors/module_breaker.h"

#include <gtest/gtest.h>

#include <vector>

namespace hpvm::server {
namespace {

using std::chrono::seconds;

constexpr CrashBreaker::Limits kLimits{3, seconds(60)};
const NativeUse kBad{"aa", "opencl:0", "bad.cl"}, kBeside{"bb", "opencl:0", "beside.cl"},
    kElsewhere{"aa", "opencl:1", "bad.cl"};

Time At(int64_t second) { return Time(seconds(1000 + second)); }

class ModuleBreakerTest : public ::testing::Test {
 protected:
  void Crash(int64_t second, std::vector<NativeUse> in_flight) {
    breaker_.Crashed(in_flight, At(second), kLimits, rng_);
  }
  std::optional<ModuleBreaker::Refusal> Refused(int64_t second, std::vector<NativeUse> uses) {
    return breaker_.Refused(uses, At(second), kLimits);
  }

  ModuleBreaker breaker_;
  SeededRng rng_{7};
};

// As many crashes as the limit leave the module out on that device until the window has passed, and nothing else.
TEST_F(ModuleBreakerTest, LeavesOutOneModuleOnOneDevice) {
  Crash(0, {kBad});
  Crash(1, {kBad});
  EXPECT_FALSE(Refused(1, {kBad}).has_value());
  Crash(2, {kBad});
  const auto refused = Refused(2, {kBeside, kBad});
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->use.name, "bad.cl");
  EXPECT_EQ(refused->use.device, "opencl:0");
  EXPECT_EQ(refused->crashes, 3u);
  EXPECT_EQ(refused->pause, seconds(58));
  EXPECT_FALSE(Refused(2, {kBeside, kElsewhere}).has_value());
  EXPECT_FALSE(Refused(60, {kBad}).has_value());
}

// A module that was in flight by chance in one of the crashes goes on.
TEST_F(ModuleBreakerTest, ChanceIsNoGuilt) {
  Crash(0, {kBad, kBeside});
  Crash(1, {kBad});
  Crash(2, {kBad, kElsewhere});
  EXPECT_TRUE(Refused(2, {kBad}).has_value());
  EXPECT_FALSE(Refused(2, {kBeside, kElsewhere}).has_value());
}

// A module that crashes again when it may try waits longer.
TEST_F(ModuleBreakerTest, WaitsLongerAfterEachFailedTry) {
  Crash(0, {kBad}), Crash(0, {kBad}), Crash(0, {kBad});
  Crash(60, {kBad});
  EXPECT_GE(Refused(60, {kBad})->pause, seconds(90));
}

// The entries of a tenant are bounded: the oldest is dropped.
TEST_F(ModuleBreakerTest, KeepsABoundedNumber) {
  for (int i = 0; i < 3; ++i) {
    Crash(i, {kBad});
  }
  for (size_t i = 0; i + 1 < ModuleBreaker::kKeptMax; ++i) {
    Crash(5, {{std::to_string(i), "opencl:0", "other.cl"}});
  }
  EXPECT_TRUE(Refused(6, {kBad}).has_value());
  Crash(6, {kElsewhere});
  EXPECT_FALSE(Refused(6, {kBad}).has_value());
}

}  // namespace
}  // namespace hpvm::server
