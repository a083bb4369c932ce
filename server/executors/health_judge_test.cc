// SPDX-License-Identifier: Apache-2.0
#include "server/executors/health_judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/config/device_families.h"

namespace hpvm::server {
namespace {

using ::testing::HasSubstr;

const std::string kUuid = "5fd4f8a11c2d4e3fa0b1c2d3e4f50617";

std::string Line(const std::string& members) {
  return R"({"devices":[{"uuid":"GPU-5fd4f8a1-1c2d-4e3f-a0b1-c2d3e4f50617","bus":"00000000:19:00.0")" +
         (members.empty() ? "" : "," + members) + "}]}";
}

class HealthJudgeTest : public ::testing::Test {
 protected:
  // Returns the fence after the reading.
  std::string After(const std::string& members) {
    const auto readings = ParseHealthReading(Line(members));
    EXPECT_TRUE(readings.ok()) << readings.status();
    judge_.OnReading(*readings, 90, 7);
    return judge_.vitals().front().health.fence();
  }
  HealthJudge judge_;
};

TEST_F(HealthJudgeTest, ReadsWhatIsSaid) {
  const auto readings = ParseHealthReading(Line(
      R"("driver":"550.1","temperature_c":41,"power_w":71.5,"power_limit_w":700,"memory_used_bytes":1024,"busy":0.5,)"
      R"("ecc_corrected":3,"ecc_uncorrected":1,"throttled":true,"xids":[13,79])"));
  ASSERT_TRUE(readings.ok());
  const v1::DeviceHealth& health = readings->front().health;
  EXPECT_EQ(health.uuid(), kUuid);
  EXPECT_EQ(health.bus(), "0000:19:00.0");
  EXPECT_EQ(health.driver_version(), "550.1");
  EXPECT_EQ(health.temperature_c(), 41);
  EXPECT_EQ(health.power_w(), 71.5);
  EXPECT_EQ(health.busy(), 0.5);
  EXPECT_EQ(health.ecc_uncorrected(), 1u);
  EXPECT_TRUE(health.throttled());
  EXPECT_EQ(readings->front().xids, (std::vector<uint64_t>{13, 79}));
}

// A reading that cannot be true is ignored, and makes no fence.
TEST_F(HealthJudgeTest, LiesAreNotBelieved) {
  for (const char* members : {R"("temperature_c":1000000000)", R"("temperature_c":-1e300)", R"("temperature_c":"hot")",
                              R"("power_w":-1)", R"("busy":7)", R"("ecc_uncorrected":-1)", R"("ecc_uncorrected":1.5)",
                              R"("xids":"79")", R"("xids":[-1,"x",1e9])", R"("xids":[79000000000])", R"("lost":1)",
                              R"("memory_used_bytes":99999999999999999999)", R"("xids":{})"}) {
    HealthJudge fresh;
    const auto readings = ParseHealthReading(Line(members));
    ASSERT_TRUE(readings.ok()) << members;
    fresh.OnReading(*readings, 90, 7);
    fresh.OnReading(*readings, 90, 8);
    v1::DeviceHealth expected;
    expected.set_uuid(kUuid);
    expected.set_bus("0000:19:00.0");
    expected.set_read_unix_ns(8);
    EXPECT_EQ(fresh.vitals().front().health.SerializeAsString(), expected.SerializeAsString()) << members;
  }
  for (const char* line : {"", "{", "[]", "7", "{}", R"({"devices":{}})", R"({"devices":null})", "\xff\xfe"}) {
    EXPECT_EQ(ParseHealthReading(line).status().code(), absl::StatusCode::kInvalidArgument) << line;
  }
  std::string many = R"({"devices":[)";
  for (int i = 0; i < 1'000; ++i) {
    many += "{},";
  }
  EXPECT_EQ(ParseHealthReading(many + "{}]}").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(ParseHealthReading(R"({"devices":[7,{},{"uuid":"GPU-zz","bus":"../../etc"}]})")->empty());
  EXPECT_EQ(ParseHealthReading(R"({"error":"It is\u0007 gone."})").status().code(), absl::StatusCode::kUnavailable);
}

// A flood of made-up devices takes no more than its places, and known devices stay.
TEST_F(HealthJudgeTest, DevicesHaveAnEnd) {
  EXPECT_EQ(After(""), "");
  for (int i = 0; i < 1'000; ++i) {
    DeviceReading reading;
    char uuid[33];
    snprintf(uuid, sizeof uuid, "%032x", i + 1);
    reading.health.set_uuid(uuid);
    judge_.OnReading({reading}, 90, 7);
  }
  EXPECT_EQ(judge_.vitals().size(), kHealthDevicesMax);
}

TEST_F(HealthJudgeTest, FaultsOfTheDeviceFenceIt) {
  EXPECT_EQ(After(R"("xids":[13,31,43,45,63,12345])"), "");  // Faults of applications, notices and unknown numbers.
  EXPECT_EQ(judge_.vitals().front().health.last_xid(), 12345u);
  EXPECT_EQ(After(R"("xids":[79])"), "The driver reported Xid 79: it has fallen off the bus.");
  EXPECT_THAT(After(R"("xids":[48])"), HasSubstr("Xid 79"));  // The first reason stays.
  EXPECT_THAT(After(""), HasSubstr("Xid 79"));                // A reading without the fault does not lift the fence.
  judge_.OnSilence();
  EXPECT_THAT(judge_.vitals().front().health.fence(), HasSubstr("Xid 79"));
  judge_.Lift(kUuid, "");
  EXPECT_EQ(After(""), "");
  for (const uint64_t xid : {48, 62, 64, 74, 79, 92, 94, 95, 119, 120, 140}) {
    EXPECT_FALSE(FatalXid(xid).empty()) << xid;
  }
  EXPECT_THAT(After(R"("lost":true)"), HasSubstr("has lost the device"));
  judge_.Lift(kUuid, "");
  EXPECT_THAT(After(R"("awaits_reset":true)"), HasSubstr("when the device is reset"));
  judge_.Lift(kUuid, "");
  EXPECT_EQ(After(R"("awaits_reset":true)"), "");  // Forgiven until it is over.
  EXPECT_EQ(After(R"("awaits_reset":false)"), "");
  EXPECT_THAT(After(R"("awaits_reset":true)"), HasSubstr("when the device is reset"));
}

// Errors from before the server started, and forgiven errors, are not new.
TEST_F(HealthJudgeTest, GrowingMemoryErrorsFence) {
  EXPECT_EQ(After(R"("ecc_uncorrected":5,"ecc_corrected":0)"), "");
  EXPECT_EQ(After(R"("ecc_uncorrected":5,"ecc_corrected":900)"), "");
  EXPECT_EQ(After(R"("ecc_uncorrected":7)"), "The device's memory had 2 errors that could not be corrected.");
  judge_.Lift(kUuid, "");
  EXPECT_EQ(After(R"("ecc_uncorrected":7)"), "");
  EXPECT_EQ(After(R"("ecc_uncorrected":0)"), "");  // The driver was loaded again.
  EXPECT_THAT(After(R"("ecc_uncorrected":1)"), HasSubstr("1 errors"));
}

TEST_F(HealthJudgeTest, HeatFencesUntilItHasCooledDown) {
  EXPECT_EQ(After(R"("temperature_c":89)"), "");
  EXPECT_THAT(After(R"("temperature_c":90)"), HasSubstr("90 degrees Celsius; the limit is 90"));
  EXPECT_TRUE(judge_.vitals().front().is_fenced_by_heat);
  EXPECT_THAT(After(R"("temperature_c":81)"), HasSubstr("too hot"));
  EXPECT_THAT(After(""), HasSubstr("too hot"));  // Not known to have cooled down.
  EXPECT_EQ(After(R"("temperature_c":80)"), "");
  EXPECT_THAT(After(R"("temperature_c":95)"), HasSubstr("too hot"));
  EXPECT_THAT(After(R"("temperature_c":95,"xids":[79])"), HasSubstr("Xid 79"));
  EXPECT_FALSE(judge_.vitals().front().is_fenced_by_heat);
  EXPECT_THAT(After(R"("temperature_c":30)"), HasSubstr("Xid 79"));
}

// The device stays known when the library omits a part of it.
TEST_F(HealthJudgeTest, OneDeviceStaysOne) {
  EXPECT_EQ(After(""), "");
  const auto say = [&](const char* line) { judge_.OnReading(*ParseHealthReading(line), 90, 7); };
  for (uint32_t i = 0; i < 2 * HealthJudge::kMissesMax; ++i) {
    say(R"({"devices":[{"uuid":"AAAA","bus":"00000000:19:00.0"}]})");
    say(R"({"devices":[{"uuid":"GPU-5fd4f8a1-1c2d-4e3f-a0b1-c2d3e4f50617","bus":"AAAA"}]})");
  }
  ASSERT_EQ(judge_.vitals().size(), 1u);
  EXPECT_EQ(judge_.vitals().front().health.uuid(), kUuid);
  EXPECT_EQ(judge_.vitals().front().health.bus(), "0000:19:00.0");
  EXPECT_EQ(judge_.vitals().front().health.fence(), "");
}

TEST_F(HealthJudgeTest, DevicesThatVanishAreFenced) {
  EXPECT_EQ(After(""), "");
  judge_.OnReading({}, 90, 7);
  judge_.OnReading({}, 90, 7);
  EXPECT_EQ(judge_.vitals().front().health.fence(), "");
  EXPECT_EQ(After(""), "");
  for (uint32_t i = 0; i < HealthJudge::kMissesMax; ++i) {
    EXPECT_EQ(judge_.vitals().front().health.fence(), "");
    judge_.OnReading({}, 90, 7);
  }
  EXPECT_THAT(judge_.vitals().front().health.fence(), HasSubstr("The device is gone"));
  EXPECT_THAT(After(""), HasSubstr("The device is gone"));
}

TEST(DeviceNamesTest, FormsOfOneName) {
  EXPECT_EQ(UuidOf("GPU-5FD4F8A1-1c2d-4e3f-a0b1-c2d3e4f50617"), kUuid);
  EXPECT_EQ(UuidOf(kUuid), kUuid);
  for (const char* bad : {"", "GPU-", "5fd4", "00000000000000000000000000000000", "5fd4f8a11c2d4e3fa0b1c2d3e4f5061g",
                          "5fd4f8a11c2d4e3fa0b1c2d3e4f506170"}) {
    EXPECT_EQ(UuidOf(bad), "") << bad;
  }
  EXPECT_EQ(BusOf("00000001:3B:00.0"), "0001:3b:00.0");
  for (const char* bad : {"", "0", "0000:3b:00", "0000:3b:00.0x", "0000:3b:00.0 ", "x"}) {
    EXPECT_EQ(BusOf(bad), "") << bad;
  }
  for (const char* good :
       {"", "opencl", "vulkan:1,opencl:0", "GPU-5fd4f8a1-1c2d-4e3f-a0b1-c2d3e4f50617, 0000:3b:00.0"}) {
    EXPECT_TRUE(CheckDeviceNames(good).ok()) << good;
  }
  for (const char* bad : {"cpu", "cpu:0", "gpu", "vulkan:", "vulkan:x", "opencl,", "GPU-1"}) {
    EXPECT_EQ(CheckDeviceNames(bad).code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

}  // namespace
}  // namespace hpvm::server
