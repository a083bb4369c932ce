// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/staging_ring.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <list>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "backends/gpu/arrivals.h"

namespace hpvm::gpu {
namespace {

using limits::kMiB;

constexpr uint64_t kSlot = kMiB;

// A device with one queue, whose transfers move their bytes only when they run. The test chooses when they run.
class FakeDevice final : public SlotDriver {
 public:
  enum class Pace : uint8_t {
    kLast,   // When a caller waits for them, with all before them.
    kAsked,  // One whenever a caller asks whether a slot is over.
    kAtOnce,
    kThread,  // On a thread of the device.
  };
  explicit FakeDevice(Pace pace) : pace_(pace) {
    if (pace == Pace::kThread) {
      thread_ = std::thread([this] { Serve(); });
    }
  }
  ~FakeDevice() override {
    {
      std::lock_guard lock(mutex_);
      is_closing_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) {
      thread_.join();
    }
  }

  Status Submit(const StagingSlot& slot, std::function<void()> move) {
    {
      std::lock_guard lock(mutex_);
      if (submitted_++ == submit_fails_at) {
        return Internal("The driver takes no more.");
      }
      queue_.push_back({slot.index, std::move(move)});
    }
    if (pace_ == Pace::kAtOnce) {
      std::lock_guard lock(mutex_);
      RunFirst();
    }
    changed_.notify_all();
    return absl::OkStatus();
  }

  StatusOr<uint8_t*> Grow(size_t index, uint64_t bytes) override {
    std::lock_guard lock(mutex_);
    EXPECT_EQ(index, memories_.size());
    if (index >= grows_max) {
      return ResourceExhausted("No more memory can be pinned.");
    }
    memories_.push_back(std::vector<uint8_t>(bytes, 0xee));
    return memories_.back().data();
  }
  bool IsOver(const StagingSlot& slot) override {
    std::lock_guard lock(mutex_);
    if (pace_ == Pace::kAsked && !is_lost_ && !queue_.empty()) {
      RunFirst();
    }
    return !IsPending(slot.index);
  }
  Status Await(const StagingSlot& slot) override {
    std::unique_lock lock(mutex_);
    while (IsPending(slot.index)) {
      if (is_lost_) {
        return Unavailable("The device is lost.");
      }
      if (pace_ == Pace::kThread) {
        changed_.wait(lock);
      } else {
        RunFirst();
      }
    }
    if (transfer_fails_of == slot.index) {
      transfer_fails_of = SIZE_MAX;
      return Internal("A transfer has failed.");
    }
    return absl::OkStatus();
  }

  void Lose() {
    {
      std::lock_guard lock(mutex_);
      is_lost_ = true;
    }
    changed_.notify_all();
  }
  size_t grown() const { return memories_.size(); }
  size_t pending() const { return queue_.size(); }

  size_t submit_fails_at = SIZE_MAX, grows_max = SIZE_MAX;
  size_t transfer_fails_of = SIZE_MAX;  // The slot whose next Await reports a failure.

 private:
  struct Transfer {
    size_t slot = 0;
    std::function<void()> move;
  };
  bool IsPending(size_t slot) const {
    return std::ranges::any_of(queue_, [&](const Transfer& transfer) { return transfer.slot == slot; });
  }
  void RunFirst() {
    queue_.front().move();
    queue_.pop_front();
  }
  void Serve() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return is_closing_ || (!is_lost_ && !queue_.empty()); });
      if (is_closing_) {
        return;
      }
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      lock.lock();
      if (!is_lost_) {
        RunFirst();
        changed_.notify_all();
      }
    }
  }

  const Pace pace_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Transfer> queue_;
  std::list<std::vector<uint8_t>> memories_;
  size_t submitted_ = 0;
  bool is_lost_ = false, is_closing_ = false;
  std::thread thread_;
};

