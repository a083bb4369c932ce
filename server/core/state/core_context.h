// SPDX-License-Identifier: Apache-2.0
// What every room of the core stands on: its options, the configuration, its mutex, and how far its end has come.
#ifndef HPVMD_SERVER_CORE_STATE_CORE_CONTEXT_H_
#define HPVMD_SERVER_CORE_STATE_CORE_CONTEXT_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "base/clock.h"
#include "base/hash.h"
#include "base/status.h"
#include "server/config/config.h"
#include "server/config/tenant_policy.h"
#include "server/core/state/monitor.h"
#include "server/core/state/shutdown.h"
#include "server/events/events.h"
#include "server/executors/executor_spawner.h"
#include "server/jobs/job_store.h"
#include "server/jobs/stored_request.h"
#include "server/process/spent_file.h"

namespace hpvm::server {

struct CoreOptions {
  Config config;
  const Clock* clock = nullptr;        // Borrowed; lives longer.
  Rng* rng = nullptr;                  // Borrowed; lives longer. Used under the mutex.
  ExecutorSpawner* spawner = nullptr;  // Borrowed; lives longer.
  // Borrowed. Destroyed after Stop and before the core, which its last callbacks still enter.
  JobStore* jobs = nullptr;
  Observer* observer = &NoObserver();                // Borrowed; lives longer.
  const TenantPolicies* policies = &OpenPolicies();  // Borrowed; lives longer.
  uint32_t cpu_threads = 1;                          // What grants give.
  uint64_t host_bytes_max = 0;                       // Where limits.host_bytes_max is 0; 0: none.
  uint64_t disk_bytes_max = 0;                       // Where jobs.disk_bytes_max is 0; 0: none.
  Sha256 page_key;                                   // Seals tokens of pages; the same after a restart.
  SpentByTenant spent;                               // Before this process.
  uint64_t request_row_bytes_max = kRequestRowBytesMax;
  Intake intake;  // Before this process.
  // Executors wait for DevicesKnown, so that the first ones have every device.
  bool awaits_devices = false;
};

// The configuration, which a reload replaces as a whole.
class LiveConfig {
 public:
  explicit LiveConfig(Config config) : config_(std::make_shared<const Config>(std::move(config))) {}
  // Any thread: its members do not change.
  std::shared_ptr<const Config> Get() const {
    std::lock_guard lock(mutex_);
    return config_;
  }
  // With the core's mutex.
  const Config* operator->() const { return config_.get(); }
  const Config& operator*() const { return *config_; }
  void Set(Config config) {
    auto next = std::make_shared<const Config>(std::move(config));
    std::lock_guard lock(mutex_);
    config_.swap(next);
  }

 private:
  mutable std::mutex mutex_;              // Taken after the core's.
  std::shared_ptr<const Config> config_;  // Changed under both; read under either.
};

struct CoreContext {
  explicit CoreContext(CoreOptions given)
      : options(std::move(given)), config(std::move(options.config)), monitor(*options.jobs, shutdown) {
    shutdown.intake = std::move(options.intake);
  }
  CoreOptions options;
  LiveConfig config;
  Shutdown shutdown;
  Monitor monitor;
};

// A part of the core with state of its own, guarded by the monitor's mutex. A room calls only those that its
// constructor names; what comes back up are callbacks.
class CoreRoom {
 public:
  CoreRoom(const CoreRoom&) = delete;
  CoreRoom& operator=(const CoreRoom&) = delete;

 protected:
  explicit CoreRoom(CoreContext& context)
      : options_(context.options), config_(context.config), shutdown_(context.shutdown), monitor_(context.monitor) {}
  ~CoreRoom() = default;

  const CoreOptions& options_;
  LiveConfig& config_;
  const Shutdown& shutdown_;
  Monitor& monitor_;
};

// How long a client should wait that met a full queue.
inline constexpr Duration kQueueFullPause = std::chrono::milliseconds(250);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_STATE_CORE_CONTEXT_H_
