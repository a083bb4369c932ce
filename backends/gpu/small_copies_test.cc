// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/small_copies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "base/clock.h"

namespace hpvm::gpu {
namespace {

class Memory final : public GpuBuffer {
 public:
  explicit Memory(uint64_t bytes) : data(bytes, 0xee) {}
  uint64_t bytes() const override { return data.size(); }
  bool is_shared() const override { return false; }

  std::vector<uint8_t> data;
};

// Processes the spans like a driver.
void MoveUp(SmallCopies& copies) {
  copies.Plan();
  std::vector<uint8_t> staging(copies.staged_bytes(), 0xdd);
  copies.Stage(staging.data());
  for (const CopySpan& span : copies.spans()) {
    std::memcpy(static_cast<Memory*>(span.buffer)->data.data() + span.offset, staging.data() + span.staged, span.bytes);
  }
}

void MoveDown(SmallCopies& copies) {
  copies.Plan();
  std::vector<uint8_t> staging(copies.staged_bytes(), 0xdd);
  for (const CopySpan& span : copies.spans()) {
    std::memcpy(staging.data() + span.staged, static_cast<Memory*>(span.buffer)->data.data() + span.offset, span.bytes);
  }
  copies.ForEachArrival(staging.data(),
                        [](const uint8_t* staged, uint8_t* host, uint64_t bytes) { std::memcpy(host, staged, bytes); });
}

std::vector<uint8_t> Counting(size_t bytes) {
  std::vector<uint8_t> data(bytes);
  for (size_t i = 0; i < bytes; ++i) {
    data[i] = static_cast<uint8_t>(i * 2654435761u >> 9 | 1);
  }
  return data;
}

// Values in the layout of a memory plan: each at a multiple of 512 bytes, the remainder of which belongs to it.
TEST(SmallCopiesTest, NeighboursWithRoomAreOneSpan) {
  Memory memory(4096);
  std::vector<uint8_t> host = Counting(400);
  SmallCopies copies(/*is_up=*/true);
  for (const uint64_t i : {2u, 0u, 1u, 3u}) {
    copies.Add(
        {.buffer = &memory, .offset = 512 * i, .bytes = 100 - i, .room = 412 + i, .host = host.data() + 100 * i});
  }
  MoveUp(copies);
  ASSERT_EQ(copies.spans().size(), 1u);
  EXPECT_EQ(copies.spans()[0].offset, 0u);
  EXPECT_EQ(copies.spans()[0].bytes, 3 * 512 + 97u) << "Nobody needs the last one's room.";
  for (uint64_t i = 0; i < 4; ++i) {
    const uint8_t* const written = memory.data.data() + 512 * i;
    EXPECT_TRUE(std::equal(written, written + 100 - i, host.data() + 100 * i)) << i;
    EXPECT_EQ(std::count(written + 100 - i, written + 512, i < 3 ? 0 : 0xee), static_cast<int64_t>(412 + i)) << i;
  }
}

// Bytes between two copies are in use, unless declared unused.
TEST(SmallCopiesTest, WritesNothingButTheCopiesAndTheirRoom) {
  Memory memory(4096), other(64);
  std::vector<uint8_t> host = Counting(64);
  SmallCopies copies(/*is_up=*/true);
  const auto add = [&](Memory& to, uint64_t offset, uint64_t bytes, uint64_t room) {
    copies.Add({.buffer = &to, .offset = offset, .bytes = bytes, .room = room, .host = host.data()});
  };
  add(memory, 0, 8, 7);     // One byte short of the next copy.
  add(memory, 16, 8, 0);    // Adjacent to the next copy.
  add(memory, 24, 3, 100);  // Its room is larger than used.
  add(memory, 30, 1, 0);
  add(other, 31, 1, 0);
  MoveUp(copies);
  EXPECT_EQ(copies.spans().size(), 3u);
  EXPECT_FALSE(copies.is_ordered());
  EXPECT_EQ(std::count(memory.data.begin() + 8, memory.data.begin() + 16, 0xee), 8);
  EXPECT_EQ(std::count(memory.data.begin() + 27, memory.data.begin() + 30, 0), 3);
  EXPECT_EQ(std::count(memory.data.begin() + 31, memory.data.end(), 0xee), 4096 - 31);
  EXPECT_EQ(std::count(other.data.begin(), other.data.end(), 0xee), 63);
}

// Gaps may be read, and stay in the staging memory; gaps that take longer than a call are not read.
TEST(SmallCopiesTest, ReadsAcrossGaps) {
  Memory memory(64 * 1024);
  memory.data = Counting(memory.data.size());
  std::vector<uint8_t> host(300, 0x11);
  SmallCopies copies(/*is_up=*/false);
  const uint64_t gap = SmallCopies::kGapBytesMax;
  const uint64_t places[] = {0, 7 + gap, 14 + 2 * gap + 1};
  for (uint64_t i = 0; i < 3; ++i) {
    copies.Add({.buffer = &memory, .offset = places[i], .bytes = 7, .host = host.data() + 100 * i});
  }
  MoveDown(copies);
  EXPECT_EQ(copies.spans().size(), 2u);
  for (uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(std::memcmp(host.data() + 100 * i, memory.data.data() + places[i], 7), 0) << i;
    EXPECT_EQ(std::count(host.begin() + 100 * i + 7, host.begin() + 100 * i + 100, 0x11), 93) << i;
  }
}

// Copies to the same bytes are made in order: the last one takes effect.
TEST(SmallCopiesTest, RepeatedTargetsKeepTheirOrder) {
  Memory memory(64);
  std::vector<uint8_t> first(8, 1), second(8, 2), back(8);
  SmallCopies up(/*is_up=*/true);
  up.Add({.buffer = &memory, .offset = 4, .bytes = 8, .host = first.data()});
  up.Add({.buffer = &memory, .offset = 0, .bytes = 8, .host = second.data()});
  MoveUp(up);
  EXPECT_TRUE(up.is_ordered());
  EXPECT_EQ(std::count(memory.data.begin(), memory.data.begin() + 8, 2), 8);
  EXPECT_EQ(std::count(memory.data.begin() + 8, memory.data.begin() + 12, 1), 4);
  SmallCopies down(/*is_up=*/false);
  down.Add({.buffer = &memory, .offset = 8, .bytes = 4, .host = back.data()});
  down.Add({.buffer = &memory, .offset = 2, .bytes = 4, .host = back.data() + 2});
  MoveDown(down);
  EXPECT_EQ(back, (std::vector<uint8_t>{1, 1, 2, 2, 2, 2, 0, 0}));
}

// Any copies have the effect of making them one after another, and keep within their declared room.
TEST(SmallCopiesTest, RandomCopiesAreThoseMadeOneByOne) {
  SeededRng rng(7);
  for (int round = 0; round < 400; ++round) {
    const bool is_up = rng.Below(2) == 0, is_apart = rng.Below(2) == 0;
    Memory memory[2] = {Memory(8192), Memory(8192)};
    std::vector<uint8_t> host(8192);
    for (size_t i = 0; i < host.size(); ++i) {
      host[i] = static_cast<uint8_t>(rng.Below(256));
      memory[0].data[i] = static_cast<uint8_t>(rng.Below(256));
    }
    std::vector<uint8_t> expected[3] = {memory[0].data, memory[1].data, host};
    std::vector<bool> is_room[2] = {std::vector<bool>(8192), std::vector<bool>(8192)};
    SmallCopies copies(is_up);
    for (uint64_t i = 0, place = 0; i < 30; ++i) {
      const uint64_t which = rng.Below(2), bytes = 1 + rng.Below(150);
      const uint64_t room = is_apart ? rng.Below(60) : 0;
      const uint64_t offset = is_apart ? place : rng.Below(8192 - 150);
      place += bytes + room + rng.Below(30);
      const uint64_t from = is_up ? rng.Below(8192 - 150) : i * 150;
      const SmallCopy copy{&memory[which], offset, bytes, room, host.data() + from, false};
      ASSERT_TRUE(copies.Takes(copy));
      copies.Add(copy);
      if (is_up) {
        std::copy_n(host.begin() + from, bytes, expected[which].begin() + offset);
        std::fill_n(is_room[which].begin() + offset + bytes, room, true);
      } else {
        std::copy_n(memory[which].data.begin() + offset, bytes, expected[2].begin() + from);
      }
    }
    is_up ? MoveUp(copies) : MoveDown(copies);
    for (uint64_t which = 0; which < 2; ++which) {
      for (uint64_t i = 0; i < 8192; ++i) {
        const uint8_t found = memory[which].data[i];
        ASSERT_TRUE(found == expected[which][i] || (is_room[which][i] && found == 0)) << round << ": " << i;
      }
    }
    ASSERT_EQ(host, expected[2]) << round;
  }
}

TEST(SmallCopiesTest, ABatchFitsItsStagingMemory) {
  Memory memory(SmallCopies::kBatchBytesMax * 64);
  std::vector<uint8_t> host(SmallCopies::kCopyBytesMax);
  for (const bool is_up : {true, false}) {
    for (const uint64_t bytes : {uint64_t{1}, uint64_t{700}, SmallCopies::kCopyBytesMax}) {
      for (const uint64_t gap : {uint64_t{0}, SmallCopies::kGapBytesMax, 2 * SmallCopies::kGapBytesMax}) {
        SmallCopies copies(is_up);
        SmallCopy copy{&memory, 0, bytes, gap, host.data(), false};
        uint64_t count = 0;
        for (; copies.Takes(copy) && copy.offset + bytes <= memory.bytes(); ++count) {
          copies.Add(copy);
          copy.offset += bytes + gap;
        }
        copies.Plan();
        EXPECT_GE(count, 60u);
        EXPECT_LE(copies.staged_bytes(), SmallCopies::kBatchBytesMax);
        EXPECT_EQ(copies.spans().size(), gap <= SmallCopies::kGapBytesMax ? 1 : count);
        copies.Clear();
        EXPECT_TRUE(copies.is_empty());
        EXPECT_TRUE(copies.Takes(copy));
      }
    }
  }
}

// Indices are scanned in the staging memory; all words that a span overwrites, even between copies, become unknown.
TEST(SmallCopiesTest, KnowsTheWordsOfIndices) {
  Memory memory(4096);
  std::vector<int32_t> words = {5, -2, 9, 1};
  auto* const host = reinterpret_cast<uint8_t*>(words.data());
  memory.KeepWords(0, 4096, {0, 100});
  SmallCopies copies(/*is_up=*/true);
  copies.Add({.buffer = &memory, .offset = 512, .bytes = 16, .room = 496, .host = host, .has_indices = true});
  copies.Add({.buffer = &memory, .offset = 1024, .bytes = 16, .host = host});
  copies.Plan();
  std::vector<uint8_t> staging(copies.staged_bytes());
  copies.Stage(staging.data());
  copies.ForgetWords();
  EXPECT_FALSE(memory.words().Of(0, 4).is_known()) << "The piece that it belonged to is gone.";
  copies.KeepWords();
  EXPECT_EQ(memory.words().Of(512, 16), (ir::WordRange{-2, 9}));
  EXPECT_FALSE(memory.words().Of(1024, 4).is_known());
}

// A later copy to the same bytes invalidates the words recorded for an earlier one, and only those.
TEST(SmallCopiesTest, ForgetsIndicesThatAreWrittenOver) {
  std::vector<int32_t> words = {5, -2, 9, 1};
  auto* const host = reinterpret_cast<uint8_t*>(words.data());
  for (const bool is_last : {false, true}) {
    Memory memory(64);
    SmallCopies copies(/*is_up=*/true);
    for (const bool has_indices : {!is_last, is_last}) {
      copies.Add({.buffer = &memory, .offset = 0, .bytes = 16, .host = host, .has_indices = has_indices});
    }
    MoveUp(copies);
    copies.ForgetWords();
    copies.KeepWords();
    EXPECT_EQ(memory.words().Of(0, 16).is_known(), is_last);
  }
}

}  // namespace
}  // namespace hpvm::gpu
