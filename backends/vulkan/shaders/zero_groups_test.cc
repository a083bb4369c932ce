// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/shaders/zero_groups.h"

#include <gtest/gtest.h>

#include <cstring>

namespace hpvm::vulkan {
namespace {

using Words = std::vector<uint32_t>;

constexpr uint32_t kMagic = 0x07230203;
constexpr uint32_t Op(uint32_t words, uint32_t opcode) { return words << 16 | opcode; }

std::vector<uint8_t> Bytes(const Words& words) {
  std::vector<uint8_t> bytes(words.size() * 4);
  std::memcpy(bytes.data(), words.data(), bytes.size());
  return bytes;
}

// Types 1 (u32), 2 (pointer to it in Workgroup), 3 (in Private), followed by `rest`.
Words Module(const Words& rest, uint32_t bound = 10) {
  Words words = {kMagic,  0x00010300, 0, bound, 0,               // Header.
                 Op(4, 21), 1, 32, 0,                            // OpTypeInt.
                 Op(4, 32), 2, 4,  1,                            // OpTypePointer Workgroup.
                 Op(4, 32), 3, 6,  1};                           // OpTypePointer Private.
  words.insert(words.end(), rest.begin(), rest.end());
  return words;
}

// Each variable in group memory gets a null constant of its type; the ids are new, and other instructions are
// unchanged.
TEST(ZeroGroupsTest, InitialisesGroupVariables) {
  const Words before = {Op(4, 59), 2, 4, 4, Op(4, 59), 3, 5, 6, Op(4, 59), 2, 6, 4};
  const Words after = {Op(3, 46), 1, 10, Op(5, 59), 2, 4, 4, 10, Op(4, 59), 3, 5, 6,
                       Op(3, 46), 1, 11, Op(5, 59), 2, 6, 4, 11};
  const auto zeroed = ZeroGroupMemory(Bytes(Module(before)));
  ASSERT_TRUE(zeroed.ok()) << zeroed.status();
  EXPECT_EQ(*zeroed, Bytes(Module(after, 12)));
}

// A module without such variables, or whose variables already have initialisers, is unchanged.
TEST(ZeroGroupsTest, LeavesOthers) {
  for (const Words& rest : {Words{}, Words{Op(4, 59), 3, 5, 6}, Words{Op(3, 46), 1, 7, Op(5, 59), 2, 4, 4, 7}}) {
    const auto zeroed = ZeroGroupMemory(Bytes(Module(rest)));
    ASSERT_TRUE(zeroed.ok()) << zeroed.status();
    EXPECT_TRUE(zeroed->empty());
  }
}

// Input from a tenant may be anything.
TEST(ZeroGroupsTest, RefusesNonsense) {
  EXPECT_FALSE(ZeroGroupMemory({}).ok());
  EXPECT_FALSE(ZeroGroupMemory({1, 2, 3}).ok());
  EXPECT_FALSE(ZeroGroupMemory(Bytes({0, 0, 0, 0, 0})).ok());
  EXPECT_FALSE(ZeroGroupMemory(Bytes(Module({Op(5, 59), 2, 4, 4}))).ok());      // Truncated.
  EXPECT_FALSE(ZeroGroupMemory(Bytes(Module({Op(0, 59)}))).ok());               // No length.
  EXPECT_FALSE(ZeroGroupMemory(Bytes(Module({Op(4, 59), 9, 4, 4}))).ok());      // A type that does not exist.
  EXPECT_FALSE(ZeroGroupMemory(Bytes(Module({Op(4, 59), 2, 4, 4}, 0x3fffff))).ok());
}

}  // namespace
}  // namespace hpvm::vulkan
