// SPDX-License-Identifier: Apache-2.0
// What a run does about a device that is lost under it: the graph goes on without that device. Of the repetition in
// which it happened, what is still in host memory is kept, and a plan made for the rest.
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

// The device to blame for a failure with kUnavailable, if a graph can go on without it.
std::optional<uint32_t> LostDevice(const PreparedGraph& graph, const Plan& plan, const StageFailure& failure);

class Recovery {
 public:
  // After a failure in the body of `plan`, which carries nothing from repetition to repetition; `ports` are what it was
  // given. Copies what host memory holds of the repetition's values, and plans the rest. Without success (there is
  // nothing to keep, or no plan for it, or what the graph may hold in host memory has no room for copies) the
  // repetition is to run from its start; then `plan` is null. The broken plan is gone afterwards, as are all that use
  // the `lost` device. Returns by node of the broken plan whether it need not run again; empty: all do.
  std::vector<bool> Keep(PreparedGraph& graph, uint32_t lost, const Plan& broken,
                         std::span<const scheduler::SegmentState> states, const PortBindings& ports);
  // The rest is done, or given up.
  void Clear();

  // For the rest of one repetition; null: there is none.
  Plan* plan() const { return plan_.get(); }
  // Adds what the plan is given besides the graph's own ports.
  void AddPorts(PortBindings* ports) const;

 private:
  bool HasRoom(const PreparedGraph& graph, const Plan& broken, const scheduler::Remainder& rest) const;
  bool Gather(const Plan& broken, const scheduler::Remainder& rest,
              const std::vector<std::vector<scheduler::HeldPiece>>& held, const PortBindings& ports);

  std::deque<HostMemory> memory_;  // Of values that are kept.
  uint64_t bytes_ = 0;             // In `memory_`.
  std::deque<Binding> kept_;
  std::unique_ptr<Plan> plan_;
};

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_RUN_RECOVER_H_
