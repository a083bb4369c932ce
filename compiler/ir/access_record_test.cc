// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/access_record.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace hpvm::ir {
namespace {

struct Made {
  CurrentAccess access;
  uint32_t group = 0;
  uint64_t offset = 0, bytes = 0;
};

// Defines a race between two accesses, given in the order in which they were made.
bool AreRacing(const Made& a, const Made& b) {
  const bool overlap = a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
  const bool conflict = (IsWrite(a.access.kind) || IsWrite(b.access.kind)) &&
                        !(IsAtomic(a.access.kind) && IsAtomic(b.access.kind));
  const bool ordered = a.group == b.group && (a.access.mark.stamp != b.access.mark.stamp ||
                                              a.access.mark.local() == b.access.mark.local());
  return overlap && conflict && !ordered;
}

// Makes random accesses of consecutive groups, whose instances take turns between barriers.
std::vector<Made> MakeAccesses(std::mt19937& random, bool words_only) {
  const auto below = [&](uint32_t limit) { return static_cast<uint32_t>(random() % limit); };
  const uint32_t groups = 1 + below(4), locals = 1 + below(3), epochs = 1 + below(3);
  const bool has_atomics = below(2) == 0;
  std::vector<Made> made;
  uint32_t stamp = 0;
  for (uint32_t group = 0; group < groups; ++group) {
    const uint32_t first = stamp + 1;
    for (uint32_t epoch = 0; epoch < epochs; ++epoch) {
      ++stamp;
      for (uint32_t local = 0; local < locals; ++local) {
        for (uint32_t i = below(3); i > 0; --i) {
          const uint32_t site = static_cast<uint32_t>(made.size());
          const AccessKind kind = static_cast<AccessKind>(below(has_atomics ? 4 : 2));
          const uint64_t bytes = words_only ? 4 << below(2) : 1 << below(4);
          // Around the border of two pages.
          const uint64_t offset = 4096 - 8 + (words_only ? 4 * below(3) : below(9));
          made.push_back({{kind, {stamp, local << Mark::kSiteBits | site}, first}, group, offset, bytes});
        }
      }
    }
  }
  return made;
}

std::string Text(const std::vector<Made>& made) {
  std::string text;
  for (const Made& m : made) {
    text += "group " + std::to_string(m.group) + " stamp " + std::to_string(m.access.mark.stamp) + " local " +
            std::to_string(m.access.mark.local()) + " kind " + std::to_string(static_cast<int>(m.access.kind)) + " [" +
            std::to_string(m.offset) + ", " + std::to_string(m.offset + m.bytes) + ")\n";
  }
  return text;
}

// A race is found exactly when there is one, and each conflict found is a race.
TEST(AccessRecordTest, AgreesWithTheDefinition) {
  std::mt19937 random(7);
  int racing = 0;
  for (int round = 0; round < 5'000; ++round) {
    const std::vector<Made> made = MakeAccesses(random, round % 2 == 0);
    uint64_t left = uint64_t{1} << 30;
    AccessRecord record(8192, &left);
    bool is_racing = false, found = false;
    for (size_t i = 0; i < made.size(); ++i) {
      for (size_t k = 0; k < i; ++k) {
        is_racing |= AreRacing(made[k], made[i]);
      }
      const auto conflict = record.Add(made[i].access, made[i].offset, made[i].bytes);
      if (!conflict.has_value()) {
        continue;
      }
      found = true;
      const Made& earlier = made[conflict->earlier.site()];
      ASSERT_TRUE(AreRacing(earlier, made[i])) << Text(made) << i;
      EXPECT_EQ(earlier.access.kind, conflict->kind);
      EXPECT_TRUE(conflict->offset >= std::max(earlier.offset, made[i].offset) &&
                  conflict->offset < std::min(earlier.offset + earlier.bytes, made[i].offset + made[i].bytes));
    }
    ASSERT_EQ(found, is_racing) << Text(made);
    racing += is_racing;
  }
  EXPECT_TRUE(racing > 500 && racing < 4'500) << racing;
}

// Compares the record of written bytes with a list.
TEST(AccessRecordTest, KnowsWhatIsWritten) {
  std::mt19937 random(8);
  for (int round = 0; round < 500; ++round) {
    uint64_t left = uint64_t{1} << 30;
    AccessRecord record(8192, &left);
    std::vector<bool> written(8192);
    for (const Made& made : MakeAccesses(random, round % 2 == 0)) {
      record.Add(made.access, made.offset, made.bytes);
      for (uint64_t at = made.offset; at < made.offset + made.bytes; ++at) {
        written[at] = written[at] || IsWrite(made.access.kind);
      }
    }
    for (uint64_t begin = 4080; begin < 4112; ++begin) {
      uint64_t at = begin;
      while (at < begin + 8 && written[at]) {
        ++at;
      }
      const auto found = record.FirstUnwritten(begin, 8);
      EXPECT_EQ(found.value_or(begin + 8), at);
    }
    record.Clear();
    EXPECT_EQ(record.FirstUnwritten(4088, 8), 4088u);
  }
}

// Accesses beyond the limit are not recorded or judged, and the record reports that it is incomplete.
TEST(AccessRecordTest, TakesNoMoreThanIsLeft) {
  uint64_t left = 100;
  AccessRecord record(1 << 20, &left);
  const CurrentAccess first{AccessKind::kWrite, {1, 0}, 1}, second{AccessKind::kWrite, {2, 0}, 2};
  EXPECT_FALSE(record.Add(first, 0, 1 << 20).has_value());
  EXPECT_FALSE(record.Add(second, 0, 1 << 20).has_value());
  EXPECT_FALSE(record.FirstUnwritten(0, 4).has_value());
  EXPECT_FALSE(record.is_complete());
  EXPECT_EQ(left, 100u);
}

}  // namespace
}  // namespace hpvm::ir
