// SPDX-License-Identifier: Apache-2.0
// Tests command lists in their partial order; mostly for ThreadSanitizer.
#include "backends/cpu/flow.h"

#include <atomic>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

#include "base/clock.h"

namespace hpvm::cpu {
namespace {

using std::chrono::microseconds;
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

// Commands [0, count) with edges from earlier to later ones.
struct Dag {
  explicit Dag(uint32_t count) : after(count) {}
  std::vector<std::vector<uint32_t>> after;  // Indexed by command: the commands that it waits for.

  uint32_t size() const { return static_cast<uint32_t>(after.size()); }
  CommandList ToList() const {
    CommandList list;
    CommandOrder order;
    std::vector<std::vector<uint32_t>> successors(after.size());
    for (uint32_t c = 0; c < after.size(); ++c) {
      DispatchCommand dispatch;
      dispatch.node = c;
      list.commands.emplace_back(dispatch);
      order.predecessors.push_back(static_cast<uint32_t>(after[c].size()));
      for (const uint32_t before : after[c]) {
        successors[before].push_back(c);
      }
    }
    for (const std::vector<uint32_t>& some : successors) {
      order.first_successor.push_back(static_cast<uint32_t>(order.successors.size()));
      order.successors.insert(order.successors.end(), some.begin(), some.end());
    }
    order.first_successor.push_back(static_cast<uint32_t>(order.successors.size()));
    list.order = std::make_unique<const CommandOrder>(std::move(order));
    return list;
  }
};

// Chains, wide levels, forks and joins, and anything in between.
Dag RandomDag(SeededRng& rng) {
  Dag dag(1 + static_cast<uint32_t>(rng.Below(300)));
  const uint64_t fan_in = rng.Below(5), reach = 1 + rng.Below(dag.size());
  for (uint32_t c = 1; c < dag.size(); ++c) {
    for (uint64_t i = rng.Below(fan_in + 1); i > 0; --i) {
      const uint32_t before = c - 1 - static_cast<uint32_t>(rng.Below(std::min<uint64_t>(c, reach)));
      if (std::find(dag.after[c].begin(), dag.after[c].end(), before) == dag.after[c].end()) {
        dag.after[c].push_back(before);
      }
    }
  }
  return dag;
}

// Counts how often each command ran, and checks that its predecessors had ended.
class Recorder : public backends::CommandTarget {
 public:
  explicit Recorder(const Dag& dag) : dag_(dag), times_(dag.size()), ended_(dag.size()) {}

  Status Run(const Command& command, const Submission& submission, backends::CommandRecord* record) override {
    const uint32_t c = std::get<DispatchCommand>(command).node;
    times_[c].fetch_add(1);
    for (const uint32_t before : dag_.after[c]) {
      violations_.fetch_add(ended_[before].load(std::memory_order_relaxed) == 0 ? 1 : 0);
    }
    workers_.fetch_or(1u << ThisPoolThread().index);
    Status status = Do(c, submission);
    ended_[c].store(1, std::memory_order_relaxed);
    return status;
  }
  // Returns true when each command ran `times` times, after its predecessors.
  bool IsRight(uint32_t times) const {
    return violations_.load() == 0 &&
           std::all_of(times_.begin(), times_.end(), [&](const auto& count) { return count.load() == times; });
  }
  uint32_t Started() const {
    uint32_t sum = 0;
    for (const auto& count : times_) {
      sum += count.load();
    }
    return sum;
  }
  void Forget() {
    for (auto& ended : ended_) {
      ended.store(0);
    }
  }
  uint32_t violations() const { return violations_.load(); }
  uint32_t workers() const { return workers_.load(); }
  void ForgetWorkers() { workers_.store(0); }

 protected:
  virtual Status Do(uint32_t, const Submission&) { return absl::OkStatus(); }

