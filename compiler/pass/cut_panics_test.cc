// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/cut_panics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/ir/text/text.h"
#include "compiler/ir/verify/verify.h"
#include "compiler/pass/library_name.h"

namespace hpvm::pass {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

struct Result {
  std::string entry;
  std::vector<ir::SourceLocation> places;
};

// The entry calls f1 where its parameter is 9; its last argument is `constant`.
Result CutIn(const std::string& functions, const std::string& head = "", const std::string& constant = "64") {
  const StatusOr<ir::Module> parsed = ir::ParseModule(
      "module \"m\"\nmemory 65536 65536\n" + head +
      "param buffer inout \"b\"\nparam i32 \"n\"\nentry f0\n"
      "func f0 \"k\" (%b: i32, %n: i32) -> () {\n %nine: i32 = const.i32 9\n %bad: i32 = eq.i32 %n, %nine\n"
      " if b0 %bad {\n %at: i32 = const.i32 " +
      constant +
      "\n %r: i32 = call f1 (%n, %at) @77\n"
      " store.i32 flat %b, %r @80\n br b0 ()\n } else {\n br b0 ()\n }\n store.i32 flat %b, %n @90\n return "
      "()\n}\n" +
      functions);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  ir::Module module = *parsed;
  EXPECT_THAT(ir::Verify(module), IsEmpty()) << ToString(ir::Verify(module));
  Result result;
  result.places = CutPanics(module);
  EXPECT_THAT(ir::Verify(module), IsEmpty()) << ToString(ir::Verify(module));
  result.entry = ir::Print(module, module.entry);
  return result;
}

std::string Func(int index, const std::string& name, const std::string& body) {
  return "func f" + std::to_string(index) + " \"" + name + "\" (%x: i32, %y: i32) -> (i32) {\n" + body + "}\n";
}

std::string ManyOps() {
  std::string text;
  for (uint32_t i = 0; i < kPanicOpsMin; ++i) {
    text += " store.i32 flat %x, %y\n";
  }
  return text;
}

// A library's panic becomes the trap that it ends in, at the call's place; the code after the call is removed.
TEST(CutPanicsTest, LibraryPanicsBecomeTraps) {
  const Result result = CutIn(Func(1, "core::panicking::panic", " %z: i32 = call f2 (%x, %y) @5\n return (%z)\n") +
                              Func(2, "rust_panic", " store.i32 flat %x, %y\n trap 1 @9\n"));
  EXPECT_THAT(result.entry, HasSubstr("trap 1 @77"));
  EXPECT_THAT(result.entry, Not(HasSubstr("call")));
  EXPECT_THAT(result.entry, Not(HasSubstr("@80")));
  EXPECT_THAT(result.entry, HasSubstr("@90"));
  EXPECT_THAT(result.places, IsEmpty());
}

// Calls that are observable, or may return, remain; so do calls of an author's function that is small, or may loop
// forever.
TEST(CutPanicsTest, WhatShowsStays) {
  struct Case {
    const char* what;
    std::string functions, head;
    bool is_cut;
  };
  const std::string spin = " loop b0 () {\n continue b0 ()\n }\n";
  const std::string traps = " trap 1\n";
  const std::string maybe = " if b0 %y {\n br b0 ()\n } else {\n trap 1\n }\n return (%x)\n";
  const Case cases[] = {
      {"small, the author's", Func(1, "give_up", traps), "", false},
      {"large, the author's", Func(1, "give_up", ManyOps() + traps), "", true},
      {"large by what it calls",
       Func(1, "give_up", " %z: i32 = call f2 (%x, %y)\n return (%z)\n") + Func(2, "g", ManyOps() + traps), "", true},
      {"returns", Func(1, "core::f", maybe), "", false},
      {"a callee returns", Func(1, "core::f", " %z: i32 = call f2 (%x, %y)\n return (%z)\n") + Func(2, "g", maybe), "",
       false},
      {"fails an assertion", Func(1, "core::f", " trap 10\n"), "", false},
      {"prints", Func(1, "core::f", " print p0 (%x)\n" + traps), "format \"%d\"\n", false},
      {"atomic", Func(1, "core::f", " %z: i32 = atomic_add.i32 flat %x, %y\n" + traps), "", false},
      {"calls itself for ever",
       Func(1, "core::f",
            " if b0 %y {\n br b0 ()\n } else {\n trap 1\n }\n"
            " %z: i32 = call f1 (%x, %y)\n return (%z)\n"),
       "", true},
      {"may loop for ever, the author's",
       Func(1, "f", ManyOps() + " if b1 %y {\n" + spin + " br b1 ()\n } else {\n trap 1\n }\n return (%x)\n"), "",
       false},
      {"only loops", Func(1, "core::f", spin + " trap 1\n"), "", true},
  };
  for (const Case& item : cases) {
    const Result result = CutIn(item.functions, item.head);
    EXPECT_EQ(result.entry.find("call f1") == std::string::npos, item.is_cut) << item.what << "\n" << result.entry;
  }
}

// Rust passes the place to its panics as a constant: the file's name and its length, line, column.
TEST(CutPanicsTest, FindsRustsPlaces) {
  const std::string panic = Func(1, "_ZN4core9panicking5panic17h0123456789abcdefE", " trap 1\n");
  const auto place_of = [&](const std::string& file, uint8_t line) {
    // The record is at 64, the name at 80.
    std::string hex = "50000000";
    const char* digits = "0123456789abcdef";
    const auto byte = [&](uint8_t value) {
      hex += digits[value >> 4];
      hex += digits[value & 15];
    };
    byte(static_cast<uint8_t>(file.size()));
    hex += "000000";
    byte(line);
    hex +=
        "000000"
        "05000000";
    for (const char c : file) {
      byte(static_cast<uint8_t>(c));
    }
    return CutIn(panic, "data 64 \"" + hex + "\"\n").places;
  };
  const std::vector<ir::SourceLocation> found = place_of("src/k.rs", 17);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].source, 77u);
  EXPECT_EQ(found[0].file, "src/k.rs");
  EXPECT_EQ(found[0].line, 17u);
  EXPECT_EQ(found[0].column, 5u);
  EXPECT_THAT(place_of("src/k.rs", 0), IsEmpty());
  EXPECT_THAT(place_of("src/k.c", 17), IsEmpty());
  EXPECT_THAT(place_of("sr\nc/k.rs", 17), IsEmpty());
  EXPECT_THAT(place_of("/rustc/0123/library/core/src/option.rs", 17), IsEmpty());
  EXPECT_THAT(place_of("library/core/src/option.rs", 17), IsEmpty());
  // Beyond the segment, and beyond every address.
  EXPECT_THAT(CutIn(panic, "data 64 \"50000000ff0000001100000005000000\"\n").places, IsEmpty());
  EXPECT_THAT(CutIn(panic, "", "-1").places, IsEmpty());
}

TEST(LibraryNameTest, TellsLibrariesByTheirNames) {
  for (const char* name :
       {"core::panicking::panic", "_ZN4core9panicking5panic17h0123456789abcdefE", "rust_begin_unwind",
        "_ZN59_$LT$core..fmt..Arguments$u20$as$u20$core..fmt..Display$GT$3fmt17h18b4d4e055822751E",
        "_RNvNtCs1234_4core9panicking5panic", "_ZNSt6vectorIiE4growEv", "__rust_alloc"}) {
    EXPECT_TRUE(IsLibraryName(name)) << name;
  }
  for (const char* name : {"", "_ZN", "_R", "_RNvCs", "blur", "_ZN4blur4core17h0123456789abcdefE",
                           "_RNvCs12_4blur4core", "my_core::f", "_ZN9"}) {
    EXPECT_FALSE(IsLibraryName(name)) << name;
  }
}

}  // namespace
}  // namespace hpvm::pass
