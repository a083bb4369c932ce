// SPDX-License-Identifier: Apache-2.0
// ExecutorSpawner is the interface that starts executor processes: real ones in the daemon, others in tests.
#ifndef HPVMD_SERVER_EXECUTORS_EXECUTOR_SPAWNER_H_
#define HPVMD_SERVER_EXECUTORS_EXECUTOR_SPAWNER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/io/event_hub.h"
#include "server/executors/sandbox_facts.h"
#include "supervisor/executor_process.h"

namespace hpvm::server {

struct Config;

struct SpawnRequest {
  std::string tenant;
  int grant_page = -1;                          // Borrowed during the call.
  std::vector<std::string> backends = {"cpu"};  // The device profile.
  Duration stop_grace{0};                       // 0: the default.
  uint32_t sandbox_level_min = 0;               // Applies in addition to the configuration's.
  bool without_device_nodes = false;            // No device of the profile is a GPU.
  bool has_driver = false;                      // A device of the profile works outside this process's processor time.
  std::vector<internal::RefusedDevice> emitted_refused;  // As in Hello.emitted_refused.
  std::function<void(const internal::Usage&)> on_usage;  // As in ExecutorOptions::on_usage.
};

class ExecutorSpawner {
 public:
  virtual ~ExecutorSpawner() = default;
  // `on_end` is called after every pending request's callback. May take milliseconds, so it is called without the
  // core's mutex.
  virtual StatusOr<std::unique_ptr<supervisor::ExecutorProcess>> Spawn(
      const SpawnRequest& request, std::function<void(const supervisor::ExecutorReady&)> on_ready,
      std::function<void(const Status&)> on_end) = 0;
  // Returns the devices of a backend on this machine ("cpu", "opencl"; "opencl:1" for one), found by a sandboxed probe
  // that tries each; blocks for up to 10 s.
  virtual StatusOr<internal::Ready> Probe(const std::string& backend) = 0;
  // Returns the known defects of the driver of, for example, "opencl:0", found by a sandboxed probe as well; blocks
  // for up to 40 s.
  virtual StatusOr<std::vector<v1::DriverDefect>> ProbeDefects(const std::string&) {
    return std::vector<v1::DriverDefect>();
  }
  // Starts an executor with this device profile, and returns the sandbox that it reaches on this machine, whatever the
  // configuration demands. Blocks for up to executor.spawn_ms_max.
  virtual StatusOr<SandboxFacts> ProbeSandbox(const std::vector<std::string>& backends, bool without_device_nodes) = 0;
  // Ends a probe in progress and refuses further ones, because the daemon stops. Thread-safe.
  virtual void StopProbes() {}
  // Sets the device profile of the next tenants' executors, for which spare processes are started. Thread-safe.
  virtual void Expect(const std::vector<std::string>& backends, bool without_device_nodes) {}
  // Returns the hub on whose thread executors' answers arrive, for other users of the same path; null when there is
  // none.
  virtual EventHub* events() { return nullptr; }
  // Sets the limits for executors that start from now on. Thread-safe.
  virtual void SetConfig(const Config& config) {}
};

// Returns the executor program: executor.path, or the one beside this program.
std::string ExecutorProgram(const Config& config);

class StateFolder;
// Spawns processes of config.executor_path, with caches and a record of each in `folder`, which must outlive the
// spawner.
StatusOr<std::unique_ptr<ExecutorSpawner>> CreateLinkSpawner(const Config& config, StateFolder& folder);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_EXECUTORS_EXECUTOR_SPAWNER_H_
