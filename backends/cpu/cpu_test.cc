// SPDX-License-Identifier: Apache-2.0
// Tests parts of the CPU device that need no compiler.
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "backends/cpu/addresses.h"
#include "backends/cpu/fiber.h"
#include "backends/cpu/image.h"
#include "backends/cpu/lane.h"
#include "base/clock.h"
#include "base/limits.h"

namespace hpvm::cpu {
namespace {

// The cursor agrees with the reference for random modules and sizes, and refuses exactly when the reference does.
TEST(AddressCursorTest, AgreesWithAssignAddresses) {
  SeededRng rng(7);
  int refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    ir::Module module;
    module.is_memory64 = rng.Below(2) == 0;
    module.memory_bytes_max = rng.Below(4) * 64 * limits::kKiB;
    module.uses_group_memory = rng.Below(2) == 0;
    std::vector<ir::Argument> arguments(rng.Below(6));
    for (ir::Argument& argument : arguments) {
      ir::KernelParam param;
      param.is_buffer = rng.Below(3) != 0;
      module.params.push_back(param);
      argument.bytes = param.is_buffer ? rng.Below(uint64_t{1} << rng.Below(34)) : 0;
      if (rng.Below(50) == 0 && param.is_buffer) {
        argument.bytes = ~uint64_t{0} - rng.Below(200'000);
      }
    }
    AddressCursor cursor(module);
    std::vector<uint64_t> bases;
    for (size_t i = 0; i < arguments.size(); ++i) {
      bases.push_back(module.params[i].is_buffer ? cursor.Place(arguments[i].bytes) : 0);
    }
    const uint64_t group_base = module.uses_group_memory ? cursor.Place(ir::kGroupMemoryBytesMax) : 0;
    const StatusOr<ir::AddressSpace> want = ir::AssignAddresses(module, arguments);
    ASSERT_EQ(cursor.exhausted(), !want.ok()) << round;
    refused += want.ok() ? 0 : 1;
    if (want.ok()) {
      ASSERT_EQ(bases, want->base) << round;
      ASSERT_EQ(group_base, want->group_base) << round;
    }
  }
  EXPECT_GT(refused, 100);
}

#if defined(__x86_64__)
// mov eax, 0; ret
constexpr uint8_t kReturnsDone[] = {0xb8, 0, 0, 0, 0, 0xc3};

Artifact SmallImage() {
  Artifact artifact;
  artifact.kind = ArtifactKind::kCpuImage;
  artifact.target = "x86-64";
  artifact.code.assign(std::begin(kReturnsDone), std::end(kReturnsDone));
  return artifact;
}

// Returns the permissions of the mapping that holds `address`, as the kernel prints them.
std::string Permissions(uintptr_t address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long from = 0, to = 0;
    char permissions[5] = {};
    if (sscanf(line.c_str(), "%lx-%lx %4s", &from, &to, permissions) == 3 && from <= address && address < to) {
      return permissions;
    }
  }
  return "";
}

// A mapped image can run and cannot be written.
TEST(ImageTest, IsExecutableAndNotWritable) {
  const StatusOr<Image> image = Image::Map(SmallImage());
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(image->entry()(nullptr, 0, 1), ir::kCpuDone);
  EXPECT_EQ(Permissions(reinterpret_cast<uintptr_t>(image->entry())), "r-xp");
}

// Entries outside the code, and images that need features of other machines, are refused.
TEST(ImageTest, Refusals) {
  Artifact outside = SmallImage();
  outside.entry_offset = outside.code.size();
  EXPECT_EQ(Image::Map(outside).status().code(), absl::StatusCode::kInvalidArgument);
  Artifact empty = SmallImage();
  empty.code.clear();
  EXPECT_EQ(Image::Map(empty).status().code(), absl::StatusCode::kInvalidArgument);
  Artifact foreign = SmallImage();
  foreign.target = "x86-64,+quantum";
  const Status status = Image::Map(foreign).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(Message(status).find("quantum"), std::string::npos);
  EXPECT_TRUE(CheckTarget("x86-64,-avx512f,+sse2").ok());
}
#endif

Artifact WithMemory() {
  Artifact artifact;
  artifact.memory_bytes = 64 * limits::kKiB;
  artifact.memory_bytes_max = 128 * limits::kKiB;
  artifact.data = {{1000, {1, 2, 3}}, {5000, {4}}};
  artifact.globals = {11, 22};
  artifact.state_bytes = 100;
  artifact.state = {{7, {5, 6}}};
  artifact.format_types = {{ir::Type::kI32}, {}};
  return artifact;
}

// Simulates an image's store: marks the granule as dirty.
void Store(ir::CpuContext& context, uint64_t address, uint8_t value) {
  const uint64_t granule = address / ir::kDirtyGranuleBytes;
  uint64_t& word = context.dirty_bits[granule / 64];
  if ((word >> (granule % 64) & 1) == 0) {
    word |= uint64_t{1} << (granule % 64);
    context.dirty_list[context.dirty_count++] = static_cast<uint32_t>(granule);
  }
  context.memory[address] = value;
}

// Restore resets data, zeros, globals, the size of memory, and dirty bits.
TEST(LaneTest, RestoreBringsBackTheInitialState) {
  const StatusOr<InitialState> initial = InitialState::From(WithMemory());
  ASSERT_TRUE(initial.ok()) << initial.status();
  LaneCache cache(*initial, 1);
  Lane* lane = *cache.Take();
  ir::CpuContext& context = lane->context;
  const std::vector<uint8_t> before(context.memory, context.memory + context.memory_bytes_max);
  EXPECT_EQ(before[1001], 2);
  EXPECT_EQ(before[5000], 4);
  for (int round = 0; round < 3; ++round) {
    for (uint64_t address : {0u, 511u, 512u, 1001u, 1500u, 4999u, 5000u, 65535u, 65536u, 131071u}) {
      Store(context, address, 99);
    }
    context.globals[1] = 5;
    context.memory_bytes = 128 * limits::kKiB;
    context.restore(&context);
    EXPECT_EQ(std::vector<uint8_t>(context.memory, context.memory + context.memory_bytes_max), before);
    EXPECT_EQ(context.globals[1], 22u);
    EXPECT_EQ(context.memory_bytes, 64 * limits::kKiB);
    EXPECT_EQ(context.dirty_count, 0u);
    EXPECT_EQ(context.dirty_bits[0], 0u);
  }
  cache.Give(lane);
  EXPECT_EQ(*cache.Take(), lane);
  cache.Give(lane);
}

// The state is restored if and only if the image declares that it wrote it; scratch is kept.
TEST(LaneTest, RestoresWrittenState) {
  const StatusOr<InitialState> initial = InitialState::From(WithMemory());
  ASSERT_TRUE(initial.ok()) << initial.status();
  const StatusOr<std::unique_ptr<Lane>> lane = Lane::Create(*initial);
  ASSERT_TRUE(lane.ok()) << lane.status();
  ir::CpuContext& context = (*lane)->context;
  EXPECT_EQ(std::vector<uint8_t>(context.state + 6, context.state + 10), (std::vector<uint8_t>{0, 5, 6, 0}));
  context.state[8] = 1;
  context.state[99] = 2;
  context.restore(&context);
  EXPECT_EQ(context.state[8], 1);
  context.state_written = 1;
  context.restore(&context);
  EXPECT_EQ(context.state[8], 6);
  EXPECT_EQ(context.state[99], 0);
  EXPECT_EQ(context.state_written, 0u);
}

// Records go to the launch's sink with the instance and as many operands as the format has; they are dropped without a
// sink, or when the format does not exist.
TEST(LaneTest, PrintsToTheSink) {
  struct Sink final : ir::PrintSink {
    void Print(const std::array<uint64_t, 3>& instance, uint32_t format, std::span<const uint64_t> values) override {
      text += std::to_string(instance[0]) + "," + std::to_string(instance[2]) + " f" + std::to_string(format);
      for (uint64_t value : values) {
        text += " " + std::to_string(value);
      }
      text += ";";
    }
    std::string text;
  } sink;
  const StatusOr<InitialState> initial = InitialState::From(WithMemory());
  ASSERT_TRUE(initial.ok()) << initial.status();
  const StatusOr<std::unique_ptr<Lane>> lane = Lane::Create(*initial);
  ASSERT_TRUE(lane.ok()) << lane.status();
  ir::CpuContext& context = (*lane)->context;
  const uint64_t values[] = {1, 2, 3, 44};
  context.print(&context, 0, values);
  (*lane)->print = &sink;
  context.print(&context, 0, values);
  context.print(&context, 1, values);
  context.print(&context, 2, values);
  EXPECT_EQ(sink.text, "1,3 f0 44;1,3 f1;");
}

// Inconsistent artifacts are refused, also when sums overflow.
TEST(LaneTest, InitialStateRefusals) {
  Artifact artifact = WithMemory();
  artifact.data = {{65535, {1, 2}}};
  EXPECT_FALSE(InitialState::From(artifact).ok());
  artifact.data = {{~uint64_t{0}, {1, 2}}};
  EXPECT_FALSE(InitialState::From(artifact).ok());
  artifact = WithMemory();
  artifact.memory_bytes_max = 100;
  EXPECT_FALSE(InitialState::From(artifact).ok());
  artifact.memory_bytes_max = 65536;
  artifact.state = {{99, {1, 2}}};
  EXPECT_EQ(InitialState::From(artifact).status().code(), absl::StatusCode::kInvalidArgument);
  artifact.state_bytes = ~uint64_t{0};
  EXPECT_EQ(InitialState::From(artifact).status().code(), absl::StatusCode::kResourceExhausted);
  artifact = WithMemory();
  artifact.memory_bytes_max = limits::kModuleMemoryBytesMax + 65536;
  EXPECT_EQ(InitialState::From(artifact).status().code(), absl::StatusCode::kResourceExhausted);
}

// A fiber suspends and resumes; a dropped fiber can start again.
TEST(FiberTest, SuspendsAndRestarts) {
  const std::unique_ptr<Fiber> fiber = *Fiber::Create();
  struct State {
    Fiber* fiber;
    int steps = 0;
  } state{fiber.get()};
  auto body = [](void* argument) {
    auto* state = static_cast<State*>(argument);
    for (int i = 0; i < 3; ++i) {
      ++state->steps;
      state->fiber->Suspend();
    }
  };
  for (int round = 0; round < 100; ++round) {
    state.steps = 0;
    fiber->Start(body, &state);
    EXPECT_FALSE(fiber->Resume());
    EXPECT_FALSE(fiber->Resume());
    EXPECT_EQ(state.steps, 2);
    if (round % 2 == 0) {
      EXPECT_FALSE(fiber->Resume());
      EXPECT_TRUE(fiber->Resume());
    }
  }
}

}  // namespace
}  // namespace hpvm::cpu
