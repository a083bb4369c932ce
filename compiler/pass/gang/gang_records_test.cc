// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/gang/gang_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/ir/text/text.h"
#include "compiler/ir/verify/verify.h"
#include "compiler/pass/pipeline.h"

namespace hpvm::pass {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Finds the records of a kernel with the buffers %a (in), %c (inout) and the number %n: %p is the address of the
// instance's record of `words` words in %a, %q that of its record in %c.
std::vector<GangRecord> Records(uint32_t words, const std::string& body) {
  StatusOr<ir::Module> module = ir::ParseModule(
      "module \"m\"\nparam buffer in \"a\"\nparam buffer inout \"c\"\nparam i32 \"n\"\nentry f0\n"
      "func f0 \"f\" (%a: i32, %c: i32, %n: i32) -> () {\n%zero: i32 = const.i32 0\n%id: i32 = instance_id.i32 %zero\n"
      "%size: i32 = const.i32 " +
      std::to_string(4 * words) +
      "\n%four: i32 = const.i32 4\n%at: i32 = mul.i32 %id, %size\n%p: i32 = add.i32 %a, %at\n%q: i32 = add.i32 %c, "
      "%at\n" +
      body + "\nreturn ()\n}\n");
  EXPECT_TRUE(module.ok()) << module.status();
  EXPECT_TRUE(ir::Verify(*module).empty()) << ToString(ir::Verify(*module));
  EXPECT_TRUE(RunCpuPipeline(*module).ok());
  const std::optional<GangPlan> plan = PlanGang(*module, {});
  EXPECT_TRUE(plan.has_value());
  return FindRecords(*module, *plan).records;
}

// Writes loads of words from %p on into %<name>0..., or stores of %n to %q.
std::string Loads(std::initializer_list<int> words, const std::string& name = "v", const std::string& base = "%p") {
  std::string text;
  for (const int word : words) {
    text +=
        "%" + name + std::to_string(word) + ": i32 = load.i32 flat " + base + " + " + std::to_string(4 * word) + "\n";
  }
  return text;
}
std::string Stores(std::initializer_list<int> words) {
  std::string text;
  for (const int word : words) {
    text += "store.i32 flat %q + " + std::to_string(4 * word) + ", %n\n";
  }
  return text;
}

TEST(GangRecordsTest, LoadsOfARecord) {
  const std::vector<GangRecord> records = Records(9, Loads({3, 1, 2, 4, 6}) + Stores({0}));
  ASSERT_EQ(records.size(), 1u);
  EXPECT_FALSE(records[0].is_store);
  EXPECT_EQ(records[0].width, 4u);
  EXPECT_EQ(records[0].stride, 9u);
  EXPECT_EQ(records[0].span, 6u);
  EXPECT_THAT(records[0].words, ElementsAre(2, 0, 1, 3, 5));
}

// Constants may be added by the immediate or by a separate operation.
TEST(GangRecordsTest, SumsAreTakenApart) {
  const std::vector<GangRecord> records =
      Records(2, "%p1: i32 = add.i32 %p, %four\n" + Loads({0}, "v", "%p1") + Loads({0}, "w"));
  ASSERT_EQ(records.size(), 1u);
  EXPECT_THAT(records[0].words, ElementsAre(1, 0));
}

// The constant is part of the index.
TEST(GangRecordsTest, IndicesAreTakenApart) {
  const std::vector<GangRecord> records = Records(
      2,
      "%one: i32 = const.i32 1\n%two: i32 = const.i32 2\n%e: i32 = shl.i32 %id, %one\n%o: i32 = add.i32 %e, %one\n"
      "%eb: i32 = shl.i32 %e, %two\n%ob: i32 = shl.i32 %o, %two\n%ea: i32 = add.i32 %a, %eb\n"
      "%oa: i32 = add.i32 %a, %ob\n%v: i32 = load.i32 flat %ea\n%w: i32 = load.i32 flat %oa\n");
  ASSERT_EQ(records.size(), 1u);
  EXPECT_THAT(records[0].words, ElementsAre(0, 1));
}

TEST(GangRecordsTest, Stores) {
  EXPECT_EQ(Records(8, Stores({0, 1, 2, 3, 4, 5, 6, 7})).size(), 1u);
  EXPECT_EQ(Records(2, Stores({1, 0})).size(), 1u);
  // Other instances may own the words in between.
  EXPECT_THAT(Records(8, Stores({0, 1, 2, 3, 4, 6, 7})), IsEmpty());
  EXPECT_THAT(Records(3, Stores({0, 1})), IsEmpty());
}

TEST(GangRecordsTest, ThinOnesStayApart) {
  EXPECT_THAT(Records(16, Loads({0, 7, 15})), IsEmpty());
  EXPECT_THAT(Records(16, Loads({0, 1, 2})), IsEmpty());
}

// Words that are as far apart as records belong to two records.
TEST(GangRecordsTest, AnotherLanesWordsAreAnotherRecord) {
  const std::vector<GangRecord> records = Records(4, Loads({0, 1, 2, 3}) + Loads({4, 5, 6, 7}, "w"));
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].members.size(), 4u);
  EXPECT_EQ(records[1].members.size(), 4u);
}

// No access moves past an operation that may touch the same bytes, wait, or end an instance.
TEST(GangRecordsTest, OrderIsKept) {
  const std::string other = "store.i32 flat %c, %n\n";
  EXPECT_EQ(Records(4, Loads({0, 1}) + other + Loads({2, 3})).size(), 0u);
  EXPECT_EQ(Records(4, Stores({0, 1}) + "%w: i32 = load.i32 flat %a\n" + Stores({2, 3})).size(), 0u);
  EXPECT_EQ(Records(4, Stores({0, 1}) + "%w: i32 = div_u.i32 %four, %n\n" + Stores({2, 3})).size(), 0u);
  EXPECT_EQ(Records(2, Stores({0}) + "if b0 %n {\nbr b0 ()\n} else {\nbr b0 ()\n}\n" + Stores({1})).size(), 0u);
}

// Alternating loads and stores of one record: each word's order is kept.
TEST(GangRecordsTest, UpdatesInPlace) {
  const auto load = [](int word, const char* name) { return Loads({word}, name, "%q"); };
  EXPECT_EQ(Records(2, load(0, "v") + Stores({0}) + load(1, "w") + Stores({1})).size(), 2u);
  // The second load needs the stored value.
  EXPECT_EQ(Records(2, load(1, "v") + Stores({0}) + load(0, "w") + Stores({1})).size(), 0u);
  EXPECT_EQ(Records(2, Stores({0}) + load(0, "v") + Stores({1}) + load(1, "w")).size(), 0u);
}

}  // namespace
}  // namespace hpvm::pass
