// SPDX-License-Identifier: Apache-2.0
// Tests parts of launches, and extents that are known only at launch.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "backends/cpu/device.h"
#include "base/clock.h"
#include "compiler/back/llvm/llvm_back.h"
#include "compiler/ir/text/text.h"
#include "compiler/pass/pipeline.h"

namespace hpvm::cpu {
namespace {

using Triple = std::array<uint64_t, 3>;

// out[i] += 3 in[i] + x + 7 nx, where i is the instance's linear number in the whole launch.
constexpr const char* kAdd = R"(module "add"
param buffer inout "out"
param buffer in "in"
entry f0
func f0 "add" (%out: i32, %in: i32) -> () {
  %zero: i32 = const.i32 0
  %one: i32 = const.i32 1
  %two: i32 = const.i32 2
  %three: i32 = const.i32 3
  %seven: i32 = const.i32 7
  %x: i32 = instance_id.i32 %zero
  %y: i32 = instance_id.i32 %one
  %z: i32 = instance_id.i32 %two
  %nx: i32 = instance_count.i32 %zero
  %ny: i32 = instance_count.i32 %one
  %a: i32 = mul.i32 %z, %ny
  %b: i32 = add.i32 %a, %y
  %c: i32 = mul.i32 %b, %nx
  %i: i32 = add.i32 %c, %x
  %offset: i32 = shl.i32 %i, %two
  %v: i32 = load.i32 param(1) %offset
  %w: i32 = mul.i32 %v, %three
  %r: i32 = add.i32 %w, %x
  %n: i32 = mul.i32 %nx, %seven
  %s: i32 = add.i32 %r, %n
  %old: i32 = load.i32 param(0) %offset
  %new: i32 = add.i32 %old, %s
  store.i32 param(0) %offset, %new
  return ()
}
)";

// out[i] += 1 + the local number of the group's next instance along x, through group memory; i as above.
constexpr const char* kNeighbour = R"(module "neighbour"
uses barrier
uses group_memory
param buffer inout "out"
entry f0
func f0 "neighbour" (%out: i32) -> () {
  %zero: i32 = const.i32 0
  %one: i32 = const.i32 1
  %two: i32 = const.i32 2
  %bytes: i32 = const.i32 1024
  %gx: i32 = group_size.i32 %zero
  %lx: i32 = local_id.i32 %zero
  %ly: i32 = local_id.i32 %one
  %x: i32 = instance_id.i32 %zero
  %y: i32 = instance_id.i32 %one
  %nx: i32 = instance_count.i32 %zero
  %memory: i32 = local_alloc %bytes
  %row: i32 = mul.i32 %ly, %gx
  %local: i32 = add.i32 %row, %lx
  %at: i32 = shl.i32 %local, %two
  %place: i32 = add.i32 %memory, %at
  %told: i32 = add.i32 %local, %one
  store.i32 flat %place, %told
  barrier
  %next: i32 = add.i32 %lx, %one
  %wrapped: i32 = rem_u.i32 %next, %gx
  %other: i32 = add.i32 %row, %wrapped
  %at2: i32 = shl.i32 %other, %two
  %place2: i32 = add.i32 %memory, %at2
  %v: i32 = load.i32 flat %place2
  %line: i32 = mul.i32 %y, %nx
  %i: i32 = add.i32 %line, %x
  %offset: i32 = shl.i32 %i, %two
  %old: i32 = load.i32 param(0) %offset
  %new: i32 = add.i32 %old, %v
  store.i32 param(0) %offset, %new
  return ()
}
)";

Artifact Compile(const char* text) {
  InitializeLlvm();
  StatusOr<ir::Module> module = ir::ParseModule(text);
  EXPECT_TRUE(module.ok()) << module.status();
  HPVMD_CHECK(module.ok());
  HPVMD_CHECK(pass::RunCpuPipeline(*module).ok());
  CpuOptions options;
  if (!module->uses_barrier) {
    options.shapes = {{16, 2, 4}, {16, 1, 1}, {8, 3, 1}};
  }
  StatusOr<Artifact> artifact = EmitCpuImage(*module, *HostCpuTarget(), options);
  EXPECT_TRUE(artifact.ok()) << artifact.status();
  HPVMD_CHECK(artifact.ok());
  return *std::move(artifact);
}

// A device with one kernel, whose buffers are the slots in order; slot 9 holds counts for extents.
class Bench {
 public:
  explicit Bench(const char* text, uint32_t variant = kAutoVariant)
      : device_(CreateCpuDevice(hub_, {.threads = 2, .variant = variant})) {
    StatusOr<std::unique_ptr<Executable>> loaded = device_->Load(Compile(text));
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    executable_ = *std::move(loaded);
    dispatch.executable = executable_.get();
  }