std::vector<uint8_t> Noise(uint64_t bytes, uint32_t seed) {
  std::vector<uint8_t> data(bytes);
  for (uint8_t& byte : data) {
    seed = seed * 1664525 + 1013904223;
    byte = static_cast<uint8_t>(seed >> 24);
  }
  return data;
}

// A ring on a fake device, which has its own memory.
struct Rig {
  explicit Rig(FakeDevice::Pace pace, size_t slots = 3, uint32_t helpers = 2)
      : device(pace), copier(helpers, meter), ring(device, copier, {kSlot, slots, helpers}) {}

  StagingRing::TakeSlot Taker() {
    return [this] { return ring.Take(); };
  }
  Status Upload(const std::vector<uint8_t>& source, std::vector<uint8_t>& memory, WordScan* words = nullptr) {
    memory.assign(source.size(), 0);
    return ring.Upload(
        {source.data(), source.size(), words}, Taker(), [&](const StagingSlot& slot, uint64_t at, uint64_t bytes) {
          return device.Submit(slot,
                               [to = memory.data() + at, from = slot.data, bytes] { std::memcpy(to, from, bytes); });
        });
  }
  Status Download(Arrivals& arrivals, const std::vector<uint8_t>& memory, uint8_t* target) {
    return arrivals.Download(
        target, memory.size(), [&] { return arrivals.Take(); },
        [&](const StagingSlot& slot, uint64_t at, uint64_t bytes) {
          return device.Submit(slot,
                               [to = slot.data, from = memory.data() + at, bytes] { std::memcpy(to, from, bytes); });
        });
  }
  // Completes everything in transit.
  void Settle() {
    std::vector<StagingSlot*> slots;
    for (size_t i = 0; i < device.grown(); ++i) {
      StatusOr<StagingSlot*> slot = ring.Take();
      ASSERT_TRUE(slot.ok()) << slot.status();
      slots.push_back(*slot);
    }
    for (StagingSlot* slot : slots) {
      ring.Release(*slot);
    }
  }

  CopyMeter meter;
  FakeDevice device;
  HostCopier copier;
  StagingRing ring;
};

Status Allow() { return absl::OkStatus(); }

constexpr FakeDevice::Pace kPaces[] = {FakeDevice::Pace::kLast, FakeDevice::Pace::kAsked, FakeDevice::Pace::kAtOnce,
                                       FakeDevice::Pace::kThread};
constexpr uint64_t kSizes[] = {1, kSlot - 1, kSlot, kSlot + 1, 3 * kSlot, 11 * kSlot + 4321};

// No slot is refilled before the device has read it, however many copies follow each other.
TEST(StagingRingTest, UploadsEveryByte) {
  for (const FakeDevice::Pace pace : kPaces) {
    for (const uint32_t helpers : {0u, 3u}) {
      Rig rig(pace, /*slots=*/3, helpers);
      std::vector<std::vector<uint8_t>> sources, memories(std::size(kSizes));
      for (size_t i = 0; i < std::size(kSizes); ++i) {
        sources.push_back(Noise(kSizes[i], static_cast<uint32_t>(i)));
        const Status status = rig.Upload(sources[i], memories[i]);
        ASSERT_TRUE(status.ok()) << status;
      }
      rig.Settle();
      EXPECT_TRUE(sources == memories) << static_cast<int>(pace) << ", " << helpers;
    }
  }
}

// No slot is read before the device has written it, nor written before it was read. Several copies follow each other
// before the first one has arrived.
TEST(StagingRingTest, DownloadsEveryByte) {
  for (const FakeDevice::Pace pace : kPaces) {
    for (const uint32_t helpers : {0u, 3u}) {
      Rig rig(pace, /*slots=*/3, helpers);
      std::vector<std::vector<uint8_t>> memories, targets;
      for (size_t i = 0; i < std::size(kSizes); ++i) {
        memories.push_back(Noise(kSizes[i], static_cast<uint32_t>(i)));
        targets.emplace_back(kSizes[i], 0x5a);
      }
      Arrivals arrivals(rig.ring, Allow);
      for (size_t i = 0; i < std::size(kSizes); ++i) {
        const Status status = rig.Download(arrivals, memories[i], targets[i].data());
        ASSERT_TRUE(status.ok()) << status;
      }
      EXPECT_TRUE(arrivals.Touches(targets.back().data() + targets.back().size() - 1, 1));
      ASSERT_TRUE(arrivals.Finish().ok());
      EXPECT_FALSE(arrivals.Touches(targets.back().data(), targets.back().size()));
      EXPECT_TRUE(memories == targets) << static_cast<int>(pace) << ", " << helpers;
    }
  }
}

