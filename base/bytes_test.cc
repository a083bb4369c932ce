// SPDX-License-Identifier: Apache-2.0
#include "base/bytes.h"

#include <array>

#include "gtest/gtest.h"

#include "base/clock.h"
#include "base/hash.h"

namespace hpvm {
namespace {

TEST(BytesTest, WritesHex) {
  EXPECT_EQ(ToHex(BytesOf(std::string_view("\0\x7f\xff", 3))), "007fff");
  EXPECT_EQ(ToHex(BytesOf("")), "");
  EXPECT_EQ(HexOfNumber(0), "0000000000000000");
  EXPECT_EQ(HexOfNumber(0xfedcba9876543210u), "fedcba9876543210");
}

// ReadHex accepts only what ToHex writes: no upper-case digits, no other characters, no other length.
TEST(BytesTest, ReadsHex) {
  std::array<uint8_t, 3> bytes{1, 2, 3};
  for (const std::string_view wrong :
       {"", "007f", "007fff00", "007fff0", "007fFF", "007ff ", "0x7fff", "g07fff", "-07fff"}) {
    EXPECT_FALSE(ReadHex(wrong, bytes)) << wrong;
  }
  EXPECT_FALSE(ReadHex(std::string_view("\0\0\0\0\0\0", 6), bytes));
  EXPECT_EQ(bytes, (std::array<uint8_t, 3>{1, 2, 3}));
  EXPECT_TRUE(ReadHex("007fff", bytes));
  EXPECT_EQ(bytes, (std::array<uint8_t, 3>{0, 0x7f, 0xff}));
}

TEST(BytesTest, HashesAsRawBytes) {
  const Sha256 hash = HashOf("hello");
  EXPECT_EQ(Raw(hash).size(), 32u);
  EXPECT_EQ(Sha256FromRaw(Raw(hash)), hash);
  EXPECT_EQ(Sha256FromHex(ToHex(hash)), hash);
  EXPECT_FALSE(Sha256FromRaw(Raw(hash).substr(1)).has_value());
  EXPECT_FALSE(Sha256FromRaw(std::string(Raw(hash)) + "x").has_value());
}

// Fill supports any length and writes the words' bytes in order.
TEST(BytesTest, FillsWithRandomBytes) {
  SeededRng a(7), b(7);
  std::array<uint8_t, 11> filled{};
  a.Fill(filled);
  const uint64_t words[] = {b.Next(), b.Next()};
  EXPECT_EQ(TextOf(filled), std::string_view(reinterpret_cast<const char*>(words), filled.size()));
}

}  // namespace
}  // namespace hpvm
