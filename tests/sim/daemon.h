// SPDX-License-Identifier: Apache-2.0
// SimDaemon is one lifetime of the daemon: the real core and the real store on a disk in memory, from start to crash
// or orderly stop.
#ifndef HPVMD_TESTS_SIM_DAEMON_H_
#define HPVMD_TESTS_SIM_DAEMON_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "server/core/core.h"
#include "server/jobs/testing/disk_vfs.h"
#include "server/testing/sim_disk.h"
#include "tests/sim/sim_executor.h"
#include "tests/sim/sim_job_store.h"
#include "tests/sim/store_model.h"

namespace hpvm::server::sim {

// State that outlives a daemon.
struct Machine {
  Machine(Context& context, StoreModel& model, Attempts& attempts)
      : context(context),
        model(model),
        attempts(attempts),
        disk(context.RngFor("disk").Next()),
        core_rng(context.RngFor("core")),
        store_rng(context.RngFor("store")),
        executor_rng(context.RngFor("executor")),
        vfs_rng(context.RngFor("vfs")) {}
  // Sets the faults of the world's plan on the disk, during the faulty phase.
  void ArmDisk();

  Context& context;
  StoreModel& model;
  Attempts& attempts;
  SimDisk disk;
  SeededRng core_rng, store_rng, executor_rng, vfs_rng;
  std::unique_ptr<DiskVfs> vfs;
  Config config;  // The present configuration.
};

class SimDaemon {
 public:
  explicit SimDaemon(Machine& machine);
  // A crash, unless it was stopped.
  ~SimDaemon();
  SimDaemon(const SimDaemon&) = delete;

  // Opens the store, compares it with the model, restores the jobs. An error means that the disk was at fault: try
  // again.
  Status Start();
  bool is_serving() const { return core_ != nullptr && !is_dead_; }

  Core& core() { return *core_; }
  BlobFolder& blobs() { return *blobs_; }
  JobDatabase& database() { return *watched_; }
  SimJobStore& store() { return *store_; }

  // Returns when OnTime is due.
  Time next() const { return core_ == nullptr ? kNever : next_; }
  void OnTime();

  // The store accepts no more writes: the process ends with code 1.
  bool is_broken() const { return is_broken_; }
  void Drain();
  void StopRunning();
  bool is_idle() const { return core_->operations() == 0; }
  // Stops in order: every call is answered, every write is done.
  void Stop();

  // Calls of clients. BeginCall returns an id; EndCall returns false when nobody may receive the response (the
  // process or the power is gone). Every call must end exactly once, unless the process ends first.
  uint64_t BeginCall(const std::string& what);
  bool EndCall(uint64_t call);
  // Keeps it until the daemon's end.
  void Hold(std::shared_ptr<void> what) { held_.push_back(std::move(what)); }
  size_t open_calls() const { return calls_.size(); }
  std::string OldestCall() const { return calls_.empty() ? "" : calls_.begin()->second; }

 private:
  Status OpenStore();
  void WatchDevices();
  void Probe();

  Machine& machine_;
  Context& context_;
  const uint64_t incarnation_;
  std::unique_ptr<JobDatabase> database_;
  std::unique_ptr<WatchedDatabase> watched_;
  std::unique_ptr<BlobFolder> blobs_;
  std::unique_ptr<SimSpawner> spawner_;
  std::unique_ptr<Core> core_;
  std::unique_ptr<SimJobStore> store_;  // Destroyed before the core.
  Time next_ = kNever;
  bool is_dead_ = false, is_broken_ = false, is_stopped_ = false, probe_scheduled_ = false;
  uint64_t next_call_ = 1;
  std::map<uint64_t, std::string> calls_;
  std::vector<std::shared_ptr<void>> held_;
};

}  // namespace hpvm::server::sim

#endif  // HPVMD_TESTS_SIM_DAEMON_H_
