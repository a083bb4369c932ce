// SPDX-License-Identifier: Apache-2.0
// Tests instances whose storage the caller keeps, calls of other modules, prints, and stopping within a copy.
#include <array>
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/text/text.h"

namespace hpvm::ir {
namespace {

Interpreter Load(const std::string& text) {
  StatusOr<Module> module = ParseModule(text);
  EXPECT_TRUE(module.ok()) << module.status();
  StatusOr<Interpreter> interpreter = Interpreter::Create(module.ok() ? *std::move(module) : Module{});
  if (!interpreter.ok()) {
    ADD_FAILURE() << interpreter.status();
    std::abort();
  }
  return *std::move(interpreter);
}

TrapCode CodeOf(const Interpreter& interpreter, const Launch& launch) {
  const StatusOr<TrapReport> report = interpreter.Run(launch);
  EXPECT_TRUE(report.ok()) << report.status();
  return report.ok() ? report->code : TrapCode::kStopped;
}

constexpr uint64_t kPage = 65536;

struct Storage {
  std::vector<uint8_t> memory = std::vector<uint8_t>(3 * kPage);
  std::vector<uint64_t> globals = std::vector<uint64_t>(1);
  std::vector<uint8_t> state = std::vector<uint8_t>(8);
  InstanceStorage instance{memory.data(), kPage, 3 * kPage, globals.data(), state.data()};
};

// Adds one to a byte of memory, to a byte of the state and to a global, and grows the memory by `pages`.
constexpr char kKeeping[] = R"(module "keeping"
memory 65536 196608
data 5 "63"
global mut i32 0x64
state 8
state_data 2 "65"
param i32 "pages"
entry f0
func f0 "kernel" (%pages: i32) -> () {
  %five: i32 = const.i32 5
  %one: i32 = const.i32 1
  %a: i32 = load.i32 w1 module %five
  %b: i32 = add.i32 %a, %one
  store.i32 w1 module %five, %b
  %c: i32 = load.i32 w1 state %one + 1
  %d: i32 = add.i32 %c, %one
  store.i32 w1 state %one + 1, %d
  %e: i32 = global_get.i32 g0
  %f: i32 = add.i32 %e, %one
  global_set.i32 g0 %f
  %g: i32 = memory_grow %pages
  return ()
}
)";

// The launch neither initialises nor restores an instance whose storage the caller keeps.
TEST(InstanceTest, StorageIsKept) {
  const Interpreter interpreter = Load(kKeeping);
  Storage storage;
  Launch launch;
  launch.instance = &storage.instance;
  launch.arguments = {{nullptr, 0, 1}};
  for (uint64_t run = 1; run <= 2; ++run) {
    EXPECT_EQ(CodeOf(interpreter, launch), TrapCode::kNone);
    EXPECT_EQ(storage.memory[5], run);
    EXPECT_EQ(storage.state[2], run);
    EXPECT_EQ(storage.globals[0], run);
    EXPECT_EQ(storage.instance.memory_bytes, (1 + run) * kPage);
  }
  EXPECT_EQ(CodeOf(interpreter, launch), TrapCode::kNone);
  EXPECT_EQ(storage.instance.memory_bytes, 3 * kPage);  // At its maximum: memory_grow returned -1.
}

// Storage that lacks a part, or that two instances would share, is refused.
TEST(InstanceTest, MalformedStorageIsRefused) {
  const Interpreter interpreter = Load(kKeeping);
  const std::pair<void (*)(InstanceStorage&, Launch&), const char*> cases[] = {
      {[](InstanceStorage& s, Launch&) { s.memory = nullptr; }, "lacks memory, globals or state"},
      {[](InstanceStorage& s, Launch&) { s.memory_bytes = 4 * kPage; }, "lacks memory, globals or state"},
      {[](InstanceStorage& s, Launch&) { s.globals = nullptr; }, "lacks memory, globals or state"},
      {[](InstanceStorage& s, Launch&) { s.state = nullptr; }, "lacks memory, globals or state"},
      {[](InstanceStorage&, Launch& l) { l.extent[1] = 2; }, "has the extent (1, 2, 1)"},
  };
  for (const auto& [change, want] : cases) {
    Storage storage;
    Launch launch;
    launch.instance = &storage.instance;
    launch.arguments = {{nullptr, 0, 1}};
    change(storage.instance, launch);
    EXPECT_NE(Message(interpreter.Run(launch).status()).find(want), std::string::npos) << want;
  }
}

// Passes 11 and 2.5 to the host, and stores the results in the state. f1 is reference 4, of the module itself.
constexpr char kLinked[] = R"(module "linked"
memory 65536 196608
uses linked
state 16
reftype (i32, f64) -> (i64, i32, i32)
first_reference 4
ref f1 r0
param i32 "callee"
entry f0
func f0 "kernel" (%callee: i32) -> () {
  %z: i32 = const.i32 0
  %a: i32 = const.i32 11
  %b: f64 = const.f64 2.5
  %c: i64, %d: i32, %e: i32 = call_ref r0 (%callee, %a, %b) @77
  store.i64 state %z, %c
  store.i32 state %z + 8, %d
  %pages: i32 = memory_size
  store.i32 state %z + 12, %pages
  return ()
}
func f1 "own" (%a: i32, %b: f64) -> (i64, i32, i32) {
  %c: i64 = extend_u.i32 %a
  return (%c, %a, %a)
}
)";

