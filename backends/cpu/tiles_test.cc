// SPDX-License-Identifier: Apache-2.0
// Launches by variants, through the device: each one forced, and found by measuring.
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

#include "backends/cpu/device.h"
#include "compiler/back/llvm/llvm_back.h"
#include "compiler/ir/text/text.h"
#include "compiler/pass/pipeline.h"

namespace hpvm::cpu {
namespace {

// out[i] = 3 in[i] + x, where i is the instance's linear number.
constexpr const char* kScale = R"(module "scale"
param buffer inout "out"
param buffer in "in"
entry f0
func f0 "scale" (%out: i32, %in: i32) -> () {
  %zero: i32 = const.i32 0
  %one: i32 = const.i32 1
  %two: i32 = const.i32 2
  %three: i32 = const.i32 3
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
  store.i32 param(0) %offset, %r
  return ()
}
)";

// Instances whose word is not 0 never end.
constexpr const char* kEndless = R"(module "endless"
param buffer inout "x"
entry f0
func f0 "endless" (%x: i32) -> () {
  %zero: i32 = const.i32 0
  %two: i32 = const.i32 2
  %i: i32 = instance_id.i32 %zero
  %offset: i32 = shl.i32 %i, %two
  %v: i32 = load.i32 param(0) %offset
  loop forever () {
    if goes_on %v {
      continue forever ()
    } else {
      br forever ()
    }
    trap 1
  }
  store.i32 param(0) %offset, %i
  return ()
}
)";

// Each instance adds the value that its neighbour in the group stored before the barrier.
constexpr const char* kNeighbour = R"(module "neighbour"
uses barrier
uses group_memory
param buffer inout "out"
entry f0
func f0 "neighbour" (%out: i32) -> () {
  %zero: i32 = const.i32 0
  %one: i32 = const.i32 1
  %two: i32 = const.i32 2
  %bytes: i32 = const.i32 256
  %local: i32 = local_id.i32 %zero
  %i: i32 = instance_id.i32 %zero
  %n: i32 = group_size.i32 %zero
  %memory: i32 = local_alloc %bytes
  %at: i32 = shl.i32 %local, %two
  %place: i32 = add.i32 %memory, %at
  store.i32 flat %place, %i
  barrier
  %next: i32 = add.i32 %local, %one
  %other: i32 = rem_u.i32 %next, %n
  %at2: i32 = shl.i32 %other, %two
  %place2: i32 = add.i32 %memory, %at2
  %v: i32 = load.i32 flat %place2
  %offset: i32 = shl.i32 %i, %two
  store.i32 param(0) %offset, %v
  return ()
}
)";

Artifact Compile(const char* text, std::vector<pass::GangShape> shapes = {}) {
  InitializeLlvm();
  StatusOr<ir::Module> module = ir::ParseModule(text);
  EXPECT_TRUE(module.ok()) << module.status();
  HPVMD_CHECK(module.ok());
  HPVMD_CHECK(pass::RunCpuPipeline(*module).ok());
  CpuOptions options;
  options.shapes = std::move(shapes);
  StatusOr<Artifact> artifact = EmitCpuImage(*module, *HostCpuTarget(), options);
  EXPECT_TRUE(artifact.ok()) << artifact.status();
  HPVMD_CHECK(artifact.ok());
  return *std::move(artifact);
}

const std::vector<pass::GangShape> kShapes = {{16, 2, 4}, {16, 1, 1}, {8, 3, 1}};

// Keeps the last record.
class Store final : public TuningStore {
 public:
  void Keep(const Sha256&, std::span<const uint8_t> record) override {
    record_.assign(record.begin(), record.end());
    ++count_;
  }
  const std::vector<uint8_t>& record() const { return record_; }
  int count() const { return count_; }

 private:
  std::vector<uint8_t> record_;
  int count_ = 0;
};

// One device with one kernel on it.
class Bench {
 public:
  Bench(const Artifact& artifact, uint32_t variant, TuningStore* tuning = nullptr, uint32_t threads = 2)
      : device_(CreateCpuDevice(hub_, {threads, nullptr, tuning, variant})) {
    StatusOr<std::unique_ptr<Executable>> loaded = device_->Load(artifact);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    executable_ = *std::move(loaded);
    timeline_ = device_->CreateTimeline();
  }