// Copies are measured: downloads after their first piece, uploads after the ring's capacity.
TEST(StagingRingTest, MeasuresLargeCopies) {
  Rig rig(FakeDevice::Pace::kAtOnce, /*slots=*/3, /*helpers=*/0);
  const std::vector<uint8_t> data = Noise(24 * kMiB, 1);
  std::vector<uint8_t> memory, back(data.size());
  ASSERT_TRUE(rig.Upload(data, memory).ok());
  EXPECT_EQ(rig.meter.sums().up.bytes, data.size() - 3 * kSlot);
  Arrivals arrivals(rig.ring, Allow);
  ASSERT_TRUE(rig.Download(arrivals, memory, back.data()).ok());
  ASSERT_TRUE(rig.Download(arrivals, memory, back.data()).ok());
  ASSERT_TRUE(arrivals.Finish().ok());
  EXPECT_EQ(rig.meter.sums().down.bytes, 2 * (data.size() - kSlot));
  EXPECT_EQ(CopyFlow::BusyThreads(), 0u);
}

// A device that copies little pins little; free slots are used before the ring grows.
TEST(StagingRingTest, GrowsSlotBySlot) {
  Rig rig(FakeDevice::Pace::kAtOnce, /*slots=*/4);
  std::vector<uint8_t> memory;
  EXPECT_EQ(rig.device.grown(), 0u);
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(rig.Upload(Noise(100, 1), memory).ok());
    EXPECT_EQ(rig.device.grown(), 1u);
  }
  std::vector<StagingSlot*> slots;
  for (size_t i = 0; i < 4; ++i) {
    slots.push_back(*rig.ring.TryTake());
    EXPECT_EQ(rig.device.grown(), i + 1);
  }
  EXPECT_EQ(*rig.ring.TryTake(), nullptr);
  for (StagingSlot* slot : slots) {
    rig.ring.Release(*slot);
  }
  const std::vector<uint8_t> data = Noise(20 * kSlot, 2);
  ASSERT_TRUE(rig.Upload(data, memory).ok());
  EXPECT_EQ(rig.device.grown(), 4u);
  EXPECT_TRUE(data == memory);
}

// A slow device makes the ring grow to its limit and no further.
TEST(StagingRingTest, EndsAtItsLimit) {
  Rig rig(FakeDevice::Pace::kLast, /*slots=*/5);
  std::vector<uint8_t> memory;
  const std::vector<uint8_t> data = Noise(20 * kSlot, 2);
  ASSERT_TRUE(rig.Upload(data, memory).ok());
  EXPECT_EQ(rig.device.grown(), 5u);
  EXPECT_EQ(rig.device.pending(), 5u);
  rig.Settle();
}

// When no more memory can be pinned the ring stays as it is; with fewer than two slots nothing can be staged.
TEST(StagingRingTest, MakesDoWithLess) {
  for (const size_t grows_max : {0u, 1u, 2u, 3u}) {
    Rig rig(FakeDevice::Pace::kLast, /*slots=*/6);
    rig.device.grows_max = grows_max;
    std::vector<uint8_t> memory;
    const std::vector<uint8_t> data = Noise(9 * kSlot, 3);
    const Status status = rig.Upload(data, memory);
    if (grows_max < 2) {
      EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
      continue;
    }
    ASSERT_TRUE(status.ok()) << status;
    rig.Settle();
    EXPECT_TRUE(data == memory);
  }
}

