// SPDX-License-Identifier: Apache-2.0
#include "base/fair_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace hpvm {
namespace {

using ::testing::ElementsAre;
using Step = FairQueue::Step;

// Blocks one thread of a queue until it is released.
class Plug {
 public:
  Plug(FairQueue& queue, const std::string& tenant) {
    queue.PostOnce(tenant, [this] {
      holds_.set_value();
      release_.get_future().wait();
    });
    holds_.get_future().wait();
  }
  void Release() { release_.set_value(); }

 private:
  std::promise<void> holds_, release_;
};

TEST(FairQueueTest, DoesOneTenantsWorkInOrderAndOneAtATime) {
  std::vector<int> done;
  std::atomic<int> inside{0};
  std::atomic<bool> overlapped{false};
  FairQueue queue("test", "work", 4);
  for (int i = 0; i < 200; ++i) {
    queue.PostOnce("a", [&, i] {
      overlapped = overlapped || inside.fetch_add(1) != 0;
      done.push_back(i);
      inside.fetch_sub(1);
    });
  }
  queue.Stop();
  EXPECT_FALSE(overlapped);
  ASSERT_EQ(done.size(), 200u);
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
}

// Another tenant's work waits for one step, not for all that was posted before it.
TEST(FairQueueTest, AnotherWaitsForOneStep) {
  FairQueue queue("test", "work", 1);
  Plug plug(queue, "heavy");
  std::vector<std::string> order;
  int steps = 0;
  queue.Post("heavy", [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    order.push_back("heavy");
    return ++steps == 50 ? Step::kDone : Step::kAgain;
  });
  queue.PostOnce("light", [&] { order.push_back("light"); });
  queue.PostOnce("light", [&] { order.push_back("light"); });
  plug.Release();
  queue.Stop();
  ASSERT_EQ(order.size(), 52u);
  // The plug's time counts against the heavy tenant.
  EXPECT_EQ(order[0], "light");
  EXPECT_EQ(order[1], "light");
}

// Steps differ in length: the queue shares time, not steps.
TEST(FairQueueTest, SharesTime) {
  std::atomic<bool> stop{false};
  std::atomic<int64_t> busy[2] = {0, 0};
  FairQueue queue("test", "work", 1);
  const auto spin = [&](size_t who, std::chrono::microseconds length) {
    return [&, who, length] {
      const auto start = std::chrono::steady_clock::now();
      while (std::chrono::steady_clock::now() - start < length) {
      }
      busy[who] += (std::chrono::steady_clock::now() - start).count();
      return stop ? Step::kDone : Step::kAgain;
    };
  };
  queue.Post("long", spin(0, std::chrono::microseconds(2'000)));
  queue.Post("short", spin(1, std::chrono::microseconds(100)));
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  stop = true;
  queue.Stop();
  const double share = static_cast<double>(busy[0]) / static_cast<double>(busy[0] + busy[1]);
  EXPECT_GT(share, 0.35);
  EXPECT_LT(share, 0.65);
}

// A tenant that was idle has saved up no time: it does not delay the others for as long as it was idle.
TEST(FairQueueTest, WhoWasAwayHasSavedNothing) {
  FairQueue queue("test", "work", 1);
  queue.PostOnce("late", [] {});
  std::atomic<int> steps{0};
  std::atomic<bool> stop{false};
  queue.Post("early", [&] {
    ++steps;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return stop ? Step::kDone : Step::kAgain;
  });
  while (steps < 50) {
    std::this_thread::yield();
  }
  const int before = steps;
  std::promise<int> during;
  int late = 0;
  queue.Post("late", [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (++late < 20) {
      return Step::kAgain;
    }
    during.set_value(steps);
    return Step::kDone;
  });
  EXPECT_GT(during.get_future().get() - before, 5);
  stop = true;
  queue.Stop();
}

TEST(FairQueueTest, TenantsShareThreads) {
  FairQueue queue("test", "work", 2);
  Plug one(queue, "a");
  std::promise<void> done;
  queue.PostOnce("a", [] {});  // Waits for its tenant's other work, and delays no other tenant.
  queue.PostOnce("b", [&] { done.set_value(); });
  done.get_future().wait();
  one.Release();
  queue.Stop();
  EXPECT_EQ(queue.waiting(), 0u);
}

// A queue that stops runs all posted work, and the work posted by it. Later work is not run, not even by the caller,
// which may hold a lock that the work takes.
TEST(FairQueueTest, StopsWhenAllIsDone) {
  FairQueue queue("test", "work", 2);
  std::vector<int> done;
  queue.PostOnce("a", [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    done.push_back(1);
    queue.PostOnce("a", [&] { done.push_back(2); });
  });
  queue.Stop();
  auto held = std::make_shared<int>(0);
  queue.PostOnce("a", [&, held] { done.push_back(3); });
  EXPECT_THAT(done, ElementsAre(1, 2));
  EXPECT_EQ(held.use_count(), 1);
}

// Work and what it holds are destroyed once it is done; thousands of tenants leave nothing behind.
TEST(FairQueueTest, ManyTenants) {
  auto held = std::make_shared<int>(0);
  std::atomic<int> done{0};
  FairQueue queue("test", "work", 3);
  for (int i = 0; i < 5'000; ++i) {
    queue.PostOnce("tenant-" + std::to_string(i % 1'250), [&, held] { ++done; });
  }
  queue.Stop();
  EXPECT_EQ(done, 5'000);
  EXPECT_EQ(held.use_count(), 1);
}

}  // namespace
}  // namespace hpvm
