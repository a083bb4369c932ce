// SPDX-License-Identifier: Apache-2.0
#include "server/process/heap_trim.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <chrono>
#include <memory>
#include <vector>

namespace hpvm::server {
namespace {

TEST(HeapTrimTest, IsDueWhenMuchIsThereAndNew) {
  HeapTrimRule rule({.resident_bytes_min = 100, .again_after = std::chrono::seconds(60)});
  EXPECT_FALSE(rule.IsDue(Time{0}, 99));
  EXPECT_TRUE(rule.IsDue(Time{0}, 100));
  rule.OnTrimmed(Time{0}, 200);
  EXPECT_FALSE(rule.IsDue(std::chrono::seconds(59), 250));
  EXPECT_TRUE(rule.IsDue(std::chrono::seconds(1), 251));
  EXPECT_TRUE(rule.IsDue(std::chrono::seconds(60), 200));
  EXPECT_FALSE(rule.IsDue(std::chrono::seconds(60), 99));
}

// The allocator keeps free blocks between used ones until it is asked to return them; the rule says when.
TEST(HeapTrimTest, TheAllocatorGivesBackWhatIsFree) {
#if defined(__SANITIZE_ADDRESS__) || defined(HPVMD_TSAN)
  GTEST_SKIP() << "The sanitizer has an allocator of its own.";
#endif
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  constexpr size_t kBlocks = 512, kBytes = 256 << 10;
  std::vector<std::unique_ptr<char[]>> blocks, stay;
  for (size_t i = 0; i < kBlocks; ++i) {
    blocks.push_back(std::make_unique<char[]>(kBytes));  // Zeroed, so it is resident.
    stay.push_back(std::make_unique<char[]>(64));
  }
  const uint64_t full = ResidentBytes();
  blocks.clear();
  EXPECT_GT(ResidentBytes(), full - kBlocks * kBytes / 2);
  malloc_trim(0);
  EXPECT_LT(ResidentBytes(), full - kBlocks * kBytes / 2);
}

}  // namespace
}  // namespace hpvm::server
