// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/pool.h"

#include <atomic>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

#include "base/clock.h"

namespace hpvm::cpu {
namespace {

using std::chrono::milliseconds;

// Waits for a condition that another thread brings about, for at most ten seconds.
template <typename Condition>
bool Eventually(const Condition& condition) {
  const Time until = RealClock().Now() + std::chrono::seconds(10);
  while (!condition()) {
    if (RealClock().Now() > until) {
      return false;
    }
    std::this_thread::sleep_for(milliseconds(1));
  }
  return true;
}

// Sums the indices it is given, and records the workers. Each chunk takes at least `chunk_time`, and lasts until the
// awaited workers have worked.
class Sum final : public PoolBody {
 public:
  explicit Sum(Duration chunk_time = Duration::zero()) : chunk_time_(chunk_time) {}

  void Work(Chunks& chunks) override {
    uint64_t begin, end;
    while (chunks.Next(&begin, &end)) {
      for (uint64_t i = begin; i < end; ++i) {
        total_.fetch_add(i, std::memory_order_relaxed);
      }
      count_.fetch_add(end - begin, std::memory_order_relaxed);
      workers_.fetch_or(1u << chunks.participant(), std::memory_order_relaxed);
      if (cancel_at_ != 0 && count_.load(std::memory_order_relaxed) >= cancel_at_) {
        chunks.Cancel();
      }
      if (chunk_time_ > Duration::zero()) {
        std::this_thread::sleep_for(chunk_time_);
      }
      Eventually([&] { return (workers_.load() & awaited_.load()) == awaited_.load(); });
    }
  }

  uint64_t total() const { return total_.load(); }
  uint64_t count() const { return count_.load(); }
  uint32_t workers() const { return workers_.load(); }
  void ForgetWorkers() { workers_.store(0); }
  // One bit per worker; 0: no worker is awaited any more.
  void AwaitWorkers(uint32_t workers) { awaited_.store(workers); }
  void CancelAt(uint64_t count) { cancel_at_ = count; }