class OtherModule final : public HostCalls {
 public:
  explicit OtherModule(InstanceStorage& shared) : shared_(shared) {}
  TrapCode Call(uint32_t reference, uint32_t type, std::span<uint64_t> values) override {
    EXPECT_EQ(reference, 9u);
    EXPECT_EQ(type, 0u);
    EXPECT_EQ(values.size(), 3u);
    EXPECT_EQ(values[0], 11u);
    EXPECT_EQ(values[1], 0x4004000000000000u);
    values[0] = 0x123456789abcdefu;
    values[1] = ~uint64_t{0};  // The upper half of an i32 is meaningless.
    shared_.memory_bytes = 2 * kPage;
    return outcome;
  }
  TrapCode outcome = TrapCode::kNone;

 private:
  InstanceStorage& shared_;
};

uint64_t Word(const Storage& storage, size_t offset, size_t bytes) {
  uint64_t value = 0;
  std::copy_n(storage.state.begin() + static_cast<ptrdiff_t>(offset), bytes, reinterpret_cast<uint8_t*>(&value));
  return value;
}

// References outside the module's own go to the host, which may grow the shared memory; its own references do not.
TEST(InstanceTest, CallsOtherModules) {
  const Interpreter interpreter = Load(kLinked);
  Storage storage;
  storage.state.resize(16);
  storage.instance.state = storage.state.data();
  OtherModule other(storage.instance);
  Launch launch;
  launch.instance = &storage.instance;
  launch.host = &other;
  launch.arguments = {{nullptr, 0, 9}};
  EXPECT_EQ(CodeOf(interpreter, launch), TrapCode::kNone);
  EXPECT_EQ(Word(storage, 0, 8), 0x123456789abcdefu);
  EXPECT_EQ(Word(storage, 8, 4), 0xffffffffu);
  EXPECT_EQ(Word(storage, 12, 4), 2u);
  launch.arguments = {{nullptr, 0, 4}};
  EXPECT_EQ(CodeOf(interpreter, launch), TrapCode::kNone);
  EXPECT_EQ(Word(storage, 0, 8), 11u);
}

// A trap of the other module ends the caller at the call; without a host there is no other module.
TEST(InstanceTest, TrapsOfOtherModules) {
  const Interpreter interpreter = Load(kLinked);
  Storage storage;
  storage.state.resize(16);
  storage.instance.state = storage.state.data();
  OtherModule other(storage.instance);
  other.outcome = TrapCode::kDivideByZero;
  Launch launch;
  launch.instance = &storage.instance;
  launch.host = &other;
  launch.arguments = {{nullptr, 0, 9}};
  const StatusOr<TrapReport> report = interpreter.Run(launch);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->code, TrapCode::kDivideByZero);
  EXPECT_EQ(report->source, 77u);
  launch.host = nullptr;
  EXPECT_EQ(CodeOf(interpreter, launch), TrapCode::kHost);
  launch.arguments = {{nullptr, 0, 0}};
  EXPECT_EQ(CodeOf(interpreter, launch), TrapCode::kUninitializedElement);
}

class Lines final : public PrintSink {
 public:
  void Print(const std::array<uint64_t, 3>& instance, uint32_t format, std::span<const uint64_t> values) override {
    text += std::to_string(instance[0]) + ":p" + std::to_string(format);
    for (const uint64_t value : values) {
      text += ' ' + std::to_string(value);
    }
    text += '\n';
  }
  std::string text;
};