 private:
  const Dag& dag_;
  std::vector<std::atomic<uint32_t>> times_, ended_;
  std::atomic<uint32_t> violations_{0}, workers_{0};
};

// Runs a list on a pool repeatedly with the same memo.
class Runner {
 public:
  Runner(Pool& pool, const Dag& dag) : list_(dag.ToList()), memo_(this, *list_.order, pool.threads()), pool_(pool) {}
  Status Run(backends::CommandTarget& target, const std::atomic<uint32_t>* stop = nullptr) {
    timings.assign(list_.commands.size(), {});
    failure = {};
    Submission submission;
    submission.commands = &list_;
    submission.stop = stop;
    submission.timings = timings;
    submission.failure = &failure;
    return Flow(pool_, target, submission, memo_).Run();
  }
  std::vector<NodeTiming> timings;
  Failure failure;

 private:
  CommandList list_;
  FlowMemo memo_;
  Pool& pool_;
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

// Each command runs once, after its predecessors, and has a time, for any graph and number of workers.
TEST(FlowTest, RandomGraphs) {
  for (const uint32_t threads : {1u, 2u, 3u, 5u}) {
    Pool pool(threads, nullptr);
    for (uint64_t seed = 0; seed < 300; ++seed) {
      SeededRng rng(seed * 8 + threads);
      const Dag dag = RandomDag(rng);
      Recorder recorder(dag);
      Runner runner(pool, dag);
      for (uint32_t round = 1; round <= 3; ++round) {
        recorder.Forget();
        const Status status = runner.Run(recorder);
        ASSERT_TRUE(status.ok()) << status;
        ASSERT_TRUE(recorder.IsRight(round)) << "seed " << seed << ", threads " << threads;
        for (const NodeTiming& timing : runner.timings) {
          ASSERT_GT(timing.end_ns, 0);
          ASSERT_GE(timing.end_ns, timing.start_ns);
        }
      }
    }
  }
}

// While a list is tried with several workers and with one, the times of its launches are not settled; soon they are.
TEST(FlowTest, LaunchesOfAListThatIsTriedAreNotSettled) {
  Pool pool(3, nullptr);
  const Dag dag(64);
  const CommandList list = dag.ToList();
  Recorder recorder(dag);
  std::vector<NodeTiming> timings;
  for (int run = 0; run < 4; ++run) {
    timings.assign(list.commands.size(), {});
    Submission submission;
    submission.commands = &list;
    submission.timings = timings;
    const Status status = RunOrdered(pool, recorder, submission, &list);
    ASSERT_TRUE(status.ok()) << status;
    const auto settled = std::ranges::count(timings, true, &NodeTiming::is_settled);
    EXPECT_TRUE(run > 0 || settled == 0);
  }
  EXPECT_EQ(std::ranges::count(timings, true, &NodeTiming::is_settled), 64);
}

class Sleeper : public Recorder {
 public:
  Sleeper(const Dag& dag, Duration time) : Recorder(dag), time_(time) {}

 protected:
  Status Do(uint32_t, const Submission&) override {
    std::this_thread::sleep_for(time_);
    return absl::OkStatus();
  }

 private:
  const Duration time_;
};

// A chain of four commands, and others that last until three workers have run one.
class Gathering final : public Recorder {
 public:
  using Recorder::Recorder;

 protected:
  Status Do(uint32_t command, const Submission&) override {
    std::this_thread::sleep_for(milliseconds(3));
    return command < 4 || Eventually([&] { return workers() == 7; }) ? absl::OkStatus() : Internal("Nobody helps.");
  }
};

// Helpers take part in wide lists, and a sleeping helper is called when there is work for it.
TEST(FlowTest, HelpersTakePart) {
  Pool pool(3, nullptr);
  Dag dag(31);
  for (uint32_t c = 4; c < dag.size(); ++c) {
    dag.after[c] = {3};  // A chain of four, then all others at once.
  }
  dag.after[1] = {0};
  dag.after[2] = {1};
  dag.after[3] = {2};
  Gathering gathering(dag);
  Runner runner(pool, dag);
  const Status status = runner.Run(gathering);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(gathering.IsRight(1));
  EXPECT_EQ(gathering.workers(), 7u);
}

// Fails or traps at one command.
class Failing final : public Recorder {
 public:
  Failing(const Dag& dag, uint32_t at) : Recorder(dag), at_(at) {}

