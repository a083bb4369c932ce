// SPDX-License-Identifier: Apache-2.0
// Where executor processes come from, as an interface: real processes in the daemon, others in tests.
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
  uint32_t sandbox_level_min = 0;               // With the configuration's.
  bool without_device_nodes = false;            // No device of the profile is a GPU.
  bool has_driver = false;  // A device of the profile does its work elsewhere than on this process's time.
  std::vector<internal::RefusedDevice> emitted_refused;  // As Hello.emitted_refused.
  std::function<void(const internal::Usage&)> on_usage;  // As ExecutorOptions::on_usage.
};

class ExecutorSpawner {
 public:
  virtual ~ExecutorSpawner() = default;
  // `on_end` comes after every pending request's callback. May take milliseconds: called without the core's mutex.
  virtual StatusOr<std::unique_ptr<supervisor::ExecutorProcess>> Spawn(
      const SpawnRequest& request, std::function<void(const supervisor::ExecutorReady&)> on_ready,
      std::function<void(const Status&)> on_end) = 0;
  // The devices of a backend on this machine ("cpu", "opencl"; "opencl:1" for one), found by a sandboxed probe, which
  // tries each; blocks for up to 10 s.
  virtual StatusOr<internal::Ready> Probe(const std::string& backend) = 0;
  // Which known defects the driver of "opencl:0" shows, found by a sandboxed probe as well; blocks for up to 40 s.
  virtual StatusOr<std::vector<v1::DriverDefect>> ProbeDefects(const std::string&) {
    return std::vector<v1::DriverDefect>();
  }
  // What an executor with this device profile reaches on this machine, whatever the configuration demands: one starts
  // and ends. Blocks for up to executor.spawn_ms_max.
  virtual StatusOr<SandboxFacts> ProbeSandbox(const std::vector<std::string>& backends, bool without_device_nodes) = 0;
  // Ends a probe in progress and refuses further ones: the daemon stops. Any thread.
  virtual void StopProbes() {}
  // Which device profile the next tenants' executors will have: processes that wait for them are started. Any thread.
  virtual void Expect(const std::vector<std::string>& backends, bool without_device_nodes) {}
  // The thread that executors' answers come on, for others whose messages go the same way. Null: there is none.
  virtual EventHub* events() { return nullptr; }
  // Limits for executors that start from now on. Any thread.
  virtual void SetConfig(const Config& config) {}
};

// The program that executors are: executor.path, or the one beside this program.
std::string ExecutorProgram(const Config& config);

class StateFolder;
// Spawns processes of config.executor_path, with caches and a record of each in `folder`, which lives longer.
StatusOr<std::unique_ptr<ExecutorSpawner>> CreateLinkSpawner(const Config& config, StateFolder& folder);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_EXECUTORS_EXECUTOR_SPAWNER_H_
