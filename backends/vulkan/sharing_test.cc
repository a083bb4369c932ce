// SPDX-License-Identifier: Apache-2.0
// One GPU under both interfaces: memory of the Vulkan device that the OpenCL device uses in place.
#include <chrono>
#include <cstdio>
#include <vector>

#include "gtest/gtest.h"

#include "backends/opencl/device.h"
#include "backends/shared/host_buffer.h"
#include "backends/vulkan/device.h"

namespace hpvm::vulkan {
namespace {

struct Pair {
  std::unique_ptr<Device> vulkan, opencl;
};

// Returns the first two devices of one silicon of which one can export memory and the other import it.
Pair FindPair(Hub& hub) {
  const StatusOr<std::vector<std::string>> names = ListVulkanDevices();
  EXPECT_TRUE(names.ok()) << names.status();
  for (const std::string& name : names.ok() ? *names : std::vector<std::string>()) {
    StatusOr<std::unique_ptr<Device>> vulkan = CreateVulkanDevice(name, hub, {});
    EXPECT_TRUE(vulkan.ok()) << vulkan.status();
    if (!vulkan.ok() || !(*vulkan)->info().exports_memory) {
      continue;
    }
    for (const std::string& other : ListOpenClDevices()) {
      StatusOr<std::unique_ptr<Device>> opencl = CreateOpenClDevice(other, hub, {});
      EXPECT_TRUE(opencl.ok()) << opencl.status();
      if (opencl.ok() && (*opencl)->info().imports_memory && (*opencl)->info().silicon == (*vulkan)->info().silicon) {
        return {*std::move(vulkan), *std::move(opencl)};
      }
    }
  }
  return {};
}

Status RunOn(Device& device, const Command& command, std::vector<Buffer*> buffers) {
  StatusOr<std::unique_ptr<Timeline>> timeline = device.CreateTimeline();
  HPVMD_RETURN_IF_ERROR(timeline.status());
  const TimelinePoint done{timeline->get(), 1};
  CommandList list;
  list.commands.push_back(command);
  Submission submission;
  submission.commands = &list;
  submission.buffers = buffers;
  submission.signals = {&done, 1};
  HPVMD_RETURN_IF_ERROR(device.Submit(submission));
  return (*timeline)->Wait(1, RealClock().Now() + std::chrono::seconds(60));
}

// Each device reads what the other writes, without a copy in between; also at the buffer's ends.
TEST(SharingTest, PassesMemoryBetweenInterfaces) {
  Hub hub;
  const Pair pair = FindPair(hub);
  if (pair.vulkan == nullptr) {
    GTEST_SKIP() << "No GPU here has both a Vulkan device that exports memory and an OpenCL device that imports it.";
  }
  for (const uint64_t bytes : {uint64_t{4}, uint64_t{100'000}, uint64_t{64} << 20}) {
    StatusOr<std::unique_ptr<Buffer>> owner = pair.vulkan->Allocate({.bytes = bytes, .is_exported = true});
    ASSERT_TRUE(owner.ok()) << owner.status();
    StatusOr<std::unique_ptr<Buffer>> guest = pair.opencl->Allocate({.bytes = bytes, .shared = owner->get()});
    ASSERT_TRUE(guest.ok()) << guest.status();
    std::vector<uint8_t> bytes_read(bytes, 0xee);
    StatusOr<std::unique_ptr<Buffer>> host =
        backends::AllocateHostBuffer({.bytes = bytes, .import = bytes_read.data()}, ~uint64_t{0});
    ASSERT_TRUE(host.ok());
    ASSERT_TRUE(RunOn(*pair.opencl, CopyCommand{0, 1, 0, 0, bytes}, {guest->get(), host->get()}).ok());
    EXPECT_EQ(bytes_read, std::vector<uint8_t>(bytes, 0));  // Newly allocated.
    ASSERT_TRUE(RunOn(*pair.vulkan, FillCommand{0, 0, bytes, 0x21}, {owner->get()}).ok());
    ASSERT_TRUE(RunOn(*pair.opencl, CopyCommand{0, 1, 0, 0, bytes}, {guest->get(), host->get()}).ok());
    EXPECT_EQ(bytes_read, std::vector<uint8_t>(bytes, 0x21));
    ASSERT_TRUE(RunOn(*pair.opencl, FillCommand{0, 0, bytes, 0x43}, {guest->get()}).ok());
    ASSERT_TRUE(RunOn(*pair.vulkan, CopyCommand{0, 1, 0, 0, bytes}, {owner->get(), host->get()}).ok());
    EXPECT_EQ(bytes_read, std::vector<uint8_t>(bytes, 0x43));
  }
  std::printf("shared: %s and %s\n", pair.vulkan->info().name.c_str(), pair.opencl->info().name.c_str());
}

}  // namespace
}  // namespace hpvm::vulkan
