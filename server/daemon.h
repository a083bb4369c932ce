// SPDX-License-Identifier: Apache-2.0
// The running daemon: core, executors, timer thread and gRPC server, from start to graceful stop.
#ifndef HPVMD_SERVER_DAEMON_H_
#define HPVMD_SERVER_DAEMON_H_

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "server/core.h"
#include "server/service.h"
#include "server/state_folder.h"

namespace hpvm {

// Calls Core::OnTime when it is due.
class TimerThread {
 public:
  explicit TimerThread(Core& core);
  ~TimerThread();

 private:
  void Loop();
  Core& core_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool woken_ = false, stop_ = false;
  std::thread thread_;
};

// Looks for devices, at start and when told to, and tries out those that were lost. Probes are processes; this thread
// waits for them.
class ProbeThread {
 public:
  ProbeThread(Core& core, ExecutorSpawner& spawner);
  ~ProbeThread();
  void Rediscover();

 private:
  void Wake();
  void Loop();
  void Discover();
  void TryOut(const std::string& id);

  Core& core_;
  ExecutorSpawner& spawner_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool woken_ = false, stop_ = false, discover_ = true;  // Guarded by mutex_.
  std::thread thread_;
};

class Daemon {
 public:
  // Serves when it returns.
  static StatusOr<std::unique_ptr<Daemon>> Start(const Config& config);
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  const std::vector<std::string>& addresses() const { return server_->addresses(); }
  Core& core() { return *core_; }

  // Looks for devices again: what came is used, what was given up gets another chance.
  void Rediscover() { probe_->Rediscover(); }

  // Refuses new work, lets what runs end for up to server.drain_ms or until `hurry` says true, kills what is left.
  void Stop(const std::function<bool()>& hurry);

 private:
  Daemon() = default;

  std::unique_ptr<StateFolder> folder_;
  std::unique_ptr<ExecutorSpawner> spawner_;
  std::unique_ptr<Core> core_;
  std::unique_ptr<JobStore> jobs_;   // Ends before the core, which its last answers enter.
  std::unique_ptr<TimerThread> timer_;
  std::unique_ptr<GrpcServer> server_;
  std::unique_ptr<ProbeThread> probe_;
};

}  // namespace hpvm

#endif  // HPVMD_SERVER_DAEMON_H_
