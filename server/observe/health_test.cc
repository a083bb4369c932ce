// SPDX-License-Identifier: Apache-2.0
#include "server/observe/health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>

#include "server/observe/watch.h"

namespace hpvm::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

CoreSnapshot Healthy() {
  CoreSnapshot snapshot;
  snapshot.devices_known = true;
  v1::Device& cpu = snapshot.devices.emplace_back();
  cpu.set_id("cpu:0");
  cpu.set_state(v1::Device::STATE_READY);
  return snapshot;
}

HealthFacts Facts() {
  HealthFacts facts;
  facts.now = seconds(1'000);
  facts.has_started = true;
  facts.snapshot = std::make_shared<CoreSnapshot>(Healthy());
  return facts;
}

// Safe because Facts() made the object, and not as const.
CoreSnapshot& SnapshotOf(HealthFacts& facts) { return const_cast<CoreSnapshot&>(*facts.snapshot); }

// Each problem has its reason, and does not hide the others.
TEST(HealthTest, Reasons) {
  struct Case {
    const char* name;
    std::function<void(HealthFacts&)> change;
    bool live, ready;
    std::vector<std::string> reasons;
  };
  const Case cases[] = {
      {"Healthy", [](HealthFacts&) {}, true, true, {}},
      {"NotStarted", [](HealthFacts& f) { f.has_started = false; }, true, false, {"starting"}},
      {"NoSnapshot", [](HealthFacts& f) { f.snapshot.reset(); }, true, false, {"starting"}},
      {"DevicesUnknown",
       [](HealthFacts& f) {
         SnapshotOf(f).devices_known = false;
         SnapshotOf(f).devices.clear();
       },
       true,
       false,
       {"starting"}},
      {"NoDevice",
       [](HealthFacts& f) { SnapshotOf(f).devices[0].set_state(v1::Device::STATE_BROKEN); },
       true,
       false,
       {"devices"}},
      {"Draining", [](HealthFacts& f) { SnapshotOf(f).draining = true; }, true, false, {"draining"}},
      {"Closed", [](HealthFacts& f) { SnapshotOf(f).intake.closed = true; }, true, false, {"closed"}},
      {"StoreBroken",
       [](HealthFacts& f) { SnapshotOf(f).store = {.accepts_writes = false, .reason = "A write failed."}; },
       true,
       false,
       {"store"}},
      {"DiskFull",
       [](HealthFacts& f) {
         SnapshotOf(f).store = {.accepts_writes = false, .reason = "The disk is full.", .is_transient = true};
         SnapshotOf(f).draining = true;
       },
       true,
       false,
       {"draining", "disk_full"}},
      {"CoreHangs", [](HealthFacts& f) { f.core_owes = seconds(11); }, false, false, {"core"}},
      {"CoreIsSlow", [](HealthFacts& f) { f.core_owes = seconds(9); }, true, true, {}},
      {"TimerHangs", [](HealthFacts& f) { f.timer_owes = seconds(11); }, false, false, {"timer"}},
      {"StoreHangs", [](HealthFacts& f) { f.store_owes = seconds(31); }, false, false, {"store_thread"}},
      {"StoreIsSlow", [](HealthFacts& f) { f.store_owes = seconds(29); }, true, true, {}},
      {"SandboxIsWeak",
       [](HealthFacts& f) {
         SnapshotOf(f).sandbox = SandboxFacts{1, "no Landlock"};
         SnapshotOf(f).sandbox_level_min = 2;
       },
       true,
       false,
       {"sandbox"}},
      {"SandboxSuffices",
       [](HealthFacts& f) {
         SnapshotOf(f).sandbox = SandboxFacts{2, "no own user"};
         SnapshotOf(f).sandbox_level_min = 2;
       },
       true,
       true,
       {}},
      {"SandboxIsUnknown", [](HealthFacts& f) { SnapshotOf(f).sandbox_level_min = 4; }, true, true, {}},
      {"NoExecutorStarts",
       [](HealthFacts& f) {
         f.spawn_failures = 3;
         f.last_spawn_failure = f.now - seconds(59);
       },
       true,
       false,
       {"executors"}},
      {"TwoFailuresAreNoReason",
       [](HealthFacts& f) {
         f.spawn_failures = 2;
         f.last_spawn_failure = f.now;
       },
       true,
       true,
       {}},
      {"OldFailuresAreNoReason",
       [](HealthFacts& f) {
         f.spawn_failures = 9;
         f.last_spawn_failure = f.now - seconds(60);
       },
       true,
       true,
       {}},
  };
  for (const Case& c : cases) {
    HealthFacts facts = Facts();
    c.change(facts);
    const HealthReport report = Assess(facts);
    EXPECT_EQ(report.live, c.live) << c.name;
    EXPECT_EQ(report.ready, c.ready) << c.name;
    std::vector<std::string> reasons;
    for (const HealthReason& reason : report.reasons) {
      reasons.push_back(reason.reason);
      EXPECT_TRUE(reason.detail.ends_with('.')) << c.name;
    }
    EXPECT_EQ(reasons, c.reasons) << c.name;
  }
}

// The output is valid JSON whatever a device's driver reports.
TEST(HealthTest, Json) {
  EXPECT_EQ(ToJson("live", true, {}), "{\"live\":true,\"reasons\":[]}\n");
  EXPECT_EQ(ToJson("ready", false, {{"store", "a \"b\"\n\\"}, {"draining", "x"}}),
            "{\"ready\":false,\"reasons\":[{\"reason\":\"store\",\"detail\":\"a \\\"b\\\"\\\\n\\\\\"},"
            "{\"reason\":\"draining\",\"detail\":\"x\"}]}\n");
  EXPECT_EQ(ToJson("ready", true, {}, SandboxFacts{4, "uid \"1\""}),
            "{\"ready\":true,\"reasons\":[],\"sandbox\":{\"level\":4,\"detail\":\"uid \\\"1\\\"\"}}\n");
}

// Congestion begins at 80 % and ends below 50 %.
TEST(HealthTest, CongestionHasHysteresis) {
  Congestion congestion;
  struct Case {
    uint64_t queued;
    bool want;
  };
  for (const Case& c : {Case{0, false}, Case{79, false}, Case{80, true}, Case{50, true}, Case{49, false},
                        Case{79, false}, Case{1'000, true}, Case{0, false}}) {
    EXPECT_EQ(congestion.Update(c.queued, 100), c.want) << c.queued;
  }
}

TEST(HealthTest, DesiredWorkers) {
  EXPECT_EQ(DesiredWorkers(0, 0, 64), 1u);
  EXPECT_EQ(DesiredWorkers(0, 64, 64), 1u);
  EXPECT_EQ(DesiredWorkers(1, 64, 64), 2u);
  EXPECT_EQ(DesiredWorkers(1'000, 0, 0), 1'000u);
}

// A maximum is forgotten after a minute.
TEST(HealthTest, MinuteMax) {
  MinuteMax stalls;
  stalls.Push(seconds(3));
  for (int i = 0; i < 59; ++i) {
    stalls.Push(seconds(1));
  }
  EXPECT_EQ(stalls.max(), seconds(3));
  stalls.Push(seconds(1));
  EXPECT_EQ(stalls.max(), seconds(1));
}

// A beat is owed from the time of the request, and a late one is remembered.
TEST(HealthTest, HeartMeasuresTheLoop) {
  ManualClock clock;
  clock.Advance(seconds(5));
  Heart heart(clock);
  EXPECT_EQ(heart.Ask(), Duration{0});
  clock.Advance(milliseconds(300));
  EXPECT_EQ(heart.owes(), milliseconds(300));
  EXPECT_EQ(heart.Ask(), milliseconds(300)) << "Asking again does not hide the first.";
  heart.Beat();
  EXPECT_EQ(heart.owes(), Duration{0});
  EXPECT_EQ(heart.Ask(), milliseconds(300));
  heart.Beat();
  EXPECT_EQ(heart.Ask(), Duration{0});
}

// The watch asks the core each second, reports changes of health, and returns what it saw, with tenants where they
// are wanted.
TEST(HealthTest, WatchLooksAndTells) {
  PrometheusObserver metrics(RealClock());
  Heart heart(RealClock());
  Watch watch(RealClock(), metrics, heart);
  EXPECT_EQ(watch.Look().report.reasons.at(0).reason, "starting");
  std::atomic<bool> draining{false};
  std::atomic<int> woken{0}, with_tenants_asked{0};
  std::mutex mutex;
  std::vector<std::pair<bool, bool>> told;
  WatchedParts parts;
  parts.snapshot = [&](bool with_tenants) {
    CoreSnapshot snapshot = Healthy();
    snapshot.draining = draining;
    snapshot.jobs_queued = 9'000;
    if (with_tenants) {
      ++with_tenants_asked;
      snapshot.tenants.emplace_back().name = "local";
    }
    return snapshot;
  };
  parts.config = [] { return std::make_shared<const Config>(); };
  parts.wake_timer = [&] {
    ++woken;
    heart.Beat();
  };
  parts.set_health = [&](bool live, bool ready) {
    std::lock_guard lock(mutex);
    told.emplace_back(live, ready);
  };
  parts.wants_tenants = true;
  watch.Start(std::move(parts));
  const Time end = RealClock().Now() + seconds(5);
  while (!watch.Look().report.ready && RealClock().Now() < end) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  Watch::View view = watch.Look();
  EXPECT_TRUE(view.report.ready);
  ASSERT_EQ(view.facts.snapshot->tenants.size(), 1u);
  EXPECT_TRUE(view.is_congested);
  EXPECT_EQ(view.desired_workers, 141u);  // 9,000 over 64.
  draining = true;
  while (watch.Look().report.ready && RealClock().Now() < end) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  view = watch.Look();
  EXPECT_FALSE(view.report.ready);
  EXPECT_EQ(view.facts.snapshot->tenants.size(), 1u) << "Those of the last second stay.";
  watch.Stop();
  EXPECT_GE(woken, 2);
  EXPECT_LE(with_tenants_asked, woken) << "Once a second, though a daemon that is not ready is looked at oftener.";
  EXPECT_THAT(told, ::testing::ElementsAre(std::pair(true, true), std::pair(true, false)));
}

// A hanging core blocks nobody else, and is detected.
TEST(HealthTest, WatchOutlivesAHungCore) {
  ManualClock clock;
  clock.Advance(seconds(100));
  PrometheusObserver metrics(clock);
  Heart heart(clock);
  std::atomic<bool> hang{true}, asked{false};
  Watch watch(clock, metrics, heart);
  WatchedParts parts;
  parts.snapshot = [&](bool) {
    asked = true;
    while (hang) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    return Healthy();
  };
  parts.config = [] { return std::make_shared<const Config>(); };
  watch.Start(std::move(parts));
  while (!asked) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_TRUE(watch.Look().report.live);
  clock.Advance(seconds(11));
  const HealthReport report = watch.Look().report;
  EXPECT_FALSE(report.live);
  EXPECT_EQ(report.reasons.at(0).reason, "core");
  hang = false;
}

}  // namespace
}  // namespace hpvm::server
