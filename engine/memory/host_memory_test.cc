// SPDX-License-Identifier: Apache-2.0
// Tests that memory of dropped plans is pooled for the next ones, within limits.
#include "engine/memory/host_memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <utility>

namespace hpvm::engine {
namespace {

constexpr uint64_t kMiB = 1 << 20;

uint8_t* MapAndDrop(uint64_t bytes, const std::shared_ptr<HostPool>& pool) {
  StatusOr<HostMemory> memory = HostMemory::Map(bytes, pool);
  EXPECT_TRUE(memory.ok());
  std::memset(memory->data(), 1, bytes);
  return memory->data();
}

// A mapping is reused for a plan of similar size, not for one of half the size, and not for two plans.
TEST(HostMemoryTest, PoolsKeepWhatPlansLeave) {
  const auto pool = std::make_shared<HostPool>(8 * kMiB);
  uint8_t* const first = MapAndDrop(4 * kMiB, pool);
  EXPECT_EQ(pool->bytes(), 4 * kMiB);
  StatusOr<HostMemory> small = HostMemory::Map(kMiB, pool);
  ASSERT_TRUE(small.ok());
  EXPECT_NE(small->data(), first);
  StatusOr<HostMemory> again = HostMemory::Map(3 * kMiB, pool), other = HostMemory::Map(3 * kMiB, pool);
  ASSERT_TRUE(again.ok() && other.ok());
  EXPECT_EQ(again->data(), first);
  EXPECT_NE(other->data(), first);
  EXPECT_EQ(pool->bytes(), 0u);
  HostMemory moved = *std::move(again);
  moved = HostMemory();
  EXPECT_EQ(pool->bytes(), 4 * kMiB);  // The size of the mapping.
}

// Mappings beyond the limit and small ones go back to the system; memory without a pool is zero.
TEST(HostMemoryTest, PoolsAreBounded) {
  const auto pool = std::make_shared<HostPool>(8 * kMiB);
  MapAndDrop(9 * kMiB, pool);
  EXPECT_EQ(pool->bytes(), 0u);
  MapAndDrop(kMiB - 1, pool);
  EXPECT_EQ(pool->bytes(), 0u);
  MapAndDrop(6 * kMiB, pool);
  {
    StatusOr<HostMemory> big = HostMemory::Map(7 * kMiB, pool);  // Does not reuse the mapping of 6 MiB.
    ASSERT_TRUE(big.ok());
  }
  EXPECT_EQ(pool->bytes(), 6 * kMiB);
  const StatusOr<HostMemory> fresh = HostMemory::Map(2 * kMiB);
  ASSERT_TRUE(fresh.ok());
  for (uint64_t i = 0; i < 2 * kMiB; i += 512) {
    ASSERT_EQ(fresh->data()[i], 0);
  }
}

}  // namespace
}  // namespace hpvm::engine
