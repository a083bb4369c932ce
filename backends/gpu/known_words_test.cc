// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/known_words.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

namespace hpvm::gpu {
namespace {

const uint8_t* BytesOf(const std::vector<int32_t>& words) { return reinterpret_cast<const uint8_t*>(words.data()); }

TEST(WordScanTest, TakesPiecesTogether) {
  const std::vector<int32_t> words = {7, -3, 1 << 30, 5, -2'000'000'000, 6};
  WordScan scan;
  EXPECT_FALSE(scan.range().is_known());
  scan.Add(BytesOf(words), 12);
  EXPECT_EQ(scan.range(), (ir::WordRange{-3, 1 << 30}));
  scan.Add(BytesOf(words) + 12, 12);
  EXPECT_EQ(scan.range(), (ir::WordRange{-2'000'000'000, 1 << 30}));
}

TEST(WordScanTest, APieceThatBeginsInsideAWordTellsNothing) {
  const std::vector<int32_t> words = {1, 2, 3};
  WordScan scan;
  scan.Add(BytesOf(words), 6);
  scan.Add(BytesOf(words) + 6, 6);
  EXPECT_FALSE(scan.range().is_known());
}

TEST(WordScanTest, BytesBehindTheLastWordDoNotCount) {
  const std::vector<int32_t> words = {1, -1};
  WordScan scan;
  scan.Add(BytesOf(words), 7);
  EXPECT_EQ(scan.range(), (ir::WordRange{1, 1}));
  WordScan nothing;
  nothing.Add(BytesOf(words), 3);
  EXPECT_FALSE(nothing.range().is_known());
}

TEST(KnownWordsTest, AnswersForWholeWordsOfOnePieceOrMore) {
  KnownWords words;
  words.Keep(16, 16, {3, 9});
  EXPECT_EQ(words.Of(16, 16), (ir::WordRange{3, 9}));
  EXPECT_EQ(words.Of(20, 7), (ir::WordRange{3, 9}));  // The last word is incomplete.
  EXPECT_FALSE(words.Of(18, 8).is_known());           // Not aligned with the scanned words.
  EXPECT_FALSE(words.Of(12, 8).is_known());
  EXPECT_FALSE(words.Of(28, 8).is_known());
  EXPECT_FALSE(words.Of(20, 3).is_known());  // None.
  words.Keep(32, 8, {-5, 0});
  EXPECT_EQ(words.Of(28, 8), (ir::WordRange{-5, 9}));
}

TEST(KnownWordsTest, AWriteIsForgottenWhereverItTouches) {
  KnownWords words;
  const auto keep = [&] { words.Keep(16, 16, {3, 9}); };
  for (const auto& [begin, bytes] : std::vector<std::pair<uint64_t, uint64_t>>{
           {16, 16}, {15, 2}, {31, 1}, {0, 100}, {20, 1}, {0, ~uint64_t{0}}, {8, ~uint64_t{0}}}) {
    keep();
    words.Forget(begin, bytes);
    EXPECT_FALSE(words.Of(24, 4).is_known()) << begin << " " << bytes;
  }
  keep();
  words.Forget(0, 16);
  words.Forget(32, 4);
  words.Forget(20, 0);
  EXPECT_TRUE(words.Of(16, 16).is_known());
}

TEST(KnownWordsTest, OnlyWordsAtMultiplesOfFourAreKept) {
  KnownWords words;
  words.Keep(2, 16, {0, 1});
  EXPECT_FALSE(words.Of(4, 4).is_known());
  words.Keep(4, 3, {0, 1});
  EXPECT_FALSE(words.Of(4, 4).is_known());
  words.Keep(4, 8, {});  // Not known.
  EXPECT_FALSE(words.Of(4, 4).is_known());
}

// Compares with the content of a memory that is written in pieces, forgotten in pieces, and queried.
TEST(KnownWordsTest, NeverLessThanThereIs) {
  constexpr uint64_t kBytes = 256;
  std::mt19937 random(11);
  KnownWords words;
  std::vector<int32_t> memory(kBytes / 4);
  int answers = 0;
  for (int round = 0; round < 60'000; ++round) {
    const uint64_t begin = random() % kBytes, bytes = random() % (kBytes - begin) % (random() % 2 != 0 ? 256 : 24);
    uint8_t* const at = reinterpret_cast<uint8_t*>(memory.data()) + begin;
    const uint32_t choice = random() % 4;
    if (choice < 2) {
      const uint32_t below = 1 + random() % 100;
      std::vector<uint8_t> data(bytes);
      std::generate(data.begin(), data.end(), [&] { return static_cast<uint8_t>(random() % below); });
      std::copy(data.begin(), data.end(), at);
      words.Forget(begin, bytes);
      if (choice == 0) {
        WordScan scan;
        const uint64_t first = std::min(bytes, random() % 3 * 8);
        scan.Add(data.data(), first);
        scan.Add(data.data() + first, bytes - first);
        words.Keep(begin, bytes, scan.range());
      }
      continue;
    }
    const ir::WordRange range = words.Of(begin, bytes);
    for (uint64_t word = begin / 4; range.is_known() && word < begin / 4 + bytes / 4; ++word) {
      ASSERT_LE(range.lo, memory[word]);
      ASSERT_GE(range.hi, memory[word]);
    }
    answers += range.is_known() ? 1 : 0;
  }
  EXPECT_GT(answers, 100);
}

TEST(KnownWordsTest, TheOldestPieceGoesFirst) {
  KnownWords words;
  for (uint64_t i = 0; i <= KnownWords::kPiecesMax; ++i) {
    words.Keep(8 * i, 4, {1, 1});
  }
  EXPECT_FALSE(words.Of(0, 4).is_known());
  EXPECT_TRUE(words.Of(8, 4).is_known());
}

}  // namespace
}  // namespace hpvm::gpu
