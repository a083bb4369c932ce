// SPDX-License-Identifier: Apache-2.0
#include "server/device_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hpvm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ExecutorDevice Device(const std::string& id, const std::string& silicon) {
  ExecutorDevice device;
  device.id = id;
  device.kind = id.starts_with("cpu") ? "cpu" : "gpu";
  device.silicon = silicon;
  device.memory_bytes = 1000;
  device.allocation_bytes_max = 250;
  return device;
}

class DeviceTableTest : public ::testing::Test {
 protected:
  static DeviceTable Make(const std::string& backends) {
    DeviceTable table(backends);
    table.SetFound("vulkan", ProbedDevices{{Device("vulkan:0", "gpu-1")}, {{"vulkan:1", "It is on fire."}}});
    table.SetFound("cpu", ProbedDevices{{Device("cpu:0", "cpu")}, {}});
    table.SetFound("opencl", ProbedDevices{{Device("opencl:0", "gpu-1"), Device("opencl:1", "gpu-2")}, {}});
    return table;
  }
  static Time At(int ms) { return Time(std::chrono::milliseconds(ms)); }
};

// Which families are asked, and what is not a list of backends.
TEST_F(DeviceTableTest, ReadsTheList) {
  EXPECT_THAT(*FamiliesOf("auto"), ElementsAre("cpu", "opencl", "vulkan"));
  EXPECT_THAT(*FamiliesOf("cpu"), ElementsAre("cpu"));
  EXPECT_THAT(*FamiliesOf("cpu, vulkan:1 ,vulkan:0"), ElementsAre("cpu", "vulkan"));
  for (const char* bad :
       {"", "gpu", "opencl", "cpu,", "cpu:0", "cpu,opencl:", "cpu,opencl:x", "cpu,opencl:1000", "auto,cpu"}) {
    EXPECT_FALSE(FamiliesOf(bad).ok()) << bad;
  }
}

// The profile has the CPU first, then what works, in one order whatever probe answers first.
TEST_F(DeviceTableTest, ProfilesHoldWhatWorks) {
  EXPECT_THAT(Make("auto").Profile(), ElementsAre("cpu", "opencl:0", "opencl:1", "vulkan:0"));
  EXPECT_THAT(Make("cpu,opencl:1,vulkan").Profile(), ElementsAre("cpu", "opencl:1", "vulkan:0"));
  EXPECT_THAT(Make("cpu").Profile(), ElementsAre("cpu"));
  DeviceTable many("auto");
  ProbedDevices found;
  for (int i = 0; i < 20; ++i) {
    found.devices.push_back(Device("opencl:" + std::to_string(i), ""));
  }
  many.SetFound("opencl", found);
  EXPECT_EQ(many.Profile().size(), DeviceTable::kProfileMax);
}

// Emulated devices are there for families that have nothing else, unless the list names them.
TEST_F(DeviceTableTest, EmulatedDevicesAreFallbacks) {
  ExecutorDevice emulated = Device("vulkan:1", "cpu");
  emulated.is_emulated = true;
  for (const char* backends : {"auto", "cpu,vulkan"}) {
    DeviceTable table(backends);
    table.SetFound("vulkan", ProbedDevices{{emulated, Device("vulkan:0", "gpu-1")}, {}});
    const std::vector<std::string> want = backends == std::string("auto")
                                              ? std::vector<std::string>{"cpu", "vulkan:0"}
                                              : std::vector<std::string>{"cpu", "vulkan:1", "vulkan:0"};
    EXPECT_EQ(table.Profile(), want) << backends;
    table.SetFound("vulkan", ProbedDevices{{emulated}, {}});
    EXPECT_THAT(table.Profile(), ElementsAre("cpu", "vulkan:1"));
  }
}

