// SPDX-License-Identifier: Apache-2.0
// Handles the loss of a device during a run: the graph continues without the device. Keeps the results of the
// interrupted repetition that are still in host memory, and plans the remainder.
#ifndef HPVMD_ENGINE_RUN_RECOVER_H_
#define HPVMD_ENGINE_RUN_RECOVER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/bindings.h"
#include "engine/plan.h"
#include "engine/prepared_graph.h"
#include "engine/run/run_stage.h"
#include "scheduler/placement/remainder.h"

namespace hpvm::engine {

// Returns the device that caused a failure with kUnavailable, if a graph can continue without it.
std::optional<uint32_t> LostDevice(const PreparedGraph& graph, const Plan& plan, const StageFailure& failure);

class Recovery {
 public:
  // Call it after a failure in the body of `broken`, which carries nothing from repetition to repetition; `ports` are
  // its bindings. Copies the repetition's values that are in host memory, and plans the remainder. Without success
  // (there is nothing to keep, no plan for the remainder, or no room for copies within the graph's limit on host
  // memory) the repetition must run from its start; then plan() is null. Drops the broken plan and all others that
  // use the `lost` device. Returns, indexed by node of the broken plan, true when the node need not run again; empty
  // when all must run.
  std::vector<bool> Keep(PreparedGraph& graph, uint32_t lost, const Plan& broken,
                         std::span<const scheduler::SegmentState> states, const PortBindings& ports);
  // Call it when the remainder is done, or given up.
  void Clear();

  // Returns the plan for the remainder of one repetition; null when there is none.
  Plan* plan() const { return plan_.get(); }
  // Adds the plan's bindings besides the graph's own ports.
  void AddPorts(PortBindings* ports) const;

 private:
  bool HasRoom(const PreparedGraph& graph, const Plan& broken, const scheduler::Remainder& rest) const;
  bool Gather(const Plan& broken, const scheduler::Remainder& rest,
              const std::vector<std::vector<scheduler::SurvivingPiece>>& held, const PortBindings& ports);

  std::deque<HostMemory> memory_;  // Memory of the kept values.
  uint64_t bytes_ = 0;             // Size of `memory_`.
  std::deque<Binding> kept_;
  std::unique_ptr<Plan> plan_;
};

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_RUN_RECOVER_H_