 protected:
  Status Do(uint32_t command, const Submission&) override {
    return command == at_ ? Aborted("Command " + std::to_string(command) + " fails.") : absl::OkStatus();
  }

 private:
  const uint32_t at_;
};

// The reported failure is the first one and names its node, and its successors do not run. The list can run again.
TEST(FlowTest, AFailureEndsTheList) {
  Pool pool(3, nullptr);
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SeededRng rng(seed);
    const Dag dag = RandomDag(rng);
    const auto at = static_cast<uint32_t>(rng.Below(dag.size()));
    Runner runner(pool, dag);
    Failing failing(dag, at);
    const Status status = runner.Run(failing);
    ASSERT_EQ(status, Aborted("Command " + std::to_string(at) + " fails.")) << seed;
    ASSERT_EQ(runner.failure.node, at);
    ASSERT_EQ(failing.violations(), 0u);
    ASSERT_LE(failing.Started(), dag.size());
    Recorder recorder(dag);
    ASSERT_TRUE(runner.Run(recorder).ok());
    ASSERT_TRUE(recorder.IsRight(1)) << seed;
  }
}

// The stop word ends a list from another thread.
TEST(FlowTest, StopEndsTheList) {
  Pool pool(3, nullptr);
  Dag dag(100'000);
  Sleeper sleeper(dag, milliseconds(1));
  Runner runner(pool, dag);
  std::atomic<uint32_t> stop{0};
  std::thread stopper([&] {
    EXPECT_TRUE(Eventually([&] { return sleeper.Started() > 20; }));
    stop = 1;
  });
  const Status status = runner.Run(sleeper, &stop);
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_LT(sleeper.Started(), 50'000u);
  stopper.join();
}

// Some commands are launches that the pool shares: idle workers help, wherever the launch is in the list.
class Sharing final : public Recorder {
 public:
  // A chunk lasts until `awaited` workers have taken one.
  Sharing(const Dag& dag, Pool& pool, int awaited) : Recorder(dag), pool_(pool), awaited_(awaited) {}
  uint32_t most_workers() const { return most_workers_.load(); }

 protected:
  Status Do(uint32_t command, const Submission& submission) override {
    if (command % 7 != 3) {
      return absl::OkStatus();
    }
    struct Body final : PoolBody {
      void Work(Chunks& chunks) override {
        uint64_t begin, end;
        while (chunks.Next(&begin, &end)) {
          sum.fetch_add(end - begin);
          workers.fetch_or(1u << chunks.participant());
          Eventually([&] { return __builtin_popcount(workers.load()) >= awaited; });
        }
      }
      std::atomic<uint64_t> sum{0};
      std::atomic<uint32_t> workers{0};
      int awaited = 0;
    } body;
    body.awaited = awaited_;
    const bool is_done = pool_.Run({0, 20, 1, 1, submission.stop}, body);
    uint32_t most = most_workers_.load();
    const auto count = static_cast<uint32_t>(__builtin_popcount(body.workers.load()));
    while (count > most && !most_workers_.compare_exchange_weak(most, count)) {
    }
    return !is_done || body.sum != 20 ? Internal("A launch is not whole.") : absl::OkStatus();
  }

 private:
  Pool& pool_;
  const int awaited_;
  std::atomic<uint32_t> most_workers_{0};
};

TEST(FlowTest, LaunchesAreSharedWithinAList) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Pool pool(3, nullptr);
    SeededRng rng(seed);
    const Dag dag = RandomDag(rng);
    Sharing sharing(dag, pool, 0);
    Runner runner(pool, dag);
    const Status status = runner.Run(sharing);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_TRUE(sharing.IsRight(1)) << seed;
  }
  Pool pool(3, nullptr);
  Dag chain(11);
  for (uint32_t c = 1; c < chain.size(); ++c) {
    chain.after[c] = {c - 1};
  }
  Sharing sharing(chain, pool, 3);
  Runner runner(pool, chain);
  EXPECT_TRUE(runner.Run(sharing).ok());
  EXPECT_EQ(sharing.most_workers(), 3u);
}

// With one granted thread no helper works; when three are granted in the middle of the list they join; while the grant
// is revoked no command begins.
TEST(FlowTest, TheGrantIsObeyed) {
  GrantEntry grant{};
  Pool pool(3, &Fresh(grant, 1));
  Dag dag(100'000);
  Sleeper sleeper(dag, milliseconds(1));
  Runner runner(pool, dag);
  std::atomic<uint32_t> stop{0};
  std::thread daemon([&] {
    EXPECT_TRUE(Eventually([&] { return sleeper.Started() > 10; }));
    EXPECT_EQ(sleeper.workers(), 1u);
    Change(grant, GrantState::kGranted, 3);
    EXPECT_TRUE(Eventually([&] { return sleeper.workers() == 7; }));
    Change(grant, GrantState::kGranted, 1);
    std::this_thread::sleep_for(milliseconds(100));
    sleeper.ForgetWorkers();
    const uint32_t before = sleeper.Started();
    EXPECT_TRUE(Eventually([&] { return sleeper.Started() > before + 10; }));
    EXPECT_EQ(sleeper.workers(), 1u);
    Change(grant, GrantState::kRevoked, 3);
    std::this_thread::sleep_for(milliseconds(100));
    const uint32_t paused = sleeper.Started();
    std::this_thread::sleep_for(milliseconds(50));
    EXPECT_EQ(sleeper.Started(), paused);
    Change(grant, GrantState::kGranted, 3);
    sleeper.ForgetWorkers();
    EXPECT_TRUE(Eventually([&] { return sleeper.workers() == 7; }));
    stop = 1;
  });
  const Status status = runner.Run(sleeper, &stop);
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  daemon.join();
}

// A stopped list that has no grant ends.
TEST(FlowTest, StopEndsTheWaitForAGrant) {
  GrantEntry grant{};
  Pool pool(2, &Fresh(grant, 2));
  Dag dag(100'000);
  Sleeper sleeper(dag, milliseconds(1));
  Runner runner(pool, dag);
  std::atomic<uint32_t> stop{0};
  std::thread daemon([&] {
    EXPECT_TRUE(Eventually([&] { return sleeper.Started() > 4; }));
    Change(grant, GrantState::kRevoked, 2);
    std::this_thread::sleep_for(milliseconds(30));
    stop = 1;
  });
  EXPECT_TRUE(absl::IsCancelled(runner.Run(sleeper, &stop)));
  daemon.join();
}

// Several lists and plain ranges run at once on one pool, under a grant that changes all the time.
TEST(FlowTest, Stress) {
  GrantEntry grant{};
  Pool pool(4, &Fresh(grant, 4));
  std::atomic<bool> is_done{false};
  std::thread daemon([&] {
    SeededRng rng(5);
    for (uint32_t i = 0; !is_done; ++i) {
      grant.contended = static_cast<uint32_t>(rng.Below(2));
      Change(grant, i % 5 == 0 ? GrantState::kRevoked : GrantState::kGranted, 1 + i % 4);
      std::this_thread::sleep_for(microseconds(200));
    }
    Change(grant, GrantState::kGranted, 4);
  });
  std::vector<std::thread> callers;
  for (uint32_t t = 0; t < 3; ++t) {
    callers.emplace_back([&, t] {
      for (uint64_t seed = 0; seed < 60; ++seed) {
        SeededRng rng(seed * 4 + t);
        const Dag dag = RandomDag(rng);
        Sharing sharing(dag, pool, 0);
        Runner runner(pool, dag);
        const Status status = runner.Run(sharing);
        EXPECT_TRUE(status.ok()) << status;
        EXPECT_TRUE(sharing.IsRight(1)) << seed;
      }
    });
  }
  for (std::thread& caller : callers) {
    caller.join();
  }
  is_done = true;
  daemon.join();
}

// The owner takes from one end while thieves take from the other: each value comes out once.
TEST(WorkDequeTest, EachValueOnce) {
  constexpr uint32_t kValues = 200'000;
  WorkDeque deque;
  std::vector<std::atomic<uint8_t>> seen(kValues);
  std::atomic<bool> is_done{false};
  std::vector<std::thread> thieves;
  for (int t = 0; t < 2; ++t) {
    thieves.emplace_back([&] {
      while (!is_done || deque.size() != 0) {
        if (const uint32_t value = deque.Steal(); value != WorkDeque::kNone) {
          seen[value].fetch_add(1);
        }
      }
    });
  }
  SeededRng rng(3);
  for (uint32_t value = 0; value < kValues;) {
    for (uint64_t burst = rng.Below(200); burst > 0 && value < kValues; --burst) {
      deque.Push(value++);
    }
    for (uint64_t burst = rng.Below(200); burst > 0; --burst) {
      if (const uint32_t own = deque.Pop(); own != WorkDeque::kNone) {
        seen[own].fetch_add(1);
      }
    }
  }
  is_done = true;
  for (std::thread& thief : thieves) {
    thief.join();
  }
  for (const auto& count : seen) {
    ASSERT_EQ(count.load(), 1);
  }
}

TEST(WorkDequeTest, OwnerTakesTheLatestThievesTheOldest) {
  WorkDeque deque;
  EXPECT_EQ(deque.Pop(), WorkDeque::kNone);
  EXPECT_EQ(deque.Steal(), WorkDeque::kNone);
  for (uint32_t value = 0; value < 1000; ++value) {
    deque.Push(value);
  }
  EXPECT_EQ(deque.Pop(), 999u);
  EXPECT_EQ(deque.Steal(), 0u);
  EXPECT_EQ(deque.Pop(), 998u);
  EXPECT_EQ(deque.Steal(), 1u);
  EXPECT_EQ(deque.size(), 996u);
  deque.Clear();
  EXPECT_EQ(deque.Pop(), WorkDeque::kNone);
}

using Mode = ModeChooser::Mode;

// Commands of `command_ns` each, with an overhead of 0.07 µs when walked, or 0.3 µs when run by two workers.
ModeChooser::Times TimesOf(Mode mode, uint64_t commands, double command_ns) {
  const double n = static_cast<double>(commands);
  return mode == Mode::kInOrder
             ? ModeChooser::Times{.wall_ns = n * (command_ns + 70), .busy_ns = n * (command_ns + 70)}
             : ModeChooser::Times{.wall_ns = n * (command_ns + 300) / 2 + 10'000, .busy_ns = n * (command_ns + 300)};
}

// Returns how many of the last submissions ran as a flow.
int FlowsOf(ModeChooser& chooser, double command_ns, uint32_t threads = 2) {
  int flows = 0;
  for (int turn = 0; turn < 40; ++turn) {
    const Mode mode = chooser.Choose(threads);
    flows += turn >= 20 && mode == Mode::kFlow ? 1 : 0;
    chooser.Learn(mode, threads, TimesOf(mode, 10'000, command_ns));
  }
  return flows;
}

TEST(ModeChooserTest, ShortCommandsStayInOrder) {
  ModeChooser tiny(10'000, 50), small(10'000, 50), medium(10'000, 50);
  EXPECT_EQ(FlowsOf(tiny, 10), 0);
  EXPECT_EQ(FlowsOf(small, 100), 0);
  EXPECT_EQ(FlowsOf(medium, 1000), 20);
}

TEST(ModeChooserTest, ChainsAndSingleThreadsStayInOrder) {
  ModeChooser chain(10'000, 1), wide(10'000, 50);
  EXPECT_EQ(chain.Choose(16), Mode::kInOrder);
  EXPECT_EQ(wide.Choose(1), Mode::kInOrder);
  EXPECT_EQ(wide.Choose(2), Mode::kFlow);
}

// Measurements with one number of threads do not apply to another, and longer commands change the choice.
TEST(ModeChooserTest, FollowsChanges) {
  ModeChooser chooser(10'000, 50);
  EXPECT_EQ(FlowsOf(chooser, 10), 0);
  EXPECT_EQ(chooser.Choose(4), Mode::kFlow);
  EXPECT_EQ(FlowsOf(chooser, 10), 0);
  EXPECT_EQ(FlowsOf(chooser, 2000, 3), 20);
}

}  // namespace
}  // namespace hpvm::cpu
