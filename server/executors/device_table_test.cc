// SPDX-License-Identifier: Apache-2.0
#include "server/executors/device_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/config/device_families.h"
#include "supervisor/testing/messages.h"

namespace hpvm::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::Device Device(const std::string& id, const std::string& silicon) {
  v1::Device device = supervisor::testing::FoundDevice(id, silicon, 1000);
  device.set_allocation_bytes_max(250);
  return device;
}

v1::DriverDefect Defect(const std::string& name, const std::string& reason, bool in_generated_code) {
  v1::DriverDefect defect;
  defect.set_name(name);
  defect.set_reason(reason);
  defect.set_in_generated_code(in_generated_code);
  return defect;
}

google::protobuf::RepeatedPtrField<internal::NativeNode> Nodes(std::initializer_list<internal::NativeNode> nodes) {
  return {nodes.begin(), nodes.end()};
}

class DeviceTableTest : public ::testing::Test {
 protected:
  static DeviceTable Make(const std::string& backends) {
    DeviceTable table(backends);
    table.SetFound("vulkan",
                   supervisor::testing::Found({Device("vulkan:0", "gpu-1")},
                                              {supervisor::testing::BrokenDevice("vulkan:1", "It is on fire.")}));
    table.SetFound("cpu", supervisor::testing::Found({Device("cpu:0", "cpu")}));
    table.SetFound("opencl", supervisor::testing::Found({Device("opencl:0", "gpu-1"), Device("opencl:1", "gpu-2")}));
    return table;
  }
  static Time At(int ms) { return Time(std::chrono::milliseconds(ms)); }
};

// FamiliesOf returns the families to probe, and rejects an invalid list of backends.
TEST_F(DeviceTableTest, ReadsTheList) {
  EXPECT_THAT(*FamiliesOf("auto"), ElementsAre("cpu", "opencl", "vulkan"));
  EXPECT_THAT(*FamiliesOf("cpu"), ElementsAre("cpu"));
  EXPECT_THAT(*FamiliesOf("cpu:0,opencl"), ElementsAre("cpu", "opencl"));  // The form that hpvmctl's tables print.
  EXPECT_THAT(*FamiliesOf("cpu, vulkan:1 ,vulkan:0"), ElementsAre("cpu", "vulkan"));
  for (const char* bad :
       {"", "gpu", "opencl", "cpu,", "cpu:1", "cpu,opencl:", "cpu,opencl:x", "cpu,opencl:1000", "auto,cpu"}) {
    EXPECT_FALSE(FamiliesOf(bad).ok()) << bad;
  }
}

// The profile has the CPU first, then the working devices, in one order whichever probe answers first.
TEST_F(DeviceTableTest, ProfilesHoldWhatWorks) {
  EXPECT_THAT(Make("auto").Profile(), ElementsAre("cpu", "opencl:0", "opencl:1", "vulkan:0"));
  EXPECT_THAT(Make("cpu,opencl:1,vulkan").Profile(), ElementsAre("cpu", "opencl:1", "vulkan:0"));
  EXPECT_THAT(Make("cpu").Profile(), ElementsAre("cpu"));
  DeviceTable many("auto");
  internal::Ready found;
  for (int i = 0; i < 20; ++i) {
    *found.add_devices()->mutable_device() = Device("opencl:" + std::to_string(i), "");
  }
  many.SetFound("opencl", found);
  EXPECT_EQ(many.Profile().size(), DeviceTable::kProfileMax);
}

