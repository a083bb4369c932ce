// SPDX-License-Identifier: Apache-2.0
// A variant's control flow, and its traps, which are part of it. Internal to this folder.
//
// Structured control. The IR's constructs become SPIR-V's where no inner jump leaves them: an `if` is a selection, a
// loop with a continue is a loop, a block is nothing. A construct that an inner jump leaves becomes a switch with only
// a default, whose merge selections nested in it may branch to. A jump that SPIR-V does not allow (out of a loop and
// further, or out of two switches) stores the number of its target in a variable, the selector, and branches as far as
// allowed; after each crossed construct a test of the selector forwards it. The selector is 0 while no such jump is
// under way.
#ifndef HPVMD_COMPILER_BACK_VULKAN_CONTROL_H_
#define HPVMD_COMPILER_BACK_VULKAN_CONTROL_H_

#include <array>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compiler/back/gpu/trap_route.h"
#include "compiler/back/vulkan/variant.h"

namespace hpvm::vulkan {

// ControlPlan analyses the kernel's control flow before code is emitted.
class ControlPlan {
 public:
  // Refuses the variant if the driver's cuts of its loops could not be detected.
  explicit ControlPlan(Variant& variant);

  bool IsLeftInside(ir::OpId id) const { return is_left_inside_[id.index]; }  // A nested region leaves it.
  bool IsContinued(ir::OpId id) const { return is_continued_[id.index]; }
  bool EndsKernel(ir::OpId id) const { return ends_kernel_[id.index]; }  // Leaving it is returning.
  bool HasLoops() const;
  ir::RegionId RegionOf(ir::OpId id) const { return region_of_[id.index]; }
  uint32_t PlaceOf(ir::OpId id) const { return place_in_region_[id.index]; }  // Index in its region.

 private:
  void RefuseLoopsThatCannotBeWatched();

  Variant& v_;
  // Indexed by OpId.
  std::vector<bool> is_left_inside_, is_continued_, ends_kernel_;
  std::vector<ir::RegionId> region_of_;
  std::vector<uint32_t> place_in_region_;
};

// Queries emits the values of launch queries.
class Queries : private Room {
 public:
  Queries(Variant& variant, Functions& functions, Values& values)
      : Room(variant), functions_(functions), values_(values) {}

  SpvId EmitQuery(const ir::Op& op);
  SpvId ParamValue(uint32_t k);
  SpvId InstanceId(uint32_t d);

 private:
  SpvId QueryIn(ir::Opcode code, uint32_t d);
  SpvId MakeQuery(ir::Opcode code, uint32_t d);

  Functions& functions_;
  Values& values_;
};

// TrapDetour redirects trapped instances to a rejoin point inside the kernel.
class TrapDetour {
 public:
  virtual ~TrapDetour() = default;
  // Returns false when the trap just ends the kernel, true when it has ended the block with a jump.
  virtual bool Leave(const ir::Op& op) = 0;
};

// Traps emits traps. A trap writes its record into the work item's variables and ends the kernel function; its caller
// records it.
class Traps : private Room {
 public:
  Traps(Variant& variant, Values& values, Queries& queries) : Room(variant), values_(values), queries_(queries) {}

  void Declare();
  void SetDetour(TrapDetour* detour) { detour_ = detour; }  // Borrowed.
  // `address`, if not null, is computed at the trap.
  void TrapIf(SpvId condition, ir::TrapCode code, const ir::Op& op, const MakeValue& address = nullptr,
              uint32_t bytes = 0);
  void TrapNow(ir::TrapCode code, const ir::Op& op, SpvId address = 0, uint32_t bytes = 0);
  // Ends the block. `code` is the record's word.
  void TrapWith(SpvId code, const ir::Op& op, SpvId address);
  bool can_trap() const { return can_trap_; }
  // After the kernel: records the trap, if there was one.
  void EmitRecordIfTrapped();

 private:
  void EmitRecord(SpvId code);

  Values& values_;
  Queries& queries_;
  TrapDetour* detour_ = nullptr;
  SpvId trap_code_ = 0, trap_source_ = 0, trap_function_ = 0, trap_address_ = 0;
  std::array<SpvId, 2> trap_lane_{};  // Coarse modules: lane in the tile of the trapped instance.
  bool can_trap_ = false;
};

// Jumps holds the open constructs and emits jumps out of them.
class Jumps : private Room {
 public:
  struct Goal {
    size_t frame;
    bool is_continue;
  };

