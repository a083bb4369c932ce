// SPDX-License-Identifier: Apache-2.0
// Launches whose code omits the check of offsets that come from memory, because the range of the words there is known
// (backends/gpu/known_words.h), on every OpenCL and Vulkan device: whatever writes to that memory afterwards, an
// index that leads outside still traps.
#include <algorithm>
#include <array>
#include <cstring>
#include <functional>

#include "gtest/gtest.h"

#include "backends/shared/host_buffer.h"
#include "compiler/ir/text/text.h"
#include "tests/gpu/device_run.h"

namespace hpvm::gpu_test {
namespace {

// out[i] = x[index[i]]
std::string Gather(const std::string& index_access) {
  return R"(module "gather"
param buffer )" +
         index_access + R"( "index"
param buffer in "x"
param buffer inout "out"
entry f0
func f0 "gather" (%i: i32, %x: i32, %o: i32) -> () {
  %c0: i32 = const.i32 0
  %c2: i32 = const.i32 2
  %id: i32 = instance_id.i32 %c0
  %at: i32 = shl.i32 %id, %c2
  %k: i32 = load.i32 param(0) %at
  %from: i32 = shl.i32 %k, %c2
  %v: i32 = load.i32 param(1) %from
  store.i32 param(2) %at, %v
  return ()
}
)";
}

// index[0] = 4096
constexpr char kSpoil[] = R"(module "spoil"
param buffer inout "index"
entry f0
func f0 "spoil" (%i: i32) -> () {
  %c0: i32 = const.i32 0
  %far: i32 = const.i32 4096
  store.i32 param(0) %c0, %far
  return ()
}
)";

constexpr uint32_t kCount = 64;
constexpr uint64_t kBytes = 4 * kCount;

class WordsTest : public ::testing::TestWithParam<std::string> {
 protected:
  enum Slot : SlotIndex { kIndex, kX, kOut, kGood, kBad, kXHost, kOutHost, kSlots };

  WordsTest() : run_(GetParam()) {
    for (SlotIndex slot : {kIndex, kX, kOut}) {
      buffers_[slot] = *run_.device().Allocate({.bytes = 2 * kBytes});
    }
    for (SlotIndex slot : {kGood, kBad, kXHost, kOutHost}) {
      buffers_[slot] = *backends::AllocateHostBuffer({.bytes = 2 * kBytes}, ~uint64_t{0});
    }
    for (uint32_t i = 0; i < 2 * kCount; ++i) {
      Set(kGood, i, 5 * i % kCount);
      Set(kBad, i, i == kCount - 1 ? kCount + 1000 : i % kCount);
      Set(kXHost, i, 1000 + i);
    }
    gather_ = Load(Gather("in"));
    Add(CopyCommand{kXHost, kX, 0, 0, kBytes});
    EXPECT_EQ(Submit(), ir::TrapCode::kNone);
  }

  void Set(SlotIndex slot, uint32_t at, uint32_t word) { std::memcpy(buffers_[slot]->host() + 4 * at, &word, 4); }
  uint32_t Get(SlotIndex slot, uint32_t at) {
    uint32_t word = 0;
    std::memcpy(&word, buffers_[slot]->host() + 4 * at, 4);
    return word;
  }

  std::unique_ptr<Executable> Load(const std::string& text) {
    StatusOr<ir::Module> module = ir::ParseModule(text);
    EXPECT_TRUE(module.ok()) << module.status();
    StatusOr<Artifact> artifact = run_.Compile(*std::move(module));
    EXPECT_TRUE(artifact.ok()) << artifact.status();
    return *run_.Load(*std::move(artifact));
  }

  void Add(Command command) { list_.commands.push_back(std::move(command)); }
  void AddUpload(SlotIndex from, bool has_indices = true, uint64_t at = 0, uint64_t bytes = kBytes) {
    Add(CopyCommand{from, kIndex, at, at, bytes, has_indices});
  }
  void AddDispatch(Executable& executable, std::vector<SlotIndex> slots, uint64_t x_bytes = kBytes) {
    DispatchCommand dispatch;
    dispatch.executable = &executable;
    dispatch.extent = {kCount, 1, 1};
    dispatch.first_argument = static_cast<uint32_t>(list_.arguments.size());
    dispatch.argument_count = static_cast<uint32_t>(slots.size());
    for (SlotIndex slot : slots) {
      list_.arguments.push_back({.slot = slot, .is_buffer = true, .bytes = slot == kX ? x_bytes : kBytes});
    }
    Add(dispatch);
  }
  void AddGather(uint64_t x_bytes = kBytes) { AddDispatch(*gather_, {kIndex, kX, kOut}, x_bytes); }

  // Runs the added commands; the variant of the last dispatch is in variant_.
  ir::TrapCode Submit() {
    std::vector<Buffer*> slots;
    for (const std::unique_ptr<Buffer>& buffer : buffers_) {
      slots.push_back(buffer.get());
    }
    const std::unique_ptr<Timeline> timeline = run_.device().CreateTimeline();
    const TimelinePoint done{timeline.get(), 1};
    Failure failure;
    std::vector<NodeTiming> timings(1);
    Submission submission;
    submission.commands = &list_;
    submission.buffers = slots;
    submission.signals = {&done, 1};
    submission.timings = timings;
    submission.failure = &failure;
    EXPECT_TRUE(run_.device().Submit(submission).ok());
    const Status status = timeline->Wait(1, RealClock().Now() + std::chrono::seconds(60));
    EXPECT_EQ(status.ok(), failure.trap.code == ir::TrapCode::kNone) << status;
    variant_ = timings[0].variant;
    list_ = {};
    return failure.trap.code;
  }
  bool RanByWords() const { return gather_->artifact().gpu.variants[variant_].needs_words; }

