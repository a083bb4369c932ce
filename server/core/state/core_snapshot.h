// SPDX-License-Identifier: Apache-2.0
// CoreSnapshot is the state of the core at one moment, as metrics and health checks report it.
#ifndef HPVMD_SERVER_CORE_STATE_CORE_SNAPSHOT_H_
#define HPVMD_SERVER_CORE_STATE_CORE_SNAPSHOT_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hpvm/v1/service.pb.h"
#include "scheduler/share/ledger.h"
#include "server/executors/sandbox_facts.h"
#include "server/jobs/job_store.h"
#include "server/process/intake_file.h"

namespace hpvm::server {

// Returns the index under which jobs of a priority are counted: below 0, 0, above 0.
inline size_t PriorityClass(int32_t priority) { return priority < 0 ? 0 : priority == 0 ? 1 : 2; }

struct TenantSnapshot {
  std::string name;
  // Number of runs and jobs in the fair share's queue, by priority: below 0, 0, above 0.
  std::array<uint64_t, 3> queued{};
  uint64_t running = 0;  // Number of runs and of attempts of jobs.
  uint64_t buffer_bytes = 0;
  uint64_t stored_job_bytes = 0;  // Bytes that the tenant's jobs occupy in the store, as its quota counts them.
  std::array<scheduler::Ledger::Balance, scheduler::kResourceCount> quota{};
};

struct CoreSnapshot {
  bool devices_known = false;  // Device discovery has ended.
  bool draining = false;
  Intake intake;
  // Number of jobs that have not ended, by state as clients see it.
  uint64_t jobs_accepted = 0, jobs_queued = 0, jobs_running = 0;
  uint64_t runs = 0;       // Number of Run calls and Stream items in progress, including those that wait.
  uint64_t executors = 0;  // Number of live executor processes.
  uint64_t watchers = 0;
  JobStoreHealth store;
  std::vector<v1::Device> devices;
  std::optional<SandboxFacts> sandbox;  // As the executor that started last reported it; empty: none has.
  uint32_t sandbox_level_min = 0;       // Value of executor.sandbox_min.
  std::vector<TenantSnapshot> tenants;  // Filled only on request.
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_STATE_CORE_SNAPSHOT_H_
