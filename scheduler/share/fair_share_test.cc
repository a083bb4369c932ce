// SPDX-License-Identifier: Apache-2.0
#include "scheduler/share/fair_share.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <vector>

namespace hpvm::scheduler {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

template <typename T>
std::vector<T> Of(const std::vector<Decision>& decisions) {
  std::vector<T> out;
  for (const Decision& decision : decisions) {
    if (const T* one = std::get_if<T>(&decision)) {
      out.push_back(*one);
    }
  }
  return out;
}

std::vector<JobKey> Started(const std::vector<Decision>& decisions) {
  std::vector<JobKey> out;
  for (const StartJob& start : Of<StartJob>(decisions)) {
    out.push_back(start.job);
  }
  return out;
}

// Two tenants with many jobs each take turns, whichever queued first.
TEST(FairShareTest, TenantsTakeTurns) {
  FairShare share({.running_per_tenant_max = 10, .running_max = 4}, {});
  std::vector<Event> events = {TenantArrives{1}, TenantArrives{2}};
  for (JobKey job = 100; job < 110; ++job) {
    events.push_back(JobQueued{1, job, 0, 0});
  }
  for (JobKey job = 200; job < 210; ++job) {
    events.push_back(JobQueued{2, job, 0, 0});
  }
  EXPECT_EQ(Started(share.Tick(Time(0), events)), (std::vector<JobKey>{100, 200, 101, 201}));
  EXPECT_EQ(share.running(), 4u);
  const Event ended[] = {JobEnded{1, 100}};
  EXPECT_EQ(Started(share.Tick(Time(1), ended)), (std::vector<JobKey>{102}));
}

// A higher priority overtakes within a tenant, but waiting makes up for it.
TEST(FairShareTest, PriorityOvertakesForABoundedTime) {
  FairShare all({.running_per_tenant_max = 1, .running_max = 1}, {});
  const Event blocker[] = {TenantArrives{1}, JobQueued{1, 1, 0, 0}};
  all.Tick(Time(0), blocker);
  const Event a[] = {JobQueued{1, 10, 0, 0}};
  const Event b[] = {JobQueued{1, 11, 5, 0}};
  const Event c[] = {JobQueued{1, 12, 5, 0}};
  all.Tick(Time(0), a);
  all.Tick(seconds(4), b);  // 5 s worth of priority: it overtakes.
  all.Tick(seconds(6), c);  // Waiting has made up for it.
  std::vector<JobKey> order;
  JobKey running = 1;
  for (int i = 0; i < 3; ++i) {
    const Event ended[] = {JobEnded{1, running}};
    const std::vector<JobKey> started = Started(all.Tick(seconds(7), ended));
    ASSERT_EQ(started.size(), 1u);
    running = started[0];
    order.push_back(running);
  }
  EXPECT_EQ(order, (std::vector<JobKey>{11, 10, 12}));
}

// Every limit refuses by name, and refused jobs are not counted.
TEST(FairShareTest, RefusesAtLimits) {
  FairShare share({.tenants_max = 2, .queued_per_tenant_max = 2, .queued_max = 3, .running_max = 0}, {});
  const Event events[] = {TenantArrives{1},      TenantArrives{2},      TenantArrives{3},      JobQueued{3, 1, 0, 0},
                          JobQueued{1, 1, 0, 0}, JobQueued{1, 1, 0, 0}, JobQueued{1, 2, 0, 0}, JobQueued{1, 3, 0, 0},
                          JobQueued{2, 1, 0, 0}, JobQueued{2, 2, 0, 0}};
  const std::vector<Decision> decisions = share.Tick(Time(0), events);
  EXPECT_EQ(Of<RefuseTenant>(decisions), (std::vector<RefuseTenant>{{3}}));
  EXPECT_EQ(Of<RefuseJob>(decisions), (std::vector<RefuseJob>{{3, 1, RefuseJob::Limit::kUnknownTenant},
                                                              {1, 1, RefuseJob::Limit::kDuplicate},
                                                              {1, 3, RefuseJob::Limit::kTenantQueue},
                                                              {2, 2, RefuseJob::Limit::kQueue}}));
  EXPECT_EQ(share.queued(), 3u);
  const Event leaves[] = {TenantLeaves{1}};
  share.Tick(Time(1), leaves);
  EXPECT_EQ(share.queued(), 1u);
}

// A lone tenant is granted once and never disturbed.
TEST(FairShareTest, LoneTenantKeepsItsGrant) {
  FairShare share({}, {});
  const Event events[] = {TenantArrives{1}, JobQueued{1, 1}};
  EXPECT_EQ(Of<Grant>(share.Tick(Time(0), events)), (std::vector<Grant>{{1, 0, 1, false}}));
  EXPECT_EQ(share.NextTick(), kNever);
  EXPECT_TRUE(share.Tick(seconds(10), {}).empty());
  const Event next[] = {JobEnded{1, 1}, JobQueued{1, 2}};
  EXPECT_TRUE(Of<Grant>(share.Tick(seconds(11), next)).empty());
  EXPECT_EQ(share.held(1, 0, seconds(12)), seconds(12));
}

// Two tenants alternate by the quantum; the holder learns that it is contended, and an overdue holder does not block.
TEST(FairShareTest, QuantumRevokeAndOverdue) {
  FairShare share({}, {});
  const Event first[] = {TenantArrives{1}, TenantArrives{2}, JobQueued{1, 1}};
  share.Tick(Time(0), first);
  const Event second[] = {JobQueued{2, 1}};
  EXPECT_EQ(Of<SetContended>(share.Tick(milliseconds(1), second)), (std::vector<SetContended>{{1, 0, true}}));
  EXPECT_EQ(share.NextTick(), Time(milliseconds(5)));
  EXPECT_EQ(Of<Revoke>(share.Tick(milliseconds(5), {})), (std::vector<Revoke>{{1, 0, 1}}));
  const Event returned[] = {GrantReturned{1, 0, 1}};
  EXPECT_EQ(Of<Grant>(share.Tick(milliseconds(6), returned)), (std::vector<Grant>{{2, 0, 2, true}}));
  EXPECT_EQ(Of<Revoke>(share.Tick(milliseconds(11), {})), (std::vector<Revoke>{{2, 0, 2}}));
  EXPECT_EQ(share.NextTick(), Time(milliseconds(21)));
  const std::vector<Decision> overdue = share.Tick(milliseconds(21), {});
  EXPECT_EQ(Of<GrantOverdue>(overdue), (std::vector<GrantOverdue>{{2, 0, 2}}));
  EXPECT_EQ(Of<Grant>(overdue), (std::vector<Grant>{{1, 0, 3, true}}));
  // The late answer to the old grant changes nothing.
  const Event late[] = {GrantReturned{2, 0, 2}};
  EXPECT_TRUE(share.Tick(milliseconds(22), late).empty());
}

// An overdue tenant keeps using the device from job to job, and pays until it has answered, been granted the device
// anew or has nothing to run.
TEST(FairShareTest, OverduePaysFromJobToJob) {
  FairShare share({.running_per_tenant_max = 1}, {});
  const Event first[] = {TenantArrives{1}, TenantArrives{2}, JobQueued{1, 1},
                         JobQueued{1, 2},  JobQueued{1, 3},  JobQueued{2, 1}};
  share.Tick(Time(0), first);
  EXPECT_EQ(Of<Revoke>(share.Tick(milliseconds(5), {})), (std::vector<Revoke>{{1, 0, 1}}));
  ASSERT_EQ(Of<GrantOverdue>(share.Tick(milliseconds(15), {})), (std::vector<GrantOverdue>{{1, 0, 1}}));
  const Event ended[] = {JobEnded{1, 1}};
  ASSERT_EQ(Started(share.Tick(milliseconds(16), ended)), (std::vector<JobKey>{2}));
  EXPECT_EQ(share.used(1, 0, milliseconds(18)), milliseconds(18));
  const Event returned[] = {GrantReturned{1, 0, 1}};
  share.Tick(milliseconds(18), returned);
  EXPECT_EQ(share.used(1, 0, milliseconds(19)), milliseconds(18));
}

// A holder with nothing left to run loses the device at once, with a Revoke so that its grant page is updated.
TEST(FairShareTest, IdleHolderGivesWayAtOnce) {
  FairShare share({}, {});
  const Event events[] = {TenantArrives{1}, TenantArrives{2}, JobQueued{1, 1}, JobQueued{2, 1}};
  share.Tick(Time(0), events);
  const Event ended[] = {JobEnded{1, 1}};
  const std::vector<Decision> decisions = share.Tick(milliseconds(1), ended);
  EXPECT_EQ(Of<Revoke>(decisions), (std::vector<Revoke>{{1, 0, 1}}));
  EXPECT_EQ(Of<Grant>(decisions), (std::vector<Grant>{{2, 0, 2, false}}));
}

// One run of random arrivals against a model of executors; checks the invariants after every tick.
struct Simulation {
  explicit Simulation(uint64_t seed) : rng(seed) {
    limits = {.tenants_max = 8,
              .queued_per_tenant_max = 1 + static_cast<uint32_t>(rng.Below(40)),
              .queued_max = 200,
              .running_per_tenant_max = 1 + static_cast<uint32_t>(rng.Below(3)),
              .running_max = 1 + static_cast<uint32_t>(rng.Below(6))};
  }

