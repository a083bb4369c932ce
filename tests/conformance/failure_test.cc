// SPDX-License-Identifier: Apache-2.0
// Kernels that trap or never end: the record, the poisoning of dependents, and a device that keeps working.
#include <thread>

#include "tests/conformance/conformance.h"

namespace hpvm::conformance {
namespace {

using std::chrono::milliseconds;
constexpr std::array<uint64_t, 3> kOne = {1, 1, 1};

// The device still computes; every case ends with this check.
void StillWorks(Bench& bench) {
  std::unique_ptr<Executable> saxpy = bench.Load("saxpy");
  ASSERT_NE(saxpy, nullptr);
  std::unique_ptr<Buffer> y = bench.Upload(std::vector<float>(10, 1.0f));
  Work work;
  work.Dispatch(*saxpy, {10, 1, 1}, kOne, {Arg::Of(*y), Arg::Of(*y), Arg::Scalar(2.0f)});
  const Status status = bench.Run(work);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(bench.Download<float>(*y), std::vector<float>(10, 3.0f));
}

// A trap names the node, an instance that trapped, the function and the place; later commands of the submission do
// not run, unless a driver has them already.
void Trap(Bench& bench) {
  std::unique_ptr<Executable> divide = bench.Load("divide");
  ASSERT_NE(divide, nullptr);
  for (uint64_t n : {3u, 20'000u}) {
    std::vector<int32_t> values(n, 7);
    values[n - 2] = 0;
    std::unique_ptr<Buffer> x = bench.Upload(values), y = bench.Allocate(n * 4), after = bench.Allocate(8);
    Work work;
    work.Dispatch(*divide, {1, 1, 1}, kOne, {Arg::Of(*y), Arg::Of(*x)});
    work.Dispatch(*divide, {n, 1, 1}, kOne, {Arg::Of(*y), Arg::Of(*x)});
    work.Fill(*after, 0, 8, 1);
    const Status status = bench.Run(work);
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    EXPECT_NE(Message(status).find("divide"), std::string::npos) << status;
    EXPECT_EQ(work.failure.node, 1u);
    EXPECT_EQ(work.failure.trap.code, ir::TrapCode::kDivideByZero);
    EXPECT_EQ(work.failure.trap.instance, (std::array<uint64_t, 3>{n - 2, 0, 0}));
    EXPECT_EQ(work.failure.trap.source, 1234u);
    if (!bench.is_driven()) {
      EXPECT_EQ(bench.Download<uint8_t>(*after), std::vector<uint8_t>(8, 0));
    }
  }
  StillWorks(bench);
}

// Stores beyond the buffer, around every border, trap with the address and leave neighbouring memory unchanged.
void OutOfBounds(Bench& bench) {
  std::unique_ptr<Executable> poke = bench.Load("poke");
  ASSERT_NE(poke, nullptr);
  std::unique_ptr<Buffer> whole = bench.Allocate(256);
  for (int64_t distance : {-4, -1, 61, 64, 65, 1 << 20, -(1 << 20)}) {
    Work work;
    const uint64_t bits = static_cast<uint32_t>(distance);
    work.Dispatch(*poke, kOne, kOne, {Arg::View(*whole, 128, 64), Arg::Scalar(bits)});
    EXPECT_EQ(bench.Run(work).code(), absl::StatusCode::kAborted) << distance;
    EXPECT_EQ(work.failure.trap.code, ir::TrapCode::kOutOfBounds) << distance;
    EXPECT_EQ(work.failure.trap.bytes, 4u);
    EXPECT_EQ(bench.Download<uint8_t>(*whole), std::vector<uint8_t>(256, 0)) << distance;
  }
  Work inside;
  inside.Dispatch(*poke, kOne, kOne, {Arg::View(*whole, 128, 64), Arg::Scalar(uint64_t{60})});
  EXPECT_TRUE(bench.Run(inside).ok());
  StillWorks(bench);
}

// A buffer that the graph passed read-only is not changed.
void ReadOnly(Bench& bench) {
  std::unique_ptr<Executable> kernel = bench.Load("write_input");
  ASSERT_NE(kernel, nullptr);
  std::unique_ptr<Buffer> x = bench.Allocate(16);
  Work work;
  work.Dispatch(*kernel, kOne, kOne, {Arg::Of(*x)});
  EXPECT_EQ(bench.Run(work).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(work.failure.trap.code, ir::TrapCode::kReadOnlyBuffer);
  EXPECT_EQ(bench.Download<uint8_t>(*x), std::vector<uint8_t>(16, 0));
}

// Endless recursion is a trap, not a crash; also on a thread with a small stack.
void StackOverflow(Bench& bench) {
  std::unique_ptr<Executable> kernel = bench.Load("recurse");
  ASSERT_NE(kernel, nullptr);
  for (size_t stack_bytes : {size_t{8} << 20, size_t{256} << 10}) {
    auto run = [&] {
      std::unique_ptr<Buffer> x = bench.Upload(std::vector<uint32_t>{0, 100'000'000, 0, 0});
      Work work;
      work.Dispatch(*kernel, kOne, kOne, {Arg::Of(*x)});
      EXPECT_EQ(bench.Run(work).code(), absl::StatusCode::kAborted);
      EXPECT_EQ(work.failure.trap.code, ir::TrapCode::kStackOverflow);
      // Deep enough for real programs, whatever stack the caller has.
      EXPECT_GT(bench.Download<uint32_t>(*x)[0], 1000u);
    };
    pthread_attr_t attributes;
    ASSERT_EQ(pthread_attr_init(&attributes), 0);
    ASSERT_EQ(pthread_attr_setstacksize(&attributes, stack_bytes), 0);
    pthread_t thread;
    auto body = [](void* argument) -> void* {
      (*static_cast<decltype(run)*>(argument))();
      return nullptr;
    };
    ASSERT_EQ(pthread_create(&thread, &attributes, body, &run), 0);
    pthread_join(thread, nullptr);
    pthread_attr_destroy(&attributes);
  }
  StillWorks(bench);
}

// Endless recursion that a compiler may turn into a loop ends too: by the stack's limit or the stop word.
void EndlessTailCall(Bench& bench) {
  std::unique_ptr<Executable> kernel = bench.Load("tail_call");
  ASSERT_NE(kernel, nullptr);
  std::unique_ptr<Buffer> x = bench.Allocate(16);
  std::atomic<uint32_t> stop{0};
  std::thread stopper([&] {
    std::this_thread::sleep_for(milliseconds(50));
    stop = 1;
  });
  Work work;
  work.stop = &stop;
  work.Dispatch(*kernel, kOne, kOne, {Arg::Of(*x)});
  EXPECT_FALSE(bench.Run(work).ok());
  const ir::TrapCode code = work.failure.trap.code;
  EXPECT_TRUE(code == ir::TrapCode::kStackOverflow || code == ir::TrapCode::kStopped);
  stopper.join();
}

// An instance that ends while others of its group wait is a trap.
void Divergence(Bench& bench) {
  std::unique_ptr<Executable> kernel = bench.Load("diverge");
  ASSERT_NE(kernel, nullptr);
  std::unique_ptr<Buffer> out = bench.Allocate(16);
  Work work;
  work.Dispatch(*kernel, {16, 1, 1}, {8, 1, 1}, {Arg::Of(*out)});
  EXPECT_EQ(bench.Run(work).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(work.failure.trap.code, ir::TrapCode::kBarrierDivergence);
  EXPECT_LT(work.failure.trap.instance[0], 16u);
  Work alone;
  alone.Dispatch(*kernel, {16, 1, 1}, {1, 1, 1}, {Arg::Of(*out)});
  EXPECT_TRUE(bench.Run(alone).ok());
  StillWorks(bench);
}

// The stop word ends an endless kernel in less than a second, whether one thread or several run it.
void Stop(Bench& bench) {
  std::unique_ptr<Executable> endless = bench.Load("endless");
  ASSERT_NE(endless, nullptr);
  for (uint64_t n : {1u, 1000u}) {
    std::unique_ptr<Buffer> x = bench.Upload(std::vector<int32_t>(4, 1));
    std::atomic<uint32_t> stop{0};
    Time stopped{0};
    std::thread stopper([&] {
      std::this_thread::sleep_for(milliseconds(50));
      stopped = RealClock().Now();
      stop = 1;
    });
    Work work;
    work.stop = &stop;
    work.Dispatch(*endless, {n, 1, 1}, kOne, {Arg::Of(*x)});
    const Status status = bench.Run(work);
    const Time ended = RealClock().Now();
    stopper.join();
    EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
    EXPECT_EQ(work.failure.trap.code, ir::TrapCode::kStopped);
    EXPECT_LT(ended - stopped, std::chrono::seconds(1));
  }
  StillWorks(bench);
}

// A stop word that is set before the start stops everything at once.
void StoppedBefore(Bench& bench) {
  std::unique_ptr<Executable> endless = bench.Load("endless");
  ASSERT_NE(endless, nullptr);
  std::unique_ptr<Buffer> x = bench.Upload(std::vector<int32_t>(4, 1));
  std::atomic<uint32_t> stop{1};
  Work work;
  work.stop = &stop;
  work.Dispatch(*endless, kOne, kOne, {Arg::Of(*x)});
  EXPECT_EQ(bench.Run(work).code(), absl::StatusCode::kCancelled);
}

// After a failed submission everything that waits for it fails with the same error; other work runs.
void PoisonsWaiters(Bench& bench) {
  std::unique_ptr<Executable> divide = bench.Load("divide");
  ASSERT_NE(divide, nullptr);
  std::unique_ptr<Buffer> x = bench.Upload(std::vector<int32_t>(4, 0)), y = bench.Allocate(16);
  std::unique_ptr<Timeline> a = bench.CreateTimeline(), b = bench.CreateTimeline();
  const TimelinePoint pa{a.get(), 1}, pb{b.get(), 1};
  Work first, second;
  first.Dispatch(*divide, {4, 1, 1}, kOne, {Arg::Of(*y), Arg::Of(*x)});
  second.Fill(*x, 0, 16, 9);
  ASSERT_TRUE(bench.Submit(second, {&pa, 1}, {&pb, 1}).ok());
  ASSERT_TRUE(bench.Submit(first, {}, {&pa, 1}).ok());
  EXPECT_EQ(Await(*b, 1).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(bench.Download<int32_t>(*x), std::vector<int32_t>(4, 0));
  StillWorks(bench);
}

// Arguments that do not fit the kernel are our bug, and return a status.
void WrongArguments(Bench& bench) {
  std::unique_ptr<Executable> saxpy = bench.Load("saxpy");
  ASSERT_NE(saxpy, nullptr);
  std::unique_ptr<Buffer> y = bench.Allocate(40);
  const std::vector<std::vector<Arg>> wrong = {
      {Arg::Of(*y), Arg::Of(*y)},
      {Arg::Of(*y), Arg::Scalar(1.0f), Arg::Scalar(1.0f)},
      {Arg::Of(*y), Arg::View(*y, 0, 44), Arg::Scalar(1.0f)},
      {Arg::Of(*y), Arg::Of(*y), Arg::Slot(3)},
  };
  for (const std::vector<Arg>& args : wrong) {
    Work work;
    work.Dispatch(*saxpy, {1, 1, 1}, kOne, args);
    EXPECT_FALSE(bench.Run(work).ok());
  }
  StillWorks(bench);
}

}  // namespace

std::vector<Case> FailureCases() {
  return {{"failure_trap", Trap, true},
          {"failure_out_of_bounds", OutOfBounds, true},
          {"failure_read_only", ReadOnly, true},
          {"failure_stack_overflow", StackOverflow, true},
          {"failure_endless_tail_call", EndlessTailCall, true},
          {"failure_divergence", Divergence, true},
          {"failure_stop", Stop, true},
          {"failure_stopped_before", StoppedBefore, true},
          {"failure_poisons_waiters", PoisonsWaiters, true},
          {"failure_wrong_arguments", WrongArguments, true}};
}

}  // namespace hpvm::conformance
