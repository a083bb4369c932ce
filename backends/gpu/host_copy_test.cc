// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/host_copy.h"

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

// Every byte arrives and none beside them, for sizes around a slice and with any number of helpers.
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

// Two threads copy at once, again and again; each finds its own bytes.
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

}  // namespace
}  // namespace hpvm::gpu
