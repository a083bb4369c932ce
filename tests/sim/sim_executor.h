// SPDX-License-Identifier: Apache-2.0
// Executors of the simulation: they take simulated time, read their inputs, compute the graph's result, and fail in
// every way that a link allows. The rules are ExecutorLink's: callbacks are called once each, later.
#ifndef HPVMD_TESTS_SIM_SIM_EXECUTOR_H_
#define HPVMD_TESTS_SIM_SIM_EXECUTOR_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "server/executors/executor_spawner.h"
#include "tests/sim/attempts.h"
#include "tests/sim/context.h"

namespace hpvm::server::sim {

class SimExecutor;

// Spawner of one daemon.
class SimSpawner final : public ExecutorSpawner {
 public:
  SimSpawner(Context& context, Attempts& attempts, SeededRng& rng)
      : context_(context), attempts_(attempts), rng_(rng), incarnation_(context.incarnation) {}
  StatusOr<std::unique_ptr<supervisor::ExecutorProcess>> Spawn(
      const SpawnRequest& request, std::function<void(const supervisor::ExecutorReady&)> on_ready,
      std::function<void(const Status&)> on_end) override;
  // Never called by the core.
  StatusOr<internal::Ready> Probe(const std::string& backend) override;
  StatusOr<SandboxFacts> ProbeSandbox(const std::vector<std::string>& backends, bool without_device_nodes) override;

  // From now on killed executors end at once: the daemon is going down, and no later event will come. Also applies to
  // executors that were told to end and have not yet, because the daemon waits for them and time stands still.
  void EndAtOnce();
  bool ends_at_once() const { return ends_at_once_; }
  // The daemon stops in order: executors that it kills from now on are not faults.
  void OnDrain() { draining_ = true; }
  bool draining() const { return draining_; }
  size_t alive() const;

  Context& context() { return context_; }
  Attempts& attempts() { return attempts_; }
  SeededRng& rng() { return rng_; }
  uint64_t incarnation() const { return incarnation_; }

 private:
  Context& context_;
  Attempts& attempts_;
  SeededRng& rng_;
  const uint64_t incarnation_;
  bool ends_at_once_ = false, draining_ = false;
  uint64_t next_number_ = 1;
  std::vector<std::weak_ptr<SimExecutor>> executors_;
};

// Returns the devices that discovery finds in this world.
internal::Ready DevicesOf(const Plan& plan, const std::string& family);

}  // namespace hpvm::server::sim

#endif  // HPVMD_TESTS_SIM_SIM_EXECUTOR_H_