// One GPU behind two drivers: its memory is told once; broken devices say why.
TEST_F(DeviceTableTest, DescribesDevices) {
  const std::vector<v1::Device> devices = Make("auto").Describe();
  ASSERT_EQ(devices.size(), 5u);
  EXPECT_EQ(devices[1].id(), "opencl:0");
  EXPECT_EQ(devices[1].memory_shared_with(), "");
  EXPECT_EQ(devices[1].allocation_bytes_max(), 250u);
  EXPECT_EQ(devices[3].id(), "vulkan:0");
  EXPECT_EQ(devices[3].memory_shared_with(), "opencl:0");
  EXPECT_EQ(devices[4].state(), v1::Device::STATE_BROKEN);
  EXPECT_EQ(devices[4].detail(), "It is on fire.");
  DeviceTable table("auto");
  table.SetFound("opencl", Unavailable("The probe died."));
  ASSERT_EQ(table.Describe().size(), 1u);
  EXPECT_EQ(table.Describe()[0].state(), v1::Device::STATE_BROKEN);
  EXPECT_THAT(table.Describe()[0].detail(), HasSubstr("The probe died."));
}

// A lost device is left out, probed at once, and back when it answers.
TEST_F(DeviceTableTest, FencesAndReadmits) {
  DeviceTable table = Make("auto");
  const std::vector<std::string> before = table.Profile();
  EXPECT_TRUE(table.Fence("opencl:0", "A run lost it.", At(5)));
  EXPECT_FALSE(table.Fence("opencl:0", "Another, too.", At(6)));
  EXPECT_FALSE(table.Fence("cpu:0", "A run lost it.", At(5)));
  EXPECT_FALSE(table.Fence("opencl:9", "A run lost it.", At(5)));
  EXPECT_THAT(table.Profile(), ElementsAre("cpu", "opencl:1", "vulkan:0"));
  EXPECT_EQ(table.Describe()[1].state(), v1::Device::STATE_PROBING);
  EXPECT_EQ(table.NextProbe(), At(5));
  ASSERT_EQ(table.DueProbe(At(5)), "opencl:0");
  EXPECT_TRUE(table.IsSettling());
  EXPECT_EQ(table.DueProbe(At(5)), std::nullopt);
  EXPECT_EQ(table.NextProbe(), kNever);
  table.OnProbed("opencl:0", absl::OkStatus(), At(300));
  EXPECT_EQ(table.Profile(), before);
  EXPECT_EQ(table.Describe()[1].detail(), "");
}

// Failing probes are repeated later and later, and the third gives the device up until the next discovery.
TEST_F(DeviceTableTest, ThreeStrikes) {
  DeviceTable table = Make("auto");
  table.Fence("vulkan:0", "A run lost it.", At(0));
  int now = 0;
  for (const int wait : {1000, 2000}) {
    ASSERT_EQ(table.DueProbe(At(now)), "vulkan:0");
    table.OnProbed("vulkan:0", Unavailable("It is silent."), At(now));
    EXPECT_FALSE(table.IsSettling());  // Nobody waits for a device that did not answer.
    EXPECT_EQ(table.NextProbe(), At(now + wait));
    EXPECT_EQ(table.DueProbe(At(now + wait - 1)), std::nullopt);
    now += wait;
  }
  ASSERT_EQ(table.DueProbe(At(now)), "vulkan:0");
  table.OnProbed("vulkan:0", Unavailable("It is silent."), At(now));
  EXPECT_EQ(table.NextProbe(), kNever);
  EXPECT_EQ(table.Describe()[3].state(), v1::Device::STATE_BROKEN);
  EXPECT_THAT(table.Describe()[3].detail(), HasSubstr("after 3 failed probes: It is silent."));
  EXPECT_THAT(table.Profile(), ElementsAre("cpu", "opencl:0", "opencl:1"));
  table.SetFound("vulkan", ProbedDevices{{Device("vulkan:0", "gpu-1")}, {}});
  EXPECT_THAT(table.Profile(), ElementsAre("cpu", "opencl:0", "opencl:1", "vulkan:0"));
}

}  // namespace
}  // namespace hpvm
