// SPDX-License-Identifier: Apache-2.0
// Launches on the Vulkan device.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <thread>

#include "backends/contract/driver_builder.h"
#include "backends/vulkan/buffer.h"
#include "backends/vulkan/build.h"
#include "backends/vulkan/context.h"
#include "backends/vulkan/testing/fixture.h"
#include "backends/vulkan/testing/shaders.h"
#include "compiler/ir/loops_cut.h"

namespace hpvm::vulkan {
namespace {

using VulkanDeviceTest = VulkanTest;

std::vector<uint32_t> Scaled(const std::vector<uint32_t>& x, uint32_t k) {
  std::vector<uint32_t> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    y[i] = x[i] * k + static_cast<uint32_t>(i);
  }
  return y;
}

// Names of devices.
TEST(VulkanListTest, NamesItsDevices) {
  const auto names = ListVulkanDevices();
  ASSERT_TRUE(names.ok()) << names.status();
  for (size_t i = 0; i < names->size(); ++i) {
    EXPECT_EQ((*names)[i], "vulkan:" + std::to_string(i));
    EXPECT_TRUE(VulkanDriverIdentity((*names)[i]).ok());
  }
  Hub hub;
  for (const char* name : {"vulkan:99", "vulkan:", "vulkan:x", "vulkan0", "opencl:0", "", "vulkan:-1", "vulkan:0 "}) {
    const auto device = CreateVulkanDevice(name, hub, {});
    EXPECT_EQ(device.status().code(), absl::StatusCode::kNotFound) << name << ": " << device.status();
    EXPECT_FALSE(VulkanDriverIdentity(name).ok()) << name;
  }
}

// Counts the commands by which a device copies between buffers, until its destruction.
class CopyCount {
 public:
  // `buffer` is one of the device's.
  explicit CopyCount(Buffer& buffer)
      : functions_(const_cast<DeviceFunctions&>(static_cast<VulkanBuffer&>(buffer).context().vk())) {
    real_ = functions_.CmdCopyBuffer;
    commands_ = regions_ = 0;
    functions_.CmdCopyBuffer = [](VkCommandBuffer commands, VkBuffer source, VkBuffer target, uint32_t count,
                                  const VkBufferCopy* regions) {
      ++commands_;
      regions_ += count;
      real_(commands, source, target, count, regions);
    };
  }
  ~CopyCount() { functions_.CmdCopyBuffer = real_; }
  uint32_t commands() const { return commands_; }
  uint32_t regions() const { return regions_; }