  void ExpectTrap(const std::function<void()>& spoil) {
    AddUpload(kGood);
    AddGather();
    ASSERT_EQ(Submit(), ir::TrapCode::kNone);
    ASSERT_TRUE(RanByWords());
    spoil();
    AddGather();
    EXPECT_EQ(Submit(), ir::TrapCode::kOutOfBounds);
    EXPECT_FALSE(RanByWords());
  }

  DeviceRun run_;
  std::array<std::unique_ptr<Buffer>, kSlots> buffers_;
  std::unique_ptr<Executable> gather_;
  CommandList list_;
  uint8_t variant_ = kVariantUnknown;
};

TEST_P(WordsTest, KnownIndicesNeedNoCheck) {
  AddUpload(kGood);
  AddGather();
  Add(CopyCommand{kOut, kOutHost, 0, 0, kBytes});
  ASSERT_EQ(Submit(), ir::TrapCode::kNone);
  EXPECT_TRUE(RanByWords());
  for (uint32_t i = 0; i < kCount; ++i) {
    EXPECT_EQ(Get(kOutHost, i), 1000 + 5 * i % kCount);
  }
  // The words stay known, and their range is queried again where the other buffer is smaller.
  AddGather();
  EXPECT_EQ(Submit(), ir::TrapCode::kNone);
  EXPECT_TRUE(RanByWords());
  AddGather(kBytes / 2);
  EXPECT_EQ(Submit(), ir::TrapCode::kOutOfBounds);
  EXPECT_FALSE(RanByWords());
}

TEST_P(WordsTest, BadIndicesTrap) {
  AddUpload(kBad);
  AddGather();
  EXPECT_EQ(Submit(), ir::TrapCode::kOutOfBounds);
  EXPECT_FALSE(RanByWords());
}

TEST_P(WordsTest, WhatAKernelWritesIsLookedAt) {
  const std::unique_ptr<Executable> spoil = Load(kSpoil);
  ExpectTrap([&] { AddDispatch(*spoil, {kIndex}); });
}

TEST_P(WordsTest, WhatIsCopiedIsLookedAt) {
  ExpectTrap([&] { AddUpload(kBad, /*has_indices=*/true); });
  ExpectTrap([&] { AddUpload(kBad, /*has_indices=*/false); });
  ExpectTrap([&] { AddUpload(kBad, true, kBytes - 4, 4); });
  ExpectTrap([&] { AddUpload(kBad, false, kBytes - 3, 1); });
  Add(CopyCommand{kBad, kOut, 0, 0, kBytes});
  ASSERT_EQ(Submit(), ir::TrapCode::kNone);
  ExpectTrap([&] {
    Add(CopyCommand{kBad, kOut, 0, 0, kBytes});
    Add(CopyCommand{kOut, kIndex, kBytes - 8, kBytes - 8, 8});
  });
}

TEST_P(WordsTest, WhatIsFilledIsLookedAt) {
  ExpectTrap([&] { Add(FillCommand{kIndex, 8, 4, 0x7f}); });
  ExpectTrap([&] { Add(FillCommand{kIndex, 9, 2, 0x70}); });
}

// Copied in pieces, of which only some are bad.
TEST_P(WordsTest, PiecesCountTogether) {
  AddUpload(kGood, true, 0, kBytes / 2);
  AddUpload(kGood, true, kBytes / 2, kBytes / 2);
  AddGather();
  EXPECT_EQ(Submit(), ir::TrapCode::kNone);
  EXPECT_TRUE(RanByWords());
  AddUpload(kBad, true, kBytes / 2, kBytes / 2);
  AddGather();
  EXPECT_EQ(Submit(), ir::TrapCode::kOutOfBounds);
  // Bytes after the view are not indices.
  AddUpload(kGood, true, 0, kBytes);
  AddUpload(kBad, true, kBytes, kBytes);
  AddGather();
  EXPECT_EQ(Submit(), ir::TrapCode::kNone);
  EXPECT_TRUE(RanByWords());
}

// The launch itself may write the indices: by the same parameter, or by another one in the same memory.
TEST_P(WordsTest, IndicesThatTheLaunchMayWriteAreNotTrusted) {
  const std::unique_ptr<Executable> inout = Load(Gather("inout"));
  for (const GpuVariant& variant : inout->artifact().gpu.variants) {
    EXPECT_FALSE(variant.needs_words);
  }
  AddUpload(kGood);
  AddDispatch(*gather_, {kIndex, kX, kIndex});
  EXPECT_EQ(Submit(), ir::TrapCode::kNone);
  EXPECT_FALSE(RanByWords());
}

INSTANTIATE_TEST_SUITE_P(Devices, WordsTest, ::testing::ValuesIn(Devices()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), ':', '_');
  return name;
});

}  // namespace
}  // namespace hpvm::gpu_test
