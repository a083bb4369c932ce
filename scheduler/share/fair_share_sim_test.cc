// SPDX-License-Identifier: Apache-2.0
// Tests the guarantees of FairShare in simulated machines: shares by weight, a mouse beside a hog, bounded waits, and
// accounts that add up. Executors are simulated: a tenant's jobs advance while its grant allows, and stop only at the
// next chunk boundary after a revocation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/share/fair_share.h"

namespace hpvm::scheduler {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kStep = microseconds(200);

struct JobSpec {
  // Usage of each device, one after the other, by index.
  std::vector<Duration> on;
};

// A simulated machine with its tenants. Jobs of a tenant share a device evenly, as do the tenants to which a device is
// granted.
class Machine {
 public:
  struct Tenant {
    uint32_t weight = 100;
    uint32_t chunk_steps = 1;    // Number of steps from a revocation to its answer.
    bool answers = true;         // Otherwise it keeps the device, and works on, until its jobs end.
    std::vector<Duration> work;  // Done, by device.
    // Longest wait for a device since it was last asked for, by device.
    std::vector<Duration> waits;
    uint64_t queued = 0, started = 0, ended = 0;
  };

  Machine(const FairShareLimits& limits, uint32_t devices, uint64_t seed)
      : rng(seed), limits_(limits), share_(limits, {.devices = devices}), devices_(devices) {}

  void SetBeside(uint32_t beside) {
    for (DeviceIndex d = 0; d < devices_.size(); ++d) {
      share_.SetDevice(d, {.beside = beside});
    }
  }
  void Join(TenantKey key, uint32_t weight) {
    Tenant& tenant = tenants[key];
    tenant.weight = weight;
    tenant.work.resize(devices_.size());
    tenant.waits.resize(devices_.size());
    events_.push_back(TenantArrives{key, weight});
  }
  void Leave(TenantKey key) {
    events_.push_back(TenantLeaves{key});
    std::erase_if(queued_, [&](const auto& job) { return job.second.tenant == key; });
    std::erase_if(running_, [&](const auto& job) { return job.second.tenant == key; });
    for (Device& device : devices_) {
      std::erase_if(device.granted, [&](const auto& grant) { return grant.second.tenant == key; });
      device.waiting_since.erase(key);
    }
    tenants.erase(key);
  }
  JobKey Queue(TenantKey key, JobSpec spec, int32_t priority = 0) {
    uint64_t mask = 0;
    for (size_t d = 0; d < spec.on.size(); ++d) {
      mask |= spec.on[d] > Duration{0} ? uint64_t{1} << d : 0;
    }
    events_.push_back(JobQueued{.tenant = key, .job = next_job_, .priority = priority, .devices = mask});
    queued_[next_job_] = {.tenant = key, .left = std::move(spec.on), .mask = mask};
    ++tenants[key].queued;
    return next_job_++;
  }

  // Runs one step; `on_end` is called for jobs that ended in it.
  void Step(const std::function<void(TenantKey, JobKey)>& on_end) {
    now += kStep;
    Work();
    for (auto it = running_.begin(); it != running_.end();) {
      const bool done = std::all_of(it->second.left.begin(), it->second.left.end(),
                                    [](Duration left) { return left <= Duration{0}; });
      if (!done) {
        ++it;
        continue;
      }
      const auto [job, tenant] = std::pair(it->first, it->second.tenant);
      it = running_.erase(it);
      events_.push_back(JobEnded{tenant, job});
      ++tenants[tenant].ended;
      on_end(tenant, job);
    }
    Tick();
  }

  void Tick() {
    const std::vector<Decision> decisions = share_.Tick(now, std::exchange(events_, {}));
    for (const Decision& decision : decisions) {
      Obey(decision);
    }
    NoteWaits();
  }

  bool IsRunning(TenantKey key, DeviceIndex device) const {
    return std::any_of(running_.begin(), running_.end(), [&](const auto& entry) {
      return entry.second.tenant == key && (entry.second.mask >> device & 1) != 0;
    });
  }

  FairShare& share() { return share_; }
  size_t jobs() const { return queued_.size() + running_.size(); }

  SeededRng rng;
  Time now{0};
  std::map<TenantKey, Tenant> tenants;