  Status Run(const std::vector<std::span<uint32_t>>& buffers) {
    CommandList list;
    std::vector<std::unique_ptr<Buffer>> owned;
    std::vector<Buffer*> slots;
    const auto import = [&](void* data, uint64_t bytes) {
      owned.push_back(*device_->Allocate({.bytes = bytes, .import = static_cast<uint8_t*>(data)}));
      slots.push_back(owned.back().get());
    };
    for (const std::span<uint32_t>& buffer : buffers) {
      import(buffer.data(), buffer.size_bytes());
      list.arguments.push_back(
          {.slot = static_cast<SlotIndex>(slots.size() - 1), .is_buffer = true, .bytes = buffer.size_bytes()});
    }
    slots.resize(9, nullptr);
    import(counts.data(), sizeof(counts));
    dispatch.argument_count = static_cast<uint32_t>(buffers.size());
    list.commands.emplace_back(dispatch);
    const std::unique_ptr<Timeline> timeline = device_->CreateTimeline();
    const TimelinePoint signal{timeline.get(), 1};
    HPVMD_RETURN_IF_ERROR(
        device_->Submit({.commands = &list, .buffers = slots, .signals = {&signal, 1}, .failure = &failure}));
    return timeline->Wait(1, RealClock().Now() + std::chrono::seconds(60));
  }

  DispatchCommand dispatch;
  std::array<uint64_t, 4> counts{};
  Failure failure;

 private:
  Hub hub_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Executable> executable_;
};

// Cuts [0, extent) repeatedly into parts along a random dimension; each consists of whole groups.
struct Part {
  Triple first, count;
};
std::vector<Part> RandomParts(SeededRng& rng, const Triple& extent, const Triple& group) {
  std::vector<Part> parts = {{{0, 0, 0}, extent}};
  for (uint64_t cuts = rng.Below(6); cuts > 0; --cuts) {
    const size_t which = rng.Below(parts.size()), d = rng.Below(3);
    const uint64_t groups = (parts[which].count[d] + group[d] - 1) / group[d];
    if (groups < 2) {
      continue;
    }
    const uint64_t at = group[d] * (1 + rng.Below(groups - 1));
    Part upper = parts[which];
    upper.first[d] += at;
    upper.count[d] -= at;
    parts[which].count[d] = at;
    parts.push_back(upper);
  }
  return parts;
}

bool IsIn(const Part& part, const Triple& id) {
  for (size_t d = 0; d < 3; ++d) {
    if (id[d] < part.first[d] || id[d] - part.first[d] >= part.count[d]) {
      return false;
    }
  }
  return true;
}

// Each part writes exactly its instances' outputs, with their ids in the whole launch; the parts together equal the
// whole, by every variant and while variants are being measured.
TEST(PartsTest, PartsMakeTheWhole) {
  SeededRng rng(11);
  for (const uint32_t variant : {0u, 1u, 2u, 3u, kAutoVariant}) {
    Bench bench(kAdd, variant);
    for (int round = 0; round < 60; ++round) {
      const Triple extent = {1 + rng.Below(150), 1 + rng.Below(20), 1 + rng.Below(4)};
      const uint64_t n = extent[0] * extent[1] * extent[2];
      std::vector<uint32_t> in(n), out(n, 5), want(n, 5);
      for (uint64_t i = 0; i < n; ++i) {
        in[i] = static_cast<uint32_t>(rng.Next());
      }
      bench.dispatch.extent = extent;
      for (const Part& part : RandomParts(rng, extent, {1, 1, 1})) {
        bench.dispatch.first = part.first;
        bench.dispatch.count = part.count;
        for (uint64_t i = 0; i < n; ++i) {
          const Triple id = {i % extent[0], i / extent[0] % extent[1], i / extent[0] / extent[1]};
          want[i] += IsIn(part, id) ? 3 * in[i] + static_cast<uint32_t>(id[0] + 7 * extent[0]) : 0;
        }
        const Status status = bench.Run({out, in});
        ASSERT_TRUE(status.ok()) << status;
        ASSERT_EQ(out, want) << "variant " << variant << ", round " << round;
      }
    }
  }
}

