// SPDX-License-Identifier: Apache-2.0
// Plan describes one seed's world: its size, its limits, and which faults occur, at which rates. Each seed enables a
// random subset of the faults (swarm testing): a world where everything fails at once reaches less than many worlds
// that each fail in a few ways.
#ifndef HPVMD_TESTS_SIM_PLAN_H_
#define HPVMD_TESTS_SIM_PLAN_H_

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "server/config/config.h"

namespace hpvm::server::sim {

// Rates are per mille; a mean time of 0 means never.
struct Plan {
  // Size.
  uint32_t tenants = 1;
  uint32_t clients_per_tenant = 1;
  uint32_t actions_per_client = 10;
  Duration pause_mean{0};  // Between a client's actions.
  uint32_t graphs = 4;     // Number of documents that each tenant uses.

  // Messages between clients and the daemon.
  uint32_t lose = 0, duplicate = 0, delay = 0;
  // Executors.
  uint32_t refuse_start = 0, die_early = 0, crash = 0, hang = 0, garbage = 0, late = 0, lose_device = 0;
  uint32_t ignore_cancel = 0, crash_in_prepare = 0;
  bool has_gpu = false;
  // The disk.
  uint32_t read_errors = 0, write_errors = 0, sync_errors = 0;  // Per 100,000 operations.
  Duration full_every{0}, full_for{0};
  uint32_t slow_commits = 0;
  // The daemon.
  Duration crash_every{0}, drain_every{0}, reload_every{0};
  uint32_t crash_in_write = 0;  // Share of crashes in the middle of the disk's next operations.
  uint32_t power_loss = 0;      // Share of crashes that lose unsynced data.
  uint32_t hard_stop = 0;       // Share of drains that are cut short.
  // Wall clock.
  Duration jump_every{0}, jump_max{0};
  uint32_t jump_years = 0;  // When not 0, jumps are between an hour and this many years instead.

  // Weights of the clients' actions.
  uint32_t submit = 40, arrays = 5, after = 10, cancel = 10, read = 20, list = 4, watch = 4, fetch = 5, buffers = 5,
           retry = 4, reuse_key = 3, run = 3, prepare = 3;
  uint32_t keyed = 700;  // Share of submits with a key.
  uint32_t traps = 50, invalid = 30, big = 100, slow = 100, short_deadline = 60;

  Config config;
  std::string Describe() const;
};

Plan DrawPlan(uint64_t seed);

// Draws the defaults of every tenant's quotas, some so tight that they are reached.
void DrawQuotas(Rng& rng, Config& config);
void NoQuotas(Config& config);

}  // namespace hpvm::server::sim

#endif  // HPVMD_TESTS_SIM_PLAN_H_
