// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/interpret/interpret.h"

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

#include "base/limits.h"
#include "compiler/ir/text/text.h"
#include "compiler/ir/verify/verify.h"

namespace hpvm::ir {
namespace {

Module Parse(const std::string& text) {
  StatusOr<Module> module = ParseModule(text);
  EXPECT_TRUE(module.ok()) << module.status();
  return module.ok() ? *std::move(module) : Module{};
}

Interpreter Load(const std::string& text) {
  StatusOr<Interpreter> interpreter = Interpreter::Create(Parse(text));
  if (!interpreter.ok()) {
    ADD_FAILURE() << interpreter.status();
    std::abort();
  }
  return *std::move(interpreter);
}

template <typename T>
Argument Of(std::vector<T>& elements) {
  return {reinterpret_cast<uint8_t*>(elements.data()), elements.size() * sizeof(T), 0};
}

// Adds 1 to y[instance], and atomically to the shared count y[extent].
constexpr char kCount[] = R"(module "count"
param buffer inout "y"
entry f0
func f0 "count" (%y: i32) -> () {
  %zero: i32 = const.i32 0
  %one: i32 = const.i32 1
  %four: i32 = const.i32 4
  %i: i32 = instance_id.i32 %zero
  %n: i32 = instance_count.i32 %zero
  %o: i32 = mul.i32 %i, %four
  %v: i32 = load.i32 param(0) %o
  %w: i32 = add.i32 %v, %one
  store.i32 param(0) %o, %w
  %no: i32 = mul.i32 %n, %four
  %old: i32 = atomic_add.i32 param(0) %no, %one
  return ()
}
)";

// A part of a launch runs exactly its instances.
TEST(InterpretTest, RunsTheChosenPart) {
  const Interpreter interpreter = Load(kCount);
  std::vector<int32_t> y(11);
  Launch launch;
  launch.extent = {10, 1, 1};
  launch.arguments = {Of(y)};
  ASSERT_TRUE(interpreter.Run(launch, {.begin = 3, .end = 6, .steps_max = 0}).ok());
  EXPECT_EQ(y, (std::vector<int32_t>{0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 3}));
  ASSERT_TRUE(interpreter.Run(launch, {.begin = 8, .end = 1000, .steps_max = 0}).ok());
  EXPECT_EQ(y, (std::vector<int32_t>{0, 0, 0, 1, 1, 1, 0, 0, 1, 1, 5}));
}

// Parts of one launch run on several threads: every instance runs once, and atomics are not torn.
TEST(InterpretTest, PartsRunOnSeveralThreads) {
  constexpr uint64_t kInstances = 20000, kThreads = 4;
  const Interpreter interpreter = Load(kCount);
  std::vector<int32_t> y(kInstances + 1);
  Launch launch;
  launch.extent = {kInstances, 1, 1};
  launch.arguments = {Of(y)};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const auto report = interpreter.Run(
          launch, {.begin = t * kInstances / kThreads, .end = (t + 1) * kInstances / kThreads, .steps_max = 0});
      EXPECT_TRUE(report.ok() && report->code == TrapCode::kNone);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  std::vector<int32_t> want(kInstances, 1);
  want.push_back(kInstances);
  EXPECT_EQ(y, want);
}

// Groups are the parts of a kernel that uses group memory, also where a group's instances are not contiguous.
TEST(InterpretTest, PartsOfGroupedKernelsAreGroups) {
  std::string text = kCount;
  text.insert(text.find("param"), "uses group_memory\n");
  const Interpreter interpreter = Load(text);
  std::vector<int32_t> y(5);
  Launch launch;
  launch.extent = {4, 3, 1};
  launch.group = {2, 2, 1};
  launch.arguments = {Of(y)};
  EXPECT_EQ(WorkUnits(interpreter.module(), launch), 4u);
  ASSERT_TRUE(interpreter.Run(launch, {.begin = 1, .end = 2, .steps_max = 0}).ok());
  EXPECT_EQ(y, (std::vector<int32_t>{0, 0, 2, 2, 4}));  // x is 2 or 3, y is 0 or 1.
}

constexpr char kEndless[] = R"(module "endless"
entry f0
func f0 "endless" () -> () {
  loop again () @40 {
    continue again () @44
  }
  trap 1
}
)";

// The limit on steps ends an endless loop.
TEST(InterpretTest, StepsAreLimited) {
  const auto report = Load(kEndless).Run({}, {.begin = 0, .end = 1, .steps_max = 1000});
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->code, TrapCode::kStopped);
  EXPECT_EQ(report->source, 44u);
}

