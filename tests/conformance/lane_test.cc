// SPDX-License-Identifier: Apache-2.0
// Lanes of a device, and storages in large buffers: concurrent transfers and launches do not change results.
#include <algorithm>
#include <numeric>

#include "backends/shared/host_buffer.h"
#include "tests/conformance/conformance.h"

namespace hpvm::conformance {
namespace {

constexpr std::array<uint64_t, 3> kOne = {1, 1, 1};

// Host memory, as a device's copies use it.
template <typename T>
class HostArray {
 public:
  explicit HostArray(std::vector<T> initial) : data(std::move(initial)) {
    const uint64_t bytes = data.size() * sizeof(T);
    buffer_ = *backends::AllocateHostBuffer({bytes, reinterpret_cast<uint8_t*>(data.data())}, bytes);
  }
  Buffer& buffer() { return *buffer_; }
  std::vector<T> data;

 private:
  std::unique_ptr<Buffer> buffer_;
};

// Submissions of one lane run in the order in which they were submitted, each sees the writes of those before it, and
// they settle in that order, without a wait point.
void Order(Bench& bench) {
  constexpr uint64_t kCount = 100, kBytes = 4096;
  for (const Lane lane : {Lane::kCompute, Lane::kUpload, Lane::kDownload}) {
    std::unique_ptr<Buffer> buffer = bench.Allocate(kBytes);
    std::unique_ptr<Timeline> timeline = bench.CreateTimeline();
    HostArray<uint8_t> from{std::vector<uint8_t>(kCount)}, to{std::vector<uint8_t>(kCount)};
    std::iota(from.data.begin(), from.data.end(), uint8_t{1});
    std::vector<Work> works(kCount);
    std::vector<TimelinePoint> points(kCount);
    for (uint64_t i = 0; i < kCount; ++i) {
      // A value moves through the device and back, always by the same byte.
      works[i].Copy(from.buffer(), i, *buffer, 7, 1);
      works[i].Copy(*buffer, 7, to.buffer(), i, 1);
      points[i] = {timeline.get(), i + 1};
      ASSERT_TRUE(bench.Submit(works[i], {}, {&points[i], 1}, lane).ok());
    }
    ASSERT_TRUE(Await(*timeline, kCount).ok());
    EXPECT_EQ(to.data, from.data) << static_cast<int>(lane);
  }
}

// The next submission of a lane may read in host memory what the previous one copied there.
void ThroughTheHost(Bench& bench) {
  constexpr uint64_t kBytes = 9 << 20;
  std::vector<uint8_t> data(kBytes);
  std::iota(data.begin(), data.end(), uint8_t{3});
  std::unique_ptr<Buffer> a = bench.Upload(data), b = bench.Allocate(kBytes);
  HostArray<uint8_t> between(std::vector<uint8_t>(kBytes, 0));
  std::unique_ptr<Timeline> down = bench.CreateTimeline(), up = bench.CreateTimeline();
  Work first, second, third;
  first.Copy(*a, 0, between.buffer(), 0, kBytes);
  second.Copy(between.buffer(), 0, *b, 0, kBytes);
  third.Fill(*a, 0, kBytes, 9);
  const TimelinePoint went_down{down.get(), 1}, cleared{down.get(), 2}, went_up{up.get(), 1};
  ASSERT_TRUE(bench.Submit(second, {&went_down, 1}, {&went_up, 1}, Lane::kUpload).ok());
  ASSERT_TRUE(bench.Submit(first, {}, {&went_down, 1}, Lane::kDownload).ok());
  ASSERT_TRUE(bench.Submit(third, {}, {&cleared, 1}, Lane::kDownload).ok());
  ASSERT_TRUE(Await(*up, 1).ok());
  ASSERT_TRUE(Await(*down, 2).ok());
  EXPECT_TRUE(bench.Download<uint8_t>(*b) == data);
  EXPECT_TRUE(bench.Download<uint8_t>(*a) == std::vector<uint8_t>(kBytes, 9));
}

// Pieces are uploaded, processed and downloaded, two at a time on the device: everything is submitted ahead, and
// lanes wait for each other only by points.
void Pipeline(Bench& bench) {
  std::unique_ptr<Executable> saxpy = bench.Load("saxpy");
  ASSERT_NE(saxpy, nullptr);
  constexpr uint64_t kPieces = 12, kFloats = 300'000, kRoom = 2;
  std::vector<float> initial(kPieces * kFloats);
  std::iota(initial.begin(), initial.end(), 0.0f);
  HostArray<float> from(initial), to(std::vector<float>(initial.size(), -1.0f));
  constexpr uint64_t kBytes = kFloats * 4;
  constexpr uint64_t kStride = (kBytes + 255) / 256 * 256;
  std::unique_ptr<Buffer> arena = bench.Allocate(kRoom * kStride);
  std::unique_ptr<Timeline> up = bench.CreateTimeline(), run = bench.CreateTimeline(), down = bench.CreateTimeline();
  std::vector<Work> works(3 * kPieces);
  std::vector<std::vector<TimelinePoint>> waits(3 * kPieces);
  std::vector<TimelinePoint> signals(3 * kPieces);
  for (uint64_t i = 0; i < kPieces; ++i) {
    const uint64_t at = i % kRoom * kStride;
    works[3 * i].Copy(from.buffer(), i * kBytes, *arena, at, kBytes);
    const Arg piece = Arg::View(*arena, at, kBytes);
    works[3 * i + 1].Dispatch(*saxpy, {kFloats, 1, 1}, kOne, {piece, piece, Arg::Scalar(1.0f)});
    works[3 * i + 2].Copy(*arena, at, to.buffer(), i * kBytes, kBytes);
    if (i >= kRoom) {
      waits[3 * i] = {{down.get(), i + 1 - kRoom}};
    }
    waits[3 * i + 1] = {{up.get(), i + 1}};
    waits[3 * i + 2] = {{run.get(), i + 1}};
    signals[3 * i] = {up.get(), i + 1};
    signals[3 * i + 1] = {run.get(), i + 1};
    signals[3 * i + 2] = {down.get(), i + 1};
    for (uint64_t k = 0; k < 3; ++k) {
      const Lane lane = k == 0 ? Lane::kUpload : k == 1 ? Lane::kCompute : Lane::kDownload;
      ASSERT_TRUE(bench.Submit(works[3 * i + k], waits[3 * i + k], {&signals[3 * i + k], 1}, lane).ok());
    }
  }
  const Status status = Await(*down, kPieces);
  ASSERT_TRUE(status.ok()) << status;
  for (size_t i = 0; i < initial.size(); ++i) {
    ASSERT_EQ(to.data[i], 2 * initial[i]) << i;
  }
}

// A submission that waits for the host delays no other lane.
void WaitingHoldsUpNoLane(Bench& bench) {
  std::unique_ptr<Buffer> buffer = bench.Allocate(64);
  std::unique_ptr<Timeline> gate = bench.CreateTimeline(), run = bench.CreateTimeline(), up = bench.CreateTimeline();
  const TimelinePoint opened{gate.get(), 1}, ran{run.get(), 1}, went_up{up.get(), 1};
  HostArray<uint8_t> from(std::vector<uint8_t>(64, 5));
  Work fill, copy;
  fill.Fill(*buffer, 0, 32, 7);
  copy.Copy(from.buffer(), 0, *buffer, 0, 64);
  ASSERT_TRUE(bench.Submit(fill, {&opened, 1}, {&ran, 1}, Lane::kCompute).ok());
  ASSERT_TRUE(bench.Submit(copy, {}, {&went_up, 1}, Lane::kUpload).ok());
  EXPECT_TRUE(Await(*up, 1).ok());
  gate->Signal(1);
  ASSERT_TRUE(Await(*run, 1).ok());
  std::vector<uint8_t> want(64, 5);
  std::fill_n(want.begin(), 32, uint8_t{7});
  EXPECT_EQ(bench.Download<uint8_t>(*buffer), want);
}

// A kernel that traps fails the submissions in other lanes that wait for it and leaves host memory unchanged; the
// others continue.
void Poison(Bench& bench) {
  std::unique_ptr<Executable> divide = bench.Load("divide");
  ASSERT_NE(divide, nullptr);
  constexpr uint64_t kCount = 50'000;
  std::unique_ptr<Buffer> x = bench.Upload(std::vector<int32_t>(kCount, 0)), y = bench.Allocate(kCount * 4);
  HostArray<int32_t> out(std::vector<int32_t>(kCount, -1)), from(std::vector<int32_t>(kCount, 5));
  std::unique_ptr<Timeline> run = bench.CreateTimeline(), down = bench.CreateTimeline(), up = bench.CreateTimeline();
  const TimelinePoint ran{run.get(), 1}, went_down{down.get(), 1}, went_up{up.get(), 1}, late{up.get(), 2};
  Work kernel, download, upload, never;
  kernel.Dispatch(*divide, {kCount, 1, 1}, kOne, {Arg::Of(*y), Arg::Of(*x)});
  download.Copy(*y, 0, out.buffer(), 0, kCount * 4);
  upload.Copy(from.buffer(), 0, *x, 0, kCount * 4);
  never.Fill(*x, 0, kCount * 4, 1);
  ASSERT_TRUE(bench.Submit(kernel, {}, {&ran, 1}, Lane::kCompute).ok());
  ASSERT_TRUE(bench.Submit(download, {&ran, 1}, {&went_down, 1}, Lane::kDownload).ok());
  EXPECT_EQ(Await(*down, 1).code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(out.data == std::vector<int32_t>(kCount, -1));
  ASSERT_TRUE(bench.Submit(upload, {}, {&went_up, 1}, Lane::kUpload).ok());
  ASSERT_TRUE(bench.Submit(never, {&ran, 1}, {&late, 1}, Lane::kUpload).ok());
  EXPECT_TRUE(Await(*up, 1).ok());
  EXPECT_EQ(Await(*up, 2).code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(bench.Download<int32_t>(*x) == from.data);
}

// Launches, copies and fills on storages at multiples of 256 bytes of one large buffer, `base` bytes from its
// beginning: each accesses only its own bytes.
void UseArena(Bench& bench, Buffer& arena, uint64_t base) {
  std::unique_ptr<Executable> saxpy = bench.Load("saxpy");
  ASSERT_NE(saxpy, nullptr);
  constexpr uint64_t kFloats = 1000, kBytes = kFloats * 4, kStride = 4096 + 256, kStorages = 40;
  std::vector<float> values(kFloats);
  std::iota(values.begin(), values.end(), 1.0f);
  Work work;
  HostArray<float> from(values);
  for (uint64_t i = 0; i < kStorages; ++i) {
    work.Fill(arena, base + i * kStride, kStride, static_cast<uint8_t>(i));
    work.Copy(from.buffer(), 0, arena, base + i * kStride, kBytes);
  }
  for (uint64_t i = 1; i < kStorages; i += 2) {
    work.Dispatch(*saxpy, {kFloats, 1, 1}, kOne,
                  {Arg::View(arena, base + i * kStride, kBytes), Arg::View(arena, base + (i - 1) * kStride, kBytes),
                   Arg::Scalar(static_cast<float>(i))});
  }
  work.Copy(arena, base + kStride, arena, base + 2 * kStride, kBytes);
  work.Fill(arena, base + 4 * kStride + 13, 1001, 0xab);
  const Status status = bench.Run(work);
  ASSERT_TRUE(status.ok()) << status;
  std::vector<uint8_t> got(kStorages * kStride);
  bench.ReadBytes(arena, base, got.data(), got.size());
  for (uint64_t i = 0; i < kStorages; ++i) {
    std::vector<float> want = values;
    for (float& value : want) {
      value *= i % 2 == 1 ? 1 + static_cast<float>(i) : i == 2 ? 2 : 1;
    }
    std::vector<uint8_t> bytes(kStride, static_cast<uint8_t>(i));
    std::memcpy(bytes.data(), want.data(), kBytes);
    if (i == 4) {
      std::fill_n(bytes.begin() + 13, 1001, uint8_t{0xab});
    }
    ASSERT_TRUE(std::equal(bytes.begin(), bytes.end(), got.begin() + static_cast<ptrdiff_t>(i * kStride))) << i;
  }
}

void Offsets(Bench& bench) {
  std::unique_ptr<Buffer> arena = bench.Allocate(8 << 20);
  for (const uint64_t base : {uint64_t{0}, uint64_t{256}, uint64_t{5} << 20}) {
    UseArena(bench, *arena, base);
  }
}

// The same at offsets beyond 32 bits. Skipped where the device's memory is the host's, as it would test nothing new.
void FarOffsets(Bench& bench) {
  constexpr uint64_t kGiB = uint64_t{1} << 30;
  const DeviceInfo& info = bench.device().info();
  if (info.host_visible || info.is_emulated || info.memory_bytes < 24 * kGiB) {
    return;
  }
  const uint64_t bytes = std::min(info.allocation_bytes_max, 9 * kGiB) / 256 * 256;
  std::unique_ptr<Buffer> arena = bench.Allocate(bytes);
  for (uint64_t base = 2 * kGiB - 4096; base + kGiB / 2 < bytes; base += 2 * kGiB) {
    UseArena(bench, *arena, base);
  }
  UseArena(bench, *arena, bytes - (1 << 20));
  // A fill whose size exceeds 32 bits.
  Work work;
  work.Fill(*arena, 256, bytes - 512, 0x5a);
  ASSERT_TRUE(bench.Run(work).ok());
  for (uint64_t at : {uint64_t{0}, bytes / 2, bytes - 512}) {
    std::vector<uint8_t> got(512), want(512, 0x5a);
    bench.ReadBytes(*arena, at, got.data(), got.size());
    if (at == 0) {
      std::fill_n(want.begin(), 256, uint8_t{0});
    } else if (at != bytes / 2) {
      std::copy_n(got.begin() + 256, 256, want.begin() + 256);
      EXPECT_NE(std::vector<uint8_t>(got.begin() + 256, got.end()), std::vector<uint8_t>(256, 0x5a));
    }
    EXPECT_EQ(got, want) << at;
  }
}

}  // namespace

std::vector<Case> LaneCases() {
  return {{"lane_order", Order},
          {"lane_through_the_host", ThroughTheHost},
          {"lane_pipeline", Pipeline, true},
          {"lane_waiting_holds_up_none", WaitingHoldsUpNoLane},
          {"lane_poison", Poison, true},
          {"lane_offsets", Offsets, true},
          {"lane_far_offsets", FarOffsets, true}};
}

}  // namespace hpvm::conformance