// A driver that refuses a transfer ends the copy; its slots are available for the next one.
TEST(StagingRingTest, FailsInTheMiddle) {
  for (size_t at = 0; at < 9; ++at) {
    Rig rig(FakeDevice::Pace::kLast);
    rig.device.submit_fails_at = at;
    std::vector<uint8_t> memory, target(9 * kSlot), other;
    const std::vector<uint8_t> data = Noise(9 * kSlot, 4);
    EXPECT_EQ(rig.Upload(data, memory).code(), absl::StatusCode::kInternal);
    ASSERT_TRUE(rig.Upload(data, other).ok());
    rig.Settle();
    EXPECT_TRUE(data == other);
    rig.device.submit_fails_at = at + 9 + at + 1;
    {
      Arrivals arrivals(rig.ring, Allow);
      EXPECT_EQ(rig.Download(arrivals, data, target.data()).code(), absl::StatusCode::kInternal);
    }
    Arrivals arrivals(rig.ring, Allow);
    ASSERT_TRUE(rig.Download(arrivals, data, target.data()).ok());
    ASSERT_TRUE(arrivals.Finish().ok());
    EXPECT_TRUE(data == target);
  }
}

// A transfer's failure is reported to its own copy and to no other.
TEST(StagingRingTest, TransfersFailForTheirOwnCopy) {
  Rig rig(FakeDevice::Pace::kLast);
  const std::vector<uint8_t> data = Noise(3 * kSlot, 5);
  std::vector<uint8_t> memory, other, target(data.size());
  ASSERT_TRUE(rig.Upload(data, memory).ok());
  rig.device.transfer_fails_of = 1;
  ASSERT_TRUE(rig.Upload(data, other).ok());
  rig.Settle();
  EXPECT_TRUE(data == other);
  rig.device.transfer_fails_of = 1;
  {
    Arrivals arrivals(rig.ring, Allow);
    ASSERT_TRUE(rig.Download(arrivals, data, target.data()).ok());
    EXPECT_EQ(arrivals.Finish().code(), absl::StatusCode::kInternal);
  }
  rig.Settle();
}

// Every wait ends on a lost device, and slots that it may still write are not reused.
TEST(StagingRingTest, ALostDeviceEndsEveryWait) {
  for (const FakeDevice::Pace pace : {FakeDevice::Pace::kLast, FakeDevice::Pace::kThread}) {
    Rig rig(pace);
    const std::vector<uint8_t> data = Noise(40 * kSlot, 6);
    std::vector<uint8_t> memory, target(data.size());
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      rig.device.Lose();
    });
    if (pace == FakeDevice::Pace::kLast) {
      other.join();
    }
    EXPECT_EQ(rig.Upload(data, memory).code(), absl::StatusCode::kUnavailable);
    {
      Arrivals arrivals(rig.ring, Allow);
      EXPECT_EQ(rig.Download(arrivals, data, target.data()).code(), absl::StatusCode::kUnavailable);
    }
    EXPECT_EQ(rig.ring.Take().status().code(), absl::StatusCode::kUnavailable);
    if (other.joinable()) {
      other.join();
    }
  }
}

// A transfer that never ends delays no copy that does not need its slot.
TEST(StagingRingTest, GoesOnBesideATransferThatNeverEnds) {
  Rig rig(FakeDevice::Pace::kLast, /*slots=*/2);
  StagingSlot* const stuck = *rig.ring.Take();
  std::vector<uint8_t> memory;
  const std::vector<uint8_t> data = Noise(7 * kSlot, 7);
  ASSERT_TRUE(rig.Upload(data, memory).ok());
  rig.ring.Release(*stuck);
  rig.Settle();
  EXPECT_TRUE(data == memory);
}

