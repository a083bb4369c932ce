// SPDX-License-Identifier: Apache-2.0
// OpenCL-specific tests in addition to the conformance suite. They run on every OpenCL device present.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <numeric>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "backends/contract/driver_builder.h"
#include "backends/contract/host_block.h"
#include "backends/opencl/device.h"
#include "backends/opencl/health.h"
#include "backends/opencl/pin.h"
#include "backends/opencl/program.h"
#include "backends/opencl/testing/rig.h"
#include "backends/registry.h"
#include "backends/shared/host_buffer.h"

namespace {

std::atomic<int> writes{0}, reads{0};  // Calls by the devices under test.

}  // namespace

// The dynamic linker finds this program's definitions before the loader's.
extern "C" cl_int CL_API_CALL clEnqueueWriteBuffer(cl_command_queue queue, cl_mem memory, cl_bool blocks, size_t offset,
                                                   size_t bytes, const void* data, cl_uint wait_count,
                                                   const cl_event* waits, cl_event* event) {
  static const auto real = reinterpret_cast<decltype(&clEnqueueWriteBuffer)>(dlsym(RTLD_NEXT, "clEnqueueWriteBuffer"));
  ++writes;
  return real(queue, memory, blocks, offset, bytes, data, wait_count, waits, event);
}

extern "C" cl_int CL_API_CALL clEnqueueReadBuffer(cl_command_queue queue, cl_mem memory, cl_bool blocks, size_t offset,
                                                  size_t bytes, void* data, cl_uint wait_count, const cl_event* waits,
                                                  cl_event* event) {
  static const auto real = reinterpret_cast<decltype(&clEnqueueReadBuffer)>(dlsym(RTLD_NEXT, "clEnqueueReadBuffer"));
  ++reads;
  return real(queue, memory, blocks, offset, bytes, data, wait_count, waits, event);
}