  Status Run(const std::array<uint64_t, 3>& extent, const std::vector<std::span<uint32_t>>& buffers,
             const std::array<uint64_t, 3>& group = {1, 1, 1}) {
    CommandList list;
    DispatchCommand dispatch;
    dispatch.executable = executable_.get();
    dispatch.extent = extent;
    dispatch.group = group;
    dispatch.argument_count = static_cast<uint32_t>(buffers.size());
    std::vector<std::unique_ptr<Buffer>> owned;
    std::vector<Buffer*> slots;
    for (const std::span<uint32_t>& buffer : buffers) {
      BufferSpec spec;
      spec.bytes = buffer.size_bytes();
      spec.import = reinterpret_cast<uint8_t*>(buffer.data());
      owned.push_back(*device_->Allocate(spec));
      slots.push_back(owned.back().get());
      DispatchArgument argument;
      argument.slot = static_cast<SlotIndex>(slots.size() - 1);
      argument.is_buffer = true;
      argument.bytes = spec.bytes;
      list.arguments.push_back(argument);
    }
    list.commands.emplace_back(dispatch);
    const TimelinePoint signal{timeline_.get(), ++value_};
    Submission submission;
    submission.commands = &list;
    submission.buffers = slots;
    submission.signals = {&signal, 1};
    submission.stop = stop;
    submission.failure = &failure;
    HPVMD_RETURN_IF_ERROR(device_->Submit(submission));
    const Status status = timeline_->Wait(value_, RealClock().Now() + std::chrono::seconds(60));
    if (!status.ok()) {
      timeline_ = device_->CreateTimeline();
      value_ = 0;
    }
    return status;
  }

  const std::atomic<uint32_t>* stop = nullptr;
  Failure failure;

 private:
  Hub hub_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Executable> executable_;
  std::unique_ptr<Timeline> timeline_;
  uint64_t value_ = 0;
};

constexpr uint32_t kGuard = 0xdeadbeef;

// Runs kScale over buffers with guards behind them; nothing but the result may change.
void CheckScale(Bench& bench, const std::array<uint64_t, 3>& extent) {
  const uint64_t n = extent[0] * extent[1] * extent[2];
  std::vector<uint32_t> in(n), out(n + 64, kGuard);
  for (uint64_t i = 0; i < n; ++i) {
    in[i] = static_cast<uint32_t>(i * 2654435761u);
  }
  const Status status = bench.Run(extent, {std::span(out).first(n), in});
  ASSERT_TRUE(status.ok()) << status;
  for (uint64_t i = 0; i < n; ++i) {
    ASSERT_EQ(out[i], in[i] * 3 + static_cast<uint32_t>(i % extent[0])) << i;
  }
  for (uint64_t i = n; i < out.size(); ++i) {
    ASSERT_EQ(out[i], kGuard);
  }
}

constexpr std::array<uint64_t, 3> kExtents[] = {{1, 1, 1},   {15, 1, 1}, {16, 1, 1},   {1000, 1, 1}, {33, 5, 1},
                                                {64, 64, 1}, {31, 3, 7}, {100, 37, 2}, {1, 100, 3},  {65, 1, 9}};

// Every variant gives the same result for every extent, also where tiles overhang.
TEST(TilesTest, EveryVariantRunsEveryExtent) {
  const Artifact artifact = Compile(kScale, kShapes);
  ASSERT_GE(artifact.variants.size(), kShapes.size());
  for (uint32_t variant = 0; variant <= artifact.variants.size(); ++variant) {
    SCOPED_TRACE(variant);
    Bench bench(artifact, variant);
    for (const auto& extent : kExtents) {
      CheckScale(bench, extent);
    }
  }
}

