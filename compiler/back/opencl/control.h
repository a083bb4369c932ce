// SPDX-License-Identifier: Apache-2.0
// Barriers and traps: synchronization of instances, and the ways in which they end. Internal to this folder.
#ifndef HPVMD_COMPILER_BACK_OPENCL_CONTROL_H_
#define HPVMD_COMPILER_BACK_OPENCL_CONTROL_H_

#include <map>
#include <string>
#include <vector>

#include "compiler/back/gpu/trap_route.h"
#include "compiler/back/opencl/text.h"

namespace hpvm::opencl {

// Reconvergence writes barriers, and the points where trapped instances rejoin their group (gpu/trap_route.h);
// emit_steps.cc.
class Reconvergence {
 public:
  Reconvergence(Variant& variant, Text& text);

  bool IsMet(OpId id) const { return meet_used_[id.index]; }  // Traps go there.
  void MeetGroup(OpId id);
  // Precedes an operation: defines the values that instances trapping there pass on.
  void DefineKept(OpId first);
  void WriteBarrier(OpId id);
  bool by_steps() const { return by_steps_; }
  bool needs_reconvergence() const { return needs_reconvergence_; }
  bool HasBarrier(OpId id) const { return has_barrier_[id.index]; }
  void BeginLoopStep(OpId loop);
  // Continues a loop that is a step; returns false when the loop is none.
  bool ContinueByStep(OpId loop);
  // Returns the code of a trap after its record.
  std::string ExitOf(OpId id);
  void Return();
  void WriteVariables();
  void WriteStart();  // For each instance, `at` of `size`.
  std::string StepsHead();
  std::string StepsEnd();

 private:
  void PlanSteps();
  uint32_t BeginStep();  // The code after it is a separate step; returns its number.
  void WaitForStep(uint32_t step);
  void WriteTest();  // After a barrier: returns if an instance of the group has trapped.

  Variant& v_;
  Text& text_;
  std::vector<bool> meet_used_;    // Indexed by OpId.
  gpu::TrapRoutes routes_;         // Empty when by_steps_.
  std::vector<bool> fences_;       // Indexed by OpId; gpu::FindBufferFences.
  bool by_steps_ = false;          // As emit_steps.cc says.
  std::vector<bool> has_barrier_;  // Indexed by OpId, if by_steps_; includes constructs that contain a barrier.
  std::map<uint32_t, uint32_t> loop_step_;  // Keyed by OpId of loops with barriers: the step that continues them.
  uint32_t steps_ = 0;
  bool ends_early_ = false, needs_reconvergence_ = false;
};

// Traps writes the checks and records of traps.
class Traps {
 public:
  Traps(Variant& variant, Text& text, Facts& facts, Reconvergence& reconvergence)
      : v_(variant), text_(text), facts_(facts), reconvergence_(reconvergence) {}

  // Ends control here if `condition` holds; an empty condition always holds.
  void Trap(OpId id, const std::string& condition, ir::TrapCode code, const std::string& address = "0u",
            uint32_t bytes = 0);
  // `code`: an expression for the record's code.
  void TrapWith(OpId id, const std::string& condition, const std::string& code, const std::string& address);
  bool can_trap() const { return can_trap_; }

 private:
  std::string TrappingId(OpId id, uint32_t dimension);

  Variant& v_;
  Text& text_;
  Facts& facts_;
  Reconvergence& reconvergence_;
  bool can_trap_ = false;
};

}  // namespace hpvm::opencl

#endif  // HPVMD_COMPILER_BACK_OPENCL_CONTROL_H_