 private:
  struct Job {
    TenantKey tenant = 0;
    std::vector<Duration> left;
    uint64_t mask = 0;
  };
  struct Granted {
    TenantKey tenant = 0;
    bool revoked = false;
    uint32_t steps_left = 0;
  };
  struct Device {
    std::map<uint64_t, Granted> granted;  // Keyed by grant.
    std::map<TenantKey, Time> waiting_since;
  };

  void Work() {
    for (DeviceIndex d = 0; d < devices_.size(); ++d) {
      std::map<TenantKey, std::vector<Job*>> busy;
      std::set<TenantKey> holders;
      for (const auto& [grant, held] : devices_[d].granted) {
        holders.insert(held.tenant);
      }
      for (auto& [key, job] : running_) {
        if (holders.contains(job.tenant) && d < job.left.size() && job.left[d] > Duration{0}) {
          busy[job.tenant].push_back(&job);
        }
      }
      for (auto& [key, jobs] : busy) {
        const Duration part = kStep / static_cast<int64_t>(busy.size() * jobs.size());
        for (Job* job : jobs) {
          job->left[d] -= part;
          tenants[key].work[d] += part;
        }
      }
      for (auto it = devices_[d].granted.begin(); it != devices_[d].granted.end();) {
        Granted& held = it->second;
        if (held.revoked && tenants[held.tenant].answers && held.steps_left-- == 0) {
          events_.push_back(GrantReturned{held.tenant, d, it->first});
          it = devices_[d].granted.erase(it);
        } else {
          ++it;
        }
      }
    }
  }

  void Obey(const Decision& decision) {
    if (const auto* start = std::get_if<StartJob>(&decision)) {
      auto job = queued_.extract(start->job);
      ASSERT_FALSE(job.empty());
      ASSERT_EQ(job.mapped().tenant, start->tenant);
      running_.insert(std::move(job));
      ++tenants[start->tenant].started;
    } else if (const auto* grant = std::get_if<Grant>(&decision)) {
      devices_[grant->device].granted[grant->grant] = {.tenant = grant->tenant};
    } else if (const auto* revoke = std::get_if<Revoke>(&decision)) {
      Granted& held = devices_[revoke->device].granted.at(revoke->grant);
      held.revoked = true;
      held.steps_left = tenants[held.tenant].chunk_steps;
      if (!IsRunning(held.tenant, revoke->device)) {
        devices_[revoke->device].granted.erase(revoke->grant);
      }
    }
    // Overdue tenants continue; the end of a job there ends all.
  }

  void NoteWaits() {
    for (DeviceIndex d = 0; d < devices_.size(); ++d) {
      Device& device = devices_[d];
      std::erase_if(device.granted,
                    [&](const auto& grant) { return grant.second.revoked && !IsRunning(grant.second.tenant, d); });
      for (auto& [key, tenant] : tenants) {
        const bool has = std::any_of(device.granted.begin(), device.granted.end(), [&](const auto& grant) {
          return grant.second.tenant == key && !grant.second.revoked;
        });
        if (has || !IsRunning(key, d)) {
          device.waiting_since.erase(key);
          continue;
        }
        const Time since = device.waiting_since.emplace(key, now).first->second;
        tenant.waits[d] = std::max(tenant.waits[d], now - since);
      }
    }
  }

