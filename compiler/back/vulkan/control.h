// SPDX-License-Identifier: Apache-2.0
// A variant's control, and its traps, which are a part of it. Internal to this folder.
//
// Structured control. The IR's constructs are SPIR-V's where nothing leaves them from further inside: an `if` is a
// selection, a loop that is continued a loop, a block nothing at all. What is left from inside becomes a switch with
// nothing but a default, whose merge can be branched to from selections nested in it. A jump that SPIR-V does not allow
// (out of a loop and further, or out of two switches) names its target in a variable, the selector, and goes as far as
// it may; behind each construct crossed a test of the selector sends it on. The selector is 0 while nobody travels.
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

// What is to be known of the kernel's control before it is written.
class ControlPlan {
 public:
  // Refuses the variant if a driver's cuts of its loops could not be noticed.
  explicit ControlPlan(Variant& variant);

  bool IsLeftInside(ir::OpId id) const { return is_left_inside_[id.index]; }  // From a region that it does not own.
  bool IsContinued(ir::OpId id) const { return is_continued_[id.index]; }
  bool EndsKernel(ir::OpId id) const { return ends_kernel_[id.index]; }  // Leaving it is returning.
  bool HasLoops() const;
  ir::RegionId RegionOf(ir::OpId id) const { return region_of_[id.index]; }
  uint32_t PlaceOf(ir::OpId id) const { return place_in_region_[id.index]; }  // In its region.

 private:
  void RefuseLoopsThatCannotBeWatched();

  Variant& v_;
  // By OpId.
  std::vector<bool> is_left_inside_, is_continued_, ends_kernel_;
  std::vector<ir::RegionId> region_of_;
  std::vector<uint32_t> place_in_region_;
};

// Questions of instances about the launch.
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

// Takes who traps elsewhere than out of the kernel.
class TrapDetour {
 public:
  virtual ~TrapDetour() = default;
  // False: the trap just ends the kernel. True: the block has ended.
  virtual bool Leave(const ir::Op& op) = 0;
};

// A trap writes what it is into the work item's own variables and ends the kernel function, whose caller records it.
class Traps : private Room {
 public:
  Traps(Variant& variant, Values& values, Queries& queries) : Room(variant), values_(values), queries_(queries) {}

  void Declare();
  void SetDetour(TrapDetour* detour) { detour_ = detour; }  // Borrowed.
  // The address, if there is one, is computed where the trap is.
  void TrapIf(SpvId condition, ir::TrapCode code, const ir::Op& op, const MakeValue& address = nullptr,
              uint32_t bytes = 0);
  void TrapNow(ir::TrapCode code, const ir::Op& op, SpvId address = 0, uint32_t bytes = 0);
  // Ends the block. `code` is the record's word.
  void TrapWith(SpvId code, const ir::Op& op, SpvId address);
  bool can_trap() const { return can_trap_; }
  // Behind the kernel: records what it trapped with.
  void EmitRecordIfTrapped();

 private:
  void EmitRecord(SpvId code);

  Values& values_;
  Queries& queries_;
  TrapDetour* detour_ = nullptr;
  SpvId trap_code_ = 0, trap_source_ = 0, trap_function_ = 0, trap_address_ = 0;
  std::array<SpvId, 2> trap_place_{};  // Coarse modules: the place in the tile of the instance that trapped.
  bool can_trap_ = false;
};

// The constructs that are open, and how control leaves them.
class Jumps : private Room {
 public:
  struct Goal {
    size_t frame;
    bool is_continue;
  };

  Jumps(Variant& variant, const ControlPlan& control, Traps& traps) : Room(variant), control_(control), traps_(traps) {}

  void Declare();
  size_t OpenSwitch(ir::OpId op);  // Its frame.
  void OpenLoop(ir::OpId id);
  // Opens its first side; the label of the other one.
  SpvId OpenSelection(ir::OpId id, SpvId condition);
  void FallOut();   // To the innermost frame's merge.
  void GoAround();  // The innermost frame is a loop: its continuation and its edge back.
  // Pops the innermost frame and begins its merge. False if nothing arrives.
  bool CloseFrame();
  void JumpTo(Goal goal);
  // The switch or loop of an operation; never the selection of an `if`, which has one around it where it needs one.
  size_t FrameOf(ir::OpId op) const;

 private:
  struct Frame {
    enum class Kind : uint8_t { kSelection, kSwitch, kLoop } kind = Kind::kSelection;
    ir::OpId op{};  // Invalid: made for traps that are postponed.
    SpvId merge = 0, next = 0, header = 0;
    bool is_reached = false;                     // The merge.
    bool comes_with_name = false;                // The selector may name this construct when its merge is reached,
    bool goes_on_with_name = false;              // or its continuation.
    std::set<std::pair<size_t, bool>> crossing;  // Targets of who passes the merge: frame, whether to continue.
    uint32_t name = 0;
  };
  void Push(Frame frame);
  // The frame whose merge comes next on the way, or the goal itself.
  Goal NextHop(Goal goal) const;
  // Notes that somebody passes there on the way to `goal`; the label to branch to.
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

// Kernels with barriers, where who traps goes on with its group from a place further on (emit_postpone.cc,
// gpu/trap_route.h).
class Meetings : public TrapDetour, private Room {
 public:
  Meetings(Variant& variant, Values& values, Jumps& jumps);

  void Declare();
  bool postpones() const { return postpones_; }
  // In front of the operation at `index`: closes the construct that traps leave for this place, and opens those that
  // they leave for one further on.
  void Pass(std::span<const ir::OpId> ops, size_t index);
  // Control does not reach what comes behind operation `from`, but by traps on the way to their place.
  void SkipRest(std::span<const ir::OpId> ops, size_t from);
  void EmitBarrier(ir::OpId id);
  void EmitGroupBarrier();
  // `word`: the type of a pointer into group memory; `index`: the work item's.
  void ClearFlags(SpvId word, SpvId index);
  bool Leave(const ir::Op& op) override;

 private:
  struct Meeting {
    bool is_open = false;
    size_t frame = 0;
    std::vector<SpvId> variables;  // Of gpu::TrapPlace::kept.
  };
  void OpenMeeting(ir::OpId first);
  // In front of a place: closes its construct, and if all wait there, waits, and returns if one of the group has
  // trapped.
  void MeetAt(ir::OpId place);
  void EmitFlagTest();
  void EmitControlBarrier(bool orders_group, bool orders_buffers);

  Values& values_;
  Jumps& jumps_;
  bool postpones_ = false;
  gpu::TrapRoutes routes_;
  std::vector<bool> fences_;              // By OpId; gpu::FindBufferFences.
  std::map<uint32_t, Meeting> meetings_;  // By the place.
  SpvId trap_flags_ = 0, parity_ = 0;
};

}  // namespace hpvm::vulkan

#endif  // HPVMD_COMPILER_BACK_VULKAN_CONTROL_H_
