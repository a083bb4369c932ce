// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/submit_thread.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace hpvm::gpu {
namespace {

using std::chrono::milliseconds;

Time Soon() { return RealClock().Now() + std::chrono::seconds(20); }
Time AMoment() { return RealClock().Now() + milliseconds(30); }

struct FakeMilestone final : Milestone {
  explicit FakeMilestone(uint64_t of) : number(of) {}
  const uint64_t number;
};

// A driver whose device finishes a flight when the test opens its gate. Submissions are identified by the value of
// their first signal.
class FakeDriver final : public Driver {
 public:
  std::unique_ptr<Flight> Enqueue(const Submission& submission, const Milestones& behind) override {
    const uint64_t number = submission.signals.empty() ? 0 : submission.signals[0].value;
    std::lock_guard lock(mutex_);
    order_.push_back(number);
    for (const std::shared_ptr<const Milestone>& milestone : behind) {
      behind_.push_back({number, static_cast<const FakeMilestone&>(*milestone).number});
    }
    enqueued_ = order_.size();
    return std::make_unique<FakeFlight>(*this, number, next_status_);
  }

  // Properties that flights report.
  bool may_trap = true, ends_on_host = false;

  void Open() {
    std::lock_guard lock(mutex_);
    ++opened_;
    gate_.notify_all();
  }
  void OpenAll() {
    std::lock_guard lock(mutex_);
    opened_ = 1'000'000;
    gate_.notify_all();
  }
  void FailNext(Status status) {
    std::lock_guard lock(mutex_);
    next_status_ = std::move(status);
  }
  std::vector<uint64_t> order() {
    std::lock_guard lock(mutex_);
    return order_;
  }
  // Pairs of a flight and the unfinished flight behind which it was enqueued.
  std::vector<std::pair<uint64_t, uint64_t>> behind() {
    std::lock_guard lock(mutex_);
    return behind_;
  }
  // Returns true when `count` submissions are enqueued before the deadline.
  bool Enqueues(size_t count, Time deadline) {
    while (enqueued_ < count) {
      if (RealClock().Now() > deadline) {
        return false;
      }
      std::this_thread::yield();
    }
    return true;
  }

 private:
  class FakeFlight final : public Flight {
   public:
    FakeFlight(FakeDriver& driver, uint64_t number, Status status)
        : driver_(driver), number_(number), status_(std::move(status)) {}
    Behind behind() const override {
      return driver_.ends_on_host ? Behind{} : Behind{std::make_shared<const FakeMilestone>(number_), driver_.may_trap};
    }
    Status Finish() override {
      std::unique_lock lock(driver_.mutex_);
      driver_.gate_.wait(lock, [&] { return driver_.opened_ > 0; });
      --driver_.opened_;
      return status_;
    }

   private:
    FakeDriver& driver_;
    const uint64_t number_;
    const Status status_;
  };

  std::mutex mutex_;
  std::condition_variable gate_;
  int opened_ = 0;
  std::vector<uint64_t> order_;
  std::vector<std::pair<uint64_t, uint64_t>> behind_;
  std::atomic<size_t> enqueued_{0};
  Status next_status_;
};

class FakeBuffer final : public Buffer {
 public:
  explicit FakeBuffer(uint8_t* host) : host_(host) {}
  uint64_t bytes() const override { return 8; }
  uint8_t* host() override { return host_; }

 private:
  uint8_t* const host_;
};

struct Fixture : testing::Test {
  // A submission that signals `number` on its own timeline.
  struct Item {
    std::unique_ptr<Timeline> timeline;
    TimelinePoint signal, wait;
    Submission submission;
  };
  std::unique_ptr<Item> Make(uint64_t number, const TimelinePoint* wait = nullptr) {
    auto item = std::make_unique<Item>();
    item->timeline = std::make_unique<Timeline>(hub);
    item->signal = {item->timeline.get(), number};
    item->submission.signals = {&item->signal, 1};
    if (wait != nullptr) {
      item->wait = *wait;
      item->submission.waits = {&item->wait, 1};
    }
    return item;
  }

