// SPDX-License-Identifier: Apache-2.0
// Compares records of several words, loaded and stored by tiles of every shape and level, with the interpreter.
// Buffers end with the last record, at a page that faults.
#include <gtest/gtest.h>

#include <numeric>

#include "compiler/back/llvm/testing/gang_compare.h"

namespace hpvm::cpu {
namespace {

using testing::GangCompared;
using testing::KernelText;
using testing::WordsOf;

struct Record {
  std::string name;
  uint32_t stride;              // Words from one instance's record to the next.
  std::vector<uint32_t> loads;  // Words of x, in the order of their loads.
  uint32_t stores;              // Number of words of r stored, from the first on.
};

// Each stored word is a sum of other words that were loaded.
std::string TextOf(const Record& record) {
  std::string body = "%bytes: i32 = const.i32 " + std::to_string(4 * record.stride) +
                     "\n%off: i32 = mul.i32 %id, %bytes\n%p: i32 = add.i32 %x, %off\n%q: i32 = add.i32 %r, %off\n";
  for (size_t i = 0; i < record.loads.size(); ++i) {
    body += "%w" + std::to_string(i) + ": i32 = load.i32 flat %p + " + std::to_string(4 * record.loads[i]) + "\n";
  }
  for (uint32_t i = 0; i < record.stores; ++i) {
    const size_t a = i % record.loads.size(), b = (i * 5 + 1) % record.loads.size();
    const std::string n = std::to_string(i);
    body += "%a" + n + ": i32 = mul.i32 %w" + std::to_string(a) + ", %three\n%s" + n + ": i32 = add.i32 %a" + n +
            ", %w" + std::to_string(b) + "\n";
  }
  for (uint32_t i = record.stores; i-- > 0;) {
    body += "store.i32 flat %q + " + std::to_string(4 * i) + ", %s" + std::to_string(i) + "\n";
  }
  return KernelText(body + "return ()\n");
}

std::vector<uint32_t> UpTo(uint32_t count) {
  std::vector<uint32_t> words(count);
  std::iota(words.begin(), words.end(), 0);
  return words;
}

class GangRecordTest : public ::testing::TestWithParam<Record> {};

TEST_P(GangRecordTest, Agrees) {
  GangCompared kernel(TextOf(GetParam()));
  for (const uint64_t extent : {1, 4, 15, 16, 17, 33, 50}) {
    const size_t words = extent * GetParam().stride;
    kernel.Check({{WordsOf(words, [](size_t i) { return i * 77; }),
                   WordsOf(words, [](size_t i) { return i * 2654435761u >> 5; }),
                   {}},
                  {},
                  {extent, 1, 1}});
    if (HasFatalFailure() || HasNonfatalFailure()) {
      return;
    }
  }
  EXPECT_GT(kernel.unchecked_runs, 0u);
}

INSTANTIATE_TEST_SUITE_P(All, GangRecordTest,
                         ::testing::Values(Record{"pairs", 2, {1, 0}, 2}, Record{"threes", 3, {0, 2, 1}, 3},
                                           Record{"fours", 4, {0, 1, 2, 3}, 4}, Record{"five_of_six", 6, UpTo(5), 5},
                                           Record{"eights", 8, UpTo(8), 8}, Record{"at_the_end", 9, {8, 7, 6, 5, 4}, 1},
                                           Record{"thirteen", 13, UpTo(13), 7},
                                           Record{"with_gaps", 12, {0, 2, 3, 6, 7}, 4},
                                           Record{"eighteen", 18, UpTo(18), 18}, Record{"far_apart", 40, UpTo(33), 32}),
                         [](const auto& tested) { return tested.param.name; });

constexpr char kPlaces[] = "%bytes: i32 = const.i32 8\n%off: i32 = mul.i32 %id, %bytes\n%q: i32 = add.i32 %r, %off\n";

// Loads and stores of one record alternate, and two loads of one word surround a store.
TEST(GangRecordOrderTest, InPlace) {
  for (const char* body : {"%v0: i32 = load.i32 flat %q\n%s0: i32 = add.i32 %v0, %v\nstore.i32 flat %q, %s0\n"
                           "%v1: i32 = load.i32 flat %q + 4\n%s1: i32 = mul.i32 %v1, %s0\nstore.i32 flat %q + 4, %s1\n",
                           "%v1: i32 = load.i32 flat %q + 4\nstore.i32 flat %q, %v1\n%v0: i32 = load.i32 flat %q\n"
                           "%s1: i32 = add.i32 %v0, %seven\nstore.i32 flat %q + 4, %s1\n",
                           "store.i32 flat %q, %v\n%v1: i32 = load.i32 flat %q + 4\nstore.i32 flat %q + 4, %v\n"
                           "store.i32 flat %q, %v1\n"}) {
    SCOPED_TRACE(body);
    GangCompared kernel(KernelText(kPlaces + std::string(body) + "return ()\n"));
    for (const uint64_t extent : {1, 16, 40}) {
      kernel.Check(
          {{WordsOf(2 * extent, [](size_t i) { return i * 77; }), WordsOf(extent, [](size_t i) { return i; }), {}},
           {},
           {extent, 1, 1}});
    }
  }
}

// Rows have a record each, or share the record that they load and store.
TEST(GangRecordRowsTest, Agree) {
  const auto text = [](const std::string& row) {
    return KernelText("%y: i32 = instance_id.i32 %one\n%count: i32 = instance_count.i32 %zero\n%row: i32 = mul.i32 " +
                      row +
                      ", %count\n%all: i32 = add.i32 %row, %id\n%off: i32 = shl.i32 %all, %three\n"
                      "%q: i32 = add.i32 %r, %off\n%p: i32 = add.i32 %x, %off\n%a: i32 = load.i32 flat %p\n"
                      "%b: i32 = load.i32 flat %p + 4\n%c: i32 = sub.i32 %a, %b\nstore.i32 flat %q, %c\n"
                      "store.i32 flat %q + 4, %a\nreturn ()\n");
  };
  for (const char* row : {"%y", "%zero"}) {
    GangCompared kernel(text(row), /*is_refused=*/false, {{4, 2, 2}, {16, 1, 4}});
    for (const uint64_t rows : {1, 4, 6}) {
      kernel.Check(
          {{WordsOf(66 * rows, [](size_t) { return 0; }), WordsOf(66 * rows, [](size_t i) { return i * i; }), {}},
           {},
           {33, rows, 1}});
    }
  }
}

}  // namespace
}  // namespace hpvm::cpu
