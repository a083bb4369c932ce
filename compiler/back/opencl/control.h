// SPDX-License-Identifier: Apache-2.0
// Where instances wait for each other, and how they end. Internal to this folder.
#ifndef HPVMD_COMPILER_BACK_OPENCL_CONTROL_H_
#define HPVMD_COMPILER_BACK_OPENCL_CONTROL_H_

#include <map>
#include <string>
#include <vector>

#include "compiler/back/gpu/trap_route.h"
#include "compiler/back/opencl/text.h"

namespace hpvm::opencl {

// Barriers, and where who traps goes on with its group (gpu/trap_route.h); emit_steps.cc.
class Meetings {
 public:
  Meetings(Variant& variant, Text& text);

  bool IsMet(OpId id) const { return meet_used_[id.index]; }  // Traps go there.
  void MeetGroup(OpId id);
  // In front of an operation: defines what whoever traps there hands on.
  void DefineKept(OpId first);
  void WriteBarrier(OpId id);
  bool by_steps() const { return by_steps_; }
  bool needs_meeting() const { return needs_meeting_; }
  bool HasBarrier(OpId id) const { return has_barrier_[id.index]; }
  void BeginLoopStep(OpId loop);
  // Goes around a loop that is a step; false: it is none.
  bool ContinueByStep(OpId loop);
  // The code of a trap after its record.
  std::string ExitOf(OpId id);
  void Return();
  void WriteVariables();
  void WriteStart();  // By each instance, `at` of `size`.
  std::string StepsHead();
  std::string StepsEnd();

 private:
  void PlanSteps();
  uint32_t BeginStep();  // What stands behind it is a step of its own; which.
  void WaitForStep(uint32_t step);
  void WriteTest();  // Behind a barrier: returns if one of the group has trapped.

  Variant& v_;
  Text& text_;
  std::vector<bool> meet_used_;             // By OpId.
  gpu::TrapRoutes routes_;                  // Empty by steps.
  std::vector<bool> fences_;                // By OpId; gpu::FindBufferFences.
  bool by_steps_ = false;                   // As emit_steps.cc says.
  std::vector<bool> has_barrier_;           // By OpId, while by_steps_; constructs with one in them, too.
  std::map<uint32_t, uint32_t> loop_step_;  // Loops with barriers, by OpId: where they go around.
  uint32_t steps_ = 0;
  bool ends_early_ = false, needs_meeting_ = false;
};

class Traps {
 public:
  Traps(Variant& variant, Text& text, Facts& facts, Meetings& meetings)
      : v_(variant), text_(text), facts_(facts), meetings_(meetings) {}

  // Control ends here if `condition` holds; empty: always.
  void Trap(OpId id, const std::string& condition, ir::TrapCode code, const std::string& address = "0u",
            uint32_t bytes = 0);
  // `code`: the record's, an expression.
  void TrapWith(OpId id, const std::string& condition, const std::string& code, const std::string& address);
  bool can_trap() const { return can_trap_; }

 private:
  std::string TrappingId(OpId id, uint32_t dimension);

  Variant& v_;
  Text& text_;
  Facts& facts_;
  Meetings& meetings_;
  bool can_trap_ = false;
};

}  // namespace hpvm::opencl

#endif  // HPVMD_COMPILER_BACK_OPENCL_CONTROL_H_
