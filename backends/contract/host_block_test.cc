// SPDX-License-Identifier: Apache-2.0
// Tests when memory is pinned for a device, and for how long.
#include "backends/contract/host_block.h"

#include <gtest/gtest.h>

#include <vector>

namespace hpvm {
namespace {

constexpr uint64_t kBytes = 4 * limits::kMiB;

constexpr uint64_t kPaysAfter = 8;

class CountedPin final : public HostPin {
 public:
  explicit CountedPin(int& alive) : alive_(alive) { ++alive_; }
  ~CountedPin() override { --alive_; }

 private:
  int& alive_;
};

class HostBlockTest : public ::testing::Test {
 protected:
  bool Pin(HostBlock& block, uint64_t device, uint64_t bytes) {
    return block.PinFor({device, kPaysAfter}, bytes, [&]() -> std::unique_ptr<HostPin> {
      ++asked_;
      return can_pin_ ? std::make_unique<CountedPin>(alive_) : nullptr;
    }) != nullptr;
  }

  std::vector<uint8_t> memory_ = std::vector<uint8_t>(kBytes);
  int asked_ = 0, alive_ = 0;
  bool can_pin_ = true;
};

// Memory is pinned when it pays, for each device separately; it stays pinned until the memory is freed.
TEST_F(HostBlockTest, PinsWhatIsCopiedOften) {
  {
    HostBlock block(memory_.data(), kBytes);
    for (uint64_t i = 1; i < kPaysAfter; ++i) {
      EXPECT_FALSE(Pin(block, 1, kBytes));
    }
    EXPECT_FALSE(Pin(block, 1, kBytes / 2));
    EXPECT_EQ(asked_, 0);
    EXPECT_TRUE(Pin(block, 1, kBytes / 2));
    EXPECT_TRUE(Pin(block, 1, 1));
    EXPECT_EQ(asked_, 1);
    EXPECT_FALSE(Pin(block, 2, kBytes));
    EXPECT_TRUE(Pin(block, 2, kPaysAfter * kBytes));
    EXPECT_EQ(alive_, 2);
    EXPECT_EQ(HostBlock::PinnedBytes(), 2 * kBytes);
    block.Close();
    EXPECT_EQ(alive_, 0);
    EXPECT_FALSE(Pin(block, 1, 100 * kBytes));
  }
  {
    HostBlock dropped(memory_.data(), kBytes), kept(memory_.data(), kBytes);
    EXPECT_TRUE(Pin(dropped, 1, 100 * kBytes));
  }
  EXPECT_EQ(alive_, 0);
  EXPECT_EQ(HostBlock::PinnedBytes(), 0u);
}

// A refusal is final; small memory, and more than the machine can spare, is never pinned.
TEST_F(HostBlockTest, WhatIsNotPinned) {
  HostBlock block(memory_.data(), kBytes), small(memory_.data(), HostBlock::kBytesMin - 1);
  can_pin_ = false;
  EXPECT_FALSE(Pin(block, 1, 100 * kBytes));
  can_pin_ = true;
  EXPECT_FALSE(Pin(block, 1, 100 * kBytes));
  EXPECT_EQ(asked_, 1);
  EXPECT_TRUE(Pin(block, 2, 100 * kBytes));
  block.Refuse(2);
  EXPECT_FALSE(Pin(block, 2, 100 * kBytes));
  EXPECT_EQ(asked_, 2);
  block.Close();
  EXPECT_FALSE(Pin(small, 1, 100 * kBytes));
  HostBlock huge(memory_.data(), uint64_t{1} << 60);  // Only its size is used.
  EXPECT_FALSE(Pin(huge, 1, ~uint64_t{0}));
  EXPECT_EQ(asked_, 2);
  EXPECT_EQ(HostBlock::PinnedBytes(), 0u);
}

}  // namespace
}  // namespace hpvm