 private:
  DeviceFunctions& functions_;
  static inline PFN_vkCmdCopyBuffer real_ = nullptr;
  static inline std::atomic<uint32_t> commands_{0}, regions_{0};
};

// Small copies are one command for each buffer and direction, and one region when they are adjacent.
TEST_F(VulkanDeviceTest, MakesSmallCopiesTogether) {
  constexpr uint64_t kCount = 250, kStep = 512;
  for (const bool has_room : {true, false}) {
    Open({.as_discrete = true});
    if (device_ == nullptr) {
      return;
    }
    Buffer& from = Host(Counting(kCount * 20, 1));
    Buffer& to = Host(std::vector<uint32_t>(kCount * 20));
    Buffer& x = NewBuffer(kCount * kStep);
    List list;
    for (uint64_t k = 0; k < kCount; ++k) {
      const uint64_t i = k * 7 % kCount;
      list.Copy(from, 80 * i, x, kStep * i, 1 + i % 80);
      std::get<CopyCommand>(list.commands.commands.back()).room = has_room ? kStep - (1 + i % 80) : 0;
    }
    for (uint64_t k = 0; k < kCount; ++k) {
      const uint64_t i = k * 3 % kCount;
      list.Copy(x, kStep * i, to, 80 * i, 1 + i % 80);
    }
    const CopyCount count(x);
    const Status status = Run(list);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(count.commands(), 2u);
    EXPECT_EQ(count.regions(), 1 + (has_room ? 1 : kCount));
    for (uint64_t i = 0; i < kCount; ++i) {
      const uint8_t* const found = to.host() + 80 * i;
      const uint64_t bytes = 1 + i % 80;
      EXPECT_TRUE(std::equal(found, found + bytes, from.host() + 80 * i)) << i;
      EXPECT_EQ(std::count(found + bytes, found + 80, 0), static_cast<int64_t>(80 - bytes)) << i;
    }
  }
}

// Small copies of odd sizes and positions, in both directions, between kernels, copies on the device and fills, in one
// submission: the value of a byte depends on the order of all of them.
TEST_F(VulkanDeviceTest, SmallCopiesKeepTheirPlaceAmongCommands) {
  constexpr uint64_t kWords = 1024, kBytes = kWords * 4;
  SeededRng rng(11);
  for (const bool as_discrete : {false, true}) {
    Open({.as_discrete = as_discrete});
    if (device_ == nullptr) {
      return;
    }
    Executable& step = Load(StepArtifact());
    for (int round = 0; round < 4; ++round) {
      Buffer& host = Host(Counting(kWords, static_cast<uint32_t>(rng.Next())));
      Buffer& x = NewBuffer(kBytes);
      std::vector<uint8_t> expected(host.host(), host.host() + kBytes), expected_x(kBytes);
      List list;
      for (int i = 0; i < 400; ++i) {
        const uint64_t bytes = 1 + rng.Below(60), a = rng.Below(kBytes - 60), b = rng.Below(kBytes - 60);
        switch (i < 300 ? rng.Below(40) : 3) {
          case 0: {
            list.Dispatch(step, kWords, {Whole(x), Scalar(5)});
            for (uint64_t w = 0; w < kWords; ++w) {
              uint32_t word = 0;
              std::memcpy(&word, expected_x.data() + 4 * w, 4);
              word = word * 3 + 5;
              std::memcpy(expected_x.data() + 4 * w, &word, 4);
            }
            break;
          }
          case 1:
            list.Fill(x, a, bytes, 7);
            std::fill_n(expected_x.begin() + a, bytes, 7);
            break;
          case 2:
            list.Copy(x, a, x, b, bytes);
            std::memmove(expected_x.data() + b, expected_x.data() + a, bytes);
            break;
          case 3:
          case 4:
            list.Copy(x, a, host, b, bytes);
            std::copy_n(expected_x.begin() + a, bytes, expected.begin() + b);
            break;
          default:
            list.Copy(host, a, x, b, bytes);
            std::copy_n(expected.begin() + a, bytes, expected_x.begin() + b);
        }
      }
      const Status status = Run(list);
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), host.host())) << as_discrete << " " << round;
    }
  }
}

// Precondition of all other tests: the layer is present, and its messages are noticed.
TEST_F(VulkanDeviceTest, HearsTheValidationLayer) {
  StatusOr<const Instance*> instance = Instance::Get(true);
  if (absl::IsNotFound(instance.status())) {
    GTEST_SKIP() << Message(instance.status());
  }
  StatusOr<std::unique_ptr<Context>> context = Context::Create(**instance, 0);
  ASSERT_TRUE(context.ok()) << context.status();
  EXPECT_EQ(TakeValidationMessages().count, 0u);
  VkBuffer buffer = VK_NULL_HANDLE;
  auto empty = Typed<VkBufferCreateInfo>(VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO);
  if ((*context)->vk().CreateBuffer((*context)->device(), &empty, nullptr, &buffer) == VK_SUCCESS) {
    (*context)->vk().DestroyBuffer((*context)->device(), buffer, nullptr);
  }
  EXPECT_GT(TakeValidationMessages().count, 0u);
}