// A large part is shared by the pool, including its ragged edges.
TEST(PartsTest, LargePartsAreShared) {
  Bench bench(kAdd);
  const Triple extent = {1001, 503, 2};
  const uint64_t n = extent[0] * extent[1] * extent[2];
  const Part part = {{3, 5, 0}, {995, 493, 2}};
  std::vector<uint32_t> in(n, 1), out(n), want(n);
  bench.dispatch.extent = extent;
  bench.dispatch.first = part.first;
  bench.dispatch.count = part.count;
  for (int round = 0; round < 12; ++round) {
    const Status status = bench.Run({out, in});
    ASSERT_TRUE(status.ok()) << status;
    for (uint64_t i = 0; i < n; ++i) {
      const Triple id = {i % extent[0], i / extent[0] % extent[1], i / extent[0] / extent[1]};
      want[i] += IsIn(part, id) ? 3 + static_cast<uint32_t>(id[0] + 7 * extent[0]) : 0;
    }
    ASSERT_EQ(out, want) << round;
  }
}

// Groups of a part keep their place in the whole launch, including the ragged ones at its end.
TEST(PartsTest, PartsOfGroups) {
  SeededRng rng(12);
  Bench bench(kNeighbour);
  for (int round = 0; round < 60; ++round) {
    const Triple group = {1 + rng.Below(8), 1 + rng.Below(4), 1};
    const Triple extent = {group[0] * (1 + rng.Below(9)), 1 + rng.Below(20), 1};
    std::vector<uint32_t> out(extent[0] * extent[1]), want(out.size());
    bench.dispatch.extent = extent;
    bench.dispatch.group = group;
    for (const Part& part : RandomParts(rng, extent, group)) {
      bench.dispatch.first = part.first;
      bench.dispatch.count = part.count;
      for (uint64_t y = 0; y < extent[1]; ++y) {
        for (uint64_t x = 0; x < extent[0]; ++x) {
          if (IsIn(part, {x, y, 0})) {
            want[y * extent[0] + x] +=
                static_cast<uint32_t>(1 + y % group[1] * group[0] + (x % group[0] + 1) % group[0]);
          }
        }
      }
      const Status status = bench.Run({out});
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_EQ(out, want) << round;
    }
  }
}

// kAllInstances reaches the end; a part that is not a whole number of groups is a bug.
TEST(PartsTest, CountsReachTheEndOrWholeGroups) {
  Bench bench(kNeighbour);
  std::vector<uint32_t> out(8);
  bench.dispatch.extent = {8, 1, 1};
  bench.dispatch.group = {4, 1, 1};
  bench.dispatch.first = {4, 0, 0};
  ASSERT_TRUE(bench.Run({std::span(out)}).ok());
  EXPECT_EQ(out[3], 0u);
  EXPECT_NE(out[4], 0u);
  EXPECT_NE(out[7], 0u);
  bench.dispatch.count = {3, 1, 1};
  const Status status = bench.Run({std::span(out)});
  EXPECT_TRUE(absl::IsInternal(status)) << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("instances 4 to 7 along x"));
}

// The number of instances is read when the launch begins, from 4 or 8 bytes; kernels see it as the extent.
TEST(PartsTest, ExtentsFromBuffers) {
  Bench bench(kAdd);
  std::vector<uint32_t> in(100, 2), out(100);
  bench.dispatch.extent = {25, 4, 1};
  bench.dispatch.extent_from[0] = {.slot = 9, .offset = 8, .bytes = 8};
  bench.dispatch.extent_from[1] = {.slot = 9, .offset = 20, .bytes = 4};
  for (const auto& [x, y] : std::vector<std::pair<uint64_t, uint64_t>>{{25, 4}, {7, 3}, {0, 4}, {1, 1}}) {
    bench.counts = {0xffffffffffffffff, x, y << 32 | 0xffffffff, 0xffffffffffffffff};
    out.assign(100, 0);
    const Status status = bench.Run({out, in});
    ASSERT_TRUE(status.ok()) << status;
    for (uint64_t i = 0; i < 100; ++i) {
      ASSERT_EQ(out[i], i < x * y ? 6 + i % x + 7 * x : 0) << x << " by " << y << ", instance " << i;
    }
  }
}

TEST(PartsTest, ExtentsBeyondTheLimitAreRefused) {
  Bench bench(kAdd);
  std::vector<uint32_t> in(100, 2), out(100);
  bench.dispatch.node = 3;
  bench.dispatch.extent = {25, 4, 1};
  bench.dispatch.extent_from[1] = {.slot = 9, .offset = 0, .bytes = 8};
  bench.counts[0] = 5;
  const Status status = bench.Run({out, in});
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              testing::HasSubstr("along y that the graph computed (5) is larger than the node's limit (4)."));
  EXPECT_EQ(bench.failure.node, 3u);
  EXPECT_EQ(out, std::vector<uint32_t>(100));
}

}  // namespace
}  // namespace hpvm::cpu