  Jumps(Variant& variant, const ControlPlan& control, Traps& traps) : Room(variant), control_(control), traps_(traps) {}

  void Declare();
  size_t OpenSwitch(ir::OpId op);  // Returns its frame.
  void OpenLoop(ir::OpId id);
  // Opens its first side; returns the label of the other one.
  SpvId OpenSelection(ir::OpId id, SpvId condition);
  void FallOut();   // To the innermost frame's merge.
  void GoAround();  // The innermost frame is a loop: its continue target and back edge.
  // Pops the innermost frame and begins its merge. Returns false if no control arrives there.
  bool CloseFrame();
  void JumpTo(Goal goal);
  // Returns the switch or loop of an operation; never the selection of an `if`, which has a switch around it if
  // needed.
  size_t FrameOf(ir::OpId op) const;

 private:
  struct Frame {
    enum class Kind : uint8_t { kSelection, kSwitch, kLoop } kind = Kind::kSelection;
    ir::OpId op{};  // Invalid: made for traps that are postponed.
    SpvId merge = 0, next = 0, header = 0;
    bool is_reached = false;                     // A direct branch reaches the merge.
    bool comes_with_name = false;                // The selector may name this construct when its merge is reached,
    bool goes_on_with_name = false;              // or its continue target.
    std::set<std::pair<size_t, bool>> crossing;  // Targets of jumps that cross the merge: frame, whether to continue.
    uint32_t name = 0;
  };
  void Push(Frame frame);
  // Returns the frame whose merge comes next on the way to the goal, or the goal itself.
  Goal NextHop(Goal goal) const;
  // Records that a jump to `goal` passes there; returns the label to branch to.
  SpvId Arrive(Goal hop, Goal goal, bool has_name);
  void MarkLeft(Goal hop);
  SpvId LeftSlot();
  bool SendOn(const Frame& frame);
  uint32_t NameOf(Goal goal) const { return 2 * frames_[goal.frame].name + (goal.is_continue ? 1 : 0); }
  SpvId Selector();

  const ControlPlan& control_;
  Traps& traps_;
  std::vector<Frame> frames_;
  uint32_t next_name_ = 1;
  SpvId selector_ = 0, left_loops_ = 0;
};

// Reconvergence emits barriers, and the points where trapped instances rejoin their group (emit_postpone.cc,
// gpu/trap_route.h).
class Reconvergence : public TrapDetour, private Room {
 public:
  Reconvergence(Variant& variant, Values& values, Jumps& jumps);

  void Declare();
  bool postpones() const { return postpones_; }
  // Precedes the operation at `index`: closes the construct that traps leave for this rejoin point, and opens those
  // that they leave for later rejoin points.
  void Pass(std::span<const ir::OpId> ops, size_t index);
  // Control does not reach the operations after `from`, except from traps on their way to a rejoin point.
  void SkipRest(std::span<const ir::OpId> ops, size_t from);
  void EmitBarrier(ir::OpId id);
  void EmitGroupBarrier();
  // `word`: the type of a pointer into group memory; `index`: the work item's index.
  void ClearFlags(SpvId word, SpvId index);
  bool Leave(const ir::Op& op) override;

 private:
  struct ReconvergencePoint {
    bool is_open = false;
    size_t frame = 0;
    std::vector<SpvId> variables;  // For gpu::RejoinPoint::kept.
  };
  void OpenReconvergence(ir::OpId first);
  // Precedes a rejoin point: closes its construct. If all wait there, emits the barrier and the test that returns if an
  // instance of the group has trapped.
  void MeetAt(ir::OpId rejoin);
  void EmitFlagTest();
  void EmitControlBarrier(bool orders_group, bool orders_buffers);

  Values& values_;
  Jumps& jumps_;
  bool postpones_ = false;
  gpu::TrapRoutes routes_;
  std::vector<bool> fences_;                              // Indexed by OpId; gpu::FindBufferFences.
  std::map<uint32_t, ReconvergencePoint> reconvergence_;  // Keyed by the rejoin point.
  SpvId trap_flags_ = 0, parity_ = 0;
};

}  // namespace hpvm::vulkan

#endif  // HPVMD_COMPILER_BACK_VULKAN_CONTROL_H_