// Nothing reaches the host's memory when writing is forbidden.
TEST(StagingRingTest, WritesNothingThatItMayNot) {
  Rig rig(FakeDevice::Pace::kLast);
  const std::vector<uint8_t> data = Noise(9 * kSlot, 8), little(kSlot, 1);
  std::vector<uint8_t> target(data.size(), 0x5a);
  {
    Arrivals arrivals(rig.ring, [] { return Aborted("A kernel in front of it has trapped."); });
    EXPECT_EQ(rig.Download(arrivals, data, target.data()).code(), absl::StatusCode::kAborted);
    EXPECT_EQ(arrivals.Finish().code(), absl::StatusCode::kAborted);
  }
  {
    Arrivals dropped(rig.ring, Allow);
    ASSERT_TRUE(rig.Download(dropped, little, target.data()).ok());
  }
  rig.Settle();
  EXPECT_EQ(std::ranges::count(target, 0x5a), static_cast<ptrdiff_t>(target.size()));
}

// The destructor waits for the device before its memory is freed.
TEST(StagingRingTest, WaitsForTheDeviceAtItsEnd) {
  FakeDevice device(FakeDevice::Pace::kLast);
  CopyMeter meter;
  HostCopier copier(1, meter);
  const std::vector<uint8_t> data = Noise(4 * kSlot, 9);
  std::vector<uint8_t> memory(data.size());
  {
    StagingRing ring(device, copier, {kSlot, 4, 1});
    ASSERT_TRUE(ring.Upload(
                        {data.data(), data.size()}, [&] { return ring.Take(); },
                        [&](const StagingSlot& slot, uint64_t at, uint64_t bytes) {
                          return device.Submit(slot, [to = memory.data() + at, from = slot.data, bytes] {
                            std::memcpy(to, from, bytes);
                          });
                        })
                    .ok());
    EXPECT_EQ(device.pending(), 4u);
  }
  EXPECT_EQ(device.pending(), 0u);
  EXPECT_TRUE(data == memory);
}

// Two threads upload and one downloads, all through one ring.
TEST(StagingRingTest, SeveralCopiesAtOnce) {
  Rig rig(FakeDevice::Pace::kThread, /*slots=*/4, /*helpers=*/2);
  const auto up = [&](uint32_t seed) {
    for (uint32_t round = 0; round < 6; ++round) {
      const std::vector<uint8_t> data = Noise(5 * kSlot + 77, seed + round);
      std::vector<uint8_t> memory(data.size());
      std::atomic<uint64_t> moved{0};
      const auto submit = [&](const StagingSlot& slot, uint64_t at, uint64_t bytes) {
        return rig.device.Submit(slot, [&, to = memory.data() + at, from = slot.data, bytes] {
          std::memcpy(to, from, bytes);
          moved += bytes;
        });
      };
      ASSERT_TRUE(rig.ring.Upload({data.data(), data.size()}, rig.Taker(), submit).ok());
      while (moved != data.size()) {
        std::this_thread::yield();
      }
      EXPECT_TRUE(memory == data);
    }
  };
  const auto down = [&] {
    for (uint32_t round = 0; round < 6; ++round) {
      const std::vector<uint8_t> memory = Noise(6 * kSlot + 5, 100 + round);
      std::vector<uint8_t> target(memory.size());
      Arrivals arrivals(rig.ring, Allow);
      ASSERT_TRUE(rig.Download(arrivals, memory, target.data()).ok());
      ASSERT_TRUE(arrivals.Finish().ok());
      EXPECT_TRUE(memory == target);
    }
  };
  std::thread first([&] { up(1); }), second([&] { up(50); });
  down();
  first.join();
  second.join();
}

