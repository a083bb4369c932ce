// SPDX-License-Identifier: Apache-2.0
// Order as data: timelines, poisoning, waiting, deferred submissions.
#include <thread>

#include "tests/conformance/conformance.h"

namespace hpvm::conformance {
namespace {

using std::chrono::milliseconds;

// Values start at 0 and only grow.
void Signal(Bench& bench) {
  std::unique_ptr<Timeline> timeline = bench.CreateTimeline();
  EXPECT_EQ(*timeline->Query(), 0u);
  timeline->Signal(5);
  EXPECT_EQ(*timeline->Query(), 5u);
  timeline->Signal(3);
  EXPECT_EQ(*timeline->Query(), 5u);
  EXPECT_TRUE(timeline->Wait(5, Time::zero()).ok());
  EXPECT_EQ(timeline->Wait(6, Time::zero()).code(), absl::StatusCode::kDeadlineExceeded);
}

// The first failure stays; points reached before it stay reached.
void Fail(Bench& bench) {
  std::unique_ptr<Timeline> timeline = bench.CreateTimeline();
  timeline->Signal(2);
  timeline->Fail(DataLoss("First."));
  timeline->Fail(Internal("Second."));
  timeline->Signal(9);
  EXPECT_EQ(timeline->Query().status().code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(Await(*timeline, 2).ok());
  EXPECT_EQ(Await(*timeline, 3).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Poll({timeline.get(), 2}), PointState::kReached);
  Status failure;
  EXPECT_EQ(Poll({timeline.get(), 3}, &failure), PointState::kFailed);
  EXPECT_EQ(Message(failure), "First.");
}

// A waiting host wakes for a signal and for a failure from another thread, and at its deadline.
void Wait(Bench& bench) {
  std::unique_ptr<Timeline> timeline = bench.CreateTimeline();
  std::thread signaller([&] {
    std::this_thread::sleep_for(milliseconds(20));
    timeline->Signal(1);
    std::this_thread::sleep_for(milliseconds(20));
    timeline->Fail(Cancelled("Enough."));
  });
  EXPECT_TRUE(Await(*timeline, 1).ok());
  EXPECT_EQ(Await(*timeline, 2).code(), absl::StatusCode::kCancelled);
  signaller.join();
  std::unique_ptr<Timeline> quiet = bench.CreateTimeline();
  const Time before = RealClock().Now();
  EXPECT_EQ(quiet->Wait(1, before + milliseconds(30)).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_GE(RealClock().Now() - before, milliseconds(30));
}

// WaitAny returns which point was reached or failed.
void WaitAny(Bench& bench) {
  std::unique_ptr<Timeline> a = bench.CreateTimeline();
  std::unique_ptr<Timeline> b = bench.CreateTimeline();
  const TimelinePoint points[] = {{a.get(), 1}, {b.get(), 7}};
  EXPECT_EQ(bench.hub().WaitAny(points, RealClock().Now() + milliseconds(10)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  std::thread signaller([&] {
    std::this_thread::sleep_for(milliseconds(20));
    b->Signal(7);
  });
  EXPECT_EQ(*bench.hub().WaitAny(points, Soon()), 1u);
  signaller.join();
  a->Fail(Internal("Broken."));
  EXPECT_EQ(*bench.hub().WaitAny(points, Soon()), 0u);
}

// No wake-up is lost with many concurrent waiters and signals.
void WaitersAndSignals(Bench& bench) {
  constexpr uint64_t kSteps = 200;
  std::unique_ptr<Timeline> ping = bench.CreateTimeline();
  std::unique_ptr<Timeline> pong = bench.CreateTimeline();
  std::thread other([&] {
    for (uint64_t i = 1; i <= kSteps; ++i) {
      ASSERT_TRUE(Await(*ping, i).ok());
      pong->Signal(i);
    }
  });
  for (uint64_t i = 1; i <= kSteps; ++i) {
    ping->Signal(i);
    ASSERT_TRUE(Await(*pong, i).ok());
  }
  other.join();
}

// A submission without commands still waits and signals, several points of several timelines.
void EmptySubmission(Bench& bench) {
  std::unique_ptr<Timeline> a = bench.CreateTimeline();
  std::unique_ptr<Timeline> b = bench.CreateTimeline();
  Submission submission;
  const TimelinePoint signals[] = {{a.get(), 3}, {b.get(), 4}};
  submission.signals = signals;
  ASSERT_TRUE(bench.device().Submit(submission).ok());
  EXPECT_TRUE(Await(*a, 3).ok());
  EXPECT_TRUE(Await(*b, 4).ok());
}

// Submit does not block on points that are not reached, nothing starts before all are, and it starts when the last
// one is.
void Deferred(Bench& bench) {
  std::unique_ptr<Timeline> a = bench.CreateTimeline();
  std::unique_ptr<Timeline> b = bench.CreateTimeline();
  std::unique_ptr<Timeline> done = bench.CreateTimeline();
  std::unique_ptr<Buffer> buffer = bench.Allocate(8);
  Work work;
  work.Fill(*buffer, 0, 8, 7);
  const TimelinePoint waits[] = {{a.get(), 1}, {b.get(), 2}};
  const TimelinePoint signal{done.get(), 1};
  ASSERT_TRUE(bench.Submit(work, waits, {&signal, 1}).ok());
  b->Signal(2);
  EXPECT_EQ(done->Wait(1, RealClock().Now() + milliseconds(50)).code(), absl::StatusCode::kDeadlineExceeded);
  a->Signal(1);
  EXPECT_TRUE(Await(*done, 1).ok());
}

// A chain submitted backwards runs forwards.
void DeferredOrder(Bench& bench) {
  constexpr uint64_t kLength = 50;
  std::unique_ptr<Timeline> timeline = bench.CreateTimeline();
  std::unique_ptr<Buffer> buffer = bench.Allocate(kLength + 1);
  const uint8_t seed = 42;
  bench.WriteBytes(*buffer, 0, &seed, 1);
  std::vector<Work> works(kLength);
  std::vector<TimelinePoint> points(kLength + 1);
  for (uint64_t i = 0; i <= kLength; ++i) {
    points[i] = {timeline.get(), i + 1};
  }
  for (uint64_t i = kLength; i-- > 0;) {
    works[i].Copy(*buffer, i, *buffer, i + 1, 1);
    ASSERT_TRUE(bench.Submit(works[i], {&points[i], 1}, {&points[i + 1], 1}).ok());
  }
  timeline->Signal(1);
  ASSERT_TRUE(Await(*timeline, kLength + 1).ok());
  EXPECT_EQ(bench.Download<uint8_t>(*buffer), std::vector<uint8_t>(kLength + 1, 42));
}

// A failed wait point poisons what is submitted after it and what was waiting, transitively.
void Poison(Bench& bench) {
  std::unique_ptr<Timeline> a = bench.CreateTimeline();
  std::unique_ptr<Timeline> b = bench.CreateTimeline();
  std::unique_ptr<Timeline> c = bench.CreateTimeline();
  const TimelinePoint pa{a.get(), 1}, pb{b.get(), 1}, pc{c.get(), 1};
  Work first, second;
  std::unique_ptr<Buffer> buffer = bench.Allocate(4);
  first.Fill(*buffer, 0, 4, 1);
  second.Fill(*buffer, 0, 4, 2);
  ASSERT_TRUE(bench.Submit(second, {&pb, 1}, {&pc, 1}).ok());
  ASSERT_TRUE(bench.Submit(first, {&pa, 1}, {&pb, 1}).ok());
  a->Fail(DataLoss("Gone."));
  const Status status = Await(*c, 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Message(status), "Gone.");
  EXPECT_EQ(bench.Download<uint8_t>(*buffer), std::vector<uint8_t>(4, 0));
  std::unique_ptr<Timeline> late = bench.CreateTimeline();
  const TimelinePoint pl{late.get(), 1};
  ASSERT_TRUE(bench.Submit(first, {&pc, 1}, {&pl, 1}).ok());
  EXPECT_EQ(Await(*late, 1).code(), absl::StatusCode::kDataLoss);
}

// A submission that waits for a point reached before its timeline failed runs.
void ReachedBeforeFailure(Bench& bench) {
  std::unique_ptr<Timeline> a = bench.CreateTimeline();
  std::unique_ptr<Timeline> b = bench.CreateTimeline();
  a->Signal(1);
  a->Fail(Internal("Later."));
  const TimelinePoint pa{a.get(), 1}, pb{b.get(), 1};
  Submission submission;
  submission.waits = {&pa, 1};
  submission.signals = {&pb, 1};
  ASSERT_TRUE(bench.device().Submit(submission).ok());
  EXPECT_TRUE(Await(*b, 1).ok());
}

// A thread that settles points, with delays chosen so that the moment falls anywhere in a submission.
class Settler {
 public:
  Settler() : thread_([this] { Loop(); }) {}
  ~Settler() {
    next_.store(&end_);
    thread_.join();
  }
  struct Task {
    Timeline* timeline = nullptr;
    Status end;  // OK to reach 1.
    int spins = 0;
  };
  // Borrows the task until it has settled its timeline.
  void Start(const Task& task) { next_.store(&task); }

 private:
  void Loop() {
    while (true) {
      const Task* const task = next_.exchange(nullptr);
      if (task == &end_) {
        return;
      }
      if (task == nullptr) {
        std::this_thread::yield();
        continue;
      }
      for (int i = 0; i < task->spins; ++i) {
        std::atomic_signal_fence(std::memory_order_seq_cst);
      }
      if (task->end.ok()) {
        task->timeline->Signal(1);
      } else {
        task->timeline->Fail(task->end);
      }
    }
  }

  Task end_;
  std::atomic<const Task*> next_{nullptr};
  std::thread thread_;
};

// Whenever a point settles, even between two checks of it, the waiting submissions continue.
void SettlesBetweenLooks(Bench& bench) {
  Settler settler;
  std::unique_ptr<Buffer> buffer = bench.Allocate(8);
  for (int i = 0; i < 4'000; ++i) {
    std::unique_ptr<Timeline> awaited = bench.CreateTimeline();
    std::unique_ptr<Timeline> done = bench.CreateTimeline();
    Work work;
    work.Fill(*buffer, 0, 8, 7);
    const TimelinePoint wait{awaited.get(), 1}, signal{done.get(), 1};
    const Settler::Task task{awaited.get(), i % 2 == 0 ? Status() : DataLoss("Gone."), i * 7 % 20'000};
    settler.Start(task);
    ASSERT_TRUE(bench.Submit(work, {&wait, 1}, {&signal, 1}).ok());
    EXPECT_EQ(Await(*done, 1).code(), task.end.code()) << i;
  }
}

}  // namespace

std::vector<Case> TimelineCases() {
  return {{"timeline_signal", Signal},
          {"timeline_fail", Fail},
          {"timeline_wait", Wait},
          {"timeline_wait_any", WaitAny},
          {"timeline_waiters_and_signals", WaitersAndSignals},
          {"timeline_empty_submission", EmptySubmission},
          {"timeline_deferred", Deferred},
          {"timeline_deferred_order", DeferredOrder},
          {"timeline_poison", Poison},
          {"timeline_reached_before_failure", ReachedBeforeFailure},
          {"timeline_settles_between_looks", SettlesBetweenLooks}};
}

}  // namespace hpvm::conformance
