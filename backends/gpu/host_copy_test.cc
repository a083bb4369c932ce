// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/host_copy.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace hpvm::gpu {
namespace {

std::vector<uint8_t> Noise(size_t bytes, uint32_t seed) {
  std::vector<uint8_t> data(bytes);
  for (uint8_t& byte : data) {
    seed = seed * 1664525 + 1013904223;
    byte = static_cast<uint8_t>(seed >> 24);
  }
  return data;
}

// Every byte is copied and no neighbouring byte, for sizes around a slice and any number of helpers.
TEST(HostCopierTest, CopiesEveryByte) {
  constexpr size_t kSlice = 256 * 1024, kMargin = 64;
  for (const uint32_t helpers : {0u, 1u, 3u}) {
    CopyMeter meter;
    HostCopier copier(helpers, meter);
    for (const size_t bytes : {size_t{0}, size_t{1}, 4 * kSlice - 1, 4 * kSlice, 4 * kSlice + 1, 9 * kSlice + 4097}) {
      const std::vector<uint8_t> source = Noise(bytes, static_cast<uint32_t>(bytes) + helpers);
      std::vector<uint8_t> target(bytes + 2 * kMargin, 0x5a);
      copier.Copy(target.data() + kMargin, source.data(), bytes);
      EXPECT_EQ(std::memcmp(target.data() + kMargin, source.data(), bytes), 0) << bytes << ", " << helpers;
      for (size_t i = 0; i < kMargin; ++i) {
        ASSERT_EQ(target[i], 0x5a);
        ASSERT_EQ(target[kMargin + bytes + i], 0x5a);
      }
    }
  }
}

// Two threads copy at once repeatedly; each finds its own bytes.
TEST(HostCopierTest, ServesTwoThreads) {
  CopyMeter meter;
  HostCopier copier(2, meter);
  const auto work = [&](uint32_t seed) {
    const std::vector<uint8_t> source = Noise(3'000'000, seed);
    for (int round = 0; round < 30; ++round) {
      std::vector<uint8_t> target(source.size());
      copier.Copy(target.data(), source.data(), source.size());
      ASSERT_EQ(target, source);
    }
  };
  std::thread other([&] { work(1); });
  work(2);
  other.join();
}

// Tasks of several owners are in progress at once; each ends when its own bytes are copied, and may be started again.
TEST(HostCopierTest, MakesSeveralTasksAtOnce) {
  for (const uint32_t helpers : {0u, 3u}) {
    CopyMeter meter;
    HostCopier copier(helpers, meter);
    const auto work = [&](uint32_t seed) {
      constexpr size_t kTasks = 4;
      std::vector<HostCopier::Task> tasks(kTasks);
      for (uint32_t round = 0; round < 10; ++round) {
        const std::vector<uint8_t> source = Noise(1'000'000 + round, seed + round);
        std::vector<std::vector<uint8_t>> targets(kTasks, std::vector<uint8_t>(source.size()));
        for (size_t i = 0; i < kTasks; ++i) {
          copier.Start(tasks[i], {targets[i].data(), source.data(), source.size()});
        }
        for (const size_t i : {2, 0, 3, 1}) {
          copier.Finish(tasks[i]);
          ASSERT_EQ(targets[i], source);
        }
      }
    };
    std::thread other([&] { work(1); });
    work(100);
    other.join();
  }
}

// Copies that bypass the caches also copy every byte, wherever they begin.
TEST(HostCopierTest, StreamsEveryByte) {
  CopyMeter meter;
  HostCopier copier(1, meter);
  const std::vector<uint8_t> source = Noise(600'000, 9);
  for (size_t from = 0; from < 70; from += 23) {
    for (size_t to = 0; to < 70; to += 3) {
      for (const size_t bytes : {size_t{1}, size_t{63}, size_t{64}, size_t{200}, size_t{599'900}}) {
        std::vector<uint8_t> target(600'200, 0x5a);
        HostCopier::Task task;
        copier.Start(
            task, {.target = target.data() + to, .source = source.data() + from, .bytes = bytes, .is_streamed = true});
        copier.Finish(task);
        EXPECT_EQ(std::memcmp(target.data() + to, source.data() + from, bytes), 0);
        EXPECT_TRUE(std::all_of(target.begin(), target.begin() + static_cast<ptrdiff_t>(to),
                                [](uint8_t b) { return b == 0x5a; }));
        EXPECT_EQ(target[to + bytes], 0x5a);
      }
    }
  }
}

}  // namespace
}  // namespace hpvm::gpu