namespace hpvm::opencl {
namespace {

using opencl::Arg;
using opencl::BufferParam;
using opencl::Checked;
using opencl::kChecked;
using opencl::kScale;
using opencl::Native;
using opencl::Present;
using opencl::Rig;
using opencl::ScalarParam;
using testing::HasSubstr;
using Kind = GpuArgument::Kind;

// Builds in this process as a separate process would.
class CountingBuilder final : public DriverBuilder {
 public:
  StatusOr<DriverBinary> Build(const DriverBuild& build, const Patience&) override {
    ++builds;
    return BuildForOpenCl(build);
  }
  int builds = 0;
};

class OpenClTest : public testing::TestWithParam<std::string> {};

TEST_P(OpenClTest, DescribesItself) {
  Rig rig(GetParam());
  const DeviceInfo& info = rig.device().info();
  EXPECT_EQ(info.id, GetParam());
  EXPECT_GT(info.gpu.group_size_max, 1u);
  EXPECT_GT(info.gpu.local_bytes_max, 1024u);
  EXPECT_GT(info.gpu.buffers_max, 8u);
  EXPECT_GE(info.gpu.api_version, 110u);
  EXPECT_EQ(info.is_emulated, info.silicon == "cpu");
  StatusOr<std::string> identity = backends::DriverIdentity(GetParam());
  ASSERT_TRUE(identity.ok()) << identity.status();
  EXPECT_FALSE(identity->empty());
  RecordProperty("device", info.name);
}

TEST_P(OpenClTest, RunsATenantsKernel) {
  Rig rig(GetParam());
  std::unique_ptr<Executable> scale = rig.Load(Native(kScale, "scale", {BufferParam("x"), ScalarParam("by")}));
  ASSERT_NE(scale, nullptr);
  std::unique_ptr<Buffer> x = rig.Upload({1, 2, 3, 4});
  rig.Dispatch(*scale, 4, {rig.View(*x), Rig::Value(3)});
  rig.Dispatch(*scale, 2, {rig.View(*x), Rig::Value(10)});
  ASSERT_TRUE(rig.Run().ok());
  EXPECT_EQ(rig.Read<uint32_t>(*x), (std::vector<uint32_t>{30, 60, 9, 12}));
}

// Faults of a module are reported with the driver's log, or with the argument and parameter that do not fit.
TEST_P(OpenClTest, RefusesWhatDoesNotFit) {
  struct Case {
    const char* name;
    std::string_view text;
    std::string entry;
    std::vector<ir::KernelParam> params;
    const char* message;
  };
  const std::vector<ir::KernelParam> two = {BufferParam("x"), ScalarParam("by")};
  const Case cases[] = {
      {"syntax", "__kernel void f(__global int* x) {\n  x[0] = nowhere;\n}\n", "f", {BufferParam("x")}, "nowhere"},
      {"line", "__kernel void f(__global int* x) {\n  x[0] = nowhere;\n}\n", "f", {BufferParam("x")}, ":2:10: "},
      {"no such kernel", kScale, "absent", two, "The module has no kernel \"absent\"."},
      {"count", kScale, "scale", {BufferParam("x")}, "Kernel \"scale\" takes 2 arguments; the graph passes 1."},
      {"swapped",
       kScale,
       "scale",
       {ScalarParam("by"), BufferParam("x")},
       "Argument 0 (\"x\") of kernel \"scale\" points to global memory and takes no scalar; the graph passes scalar "
       "\"by\" there."},
      {"width",
       kScale,
       "scale",
       {BufferParam("x"), ScalarParam("by", ir::Type::kF64)},
       "Argument 1 (\"by\") of kernel \"scale\" is of type \"uint\" (4 bytes), but is given 8 bytes; the graph passes "
       "scalar \"by\" there."},
      {"narrow",
       "__kernel void f(__global int* x, short s) { x[0] = s; }",
       "f",
       {BufferParam("x"), ScalarParam("s")},
       "\"short\" (2 bytes)"},
      {"local",
       "__kernel void f(__local int* x) { x[0] = 1; }",
       "f",
       {BufferParam("x")},
       "points to local memory, but a buffer is global or constant"},
  };
  Rig rig(GetParam());
  for (const Case& test : cases) {
    const StatusOr<std::unique_ptr<Executable>> executable =
        rig.device().Load(Native(test.text, test.entry, test.params));
    ASSERT_FALSE(executable.ok()) << test.name;
    EXPECT_EQ(executable.status().code(), absl::StatusCode::kInvalidArgument) << executable.status();
    EXPECT_THAT(Message(executable.status()), HasSubstr(test.message)) << test.name;
  }
}

// The same faults in generated code are internal errors; artifacts of another kind or without meaning are refused.
TEST_P(OpenClTest, RefusesArtifactsThatAreNotItsOwn) {
  Rig rig(GetParam());
  Artifact ours = Native("nonsense", "f", {});
  ours.gpu.is_native = false;
  EXPECT_EQ(rig.device().Load(std::move(ours)).status().code(), absl::StatusCode::kInternal);
  Artifact image = Native(kScale, "scale", {});
  image.kind = ArtifactKind::kCpuImage;
  EXPECT_EQ(rig.device().Load(std::move(image)).status().code(), absl::StatusCode::kInvalidArgument);
  Artifact shader = Native(kScale, "scale", {});
  shader.gpu.format = GpuFormat::kSpirvShader;
  EXPECT_EQ(rig.device().Load(std::move(shader)).status().code(), absl::StatusCode::kInvalidArgument);
  Artifact empty = Native("", "scale", {});
  EXPECT_EQ(rig.device().Load(std::move(empty)).status().code(), absl::StatusCode::kInvalidArgument);
}

// Arguments of generated code: views at any position, sizes, extents; and repeated launches with other buffers.
TEST_P(OpenClTest, PassesArgumentsOfGeneratedCode) {
  Rig rig(GetParam());
  std::unique_ptr<Executable> checked = rig.Load(Checked());
  ASSERT_NE(checked, nullptr);
  for (int round = 0; round < 3; ++round) {
    std::vector<uint32_t> values(100);
    std::iota(values.begin(), values.end(), 0u);
    std::unique_ptr<Buffer> x = rig.Upload(values);
    rig.Dispatch(*checked, 7, {rig.View(*x, 4 * 13, 28), Rig::Value(999)});
    const Status status = rig.Run();
    ASSERT_TRUE(status.ok()) << status;
    for (uint32_t i = 13; i < 20; ++i) {
      values[i] = values[i] * 2 + 7;
    }
    EXPECT_EQ(rig.Read<uint32_t>(*x), values);
  }
}

// The first dispatch that trapped is named, and the next submission begins with clean records.
TEST_P(OpenClTest, ReadsTrapsBack) {
  Rig rig(GetParam());
  std::unique_ptr<Executable> checked = rig.Load(Checked());
  ASSERT_NE(checked, nullptr);
  for (int round = 0; round < 3; ++round) {
    std::unique_ptr<Buffer> good = rig.Upload({1, 2, 3, 4}), bad = rig.Upload({1, 2, 999, 4});
    rig.Dispatch(*checked, 4, {rig.View(*good), Rig::Value(999)});
    rig.Dispatch(*checked, 4, {rig.View(*bad), Rig::Value(999)});
    rig.Dispatch(*checked, 4, {rig.View(*good, 0, 12), Rig::Value(999)});
    const Status status = rig.Run();
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    EXPECT_THAT(Message(status), HasSubstr("integer division by zero in instance (2, 0, 0), function \"checked\""));
    EXPECT_EQ(rig.failure.node, 1u);
    EXPECT_EQ(rig.failure.trap.code, ir::TrapCode::kDivideByZero);
    EXPECT_EQ(rig.failure.trap.source, 77u);
    rig.Dispatch(*checked, 4, {rig.View(*good, 0, 12), Rig::Value(0xffffffffu)});
    EXPECT_EQ(rig.Run().code(), absl::StatusCode::kAborted);
    EXPECT_EQ(rig.failure.node, 0u);
    EXPECT_EQ(rig.failure.trap.code, ir::TrapCode::kOutOfBounds);
    EXPECT_EQ(rig.failure.trap.bytes, 4u);
    EXPECT_EQ(rig.failure.trap.address, 12u);
    rig.Dispatch(*checked, 4, {rig.View(*good), Rig::Value(0xffffffffu)});
    EXPECT_TRUE(rig.Run().ok());
  }
}

// A tenant's kernel gets an aligned view as separate memory; an unaligned one is refused with the reason.
TEST_P(OpenClTest, ViewsOfTenantsKernels) {
  Rig rig(GetParam());
  std::unique_ptr<Executable> scale = rig.Load(Native(kScale, "scale", {BufferParam("x"), ScalarParam("by")}));
  ASSERT_NE(scale, nullptr);
  std::unique_ptr<Buffer> x = rig.Upload(std::vector<uint32_t>(4096, 1));
  rig.Dispatch(*scale, 2, {rig.View(*x, 8192, 64), Rig::Value(5)});
  const Status status = rig.Run();
  ASSERT_TRUE(status.ok()) << status;
  std::vector<uint32_t> want(4096, 1);
  want[2048] = want[2049] = 5;
  EXPECT_EQ(rig.Read<uint32_t>(*x), want);
  rig.Dispatch(*scale, 2, {rig.View(*x, 4, 64), Rig::Value(5)});
  const Status unaligned = rig.Run();
  EXPECT_EQ(unaligned.code(), absl::StatusCode::kFailedPrecondition) << unaligned;
  EXPECT_THAT(Message(unaligned), HasSubstr("parameter \"x\""));
  EXPECT_EQ(rig.failure.node, 0u);
}

// Groups that the device or the kernel does not take give an error that names the limit, and the device survives.
TEST_P(OpenClTest, RefusesGroupsThatAreTooLarge) {
  Rig rig(GetParam());
  std::unique_ptr<Executable> scale = rig.Load(Native(kScale, "scale", {BufferParam("x"), ScalarParam("by")}));
  ASSERT_NE(scale, nullptr);
  std::unique_ptr<Buffer> x = rig.Upload(std::vector<uint32_t>(64, 1));
  const uint64_t huge = uint64_t{rig.device().info().gpu.group_size_max} * 2;
  rig.Dispatch(*scale, huge, {rig.View(*x), Rig::Value(5)}, huge);
  const Status status = rig.Run();
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_NE(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_EQ(rig.failure.node, 0u);
  rig.Dispatch(*scale, 64, {rig.View(*x), Rig::Value(5)});
  EXPECT_TRUE(rig.Run().ok());
}

// Code as the compiler writes it for kernels that run by groups: each instance reports the group that the driver was
// told, and the value written by the instance at the group's other end.
constexpr std::string_view kByGroups = R"(
#ifdef GROUP_X
#define GROUP __attribute__((reqd_work_group_size(GROUP_X, GROUP_Y, GROUP_Z)))
#else
#define GROUP
#define GROUP_X 0
#endif
__kernel GROUP void grouped(__global uchar* x, ulong x_start, uint first) {
  __local uint mine[4096];
  uint n = (uint)get_local_size(0), l = (uint)get_local_id(0);
  mine[l] = l;
  barrier(CLK_LOCAL_MEM_FENCE);
  ((__global uint*)(x + x_start))[first + (uint)get_global_id(0)] = GROUP_X * 10000u + mine[n - 1u - l];
}
)";

// Groups beyond the driver's limit for kernels without a declared group run code that declares theirs, built once per
// group; the rest of a launch, and smaller groups, run the other code.
TEST_P(OpenClTest, DeclaresLargeGroups) {
  CountingBuilder builder;
  Rig rig(GetParam(), {.builder = &builder, .undeclared_group_max = 32});
  Artifact artifact = Native(kByGroups, "grouped", {BufferParam("x")});
  artifact.gpu.is_native = false;
  artifact.uses_barrier = artifact.uses_group_memory = true;
  artifact.gpu.variants[0].arguments = {Arg(Kind::kBuffer), Arg(Kind::kBufferStart, 0, 8), Arg(Kind::kFirst)};
  artifact.gpu.variants[0].arguments[0].is_writable = true;
  std::unique_ptr<Executable> grouped = rig.Load(std::move(artifact));
  ASSERT_NE(grouped, nullptr);
  std::unique_ptr<Buffer> x = rig.Allocate(4 * 144);
  const auto run = [&](uint64_t group) {
    rig.Dispatch(*grouped, 144, {rig.View(*x)}, group);
    const Status status = rig.Run();
    EXPECT_TRUE(status.ok()) << status;
    return rig.Read<uint32_t>(*x);
  };
  // Two groups of 64, and one of 16.
  for (int times = 0; times < 2; ++times) {
    const std::vector<uint32_t> large = run(64);
    EXPECT_EQ(large[0], 640'063u);
    EXPECT_EQ(large[127], 640'000u);
    EXPECT_EQ(large[128], 15u);
    EXPECT_EQ(builder.builds, 2);
  }
  EXPECT_EQ(run(32)[0], 31u);
  EXPECT_EQ(builder.builds, 2);
  EXPECT_EQ(run(48)[0], 480'047u);
  EXPECT_EQ(builder.builds, 3);
}

// A buffer beyond the device's largest allocation is refused with the limit.
TEST_P(OpenClTest, RefusesBuffersThatAreTooLarge) {
  Rig rig(GetParam());
  const uint64_t limit = rig.device().info().allocation_bytes_max;
  const Status status = rig.device().Allocate({.bytes = limit + 1}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(status), HasSubstr(std::to_string(limit)));
}

// Copies through pinned memory: larger than all slots together, of odd sizes, and many small ones; in both directions
// and in the middle of a submission.
TEST_P(OpenClTest, StagesCopies) {
  for (const bool always_stage : {false, true}) {
    Rig rig(GetParam(), {.always_stage = always_stage});
    const size_t bytes = (29 << 20) + 12345;
    std::vector<uint8_t> data(bytes), back(bytes), middle(1000);
    for (size_t i = 0; i < bytes; ++i) {
      data[i] = static_cast<uint8_t>(i * 2654435761u >> 13);
    }
    std::unique_ptr<Buffer> from = rig.Host(data), to = rig.Host(back), between = rig.Host(middle);
    std::unique_ptr<Buffer> a = rig.Allocate(bytes), b = rig.Allocate(bytes);
    rig.Copy(*from, *a, bytes);
    rig.Copy(*a, *b, bytes);
    rig.Copy(*b, *between, 1000, 777);      // Waits immediately,
    rig.Copy(*between, *a, 1000, 0, 5000);  // because this reads its output.
    rig.Copy(*b, *to, bytes - 1000, 1000, 0);
    for (size_t i = 0; i < 1000; ++i) {
      rig.Copy(*a, *to, 1, 5000 + i, bytes - 1000 + i);
    }
    const Status status = rig.Run();
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(std::equal(data.begin() + 1000, data.end(), back.begin())) << always_stage;
    EXPECT_TRUE(std::equal(data.begin() + 777, data.begin() + 1777, back.end() - 1000)) << always_stage;
  }
}

// Copies of any size in both directions, through a ring of two slots and through the default one, have the same effect
// as one after the other. The last ones are made when the device is done with the rest.
TEST_P(OpenClTest, CopiesInOrder) {
  constexpr uint64_t kBytes = 6 << 20;
  for (uint32_t seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE(seed);
    const gpu::StagingShape narrow{.slot_bytes = 1 << 20, .slots = 2, .helpers = 1};
    Rig rig(GetParam(), {.always_stage = true, .staging = seed % 2 == 0 ? narrow : gpu::StagingShape()});
    uint32_t state = seed;
    const auto next = [&](uint64_t below) {
      state = state * 1664525 + 1013904223;
      return (uint64_t{state} << 8) % below;
    };
    std::vector<uint8_t> data(kBytes), back(kBytes), expected(kBytes);
    std::ranges::generate(data, [&] { return static_cast<uint8_t>(next(251)); });
    std::vector<uint8_t> on_device(kBytes);
    std::unique_ptr<Buffer> from = rig.Host(data), to = rig.Host(back), memory = rig.Allocate(kBytes);
    for (int i = 0; i < 60; ++i) {
      const uint64_t bytes = 1 + next(uint64_t{1} << (8 + next(15)));
      const uint64_t in_host = next(kBytes - bytes), in_device = next(kBytes - bytes);
      if (i < 20) {
        rig.Copy(*from, *memory, bytes, in_host, in_device);
        std::copy_n(data.begin() + in_host, bytes, on_device.begin() + in_device);
      } else {
        rig.Copy(*memory, *to, bytes, in_device, in_host);
        std::copy_n(on_device.begin() + in_device, bytes, expected.begin() + in_host);
      }
    }
    const Status status = rig.Run();
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(back == expected);
  }
}

// Adjacent small copies are one driver call per direction, whether or not they come in the order of their positions.
// Room between them is declared, as by a memory plan.
TEST_P(OpenClTest, MakesSmallCopiesTogether) {
  constexpr uint64_t kCount = 250, kStep = 512;
  for (const bool has_room : {true, false}) {
    Rig rig(GetParam(), {.always_stage = true});
    std::vector<uint8_t> data(kCount * 70), back(data.size());
    for (size_t i = 0; i < data.size(); ++i) {
      data[i] = static_cast<uint8_t>(i * 2654435761u >> 13);
    }
    std::unique_ptr<Buffer> from = rig.Host(data), to = rig.Host(back), x = rig.Allocate(kCount * kStep);
    for (uint64_t k = 0; k < kCount; ++k) {
      const uint64_t i = k * 7 % kCount;
      rig.Copy(*from, *x, 1 + i % 70, 70 * i, kStep * i);
      std::get<CopyCommand>(rig.list.commands.back()).room = has_room ? kStep - (1 + i % 70) : 0;
    }
    for (uint64_t k = 0; k < kCount; ++k) {
      const uint64_t i = k * 3 % kCount;
      rig.Copy(*x, *to, 1 + i % 70, kStep * i, 70 * i);
    }
    writes = reads = 0;
    const Status status = rig.Run();
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(writes, has_room ? 1 : kCount);
    EXPECT_EQ(reads, 1);
    for (uint64_t i = 0; i < kCount; ++i) {
      const uint64_t begin = 70 * i, bytes = 1 + i % 70;
      EXPECT_TRUE(std::equal(back.begin() + begin, back.begin() + begin + bytes, data.begin() + begin)) << i;
      EXPECT_EQ(std::count(back.begin() + begin + bytes, back.begin() + begin + 70, 0),
                static_cast<int64_t>(70 - bytes));
    }
  }
}

// Small copies of odd sizes and positions, in both directions, between kernels, copies on the device and fills, in one
// submission: the value of a byte depends on the order of all of them.
TEST_P(OpenClTest, SmallCopiesKeepTheirPlaceAmongCommands) {
  constexpr uint64_t kWords = 4096, kBytes = kWords * 4;
  SeededRng rng(11);
  for (const bool always_stage : {false, true}) {
    for (int round = 0; round < 8; ++round) {
      Rig rig(GetParam(), {.always_stage = always_stage});
      const std::unique_ptr<Executable> scale =
          rig.Load(Native(kScale, "scale", {BufferParam("x"), ScalarParam("by")}));
      std::vector<uint8_t> host(kBytes), expected_x(kBytes);
      for (uint8_t& byte : host) {
        byte = static_cast<uint8_t>(rng.Below(256));
      }
      std::vector<uint8_t> expected = host;
      std::unique_ptr<Buffer> memory = rig.Host(host), x = rig.Allocate(kBytes);
      for (int i = 0; i < 300; ++i) {
        const uint64_t bytes = 1 + rng.Below(60), a = rng.Below(kBytes - 60), b = rng.Below(kBytes - 60);
        switch (rng.Below(40)) {
          case 0: {
            rig.Dispatch(*scale, kWords, {rig.View(*x), Rig::Value(3)});
            for (uint64_t w = 0; w < kWords; ++w) {
              uint32_t word = 0;
              std::memcpy(&word, expected_x.data() + 4 * w, 4);
              word *= 3;
              std::memcpy(expected_x.data() + 4 * w, &word, 4);
            }
            break;
          }
          case 1:
            rig.list.commands.emplace_back(FillCommand{rig.Slot(*x), a, bytes, 7});
            std::fill_n(expected_x.begin() + a, bytes, 7);
            break;
          case 2:
            rig.Copy(*x, *x, bytes, a, b);
            std::memmove(expected_x.data() + b, expected_x.data() + a, bytes);
            break;
          case 3:
          case 4:
            rig.Copy(*x, *memory, bytes, a, b);
            std::copy_n(expected_x.begin() + a, bytes, expected.begin() + b);
            break;
          default:
            rig.Copy(*memory, *x, bytes, a, b);
            std::copy_n(expected.begin() + a, bytes, expected_x.begin() + b);
        }
      }
      for (int i = 0; i < 100; ++i) {
        const uint64_t bytes = 1 + rng.Below(60), a = rng.Below(kBytes - 60), b = rng.Below(kBytes - 60);
        rig.Copy(*x, *memory, bytes, a, b);
        std::copy_n(expected_x.begin() + a, bytes, expected.begin() + b);
      }
      const Status status = rig.Run();
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(host, expected) << round;
    }
  }
}

// A copy that extends beyond its buffer fails the submission, even among small ones.
TEST_P(OpenClTest, RefusesASmallCopyThatDoesNotFit) {
  Rig rig(GetParam(), {.always_stage = true});
  std::vector<uint8_t> data(64);
  std::unique_ptr<Buffer> from = rig.Host(data), x = rig.Allocate(64);
  rig.Copy(*from, *x, 8, 0, 0);
  rig.Copy(*from, *x, 8, 0, 60);
  rig.Copy(*from, *x, 8, 0, 16);
  EXPECT_EQ(rig.Run().code(), absl::StatusCode::kInternal);
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
TEST_P(OpenClTest, PinsWhatIsCopiedOften) {
  constexpr uint64_t kBytes = (37 << 20) + 4096, kFrom = 3, kCopied = kBytes - 4099;
  auto* memory = static_cast<uint8_t*>(aligned_alloc(4096, kBytes));
  HostBlock block(memory, kBytes), constant(memory, kBytes, /*is_writable=*/false);
  {
    Rig rig(GetParam(), {.always_stage = true});
    PinnableView host(block, kFrom, kCopied), only_read(constant, kFrom, kCopied);
    std::unique_ptr<Buffer> a = rig.Allocate(kCopied + 5);
    std::vector<uint8_t> expected(kCopied);
    for (uint64_t round = 0; round < 2 * opencl::Pin::kPaysAfter; ++round) {
      SCOPED_TRACE(round);
      for (uint64_t i = 0; i < kCopied; ++i) {
        expected[i] = static_cast<uint8_t>((i + round) * 2654435761u >> 13);
      }
      std::copy(expected.begin(), expected.end(), host.host());
      rig.Copy(round % 2 == 0 ? host : only_read, *a, kCopied, 0, 5);
      ASSERT_TRUE(rig.Run().ok());
      std::fill_n(memory, kBytes, 0x5a);
      rig.Copy(*a, host, kCopied, 5, 0);
      ASSERT_TRUE(rig.Run().ok());
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), host.host()));
      EXPECT_EQ(memory[kFrom - 1], 0x5a);
      EXPECT_EQ(memory[kFrom + kCopied], 0x5a);
    }
    EXPECT_EQ(HostBlock::PinnedBytes(), kBytes);
  }
  block.Close();
  EXPECT_EQ(HostBlock::PinnedBytes(), 0u);
  free(memory);
}

// Fills that begin and end anywhere.
TEST_P(OpenClTest, FillsAnyRange) {
  Rig rig(GetParam());
  std::unique_ptr<Buffer> x = rig.Allocate(200);
  std::vector<uint8_t> want(200);
  uint8_t value = 1;
  for (uint64_t offset : {0u, 1u, 15u, 16u, 33u}) {
    for (uint64_t bytes : {1u, 15u, 16u, 17u, 64u, 100u}) {
      rig.list.commands.emplace_back(FillCommand{rig.Slot(*x), offset, bytes, ++value});
      std::fill_n(want.begin() + static_cast<ptrdiff_t>(offset), bytes, value);
      ASSERT_TRUE(rig.Run().ok());
      ASSERT_EQ(rig.Read<uint8_t>(*x), want) << offset << " " << bytes;
    }
  }
}

// In short lists each dispatch has its own time, in long ones a share; times never run backwards.
TEST_P(OpenClTest, Timings) {
  Rig rig(GetParam());
  std::unique_ptr<Executable> checked = rig.Load(Checked());
  ASSERT_NE(checked, nullptr);
  std::unique_ptr<Buffer> x = rig.Upload(std::vector<uint32_t>(64, 2));
  rig.is_timed = true;
  for (const uint32_t count : {1u, 64u, 65u, 200u}) {
    for (uint32_t i = 0; i < count; ++i) {
      rig.Dispatch(*checked, i % 10 == 9 ? 0 : 64, {rig.View(*x), Rig::Value(1)});
    }
    const Status status = rig.Run();
    ASSERT_TRUE(status.ok()) << status;
    for (uint32_t i = 0; i < count; ++i) {
      EXPECT_GT(rig.timings[i].end_ns, 0) << i;
      EXPECT_LE(rig.timings[i].start_ns, rig.timings[i].end_ns) << i;
      if (i > 0) {
        EXPECT_LE(rig.timings[i - 1].end_ns, rig.timings[i].start_ns) << i;
      }
    }
    EXPECT_GT(rig.timings[count - 1].end_ns, rig.timings[0].start_ns);
  }
}

// A set stop word stops the commands that are not enqueued yet.
TEST_P(OpenClTest, Stops) {
  Rig rig(GetParam());
  std::unique_ptr<Executable> scale = rig.Load(Native(kScale, "scale", {BufferParam("x"), ScalarParam("by")}));
  ASSERT_NE(scale, nullptr);
  std::unique_ptr<Buffer> x = rig.Upload({1, 1});
  std::atomic<uint32_t> stop{1};
  rig.stop = &stop;
  rig.Dispatch(*scale, 2, {rig.View(*x), Rig::Value(5)});
  EXPECT_EQ(rig.Run().code(), absl::StatusCode::kCancelled);
  rig.stop = nullptr;
  EXPECT_EQ(rig.Read<uint32_t>(*x), (std::vector<uint32_t>{1, 1}));
}

// Binaries made by a builder behave like programs built in this process, and its refusals contain the log.
TEST_P(OpenClTest, LoadsWhatABuilderMade) {
  CountingBuilder builder;
  Rig rig(GetParam(), {.builder = &builder});
  std::unique_ptr<Executable> checked = rig.Load(Checked());
  ASSERT_NE(checked, nullptr);
  EXPECT_EQ(builder.builds, 1);
  std::unique_ptr<Buffer> x = rig.Upload({1, 2, 3});
  rig.Dispatch(*checked, 3, {rig.View(*x), Rig::Value(999)});
  const Status status = rig.Run();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(rig.Read<uint32_t>(*x), (std::vector<uint32_t>{5, 7, 9}));
  const Status refused = rig.device().Load(Native("__kernel void f() {\n broken\n}", "f", {})).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(refused), HasSubstr("broken"));
  const Status misfit = rig.device().Load(Native(kScale, "scale", {BufferParam("x")})).status();
  EXPECT_EQ(misfit.code(), absl::StatusCode::kInvalidArgument);
}

// An FPGA-class device runs program binaries, each kernel on its own queue, in the submission's order.
TEST_P(OpenClTest, RunsBitstreams) {
  DriverBuild build;
  build.device = GetParam();
  build.format = GpuFormat::kOpenClC;
  build.code = {reinterpret_cast<const uint8_t*>(kScale.data()), kScale.size()};
  build.entries = {"scale"};
  const StatusOr<DriverBinary> binary = BuildForOpenCl(build);
  ASSERT_TRUE(binary.ok()) << binary.status();
  Rig rig(GetParam(), {.fpga = true});
  EXPECT_EQ(rig.device().info().kind, DeviceKind::kFpga);
  Artifact artifact = Native(kScale, "scale", {BufferParam("x"), ScalarParam("by")});
  artifact.gpu.format = GpuFormat::kBitstream;
  artifact.code = binary->bytes;
  Artifact again = artifact;
  std::unique_ptr<Executable> first = rig.Load(std::move(artifact)), second = rig.Load(std::move(again));
  ASSERT_TRUE(first != nullptr && second != nullptr);
  std::vector<uint8_t> host(8, 1);
  std::unique_ptr<Buffer> from = rig.Host(host), x = rig.Allocate(8);
  rig.Copy(*from, *x, 8);
  for (uint32_t i = 0; i < 4; ++i) {
    rig.Dispatch(i % 2 == 0 ? *first : *second, 2, {rig.View(*x), Rig::Value(3)});
    rig.list.commands.emplace_back(FillCommand{rig.Slot(*x), 0, 4, static_cast<uint8_t>(i)});
  }
  rig.Dispatch(*second, 1, {rig.View(*x), Rig::Value(2)});
  const Status status = rig.Run();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(rig.Read<uint32_t>(*x), (std::vector<uint32_t>{0x03030303u * 2, 0x01010101u * 81}));
}

// SPIR bitcode runs when a driver takes it (PoCL). The test needs the compiler of the driver's LLVM.
TEST_P(OpenClTest, RunsSpirBitcode) {
  Rig rig(GetParam());
  if (rig.device().info().gpu.kernel_il != GpuFormat::kSpirBitcode) {
    GTEST_SKIP() << "The device takes no SPIR bitcode.";
  }
  const std::string base = testing::TempDir() + "opencl_device_test_" + std::to_string(getpid());
  std::ofstream(base + ".cl") << kScale;
  const std::string command =
      "clang-15 -x cl -cl-std=CL1.2 -target spir64-unknown-unknown -O1 -Xclang "
      "-finclude-default-header -emit-llvm -c -o " +
      base + ".bc " + base + ".cl";
  const int result = std::system(command.c_str());
  std::ifstream file(base + ".bc", std::ios::binary);
  std::vector<uint8_t> bitcode((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::remove((base + ".cl").c_str());
  std::remove((base + ".bc").c_str());
  if (result != 0) {
    GTEST_SKIP() << "clang-15 is not installed.";
  }
  Artifact artifact = Native("", "scale", {BufferParam("x"), ScalarParam("by")});
  artifact.gpu.format = GpuFormat::kSpirBitcode;
  artifact.code = bitcode;
  std::unique_ptr<Executable> scale = rig.Load(std::move(artifact));
  ASSERT_NE(scale, nullptr);
  std::unique_ptr<Buffer> x = rig.Upload({1, 2, 3, 4});
  rig.Dispatch(*scale, 4, {rig.View(*x), Rig::Value(3)});
  const Status status = rig.Run();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(rig.Read<uint32_t>(*x), (std::vector<uint32_t>{3, 6, 9, 12}));
}

// PTX runs when a driver takes it as a program binary (NVIDIA).
TEST_P(OpenClTest, RunsPtx) {
  Rig rig(GetParam());
  if (rig.device().info().gpu.kernel_il != GpuFormat::kPtx) {
    GTEST_SKIP() << "The device takes no PTX.";
  }
  constexpr std::string_view kPtx = R"(.version 6.0
.target sm_60
.address_size 64
.visible .entry scale(.param .u64 .ptr .global .align 4 scale_param_0, .param .u32 scale_param_1) {
  .reg .b32 %r<8>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [scale_param_0];
  ld.param.u32 %r1, [scale_param_1];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  mul.wide.u32 %rd2, %r5, 4;
  add.s64 %rd3, %rd1, %rd2;
  ld.global.u32 %r6, [%rd3];
  mul.lo.s32 %r7, %r6, %r1;
  st.global.u32 [%rd3], %r7;
  ret;
}
)";
  Artifact artifact = Native(kPtx, "scale", {BufferParam("x"), ScalarParam("by")});
  artifact.gpu.format = GpuFormat::kPtx;
  std::unique_ptr<Executable> scale = rig.Load(std::move(artifact));
  ASSERT_NE(scale, nullptr);
  std::unique_ptr<Buffer> x = rig.Upload({1, 2, 3, 4});
  rig.Dispatch(*scale, 4, {rig.View(*x), Rig::Value(3)});
  const Status status = rig.Run();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(rig.Read<uint32_t>(*x), (std::vector<uint32_t>{3, 6, 9, 12}));
}

// Prints the cost of dependent tiny launches.
TEST_P(OpenClTest, ManyDependentLaunches) {
  Rig rig(GetParam());
  std::unique_ptr<Executable> checked = rig.Load(Checked());
  ASSERT_NE(checked, nullptr);
  constexpr uint32_t kCount = 1000;
  for (const bool is_timed : {false, true}) {
    rig.is_timed = is_timed;
    double best_us = 1e9;
    for (int round = 0; round < 5; ++round) {
      std::unique_ptr<Buffer> x = rig.Upload({0, 0});
      for (uint32_t i = 0; i < kCount; ++i) {
        rig.Dispatch(*checked, 1, {rig.View(*x, 4, 4), Rig::Value(2)});  // The value is always odd.
      }
      const Time start = RealClock().Now();
      const Status status = rig.Run();
      ASSERT_TRUE(status.ok()) << status;
      best_us = std::min(best_us, static_cast<double>((RealClock().Now() - start).count()) / 1e3 / kCount);
    }
    std::printf("%s: %.2f us a dependent launch%s\n", GetParam().c_str(), best_us, is_timed ? ", timed" : "");
  }
}

// Prints the driver's own cost of the same launches, and the cost of parts of this backend's method.
TEST_P(OpenClTest, WhatLaunchesCostTheDriver) {
  const StatusOr<opencl::Found> found = opencl::FindDevice(GetParam());
  ASSERT_TRUE(found.ok());
  const StatusOr<opencl::Context> context = opencl::CreateContext(*found);
  ASSERT_TRUE(context.ok()) << context.status();
  const std::string_view text = kChecked;
  const StatusOr<opencl::Program> program =
      opencl::BuildProgram(*found, context->get(), GpuFormat::kOpenClC,
                           {reinterpret_cast<const uint8_t*>(text.data()), text.size()}, "", nullptr);
  ASSERT_TRUE(program.ok()) << program.status();
  cl_int error = CL_SUCCESS;
  const opencl::Memory x(clCreateBuffer(context->get(), CL_MEM_READ_WRITE, 64, nullptr, &error));
  const opencl::Memory records(clCreateBuffer(context->get(), CL_MEM_READ_WRITE, 65536, nullptr, &error));
  for (const bool is_profiled : {false, true}) {
    for (const bool sets_index : {false, true}) {
      const opencl::Queue queue(
          clCreateCommandQueue(context->get(), found->device, is_profiled ? CL_QUEUE_PROFILING_ENABLE : 0, &error));
      const opencl::Kernel kernel(clCreateKernel(program->get(), "checked", &error));
      const cl_uint zero = 0;
      clEnqueueFillBuffer(queue.get(), x.get(), &zero, 4, 0, 64, 0, nullptr, nullptr);
      clEnqueueFillBuffer(queue.get(), records.get(), &zero, 4, 0, 65536, 0, nullptr, nullptr);
      const cl_mem x_memory = x.get(), records_memory = records.get();
      const cl_ulong bytes = 4, start = 4;
      const cl_uint bad = 2, first = 0, extent = 1;
      clSetKernelArg(kernel.get(), 0, sizeof(cl_mem), &x_memory);
      clSetKernelArg(kernel.get(), 1, 8, &bytes);
      clSetKernelArg(kernel.get(), 2, 8, &start);
      clSetKernelArg(kernel.get(), 3, 4, &bad);
      clSetKernelArg(kernel.get(), 4, 4, &first);
      clSetKernelArg(kernel.get(), 5, 4, &extent);
      clSetKernelArg(kernel.get(), 6, sizeof(cl_mem), &records_memory);
      clSetKernelArg(kernel.get(), 7, 4, &zero);
      double best_us = 1e9;
      for (int round = 0; round < 5; ++round) {
        ASSERT_EQ(clFinish(queue.get()), CL_SUCCESS);
        const Time begin = RealClock().Now();
        for (cl_uint i = 0; i < 1000; ++i) {
          const size_t one = 1;
          if (sets_index) {
            clSetKernelArg(kernel.get(), 7, 4, &i);
          }
          ASSERT_EQ(clEnqueueNDRangeKernel(queue.get(), kernel.get(), 1, nullptr, &one, &one, 0, nullptr, nullptr),
                    CL_SUCCESS);
        }
        ASSERT_EQ(clFinish(queue.get()), CL_SUCCESS);
        best_us = std::min(best_us, static_cast<double>((RealClock().Now() - begin).count()) / 1e6);
      }
      std::printf("%s: %.2f us a dependent launch by the driver alone%s%s\n", GetParam().c_str(), best_us,
                  is_profiled ? ", profiled queue" : "", sets_index ? ", one argument set" : "");
    }
  }
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OpenClTest);
INSTANTIATE_TEST_SUITE_P(Present, OpenClTest, testing::ValuesIn(Present()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), ':', '_');
  return name;
});

// Invalid names, and devices that do not exist.
TEST(OpenClNamesTest, RefusesWhatDoesNotExist) {
  Hub hub;
  for (const char* name : {"opencl:9999", "opencl:", "opencl:x", "opencl:-1", "opencl:0x", "opencl:99999999999"}) {
    const Status status = backends::CreateDevice(name, hub, {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << name << ": " << status;
  }
  EXPECT_EQ(backends::DriverIdentity("cpu").status().code(), absl::StatusCode::kNotFound);
}

// An event that ends in an error is a loss, which every later call reports; errors of memory or arguments are not.
TEST(OpenClHealthTest, KnowsALostDevice) {
  opencl::Health health("opencl:7", "Some GPU");
  EXPECT_EQ(health.JudgeEvent(CL_MEM_OBJECT_ALLOCATION_FAILURE, "Running").code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(health.Judge(CL_INVALID_KERNEL_ARGS, nullptr, "Launching").code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(health.Check().ok());
  EXPECT_EQ(Message(health.JudgeEvent(CL_OUT_OF_RESOURCES, "Running a submission")),
            "Device \"opencl:7\" (Some GPU) is lost: Running a submission fails with CL_OUT_OF_RESOURCES (-5).");
  EXPECT_EQ(health.Check().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(health.JudgeEvent(CL_MEM_OBJECT_ALLOCATION_FAILURE, "Running").code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace hpvm::opencl
