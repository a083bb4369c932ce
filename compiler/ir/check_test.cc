// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/check.h"

#include <array>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/text/text.h"

namespace hpvm::ir {
namespace {

// Kernels have buffers x (in) and y (inout), a number n, %zero, %one, %four, the instance's id %i, and 4 * %i in %o.
std::string Kernel(const std::string& body, const std::string& directives = "", const std::string& functions = "") {
  return "module \"m\"\nmemory 65536 65536\n" + directives +
         "param buffer in \"x\"\nparam buffer inout \"y\"\nparam i32 \"n\"\nentry f0\n"
         "func f0 \"kernel\" (%x: i32, %y: i32, %n: i32) -> () {\n"
         "%zero: i32 = const.i32 0\n%one: i32 = const.i32 1\n%four: i32 = const.i32 4\n"
         "%i: i32 = instance_id.i32 %zero\n%o: i32 = mul.i32 %i, %four\n%l: i64 = extend_u.i32 %i\n" +
         body + "\nreturn ()\n}\n" + functions;
}

struct Setting {
  std::array<uint64_t, 3> extent{4, 1, 1}, group{1, 1, 1};
  bool y_is_output = false;
  uint64_t n = 0;
  uint32_t findings_max = 100;
  uint64_t record_bytes_max = uint64_t{1} << 30;
  bool is_shared = false;  // x is the part of y from its byte 8 on.
};

struct Outcome {
  Module module;
  std::vector<Finding> findings;
  TrapReport trap;
  bool is_complete = true;
  uint64_t dropped = 0;
};

Outcome Check(const std::string& text, const Setting& setting = {}) {
  Outcome outcome;
  StatusOr<Module> module = ParseModule(text);
  EXPECT_TRUE(module.ok()) << text << module.status();
  if (!module.ok()) {
    return outcome;
  }
  outcome.module = *std::move(module);
  std::vector<uint64_t> x(2048), y(2048);
  Checker checker({.is_output = {false, setting.y_is_output},
                   .findings_max = setting.findings_max,
                   .record_bytes_max = setting.record_bytes_max});
  Launch launch;
  launch.extent = setting.extent;
  launch.group = setting.group;
  launch.checker = &checker;
  uint8_t* const data = reinterpret_cast<uint8_t*>(y.data());
  launch.arguments = {{setting.is_shared ? data + 8 : reinterpret_cast<uint8_t*>(x.data()), 16376, 0},
                      {data, 16384, 0},
                      {nullptr, 0, setting.n}};
  const StatusOr<TrapReport> report = Interpret(outcome.module, launch);
  EXPECT_TRUE(report.ok()) << report.status();
  outcome.trap = report.ok() ? *report : TrapReport{};
  outcome.findings = checker.findings();
  outcome.is_complete = checker.is_complete();
  outcome.dropped = checker.dropped();
  return outcome;
}

std::string Short(const FindingLocation& place) {
  return ' ' + std::to_string(place.instance[0]) +
         (place.has_ended ? " ended"
                          : std::string(place.is_atomic ? "a" : "") + (place.is_write ? "w" : "r") + "@" +
                                std::to_string(place.source));
}

// Returns one line such as "race y:4 0w@11 1r@12" per finding.
std::string Short(const Outcome& outcome) {
  std::string text;
  for (const Finding& finding : outcome.findings) {
    constexpr const char* kKinds[] = {"race", "unwritten", "wrong", "missed"};
    const std::string offset = ':' + std::to_string(finding.offset);
    text += text.empty() ? "" : "\n";
    text += kKinds[static_cast<size_t>(finding.kind)];
    text += finding.memory == FindingMemory::kBuffer   ? ' ' + outcome.module.params[finding.param].name + offset
            : finding.memory == FindingMemory::kGroup  ? " group" + offset
            : finding.memory == FindingMemory::kModule ? " module" + offset
                                                       : "";
    text += finding.kind == FindingKind::kWrongBuffer ? " from " + outcome.module.params[finding.through].name : "";
    text += Short(finding.first) + (finding.second.has_value() ? Short(*finding.second) : "");
  }
  return text;
}

struct Case {
  const char* name;
  std::string body;
  const char* want;
};

std::string OnlyIf(const std::string& condition, const std::string& then, const std::string& otherwise = "") {
  return "if b" + condition.substr(1) + " " + condition + " {\n" + then + "\nbr b" + condition.substr(1) +
         " ()\n} else {\n" + otherwise + "\nbr b" + condition.substr(1) + " ()\n}";
}

// Accesses race when nothing orders their instances, at least one writes, and at least one is not atomic.
TEST(CheckTest, Races) {
  const Case cases[] = {
      {"OwnWords", "%v: i32 = load.i32 flat %x\nstore.i32 param(1) %o, %v", ""},
      {"WriteWrite", "store.i32 flat %y + 8, %i @11", "race y:8 0w@11 1w@11"},
      {"ReadOfNext", "%v: i32 = load.i32 param(1) %o + 4 @11\nstore.i32 param(1) %o, %v @12", "race y:4 0r@11 1w@12"},
      {"ReadOfPrevious", "%v: i32 = load.i32 param(1) %o @11\nstore.i32 param(1) %o + 4, %v @12",
       "race y:4 0w@12 1r@11"},
      {"Atomics", "%v: i32 = atomic_add.i32 flat %y, %one\n%w: i32 = atomic_load.i32 flat %y", ""},
      {"AtomicThenWrite", "%v: i32 = atomic_add.i32 flat %y, %one @11\n" + OnlyIf("%i", "store.i32 flat %y, %v @12"),
       "race y:0 0aw@11 1w@12\nrace y:0 1w@12 2w@12"},
      {"AtomicThenRead",
       "%v: i32 = atomic_add.i32 flat %y, %one @11\n" + OnlyIf("%i", "%w: i32 = load.i32 flat %y @12"),
       "race y:0 0aw@11 1r@12"},
      {"ReadThenAtomic", "%v: i32 = load.i32 flat %y @11\n%w: i32 = atomic_add.i32 flat %y, %one @12",
       "race y:0 0aw@12 1r@11"},
      {"AtomicReadAndRead", "%v: i32 = load.i32 flat %y\n%w: i32 = atomic_load.i32 flat %y", ""},
      {"AtomicReadAndWrite",
       "%v: i32 = atomic_load.i32 flat %y @11\n%three: i32 = const.i32 3\n%is_last: i32 = eq.i32 %i, %three\n" +
           OnlyIf("%is_last", "store.i32 flat %y, %v @12"),
       "race y:0 2ar@11 3w@12"},
      {"HalvesOfAWord", "%p: i32 = add.i32 %i, %y\nstore.i32 w2 flat %p, %i @11", "race y:1 0w@11 1w@11"},
      {"BytesOfAWord", "%p: i32 = add.i32 %i, %y\nstore.i32 w1 flat %p, %i", ""},
      {"WordThenByte", OnlyIf("%i", "store.i32 w1 flat %y + 4103, %i @12", "store.i64 flat %y + 4096, %l @11"),
       "race y:4103 0w@11 1w@12\nrace y:4103 1w@12 2w@12"},
      {"AcrossPages", "store.i64 flat %y + 4092, %l @11", "race y:4092 0w@11 1w@11"},
      {"Wide", OnlyIf("%i", "store.i32 flat %y + 28, %i @12", "store128 flat %y + 16, %i, %i, %i, %i @11"),
       "race y:28 0w@11 1w@12\nrace y:28 1w@12 2w@12"},
      {"Copy", "%p: i32 = add.i32 %o, %y\n%eight: i32 = const.i32 8\nmemory_copy %p, %x, %eight @11",
       "race y:4 0w@11 1w@11"},
      {"CopyOut", "store.i32 param(1) %o, %i @11\nmemory_copy %zero, %y, %four @12", "race y:0 0w@11 1r@12"},
      {"Fill", "%p: i32 = add.i32 %o, %y\nmemory_fill %p, %one, %n @11", "race y:4 0w@11 1w@11"},
      {"ReadsOfAll", "%v: i32 = load.i32 flat %x\n%w: i32 = load.i32 flat %y\nmemory_copy %zero, %y, %four", ""},
      {"OwnRepeated", "store.i32 param(1) %o, %i\n%v: i32 = load.i32 param(1) %o\nstore.i32 param(1) %o, %v", ""},
      {"Private", "store.i32 flat %zero, %i\n%v: i32 = load.i32 flat %zero\nstore.i32 state %zero, %v", ""},
  };
  for (const Case& c : cases) {
    const Outcome outcome = Check(Kernel(c.body, "state 8\n"), {.n = 5});
    EXPECT_EQ(Short(outcome), c.want) << c.name;
    EXPECT_EQ(outcome.trap.code, TrapCode::kNone) << c.name;
  }
}

// The same pair of operations is one finding with a count.
TEST(CheckTest, CountsTheSamePair) {
  const Outcome outcome = Check(Kernel("store.i32 flat %y, %i"), {.extent = {10, 1, 1}});
  ASSERT_EQ(outcome.findings.size(), 1u);
  EXPECT_EQ(outcome.findings[0].count, 9u);
}

// Accesses through two parameters that are bound to the same bytes race.
TEST(CheckTest, RacesThroughTwoParameters) {
  const std::string text = Kernel("%v: i32 = load.i32 param(0) %o @11\nstore.i32 param(1) %o + 4, %v @12");
  EXPECT_EQ(Short(Check(text)), "");
  EXPECT_EQ(Short(Check(text, {.is_shared = true})), "race y:8 0r@11 1w@12");
}

constexpr char kGrouped[] = "uses barrier\nuses group_memory\n";

// Instance i writes its word and reads its neighbour's, in a group of two.
std::string Exchange(const std::string& between) {
  return Kernel("store.i32 param(1) %o, %i @11\n" + between +
                    "\n%other: i32 = xor.i32 %o, %four\n%v: i32 = load.i32 param(1) %other @12",
                kGrouped);
}

// A barrier orders only the instances of its group.
TEST(CheckTest, BarriersOrder) {
  EXPECT_EQ(Short(Check(Exchange("barrier"), {.group = {2, 1, 1}})), "");
  EXPECT_EQ(Short(Check(Exchange("barrier"), {.group = {1, 1, 1}})), "race y:4 0r@12 1w@11");
  EXPECT_EQ(Short(Check(Exchange(""), {.group = {2, 1, 1}})), "race y:4 0r@12 1w@11");
}

// Accesses that are ordered within one group still race with later groups, however long ago they happened.
TEST(CheckTest, RacesAcrossBarriers) {
  const std::string lead =
      "%me: i32 = local_id.i32 %zero\n%g: i32 = group_id.i32 %zero\n"
      "%first: i32 = eqz.i32 %me\n";
  const Case cases[] = {
      // Every instance reads; after the barrier the first instance of the group writes.
      {"OwnGroup",
       "%p: i32 = mul.i32 %g, %four\n%v: i32 = load.i32 param(1) %p @11\nbarrier\n" +
           OnlyIf("%first", "store.i32 param(1) %p, %v @12"),
       ""},
      {"Shared", "%v: i32 = load.i32 flat %y @11\nbarrier\n" + OnlyIf("%first", "store.i32 flat %y, %v @12"),
       "race y:0 0w@12 2r@11\nrace y:0 0w@12 2w@12"},
      // Group 0 only reads, before any barrier; group 1 writes after two barriers.
      {"LateWrite",
       OnlyIf("%g", "", "%v: i32 = load.i32 flat %y @11") + "\nbarrier\nbarrier\n" +
           "%late: i32 = and.i32 %g, %first\n" + OnlyIf("%late", "store.i32 flat %y, %i @12"),
       "race y:0 0r@11 2w@12"},
      // Both instances of group 0 read, then the second writes: only the first reader conflicts.
      {"OtherReader",
       "%p: i32 = mul.i32 %g, %four\n%v: i32 = load.i32 param(1) %p @11\n" +
           OnlyIf("%me", "store.i32 param(1) %p, %v @12"),
       "race y:0 0r@11 1w@12"},
      {"AtomicsInGroups", "%v: i32 = atomic_add.i32 flat %y, %one @11\nbarrier\n%w: i32 = load.i32 flat %y @12",
       "race y:0 0r@12 2aw@11"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(Short(Check(Kernel(lead + c.body, kGrouped), {.group = {2, 1, 1}})), c.want) << c.name;
  }
}

// Group memory is private to a group; the language zeroes it, but it counts as unwritten.
TEST(CheckTest, GroupMemory) {
  const std::string lead =
      "%n32: i32 = const.i32 32\n%p: i32 = local_alloc %n32\n%q: i32 = add.i32 %p, %o\n"
      "%me: i32 = local_id.i32 %zero\n%mine: i32 = mul.i32 %me, %four\n"
      "%own: i32 = add.i32 %p, %mine\n";
  const Case cases[] = {
      {"Own", "store.i32 group %own, %i\n%v: i32 = load.i32 group %own", ""},
      {"Race", "store.i32 flat %p, %i @11", "race group:0 0w@11 1w@11"},
      {"Unwritten", "%v: i32 = load.i32 group %own + 16 @11", "unwritten group:16 0r@11"},
      {"WrittenByTheGroupBefore", OnlyIf("%i", "%v: i32 = load.i32 flat %own @11", "store.i32 flat %p, %i @12"),
       "unwritten group:4 1r@11"},
      {"AtomicUpdate", "%v: i32 = atomic_add.i32 group %p, %one @11", ""},
      {"AtomicStore", "atomic_store.i32 group %p, %one\n%v: i32 = atomic_add.i32 group %p, %one @11", ""},
      {"Fill", "memory_fill %own, %zero, %four\nbarrier\n%v: i64 = load.i64 group %p", ""},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(Short(Check(Kernel(lead + c.body, kGrouped), {.group = {2, 1, 1}})), c.want) << c.name;
  }
}

// Reads of unwritten bytes of an output-only buffer are found.
TEST(CheckTest, UnwrittenOutputs) {
  const Case cases[] = {
      {"Read", "%v: i32 = load.i32 param(1) %o @11", "unwritten y:0 0r@11"},
      {"AtomicUpdate", "%v: i32 = atomic_add.i32 param(1) %o, %one @11", ""},
      {"AtomicRead", "%v: i32 = atomic_load.i32 param(1) %o @11", ""},
      {"ReadAfterWrite", "store.i32 param(1) %o, %i\n%v: i32 = load.i32 param(1) %o", ""},
      {"ReadBeforeWrite", "%v: i32 = load.i32 param(1) %o @11\nstore.i32 param(1) %o, %i", "unwritten y:0 0r@11"},
      {"Half", "store.i32 w2 param(1) %o, %i\n%v: i32 = load.i32 param(1) %o @11", "unwritten y:2 0r@11"},
      {"Input", "%v: i32 = load.i32 param(0) %o", ""},
      {"Copy", "store.i32 flat %y, %i @10\n%eight: i32 = const.i32 8\nmemory_copy %zero, %y, %eight @11",
       "unwritten y:4 0r@11\nrace y:0 0w@10 1w@10"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(Short(Check(Kernel(c.body), {.y_is_output = true})), c.want) << c.name;
  }
  EXPECT_EQ(Short(Check(Kernel(cases[0].body))), "");
  // Bytes that another parameter is bound to, as well, have that parameter's content.
  EXPECT_EQ(Short(Check(Kernel(cases[0].body), {.y_is_output = true, .is_shared = true})), "");
}

// Reads of unwritten bytes of the current frame are found on the stack that stack_pointer's global points to.
TEST(CheckTest, UnwrittenStack) {
  const std::string lead =
      "%sp: i32 = global_get.i32 g0\n%n16: i32 = const.i32 16\n%f: i32 = sub.i32 %sp, %n16\n"
      "global_set.i32 g0 %f\n";
  const Case cases[] = {
      {"Read", "%v: i32 = load.i32 flat %f + 4 @11\n%w: i32 = add.i32 %v, %one", "unwritten module:4084 0r@11"},
      {"Written",
       "store.i32 flat %f + 4, %i\n%v: i32 = load.i32 flat %f + 4\n%u: i32 = add.i32 %v, %one\n"
       "%w: i64 = load.i64 flat %f\n%t: i64 = add.i64 %w, %w",
       ""},
      {"NextWord", "store.i32 flat %f + 4, %i\n%v: i32 = load.i32 module %f + 8 @11\n%w: i32 = eqz.i32 %v",
       "unwritten module:4088 0r@11"},
      {"Below",
       "%v: i32 = load.i32 flat %f + 16\n%b: i32 = sub.i32 %f, %n16\n%w: i32 = load.i32 flat %b\n"
       "%u: i32 = add.i32 %v, %w",
       ""},
      {"PoppedAndPushed",
       "store.i32 flat %f, %i\nglobal_set.i32 g0 %sp\nglobal_set.i32 g0 %f\n%v: i32 = load.i32 flat %f @11\n"
       "store.i32 param(1) %o, %v",
       "unwritten module:4080 0r@11"},
      {"WrittenBelowThenPushed",
       "%b: i32 = sub.i32 %f, %n16\nstore.i32 flat %b, %i\nglobal_set.i32 g0 %b\n%v: i32 = load.i32 flat %b @11\n"
       "%w: i32 = add.i32 %v, %one",
       "unwritten module:4064 0r@11"},
      {"KeptUnderAFrame",
       "store.i32 flat %f, %i\n%b: i32 = sub.i32 %f, %n16\nglobal_set.i32 g0 %b\nglobal_set.i32 g0 %f\n"
       "%v: i32 = load.i32 flat %f\n%w: i32 = add.i32 %v, %one",
       ""},
      {"CopiesPassItOn",
       "store.i32 flat %f, %i\n%eight: i32 = const.i32 8\n%t: i32 = add.i32 %f, %eight\nmemory_copy %t, %f, %eight\n"
       "%v: i32 = load.i32 flat %f + 8\n%w: i32 = load.i32 flat %f + 12 @11\n%u: i32 = add.i32 %v, %w",
       "unwritten module:4092 0r@11"},
      {"StoresPassItOn",
       "%v: i32 = load.i32 flat %f\nstore.i32 flat %f + 8, %v\n%w: i32 = load.i32 flat %f + 8 @11\n"
       "store.i32 param(1) %o, %w",
       "unwritten module:4088 0r@11"},
      {"MovesAreNoUse",
       "%v: i32 = load.i32 flat %f\n%w: i32 = block b0 () {\n%s: i32 = select.i32 %one, %v, %i\nbr b0 (%s)\n}\n"
       "%r: i32 = call f1 (%w)\nstore.i32 flat %f + 8, %r",
       ""},
      {"AfterMoves",
       "%v: i32 = load.i32 flat %f @11\n%w: i32 = block b0 () {\n%s: i32 = select.i32 %one, %v, %i\nbr b0 (%s)\n}\n"
       "%r: i32 = call f1 (%w)\nif b1 %r {\nbr b1 ()\n} else {\nbr b1 ()\n}",
       "unwritten module:4080 0r@11"},
      {"Address", "%v: i32 = load.i32 flat %f @11\n%w: i32 = load.i32 flat %v", "unwritten module:4080 0r@11"},
      {"UsedTwice", "%v: i32 = load.i32 flat %f @11\n%w: i32 = add.i32 %v, %v\n%u: i32 = add.i32 %v, %one",
       "unwritten module:4080 0r@11"},
      {"Lanes",
       "store.i32 flat %f + 4, %i\n%a: i32, %b: i32, %c: i32, %d: i32 = load128 flat %f @11\n"
       "store128 flat %f, %b, %c, %b, %b\n%v: i64 = load.i64 flat %f + 8\n%w: i64 = add.i64 %v, %l\n"
       "%u: i32 = load.i32 flat %f + 4 @12\n%t: i32 = add.i32 %u, %one",
       "unwritten module:4084 0r@12"},
      {"CopyFromBuffer",
       "%eight: i32 = const.i32 8\nmemory_copy %f, %x, %eight\n%v: i32 = load.i32 flat %f + 4\n"
       "%w: i32 = add.i32 %v, %one",
       ""},
  };
  const std::string same = "func f1 \"same\" (%v: i32) -> (i32) {\nreturn (%v)\n}\n";
  for (const Case& c : cases) {
    const std::string global = "global mut i32 0x1000\n";
    const Outcome outcome = Check(Kernel(lead + c.body, global + "stack_pointer g0\n", same));
    EXPECT_EQ(Short(outcome), c.want) << c.name;
    EXPECT_EQ(outcome.findings.empty() ? 4 : outcome.findings[0].count, 4u) << c.name;  // Once per instance.
    // Nothing is found when the stack's location is unknown.
    EXPECT_EQ(Short(Check(Kernel(lead + c.body, global, same))), "") << c.name;
  }
}

// x lies at 131072, 16376 bytes long; y at 262144, 16384 bytes long.
TEST(CheckTest, WrongBuffers) {
  const std::string lead = "%d: i32 = const.i32 131072\n%md: i32 = const.i32 -131072\n%x1: i32 = add.i32 %x, %o\n";
  const Case cases[] = {
      {"Within", "%v: i32 = load.i32 flat %x1", ""},
      {"OtherBuffer", "%p: i32 = add.i32 %x1, %d\nstore.i32 flat %p, %i @11", "wrong y:0 from x 0w@11"},
      {"Immediate", "%v: i32 = load.i32 flat %x1 + 131072 @11", "wrong y:0 from x 0r@11"},
      {"Offset", "%v: i32 = load.i32 param(0) %o + 131072 @11", "wrong y:0 from x 0r@11"},
      {"Module", "%p: i32 = add.i32 %md, %x1\n%v: i32 = load.i32 flat %p @11", "wrong module:0 from x 0r@11"},
      {"Subtracted", "%p: i32 = sub.i32 %x1, %d\n%v: i32 = load.i32 flat %p @11", "wrong module:0 from x 0r@11"},
      {"Number", "%p: i32 = add.i32 %d, %o\n%v: i32 = load.i32 flat %p", ""},
      {"Distance", "%e: i32 = sub.i32 %y, %x\n%p: i32 = add.i32 %x1, %e\nstore.i32 flat %p, %i", ""},
      {"WrongDistance",
       "%e: i32 = sub.i32 %x, %y\n%p: i32 = add.i32 %y, %e\n%q: i32 = add.i32 %p, %d\n"
       "%v: i32 = load.i32 flat %q @11",
       "wrong y:0 from x 0r@11"},
      {"Aligned", "%m: i32 = const.i32 -16\n%p: i32 = and.i32 %x1, %m\n%v: i32 = load.i32 flat %p + 131072 @11",
       "wrong y:0 from x 0r@11"},
      {"Hashed",
       "%m: i32 = const.i32 255\n%p: i32 = and.i32 %x1, %m\n%v: i32 = load.i32 flat %p\n"
       "%s: i32 = shr_u.i32 %x, %four\n%w: i32 = load.i32 flat %s",
       ""},
      {"Chosen", "%p: i32 = select.i32 %n, %x, %y\n%v: i32 = load.i32 flat %p + 131072 @11", "wrong y:0 from x 0r@11"},
      {"Loop",
       "%r: i32 = loop again (%p: i32 = %x) {\n%q: i32 = add.i32 %p, %d\nbr again (%q)\n}\n"
       "%v: i32 = load.i32 flat %r @11",
       "wrong y:0 from x 0r@11"},
      {"Called", "%p: i32 = call f1 (%d, %x)\n%v: i32 = load.i32 flat %p @11", "wrong y:0 from x 0r@11"},
      {"CalledThroughReference", "%p: i32 = call_ref r0 (%one, %d, %x)\n%v: i32 = load.i32 flat %p @11",
       "wrong y:0 from x 0r@11"},
      {"Global", "global_set.i32 g0 %x\n%p: i32 = global_get.i32 g0\n%v: i32 = load.i32 flat %p + 131072 @11",
       "wrong y:0 from x 0r@11"},
      {"Stored",
       "store.i32 flat %zero + 8, %x\n%p: i32 = load.i32 flat %zero + 8\n"
       "%v: i32 = load.i32 flat %p + 131072 @11",
       "wrong y:0 from x 0r@11"},
      {"StoredOver",
       "store.i32 flat %zero + 8, %x\nstore.i32 w1 flat %zero + 11, %zero\n"
       "%p: i32 = load.i32 flat %zero + 8\n%v: i32 = load.i32 flat %p + 131072",
       ""},
      {"StoredAndCopied",
       "store.i32 flat %zero + 8, %x\n%n8: i32 = const.i32 8\n%n64: i32 = const.i32 64\nmemory_copy %n64, %n8, %four\n"
       "%p: i32 = load.i32 flat %n64\n%v: i32 = load.i32 flat %p + 131072 @11",
       "wrong y:0 from x 0r@11"},
      {"CopyTarget", "%p: i32 = add.i32 %x, %d\n%t: i32 = add.i32 %p, %o\nmemory_copy %t, %x, %four @11",
       "wrong y:0 from x 0w@11"},
      {"CopySource", "%p: i32 = add.i32 %x, %d\nmemory_copy %zero, %p, %four @11", "wrong y:0 from x 0r@11"},
  };
  for (const Case& c : cases) {
    const std::string text =
        Kernel(lead + c.body, "global mut i32 0x0\nreftype (i32, i32) -> (i32)\nref f1 r0\n",
               "func f1 \"sum\" (%a: i32, %b: i32) -> (i32) {\n%c: i32 = add.i32 %a, %b\nreturn (%c)\n}\n");
    const Outcome outcome = Check(text, {.extent = {1, 1, 1}, .n = 1});
    EXPECT_EQ(Short(outcome), c.want) << c.name;
    EXPECT_EQ(outcome.trap.code, TrapCode::kNone) << c.name;
  }
}

// Each instance that misses a barrier is reported, with the place where it waits instead.
TEST(CheckTest, MissedBarriers) {
  const std::string three = "%three: i32 = const.i32 3\n%last: i32 = eq.i32 %i, %three\n";
  const Outcome ended = Check(Kernel(three + OnlyIf("%last", "", "barrier @11"), kGrouped), {.group = {4, 1, 1}});
  EXPECT_EQ(Short(ended), "missed 0r@11 3 ended");
  EXPECT_EQ(ended.trap.code, TrapCode::kBarrierDivergence);
  EXPECT_EQ(ended.trap.source, 11u);
  const Outcome elsewhere =
      Check(Kernel(three + OnlyIf("%last", "barrier @12", "barrier @11"), kGrouped), {.group = {4, 1, 1}});
  EXPECT_EQ(Short(elsewhere), "missed 0r@11 3r@12");
  EXPECT_EQ(elsewhere.trap.code, TrapCode::kBarrierDivergence);
}

// Without a check the first instance that traps is reported; with a check, the lowest.
TEST(CheckTest, TheLowestTrapIsReported) {
  // A launch of 4 x 2 in groups of 2 x 2: (0, 1) belongs to the first group and comes after (2, 0) and (3, 0).
  const std::string trap_at =
      "%j: i32 = instance_id.i32 %one\n%k: i32 = mul.i32 %j, %four\n%at: i32 = add.i32 %i, %k\n"
      "%late: i32 = ge_u.i32 %at, %n\n";
  for (const char* uses : {"uses barrier\n", "uses group_memory\n", ""}) {
    for (uint64_t n = 1; n < 8; ++n) {
      const Outcome outcome = Check(Kernel(trap_at + OnlyIf("%late", "%q: i32 = div_u.i32 %i, %zero"), uses),
                                    {.extent = {4, 2, 1}, .group = {2, 2, 1}, .n = n});
      EXPECT_EQ(outcome.trap.code, TrapCode::kDivideByZero);
      EXPECT_EQ(outcome.trap.instance, (std::array<uint64_t, 3>{n % 4, n / 4, 0})) << uses << n;
    }
  }
}

// A launch with too many kinds of faults keeps the first ones, and reports that there were more.
TEST(CheckTest, FindingsAreLimited) {
  std::string body;
  for (int i = 0; i < 20; ++i) {
    body += "store.i32 flat %y + " + std::to_string(4 * i) + ", %i @" + std::to_string(100 + i) + "\n";
  }
  const Outcome outcome = Check(Kernel(body), {.extent = {2, 1, 1}, .findings_max = 3});
  EXPECT_EQ(Short(outcome), "race y:0 0w@100 1w@100\nrace y:4 0w@101 1w@101\nrace y:8 0w@102 1w@102");
  EXPECT_EQ(outcome.dropped, 17u);
}

// The record's memory is limited; accesses beyond it are not judged, and the check reports that it is incomplete.
TEST(CheckTest, TheRecordIsLimited) {
  const std::string text = Kernel(
      "store.i32 flat %y, %i @11\nstore.i32 flat %y + 8192, %i @12\n"
      "%v: i32 = load.i32 flat %y + 12288 @13");
  const Outcome all = Check(text, {.y_is_output = true});
  EXPECT_EQ(Short(all), "unwritten y:12288 0r@13\nrace y:0 0w@11 1w@11\nrace y:8192 0w@12 1w@12");
  EXPECT_TRUE(all.is_complete);
  const Outcome little = Check(text, {.y_is_output = true, .record_bytes_max = 30'000});
  EXPECT_EQ(Short(little), "race y:0 0w@11 1w@11");
  EXPECT_FALSE(little.is_complete);
  const Outcome words_only =
      Check(Kernel("store.i32 flat %y, %i @11\nstore.i32 w1 flat %y + 6, %i @12"), {.record_bytes_max = 30'000});
  EXPECT_EQ(Short(words_only), "race y:0 0w@11 1w@11");
  EXPECT_FALSE(words_only.is_complete);
}

// Findings read as sentences, with lines when the caller knows them.
TEST(CheckTest, Sentences) {
  const auto sentence = [](const Outcome& outcome) {
    return outcome.findings.empty() ? "" : ToString(outcome.findings[0], outcome.module);
  };
  const Outcome race = Check(Kernel("store.i32 flat %y, %i @11"));
  EXPECT_EQ(sentence(race),
            "race on byte 0 of buffer \"y\": instance (0, 0, 0) writes it (function \"kernel\", byte 11 of the module) "
            "and instance (1, 0, 0) writes it (function \"kernel\", byte 11 of the module), with no barrier between "
            "them");
  EXPECT_EQ(ToString(race.findings[0], race.module, [](uint32_t source) { return "a.c:" + std::to_string(source); }),
            "race on byte 0 of buffer \"y\": instance (0, 0, 0) writes it (function \"kernel\", a.c:11) and instance "
            "(1, 0, 0) writes it (function \"kernel\", a.c:11), with no barrier between them");
  EXPECT_EQ(sentence(Check(Kernel("%v: i32 = load.i32 flat %y + 4"), {.y_is_output = true})),
            "uninitialised read: instance (0, 0, 0) reads byte 4 of buffer \"y\", which nothing has written (function "
            "\"kernel\")");
  EXPECT_EQ(sentence(Check(Kernel("global_set.i32 g0 %four\n%v: i32 = load.i32 flat %four\n%w: i32 = eqz.i32 %v",
                                  "global mut i32 0x1000\nstack_pointer g0\n"))),
            "uninitialised read: instance (0, 0, 0) reads 4 bytes at 4 of its stack, which nothing has written "
            "(function \"kernel\")");
  EXPECT_EQ(sentence(Check(Kernel("store.i64 flat %x + 131080, %l @7"))),
            "wrong buffer: instance (0, 0, 0) writes 8 bytes at 8 of buffer \"y\" through an address computed from "
            "buffer \"x\" (function \"kernel\", byte 7 of the module)");
  EXPECT_EQ(sentence(Check(Kernel(OnlyIf("%i", "barrier @9"), kGrouped), {.group = {2, 1, 1}})),
            "missed barrier: instance (1, 0, 0) waits at a barrier (function \"kernel\", byte 9 of the module) and "
            "instance (0, 0, 0) has ended");
  EXPECT_EQ(sentence(Check(Kernel(OnlyIf("%i", "barrier @9", "barrier @8"), kGrouped), {.group = {2, 1, 1}})),
            "missed barrier: instance (0, 0, 0) waits at a barrier (function \"kernel\", byte 8 of the module) and "
            "instance (1, 0, 0) waits at another one (function \"kernel\", byte 9 of the module)");
}

// Only whole launches of kernels can be checked.
TEST(CheckTest, RefusesWhatItCannotTellApart) {
  StatusOr<Module> module = ParseModule("module \"m\"\nentry f0\nfunc f0 \"f\" () -> () {\nreturn ()\n}\n");
  ASSERT_TRUE(module.ok());
  Checker checker;
  Launch launch;
  launch.checker = &checker;
  launch.extent = {uint64_t{1} << 32, 1, 1};
  EXPECT_EQ(Message(Interpret(*module, launch).status()),
            "The launch has more instances or groups (4294967296) than a check can tell apart (4294967294).");
  launch.extent = {1, 1, 1};
  InstanceStorage storage;
  launch.instance = &storage;
  EXPECT_EQ(Message(Interpret(*module, launch).status()), "Only kernels' launches can be checked.");
}

}  // namespace
}  // namespace hpvm::ir