// The stop word, set by another thread, soon ends an endless loop.
TEST(InterpretTest, StopWordEndsAnEndlessLoop) {
  const Interpreter interpreter = Load(kEndless);
  std::atomic<uint32_t> stop{0};
  Launch launch;
  launch.stop = &stop;
  std::thread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    stop = 1;
  });
  const auto report = interpreter.Run(launch);
  stopper.join();
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->code, TrapCode::kStopped);
}

// The stop word is also polled between instances that neither loop nor call.
TEST(InterpretTest, StopWordEndsManyShortInstances) {
  const Interpreter interpreter = Load("module \"m\"\nentry f0\nfunc f0 \"f\" () -> () {\n  return ()\n}\n");
  const std::atomic<uint32_t> stop{1};
  Launch launch;
  launch.extent = {~uint64_t{0}, 1, 1};
  launch.stop = &stop;
  const auto report = interpreter.Run(launch);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->code, TrapCode::kStopped);
}

// An instance with a gigabyte of module memory costs only what it touches: a copy per instance would take minutes.
TEST(InterpretTest, LargeMemoryIsNotCopied) {
  const Interpreter interpreter = Load(R"(module "large"
memory 1073741824 1073741824
data 1000000000 "07000000"
param buffer inout "y"
entry f0
func f0 "large" (%y: i32) -> () {
  %p: i32 = const.i32 1000000000
  %v: i32 = load.i32 module %p
  %one: i32 = const.i32 1
  %w: i32 = add.i32 %v, %one
  store.i32 module %p, %w
  %x: i32 = load.i32 module %p
  %old: i32 = atomic_add.i32 flat %y, %x
  return ()
}
)");
  std::vector<int32_t> y(1);
  Launch launch;
  launch.extent = {1000, 1, 1};
  launch.arguments = {Of(y)};
  ASSERT_TRUE(interpreter.Run(launch).ok());
  EXPECT_EQ(y[0], 8000);
}

// Loop parameters are assigned simultaneously: a swap does not lose a value.
TEST(InterpretTest, ContinueAssignsInParallel) {
  const Interpreter interpreter = Load(R"(module "fibonacci"
param buffer inout "y"
entry f0
func f0 "fibonacci" (%y: i32) -> () {
  %zero: i32 = const.i32 0
  %one: i32 = const.i32 1
  %limit: i32 = const.i32 1000
  %r: i32, %s: i32 = loop again (%a: i32 = %zero, %b: i32 = %one, %swapped: i32 = %zero) {
    %c: i32 = add.i32 %a, %b
    %more: i32 = lt_s.i32 %c, %limit
    if next %more {
      continue again (%b, %c, %a)
    } else {
      br again (%b, %swapped)
    }
    trap 1
  }
  store.i32 flat %y, %r
  store.i32 flat %y + 4, %s
  return ()
}
)");
  std::vector<int32_t> y(2);
  Launch launch;
  launch.arguments = {Of(y)};
  ASSERT_TRUE(interpreter.Run(launch).ok());
  EXPECT_EQ(y, (std::vector<int32_t>{987, 377}));
}

// A table selects leaves and continues, uses its last entry for any other index, and passes values to each.
TEST(InterpretTest, BrTable) {
  const Interpreter interpreter = Load(R"(module "table"
param buffer inout "y"
param i32 "k"
entry f0
func f0 "table" (%y: i32, %k: i32) -> () {
  %ten: i32 = const.i32 10
  %hundred: i32 = const.i32 100
  %outer: i32 = block out (%p: i32 = %ten) {
    %inner: i32 = block in (%q: i32 = %hundred) {
      %l: i32 = loop again (%i: i32 = %k, %n: i32 = %q) {
        %one: i32 = const.i32 1
        %j: i32 = sub.i32 %i, %one
        %m: i32 = add.i32 %n, %one
        %pass: i32 = block pick () {
          br_table %i [pick, in, out, pick] (%m)
        }
        continue again (%j, %pass)
      }
      br in (%l)
    }
    %double: i32 = add.i32 %inner, %inner
    br out (%double)
  }
  store.i32 flat %y, %outer
  return ()
}
)");
  // k = 1 leaves `in` with 101; 2 leaves `out` with 101; 3 runs another iteration, then behaves as 2 with 102.
  for (const auto& [k, want] : {std::pair(1, 202), std::pair(2, 101), std::pair(3, 102), std::pair(5, 104)}) {
    std::vector<int32_t> y(1);
    Launch launch;
    launch.arguments = {Of(y), {nullptr, 0, static_cast<uint64_t>(k)}};
    const auto report = interpreter.Run(launch);
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(y[0], want) << k;
  }
}

