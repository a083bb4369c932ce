// SPDX-License-Identifier: Apache-2.0
// Buffers, copies and fills of the Vulkan device.
#include "backends/vulkan/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "backends/contract/host_block.h"
#include "backends/vulkan/buffer.h"
#include "backends/vulkan/pin.h"
#include "backends/vulkan/testing/fixture.h"
#include "base/limits.h"

namespace hpvm::vulkan {
namespace {

using limits::kMiB;

// The device as it is, and treated as a discrete one.
class VulkanMemoryTest : public VulkanTest, public testing::WithParamInterface<bool> {
 protected:
  void SetUp() override { Open({.as_discrete = GetParam()}); }
};

INSTANTIATE_TEST_SUITE_P(Paths, VulkanMemoryTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Discrete" : "AsItIs"; });

// Every device reports the properties that the scheduler and the compiler need.
TEST_P(VulkanMemoryTest, DescribesItself) {
  const DeviceInfo& info = device_->info();
  EXPECT_EQ(info.id, "vulkan:0");
  EXPECT_EQ(info.kind, DeviceKind::kGpu);
  EXPECT_FALSE(info.name.empty());
  EXPECT_EQ(info.silicon.size(), info.is_emulated ? 3u : 4u + 32u) << info.silicon;
  EXPECT_GT(info.memory_bytes, 0u);
  EXPECT_GT(info.allocation_bytes_max, 0u);
  EXPECT_LE(info.allocation_bytes_max, info.memory_bytes);
  EXPECT_GE(info.gpu.api_version, 12u);
  // Guaranteed by Vulkan for every device.
  EXPECT_GE(info.gpu.group_size_max, 128u);
  EXPECT_GE(info.gpu.push_bytes_max, 128u);
  EXPECT_GE(info.gpu.local_bytes_max, 16384u);
  EXPECT_GE(info.gpu.buffers_max, 4u);
  EXPECT_GE(info.gpu.buffer_bytes_max, 1u << 27);
  EXPECT_GE(info.gpu.group_count_max[0], 65535u);
  EXPECT_EQ(info.gpu.is_processor, info.is_emulated && !GetParam());
}

// New memory is zero, even where another buffer was before.
TEST_P(VulkanMemoryTest, FreshMemoryIsZero) {
  for (const uint64_t bytes : {uint64_t{4}, uint64_t{4000}, 3 * kMiB}) {
    for (int round = 0; round < 3; ++round) {
      Buffer& buffer = NewBuffer(bytes);
      const std::vector<uint32_t> words = Read(buffer);
      EXPECT_TRUE(std::all_of(words.begin(), words.end(), [](uint32_t word) { return word == 0; })) << bytes;
      List list;
      list.Fill(buffer, 0, bytes, 0xff);
      ASSERT_TRUE(Run(list).ok());
      buffers_.clear();
    }
  }
}

// Copies of any size and position, through host memory, between buffers and within one, overlapping like memmove.
TEST_P(VulkanMemoryTest, CopiesBytes) {
  struct Case {
    uint64_t from, to, bytes;
  };
  constexpr uint64_t kBytes = 5 * kMiB + 12;
  const Case cases[] = {{0, 0, kBytes},
                        {1, 3, 1},
                        {7, 2, 4093},
                        {0, kBytes - 1, 1},
                        {5, 9, kMiB},
                        {9, 5, kMiB},
                        {0, 1, kBytes - 1},
                        {1, 0, kBytes - 1},
                        {100, 50, 2000},
                        {3, 3, 100},
                        {0, 2 * kMiB, 2 * kMiB},
                        {0, 0, 0}};
  std::vector<uint8_t> expected(kBytes);
  Buffer& source = Host(Counting(kBytes / 4, 0x01020304));
  Buffer& a = NewBuffer(kBytes);
  Buffer& b = NewBuffer(kBytes);
  for (const Case& c : cases) {
    SCOPED_TRACE(testing::Message() << c.from << " -> " << c.to << ", " << c.bytes << " bytes");
    Buffer& result = Host(std::vector<uint32_t>(kBytes / 4));
    List list;
    list.Copy(source, 0, a, 0, kBytes);
    list.Copy(a, 0, b, 0, kBytes);
    list.Copy(b, c.from, b, c.to, c.bytes);  // Within one buffer.
    list.Copy(b, c.to, a, c.from, c.bytes);  // Between buffers.
    list.Copy(b, 0, result, 0, kBytes);
    list.Copy(source, c.from, result, c.to, 0);
    const Status status = Run(list);
    ASSERT_TRUE(status.ok()) << status;
    std::memcpy(expected.data(), source.host(), kBytes);
    std::memmove(expected.data() + c.to, expected.data() + c.from, c.bytes);
    EXPECT_EQ(std::memcmp(expected.data(), result.host(), kBytes), 0);
  }
}

// Words are filled by the device, the other bytes in another way.
TEST_P(VulkanMemoryTest, FillsBytes) {
  constexpr uint64_t kBytes = 64;
  for (uint64_t offset = 0; offset < 9; ++offset) {
    for (uint64_t bytes = 0; bytes < 14; ++bytes) {
      Buffer& buffer = NewBuffer(kBytes);
      List list;
      list.Fill(buffer, 0, kBytes, 0x11);
      list.Fill(buffer, offset, bytes, 0xab);
      ASSERT_TRUE(Run(list).ok());
      std::vector<uint8_t> expected(kBytes, 0x11);
      std::fill_n(expected.begin() + static_cast<ptrdiff_t>(offset), bytes, 0xab);
      const std::vector<uint32_t> words = Read(buffer);
      EXPECT_EQ(std::memcmp(expected.data(), words.data(), kBytes), 0) << offset << ", " << bytes;
      buffers_.clear();
    }
  }
}

// More than all staging memory holds, there and back in one submission, and there again from the received data.
TEST_P(VulkanMemoryTest, CopiesMoreThanStagingHolds) {
  constexpr uint64_t kWords = 24 * kMiB;
  Buffer& source = Host(Counting(kWords, 5));
  Buffer& middle = Host(std::vector<uint32_t>(kWords));
  Buffer& result = Host(std::vector<uint32_t>(kWords));
  Buffer& a = NewBuffer(kWords * 4);
  Buffer& b = NewBuffer(kWords * 4);
  List list;
  list.Copy(source, 0, a, 0, kWords * 4);
  list.Copy(a, 0, middle, 0, kWords * 4);
  list.Copy(middle, 0, b, 0, kWords * 4);
  list.Copy(b, 0, result, 0, kWords * 4);
  const Status status = Run(list);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(std::memcmp(source.host(), result.host(), kWords * 4), 0);
}

// Copies of any size in both directions, through a ring of two slots and through the default one, have the same effect
// as one after the other.
TEST_P(VulkanMemoryTest, CopiesInOrder) {
  constexpr uint64_t kBytes = 6 * kMiB;
  for (uint32_t seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE(seed);
    const gpu::StagingShape narrow{.slot_bytes = kMiB, .slots = 2, .helpers = 1};
    Open({.as_discrete = GetParam(), .staging = seed % 2 == 0 ? narrow : gpu::StagingShape()});
    Buffer& host = Host(Counting(kBytes / 4, seed));
    Buffer& on_device = NewBuffer(kBytes);
    std::vector<uint8_t> expected_host(host.host(), host.host() + kBytes), expected_device(kBytes);
    List list;
    uint32_t state = seed;
    const auto next = [&](uint64_t below) {
      state = state * 1664525 + 1013904223;
      return (uint64_t{state} << 8) % below;
    };
    for (int i = 0; i < 40; ++i) {
      const uint64_t bytes = 1 + next(uint64_t{1} << (8 + next(15)));
      const uint64_t in_host = next(kBytes - bytes), in_device = next(kBytes - bytes);
      if (next(1 << 20) % 3 == 0) {
        list.Copy(host, in_host, on_device, in_device, bytes);
        std::memcpy(expected_device.data() + in_device, expected_host.data() + in_host, bytes);
      } else {
        list.Copy(on_device, in_device, host, in_host, bytes);
        std::memcpy(expected_host.data() + in_host, expected_device.data() + in_device, bytes);
      }
    }
    const Status status = Run(list);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(std::memcmp(host.host(), expected_host.data(), kBytes), 0);
    const std::vector<uint32_t> words = Read(on_device);
    EXPECT_EQ(std::memcmp(words.data(), expected_device.data(), kBytes), 0);
  }
}

// Host memory that devices may pin.
class PinnableView final : public Buffer {
 public:
  PinnableView(HostBlock& block, uint64_t offset, uint64_t bytes)
      : block_(block), data_(block.data() + offset), bytes_(bytes) {}
  uint64_t bytes() const override { return bytes_; }
  uint8_t* host() override { return data_; }
  HostBlock* block() const override { return &block_; }

 private:
  HostBlock& block_;
  uint8_t* const data_;
  const uint64_t bytes_;
};

// Memory that is copied repeatedly is pinned, and the data is unchanged; a pin may outlive its device.
TEST_P(VulkanMemoryTest, PinsWhatIsCopiedOften) {
  constexpr uint64_t kBytes = 40 * kMiB + 4096, kFrom = 3, kCopied = kBytes - 4099;
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  HostBlock block(static_cast<uint8_t*>(memory), kBytes);
  Buffer& host = Add(std::make_unique<PinnableView>(block, kFrom, kCopied));
  Buffer& on_device = NewBuffer(kCopied + 5);
  std::vector<uint8_t> expected(kCopied);
  for (uint64_t round = 0; round < 2 * Pin::kPaysAfter; ++round) {
    SCOPED_TRACE(round);
    for (uint64_t i = 0; i < kCopied; ++i) {
      expected[i] = static_cast<uint8_t>((i + round) * 2654435761u >> 13);
    }
    std::memcpy(host.host(), expected.data(), kCopied);
    List up, down;
    up.Copy(host, 0, on_device, 5, kCopied);
    ASSERT_TRUE(Run(up, nullptr, {}, Lane::kUpload).ok());
    std::memset(memory, 0x5a, kBytes);
    down.Copy(on_device, 5, host, 0, kCopied);
    ASSERT_TRUE(Run(down, nullptr, {}, Lane::kDownload).ok());
    EXPECT_EQ(std::memcmp(host.host(), expected.data(), kCopied), 0);
    const auto* bytes = static_cast<const uint8_t*>(memory);
    EXPECT_EQ(bytes[kFrom - 1], 0x5a);
    EXPECT_EQ(bytes[kFrom + kCopied], 0x5a);
  }
  // When host and device share memory, pinning gains nothing.
  EXPECT_EQ(HostBlock::PinnedBytes(), device_->info().has_copy_lanes ? kBytes : 0);
  buffers_.clear();
  device_.reset();
  block.Close();
  EXPECT_EQ(HostBlock::PinnedBytes(), 0u);
  munmap(memory, kBytes);
}

// Many concurrent submissions, each with its own staging memory.
TEST_P(VulkanMemoryTest, KeepsManySubmissionsApart) {
  constexpr uint32_t kSubmissions = 40;
  std::vector<List> lists(kSubmissions);
  std::vector<Buffer*> results;
  auto timeline = device_->CreateTimeline();
  std::vector<TimelinePoint> points;
  for (uint32_t i = 0; i < kSubmissions; ++i) {
    points.push_back({timeline.get(), i + 1});
    Buffer& source = Host(Counting(300'000, i * 1'000'000));
    results.push_back(&Host(std::vector<uint32_t>(300'000)));
    Buffer& buffer = NewBuffer(source.bytes());
    lists[i].Copy(source, 0, buffer, 0, source.bytes());
    lists[i].Copy(buffer, 0, *results.back(), 0, source.bytes());
  }
  for (uint32_t i = 0; i < kSubmissions; ++i) {
    Submission submission;
    submission.commands = &lists[i].commands;
    submission.buffers = lists[i].buffers;
    submission.signals = {&points[i], 1};
    ASSERT_TRUE(device_->Submit(submission).ok());
  }
  ASSERT_TRUE(timeline->Wait(kSubmissions, RealClock().Now() + std::chrono::seconds(60)).ok());
  for (uint32_t i = 0; i < kSubmissions; ++i) {
    const std::vector<uint32_t> expected = Counting(300'000, i * 1'000'000);
    EXPECT_TRUE(std::ranges::equal(Words(*results[i]), expected)) << i;
  }
}

// A request for more memory than there is gives an error with the figures, and the device remains usable.
TEST_P(VulkanMemoryTest, RefusesMoreThanItHas) {
  const DeviceInfo& info = device_->info();
  for (const uint64_t bytes : {info.allocation_bytes_max + 1, ~uint64_t{0}, ~uint64_t{0} - 300}) {
    const auto buffer = device_->Allocate({.bytes = bytes});
    EXPECT_EQ(buffer.status().code(), absl::StatusCode::kResourceExhausted) << buffer.status();
    EXPECT_NE(Message(buffer.status()).find("vulkan:0"), std::string::npos) << buffer.status();
  }
  EXPECT_EQ(Read(NewBuffer(4))[0], 0u);
}

// A lost device is reported by every call, and is not called again.
TEST(ContextTest, StaysLost) {
  StatusOr<const Instance*> instance = Instance::Get(false);
  if (!instance.ok() || (*instance)->devices().empty()) {
    GTEST_SKIP() << "No Vulkan device.";
  }
  StatusOr<std::unique_ptr<Context>> created = Context::Create(**instance, 0);
  ASSERT_TRUE(created.ok()) << created.status();
  Context& context = **created;
  Memory memory(context, false);
  Zeroer zeroer(context);
  EXPECT_TRUE(AllocateVulkanBuffer(context, memory, zeroer, {.bytes = 4}).ok());
  EXPECT_TRUE(context.lost().ok());
  EXPECT_EQ(context.Check(VK_ERROR_OUT_OF_DEVICE_MEMORY, "Trying").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(context.lost().ok());
  const Status lost = context.Check(VK_ERROR_DEVICE_LOST, "Trying");
  EXPECT_EQ(lost.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(Message(lost).find("vulkan:0"), std::string::npos) << lost;
  for (const Status& status :
       {context.lost(), context.Wait({Lane::kCompute, 1000}), context.Submit(Lane::kCompute, VK_NULL_HANDLE).status(),
        AllocateVulkanBuffer(context, memory, zeroer, {.bytes = 4}).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  }
}

// The sum of all allocations is also limited, and freed memory can be allocated again.
TEST(MemoryTest, CountsWhatIsInUse) {
  StatusOr<const Instance*> instance = Instance::Get(false);
  if (!instance.ok() || (*instance)->devices().empty()) {
    GTEST_SKIP() << "No Vulkan device.";
  }
  const DeviceInfo info = (*instance)->devices()[0].info;
  if (!info.is_emulated) {
    GTEST_SKIP() << "Others may need the memory of " << info.name << ".";
  }
  StatusOr<std::unique_ptr<Context>> context = Context::Create(**instance, 0);
  ASSERT_TRUE(context.ok()) << context.status();
  Memory memory(**context, false);
  for (int round = 0; round < 2; ++round) {
    std::vector<Storage> taken;  // Never touched, so the host needs no pages for it.
    Status status;
    while (status.ok()) {
      ASSERT_LE(taken.size(), 8u);
      StatusOr<Storage> storage = memory.Allocate(info.memory_bytes / 5, MemoryClass::kDevice);
      status = storage.status();
      if (storage.ok()) {
        taken.push_back(*std::move(storage));
      }
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_NE(Message(status).find(std::to_string(info.memory_bytes)), std::string::npos) << status;
    EXPECT_EQ(taken.size(), 4u);
  }
}

// Small buffers share blocks: thousands of them are possible, and all are returned.
TEST_P(VulkanMemoryTest, SmallBuffersShareBlocks) {
  for (int round = 0; round < 2; ++round) {
    std::vector<std::unique_ptr<Buffer>> kept;
    for (uint64_t i = 0; i < 3000; ++i) {
      StatusOr<std::unique_ptr<Buffer>> buffer = device_->Allocate({.bytes = 1 + i * 7 % 5000});
      ASSERT_TRUE(buffer.ok()) << buffer.status();
      if (i % 3 != 0) {
        kept.push_back(*std::move(buffer));
      }
    }
    while (kept.size() > 1) {  // Returned in another order than allocated.
      std::swap(kept[kept.size() / 2], kept.back());
      kept.pop_back();
    }
  }
}

// Memory for another driver has its own descriptor, and the buffer works like any other.
TEST_P(VulkanMemoryTest, ExportsMemory) {
  if (!device_->info().exports_memory) {
    GTEST_SKIP() << device_->info().name << " exports no memory.";
  }
  StatusOr<std::unique_ptr<Buffer>> buffer = device_->Allocate({.bytes = 100'000, .is_exported = true});
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  const ExportedMemory memory = (*buffer)->exported();
  EXPECT_GE(memory.fd, 0);
  EXPECT_GE(memory.bytes, 100'000u);
  List list;
  list.Fill(**buffer, 0, 100'000, 7);
  ASSERT_TRUE(Run(list).ok());
  EXPECT_EQ(Read(**buffer)[24'999], 0x07070707u);
  EXPECT_EQ(NewBuffer(4).exported().fd, -1);
}

}  // namespace
}  // namespace hpvm::vulkan