// A print passes on the instance, the format and the bits of its values; without a sink it does nothing.
TEST(InstanceTest, Prints) {
  const Interpreter interpreter = Load(R"(module "printing"
format "plain"
format "%d %f"
entry f0
func f0 "kernel" () -> () {
  %z: i32 = const.i32 0
  %i: i32 = instance_id.i32 %z
  %f: f64 = const.f64 1
  %m: i32 = const.i32 -1
  if b0 %i {
    print p1 (%m, %f, %i)
    br b0 ()
  } else {
    print p0 ()
    br b0 ()
  }
  return ()
}
)");
  Lines lines;
  Launch launch;
  launch.extent = {2, 1, 1};
  EXPECT_EQ(CodeOf(interpreter, launch), TrapCode::kNone);
  launch.print = &lines;
  EXPECT_EQ(CodeOf(interpreter, launch), TrapCode::kNone);
  EXPECT_EQ(lines.text, "0:p0\n1:p1 4294967295 4607182418800017408 1\n");
}

// Fills, copies and initialisations of megabytes run in parts that count as steps, in the order that overlap
// requires.
TEST(InstanceTest, LargeCopiesAreCutRightly) {
  const Interpreter interpreter = Load(R"(module "copies"
memory 67108864 67108864
param buffer inout "x"
param i32 "from"
param i32 "to"
param i32 "n"
entry f0
func f0 "kernel" (%x: i32, %from: i32, %to: i32, %n: i32) -> () {
  %f: i32 = add.i32 %x, %from
  %t: i32 = add.i32 %x, %to
  memory_copy %t, %f, %n
  return ()
}
)");
  constexpr uint64_t kBytes = 5 << 20;
  const std::array<uint64_t, 3> cases[] = {
      {0, 1000, kBytes - 1000}, {1000, 0, kBytes - 1000}, {0, 3 << 20, 2 << 20}, {7, 7, (1 << 20) + 1}};
  for (const auto& [from, to, n] : cases) {
    std::vector<uint64_t> words(kBytes / 8);
    for (size_t i = 0; i < words.size(); ++i) {
      words[i] = i * 0x9e3779b97f4a7c15u;
    }
    uint8_t* data = reinterpret_cast<uint8_t*>(words.data());
    std::vector<uint8_t> want(data, data + kBytes);
    std::vector<uint8_t> moved(want.begin() + static_cast<ptrdiff_t>(from),
                               want.begin() + static_cast<ptrdiff_t>(from + n));
    std::copy(moved.begin(), moved.end(), want.begin() + static_cast<ptrdiff_t>(to));
    Launch launch;
    launch.arguments = {{data, kBytes, 0}, {nullptr, 0, from}, {nullptr, 0, to}, {nullptr, 0, n}};
    EXPECT_EQ(CodeOf(interpreter, launch), TrapCode::kNone);
    EXPECT_TRUE(std::equal(want.begin(), want.end(), data)) << from << ' ' << to;
  }
}

// A large fill does not delay the stop of a launch: it is stopped between parts.
TEST(InstanceTest, LargeFillsAreStopped) {
  const Interpreter interpreter = Load(R"(module "fill"
memory 67108864 67108864
param i32 "n"
entry f0
func f0 "kernel" (%n: i32) -> () {
  %z: i32 = const.i32 0
  memory_fill %z, %z, %n @5
  return ()
}
)");
  Launch launch;
  launch.arguments = {{nullptr, 0, 64 << 20}};
  const auto run = [&](uint64_t steps) { return interpreter.Run(launch, {.begin = 0, .end = 1, .steps_max = steps}); };
  const StatusOr<TrapReport> stopped = run(63);
  ASSERT_TRUE(stopped.ok());
  EXPECT_EQ(stopped->code, TrapCode::kStopped);
  EXPECT_EQ(stopped->source, 5u);
  EXPECT_EQ(run(64)->code, TrapCode::kNone);  // The instance, and 63 polls between 64 parts.
}

// The report of a misaligned atomic contains the address after wrapping.
TEST(InstanceTest, MisalignedAddressesWrapAsOthers) {
  const Interpreter interpreter = Load(R"(module "atomic"
param buffer inout "x"
param i32 "o"
entry f0
func f0 "kernel" (%x: i32, %o: i32) -> () {
  %v: i32 = atomic_load.i32 param(0) %o + 1
  return ()
}
)");
  uint64_t data = 0;
  for (const auto& [offset, want] : {std::pair<uint64_t, uint64_t>{0, 65537}, {0xfffffffe, 65535}}) {
    Launch launch;
    launch.arguments = {{reinterpret_cast<uint8_t*>(&data), 8, 0}, {nullptr, 0, offset}};
    const StatusOr<TrapReport> report = interpreter.Run(launch);
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(report->code, TrapCode::kMisalignedAtomic);
    EXPECT_EQ(report->address, want) << offset;
  }
}

}  // namespace
}  // namespace hpvm::ir
