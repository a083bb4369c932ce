// SPDX-License-Identifier: Apache-2.0
// Compares structured control, calls, queries, barriers and early ends of instances with the interpreter.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "compiler/back/llvm/testing/compare.h"

namespace hpvm::cpu {
namespace {

using ir::TrapCode;
using testing::Compared;
using testing::ImageRun;
using testing::ImageRunner;

std::unique_ptr<ImageRunner> LoadText(const std::string& text) {
  StatusOr<Artifact> artifact = EmitCpuImage(Compared::Parse(text), *HostCpuTarget());
  EXPECT_TRUE(artifact.ok()) << artifact.status();
  return artifact.ok() ? std::make_unique<ImageRunner>(*artifact) : nullptr;
}

constexpr char kControl[] = R"(module "control"
param buffer inout "r"
param i32 "n"
entry f0
func f0 "control" (%r: i32, %n: i32) -> () {
  %z: i32 = const.i32 0
  %one: i32 = const.i32 1
  %ten: i32 = const.i32 10
  %sum: i32, %last: i32 = loop b0 (%i: i32 = %z, %s: i32 = %z, %t: i32 = %one) {
    %done: i32 = ge_u.i32 %i, %n
    if b1 %done {
      br b0 (%s, %t)
    } else {
      br b1 ()
    }
    %w: i32 = block b2 () {
      %x: i32 = block b3 () {
        br_table %i [b3, b2, b2, b3, b2](%ten)
      }
      %y: i32 = add.i32 %x, %one
      br b2 (%y)
    }
    %s2: i32 = add.i32 %s, %w
    %i2: i32 = add.i32 %i, %one
    br_table %i [continue b0, continue b0, continue b0](%i2, %t, %s2)
  }
  store.i32 flat %r, %sum
  store.i32 flat %r + 4, %last
  %big: i32 = gt_u.i32 %n, %ten
  if b4 %big {
    trap 10 @55
  } else {
    return ()
  }
  store.i32 flat %r + 8, %one
  return ()
}
)";

// Covers loops that swap their arguments, tables with repeated targets, and unreachable code.
TEST(ControlTest, StructuredControlAgrees) {
  Compared kernel{std::string(kControl)};
  for (uint64_t n : {0u, 1u, 2u, 3u, 4u, 5u, 10u, 11u, 1000u}) {
    SCOPED_TRACE(n);
    Compared::Input input;
    input.buffers = {{7, 7}, {}};
    input.scalars = {0, n};
    kernel.Check(input);
  }
}

// Covers direct calls with several results, bounded recursion, and calls by reference with every way of missing.
TEST(ControlTest, CallsAgree) {
  Compared kernel(std::string(R"(module "calls"
reftype (i32, f64) -> (f64, i64, i32)
reftype (i32) -> (i32)
reftype (i32, f64) -> (f64, i64, i32)
ref f1 r0
ref f2 r0
ref f3 r1
ref f1 r0
ref f1 r2
param buffer inout "r"
param i32 "n"
entry f0
func f0 "calls" (%r: i32, %n: i32) -> () {
  %h: f64 = const.f64 1.5
  %a: f64, %b: i64, %c: i32 = call_ref r0 (%n, %n, %h) @91
  store.f64 flat %r, %a
  store.i64 flat %r + 8, %b
  store.i32 flat %r + 16, %c
  %d: i32 = call f3 (%n)
  store.i32 flat %r + 20, %d
  return ()
}
func f1 "three" (%i: i32, %x: f64) -> (f64, i64, i32) {
  %y: f64 = fadd.f64 %x, %x
  %w: i64 = extend_s.i32 %i
  return (%y, %w, %i)
}
func f2 "other" (%i: i32, %x: f64) -> (f64, i64, i32) {
  %z: i64 = const.i64 -1
  %e: i32 = div_u.i32 %i, %i
  return (%x, %z, %e)
}
func f3 "factorial" (%i: i32) -> (i32) {
  %one: i32 = const.i32 1
  %small: i32 = le_u.i32 %i, %one
  if b0 %small {
    return (%one)
  } else {
    br b0 ()
  }
  %j: i32 = sub.i32 %i, %one
  %f: i32 = call f3 (%j)
  %g: i32 = mul.i32 %f, %i
  return (%g)
}
)"));
  for (uint64_t n : {0u, 1u, 2u, 3u, 4u, 5u, 0xffffffffu}) {
    SCOPED_TRACE(n);
    Compared::Input input;
    input.buffers = {std::vector<uint64_t>(3), {}};
    input.scalars = {0, n};
    kernel.Check(input);
  }
}

// Acts as another module: returns the sum of the bits, plus one more for each further result; reference 5 ends early.
struct Sums final : ir::HostCalls {
  TrapCode Call(uint32_t reference, uint32_t type, std::span<uint64_t> values) override {
    uint64_t sum = reference * 1000 + type;
    for (uint64_t value : values.first(type == 0 ? 4 : 0)) {
      sum += value;
    }
    for (uint64_t& value : values) {
      value = sum++;
    }
    return reference == 5 ? TrapCode::kUnreachable : TrapCode::kNone;
  }
};

// References outside a linked module go to the host with the bits of every type, and end with the host's code.
TEST(ControlTest, HostCallsAgree) {
  Compared kernel(std::string(R"(module "linked"
memory 65536 131072
uses linked
reftype (i32, i64, f32, f64) -> (f64, i32)
reftype () -> (i32, f32, i64)
first_reference 7
ref f1 r0
ref f2 r1
param buffer inout "r"
param i32 "n"
entry f0
func f0 "calls" (%r: i32, %n: i32) -> () {
  %i: i64 = const.i64 -3
  %f: f32 = const.f32 1.5
  %d: f64 = const.f64 2.5
  %a: f64, %b: i32 = call_ref r0 (%n, %n, %i, %f, %d) @91
  store.f64 flat %r, %a
  store.i32 flat %r + 8, %b
  %x: i32, %y: f32, %z: i64 = call_ref r1 (%n) @92
  store.i32 flat %r + 12, %x
  store.f32 flat %r + 16, %y
  store.i64 flat %r + 24, %z
  return ()
}
func f1 "own" (%i: i32, %j: i64, %f: f32, %d: f64) -> (f64, i32) {
  return (%d, %i)
}
func f2 "own too" () -> (i32, f32, i64) {
  %i: i32 = const.i32 1
  %f: f32 = const.f32 2
  %j: i64 = const.i64 3
  return (%i, %f, %j)
}
)"));
  Sums host;
  for (uint64_t n : {0u, 1u, 5u, 6u, 7u, 8u, 9u, 0xffffffffu}) {
    SCOPED_TRACE(n);
    Compared::Input input;
    input.buffers = {std::vector<uint64_t>(4), {}};
    input.scalars = {0, n};
    input.host = &host;
    kernel.Check(input);
  }
}

// Records come in order, with the instance and the operands' bits, from callees and between other work.
TEST(ControlTest, PrintsAgree) {
  Compared kernel(std::string(R"(module "prints"
format "%d %g"
format "empty"
format "%lld %f %u"
param buffer inout "r"
entry f0
func f0 "prints" (%r: i32) -> () {
  %zero: i32 = const.i32 0
  %x: i32 = instance_id.i32 %zero
  %f: f64 = convert_s.i32 %x
  print p0 (%x, %f)
  call f1 (%x)
  store.i32 flat %r, %x
  print p1 ()
  return ()
}
func f1 "callee" (%x: i32) -> () {
  %w: i64 = extend_s.i32 %x
  %minus: i64 = const.i64 -7
  %p: i64 = mul.i64 %w, %minus
  %f: f32 = const.f32 0xffc00001
  print p2 (%p, %f, %x)
  return ()
}
)"));
  Compared::Input input;
  input.buffers = {{0}};
  input.extent = {3, 2, 2};
  EXPECT_EQ(kernel.Check(input).trap.code, TrapCode::kNone);
}

// A trap in nested calls names its function, source position and instance, and later instances do not run.
TEST(ControlTest, TrapRecordNamesThePlace) {
  Compared kernel(std::string(R"(module "deep"
param buffer inout "r"
entry f0
func f0 "outer" (%r: i32) -> () {
  %z: i32 = const.i32 0
  %one: i32 = const.i32 1
  %x: i32 = instance_id.i32 %z
  %y: i32 = instance_id.i32 %one
  %s: i32 = add.i32 %x, %y
  %v: i32 = call f1 (%s)
  %two: i32 = const.i32 2
  %o: i32 = shl.i32 %x, %two
  %p: i32 = add.i32 %r, %o
  store.i32 flat %p, %v
  return ()
}
func f1 "inner" (%s: i32) -> (i32) {
  %k: i32 = const.i32 3
  %d: i32 = sub.i32 %s, %k
  %h: i32 = const.i32 100
  %q: i32 = div_s.i32 %h, %d @1234
  return (%q)
}
)"));
  Compared::Input input;
  input.buffers = {std::vector<uint64_t>(2)};
  input.extent = {3, 3, 2};
  ImageRun run = kernel.Check(input);
  EXPECT_EQ(run.trap.code, TrapCode::kDivideByZero);
  EXPECT_EQ(run.trap.function, 1u);
  EXPECT_EQ(run.trap.source, 1234u);
  EXPECT_EQ(run.trap.instance, (std::array<uint64_t, 3>{2, 1, 0}));
}

// Endless recursion ends at the stack's limit, not in the guard page.
TEST(ControlTest, RecursionOverflowsTheStack) {
  std::unique_ptr<ImageRunner> image = LoadText(R"(module "deep"
entry f0
func f0 "main" () -> () {
  %z: i32 = const.i32 1
  %v: i32 = call f1 (%z)
  return ()
}
func f1 "down" (%i: i32) -> (i32) {
  %one: i32 = const.i32 1
  %j: i32 = add.i32 %i, %one
  %v: i32 = call f1 (%j)
  %w: i32 = mul.i32 %v, %i
  return (%w)
}
)");
  ASSERT_NE(image, nullptr);
  EXPECT_EQ(image->Run({}, {}, 0, 1).trap.code, TrapCode::kStackOverflow);
}

// Calls without a loop that would take years are stopped as well.
TEST(ControlTest, StopWordEndsCalls) {
  std::string text = "module \"calls\"\nentry f0\n";
  for (int i = 0; i < 64; ++i) {
    std::string next = std::to_string(i + 1);
    text += "func f" + std::to_string(i) + " \"f\" () -> () {\n call f" + next + " ()\n call f" + next +
            " ()\n return ()\n}\n";
  }
  text += "func f64 \"leaf\" () -> () {\n loop b0 () {\n br b0 ()\n }\n return ()\n}\n";
  std::unique_ptr<ImageRunner> image = LoadText(text);
  ASSERT_NE(image, nullptr);
  std::atomic<uint32_t> stop{1};
  ir::Launch launch;
  launch.stop = &stop;
  EXPECT_EQ(image->Run(launch, {}, 0, 1).trap.code, TrapCode::kStopped);
}

// The stop word stops an endless loop, and a launch between instances.
TEST(ControlTest, StopWordEndsLoops) {
  std::unique_ptr<ImageRunner> image = LoadText(R"(module "spin"
entry f0
func f0 "spin" () -> () {
  loop b0 () {
    continue b0 () @66
  }
  return ()
}
)");
  ASSERT_NE(image, nullptr);
  std::atomic<uint32_t> stop{0};
  ir::Launch launch;
  launch.stop = &stop;
  std::thread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    stop = 1;
  });
  ImageRun run = image->Run(launch, {}, 0, 1);
  stopper.join();
  EXPECT_EQ(run.trap.code, TrapCode::kStopped);
  EXPECT_EQ(run.trap.source, 66u);
  EXPECT_EQ(image->Run(launch, {}, 0, 1).trap.code, TrapCode::kStopped);
}

// Covers every query in every dimension and outside of them, over a launch with partial groups.
TEST(ControlTest, QueriesAgree) {
  std::string body;
  int value = 0;
  for (const char* query : {"instance_id", "instance_count", "group_id", "group_size", "local_id", "buffer_size"}) {
    for (int type = 0; type < 2; ++type) {
      std::string v = "%q" + std::to_string(value);
      std::string t = type == 0 ? "i32" : "i64";
      body += "  " + v + ": " + t + " = " + query + "." + t + " %d\n";
      body += "  store." + t + " flat %q + " + std::to_string(8 * value++) + ", " + v + "\n";
    }
  }
  std::string text = R"(module "queries"
param buffer inout "r"
param i32 "d"
entry f0
func f0 "queries" (%r: i32, %d: i32) -> () {
  %k0: i32 = const.i32 0
  %k1: i32 = const.i32 1
  %k2: i32 = const.i32 2
  %x: i32 = instance_id.i32 %k0
  %y: i32 = instance_id.i32 %k1
  %z: i32 = instance_id.i32 %k2
  %nx: i32 = instance_count.i32 %k0
  %ny: i32 = instance_count.i32 %k1
  %a: i32 = mul.i32 %z, %ny
  %b: i32 = add.i32 %a, %y
  %c: i32 = mul.i32 %b, %nx
  %e: i32 = add.i32 %c, %x
  %size: i32 = const.i32 96
  %f: i32 = mul.i32 %e, %size
  %q: i32 = add.i32 %r, %f
)" + body + "  return ()\n}\n";
  Compared kernel(text);
  for (uint64_t d : {0u, 1u, 2u, 3u, 0xffffffffu}) {
    SCOPED_TRACE(d);
    Compared::Input input;
    input.buffers = {std::vector<uint64_t>(12 * 5 * 3 * 2), {}};
    input.scalars = {0, d};
    input.extent = {5, 3, 2};
    input.group = {2, 3, 1};
    EXPECT_EQ(kernel.Check(input).trap.code, TrapCode::kNone);
  }
}

// Any part of a launch starts at the right instance.
TEST(ControlTest, RunsAnyRange) {
  std::unique_ptr<ImageRunner> image = LoadText(R"(module "range"
param buffer inout "r"
entry f0
func f0 "range" (%r: i32) -> () {
  %k0: i32 = const.i32 0
  %k1: i32 = const.i32 1
  %k2: i32 = const.i32 2
  %x: i32 = instance_id.i32 %k0
  %y: i32 = instance_id.i32 %k1
  %z: i32 = instance_id.i32 %k2
  %five: i32 = const.i32 5
  %three: i32 = const.i32 3
  %a: i32 = mul.i32 %z, %three
  %b: i32 = add.i32 %a, %y
  %c: i32 = mul.i32 %b, %five
  %e: i32 = add.i32 %c, %x
  %q: i32 = add.i32 %r, %e
  store.i32 w1 flat %q, %k1
  return ()
}
)");
  ASSERT_NE(image, nullptr);
  for (uint64_t begin = 0; begin <= 30; ++begin) {
    for (uint64_t end = begin; end <= 30; ++end) {
      std::vector<uint8_t> result(32);
      ir::Launch launch;
      launch.extent = {5, 3, 2};
      launch.arguments = {{result.data(), 30, 0}};
      image->Run(launch, {.base = {65536}, .group_base = 0}, begin, end);
      for (uint64_t i = 0; i < 30; ++i) {
        ASSERT_EQ(result[i], i >= begin && i < end) << begin << " " << end << " " << i;
      }
    }
  }
}

// The runner serves a barrier; the code it returns ends the instance.
TEST(ControlTest, BarrierCallsTheRunner) {
  std::unique_ptr<ImageRunner> image = LoadText(R"(module "wait"
uses barrier
entry f0
func f0 "wait" () -> () {
  barrier @17
  barrier
  return ()
}
)");
  ASSERT_NE(image, nullptr);
  EXPECT_EQ(image->Run({}, {}, 0, 1).trap.code, TrapCode::kNone);
  EXPECT_EQ(image->barriers, 2u);
  image->barrier_code = static_cast<uint32_t>(TrapCode::kBarrierDivergence);
  ImageRun run = image->Run({}, {}, 0, 1);
  EXPECT_EQ(run.trap.code, TrapCode::kBarrierDivergence);
  EXPECT_EQ(run.trap.source, 17u);
  EXPECT_EQ(image->barriers, 3u);
}

// A function so large that it uses the basic register allocator gives the same results.
TEST(ControlTest, LargeFunctionAgrees) {
  std::string text =
      "module \"large\"\nmemory 65536 65536\nparam buffer inout \"r\"\nentry f0\n"
      "func f0 \"large\" (%r: i32) -> () {\n%v0: i32 = const.i32 40\n%mask: i32 = const.i32 65532\n";
  constexpr int kSteps = 600;
  for (int i = 1; i <= kSteps; ++i) {
    auto value = [&](int back) { return "%v" + std::to_string(std::max(0, i - back)); };
    const std::string at = "%a" + std::to_string(i), x = "%x" + std::to_string(i);
    text += at + ": i32 = and.i32 " + value(1) + ", %mask\n" + x + ": i32 = load.i32 flat " + at + "\nstore.i32 flat " +
            at + ", " + value(i % 36 + 1) + "\n" + value(0) + ": i32 = " + (i % 3 == 0 ? "mul" : "sub") + ".i32 " +
            value(i % 50 + 1) + ", " + x + "\n";
  }
  Compared kernel(text + "store.i32 flat %r, %v" + std::to_string(kSteps) + "\nreturn ()\n}\n");
  Compared::Input input;
  input.buffers = {{0}};
  input.extent = {2, 1, 1};
  EXPECT_EQ(kernel.Check(input).trap.code, TrapCode::kNone);
}

// Every level gives an image, and a kernel with a jump table and floating-point constants links without relocations.
TEST(ControlTest, EveryLevelEmits) {
  for (const char* level : {"x86-64-v2", "x86-64-v3", "x86-64-v4"}) {
    StatusOr<Artifact> artifact = EmitCpuImage(Compared::Parse(kControl), CpuTarget{level});
    ASSERT_TRUE(artifact.ok()) << artifact.status();
    EXPECT_EQ(artifact->target, level);
    EXPECT_LT(artifact->entry_offset, artifact->code.size());
  }
}

}  // namespace
}  // namespace hpvm::cpu