 private:
  const Duration chunk_time_;
  std::atomic<uint64_t> total_{0}, count_{0};
  std::atomic<uint32_t> workers_{0}, awaited_{0};
  uint64_t cancel_at_ = 0;
};

GrantEntry& Fresh(GrantEntry& grant, uint32_t threads) {
  grant.epoch = 1;
  grant.cpu_threads = threads;
  grant.contended = 0;
  grant.state = static_cast<uint32_t>(GrantState::kGranted);
  return grant;
}

void Change(GrantEntry& grant, GrantState state, uint32_t threads) {
  grant.cpu_threads = threads;
  grant.state = static_cast<uint32_t>(state);
  grant.epoch.fetch_add(1);
}

// Every index is handed out exactly once, for any range and chunk sizes.
TEST(PoolTest, CoversTheRangeOnce) {
  for (uint32_t threads : {1u, 2u, 5u}) {
    Pool pool(threads, nullptr);
    for (uint64_t count : {0ull, 1ull, 2ull, 63ull, 1000ull, 100'003ull}) {
      for (uint64_t chunk_max : {1ull, 7ull, 1'000'000ull}) {
        std::vector<std::atomic<uint8_t>> seen(count);
        struct Mark final : PoolBody {
          explicit Mark(std::vector<std::atomic<uint8_t>>& s) : seen(s) {}
          void Work(Chunks& chunks) override {
            uint64_t begin, end;
            while (chunks.Next(&begin, &end)) {
              for (uint64_t i = begin; i < end; ++i) {
                seen[i - 10].fetch_add(1);
              }
            }
          }
          std::vector<std::atomic<uint8_t>>& seen;
        } body(seen);
        EXPECT_TRUE(pool.Run({10, 10 + count, 1, chunk_max, nullptr}, body));
        for (const auto& times : seen) {
          ASSERT_EQ(times.load(), 1) << threads << " threads, " << count << " units";
        }
      }
    }
  }
}

// Tens of thousands of tiny runs in a row, because a pool loses wake-ups when runs start and end.
TEST(PoolTest, ManySmallRuns) {
  Pool pool(3, nullptr);
  for (int run = 0; run < 20'000; ++run) {
    Sum sum;
    ASSERT_TRUE(pool.Run({0, 8, 1, 1, nullptr}, sum));
    ASSERT_EQ(sum.total(), 28u);
  }
}

// Helpers take part when chunks are long.
TEST(PoolTest, HelpersTakePart) {
  Pool pool(3, nullptr);
  Sum sum;
  sum.AwaitWorkers(7);
  EXPECT_TRUE(pool.Run({0, 60, 1, 1, nullptr}, sum));
  EXPECT_EQ(sum.workers(), 7u);
}

// Several threads may call Run: those that find the helpers busy work alone.
TEST(PoolTest, ConcurrentRuns) {
  Pool pool(3, nullptr);
  std::vector<std::thread> threads;
  std::atomic<uint64_t> failures{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int run = 0; run < 500; ++run) {
        Sum sum;
        failures += !pool.Run({0, 100, 1, 3, nullptr}, sum) || sum.total() != 4950 ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(failures.load(), 0u);
}

// Cancel ends the run at the next chunk boundaries, and Run reports it.
TEST(PoolTest, CancelStopsHandingOut) {
  Pool pool(2, nullptr);
  Sum sum;
  sum.CancelAt(100);
  EXPECT_FALSE(pool.Run({0, 1'000'000'000, 1, 1, nullptr}, sum));
  EXPECT_LT(sum.count(), 1'000'000u);
}

// The stop word ends a run from another thread.
TEST(PoolTest, StopWordEndsTheRun) {
  Pool pool(2, nullptr);
  std::atomic<uint32_t> stop{0};
  Sum sum(milliseconds(1));
  std::thread stopper([&] {
    EXPECT_TRUE(Eventually([&] { return sum.count() > 3; }));
    stop = 1;
  });
  EXPECT_FALSE(pool.Run({0, 1'000'000, 1, 1, &stop}, sum));
  stopper.join();
}

// With one granted thread no helper works; when three are granted in the middle of the run they join; with one again
// they leave.
TEST(PoolTest, GrantGrowsAndShrinks) {
  GrantEntry grant{};
  Pool pool(3, &Fresh(grant, 1));
  std::atomic<uint32_t> stop{0};
  Sum sum(milliseconds(1));
  std::thread daemon([&] {
    EXPECT_TRUE(Eventually([&] { return sum.count() >= 10; }));
    EXPECT_EQ(sum.workers(), 1u);
    Change(grant, GrantState::kGranted, 3);
    EXPECT_TRUE(Eventually([&] { return sum.workers() == 7; }));
    Change(grant, GrantState::kGranted, 1);
    // A helper may still be in a chunk that it took before.
    std::this_thread::sleep_for(milliseconds(100));
    sum.ForgetWorkers();
    const uint64_t before = sum.count();
    EXPECT_TRUE(Eventually([&] { return sum.count() >= before + 10; }));
    EXPECT_EQ(sum.workers(), 1u);
    stop = 1;
  });
  EXPECT_FALSE(pool.Run({0, 100'000'000, 1, 1, &stop}, sum));
  daemon.join();
}

// While the grant is revoked no chunk is taken; when it is restored the run continues, and the range is covered.
TEST(PoolTest, RevokedGrantPausesTheRun) {
  GrantEntry grant{};
  Pool pool(2, &Fresh(grant, 2));
  Sum sum(milliseconds(1));
  std::thread daemon([&] {
    EXPECT_TRUE(Eventually([&] { return sum.count() >= 10; }));
    Change(grant, GrantState::kRevoked, 2);
    std::this_thread::sleep_for(milliseconds(100));
    const uint64_t paused = sum.count();
    std::this_thread::sleep_for(milliseconds(100));
    EXPECT_EQ(sum.count(), paused);
    sum.ForgetWorkers();
    Change(grant, GrantState::kGranted, 2);
  });
  EXPECT_TRUE(pool.Run({0, 500, 1, 1, nullptr}, sum));
  daemon.join();
  EXPECT_EQ(sum.count(), 500u);
  EXPECT_EQ(sum.workers(), 3u);
}

// The gate counts chunks that are being computed: after a revocation the device is idle when they are done, and not
// before.
TEST(PoolTest, TheGateCountsChunks) {
  GrantEntry grant{};
  Fresh(grant, 2);
  GrantGate gate(grant);
  Pool pool(2, &grant, &gate);
  Sum sum;
  constexpr uint32_t kNobody = 1u << 31;
  sum.AwaitWorkers(kNobody);
  std::thread daemon([&] {
    EXPECT_TRUE(Eventually([&] { return gate.in_flight() == 2; }));
    Change(grant, GrantState::kRevoked, 2);
    EXPECT_EQ(gate.in_flight(), 2u);  // Both are in the middle of a chunk.
    sum.AwaitWorkers(0);
    EXPECT_TRUE(Eventually([&] { return gate.in_flight() == 0; }));
    const uint64_t paused = sum.count();
    std::this_thread::sleep_for(milliseconds(100));
    EXPECT_EQ(sum.count(), paused);
    Change(grant, GrantState::kGranted, 2);
  });
  EXPECT_TRUE(pool.Run({0, 10, 1, 1, nullptr}, sum));
  daemon.join();
  EXPECT_EQ(sum.count(), 10u);
  EXPECT_EQ(gate.in_flight(), 0u);
}

// A stopped job that has no grant ends.
TEST(PoolTest, StopEndsTheWaitForAGrant) {
  GrantEntry grant{};
  Fresh(grant, 2);
  Change(grant, GrantState::kRevoked, 2);
  Pool pool(2, &grant);
  std::atomic<uint32_t> stop{0};
  std::thread stopper([&] {
    std::this_thread::sleep_for(milliseconds(20));
    stop = 1;
  });
  Sum sum;
  EXPECT_FALSE(pool.Run({0, 1000, 1, 1, &stop}, sum));
  EXPECT_EQ(sum.count(), 0u);
  stopper.join();
}

// A thread count of the grant beyond the pool's own is clamped, because another process writes the page.
TEST(PoolTest, AllowedIsClamped) {
  GrantEntry grant{};
  Pool pool(4, &Fresh(grant, 0));
  EXPECT_EQ(pool.Allowed(), 1u);
  Change(grant, GrantState::kGranted, 1000);
  EXPECT_EQ(pool.Allowed(), 4u);
}

// Copies to other devices have cores of their own while they are in progress: helpers leave those cores, and return.
TEST(PoolTest, LeavesCoresToCopies) {
  CopyMeter meter;
  for (const bool has_grant : {false, true}) {
    GrantEntry grant{};
    Pool pool(4, has_grant ? &Fresh(grant, 4) : nullptr);
    auto flow = std::make_unique<CopyFlow>(meter, true, 2 * CopyFlow::kBytesMin, 0, 7);
    EXPECT_EQ(pool.Allowed(), 2u);
    EXPECT_TRUE(pool.MayWork(1));
    EXPECT_FALSE(pool.MayWork(2));
    EXPECT_TRUE(pool.MayOwn(3));
    Sum sum(milliseconds(1));
    std::thread copier([&] {
      EXPECT_TRUE(Eventually([&] { return sum.count() >= 20; }));
      EXPECT_EQ(sum.workers() & ~3u, 0u);
      flow.reset();
    });
    EXPECT_TRUE(pool.Run({0, 400, 1, 1, nullptr}, sum));
    copier.join();
    EXPECT_EQ(sum.workers(), 15u);
    EXPECT_EQ(pool.Allowed(), 4u);
  }
}

// Runs of every kind at once under a grant that changes all the time; mostly for ThreadSanitizer.
TEST(PoolTest, Stress) {
  GrantEntry grant{};
  Pool pool(4, &Fresh(grant, 4));
  std::atomic<bool> done{false};
  std::thread daemon([&] {
    for (uint32_t i = 0; !done; ++i) {
      grant.contended = i % 2;
      Change(grant, i % 5 == 0 ? GrantState::kRevoked : GrantState::kGranted, 1 + i % 4);
      std::this_thread::sleep_for(std::chrono::microseconds(300));
    }
    Change(grant, GrantState::kGranted, 4);
  });
  std::vector<std::thread> callers;
  for (uint32_t t = 0; t < 2; ++t) {
    callers.emplace_back([&, t] {
      for (int run = 0; run < 300; ++run) {
        Sum sum;
        EXPECT_TRUE(pool.Run({0, 1 + 37u * static_cast<uint32_t>(run % 30), 1, 1 + t, nullptr}, sum));
        EXPECT_EQ(sum.count(), 1 + 37u * static_cast<uint32_t>(run % 30));
      }
    });
  }
  for (std::thread& caller : callers) {
    caller.join();
  }
  done = true;
  daemon.join();
}

}  // namespace
}  // namespace hpvm::cpu