// Launches of extents that no group divides, with values in push constants.
TEST_F(VulkanDeviceTest, RunsKernels) {
  Executable& scale = Load(ScaleArtifact());
  for (const uint32_t count : {1u, 7u, 64u, 1000u, 65'537u}) {
    const std::vector<uint32_t> x = Counting(count, 17);
    Buffer& source = Host(x);
    Buffer& in = NewBuffer(source.bytes());
    Buffer& out = NewBuffer(source.bytes());
    List list;
    list.Copy(source, 0, in, 0, source.bytes());
    list.Dispatch(scale, count, {Whole(in), Whole(out), Scalar(3)});
    const Status status = Run(list);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(Read(out), Scaled(x, 3)) << count;
  }
}

// A view may begin anywhere: the kernel is told its offset from the bound range.
TEST_F(VulkanDeviceTest, BindsViewsAtAnyWord) {
  Executable& scale = Load(ScaleArtifact());
  const std::vector<uint32_t> x = Counting(500, 100);
  Buffer& source = Host(x);
  Buffer& in = NewBuffer(4096);
  Buffer& out = NewBuffer(4096);
  for (const uint64_t offset : {0, 4, 12, 16, 60, 64, 100, 252, 260, 1000}) {
    List list;
    list.Fill(out, 0, 4096, 0xee);
    list.Copy(source, 0, in, offset, source.bytes());
    list.Dispatch(scale, 500, {{&in, offset, 2000, 0}, {&out, offset + 4, 2000, 0}, Scalar(1)});
    const Status status = Run(list);
    ASSERT_TRUE(status.ok()) << status;
    std::vector<uint32_t> expected(1024, 0xeeeeeeee);
    std::ranges::copy(Scaled(x, 1), expected.begin() + static_cast<ptrdiff_t>(offset / 4 + 1));
    EXPECT_EQ(Read(out), expected) << offset;
  }
}

// Several descriptor sets with gaps in between, and values in a buffer.
TEST_F(VulkanDeviceTest, BindsSeveralSets) {
  Executable& sets = Load(SetsArtifact());
  Buffer& source = Host(Counting(100, 0));
  Buffer& x = NewBuffer(400);
  Buffer& y = NewBuffer(400);
  List list;
  list.Copy(source, 0, x, 0, 400);
  for (int i = 0; i < 600; ++i) {  // More sets than one pool holds.
    list.Dispatch(sets, 100, {Whole(x), Whole(y), Scalar(static_cast<uint64_t>(i))});
  }
  list.Dispatch(sets, 50, {Whole(y), Whole(x), Scalar(1)});
  const Status status = Run(list);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(Read(y), Counting(100, 599));
  EXPECT_EQ(Read(x)[49], 49u + 600u);
  EXPECT_EQ(Read(x)[50], 50u);
}

// Each dispatch sees the writes of the preceding one, within one submission and across submissions.
TEST_F(VulkanDeviceTest, RunsChains) {
  Executable& step = Load(StepArtifact());
  constexpr uint32_t kSteps = 700, kWords = 3000;
  Buffer& y = NewBuffer(kWords * 4);
  std::vector<uint32_t> expected(kWords, 0);
  for (int round = 0; round < 3; ++round) {
    List list;
    for (uint32_t i = 0; i < kSteps; ++i) {
      list.Dispatch(step, kWords, {Whole(y), Scalar(i)});
      for (uint32_t& word : expected) {
        word = word * 3 + i;
      }
    }
    std::vector<NodeTiming> timings(kSteps);
    const Status status = Run(list, nullptr, timings);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(Read(y), expected);
    for (uint32_t i = 0; i < kSteps; ++i) {
      ASSERT_LE(timings[i].start_ns, timings[i].end_ns) << i;
      ASSERT_TRUE(i == 0 || timings[i - 1].end_ns <= timings[i].end_ns) << i;
    }
    EXPECT_LT(timings[0].start_ns, timings[kSteps - 1].end_ns);
  }
}

// Dependent copies and launches among independent ones.
TEST_F(VulkanDeviceTest, OrdersCopiesAndLaunches) {
  Executable& step = Load(StepArtifact());
  Buffer& a = NewBuffer(4000);
  Buffer& b = NewBuffer(4000);
  Buffer& c = NewBuffer(4000);
  Buffer& first = Host(std::vector<uint32_t>(1000));
  Buffer& second = Host(std::vector<uint32_t>(1000));
  List list;
  list.Fill(a, 0, 4000, 1);                          // a = 0x01010101
  list.Dispatch(step, 1000, {Whole(c), Scalar(9)});  // c = 9
  list.Copy(a, 0, b, 0, 4000);                       // b = 0x01010101
  list.Dispatch(step, 1000, {Whole(a), Scalar(1)});  // a = 0x03030304
  list.Copy(a, 0, first, 0, 4000);
  list.Dispatch(step, 1000, {Whole(a), Scalar(0)});  // a = 0x0909090c
  list.Copy(first, 0, c, 0, 2000);                   // c = 0x03030304, 9
  list.Copy(a, 0, c, 3000, 1000);
  list.Copy(c, 0, second, 0, 4000);
  const Status status = Run(list);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(Words(first)[999], 0x03030304u);
  EXPECT_EQ(Words(second)[0], 0x03030304u);
  EXPECT_EQ(Words(second)[499], 0x03030304u);
  EXPECT_EQ(Words(second)[500], 9u);
  EXPECT_EQ(Words(second)[999], 0x0909090cu);
  EXPECT_EQ(Read(b), std::vector<uint32_t>(1000, 0x01010101));
}

// The first instance that traps is named, with its node; the device remains usable, and the next run is clean.
TEST_F(VulkanDeviceTest, ReportsTraps) {
  Executable& trap = Load(TrapArtifact());
  Buffer& y = NewBuffer(4000);
  for (int round = 0; round < 3; ++round) {
    List list;
    list.Dispatch(trap, 1000, {Whole(y), Scalar(5000)});
    list.Dispatch(trap, 1000, {Whole(y), Scalar(123)});
    list.Dispatch(trap, 1000, {Whole(y), Scalar(7)});
    Failure failure;
    const Status status = Run(list, &failure);
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    EXPECT_EQ(failure.node, 1u);
    EXPECT_EQ(failure.trap.code, ir::TrapCode::kUnreachable);
    EXPECT_EQ(failure.trap.instance[0], 123u);
    EXPECT_EQ(failure.trap.source, 77u);
    List clean;
    clean.Dispatch(trap, 1000, {Whole(y), Scalar(5000)});
    EXPECT_TRUE(Run(clean).ok());
    EXPECT_EQ(Read(y), Counting(1000, 1));
  }
}

// A tenant's own module learns the view's size from the bound range; stores outside have no effect.
TEST_F(VulkanDeviceTest, NativeModulesStayInTheirBuffers) {
  Executable& native = Load(NativeArtifact());
  Buffer& y = NewBuffer(1024);
  Buffer& around = NewBuffer(800'000);
  List list;
  list.Dispatch(native, 1, {{&y, 0, 40, 0}});
  list.Dispatch(native, 1, {{&around, 0, 400, 0}});
  const Status status = Run(list);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(Read(y)[0], 10u);
  EXPECT_EQ(Read(around)[0], 100u);
  EXPECT_EQ(Read(around)[100'000], 0u);
  List unaligned;
  unaligned.Dispatch(native, 1, {{&y, 4, 40, 0}});
  Failure failure;
  const Status refused = Run(unaligned, &failure);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
  EXPECT_EQ(failure.node, 0u);
}

// Mesa's llvmpipe ends a vector's loops after 65,535 rounds: a tenant's own module then fails, and the other launches
// in the submission do not.
TEST_F(VulkanDeviceTest, NativeLoopsThatTheDriverEndsFail) {
  Executable& counts = Load(NativeLoopArtifact());
  Buffer &few = NewBuffer(32), &many = NewBuffer(32);
  List list;
  list.Copy(Host({1, 2, 3, 40'000, 5, 6, 7, 8}), 0, few, 0, 32);
  list.Copy(Host({1, 2, 3, 100'000, 5, 6, 7, 8}), 0, many, 0, 32);
  list.Dispatch(counts, 8, {Whole(few)});
  EXPECT_TRUE(Run(list).ok());
  EXPECT_EQ(Read(few), (std::vector<uint32_t>{2, 3, 4, 40'001, 6, 7, 8, 9}));
  list.Dispatch(counts, 8, {Whole(many)});
  Failure failure;
  const Status status = Run(list, &failure);
  if (!device_->info().gpu.is_processor) {
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(Read(many), (std::vector<uint32_t>{2, 3, 4, 100'001, 6, 7, 8, 9}));
    return;
  }
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(failure.node, 1u);
  EXPECT_EQ(failure.trap.code, ir::kLoopsCut);
}

// Launches that a device cannot run fail with a sentence that names the limit, and the node.
TEST_F(VulkanDeviceTest, RefusesLaunchesBeyondItsLimits) {
  Executable& step = Load(StepArtifact());
  Buffer& y = NewBuffer(4000);
  List list;
  list.Dispatch(step, 1000, {Whole(y), Scalar(1)});
  list.Dispatch(step, uint64_t{1} << 32, {Whole(y), Scalar(1)});
  Failure failure;
  const Status status = Run(list, &failure);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_EQ(failure.node, 1u);
  const uint64_t range_max = device_->info().gpu.buffer_bytes_max;
  if (device_->info().allocation_bytes_max > range_max + (1 << 20)) {
    Buffer& large = NewBuffer(range_max + 4);
    List too_large;
    too_large.Dispatch(step, 1, {Whole(large), Scalar(1)});
    const Status refused = Run(too_large);
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
    EXPECT_NE(Message(refused).find(std::to_string(range_max)), std::string::npos) << refused;
  }
  KernelNeeds needs{.kind = ArtifactKind::kVulkan};
  EXPECT_TRUE(device_->Supports(needs).ok);
  needs.group = {uint64_t{1} << 40, 1, 1};
  EXPECT_FALSE(device_->Supports(needs).ok);
  needs.group = {device_->info().gpu.group_size_max, 2, 1};
  EXPECT_FALSE(device_->Supports(needs).ok);
  needs = {.kind = ArtifactKind::kOpenCl};
  EXPECT_FALSE(device_->Supports(needs).ok);
}

// Modules and descriptions that the compiler never writes.
TEST_F(VulkanDeviceTest, RefusesBadArtifacts) {
  const auto refuses = [&](const char* what, auto change, absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
    Artifact artifact = StepArtifact();
    change(artifact);
    const auto loaded = device_->Load(std::move(artifact));
    EXPECT_EQ(loaded.status().code(), code) << what << ": " << loaded.status();
  };
  refuses("kind", [](Artifact& a) { a.kind = ArtifactKind::kOpenCl; });
  refuses("format", [](Artifact& a) { a.gpu.format = GpuFormat::kPtx; });
  refuses("empty", [](Artifact& a) { a.code.clear(); });
  refuses("cut", [](Artifact& a) { a.code.resize(a.code.size() - 3); });
  refuses("magic", [](Artifact& a) { a.code[0] ^= 1; });
  refuses("variants", [](Artifact& a) { a.gpu.variants.clear(); });
  refuses("param", [](Artifact& a) { a.gpu.variants[0].arguments[0].index = 2; });
  refuses("offset", [](Artifact& a) { a.gpu.variants[0].arguments[1].offset = 8; });
  refuses("push", [](Artifact& a) { a.gpu.variants[0].push_bytes = 4096; });
  refuses("set", [](Artifact& a) { a.gpu.variants[0].arguments[0].set = 0xffffffff; });
  refuses("binding", [](Artifact& a) { a.gpu.variants[0].arguments[0].binding = 0xffffffff; });
  refuses("twice", [](Artifact& a) { a.gpu.variants[0].arguments.push_back(a.gpu.variants[0].arguments[0]); });
  refuses("group memory", [](Artifact& a) { a.gpu.variants[0].local_bytes = uint64_t{1} << 40; });
}

// A stop word ends a submission before its next command.
TEST_F(VulkanDeviceTest, StopsBetweenSubmissions) {
  Buffer& y = NewBuffer(400);
  List list;
  list.Fill(y, 0, 400, 1);
  auto timeline = device_->CreateTimeline();
  const TimelinePoint done{timeline.get(), 1};
  std::atomic<uint32_t> stop{1};
  Submission submission;
  submission.commands = &list.commands;
  submission.buffers = list.buffers;
  submission.signals = {&done, 1};
  submission.stop = &stop;
  ASSERT_TRUE(device_->Submit(submission).ok());
  const Status status = timeline->Wait(1, RealClock().Now() + std::chrono::seconds(20));
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
}

class CountingStore final : public TuningStore {
 public:
  void Keep(const Sha256&, std::span<const uint8_t>) override { ++kept; }
  std::atomic<int> kept{0};
};

// Launches that could run in several ways are timed individually, and the results are stored.
TEST_F(VulkanDeviceTest, MeasuresVariants) {
  CountingStore store;
  Open({.tuning = &store, .as_discrete = true});
  Artifact artifact = StepArtifact();
  artifact.name.bytes[0] = 1;
  artifact.gpu.variants.push_back(artifact.gpu.variants[0]);
  Executable& step = Load(std::move(artifact));
  constexpr uint32_t kWords = 200'000, kLaunches = 30;
  Buffer& y = NewBuffer(kWords * 4);
  uint32_t expected = 0;
  for (int round = 0; round < 20 && store.kept == 0; ++round) {
    List list;
    for (uint32_t i = 0; i < kLaunches; ++i) {
      list.Dispatch(step, kWords, {Whole(y), Scalar(i)});
      expected = expected * 3 + i;
    }
    const Status status = Run(list);
    ASSERT_TRUE(status.ok()) << status;
  }
  EXPECT_GT(store.kept, 0);
  EXPECT_EQ(Read(y), std::vector<uint32_t>(kWords, expected));
  Open({});  // Otherwise the store would be destroyed first.
}

// Buffers are allocated and freed on other threads while submissions run.
TEST_F(VulkanDeviceTest, AllocatesOnManyThreads) {
  Executable& step = Load(StepArtifact());
  Buffer& y = NewBuffer(40'000);
  std::atomic<bool> stops{false};
  std::vector<std::thread> threads;
  std::atomic<uint64_t> allocated{0};
  for (uint64_t seed = 0; seed < 2; ++seed) {
    threads.emplace_back([&, seed] {
      for (uint64_t i = seed; !stops; i = i * 7 + 13) {
        allocated += device_->Allocate({.bytes = 1 + i % 3'000'000}).ok() ? 1 : 1'000'000'000;
      }
    });
  }
  uint32_t expected = 0;
  for (int round = 0; round < 30; ++round) {
    List list;
    for (uint32_t i = 0; i < 50; ++i) {
      list.Dispatch(step, 10'000, {Whole(y), Scalar(i)});
      expected = expected * 3 + i;
    }
    EXPECT_TRUE(Run(list).ok());
  }
  stops = true;
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_GT(allocated, 0u);
  EXPECT_LT(allocated, 1'000'000'000u);
  EXPECT_EQ(Read(y), std::vector<uint32_t>(10'000, expected));
}

// Counts builds; returns what the process behind a real builder would.
class TestBuilder final : public DriverBuilder {
 public:
  StatusOr<DriverBinary> Build(const DriverBuild& build, const Patience&) override {
    ++builds;
    if (breaks_data) {
      return DriverBinary{std::vector<uint8_t>(100, 0x5a), ""};
    }
    StatusOr<DriverBinary> binary = BuildForVulkan(build);
    bytes = binary.ok() ? binary->bytes.size() : 0;
    return binary;
  }
  int builds = 0;
  size_t bytes = 0;
  bool breaks_data = false;
};

// Pipelines are created from data built by another process; data of another driver does no harm.
TEST_F(VulkanDeviceTest, UsesPreparedPipelines) {
  TestBuilder builder;
  for (const bool breaks_data : {false, true}) {
    builder.breaks_data = breaks_data;
    Open({.builder = &builder});
    Executable& step = Load(StepArtifact());
    Buffer& y = NewBuffer(4000);
    List list;
    list.Dispatch(step, 1000, {Whole(y), Scalar(5)});
    const Status status = Run(list);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(Read(y), std::vector<uint32_t>(1000, 5));
  }
  EXPECT_EQ(builder.builds, 2);
  EXPECT_GE(builder.bytes, sizeof(VkPipelineCacheHeaderVersionOne));  // Mesa's software driver stores nothing else.
}

// Not a test: prints the cost of a dependent tiny dispatch.
TEST_F(VulkanDeviceTest, PrintsLaunchCost) {
  Open({}, /*validates=*/false);
  Executable& step = Load(StepArtifact());
  Buffer& y = NewBuffer(256);
  constexpr uint32_t kSteps = 1000;
  List list;
  for (uint32_t i = 0; i < kSteps; ++i) {
    list.Dispatch(step, 64, {Whole(y), Scalar(i)});
  }
  double best_us = 1e9;
  for (int round = 0; round < 5; ++round) {
    const Time begin = RealClock().Now();
    ASSERT_TRUE(Run(list).ok());
    best_us = std::min(best_us, std::chrono::duration<double, std::micro>(RealClock().Now() - begin).count() / kSteps);
  }
  std::printf("vulkan: %.2f us a dependent dispatch, %u in a submission, on %s\n", best_us, kSteps,
              device_->info().name.c_str());
}

}  // namespace
}  // namespace hpvm::vulkan
