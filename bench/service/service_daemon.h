// SPDX-License-Identifier: Apache-2.0
// A real hpvmd with a configuration of its own, which the service's cases fill, overload, kill and restart.
#ifndef HPVMD_BENCH_SERVICE_SERVICE_DAEMON_H_
#define HPVMD_BENCH_SERVICE_SERVICE_DAEMON_H_

#include <sys/types.h>

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "bench/processes.h"
#include "bench/service/service_load.h"
#include "hpvm/client.h"

namespace hpvm::bench {

struct DaemonSettings {
  // TOML values by "section.key": {"jobs.store", "\"memory\""}.
  std::map<std::string, std::string> keys;
  // HPVMD_FAILPOINTS; none when empty.
  std::string failpoints;
};

// One state folder, and the daemon on it. Servers and executors end with this object.
class ServiceDaemon {
 public:
  static StatusOr<std::unique_ptr<ServiceDaemon>> Start(const DaemonSettings& settings);
  ~ServiceDaemon();

  // Starts it (again) on the same folder; returns the time until a call was answered.
  StatusOr<Duration> Restart(const DaemonSettings& settings);
  // Sends SIGKILL; its executors end by themselves.
  void Kill();
  // Sends SIGTERM, and waits until it has exited with code 0.
  StatusOr<Duration> Stop();

  const std::string& endpoint() const { return endpoint_; }
  std::string state() const { return folder_.path() + "/state"; }
  Client& client() { return *client_; }
  int pid() const { return process_->pid(); }

  // Prepares bench/kernels.c's graph "copy" (any number of bytes, a multiple of 16) or "work" (8 bytes in, 4 out), as
  // `tenant` (the default one when empty).
  StatusOr<std::string> Prepare(const std::string& graph, const std::string& tenant = "");

  // Sends SIGSTOP or SIGCONT to the executors: a job that runs in one stays RUNNING, and costs nothing.
  Status SignalExecutors(int signal_number);
  // Resident memory in bytes.
  uint64_t RssBytes() const;
  // Microseconds of processor time of the daemon alone.
  uint64_t CpuUs() const;
  // Size and modification time of each file of the job store, as text: equal texts mean no write.
  std::string StoreFingerprint() const;
  // Path of the database; empty when there is none.
  std::string DatabasePath() const;

 private:
  TemporaryFolder folder_;
  std::string endpoint_;
  std::optional<Process> process_;
  std::unique_ptr<Client> client_;
};

// The documents of the graphs "copy" and "work", whose module is called "bench", and that module.
std::string GraphDocument(const std::string& graph);
StatusOr<std::vector<uint8_t>> ReadBenchKernels();

// Returns the children of a process, through its threads.
std::vector<pid_t> ChildrenOf(pid_t parent);
// Returns the program's name (15 characters at most), empty when the process is gone.
std::string ProgramNameOf(pid_t pid);

// Input of the graph "work", and its expected output.
std::string WorkInput(uint32_t steps, uint32_t times);
std::string WorkOutput(uint32_t steps, uint32_t times);

// Samples a daemon's memory until it is destroyed.
class RssWatch {
 public:
  explicit RssWatch(const ServiceDaemon& daemon);
  ~RssWatch();
  uint64_t max_bytes() const { return max_; }

 private:
  std::atomic<uint64_t> max_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_SERVICE_SERVICE_DAEMON_H_
