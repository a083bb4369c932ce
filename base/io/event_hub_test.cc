// SPDX-License-Identifier: Apache-2.0
#include "base/io/event_hub.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <vector>

namespace hpvm {
namespace {

constexpr uint8_t kBell = 200;

// The peer's count stands for a ring in shared memory.
class CountSource : public EventSource {
 public:
  explicit CountSource(EventHub& hub) : hub_(hub), bell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    hub_.RunAndWait([this] {
      id_ = hub_.Add(this);
      EXPECT_TRUE(hub_.Watch(id_, kBell, bell_.get(), EPOLLIN | EPOLLET).ok());
    });
  }
  ~CountSource() override {
    hub_.RunAndWait([this] { hub_.Remove(id_); });
  }

  // Called by the peer: adds one, and rings the bell if necessary.
  void Put() {
    put_.fetch_add(1);
    if (asleep_.exchange(false)) {
      Ring();
    }
  }
  void Ring() {
    const uint64_t one = 1;
    ASSERT_EQ(write(bell_.get(), &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
  }
  void AwaitTaken(uint64_t count) const {
    while (taken_.load() != count) {
      std::this_thread::yield();
    }
  }

  void OnEvent(uint8_t kind, uint32_t) override {
    EXPECT_EQ(kind, kBell);
    events_.fetch_add(1);
    hub_.KeepAwake(id_);
    hub_.KeepAwake(id_);  // Causes no second turn.
  }
  void OnTimer(uint64_t tag) override { timers_.push_back(tag); }
  bool OnTurn() override {
    turns_.fetch_add(1);
    if (taken_.load() == put_.load()) {
      return false;
    }
    taken_.fetch_add(1);
    return true;
  }
  bool BeginSleep() override {
    asleep_.store(true);
    if (taken_.load() != put_.load()) {
      asleep_.store(false);
      return false;
    }
    return true;
  }

  EventHub& hub_;
  UniqueFd bell_;
  uint64_t id_ = 0;
  std::atomic<uint64_t> put_{0}, taken_{0}, events_{0}, turns_{0};
  std::atomic<bool> asleep_{true};
  std::vector<uint64_t> timers_;  // Used only on the hub's thread.
};

std::unique_ptr<EventHub> MakeHub(Duration spin = Duration(0)) {
  StatusOr<std::unique_ptr<EventHub>> hub = EventHub::Create(spin);
  EXPECT_TRUE(hub.ok()) << hub.status();
  return *std::move(hub);
}

TEST(EventHubTest, PostedWorkRunsInOrderAndMayPost) {
  const auto hub = MakeHub();
  std::vector<int> ran;
  for (int i = 0; i < 3; ++i) {
    hub->Post([&, i] {
      EXPECT_TRUE(hub->IsHubThread());
      ran.push_back(i);
      hub->RunAndWait([&, i] { hub->Post([&, i] { ran.push_back(10 + i); }); });
    });
  }
  hub->RunAndWait([] {});
  hub->RunAndWait([] {});
  hub->RunAndWait([&] {
    ASSERT_EQ(ran.size(), 6u);
    EXPECT_EQ(ran[0], 0);
    EXPECT_EQ(ran[5], 12);
  });
}

TEST(EventHubTest, TimersFireInOrderAndNotForARemovedSource) {
  const auto hub = MakeHub();
  CountSource source(*hub);
  {
    CountSource removed(*hub);
    hub->StartTimer(RealClock().Now() + std::chrono::milliseconds(1), removed.id_, 9);
  }
  const Time now = RealClock().Now();
  hub->StartTimer(now + std::chrono::milliseconds(20), source.id_, 2);
  hub->StartTimer(now + std::chrono::milliseconds(5), source.id_, 1);  // Shortens the sleep.
  hub->StartTimer(now + std::chrono::hours(1), source.id_, 3);
  std::vector<uint64_t> fired;
  while (fired.size() < 2) {
    hub->RunAndWait([&] { fired = source.timers_; });
  }
  EXPECT_EQ(fired, (std::vector<uint64_t>{1, 2}));
  EXPECT_GE(RealClock().Now() - now, std::chrono::milliseconds(20));
}

// The thread sleeps whenever it can: a missed bell hangs the test.
TEST(EventHubTest, NothingIsMissedHoweverLongTheThreadSpins) {
  for (const Duration spin : {Duration(0), Duration(std::chrono::microseconds(20))}) {
    const auto hub = MakeHub(spin);
    CountSource source(*hub), other(*hub);
    for (uint64_t i = 1; i <= 20'000; ++i) {
      source.Put();
      if (i % 7 == 0) {
        other.Put();
      }
      if (i % 3 == 0) {
        source.AwaitTaken(i);
      }
    }
    source.AwaitTaken(20'000);
    other.AwaitTaken(20'000 / 7);
  }
}

TEST(EventHubTest, ASourceThatIsAwakeNeedsNoBell) {
  const auto hub = MakeHub(std::chrono::seconds(10));
  CountSource source(*hub);
  source.Put();
  source.AwaitTaken(1);
  for (uint64_t i = 2; i <= 100; ++i) {
    source.Put();
    source.AwaitTaken(i);
  }
  EXPECT_EQ(source.events_.load(), 1u);
  hub->RunAndWait([] {});  // A spinning thread does not delay posted work.
}

TEST(EventHubTest, BusySourcesHoldNeitherEachOtherNorEventsNorTimersUp) {
  const auto hub = MakeHub();
  CountSource busy(*hub), other(*hub);
  busy.put_.store(UINT64_MAX - 1);  // Work without end.
  busy.Put();
  while (busy.taken_.load() < 1000) {
    std::this_thread::yield();
  }
  hub->StartTimer(RealClock().Now(), other.id_, 1);
  other.Put();
  other.AwaitTaken(1);
  size_t fired = 0;
  while (fired == 0) {
    hub->RunAndWait([&] { fired = other.timers_.size(); });
  }
  EXPECT_FALSE(busy.asleep_.load());
}

// Bells without anything to take: the thread sleeps again, and serves the other sources.
TEST(EventHubTest, ABellWithoutEndIsOnlyEvents) {
  const auto hub = MakeHub();
  CountSource source(*hub), other(*hub);
  for (int i = 0; i < 1000; ++i) {
    source.Ring();
  }
  other.Put();
  other.AwaitTaken(1);
  hub->RunAndWait([] {});
  EXPECT_LE(source.events_.load(), 1000u);
  EXPECT_GE(source.events_.load(), 1u);
}

TEST(EventHubTest, ASourceMayGoDuringItsTurn) {
  const auto hub = MakeHub();
  class Leaving : public CountSource {
   public:
    using CountSource::CountSource;
    bool OnTurn() override {
      hub_.Remove(id_);
      turns_.fetch_add(1);
      return true;
    }
  };
  Leaving source(*hub);
  CountSource other(*hub);
  source.Put();
  while (source.turns_.load() == 0) {
    std::this_thread::yield();
  }
  other.Put();
  other.AwaitTaken(1);
  hub->RunAndWait([] {});
  EXPECT_EQ(source.turns_.load(), 1u);
}

}  // namespace
}  // namespace hpvm