// Small parts share a slot, which is reused when the last of them is over.
TEST(SharedSlotTest, SharesASlot) {
  Rig rig(FakeDevice::Pace::kLast, /*slots=*/2);
  std::vector<uint8_t> expected, memory(40 * 100'000);
  {
    SharedSlot shared(rig.ring);
    for (size_t i = 0; i < 40; ++i) {
      const std::vector<uint8_t> data = Noise(100'000, static_cast<uint32_t>(i));
      WordScan words;
      const StatusOr<SharedSlot::Part> part = shared.Fill({data.data(), data.size(), &words}, rig.Taker());
      ASSERT_TRUE(part.ok()) << part.status();
      EXPECT_EQ(rig.device.grown(), i < 10 ? 1u : 2u);
      EXPECT_TRUE(words.range().is_known());
      ASSERT_TRUE(rig.device
                      .Submit(*part->slot, [to = memory.data() + expected.size(),
                                            from = part->data] { std::memcpy(to, from, 100'000); })
                      .ok());
      expected.insert(expected.end(), data.begin(), data.end());
    }
  }
  rig.Settle();
  EXPECT_TRUE(expected == memory);
}

// Slots that alias the source, shifted by a page: copying changes the source.
class AliasedSlots final : public SlotDriver {
 public:
  static constexpr uint64_t kPage = 4096;
  AliasedSlots() {
    const int file = memfd_create("aliased", 0);
    HPVMD_CHECK(file >= 0 && ftruncate(file, kSlot + kPage) == 0);
    slot_ = mmap(nullptr, kSlot, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    source_ = mmap(nullptr, kSlot, PROT_READ | PROT_WRITE, MAP_SHARED, file, kPage);
    close(file);
    HPVMD_CHECK(slot_ != MAP_FAILED && source_ != MAP_FAILED);
  }
  ~AliasedSlots() override {
    munmap(slot_, kSlot);
    munmap(source_, kSlot);
  }
  uint8_t* source() { return static_cast<uint8_t*>(source_); }

  StatusOr<uint8_t*> Grow(size_t, uint64_t) override { return static_cast<uint8_t*>(slot_); }
  bool IsOver(const StagingSlot&) override { return true; }
  Status Await(const StagingSlot&) override { return absl::OkStatus(); }

 private:
  void *slot_ = nullptr, *source_ = nullptr;
};

// The range of indices is that of the bytes sent to the device, even if others write the source meanwhile.
TEST(StagingRingTest, LooksAtWhatIsStaged) {
  AliasedSlots slots;
  CopyMeter meter;
  HostCopier copier(/*helpers=*/0, meter);
  StagingRing ring(slots, copier, {kSlot, 2, 0});
  const int32_t largest = 123456789;
  std::memcpy(slots.source(), &largest, sizeof(largest));
  WordScan words;
  int32_t sent = 0;
  const auto submit = [&](const StagingSlot& slot, uint64_t, uint64_t) {
    std::memcpy(&sent, slot.data, sizeof(sent));
    return absl::OkStatus();
  };
  ASSERT_TRUE(ring.Upload(
                      {slots.source(), kSlot, &words}, [&] { return ring.Take(); }, submit)
                  .ok());
  EXPECT_EQ(sent, largest);
  EXPECT_NE(std::memcmp(slots.source(), &largest, sizeof(largest)), 0);  // A scan there now finds less.
  EXPECT_EQ(words.range(), (ir::WordRange{0, largest}));
}

// The ranges of slices scanned by several threads are combined; half a word at the end makes the range unknown.
TEST(StagingRingTest, JoinsTheRangesOfSlices) {
  Rig rig(FakeDevice::Pace::kAtOnce);
  std::vector<uint8_t> source((5 * kSlot) + 3, 0), memory;
  const auto set = [&](uint64_t at, int32_t word) { std::memcpy(source.data() + at, &word, 4); };
  set(3 * kSlot + 4096, -70000);
  set(5 * kSlot - 4, 123456789);
  WordScan words;
  ASSERT_TRUE(rig.Upload(source, memory, &words).ok());
  EXPECT_EQ(words.range(), (ir::WordRange{-70000, 123456789}));
}

}  // namespace
}  // namespace hpvm::gpu
