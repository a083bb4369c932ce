// SPDX-License-Identifier: Apache-2.0
// Synchronous submissions to a Vulkan device. Skips, with a message, when there is no device; fails on any message of
// the validation layer.
#ifndef HPVMD_BACKENDS_VULKAN_TESTING_FIXTURE_H_
#define HPVMD_BACKENDS_VULKAN_TESTING_FIXTURE_H_

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "backends/shared/host_buffer.h"
#include "backends/vulkan/device.h"

namespace hpvm::vulkan {

class VulkanTest : public testing::Test {
 protected:
  void SetUp() override { Open({}); }
  void TearDown() override {
    buffers_.clear();
    host_.clear();
    executables_.clear();
    device_.reset();
    const ValidationMessages messages = TakeValidationMessages();
    for (const std::string& text : messages.texts) {
      ADD_FAILURE() << text;
    }
    EXPECT_EQ(messages.count, 0u);
  }

  // Reopens the device.
  void Open(VulkanOptions options, bool validates = true) {
    buffers_.clear();
    host_.clear();
    executables_.clear();
    device_.reset();
    options.validate = validates;
    StatusOr<std::unique_ptr<Device>> device = CreateVulkanDevice("vulkan:0", hub_, options);
    if (absl::IsNotFound(device.status())) {
      options.validate = false;  // A host with a driver but without the layer still tests the device.
      device = CreateVulkanDevice("vulkan:0", hub_, options);
    }
    if (absl::IsNotFound(device.status())) {
      GTEST_SKIP() << Message(device.status());
    }
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
  }

  Buffer& Add(std::unique_ptr<Buffer> buffer) {
    buffers_.push_back(std::move(buffer));
    return *buffers_.back();
  }
  Buffer& NewBuffer(uint64_t bytes) {
    StatusOr<std::unique_ptr<Buffer>> buffer = device_->Allocate({.bytes = bytes});
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    return Add(*std::move(buffer));
  }
  Executable& Load(Artifact artifact) {
    StatusOr<std::unique_ptr<Executable>> executable = device_->Load(std::move(artifact));
    EXPECT_TRUE(executable.ok()) << executable.status();
    executables_.push_back(*std::move(executable));
    return *executables_.back();
  }

  // A list of commands and the buffers it names.
  struct List {
    CommandList commands;
    std::vector<Buffer*> buffers;
    std::vector<uint64_t> scalars;

    SlotIndex CommandSlot(Buffer& buffer) {
      for (size_t i = 0; i < buffers.size(); ++i) {
        if (buffers[i] == &buffer) {
          return static_cast<SlotIndex>(i);
        }
      }
      buffers.push_back(&buffer);
      return static_cast<SlotIndex>(buffers.size() - 1);
    }
    void Copy(Buffer& source, uint64_t source_offset, Buffer& target, uint64_t target_offset, uint64_t bytes) {
      commands.commands.push_back(
          CopyCommand{CommandSlot(source), CommandSlot(target), source_offset, target_offset, bytes});
    }
    void Fill(Buffer& target, uint64_t offset, uint64_t bytes, uint8_t value) {
      commands.commands.push_back(FillCommand{CommandSlot(target), offset, bytes, value});
    }
    // A view of a buffer, or a scalar.
    struct Argument {
      Buffer* buffer = nullptr;
      uint64_t offset = 0, bytes = 0;
      uint64_t scalar = 0;
    };
    void Dispatch(Executable& executable, uint64_t extent, std::vector<Argument> arguments) {
      DispatchCommand dispatch;
      dispatch.executable = &executable;
      dispatch.extent = {extent, 1, 1};
      dispatch.first_argument = static_cast<uint32_t>(commands.arguments.size());
      dispatch.argument_count = static_cast<uint32_t>(arguments.size());
      dispatch.node = nodes++;
      for (const Argument& argument : arguments) {
        DispatchArgument made;
        made.is_buffer = argument.buffer != nullptr;
        made.slot = made.is_buffer ? CommandSlot(*argument.buffer) : kNoSlot;
        made.offset = argument.offset;
        made.bytes = argument.bytes;
        made.scalar = argument.scalar;
        commands.arguments.push_back(made);
      }
      commands.commands.push_back(dispatch);
    }
    uint32_t nodes = 0;
  };
  static List::Argument Whole(Buffer& buffer) { return {&buffer, 0, buffer.bytes(), 0}; }
  static List::Argument Scalar(uint64_t value) { return {nullptr, 0, 0, value}; }

  Status Run(const List& list, Failure* failure = nullptr, std::span<NodeTiming> timings = {},
             Lane lane = Lane::kCompute) {
    const std::unique_ptr<Timeline> timeline = device_->CreateTimeline();
    const TimelinePoint done{timeline.get(), 1};
    Submission submission;
    submission.lane = lane;
    submission.commands = &list.commands;
    submission.buffers = list.buffers;
    submission.scalars = list.scalars;
    submission.signals = {&done, 1};
    submission.failure = failure;
    submission.timings = timings;
    HPVMD_RETURN_IF_ERROR(device_->Submit(submission));
    return timeline->Wait(1, RealClock().Now() + std::chrono::seconds(60));
  }

  // Words in host memory, as a buffer to copy from and to.
  Buffer& Host(std::vector<uint32_t> words) {
    host_.push_back(std::move(words));
    auto* data = reinterpret_cast<uint8_t*>(host_.back().data());
    StatusOr<std::unique_ptr<Buffer>> buffer =
        backends::AllocateHostBuffer({.bytes = host_.back().size() * 4, .import = data}, ~uint64_t{0});
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    return Add(*std::move(buffer));
  }
  static std::span<const uint32_t> Words(Buffer& host) {
    return {reinterpret_cast<const uint32_t*>(host.host()), host.bytes() / 4};
  }
  std::vector<uint32_t> Read(Buffer& buffer) {
    Buffer& host = Host(std::vector<uint32_t>(buffer.bytes() / 4, 0xdeadbeef));
    List list;
    list.Copy(buffer, 0, host, 0, host.bytes());
    const Status status = Run(list);
    EXPECT_TRUE(status.ok()) << status;
    const std::span<const uint32_t> words = Words(host);
    return {words.begin(), words.end()};
  }

  Hub hub_;
  std::unique_ptr<Device> device_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<std::vector<uint32_t>> host_;
  std::vector<std::unique_ptr<Executable>> executables_;
};

inline std::vector<uint32_t> Counting(size_t count, uint32_t first) {
  std::vector<uint32_t> words(count);
  for (size_t i = 0; i < count; ++i) {
    words[i] = first + static_cast<uint32_t>(i);
  }
  return words;
}

}  // namespace hpvm::vulkan

#endif  // HPVMD_BACKENDS_VULKAN_TESTING_FIXTURE_H_
