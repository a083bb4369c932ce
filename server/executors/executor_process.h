// SPDX-License-Identifier: Apache-2.0
// What the core needs of an executor process, as an interface: ExecutorLink in the daemon, a fake in tests.
#ifndef HPVMD_SERVER_EXECUTORS_EXECUTOR_PROCESS_H_
#define HPVMD_SERVER_EXECUTORS_EXECUTOR_PROCESS_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/executors/sandbox_facts.h"
#include "supervisor/executor_link.h"

namespace hpvm {

// One live executor. The rules are ExecutorLink's: calls never block, each callback comes once, later, on another
// thread.
class ExecutorProcess {
 public:
  virtual ~ExecutorProcess() = default;  // Waits for the process to be reaped; not on a callback's thread.
  virtual RequestId Prepare(const PrepareInput& input, std::function<void(StatusOr<PrepareReply>)> done) = 0;
  virtual RequestId Run(const RunInput& input, std::function<void(StatusOr<RunReply>)> done) = 0;
  virtual void Release(uint64_t handle) = 0;
  virtual void Cancel(RequestId id) = 0;
  virtual void GrantChanged(uint32_t entry, uint32_t epoch, std::function<void(Status)> done) = 0;
  virtual void Forget(uint64_t memory_id) = 0;
  virtual void Reclaim(uint32_t entry, uint64_t bytes_max, std::function<void(StatusOr<ExecutorUsage>)> done) = 0;
  virtual void ListCosts(uint64_t handle, std::function<void(StatusOr<ExecutorCosts>)> done) = 0;
  // Processor time that the process has used; empty when that says nothing of how far it is.
  virtual std::optional<Duration> CpuTime() const = 0;
  // Whether the process had waited for a tenant: it may have ended while nobody looked. Constant.
  virtual bool was_spare() const { return false; }
  virtual void Shutdown() = 0;
  virtual void Kill(std::string_view why) = 0;
};

struct Config;

struct SpawnRequest {
  std::string tenant;
  int grant_page = -1;                          // Borrowed during the call.
  std::vector<std::string> backends = {"cpu"};  // The device profile.
  Duration stop_grace{0};                       // 0: the default.
  uint32_t sandbox_level_min = 0;               // With the configuration's.
  bool without_device_nodes = false;            // No device of the profile is a GPU.
  bool has_driver = false;  // A device of the profile does its work elsewhere than on this process's time.
  std::vector<BrokenDevice> emitted_refused;           // As ExecutorOptions::emitted_refused.
  std::function<void(const ExecutorUsage&)> on_usage;  // As ExecutorOptions::on_usage.
};

class ExecutorSpawner {
 public:
  virtual ~ExecutorSpawner() = default;
  // `on_end` comes after every pending request's callback. May take milliseconds: called without the core's mutex.
  virtual StatusOr<std::unique_ptr<ExecutorProcess>> Spawn(const SpawnRequest& request,
                                                           std::function<void(const ExecutorReady&)> on_ready,
                                                           std::function<void(const Status&)> on_end) = 0;
  // The devices of a backend on this machine ("cpu", "opencl"; "opencl:1" for one), found by a sandboxed probe, which
  // tries each; blocks for up to 10 s.
  virtual StatusOr<ProbedDevices> Probe(const std::string& backend) = 0;
  // Which known defects the driver of "opencl:0" shows, found by a sandboxed probe as well; blocks for up to 40 s.
  virtual StatusOr<std::vector<DriverDefect>> ProbeDefects(const std::string&) { return std::vector<DriverDefect>(); }
  // What an executor with this device profile reaches on this machine, whatever the configuration demands: one starts
  // and ends. Blocks for up to executor.spawn_ms_max.
  virtual StatusOr<SandboxFacts> ProbeSandbox(const std::vector<std::string>& backends, bool without_device_nodes) = 0;
  // Ends a probe in progress and refuses further ones: the daemon stops. Any thread.
  virtual void StopProbes() {}
  // Which device profile the next tenants' executors will have: processes that wait for them are started. Any thread.
  virtual void Expect(const std::vector<std::string>& backends, bool without_device_nodes) {}
  // Limits for executors that start from now on. Any thread.
  virtual void SetConfig(const Config& config) {}
};

// The program that executors are: executor.path, or the one beside this program.
std::string ExecutorProgram(const Config& config);

class StateFolder;
// Spawns processes of config.executor_path, with caches and a record of each in `folder`, which lives longer.
StatusOr<std::unique_ptr<ExecutorSpawner>> CreateLinkSpawner(const Config& config, StateFolder& folder);

}  // namespace hpvm

#endif  // HPVMD_SERVER_EXECUTORS_EXECUTOR_PROCESS_H_
