// SPDX-License-Identifier: Apache-2.0
// World is one seed's world: a machine with a disk, a daemon that crashes and restarts, executors, clients and the
// network between; first with faults, then healed, when everything that was accepted must end.
#ifndef HPVMD_TESTS_SIM_WORLD_H_
#define HPVMD_TESTS_SIM_WORLD_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/sim/attempts.h"
#include "tests/sim/client.h"
#include "tests/sim/context.h"
#include "tests/sim/daemon.h"
#include "tests/sim/frontend.h"
#include "tests/sim/history.h"
#include "tests/sim/store_model.h"
#include "tests/sim/verdict.h"

namespace hpvm::server::sim {

class World {
 public:
  World(uint64_t seed, bool prints);
  ~World();
  Verdict Run();
  const Trace& trace() const { return context_.trace; }
  const Plan& plan() const { return context_.plan; }

 private:
  bool Step();
  void AfterStep();
  void RunUntilCalm();
  bool HasNothingPending();
  void Heal();
  void CheckAll();
  void CheckAtRest();
  void CheckReads();
  void CheckBlobs();
  std::set<std::string> HeldBlobs(const std::string& tenant_name);
  void CheckLedger();
  void CheckProgress();
  std::string WaitsSentence(const Row& row);
  void CheckWait(const Row& row);

  void StartDaemon();
  void StartLater(Duration delay);
  void Crash(bool keeps_all);
  void BeginDrain();
  void PollDrain(Time give_up);
  void EndInOrder();

  // Faults that recur.
  void Repeat(Duration mean, std::function<void()> action);
  void CrashSometime();
  void FillDisk();
  void Reload();
  void JumpWall();

  Context context_;
  StoreModel model_;
  Attempts attempts_;
  History history_;
  Machine machine_;
  std::unique_ptr<SimDaemon> daemon_;
  Network network_;
  Frontend frontend_;
  Board board_;
  std::vector<std::unique_ptr<SimClient>> clients_;
  SeededRng rng_;
  bool start_pending_ = false, is_draining_ = false;
  uint64_t starts_ = 0, steps_ = 0;
  int64_t wall_off_ns_ = 0;   // Offset of the wall clock from the right time, in worlds with large jumps.
  Time looked_{0}, busy_{0};  // For CheckProgress: times of the last check, and of the last check without problems.
};

}  // namespace hpvm::server::sim

#endif  // HPVMD_TESTS_SIM_WORLD_H_