// Regions nested up to the limit are read, verified, printed and run without exhausting the thread's stack.
TEST(InterpretTest, DeepNesting) {
  std::string text = "module \"deep\"\nentry f0\nfunc f0 \"deep\" () -> () {\n";
  for (uint32_t i = 1; i < kRegionDepthMax; ++i) {
    text += "block b" + std::to_string(i) + " () {\n";
  }
  for (uint32_t i = kRegionDepthMax - 1; i > 0; --i) {
    text += "br b" + std::to_string(i) + " ()\n}\n";
  }
  text += "return ()\n}\n";
  const StatusOr<Module> module = ParseModule(text);
  ASSERT_TRUE(module.ok()) << module.status();
  EXPECT_TRUE(Verify(*module).empty()) << ToString(Verify(*module));
  const std::string printed = Print(*module);
  EXPECT_EQ(Print(*ParseModule(printed)), printed);
  const auto report = Interpret(*module, {});
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->code, TrapCode::kNone);
  std::string deeper = text;
  deeper.replace(deeper.find("block b1 "), 0, "block b0 () {\n");
  EXPECT_EQ(Message(ParseModule(deeper).status()), "Line 4099: Regions nest deeper than the limit (4096).");
}

// Calls return their results in order, and frames do not overlap.
TEST(InterpretTest, CallsReturnSeveralValues) {
  const Interpreter interpreter = Load(R"(module "calls"
param buffer inout "y"
entry f0
func f0 "entry" (%y: i32) -> () {
  %a: i32 = const.i32 17
  %b: i32 = const.i32 5
  %q: i32, %r: i32 = call f1 (%a, %b)
  store.i32 flat %y, %q
  store.i32 flat %y + 4, %r
  store.i32 flat %y + 8, %a
  return ()
}
func f1 "divide" (%a: i32, %b: i32) -> (i32, i32) {
  %q: i32 = div_u.i32 %a, %b
  %r: i32 = rem_u.i32 %a, %b
  return (%q, %r)
}
)");
  std::vector<int32_t> y(3);
  Launch launch;
  launch.arguments = {Of(y)};
  ASSERT_TRUE(interpreter.Run(launch).ok());
  EXPECT_EQ(y, (std::vector<int32_t>{3, 2, 17}));
}

// Malformed launches are refused with the reason, and nothing runs.
TEST(InterpretTest, RefusesMalformedLaunches) {
  const Interpreter interpreter = Load(std::string(kCount).insert(sizeof("module \"count\"\n") - 1, "uses barrier\n"));
  std::vector<int32_t> y(1);
  Launch good;
  good.arguments = {Of(y)};
  ASSERT_TRUE(interpreter.Run(good).ok());
  const auto refusal = [&](auto change) {
    Launch launch = good;
    change(launch);
    return Message(interpreter.Run(launch).status());
  };
  EXPECT_EQ(refusal([](Launch& l) { l.arguments.clear(); }), "The launch has 0 arguments; the kernel takes 1.");
  EXPECT_EQ(refusal([](Launch& l) { l.arguments[0].data = nullptr; }), "Argument 0 (\"y\") has 4 bytes and no data.");
  EXPECT_EQ(refusal([](Launch& l) { l.arguments[0].data += 1; }), "Argument 0 (\"y\") is not aligned to 8 bytes.");
  EXPECT_EQ(refusal([](Launch& l) { l.group = {1, 0, 1}; }), "The group (1, 0, 1) is empty.");
  EXPECT_EQ(refusal([](Launch& l) {
              l.extent = {uint64_t{1} << 32, uint64_t{1} << 32, 1};
            }),
            "The extent (4294967296, 4294967296, 1) or the group (1, 1, 1) has more instances than 2^64 - 1.");
  EXPECT_EQ(refusal([](Launch& l) {
              l.group = {32, 33, 1};
            }),
            "The group (32, 33, 1) has more instances (1056) than the limit (1024).");
  EXPECT_EQ(y[0], 1);
}

// Create refuses modules that do not verify.
TEST(InterpretTest, RefusesInvalidModules) {
  const auto refused = Interpreter::Create(Parse("module \"m\"\nentry f0\nfunc f0 \"f\" () -> (i32) {\n  trap 1\n}\n"));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(Message(refused.status()),
            "module \"m\": The entry function does not take the kernel's parameters, or returns values.");
}

}  // namespace
}  // namespace hpvm::ir