  struct RunningJob {
    uint64_t devices = 0;
    Duration left{0};
  };
  SeededRng rng;
  FairShareLimits limits;
  std::map<std::pair<TenantKey, JobKey>, RunningJob> known;  // Queued or running.
  std::set<std::pair<TenantKey, JobKey>> running;
  std::map<DeviceIndex, std::pair<TenantKey, uint64_t>> holder;
  std::set<uint64_t> revoked;  // Grants.
  uint64_t accepted = 0, started = 0;

  bool IsIdle(TenantKey tenant, DeviceIndex device) const {
    return std::none_of(running.begin(), running.end(), [&](const auto& job) {
      return job.first == tenant && (known.at(job).devices >> device & 1) != 0;
    });
  }

  void Check(const std::vector<Decision>& decisions, std::vector<Event>& answers) {
    for (const Decision& decision : decisions) {
      if (const auto* start = std::get_if<StartJob>(&decision)) {
        ASSERT_TRUE(known.contains({start->tenant, start->job}));
        ASSERT_TRUE(running.insert({start->tenant, start->job}).second);
        ++started;
      } else if (const auto* refuse = std::get_if<RefuseJob>(&decision)) {
        known.erase({refuse->tenant, refuse->job});
        --accepted;
      } else if (const auto* grant = std::get_if<Grant>(&decision)) {
        // A revoked holder whose jobs have ended meanwhile is not waited for.
        ASSERT_TRUE(!holder.contains(grant->device) || (revoked.contains(holder[grant->device].second) &&
                                                        IsIdle(holder[grant->device].first, grant->device)))
            << "Device granted twice.";
        holder[grant->device] = {grant->tenant, grant->grant};
      } else if (const auto* revoke = std::get_if<Revoke>(&decision)) {
        ASSERT_EQ(holder[revoke->device], std::make_pair(revoke->tenant, revoke->grant));
        revoked.insert(revoke->grant);
        if (IsIdle(revoke->tenant, revoke->device)) {
          holder.erase(revoke->device);
        } else if (rng.Below(4) != 0) {
          answers.push_back(GrantReturned{revoke->tenant, revoke->device, revoke->grant});
        }
      } else if (const auto* overdue = std::get_if<GrantOverdue>(&decision)) {
        holder.erase(overdue->device);
      }
    }
    // A revoked holder whose jobs have ended is not waited for, and waits again when it has new jobs.
    std::erase_if(holder, [&](const auto& held) {
      return revoked.contains(held.second.second) && IsIdle(held.second.first, held.first);
    });
    ASSERT_LE(running.size(), limits.running_max);
    std::map<TenantKey, uint32_t> per_tenant;
    for (const auto& job : running) {
      ASSERT_LE(++per_tenant[job.first], limits.running_per_tenant_max);
    }
  }
};

// Random arrivals, ends and slow answers: every accepted job starts and ends, limits hold, no device has two holders.
TEST(FairShareTest, SeededSimulationKeepsInvariants) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    Simulation sim(seed);
    FairShare share(sim.limits, {.devices = 2});
    std::vector<Event> events;
    for (TenantKey tenant = 1; tenant <= 5; ++tenant) {
      events.push_back(TenantArrives{tenant});
    }
    Time now{0};
    JobKey next_job = 1;
    for (int step = 0; step < 6'000 && (step < 1'500 || !sim.known.empty()); ++step) {
      const Duration dt = microseconds(100 + sim.rng.Below(2'000));
      now += dt;
      if (step < 1'500 && sim.rng.Below(3) == 0) {
        // Tenant 1 is a hog: it submits half of all jobs.
        const TenantKey tenant = sim.rng.Below(2) == 0 ? 1 : 1 + sim.rng.Below(5);
        const uint64_t devices = 1 + sim.rng.Below(3);
        events.push_back(JobQueued{tenant, next_job, static_cast<int32_t>(sim.rng.Below(5)), devices});
        sim.known[{tenant, next_job++}] = {devices, microseconds(500 + sim.rng.Below(8'000))};
        ++sim.accepted;
      }
      for (auto it = sim.running.begin(); it != sim.running.end();) {
        Simulation::RunningJob& job = sim.known[*it];
        bool has_all = true;
        for (DeviceIndex d = 0; d < 2; ++d) {
          has_all &= (job.devices >> d & 1) == 0 || (sim.holder.contains(d) && sim.holder[d].first == it->first);
        }
        // A job makes progress on any device it holds; a job that holds all of its devices runs at full speed.
        job.left -= has_all ? dt : dt / 4;
        if (job.left <= Duration{0}) {
          events.push_back(JobEnded{it->first, it->second});
          sim.known.erase(*it);
          it = sim.running.erase(it);
        } else {
          ++it;
        }
      }
      for (const Event& event : events) {
        if (const auto* returned = std::get_if<GrantReturned>(&event)) {
          auto it = sim.holder.find(returned->device);
          if (it != sim.holder.end() && it->second == std::make_pair(returned->tenant, returned->grant)) {
            sim.holder.erase(it);
          }
        }
      }
      const std::vector<Decision> decisions = share.Tick(now, events);
      events.clear();
      ASSERT_NO_FATAL_FAILURE(sim.Check(decisions, events));
    }
    EXPECT_TRUE(sim.known.empty()) << sim.known.size() << " jobs never ended.";
    EXPECT_EQ(sim.started, sim.accepted);
    EXPECT_EQ(share.queued(), 0u);
    EXPECT_EQ(share.running(), 0u);
  }
}

// A hog with a full queue and a mouse with one job at a time: the mouse waits for the end of at most one job of
// another.
TEST(FairShareTest, MouseIsNotDelayedByAHog) {
  FairShare share({.running_per_tenant_max = 2, .running_max = 2}, {});
  std::vector<Event> events = {TenantArrives{1}, TenantArrives{2}};
  for (JobKey job = 0; job < 500; ++job) {
    events.push_back(JobQueued{1, job, 1'000, 0});
  }
  std::deque<JobKey> hog_running;
  for (const StartJob& start : Of<StartJob>(share.Tick(Time(0), events))) {
    hog_running.push_back(start.job);
  }
  for (JobKey job = 0; job < 100; ++job) {
    const Event queue[] = {JobQueued{2, job, -1'000, 0}};
    ASSERT_TRUE(Started(share.Tick(milliseconds(job), queue)).empty());
    const Event ended[] = {JobEnded{1, hog_running.front()}};
    hog_running.pop_front();
    const std::vector<StartJob> starts = Of<StartJob>(share.Tick(milliseconds(job), ended));
    ASSERT_EQ(starts, (std::vector<StartJob>{{2, job}}));
    const Event mouse_ended[] = {JobEnded{2, job}};
    const std::vector<StartJob> hog = Of<StartJob>(share.Tick(milliseconds(job), mouse_ended));
    ASSERT_EQ(hog.size(), 1u);
    hog_running.push_back(hog[0].job);
  }
}

// Tenants whose jobs are known to be tiny need no turn, any number of them while their total is short; of other tenants
// as many as there are processors.
TEST(FairShareTest, TinyJobsNeedNoTurn) {
  constexpr TenantKey kTenants = 30;
  FairShare share({.running_max = 64}, {});
  share.SetDevice(0, {.beside = 2});
  Time now{0};
  JobKey job = 1;
  for (TenantKey tenant = 1; tenant <= kTenants; ++tenant) {
    const Event arrives[] = {TenantArrives{tenant}};
    share.Tick(now, arrives);
  }
  const auto granted = [&] {
    std::vector<Event> queued, ended;
    for (TenantKey tenant = 1; tenant <= kTenants; ++tenant, ++job) {
      queued.push_back(JobQueued{tenant, job});
      ended.push_back(JobEnded{tenant, job});
    }
    const size_t grants = Of<Grant>(share.Tick(now, queued)).size();
    share.Tick(now += std::chrono::microseconds(10), ended);
    return grants;
  };
  EXPECT_EQ(granted(), 3u);  // The lengths of their jobs are not known yet.
  for (int i = 0; i < 60; ++i) {
    for (TenantKey tenant = 1; tenant <= kTenants; ++tenant, ++job) {
      const Event queued[] = {JobQueued{tenant, job}}, ended[] = {JobEnded{tenant, job}};
      share.Tick(now, queued);
      share.Tick(now += std::chrono::microseconds(20), ended);
    }
  }
  EXPECT_GE(granted(), kTenants - 1);  // One of them may still be the holder.
}

}  // namespace
}  // namespace hpvm::scheduler
