// SPDX-License-Identifier: Apache-2.0
// Writes a plan's segments: command lists from the steps of its residency, queues and points from its segments.
#ifndef HPVMD_ENGINE_PLAN_COMMANDS_H_
#define HPVMD_ENGINE_PLAN_COMMANDS_H_

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "backends/contract/device.h"
#include "engine/plan.h"
#include "engine/plan_memory.h"
#include "engine/prepared_graph.h"

namespace hpvm::engine {

class PlanWriter {
 public:
  // All arguments are borrowed; `plan` has its residency, and `memory` has allocated.
  PlanWriter(const PreparedGraph& prepared, const PlanMemory& memory, Plan& plan);

  void Write();

 private:
  void WriteStage(const scheduler::StepRange& range, PlanStage& stage);
  void WriteSegment(const scheduler::Segment& segment, uint32_t index, PlanStage& stage);
  void WriteLateExtents(const scheduler::Step& step, PlanSegment& segment);
  void WriteOrder(const scheduler::Segment& segment, CommandList& list) const;
  uint64_t FirstOf(scheduler::StorageId storage) const { return plan_.residency.storages[storage.index].first; }
  void FindIndices();
  void WriteStep(const scheduler::Step& step, CommandList& out);
  void WriteDispatch(uint32_t task, CommandList& out);
  void WriteExtents(uint32_t task, uint32_t device, DispatchCommand& dispatch) const;
  DispatchArgument BufferArgument(uint32_t task, uint32_t port) const;
  DispatchArgument ScalarArgument(uint32_t scalar);
  uint32_t QueueOf(uint32_t device, Lane lane);
  void CountBytes(const scheduler::Step& step, PlanStage& stage) const;
  std::string Describe(const PlanSegment& segment) const;

  const PreparedGraph& prepared_;
  const PlanMemory& memory_;
  Plan& plan_;
  std::vector<uint32_t> queue_of_lane_;  // Indexed by device * kLanes + lane; kNoQueue when there is none yet.
  std::vector<bool> has_indices_;    // Indexed by storage: true when launches on a device with a driver take offsets
                                     // from it.
  std::vector<PlanWait> point_of_;   // Indexed by the residency's segment: the point at which it is done.
  std::vector<uint64_t> signalled_;  // Indexed by queue, for this stage.
  std::map<std::pair<uint32_t, graph::ScalarType>, uint32_t> scalar_slots_;  // Keyed by port and type.
};

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_PLAN_COMMANDS_H_