  const FairShareLimits limits_;
  FairShare share_;
  std::vector<Device> devices_;
  std::vector<Event> events_;
  std::map<JobKey, Job> queued_, running_;
  JobKey next_job_ = 1;
};

FairShareLimits Limits() {
  return {.tenants_max = 100,
          .queued_per_tenant_max = 1'000,
          .queued_max = 10'000,
          .running_per_tenant_max = 4,
          .running_max = 32,
          .running_spare = 8};
}

double Seconds(Duration duration) { return static_cast<double>(duration.count()) / 1e9; }

// Longest time that a tenant may wait for a device while others use it: the header's bound, plus the time until its own
// answer to a revocation, since when it counts as waiting here. `slop` allows for the simulation's steps.
Duration WaitBound(const Machine& machine, TenantKey key, const FairShareLimits& limits, bool is_fresh) {
  const Duration slop = 4 * kStep;
  Duration sum = limits.revoke_grace + slop;
  for (const auto& [other, tenant] : machine.tenants) {
    if (other != key) {
      const Duration ahead = (is_fresh ? Duration{0} : limits.debt_max) + limits.window;
      sum += ahead * tenant.weight / kShareWeightDefault + limits.quantum + limits.revoke_grace + slop;
    }
  }
  return sum;
}

// Three tenants always have work, of random lengths on random devices; others come and go. Time on each tenant's
// dominant device is proportional to its weight.
TEST(FairShareSimTest, WeightsHoldOverTenSeconds) {
  double worst = 0;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(seed);
    FairShareLimits limits = Limits();
    // Ensures that each tenant always has work for each device.
    limits.running_per_tenant_max = 30;
    limits.running_max = 150;
    Machine machine(limits, 3, seed);
    machine.SetBeside(seed % 3 == 0 ? 2 : 0);
    // Lengths differ between tenants, more than weights do.
    const auto job = [&](TenantKey key) {
      const int64_t scale = key == 1 ? 40 : key == 2 ? 4 : 1;
      JobSpec spec{.on = {Duration{0}, Duration{0}, Duration{0}}};
      spec.on[machine.rng.Below(3)] = microseconds(200 + machine.rng.Below(1'000) * scale);
      return spec;
    };
    const std::map<TenantKey, uint32_t> weights = {{1, 100}, {2, 200}, {3, 400}};
    for (const auto& [key, weight] : weights) {
      machine.Join(key, weight);
      for (int i = 0; i < 60; ++i) {
        machine.Queue(key, job(key));
      }
    }
    std::vector<std::pair<TenantKey, JobSpec>> again;
    const auto on_end = [&](TenantKey key, JobKey) {
      if (weights.contains(key)) {
        again.emplace_back(key, job(key));
      }
    };
    TenantKey guest = 0, next_guest = 10;
    while (machine.now < seconds(10)) {
      machine.Step(on_end);
      for (auto& [key, spec] : std::exchange(again, {})) {
        machine.Queue(key, std::move(spec));
      }
      if (machine.rng.Below(2'000) == 0) {
        if (guest != 0) {
          machine.Leave(std::exchange(guest, 0));
        } else {
          guest = next_guest++;
          machine.Join(guest, 50 + static_cast<uint32_t>(machine.rng.Below(300)));
          for (int i = 0; i < 40; ++i) {
            machine.Queue(guest, job(guest));
          }
        }
      }
      ASSERT_FALSE(::testing::Test::HasFatalFailure());
    }
    double total = 0;
    std::map<TenantKey, double> used;
    for (const auto& [key, weight] : weights) {
      const std::vector<Duration>& work = machine.tenants[key].work;
      used[key] = Seconds(*std::max_element(work.begin(), work.end()));
      total += used[key];
    }
    for (const auto& [key, weight] : weights) {
      const double share = used[key] / total, due = weight / 700.0;
      worst = std::max(worst, std::abs(share / due - 1));
      EXPECT_NEAR(share / due, 1, 0.05) << "tenant " << key << " of weight " << weight << " used " << used[key] << " s";
    }
  }
  RecordProperty("worst_error_percent", std::to_string(worst * 100));
  std::printf("weights 1:2:4, the worst share: %.2f %% off\n", worst * 100);
}

// The hog offers a hundred times the mouse's work; the mouse offers 45 % of one device, within its half, and gets it
// done in time.
TEST(FairShareSimTest, MouseCompletesWhatItOffers) {
  double least = 1;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    Machine machine(Limits(), 1, seed);
    machine.SetBeside(seed % 2 == 0 ? 2 : 0);
    machine.Join(1, 100);
    machine.Join(2, 100);
    const Duration length = microseconds(1'000 * (1 + machine.rng.Below(4)));
    std::map<JobKey, Time> due;
    uint64_t offered = 0, in_time = 0;
    const auto on_end = [&](TenantKey key, JobKey job) { in_time += key == 2 && machine.now <= due[job] ? 1 : 0; };
    Time next_mouse{0};
    while (machine.now < seconds(10)) {
      if (machine.share().queued(1) < 100) {
        for (int i = 0; i < 100; ++i) {
          machine.Queue(1, {.on = {microseconds(200 + machine.rng.Below(20'000))}}, 1'000);
        }
        machine.Tick();
      }
      if (machine.now >= next_mouse) {
        // It is in time when it is done 50 ms, ten quanta, after a device of its own could have done it.
        due[machine.Queue(2, {.on = {length}}, -1'000)] = machine.now + 2 * length + milliseconds(50);
        next_mouse = machine.now + Duration(length.count() * 100 / 45 * (50 + machine.rng.Below(101)) / 100);
        ++offered;
      }
      machine.Step(on_end);
      ASSERT_FALSE(::testing::Test::HasFatalFailure());
    }
    const double part = static_cast<double>(in_time) / static_cast<double>(offered);
    least = std::min(least, part);
    EXPECT_GE(part, 0.95) << in_time << " of " << offered;
  }
  std::printf("mouse beside a hog, the least done in time: %.1f %%\n", least * 100);
}

// Random tenants with random weights, lengths, devices, idle times and behaviour: no tenant waits for a device for
// longer than the bound, a tenant that was idle not longer than the smaller bound, every job ends, and accounts add up.
TEST(FairShareSimTest, WaitsAreBoundedAndAccountsAddUp) {
  double longest = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    FairShareLimits limits = Limits();
    limits.debt_max = milliseconds(100 + seed % 4 * 300);
    Machine machine(limits, 3, seed);
    machine.SetBeside(static_cast<uint32_t>(seed % 3));
    const uint64_t count = 2 + machine.rng.Below(5);
    for (TenantKey key = 1; key <= count; ++key) {
      machine.Join(key, 25u << machine.rng.Below(5));
      machine.tenants[key].chunk_steps = static_cast<uint32_t>(machine.rng.Below(6));
      // A few tenants do not answer a revocation.
      machine.tenants[key].answers = key != 1 || seed % 4 != 0;
    }
    const auto job = [&] {
      JobSpec spec{.on = std::vector<Duration>(3)};
      do {
        for (Duration& on : spec.on) {
          on = machine.rng.Below(2) == 0 ? Duration(microseconds(100 + machine.rng.Below(15'000))) : Duration{0};
        }
      } while (std::all_of(spec.on.begin(), spec.on.end(), [](Duration on) { return on == Duration{0}; }));
      return spec;
    };
    uint64_t offered = 0;
    for (int step = 0; step < 25'000 && (step < 10'000 || machine.jobs() > 0); ++step) {
      for (TenantKey key = 1; key <= count && step < 10'000; ++key) {
        // The first tenant is a hog; the others alternate between work and idleness.
        const bool is_on = key == 1 || (step / 1'000 + key) % 3 != 0;
        if (is_on && machine.share().queued(key) < 5 && machine.rng.Below(40) < (key == 1 ? 40 : 3)) {
          JobSpec spec = job();
          machine.Queue(key, std::move(spec), static_cast<int32_t>(machine.rng.Below(5)));
          ++offered;
        }
      }
      machine.Step([](TenantKey, JobKey) {});
      ASSERT_FALSE(::testing::Test::HasFatalFailure());
      for (const auto& [key, tenant] : machine.tenants) {
        if (!tenant.answers) {
          continue;  // It pays, while it waits, for its continued use.
        }
        const Duration bound = WaitBound(machine, key, limits, /*is_fresh=*/false);
        for (const Duration wait : tenant.waits) {
          longest = std::max(longest, Seconds(wait) / Seconds(bound));
          ASSERT_LE(wait, bound) << "tenant " << key;
        }
      }
    }
    uint64_t ended = 0;
    for (const auto& [key, tenant] : machine.tenants) {
      ended += tenant.ended;
      for (DeviceIndex d = 0; d < 3; ++d) {
        EXPECT_LE(machine.share().used(key, d, machine.now), machine.now) << "tenant " << key;
        // It paid for the work it did, within a step for each end of a grant, and shared steps beside others.
        EXPECT_GE(machine.share().used(key, d, machine.now) * 105 / 100 + milliseconds(60), tenant.work[d])
            << "tenant " << key << (tenant.answers ? "" : ", which does not answer") << ", device " << d;
      }
    }
    EXPECT_EQ(ended, offered);
    EXPECT_EQ(machine.share().running(), 0u);
  }
  std::printf("the longest wait is %.0f %% of its bound\n", longest * 100);
}

// A tenant that was idle, between hogs: it waits at most the smaller bound, each time.
TEST(FairShareSimTest, WhoWasIdleWaitsForATurnEachAtMost) {
  Duration longest{0};
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    const FairShareLimits limits = Limits();
    Machine machine(limits, 1, seed);
    const uint64_t hogs = 1 + machine.rng.Below(4);
    for (TenantKey key = 1; key <= hogs; ++key) {
      machine.Join(key, 50u << machine.rng.Below(3));
    }
    machine.Join(9, 100);
    const Duration bound = WaitBound(machine, 9, limits, /*is_fresh=*/true);
    while (machine.now < seconds(4)) {
      for (TenantKey key = 1; key <= hogs; ++key) {
        while (machine.share().queued(key) < 4) {
          machine.Queue(key, {.on = {microseconds(300 + machine.rng.Below(30'000))}});
          machine.Tick();
        }
      }
      // Idle for longer than a quantum before each job.
      if (machine.tenants[9].ended == machine.tenants[9].queued && machine.rng.Below(60) == 0) {
        for (int i = 0; i < 30; ++i) {
          machine.Step([](TenantKey, JobKey) {});
        }
        machine.Queue(9, {.on = {microseconds(200 + machine.rng.Below(3'000))}});
      }
      machine.Step([](TenantKey, JobKey) {});
      ASSERT_LE(machine.tenants[9].waits[0], bound);
      longest = std::max(longest, machine.tenants[9].waits[0]);
    }
    EXPECT_GT(machine.tenants[9].ended, 10u);
  }
  std::printf("who was idle waited for at most %.1f ms\n", Seconds(longest) * 1e3);
}

// Without tenants beside the holder, the held times of all tenants add up to the time in which the device was held.
TEST(FairShareSimTest, HeldTimesAreExact) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(seed);
    FairShare share(Limits(), {.devices = 2});
    SeededRng rng(seed);
    std::vector<Event> events;
    for (TenantKey key = 1; key <= 4; ++key) {
      events.push_back(TenantArrives{key, 100});
    }
    Time now{0};
    JobKey next = 1;
    std::vector<std::pair<TenantKey, JobKey>> running;
    std::vector<GrantReturned> answers;
    std::map<DeviceIndex, std::pair<TenantKey, Time>> holder;
    std::map<std::pair<TenantKey, DeviceIndex>, Duration> held;
    const auto end = [&](DeviceIndex device) {
      if (const auto found = holder.find(device); found != holder.end()) {
        held[{found->second.first, device}] += now - found->second.second;
        holder.erase(found);
      }
    };
    std::map<DeviceIndex, uint64_t> grant_of;
    for (int step = 0; step < 3'000; ++step) {
      now += microseconds(rng.Below(3'000));
      if (rng.Below(2) == 0) {
        events.push_back(JobQueued{1 + rng.Below(4), next++, 0, 1 + rng.Below(3)});
      }
      if (!running.empty() && rng.Below(2) == 0) {
        const size_t which = rng.Below(running.size());
        events.push_back(JobEnded{running[which].first, running[which].second});
        running.erase(running.begin() + static_cast<ptrdiff_t>(which));
      }
      for (const GrantReturned& answer : std::exchange(answers, {})) {
        events.push_back(answer);
        if (grant_of[answer.device] == answer.grant) {
          end(answer.device);
        }
      }
      for (const Decision& decision : share.Tick(now, std::exchange(events, {}))) {
        if (const auto* start = std::get_if<StartJob>(&decision)) {
          running.emplace_back(start->tenant, start->job);
        } else if (const auto* grant = std::get_if<Grant>(&decision)) {
          end(grant->device);
          holder[grant->device] = {grant->tenant, now};
          grant_of[grant->device] = grant->grant;
        } else if (const auto* revoke = std::get_if<Revoke>(&decision)) {
          answers.push_back({revoke->tenant, revoke->device, revoke->grant});
        }
      }
      for (TenantKey key = 1; key <= 4; ++key) {
        for (DeviceIndex d = 0; d < 2; ++d) {
          const auto found = holder.find(d);
          const bool is_holder = found != holder.end() && found->second.first == key;
          const Duration now_held = held[{key, d}] + (is_holder ? now - found->second.second : Duration{0});
          // A tenant that gives way without work is released before the next grant, in the same Tick.
          ASSERT_LE(share.held(key, d, now), now_held);
          ASSERT_LE(share.used(key, d, now), share.held(key, d, now));
        }
      }
    }
  }
}

}  // namespace
}  // namespace hpvm::scheduler