// Devices can be denied by id, family, UUID or bus address; the CPU and broken devices are not affected.
TEST_F(DeviceTableTest, DeniedDevicesAreLeftToOthers) {
  const auto profile = [](const std::string& denied) {
    DeviceTable table("auto", denied);
    v1::Device first = Device("opencl:0", "gpu-1"), second = Device("opencl:1", "gpu-2");
    first.mutable_health()->set_uuid("GPU-5FD4F8A1-0000-1111-2222-333344445555");
    first.mutable_health()->set_bus("00000000:1B:00.0");
    table.SetFound("cpu", supervisor::testing::Found({Device("cpu:0", "cpu")}));
    table.SetFound("opencl", supervisor::testing::Found({first, second}));
    std::string states;
    size_t left_out = 0;
    for (const v1::Device& device : table.Describe()) {
      const bool is_out = device.state() == v1::Device::STATE_LEFT_OUT;
      left_out += is_out ? 1 : 0;
      states += device.id() + (is_out ? " out " : " ");
      EXPECT_EQ(device.detail().find("devices.deny") != std::string::npos, is_out);
    }
    EXPECT_EQ(table.Profile().size() + left_out, 3u) << states;
    return states;
  };
  EXPECT_EQ(profile(""), "cpu:0 opencl:0 opencl:1 ");
  EXPECT_EQ(profile("opencl:1"), "cpu:0 opencl:0 opencl:1 out ");
  EXPECT_EQ(profile("opencl"), "cpu:0 opencl:0 out opencl:1 out ");
  EXPECT_EQ(profile("5fd4f8a1-0000-1111-2222-333344445555"), "cpu:0 opencl:0 out opencl:1 ");
  EXPECT_EQ(profile("0000:1b:00.0, opencl:1"), "cpu:0 opencl:0 out opencl:1 out ");
  EXPECT_EQ(profile("GPU-00000000-0000-1111-2222-333344445555,0000:2b:00.0,vulkan"), "cpu:0 opencl:0 opencl:1 ");
}

// A paused device keeps its place and is closed; work that needs only this device gets the reason, whatever else there
// is.
TEST_F(DeviceTableTest, PausedDevicesAreClosed) {
  DeviceTable table = Make("auto");
  const auto why = [&](std::initializer_list<std::string> needs) {
    return table.WhyAllClosed({needs.begin(), needs.end()});
  };
  EXPECT_EQ(why({"vulkan:0"}), "");
  EXPECT_TRUE(table.SetPaused({{"vulkan:0", {.reason = "new fans"}}, {"opencl:7", {}}}));
  EXPECT_FALSE(table.SetPaused({{"vulkan:0", {.reason = "new fans"}}, {"opencl:7", {}}}));
  EXPECT_TRUE(table.IsClosed("vulkan:0"));
  EXPECT_FALSE(table.IsClosed("cpu"));
  EXPECT_THAT(table.Profile(), ElementsAre("cpu", "opencl:0", "opencl:1", "vulkan:0"));
  EXPECT_EQ(why({"cpu:0,vulkan:0", "vulkan:0"}),
            "vulkan:0 is paused: new fans. A part of the graph runs nowhere else.");
  EXPECT_EQ(why({"opencl:0,vulkan:0"}), "");
  EXPECT_THAT(why({"vulkan:0,vulkan:1"}), HasSubstr("vulkan:0 is paused"));  // vulkan:1 is broken.
  EXPECT_THAT(why({"opencl:7,vulkan:0"}), HasSubstr("opencl:7 is paused. vulkan:0 is paused"));
  EXPECT_EQ(why({"vulkan:1"}), "");  // Waiting would not help.
  EXPECT_TRUE(table.SetPaused({{"cpu:0", {}}}));
  EXPECT_TRUE(table.IsClosed("cpu"));  // Profiles name the device "cpu".
  EXPECT_TRUE(table.Describe()[0].has_paused());
}

// Operations that a driver computes wrongly are reported with the device, and for graphs with modules written for it; a
// device that computes generated code wrongly runs none of it.
TEST_F(DeviceTableTest, DefectsAreSaid) {
  DeviceTable table = Make("auto");
  const auto nodes = Nodes({supervisor::testing::Native("outer/blur", "blur.cl", {"opencl:0", "opencl:1"}),
                            supervisor::testing::Native("sharpen", "sharpen.spv", {"vulkan:0"})});
  EXPECT_TRUE(table.DefectNotes(nodes).empty());
  EXPECT_THAT(table.DriverDevices(), ::testing::SizeIs(3));
  table.SetDefects("opencl:1",
                   {Defect("wrapped-address", "It loses a wrap-around.", false), Defect("ours", "It is slow.", true)});
  table.SetDefects("opencl:9", {Defect("nowhere", "There is no such device.", false)});
  const std::vector<std::string> notes = table.DefectNotes(nodes);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_THAT(notes[0], HasSubstr("The driver of opencl:1"));
  EXPECT_THAT(notes[0], HasSubstr("node \"outer/blur\". wrapped-address: It loses a wrap-around."));
  EXPECT_THAT(notes[0], ::testing::Not(HasSubstr("sharpen")));
  EXPECT_THAT(notes[0], ::testing::Not(HasSubstr("slow")));
  const std::vector<v1::Device> shown = table.Describe();
  ASSERT_EQ(shown[2].id(), "opencl:1");
  ASSERT_EQ(shown[2].defects_size(), 2);
  EXPECT_EQ(shown[2].defects(0).name(), "wrapped-address");
  EXPECT_FALSE(shown[2].defects(0).in_generated_code());
  EXPECT_TRUE(shown[2].defects(1).in_generated_code());
  EXPECT_TRUE(table.EmittedRefused({"cpu", "opencl:0"}).empty());
  const std::vector<internal::RefusedDevice> refused = table.EmittedRefused({"cpu", "opencl:0", "opencl:1"});
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused[0].id(), "opencl:1");
  EXPECT_THAT(refused[0].reason(), HasSubstr("computes generated code wrongly (ours)"));
  // Until it is probed again, the same driver keeps its defects; another driver starts without.
  internal::Ready again = supervisor::testing::Found({Device("opencl:0", "gpu-1"), Device("opencl:1", "gpu-2")});
  table.SetFound("opencl", again);
  EXPECT_EQ(table.EmittedRefused({"opencl:1"}).size(), 1u);
  again.mutable_devices(1)->mutable_device()->set_name("A new driver");
  table.SetFound("opencl", again);
  EXPECT_TRUE(table.EmittedRefused({"opencl:1"}).empty());
}