  Hub hub;
  FakeDriver driver, copies;
  FlightBoard board{hub, nullptr};
};
// Threads are declared after the items they are given, because a timeline must outlive its signal.
using SubmitThreadTest = Fixture;

// Signals are reached when the device is done, not when it receives the work; meanwhile further submissions are
// enqueued, up to the limit.
TEST_F(SubmitThreadTest, EnqueuesAheadAndSignalsWhenDone) {
  std::vector<std::unique_ptr<Item>> items;
  SubmitThread thread(hub, driver, board, Lane::kCompute, nullptr);
  for (uint64_t i = 1; i <= FlightBoard::kFlightsMax + 2; ++i) {
    items.push_back(Make(i));
    ASSERT_TRUE(thread.Submit(items.back()->submission).ok());
  }
  ASSERT_TRUE(driver.Enqueues(FlightBoard::kFlightsMax, Soon()));
  EXPECT_FALSE(driver.Enqueues(FlightBoard::kFlightsMax + 1, AMoment()));
  EXPECT_EQ(Poll(items[0]->signal), PointState::kPending);
  driver.Open();
  EXPECT_TRUE(items[0]->timeline->Wait(1, Soon()).ok());
  EXPECT_EQ(Poll(items[1]->signal), PointState::kPending);
  ASSERT_TRUE(driver.Enqueues(FlightBoard::kFlightsMax + 1, Soon()));
  driver.OpenAll();
  for (auto& item : items) {
    EXPECT_TRUE(item->timeline->Wait(item->signal.value, Soon()).ok());
  }
  EXPECT_EQ(driver.order(), (std::vector<uint64_t>{1, 2, 3, 4, 5}));
}

// A waiting submission delays no other; it starts when its last point is reached, even by another submission.
TEST_F(SubmitThreadTest, WaitingHoldsUpNobody) {
  driver.OpenAll();
  std::unique_ptr<Timeline> gate = std::make_unique<Timeline>(hub);
  const TimelinePoint point{gate.get(), 5};
  auto first = Make(1, &point);
  auto second = Make(2, &first->signal);
  auto third = Make(3);
  SubmitThread thread(hub, driver, board, Lane::kCompute, nullptr);
  ASSERT_TRUE(thread.Submit(second->submission).ok());
  ASSERT_TRUE(thread.Submit(first->submission).ok());
  ASSERT_TRUE(thread.Submit(third->submission).ok());
  EXPECT_TRUE(third->timeline->Wait(3, Soon()).ok());
  gate->Signal(4);
  EXPECT_FALSE(driver.Enqueues(2, AMoment()));
  gate->Signal(5);
  EXPECT_TRUE(second->timeline->Wait(2, Soon()).ok());
  EXPECT_EQ(driver.order(), (std::vector<uint64_t>{3, 1, 2}));
}

// A failure propagates along the chain, and dependent submissions are never enqueued; independent ones run.
TEST_F(SubmitThreadTest, FailurePoisons) {
  auto failing = Make(1);
  auto victim = Make(2, &failing->signal);
  auto last = Make(3, &victim->signal);
  auto bystander = Make(4);
  driver.FailNext(Aborted("Kernel trapped."));
  SubmitThread thread(hub, driver, board, Lane::kCompute, nullptr);
  ASSERT_TRUE(thread.Submit(last->submission).ok());
  ASSERT_TRUE(thread.Submit(victim->submission).ok());
  ASSERT_TRUE(thread.Submit(failing->submission).ok());
  ASSERT_TRUE(driver.Enqueues(1, Soon()));
  driver.FailNext(absl::OkStatus());
  ASSERT_TRUE(thread.Submit(bystander->submission).ok());
  driver.OpenAll();
  for (Item* item : {failing.get(), victim.get(), last.get()}) {
    const Status status = item->timeline->Wait(item->signal.value, Soon());
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
    EXPECT_EQ(Message(status), "Kernel trapped.");
  }
  EXPECT_TRUE(bystander->timeline->Wait(4, Soon()).ok());
  EXPECT_EQ(driver.order(), (std::vector<uint64_t>{1, 4}));
}

// A point reached before its timeline failed counts as reached.
TEST_F(SubmitThreadTest, ReachedBeforeFailureRuns) {
  driver.OpenAll();
  std::unique_ptr<Timeline> gate = std::make_unique<Timeline>(hub);
  gate->Signal(1);
  gate->Fail(Internal("Later."));
  const TimelinePoint reached{gate.get(), 1}, failed{gate.get(), 2};
  auto runs = Make(1, &reached), fails = Make(2, &failed);
  SubmitThread thread(hub, driver, board, Lane::kCompute, nullptr);
  ASSERT_TRUE(thread.Submit(runs->submission).ok());
  ASSERT_TRUE(thread.Submit(fails->submission).ok());
  EXPECT_TRUE(runs->timeline->Wait(1, Soon()).ok());
  EXPECT_EQ(fails->timeline->Wait(2, Soon()).code(), absl::StatusCode::kInternal);
}

// A stop word set before a submission's turn drops it.
TEST_F(SubmitThreadTest, StopDropsWhatIsNotEnqueued) {
  std::atomic<uint32_t> stop{0};
  std::unique_ptr<Timeline> gate = std::make_unique<Timeline>(hub);
  const TimelinePoint point{gate.get(), 1};
  auto stopped = Make(1, &point), other = Make(2, &point);
  stopped->submission.stop = &stop;
  driver.OpenAll();
  SubmitThread thread(hub, driver, board, Lane::kCompute, nullptr);
  ASSERT_TRUE(thread.Submit(stopped->submission).ok());
  ASSERT_TRUE(thread.Submit(other->submission).ok());
  stop = 1;
  gate->Signal(1);
  EXPECT_EQ(stopped->timeline->Wait(1, Soon()).code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(other->timeline->Wait(2, Soon()).ok());
  EXPECT_EQ(driver.order(), (std::vector<uint64_t>{2}));
}

// Closing waits for enqueued flights, whose signals are reached, and cancels the rest.
TEST_F(SubmitThreadTest, ClosingFinishesFlightsAndCancelsTheRest) {
  std::unique_ptr<Timeline> gate = std::make_unique<Timeline>(hub);
  const TimelinePoint never{gate.get(), 1};
  auto flying = Make(1), waiting = Make(2, &never);
  std::thread opener;
  {
    SubmitThread thread(hub, driver, board, Lane::kCompute, nullptr);
    ASSERT_TRUE(thread.Submit(flying->submission).ok());
    ASSERT_TRUE(thread.Submit(waiting->submission).ok());
    ASSERT_TRUE(driver.Enqueues(1, Soon()));
    opener = std::thread([&] {
      std::this_thread::sleep_for(milliseconds(20));
      driver.OpenAll();
    });
  }
  opener.join();
  EXPECT_EQ(Poll(flying->signal), PointState::kReached);
  Status failure;
  EXPECT_EQ(Poll(waiting->signal, &failure), PointState::kFailed);
  EXPECT_EQ(failure.code(), absl::StatusCode::kCancelled);
}

// Each of many submissions settles, in whatever order their points are reached.
TEST_F(SubmitThreadTest, ManyInterleaved) {
  driver.OpenAll();
  constexpr uint64_t kCount = 300;
  std::unique_ptr<Timeline> gate = std::make_unique<Timeline>(hub);
  std::vector<TimelinePoint> points(kCount);
  std::vector<std::unique_ptr<Item>> items;
  SubmitThread thread(hub, driver, board, Lane::kCompute, nullptr);
  for (uint64_t i = 0; i < kCount; ++i) {
    points[i] = {gate.get(), (i * 7) % 11};
    items.push_back(Make(i + 1, &points[i]));
    ASSERT_TRUE(thread.Submit(items.back()->submission).ok());
    if (i % 30 == 29) {
      gate->Signal(i / 30 + 1);
    }
  }
  for (auto& item : items) {
    EXPECT_TRUE(item->timeline->Wait(item->signal.value, Soon()).ok());
  }
}

// Nothing reaches the driver while the device is not granted; stopped submissions end meanwhile, even behind others.
TEST_F(SubmitThreadTest, WaitsForItsGrant) {
  GrantEntry entry{};
  GrantGate gate(entry);
  FlightBoard granted(hub, &gate);
  const auto first = Make(1), second = Make(2);
  std::atomic<uint32_t> stop{0};
  SubmitThread thread(hub, driver, granted, Lane::kCompute, &gate);
  second->submission.stop = &stop;
  ASSERT_TRUE(thread.Submit(first->submission).ok());
  ASSERT_TRUE(thread.Submit(second->submission).ok());
  EXPECT_FALSE(driver.Enqueues(1, AMoment()));
  EXPECT_EQ(gate.in_flight(), 0u);
  stop.store(1);
  EXPECT_EQ(second->timeline->Wait(2, Soon()).code(), absl::StatusCode::kCancelled);
  entry.state.store(static_cast<uint32_t>(GrantState::kGranted));
  ASSERT_TRUE(driver.Enqueues(1, Soon()));
  EXPECT_EQ(gate.in_flight(), 1u);
  driver.Open();
  EXPECT_TRUE(first->timeline->Wait(1, Soon()).ok());
  EXPECT_EQ(gate.in_flight(), 0u);
}

// No more flights than the daemon allows.
TEST_F(SubmitThreadTest, KeepsToWhatMayBeInFlight) {
  GrantEntry entry{};
  entry.state.store(static_cast<uint32_t>(GrantState::kGranted));
  entry.in_flight_max.store(1);
  GrantGate gate(entry);
  FlightBoard granted(hub, &gate);
  const auto first = Make(1), second = Make(2);
  SubmitThread thread(hub, driver, granted, Lane::kCompute, &gate);
  ASSERT_TRUE(thread.Submit(first->submission).ok());
  ASSERT_TRUE(thread.Submit(second->submission).ok());
  ASSERT_TRUE(driver.Enqueues(1, Soon()));
  EXPECT_FALSE(driver.Enqueues(2, AMoment()));
  driver.OpenAll();
  EXPECT_TRUE(second->timeline->Wait(2, Soon()).ok());
}

// A closing device does not wait for its grant.
TEST_F(SubmitThreadTest, ClosesWithoutAGrant) {
  GrantEntry entry{};
  GrantGate gate(entry);
  const auto item = Make(1);
  {
    FlightBoard granted(hub, &gate);
    SubmitThread thread(hub, driver, granted, Lane::kCompute, &gate);
    ASSERT_TRUE(thread.Submit(item->submission).ok());
    EXPECT_FALSE(driver.Enqueues(1, AMoment()));
  }
  EXPECT_EQ(item->timeline->Wait(1, Soon()).code(), absl::StatusCode::kCancelled);
}

// A submission of another lane is enqueued behind a flight that cannot trap; it settles after that flight and inherits
// its failure.
TEST_F(SubmitThreadTest, WaitsForOtherLanesOnTheDevice) {
  copies.may_trap = false;
  copies.FailNext(Aborted("The copy failed."));
  const auto upload = Make(1), kernel = Make(2, &upload->signal);
  SubmitThread kernels(hub, driver, board, Lane::kCompute, nullptr),
      uploads(hub, copies, board, Lane::kUpload, nullptr);
  ASSERT_TRUE(kernels.Submit(kernel->submission).ok());
  ASSERT_TRUE(uploads.Submit(upload->submission).ok());
  ASSERT_TRUE(driver.Enqueues(1, Soon()));
  EXPECT_EQ(driver.behind(), (std::vector<std::pair<uint64_t, uint64_t>>{{2, 1}}));
  driver.OpenAll();
  EXPECT_EQ(kernel->timeline->Wait(2, AMoment()).code(), absl::StatusCode::kDeadlineExceeded);
  copies.OpenAll();
  EXPECT_EQ(Message(kernel->timeline->Wait(2, Soon())), "The copy failed.");
  EXPECT_EQ(Message(upload->timeline->Wait(1, Soon())), "The copy failed.");
}

// Only copies to host memory are enqueued behind a flight that may trap; nothing behind a flight that copies to host
// memory.
TEST_F(SubmitThreadTest, WaitsOnTheHostForWhatMayTrap) {
  const std::unique_ptr<Buffer> device = std::make_unique<FakeBuffer>(nullptr);
  uint8_t memory[8];
  const std::unique_ptr<Buffer> host = std::make_unique<FakeBuffer>(memory);
  Buffer* const buffers[] = {device.get(), host.get()};
  CommandList to_host, within;
  to_host.commands = {CopyCommand{0, 1, 0, 0, 8}};
  within.commands = {CopyCommand{0, 0, 0, 4, 4}};
  copies.ends_on_host = true;
  const auto kernel = Make(1), download = Make(2, &kernel->signal), copy = Make(3, &kernel->signal);
  const auto last = Make(4, &download->signal);
  SubmitThread kernels(hub, driver, board, Lane::kCompute, nullptr),
      others(hub, copies, board, Lane::kDownload, nullptr);
  for (Item* item : {download.get(), copy.get()}) {
    item->submission.buffers = buffers;
  }
  download->submission.commands = &to_host;
  copy->submission.commands = &within;
  ASSERT_TRUE(kernels.Submit(kernel->submission).ok());
  ASSERT_TRUE(kernels.Submit(last->submission).ok());
  ASSERT_TRUE(others.Submit(copy->submission).ok());
  ASSERT_TRUE(others.Submit(download->submission).ok());
  ASSERT_TRUE(copies.Enqueues(1, Soon()));
  EXPECT_FALSE(copies.Enqueues(2, AMoment()));
  EXPECT_FALSE(driver.Enqueues(2, AMoment()));
  EXPECT_EQ(copies.behind(), (std::vector<std::pair<uint64_t, uint64_t>>{{2, 1}}));
  driver.OpenAll();
  EXPECT_TRUE(kernel->timeline->Wait(1, Soon()).ok());
  // It reads memory that the download may be writing.
  EXPECT_FALSE(copies.Enqueues(2, AMoment()));
  copies.OpenAll();
  EXPECT_TRUE(copy->timeline->Wait(3, Soon()).ok());
  EXPECT_TRUE(last->timeline->Wait(4, Soon()).ok());
  EXPECT_EQ(copies.behind().size() + driver.behind().size(), 1u);
}

// Values of a timeline are reached in order: a submission that signals a higher value does not overtake a waiting one.
TEST_F(SubmitThreadTest, KeepsTheOrderOfATimeline) {
  driver.OpenAll();
  const std::unique_ptr<Timeline> gate = std::make_unique<Timeline>(hub), shared = std::make_unique<Timeline>(hub);
  const TimelinePoint point{gate.get(), 1};
  const auto first = Make(1, &point), second = Make(2), other = Make(3);
  for (Item* item : {first.get(), second.get()}) {
    item->signal.timeline = shared.get();
  }
  SubmitThread thread(hub, driver, board, Lane::kCompute, nullptr);
  ASSERT_TRUE(thread.Submit(first->submission).ok());
  ASSERT_TRUE(thread.Submit(second->submission).ok());
  ASSERT_TRUE(thread.Submit(other->submission).ok());
  EXPECT_TRUE(other->timeline->Wait(3, Soon()).ok());
  EXPECT_FALSE(driver.Enqueues(2, AMoment()));
  gate->Signal(1);
  EXPECT_TRUE(shared->Wait(2, Soon()).ok());
  EXPECT_EQ(driver.order(), (std::vector<uint64_t>{3, 1, 2}));
}

// A submission that fails early does not fail the timeline under flights that are to reach smaller values of it,
// because their buffers are still in use.
TEST_F(SubmitThreadTest, FailuresSettleInTheirTurn) {
  const std::unique_ptr<Timeline> gate = std::make_unique<Timeline>(hub), shared = std::make_unique<Timeline>(hub);
  gate->Fail(Internal("Broken."));
  const TimelinePoint broken{gate.get(), 1};
  std::atomic<uint32_t> stop{1};
  const auto flying = Make(1), failing = Make(2, &broken), stopped = Make(3);
  stopped->submission.stop = &stop;
  for (Item* item : {flying.get(), failing.get(), stopped.get()}) {
    item->signal.timeline = shared.get();
  }
  SubmitThread thread(hub, driver, board, Lane::kCompute, nullptr);
  for (Item* item : {flying.get(), failing.get(), stopped.get()}) {
    ASSERT_TRUE(thread.Submit(item->submission).ok());
  }
  EXPECT_EQ(shared->Wait(1, AMoment()).code(), absl::StatusCode::kDeadlineExceeded);
  driver.OpenAll();
  EXPECT_TRUE(shared->Wait(1, Soon()).ok());
  EXPECT_EQ(Message(shared->Wait(2, Soon())), "Broken.");
  EXPECT_EQ(Message(shared->Wait(3, Soon())), "Broken.");
}

// A flight behind a failed one of a timeline fails every timeline that it signals.
TEST_F(SubmitThreadTest, FailuresReachAllTimelinesOfAFlight) {
  const std::unique_ptr<Timeline> shared = std::make_unique<Timeline>(hub), own = std::make_unique<Timeline>(hub);
  const auto failing = Make(1), flying = Make(2);
  failing->signal.timeline = shared.get();
  const TimelinePoint both[] = {{shared.get(), 2}, {own.get(), 1}};
  flying->submission.signals = both;
  driver.FailNext(Aborted("Kernel trapped."));
  SubmitThread thread(hub, driver, board, Lane::kCompute, nullptr);
  ASSERT_TRUE(thread.Submit(failing->submission).ok());
  ASSERT_TRUE(driver.Enqueues(1, Soon()));
  driver.FailNext(absl::OkStatus());
  ASSERT_TRUE(thread.Submit(flying->submission).ok());
  ASSERT_TRUE(driver.Enqueues(2, Soon()));
  driver.OpenAll();
  EXPECT_EQ(Message(shared->Wait(2, Soon())), "Kernel trapped.");
  EXPECT_EQ(Message(own->Wait(1, Soon())), "Kernel trapped.");
}

// A timeline fails when the last flight that signals it has ended, because a waiter that sees the failure frees
// everything that the flights name; submissions that had not begun, and later ones, never begin.
TEST_F(SubmitThreadTest, FailsATimelineWhenNobodyUsesIt) {
  const std::unique_ptr<Timeline> gate = std::make_unique<Timeline>(hub), shared = std::make_unique<Timeline>(hub);
  const TimelinePoint never{gate.get(), 1};
  const auto failing = Make(1), flying = Make(2), waiting = Make(3, &never), late = Make(4);
  for (Item* item : {failing.get(), flying.get(), waiting.get(), late.get()}) {
    item->signal.timeline = shared.get();
  }
  driver.FailNext(Aborted("Kernel trapped."));
  SubmitThread thread(hub, driver, board, Lane::kCompute, nullptr);
  ASSERT_TRUE(thread.Submit(failing->submission).ok());
  ASSERT_TRUE(driver.Enqueues(1, Soon()));
  driver.FailNext(absl::OkStatus());
  ASSERT_TRUE(thread.Submit(flying->submission).ok());
  ASSERT_TRUE(thread.Submit(waiting->submission).ok());
  ASSERT_TRUE(driver.Enqueues(2, Soon()));
  driver.Open();
  EXPECT_EQ(shared->Wait(1, AMoment()).code(), absl::StatusCode::kDeadlineExceeded);
  driver.Open();
  EXPECT_EQ(Message(shared->Wait(1, Soon())), "Kernel trapped.");
  EXPECT_EQ(Message(shared->Wait(3, Soon())), "Kernel trapped.");
  ASSERT_TRUE(thread.Submit(late->submission).ok());
  gate->Signal(1);
  EXPECT_FALSE(driver.Enqueues(3, AMoment()));
}

// When a flight fails, the later submissions on its timeline also fail, and the timelines for which they waited may be
// destroyed at once, although the thread waited for those.
TEST_F(SubmitThreadTest, NobodyLooksAtWhatTheFailedWaitedFor) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  ASSERT_LE(sizeof(Timeline), page);
  void* const memory = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  for (int round = 0; round < 300; ++round) {
    auto* awaited = new (memory) Timeline(hub);
    const TimelinePoint wait{awaited, 1};
    const std::unique_ptr<Item> first = Make(1);
    Item second;
    second.signal = {first->timeline.get(), 2};
    second.submission.signals = {&second.signal, 1};
    second.wait = wait;
    second.submission.waits = {&second.wait, 1};
    SubmitThread thread(hub, driver, board, Lane::kCompute, nullptr);
    driver.FailNext(Unavailable("The device is lost."));
    ASSERT_TRUE(thread.Submit(first->submission).ok());
    ASSERT_TRUE(driver.Enqueues(static_cast<size_t>(round) + 1, Soon()));
    ASSERT_TRUE(thread.Submit(second.submission).ok());
    std::this_thread::sleep_for(std::chrono::microseconds(round % 3 * 100));
    driver.Open();
    const Time end = Soon();
    while (Poll(second.signal) == PointState::kPending && RealClock().Now() < end) {  // Sooner than a wait would end.
    }
    ASSERT_EQ(Poll(second.signal), PointState::kFailed);
    awaited->~Timeline();
    ASSERT_EQ(mprotect(memory, page, PROT_NONE), 0);  // Any later access there ends the program.
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    ASSERT_EQ(mprotect(memory, page, PROT_READ | PROT_WRITE), 0);
  }
  munmap(memory, page);
}

// The daemon's limit counts the flights of all lanes.
TEST_F(SubmitThreadTest, LanesShareWhatMayBeInFlight) {
  GrantEntry entry{};
  entry.state.store(static_cast<uint32_t>(GrantState::kGranted));
  entry.in_flight_max.store(2);
  GrantGate gate(entry);
  FlightBoard granted(hub, &gate);
  const auto first = Make(1), second = Make(2), third = Make(3);
  SubmitThread kernels(hub, driver, granted, Lane::kCompute, &gate),
      uploads(hub, copies, granted, Lane::kUpload, &gate);
  ASSERT_TRUE(kernels.Submit(first->submission).ok());
  ASSERT_TRUE(driver.Enqueues(1, Soon()));
  ASSERT_TRUE(uploads.Submit(second->submission).ok());
  ASSERT_TRUE(uploads.Submit(third->submission).ok());
  ASSERT_TRUE(copies.Enqueues(1, Soon()));
  EXPECT_FALSE(copies.Enqueues(2, AMoment()));
  EXPECT_EQ(gate.in_flight(), 2u);
  driver.OpenAll();
  EXPECT_TRUE(copies.Enqueues(2, Soon()));
  copies.OpenAll();
  EXPECT_TRUE(third->timeline->Wait(3, Soon()).ok());
}

}  // namespace
}  // namespace hpvm::gpu
