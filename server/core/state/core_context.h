// SPDX-License-Identifier: Apache-2.0
// CoreContext holds what every room of the core uses: the options, the configuration, the mutex, and the state of the
// shutdown.
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
#include "server/core/state/shared_jobs.h"
#include "server/core/state/shutdown.h"
#include "server/events/events.h"
#include "server/executors/executor_spawner.h"
#include "server/jobs/job_store.h"
#include "server/jobs/stored_request.h"
#include "server/process/spent_file.h"

namespace hpvm::server {

struct CoreOptions {
  Config config;
  const Clock* clock = nullptr;        // Borrowed; must outlive the core.
  Rng* rng = nullptr;                  // Borrowed; must outlive the core. Guarded by the core's mutex.
  ExecutorSpawner* spawner = nullptr;  // Borrowed; must outlive the core.
  // Borrowed. Destroyed after Stop and before the core, which its last callbacks still enter.
  JobStore* jobs = nullptr;
  SharedJobs* shared = nullptr;                      // Not null when hosts share the store. Borrowed as `jobs` is.
  Observer* observer = &NoObserver();                // Borrowed; must outlive the core.
  const TenantPolicies* policies = &OpenPolicies();  // Borrowed; must outlive the core.
  uint32_t cpu_threads = 1;                          // Number of threads that a grant of the CPU allows.
  std::string cpu_note;                              // Shown with the CPU's name: which processors executors have.
  uint64_t host_bytes_max = 0;                       // Used where limits.host_bytes_max is 0; 0: no limit.
  uint64_t disk_bytes_max = 0;                       // Used where jobs.disk_bytes_max is 0; 0: no limit.
  Sha256 page_key;                                   // Key that seals page tokens; the same after a restart.
  SpentByTenant spent;                               // Amounts that tenants had spent before this process started.
  uint64_t request_row_bytes_max = kRequestRowBytesMax;
  Intake intake;  // State of the intake before this process started.
  // When true, executors wait for DevicesKnown, so that the first ones have every device.
  bool awaits_devices = false;
};

// LiveConfig holds the configuration, which a reload replaces as a whole.
class LiveConfig {
 public:
  explicit LiveConfig(Config config) : config_(std::make_shared<const Config>(std::move(config))) {}
  // Thread-safe, because the members of the returned configuration do not change.
  std::shared_ptr<const Config> Get() const {
    std::lock_guard lock(mutex_);
    return config_;
  }
  // The caller holds the core's mutex.
  const Config* operator->() const { return config_.get(); }
  const Config& operator*() const { return *config_; }
  void Set(Config config) {
    auto next = std::make_shared<const Config>(std::move(config));
    std::lock_guard lock(mutex_);
    config_.swap(next);
  }

 private:
  mutable std::mutex mutex_;              // Acquired after the core's mutex.
  std::shared_ptr<const Config> config_;  // Written with both mutexes held; read with either.
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

// CoreRoom is the base class of a part of the core with state of its own, which the monitor's mutex guards. A room
// calls only the rooms that its constructor names; they report back through callbacks.
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

// Time that a client should wait after it found a queue full.
inline constexpr Duration kQueueFullPause = std::chrono::milliseconds(250);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_STATE_CORE_CONTEXT_H_