// Notes about many nodes stay short.
TEST_F(DeviceTableTest, NotesOfManyNodesAreShort) {
  DeviceTable table = Make("auto");
  table.SetDefects("opencl:0", {Defect("wrapped-address", "It loses a wrap-around.", false)});
  google::protobuf::RepeatedPtrField<internal::NativeNode> nodes;
  for (int i = 0; i < 100; ++i) {
    *nodes.Add() = supervisor::testing::Native("node-" + std::to_string(i), "m.cl", {"opencl:0"});
  }
  const std::vector<std::string> notes = table.DefectNotes(nodes);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_THAT(notes[0], HasSubstr("\"node-4\" and 95 more."));
  EXPECT_THAT(notes[0], ::testing::Not(HasSubstr("node-5")));
}

// Emulated devices serve families that have no other, unless the list names them.
TEST_F(DeviceTableTest, EmulatedDevicesAreFallbacks) {
  v1::Device emulated = Device("vulkan:1", "cpu");
  emulated.set_emulated(true);
  for (const char* backends : {"auto", "cpu,vulkan"}) {
    DeviceTable table(backends);
    table.SetFound("vulkan", supervisor::testing::Found({emulated, Device("vulkan:0", "gpu-1")}));
    const std::vector<std::string> want = backends == std::string("auto")
                                              ? std::vector<std::string>{"cpu", "vulkan:0"}
                                              : std::vector<std::string>{"cpu", "vulkan:1", "vulkan:0"};
    EXPECT_EQ(table.Profile(), want) << backends;
    table.SetFound("vulkan", supervisor::testing::Found({emulated}));
    EXPECT_THAT(table.Profile(), ElementsAre("cpu", "vulkan:1"));
  }
}

// The memory of one GPU behind two drivers is reported once; the detail of a broken device gives the reason.
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

// A lost device is left out of the profile, probed at once, and readmitted when it answers.
TEST_F(DeviceTableTest, FencesAndReadmits) {
  DeviceTable table = Make("auto");
  const std::vector<std::string> before = table.Profile();
  EXPECT_TRUE(table.Fence("opencl:0", "A run lost the device.", At(5)));
  EXPECT_FALSE(table.Fence("opencl:0", "Another, too.", At(6)));
  EXPECT_FALSE(table.Fence("cpu:0", "A run lost the device.", At(5)));
  EXPECT_FALSE(table.Fence("opencl:9", "A run lost the device.", At(5)));
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
  table.Fence("vulkan:0", "A run lost the device.", At(0));
  int now = 0;
  for (const int wait : {1000, 2000}) {
    ASSERT_EQ(table.DueProbe(At(now)), "vulkan:0");
    table.OnProbed("vulkan:0", Unavailable("It is silent."), At(now));
    EXPECT_FALSE(table.IsSettling());  // No call waits for a device that did not answer.
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
  table.SetFound("vulkan", supervisor::testing::Found({Device("vulkan:0", "gpu-1")}));
  EXPECT_THAT(table.Profile(), ElementsAre("cpu", "opencl:0", "opencl:1", "vulkan:0"));
}

}  // namespace
}  // namespace hpvm::server
