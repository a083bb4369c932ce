// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/speeds.h"

#include "gtest/gtest.h"

namespace hpvm::gpu {
namespace {

// The estimates from an H200's driver are within a factor of two of measurements there.
TEST(SpeedsTest, ComeNearAKnownDevice) {
  DeviceInfo info;
  info.compute_units = 132;
  EstimateSpeeds({.clock_hz = 1.98e9, .lanes_per_unit = 128, .has_stacked_memory = true, .launch_ns = 4000}, &info);
  EXPECT_NEAR(info.operations_per_second, 33.5e12, 1e12);
  EXPECT_GT(info.bytes_per_second, 4.4e12 / 2);
  EXPECT_LT(info.bytes_per_second, 4.4e12 * 2);
  EXPECT_EQ(info.launch_ns, 4000);
  EXPECT_GE(info.upload_bytes_per_second, 7e9);
  EXPECT_LE(info.upload_bytes_per_second, 50e9);
}

// Devices that are the host are no faster than it; unknown speeds stay unknown.
TEST(SpeedsTest, ClaimNothingThatIsNotKnown) {
  DeviceInfo processor;
  processor.compute_units = 2;
  processor.is_emulated = true;
  EstimateSpeeds({.launch_ns = 1}, &processor);
  EXPECT_LT(processor.operations_per_second, 50e9);
  EXPECT_LT(processor.bytes_per_second, 50e9);
  EXPECT_EQ(processor.download_bytes_per_second, 7e9);
  DeviceInfo strange;
  EstimateSpeeds({}, &strange);
  EXPECT_EQ(strange.operations_per_second, 0);
  EXPECT_EQ(strange.bytes_per_second, 0);
}

}  // namespace
}  // namespace hpvm::gpu
