// SPDX-License-Identifier: Apache-2.0
// A launch costs one driver call, plus one for each argument that differs from the previous launch.
#include <dlfcn.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "backends/gpu/forced_variant.h"
#include "backends/opencl/buffer.h"
#include "backends/opencl/testing/rig.h"

namespace {

// Calls by the devices under test since Take.
struct Calls {
  std::atomic<int> arguments{0}, launches{0}, events{0}, others{0};
  std::atomic<int> clocked{0};  // Launches on queues that record times.
};
Calls calls;

template <typename Function>
Function* Real(Function*, const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

// The dynamic linker finds this program's definitions before the loader's.
extern "C" cl_int CL_API_CALL clSetKernelArg(cl_kernel kernel, cl_uint index, size_t bytes, const void* value) {
  static const auto real = Real(&clSetKernelArg, "clSetKernelArg");
  ++calls.arguments;
  return real(kernel, index, bytes, value);
}

extern "C" cl_int CL_API_CALL clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions,
                                                     const size_t* offset, const size_t* global, const size_t* local,
                                                     cl_uint wait_count, const cl_event* waits, cl_event* event) {
  static const auto real = Real(&clEnqueueNDRangeKernel, "clEnqueueNDRangeKernel");
  ++calls.launches;
  calls.events += event != nullptr ? 1 : 0;
  cl_command_queue_properties properties = 0;
  clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES, sizeof(properties), &properties, nullptr);
  calls.clocked += (properties & CL_QUEUE_PROFILING_ENABLE) != 0 ? 1 : 0;
  return real(queue, kernel, dimensions, offset, global, local, wait_count, waits, event);
}

extern "C" cl_int CL_API_CALL clFlush(cl_command_queue queue) {
  static const auto real = Real(&clFlush, "clFlush");
  ++calls.others;
  return real(queue);
}

extern "C" cl_int CL_API_CALL clRetainEvent(cl_event event) {
  static const auto real = Real(&clRetainEvent, "clRetainEvent");
  ++calls.others;
  return real(event);
}

extern "C" cl_int CL_API_CALL clReleaseEvent(cl_event event) {
  static const auto real = Real(&clReleaseEvent, "clReleaseEvent");
  ++calls.others;
  return real(event);
}

extern "C" cl_int CL_API_CALL clEnqueueMarkerWithWaitList(cl_command_queue queue, cl_uint wait_count,
                                                          const cl_event* waits, cl_event* event) {
  static const auto real = Real(&clEnqueueMarkerWithWaitList, "clEnqueueMarkerWithWaitList");
  ++calls.others;
  return real(queue, wait_count, waits, event);
}

extern "C" cl_int CL_API_CALL clEnqueueBarrierWithWaitList(cl_command_queue queue, cl_uint wait_count,
                                                           const cl_event* waits, cl_event* event) {
  static const auto real = Real(&clEnqueueBarrierWithWaitList, "clEnqueueBarrierWithWaitList");
  ++calls.others;
  return real(queue, wait_count, waits, event);
}

extern "C" cl_int CL_API_CALL clGetEventProfilingInfo(cl_event event, cl_profiling_info what, size_t bytes, void* value,
                                                      size_t* written) {
  static const auto real = Real(&clGetEventProfilingInfo, "clGetEventProfilingInfo");
  ++calls.others;
  return real(event, what, bytes, value, written);
}