// While a class is measured, launches mix variants; they settle after a bounded number, and the record settles the next
// process at once.
TEST(TilesTest, MeasuresAndRemembers) {
  Artifact artifact = Compile(kScale, kShapes);
  artifact.name = HashOf("scale");
  Store store;
  {
    Bench bench(artifact, kAutoVariant, &store);
    for (const auto& extent : kExtents) {
      CheckScale(bench, extent);
    }
    for (int i = 0; i < 200 && store.count() == 0; ++i) {
      CheckScale(bench, {100, 100, 1});
    }
    for (int i = 0; i < 20; ++i) {
      CheckScale(bench, {1000, 500, 4});
    }
  }
  ASSERT_GE(store.count(), 1);
  const StatusOr<TuningRecord> record = DecodeTuning(store.record());
  ASSERT_TRUE(record.ok()) << record.status();
  ASSERT_FALSE(record->classes.empty());
  EXPECT_FALSE(record->device.empty());
  for (const TuningClass& c : record->classes) {
    EXPECT_NE(c.candidates >> c.winner & 1, 0u);
    EXPECT_GT(c.instance_ns[c.winner], 0);
  }
  artifact.tuning = store.record();
  const int before = store.count();
  Bench later(artifact, kAutoVariant, &store);
  for (int i = 0; i < 100; ++i) {
    CheckScale(later, {100, 100, 1});
  }
  EXPECT_EQ(store.count(), before);
}

// When the launch does not prove that accesses stay inside, checked code names the instance and writes nothing outside.
TEST(TilesTest, UnprovenLaunchTraps) {
  const Artifact artifact = Compile(kScale, kShapes);
  for (uint32_t variant : {kAutoVariant, 0u, 1u, static_cast<uint32_t>(artifact.variants.size())}) {
    SCOPED_TRACE(variant);
    Bench bench(artifact, variant, nullptr, 1);
    for (int round = 0; round < 30; ++round) {
      std::vector<uint32_t> in(500, 1), out(564, kGuard);
      const Status status = bench.Run({100, 6, 1}, {std::span(out).first(500), in});
      ASSERT_TRUE(absl::IsAborted(status)) << status;
      const ir::TrapReport& trap = bench.failure.trap;
      EXPECT_EQ(trap.code, ir::TrapCode::kOutOfBounds);
      EXPECT_EQ(trap.instance[1], 5u);
      EXPECT_LT(trap.instance[0], 100u);
      for (size_t i = 500; i < out.size(); ++i) {
        ASSERT_EQ(out[i], kGuard);
      }
    }
  }
}

// Lanes that never end are stopped quickly, in every variant, and the device remains usable.
TEST(TilesTest, StopsEndlessLanes) {
  const Artifact artifact = Compile(kEndless, kShapes);
  ASSERT_FALSE(artifact.variants.empty());
  for (uint32_t variant = 0; variant <= artifact.variants.size() + 1; ++variant) {
    SCOPED_TRACE(variant);
    Bench bench(artifact, variant <= artifact.variants.size() ? variant : kAutoVariant);
    std::vector<uint32_t> x(5000);
    ASSERT_TRUE(bench.Run({5000, 1, 1}, {x}).ok());
    EXPECT_EQ(x[4999], 4999u);
    for (uint32_t lane : {0u, 37u, 4999u}) {
      std::fill(x.begin(), x.end(), 0);
      x[lane] = 1;
      std::atomic<uint32_t> stop{0};
      bench.stop = &stop;
      Time stopped{0};
      std::thread stopper([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        stopped = RealClock().Now();
        stop = 1;
      });
      const Status status = bench.Run({5000, 1, 1}, {x});
      const Time ended = RealClock().Now();
      stopper.join();
      bench.stop = nullptr;
      EXPECT_TRUE(absl::IsCancelled(status)) << status;
      EXPECT_LT(ended - stopped, std::chrono::seconds(2));
      std::fill(x.begin(), x.end(), 0);
      EXPECT_TRUE(bench.Run({5000, 1, 1}, {x}).ok());
    }
  }
}

// Groups by every variant that the image has, and found by measuring.
TEST(TilesTest, EveryVariantRunsGroups) {
  const Artifact artifact = Compile(kNeighbour);
  ASSERT_FALSE(artifact.variants.empty());
  for (uint32_t variant = 0; variant <= artifact.variants.size() + 1; ++variant) {
    SCOPED_TRACE(variant);
    Bench bench(artifact, variant <= artifact.variants.size() ? variant : kAutoVariant);
    for (uint64_t group : {1, 5, 16, 33, 64}) {
      for (int round = 0; round < 40; ++round) {
        const uint64_t n = group * 12;
        std::vector<uint32_t> out(n);
        const Status status = bench.Run({n, 1, 1}, {out}, {group, 1, 1});
        ASSERT_TRUE(status.ok()) << status;
        for (uint64_t i = 0; i < n; ++i) {
          ASSERT_EQ(out[i], i / group * group + (i % group + 1) % group) << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace hpvm::cpu
