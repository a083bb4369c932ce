// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/plan.h"

#include "tests/sim/context.h"

namespace hpvm::server::sim {
namespace {

// Sizes: most worlds are small, some large.
void DrawSize(Rng& rng, Plan& plan) {
  const uint64_t kind = rng.Below(20);
  if (kind < 14) {
    plan.tenants = static_cast<uint32_t>(Between(rng, 1, 2));
    plan.clients_per_tenant = static_cast<uint32_t>(Between(rng, 1, 2));
    plan.actions_per_client = static_cast<uint32_t>(Between(rng, 5, 20));
  } else if (kind < 19) {
    plan.tenants = static_cast<uint32_t>(Between(rng, 1, 3));
    plan.clients_per_tenant = static_cast<uint32_t>(Between(rng, 1, 3));
    plan.actions_per_client = static_cast<uint32_t>(Between(rng, 10, 40));
  } else {
    plan.tenants = static_cast<uint32_t>(Between(rng, 2, 4));
    plan.clients_per_tenant = static_cast<uint32_t>(Between(rng, 2, 5));
    plan.actions_per_client = static_cast<uint32_t>(Between(rng, 30, 100));
  }
  plan.pause_mean = Milliseconds(Between(rng, 1, 6) * Between(rng, 1, 60));
  plan.graphs = static_cast<uint32_t>(Between(rng, 2, 8));
}

void DrawExecutorFaults(Rng& rng, Plan& plan) {
  const auto maybe = [&](uint32_t chance, uint32_t max) {
    return Chance(rng, chance) ? static_cast<uint32_t>(Between(rng, 1, max)) : 0;
  };
  plan.crash = maybe(400, 300);
  plan.hang = maybe(250, 100);
  plan.ignore_cancel = maybe(250, 500);
  plan.garbage = maybe(150, 60);
  plan.late = maybe(250, 200);
  plan.refuse_start = maybe(200, 300);
  plan.die_early = maybe(200, 300);
  plan.crash_in_prepare = maybe(200, 200);
  plan.has_gpu = Chance(rng, 300);
  plan.lose_device = plan.has_gpu ? maybe(500, 200) : 0;
}

void DrawDiskFaults(Rng& rng, Plan& plan) {
  const auto maybe = [&](uint32_t chance, uint32_t max) {
    return Chance(rng, chance) ? static_cast<uint32_t>(Between(rng, 1, max)) : 0;
  };
  plan.read_errors = maybe(100, 200);
  plan.write_errors = maybe(150, 300);
  plan.sync_errors = maybe(150, 800);
  if (Chance(rng, 200)) {
    plan.full_every = Milliseconds(Between(rng, 100, 2'000));
    plan.full_for = Milliseconds(Between(rng, 10, 5'000));
  }
  plan.slow_commits = maybe(200, 300);
}

void DrawDaemonFaults(Rng& rng, Plan& plan) {
  if (Chance(rng, 600)) {
    plan.crash_every = Milliseconds(Between(rng, 50, 3'000));
    plan.crash_in_write = static_cast<uint32_t>(rng.Below(1'000));
    plan.power_loss = static_cast<uint32_t>(rng.Below(1'000));
  }
  if (Chance(rng, 250)) {
    plan.drain_every = Milliseconds(Between(rng, 200, 4'000));
    plan.hard_stop = static_cast<uint32_t>(rng.Below(500));
  }
  if (Chance(rng, 200)) {
    plan.reload_every = Milliseconds(Between(rng, 100, 2'000));
  }
  if (Chance(rng, 250)) {
    plan.jump_every = Milliseconds(Between(rng, 100, 2'000));
    plan.jump_max = Milliseconds(Between(rng, 1, 3'600'000));
  }
}

void DrawMessageFaults(Rng& rng, Plan& plan) {
  const auto maybe = [&](uint32_t chance, uint32_t max) {
    return Chance(rng, chance) ? static_cast<uint32_t>(Between(rng, 1, max)) : 0;
  };
  plan.lose = maybe(500, 200);
  plan.duplicate = maybe(400, 200);
  plan.delay = maybe(400, 300);
}

void DrawWork(Rng& rng, Plan& plan) {
  const auto sometimes = [&](uint32_t& weight) {
    weight = Chance(rng, 500) ? weight * 3 : Chance(rng, 300) ? 0 : weight;
  };
  for (uint32_t* weight :
       {&plan.arrays, &plan.after, &plan.cancel, &plan.buffers, &plan.retry, &plan.reuse_key, &plan.run, &plan.list,
        &plan.watch, &plan.traps, &plan.invalid, &plan.big, &plan.slow, &plan.short_deadline}) {
    sometimes(*weight);
  }
  plan.keyed = static_cast<uint32_t>(Between(rng, 300, 1'000));
}

void DrawConfig(Rng& rng, Plan& plan) {
  Config& config = plan.config;
  config.jobs_running_max = Between(rng, 1, 8);
  config.jobs_running_per_tenant_max = Between(rng, 1, 4);
  if (Chance(rng, 400)) {
    config.jobs_queued_per_tenant_max = Between(rng, 1, 20);
    config.jobs_queued_max = config.jobs_queued_per_tenant_max + rng.Below(20);
  }
  if (Chance(rng, 200)) {
    config.jobs_stored_bytes_max = Between(rng, 2, 200) * 1'024;
  }
  if (Chance(rng, 200)) {
    config.jobs_kept_max = Between(rng, 1, 20);
  }
  if (Chance(rng, 150)) {
    config.jobs_kept_bytes_max = Between(rng, 4, 200) * 1'024;
  }
  config.jobs_attempts_default = Between(rng, 1, 5);
  config.jobs_array_max = Between(rng, 2, 12);
  // Long deadlines as well, so that a lost job is not always hidden by its deadline.
  config.jobs_deadline_default_ms = (Chance(rng, 500) ? Between(rng, 2, 120) : Between(rng, 200, 600)) * 1'000;
  config.jobs_deadline_max_ms = 600'000;
  config.server_drain_ms = Between(rng, 1, 2'000);
  config.executor_idle_ms_max = Between(rng, 100, 60'000);
  config.executor_prepare_ms_max = Between(rng, 500, 20'000);
  config.executor_crash_window_ms = Between(rng, 100, 10'000);
  config.executor_crashes_max = Between(rng, 1, 10);
  DrawQuotas(rng, config);
  if (Chance(rng, 150)) {
    config.jobs_disk_bytes_max = Between(rng, 10, 400) * 1'024;
  }
}

}  // namespace

void NoQuotas(Config& config) {
  config.quota_device_seconds_per_hour = config.quota_compile_seconds_per_hour = 0;
  config.quota_host_bytes_max = config.quota_disk_bytes_max = config.quota_modules_max = 0;
  config.quota_device_bytes_max = config.quota_requests_per_second = config.quota_request_bytes_per_second = 0;
}

void DrawQuotas(Rng& rng, Config& config) {
  NoQuotas(config);
  if (Chance(rng, 150)) {
    config.quota_device_seconds_per_hour = Between(rng, 1, 20);
  }
  if (Chance(rng, 150)) {
    config.quota_host_bytes_max = Between(rng, 4, 500) * 4'096;
  }
  if (Chance(rng, 150)) {
    config.quota_disk_bytes_max = Between(rng, 2, 200) * 1'024;
  }
  if (Chance(rng, 150)) {
    config.quota_modules_max = Between(rng, 1, 4);
  }
}

Plan DrawPlan(uint64_t seed) {
  SeededRng mixed(seed ^ 0x706c616eu);
  SeededRng rng(mixed.Next());
  Plan plan;
  DrawSize(rng, plan);
  DrawMessageFaults(rng, plan);
  DrawExecutorFaults(rng, plan);
  DrawDiskFaults(rng, plan);
  DrawDaemonFaults(rng, plan);
  DrawWork(rng, plan);
  DrawConfig(rng, plan);
  if (plan.jump_every > Duration{0} && Chance(rng, 500)) {
    plan.jump_years = static_cast<uint32_t>(Between(rng, 1, 10));
  }
  return plan;
}

std::string Plan::Describe() const {
  std::string text;
  const auto add = [&](std::string_view name, uint64_t value) {
    if (value != 0) {
      text += (text.empty() ? "" : " ") + std::string(name) + "=" + std::to_string(value);
    }
  };
  add("tenants", tenants);
  add("clients", clients_per_tenant);
  add("actions", actions_per_client);
  add("jump_years", jump_years);
  for (const auto& [name, value] :
       std::initializer_list<std::pair<std::string_view, uint64_t>>{{"lose", lose},
                                                                    {"duplicate", duplicate},
                                                                    {"delay", delay},
                                                                    {"refuse_start", refuse_start},
                                                                    {"die_early", die_early},
                                                                    {"crash", crash},
                                                                    {"hang", hang},
                                                                    {"garbage", garbage},
                                                                    {"late", late},
                                                                    {"lose_device", lose_device},
                                                                    {"ignore_cancel", ignore_cancel},
                                                                    {"crash_in_prepare", crash_in_prepare},
                                                                    {"read_errors", read_errors},
                                                                    {"write_errors", write_errors},
                                                                    {"sync_errors", sync_errors},
                                                                    {"slow_commits", slow_commits}}) {
    add(name, value);
  }
  for (const auto& [name, value] :
       std::initializer_list<std::pair<std::string_view, Duration>>{{"full_every_ms", full_every},
                                                                    {"crash_every_ms", crash_every},
                                                                    {"drain_every_ms", drain_every},
                                                                    {"reload_every_ms", reload_every},
                                                                    {"jump_every_ms", jump_every}}) {
    add(name, static_cast<uint64_t>(value.count()) / 1'000'000);
  }
  return text;
}

}  // namespace hpvm::server::sim