namespace hpvm::opencl {
namespace {

using Kind = GpuArgument::Kind;

constexpr uint32_t kLaunches = 1000, kViews = 250, kWords = 16;

struct Counts {
  int arguments = 0, launches = 0, events = 0, others = 0, clocked = 0;
};

Counts Take() {
  return {calls.arguments.exchange(0), calls.launches.exchange(0), calls.events.exchange(0), calls.others.exchange(0),
          calls.clocked.exchange(0)};
}

constexpr std::string_view kSteps = R"(
__kernel void advance(__global uchar* x, ulong x_start) {
  __global uint* data = (__global uint*)(x + x_start) + get_global_id(0);
  *data = *data * 3 + 1;
}
__kernel void jump(ulong x_start, __global uchar* x) {
  __global uint* data = (__global uint*)(x + x_start) + get_global_id(0);
  *data = *data * 3 + 2;
}
)";

// Two variants that do different things, so that results show which one ran.
Artifact Steps() {
  Artifact artifact = Native(kSteps, "advance", {BufferParam("x")});
  artifact.gpu.is_native = false;
  std::vector<GpuVariant>& variants = artifact.gpu.variants;
  variants.push_back(variants[0]);
  variants[1].entry = "jump";
  variants[0].arguments = {Arg(Kind::kBuffer), Arg(Kind::kBufferStart, 0, 8)};
  variants[1].arguments = {Arg(Kind::kBufferStart, 0, 8), Arg(Kind::kBuffer)};
  variants[0].arguments[0].is_writable = variants[1].arguments[1].is_writable = true;
  return artifact;
}

uint32_t After(uint32_t value, uint32_t steps, uint32_t plus = 1) {
  for (uint32_t i = 0; i < steps; ++i) {
    value = value * 3 + plus;
  }
  return value;
}

class LaunchCallsTest : public testing::TestWithParam<std::string> {};

// Dependent launches are one call each, independent ones on views of one buffer two. In addition there are the calls
// per submission and per group of timed launches, far less than one per launch. Only launches that begin or end a group
// are on the queue with a clock.
TEST_P(LaunchCallsTest, ReplaysMakeNoFurtherCalls) {
  for (const uint32_t views : {1u, kViews}) {
    SCOPED_TRACE(views);
    Rig rig(GetParam());
    std::unique_ptr<Executable> step = rig.Load(Steps());
    ASSERT_NE(step, nullptr);
    std::unique_ptr<Buffer> x = rig.Upload(std::vector<uint32_t>(views * kWords, 5));
    rig.is_timed = true;
    for (int replay = 0; replay < 3; ++replay) {
      for (uint32_t i = 0; i < kLaunches; ++i) {
        rig.Dispatch(*step, kWords, {rig.View(*x, uint64_t{i} % views * kWords * 4, kWords * 4)});
      }
      Take();
      const Status status = rig.Run();
      ASSERT_TRUE(status.ok()) << status;
      const Counts counts = Take();
      EXPECT_EQ(counts.launches, static_cast<int>(kLaunches));
      EXPECT_LE(counts.events, 4);
      EXPECT_EQ(counts.clocked, counts.events);
      EXPECT_LE(counts.others, 50);
      if (replay > 0) {
        EXPECT_EQ(counts.arguments, views == 1 ? 0 : static_cast<int>(kLaunches));
      }
    }
    EXPECT_EQ(rig.Read<uint32_t>(*x), std::vector<uint32_t>(views * kWords, After(5, 3 * kLaunches / views)));
  }
}

// A launch that may trap sets its record's argument, and no other argument again.
TEST_P(LaunchCallsTest, LaunchesThatMayTrapSetTheirRecord) {
  Rig rig(GetParam());
  std::unique_ptr<Executable> checked = rig.Load(Checked());
  ASSERT_NE(checked, nullptr);
  std::unique_ptr<Buffer> x = rig.Upload(std::vector<uint32_t>(kWords, 0));
  for (int replay = 0; replay < 3; ++replay) {
    for (uint32_t i = 0; i < kLaunches; ++i) {
      rig.Dispatch(*checked, kWords, {rig.View(*x), Rig::Value(0xffffffffu)});
    }
    Take();
    ASSERT_TRUE(rig.Run().ok());
    const Counts counts = Take();
    if (replay > 0) {
      EXPECT_EQ(counts.arguments, static_cast<int>(kLaunches));
    }
    EXPECT_LE(counts.others, 40);
  }
}

// Lists that share a kernel: the memory is set again once after each change of list.
TEST_P(LaunchCallsTest, ListsShareAKernel) {
  Rig rig(GetParam());
  std::unique_ptr<Executable> step = rig.Load(Steps());
  ASSERT_NE(step, nullptr);
  const std::vector<uint32_t> ones(kWords, 1);
  std::unique_ptr<Buffer> buffers[] = {rig.Upload(ones), rig.Upload(ones)};
  for (int replay = 0; replay < 4; ++replay) {
    for (const std::unique_ptr<Buffer>& x : buffers) {
      for (int i = 0; i < 10; ++i) {
        rig.Dispatch(*step, kWords, {rig.View(*x)});
      }
      Take();
      ASSERT_TRUE(rig.Run().ok());
      EXPECT_EQ(Take().arguments, replay == 0 && x == buffers[0] ? 2 : 1);
    }
  }
  for (const std::unique_ptr<Buffer>& x : buffers) {
    EXPECT_EQ(rig.Read<uint32_t>(*x), std::vector<uint32_t>(kWords, After(1, 40)));
  }
}

// Each variant keeps its own arguments.
TEST_P(LaunchCallsTest, VariantsChangeBetweenRuns) {
  gpu::ForcedVariant forced(0);
  Rig rig(GetParam(), {.forced = &forced});
  std::unique_ptr<Executable> step = rig.Load(Steps());
  ASSERT_NE(step, nullptr);
  std::unique_ptr<Buffer> x = rig.Upload(std::vector<uint32_t>(kWords, 1));
  uint32_t expected = 1;
  for (uint32_t run = 0; run < 6; ++run) {
    forced.Set({.variant = run % 2});
    rig.Dispatch(*step, kWords, {rig.View(*x)});
    Take();
    ASSERT_TRUE(rig.Run().ok());
    EXPECT_EQ(Take().arguments, run < 2 ? 2 : 0) << run;
    expected = After(expected, 1, 1 + run % 2);
    EXPECT_EQ(rig.Read<uint32_t>(*x), std::vector<uint32_t>(kWords, expected)) << run;
  }
}

// Few launches in a row do not justify a change of queues, nor do many with other commands in between.
TEST_P(LaunchCallsTest, ShortListsStayOnOneQueue) {
  Rig rig(GetParam());
  std::unique_ptr<Executable> step = rig.Load(Steps());
  ASSERT_NE(step, nullptr);
  std::unique_ptr<Buffer> x = rig.Upload(std::vector<uint32_t>(kWords, 1));
  rig.is_timed = true;
  uint32_t launches = 0;
  for (const uint32_t count : {1000u, 100u}) {
    for (uint32_t i = 0; i < count; ++i, ++launches) {
      rig.Dispatch(*step, kWords, {rig.View(*x)});
      if (count == 1000 && i % 100 == 99) {
        rig.list.commands.emplace_back(FillCommand{rig.Slot(*x), 0, 4, 0});
      }
    }
    Take();
    ASSERT_TRUE(rig.Run().ok());
    const Counts counts = Take();
    EXPECT_EQ(counts.clocked, counts.launches);
  }
  std::vector<uint32_t> expected(kWords, After(1, launches));
  expected[0] = After(0, 100);
  EXPECT_EQ(rig.Read<uint32_t>(*x), expected);
}

// Memory at the address and handle of freed memory is different memory.
TEST_P(LaunchCallsTest, HandlesThatAreUsedAgainAreSetAgain) {
  Rig rig(GetParam());
  std::unique_ptr<Executable> step = rig.Load(Steps());
  ASSERT_NE(step, nullptr);
  std::unique_ptr<Buffer> x = rig.Upload(std::vector<uint32_t>(kWords, 1));
  int again = 0;
  for (int round = 0; round < 50; ++round) {
    rig.Dispatch(*step, kWords, {rig.View(*x)});
    Take();
    ASSERT_TRUE(rig.Run().ok());
    EXPECT_GE(Take().arguments, 1);
    EXPECT_EQ(rig.Read<uint32_t>(*x), std::vector<uint32_t>(kWords, After(1, 1)));
    const cl_mem before = static_cast<OpenClBuffer&>(*x).memory();
    x.reset();
    x = rig.Upload(std::vector<uint32_t>(kWords, 1));
    again += static_cast<OpenClBuffer&>(*x).memory() == before ? 1 : 0;
  }
  RecordProperty("handles_used_again", again);
}

// A launch without instances at the end takes no time, and does not remove the time of the others.
TEST_P(LaunchCallsTest, AnEmptyLaunchHidesNoTime) {
  Rig rig(GetParam());
  std::unique_ptr<Executable> step = rig.Load(Steps());
  ASSERT_NE(step, nullptr);
  std::unique_ptr<Buffer> x = rig.Upload(std::vector<uint32_t>(kWords, 1));
  rig.is_timed = true;
  for (int round = 0; round < 5; ++round) {
    for (uint32_t i = 0; i < 300; ++i) {
      rig.Dispatch(*step, kWords, {rig.View(*x)});
    }
    rig.Dispatch(*step, 0, {rig.View(*x)});
    ASSERT_TRUE(rig.Run().ok());
    EXPECT_GT(rig.timings[299].end_ns, rig.timings[299].start_ns);
    EXPECT_GE(rig.timings[300].end_ns, rig.timings[299].end_ns);
  }
}

// No launch's time includes commands between two groups of launches.
TEST_P(LaunchCallsTest, CopiesBetweenLaunchesAreNotTheirTime) {
  constexpr uint32_t kGroup = 512;
  constexpr uint64_t kBytes = 64 << 20;
  Rig rig(GetParam());
  std::unique_ptr<Executable> step = rig.Load(Steps());
  ASSERT_NE(step, nullptr);
  std::unique_ptr<Buffer> x = rig.Upload(std::vector<uint32_t>(kWords, 1));
  std::unique_ptr<Buffer> from = rig.Allocate(kBytes), to = rig.Allocate(kBytes);
  rig.is_timed = true;
  for (int half = 0; half < 2; ++half) {
    for (uint32_t i = 0; i < kGroup; ++i) {
      rig.Dispatch(*step, kWords, {rig.View(*x)});
    }
    if (half == 0) {
      rig.Copy(*from, *to, kBytes);
    }
  }
  ASSERT_TRUE(rig.Run().ok());
  // No memory moves 64 MiB in 5 microseconds.
  EXPECT_GT(rig.timings[kGroup].start_ns - rig.timings[kGroup - 1].end_ns, 5'000);
  EXPECT_EQ(rig.Read<uint32_t>(*x), std::vector<uint32_t>(kWords, After(1, 2 * kGroup)));
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LaunchCallsTest);
INSTANTIATE_TEST_SUITE_P(Present, LaunchCallsTest, testing::ValuesIn(Present()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), ':', '_');
  return name;
});

}  // namespace
}  // namespace hpvm::opencl
