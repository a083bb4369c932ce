// SPDX-License-Identifier: Apache-2.0
// The emitter's inside, which only this folder's files include.
//
// ModuleEmitter holds what variants share: the writer, the buffers' views, the push constants. KernelEmitter writes one
// variant: a function `kernel` that is the IR's entry, and an entry point around it that prepares group memory, calls
// it, and records its trap.
//
// Structured control. The IR's constructs are SPIR-V's where nothing leaves them from further inside: an `if` is a
// selection, a loop that is continued a loop, a block nothing at all. What is left from inside becomes a switch with
// nothing but a default, whose merge can be branched to from selections nested in it. A jump that SPIR-V does not allow
// (out of a loop and further, or out of two switches) names its target in a variable, the selector, and goes as far as
// it may; behind each construct crossed a test of the selector sends it on. The selector is 0 while nobody travels.
#ifndef HPVMD_COMPILER_BACK_VULKAN_EMITTER_H_
#define HPVMD_COMPILER_BACK_VULKAN_EMITTER_H_

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/api/gpu_code.h"
#include "compiler/api/gpu_target.h"
#include "compiler/back/gpu/gpu_plan.h"
#include "compiler/back/vulkan/code.h"
#include "compiler/back/vulkan/spirv_writer.h"
#include "compiler/ir/ir.h"
#include "compiler/ir/loops_cut.h"
#include "compiler/pass/index_loads.h"
#include "compiler/pass/tile/coarsen.h"

namespace hpvm::vulkan {

// How a buffer is looked at. Each view is a variable of its own at the same binding.
enum class View : uint8_t { k8, k16, k32, k32x2, k32x4, k64 };

class ModuleEmitter {
 public:
  ModuleEmitter(const ir::Module& module, const GpuTarget& target);

  const ir::Module& source;
  const GpuTarget& target;
  SpirvWriter w;
  Code c;

  SpvId TypeOf(ir::Type type);
  SpvId Buffer(uint32_t param, View view);
  SpvId TrapRecords();
  SpvId GroupExtent(uint32_t d) { return group_extent_[d]; }  // Specialisation constants.
  SpvId BuiltIn(spv::BuiltIn which);                          // A uvec3, or a u32 for an index.
  // A pointer to an argument in the push constants or facts, of U32 or uvec2. Instructions go to the open function.
  SpvId ArgumentPointer(GpuArgument::Kind kind, uint32_t index, uint8_t bytes);
  // The variable that holds the arguments; 0 when there is none.
  SpvId arguments_variable() const { return arguments_variable_; }

  // Writes what was only known at the end. `variant` receives what all variants have in common.
  std::vector<uint32_t> Finish(GpuVariant& variant);
  static constexpr uint32_t kGroupConstant = 0;  // Specialisation constants 0, 1 and 2 are the group's extents.

 private:
  struct Place {
    uint32_t member = 0, offset = 0;
    uint8_t bytes = 4;
  };
  SpvId Block(View view, bool is_writable);
  uint32_t TrapBinding() const { return static_cast<uint32_t>(source.params.size()); }

  std::array<SpvId, 3> group_extent_{};
  std::map<std::pair<uint32_t, View>, SpvId> buffers_;
  std::map<View, SpvId> blocks_;
  std::map<spv::BuiltIn, SpvId> built_ins_;
  std::map<std::pair<GpuArgument::Kind, uint32_t>, Place> places_;
  std::vector<GpuArgument> arguments_;  // Values only.
  std::vector<uint32_t> member_bytes_;
  uint32_t argument_bytes_ = 0;
  SpvId arguments_variable_ = 0, arguments_block_ = 0;
  SpvId trap_records_ = 0;
  bool in_facts_ = false;
};

// One execution's own memory, or constants, or group memory: an array of words at byte address `begin`.
struct WordArray {
  SpvId variable = 0;
  spv::StorageClass storage = spv::StorageClassPrivate;
  uint64_t begin = 0, end = 0;
  bool is_writable = false;
};

// Where an access goes once its range is known. `address` counts bytes from the beginning of what is bound.
struct Spot {
  uint32_t param = 0;                // Unless `words`.
  const WordArray* words = nullptr;  // Module memory, state, group memory.
  SpvId address = 0;                 // u32.
  uint32_t alignment = 0;            // log2, of the address.
  bool is_once = false;              // What is loaded must not be loaded again (pass/index_loads.h).
};

struct VariantOptions {
  bool is_checked = true;
  bool audits_proofs = false;  // GpuOptions::audits_proofs.
  bool fast_math = false;
  bool needs_alignment = false;
  std::array<uint32_t, 3> tile{1, 1, 1};
  const std::vector<bool>* is_proven = nullptr;  // By OpId; null: nothing is.
  const CoarseModule* coarse = nullptr;          // What the module is a coarse form of; borrowed.
};

class KernelEmitter {
 public:
  KernelEmitter(ModuleEmitter& m, const ir::Module& module, const gpu::GpuPlan& plan, const VariantOptions& options);

  // Writes the variant's functions and its entry point. `can_trap` says whether it may. kUnimplemented names what
  // cannot be written.
  Status Emit(const std::string& entry, bool* can_trap);

 private:
  // emit_entry.cc.
  void DeclareMemory();
  void EmitWrapper(const std::string& entry, SpvId kernel);
  void FloatModes(SpvId entry);
  void EmitGroupStart();
  void EmitCall(SpvId kernel);
  void EmitRecord(SpvId code);
  SpvId OwnArray(const gpu::OwnMemory& memory);
  void EmitOwnStart(const gpu::OwnMemory& memory, const WordArray& array);
  SpvId Argument(GpuArgument::Kind kind, uint32_t index, uint8_t bytes);  // Loaded where it is needed.
  SpvId Argument32(GpuArgument::Kind kind, uint32_t index) { return Argument(kind, index, 4); }
  SpvId BuiltInAt(spv::BuiltIn which, uint32_t d);
  SpvId InstanceId(uint32_t d);
  SpvId QueryIn(ir::Opcode code, uint32_t d);
  SpvId MakeQuery(ir::Opcode code, uint32_t d);
  SpvId EmitQuery(const ir::Op& op);
  void EmitControlBarrier();
  SpvId ParamValue(uint32_t k);
  SpvId ParamBase(uint32_t k);  // The low half of the true address.
  void Use(SpvId variable) { interface_.insert(variable); }
  SpvId BufferView(uint32_t param, View view);

  // emit_control.cc.
  struct Frame {
    enum class Kind : uint8_t { kSelection, kSwitch, kLoop } kind = Kind::kSelection;
    ir::OpId op{};  // Invalid: made for traps that are postponed.
    SpvId merge = 0, next = 0;
    bool is_reached = false;                     // The merge.
    bool comes_with_name = false;                // The selector may name this construct when its merge is reached,
    bool goes_on_with_name = false;              // or its continuation.
    std::set<std::pair<size_t, bool>> crossing;  // Targets of who passes the merge: frame, whether to continue.
    uint32_t name = 0;
  };
  struct Goal {
    size_t frame;
    bool is_continue;
  };
  bool EmitRegion(ir::RegionId region);
  bool SkipRest(std::span<const ir::OpId> ops, size_t from);
  bool EmitOp(ir::OpId id);  // False: control does not come back.
  void EmitGlobal(const ir::Op& op);
  void EmitLocalAlloc(ir::OpId id);
  bool EmitBlock(ir::OpId id);
  bool EmitLoop(ir::OpId id);
  void EmitBackEdge(SpvId header);
  bool EmitIf(ir::OpId id);
  bool EmitTerminator(ir::OpId id);
  void EmitLeaveTable(const ir::Op& op);
  // True when it is the fall out of a block that is no construct, so that control goes on behind it.
  bool EmitJump(const ir::Target& target, std::span<const ir::ValueId> values, ir::RegionId from);
  void OpenSwitch(ir::OpId op);
  void FallOut();  // To the innermost frame's merge.
  // Pops the innermost frame and begins its merge. False if nothing arrives.
  bool CloseFrame();
  void JumpTo(Goal goal);
  // The frame whose merge comes next on the way, or the goal itself.
  Goal NextHop(Goal goal) const;
  // Notes that somebody passes there on the way to `goal`; the label to branch to.
  SpvId Arrive(Goal hop, Goal goal, bool has_name);
  void MarkLeft(Goal hop);
  SpvId LeftSlot();
  bool SendOn(const Frame& frame);
  uint32_t NameOf(Goal goal) const { return 2 * frames_[goal.frame].name + (goal.is_continue ? 1 : 0); }
  SpvId Selector();
  size_t FrameOf(ir::OpId op) const;
  // Variables for values that merge, made when first asked for.
  std::span<const SpvId> Variables(ir::ValueId first, uint32_t count);
  void StoreAll(ir::ValueId first, uint32_t count, std::span<const ir::ValueId> values);
  void LoadAll(ir::ValueId first, uint32_t count);
  void Bind(ir::ValueId first, std::span<const ir::ValueId> values);

  // emit_postpone.cc: kernels with barriers, where who traps meets its group at the next anchor (gpu/trap_route.h).
  void PlanMeetings();
  // Opens, in front of the operation at `index`, the constructs that traps leave for an anchor further on.
  void OpenMeeting(std::span<const ir::OpId> ops, size_t index);
  // In front of an anchor: closes its construct, waits, and returns if one of the group has trapped.
  void MeetAt(std::span<const ir::OpId> ops, size_t index);
  bool IsUsedBehind(ir::ValueId value, ir::RegionId region, size_t index) const;
  void EmitFlagTest();
  void EmitBarrier(ir::OpId id);

  // emit_trap.cc. The address, if there is one, is computed where the trap is.
  using MakeValue = std::function<SpvId()>;
  void TrapIf(SpvId condition, ir::TrapCode code, const ir::Op& op, const MakeValue& address = nullptr,
              uint32_t bytes = 0);
  void TrapNow(ir::TrapCode code, const ir::Op& op, SpvId address = 0, uint32_t bytes = 0);
  // Ends the block. `code` is the record's word.
  void TrapWith(SpvId code, const ir::Op& op, SpvId address);

  // emit_integer.cc, emit_float.cc, emit_convert.cc.
  SpvId EmitArithmetic(const ir::Op& op);
  SpvId EmitIntUnary(const ir::Op& op, SpvId a);
  SpvId EmitIntBinary(const ir::Op& op, SpvId a, SpvId b);
  SpvId EmitDivision(const ir::Op& op, SpvId a, SpvId b);
  SpvId EmitCompare(const ir::Op& op, SpvId a, SpvId b);
  SpvId EmitFloatUnary(const ir::Op& op, SpvId a);
  SpvId EmitFloatBinary(const ir::Op& op, SpvId a, SpvId b);
  SpvId EmitMinMax(const ir::Op& op, SpvId a, SpvId b);
  SpvId EmitDivideF32(SpvId a, SpvId b);
  SpvId EmitSqrtF32(SpvId a);
  SpvId Promote(SpvId a);
  SpvId OrderOf(SpvId a);
  SpvId CompareByBits(ir::Opcode code, SpvId a, SpvId b);
  // soft_float.cc: functions from bits to bits.
  struct SoftNumber {
    SpvId significand = 0, exponent = 0;
  };
  SpvId SoftDivide();
  SpvId SoftSqrt();
  SoftNumber Unpack(SpvId magnitude);
  SpvId Pack(SpvId quotient, SpvId exponent);
  SpvId EmitConversion(const ir::Op& op, SpvId a);
  SpvId EmitTruncation(const ir::Op& op, SpvId a);
  SpvId Exact(spv::Op op, SpvId type, std::initializer_list<uint32_t> operands);  // NoContraction.
  SpvId IsNan(ir::Type type, SpvId a);
  SpvId UnknownZero(ir::Type type);
  SpvId EmitConst(const ir::Op& op);
  SpvId Opaque(ir::Type type, SpvId value);  // An operand of a float operation, hidden from drivers that err.
  SpvId K(ir::Type type, uint64_t bits);
  SpvId BitsOf(ir::Type type, SpvId a);  // The integer of a float's width.
  SpvId FloatOf(ir::Type type, SpvId bits);
  SpvId WithSign(ir::Type type, SpvId value, SpvId sign);  // All as bits.
  SpvId Truth(SpvId condition) { return c.Select(c.U32(), condition, c.K(1), c.K(0)); }

  // emit_memory.cc: raw values are u32, uvec2 for 8 bytes, uvec4 for 16. Finding a spot checks the range; nothing: the
  // access always traps, and the block has ended.
  bool EmitMemory(ir::OpId id);
  bool EmitAccess(ir::OpId id);
  std::optional<Spot> FindInParam(ir::OpId id);
  std::optional<Spot> FindInGroup(ir::OpId id);
  SpvId GroupBase();
  SpvId RangeCount(uint32_t param, uint64_t reach);
  SpvId IsOutside(SpvId offset, SpvId count);
  // Computed once, at the kernel's beginning, while the kernel is being written; else in place.
  SpvId Hoisted(const std::string& name, const MakeValue& make);
  SpvId LoadRaw(const Spot& spot, uint32_t width);
  void StoreRaw(const Spot& spot, uint32_t width, SpvId raw);
  SpvId Element(const Spot& spot, View view, SpvId index);  // A pointer.
  void StoreElement(const Spot& spot, View view, SpvId index, SpvId value);
  // Of accesses that are no atomics, beside atomics that order them.
  bool IsVolatile(const Spot& spot) const;
  SpvId LoadElement(const Spot& spot, SpvId type, View view, SpvId index);
  SpvId LoadWord(const Spot& spot, SpvId index);
  void StoreWord(const Spot& spot, SpvId index, SpvId value);
  void StoreBits(const Spot& spot, SpvId index, SpvId mask, SpvId value);
  SpvId BitsInWord(const Spot& spot, uint32_t mask);
  Spot At(const Spot& spot, uint32_t bytes);
  SpvId LoadSmall(const Spot& spot, uint32_t width);
  void StoreSmall(const Spot& spot, uint32_t width, SpvId value);
  SpvId LoadUnaligned(const Spot& spot);
  void StoreUnaligned(const Spot& spot, SpvId value);
  SpvId FromRaw(const ir::Op& op, SpvId raw);
  SpvId ToRaw(const ir::Op& op, SpvId value);
  SpvId RawType(uint32_t width);
  bool HasView(const Spot& spot, View view) const;
  SpvId Narrow(SpvId address);  // u32 of an address.
  uint32_t AlignmentOf(const ir::Op& op) const;

  // emit_flat.cc: what is found by address. Functions, called where needed.
  enum class Memory : uint8_t { kFlat, kModule, kState };
  struct RangeSource {
    const WordArray* words = nullptr;
    uint32_t param = 0;
    bool is_group = false;
  };
  struct Range {
    SpvId begin = 0, bytes = 0;  // Of the address type.
    Spot spot;                   // Without an address.
    SpvId offset = 0;            // u32: of the range's first byte in what is bound.
    bool is_writable = false;
  };
  static Memory MemoryOf(gpu::Reach reach);
  SpvId AddressTypeOf(Memory memory);
  std::vector<RangeSource> SourcesOf(Memory memory) const;
  Range MakeRange(const RangeSource& from, Memory memory);
  SpvId Holds(const Range& range, SpvId type, SpvId address, SpvId bytes, SpvId* place);
  Spot SpotIn(const Range& range, SpvId type, SpvId place, uint32_t alignment);
  static std::string SearchName(const char* what, Memory memory, uint32_t width, uint32_t alignment);
  SpvId SearchLoad(Memory memory, uint32_t width, uint32_t alignment, bool is_once = false);
  SpvId SearchStore(Memory memory, uint32_t width, uint32_t alignment);
  SpvId SearchAtomic(Memory memory, const ir::Op& op);
  SpvId SearchByte(Memory memory);
  SpvId LoadByBytes(Memory memory, SpvId address, uint32_t width);
  SpvId FindFault(bool is_write);
  void TrapIfFault(const ir::Op& op, Memory memory, SpvId address);
  void TrapIfBulkFault(const ir::Op& op, SpvId function, SpvId address, SpvId bytes);
  bool EmitBulk(const ir::Op& op);
  const WordArray* SegmentArray(uint64_t index);
  SpvId Call(SpvId type, SpvId function, std::initializer_list<uint32_t> arguments);
  // The function of that name, written when first asked for. `body` ends with a return.
  SpvId Function(const std::string& name, SpvId result, std::vector<SpvId> params,
                 const std::function<void(std::span<const SpvId>)>& body);
  SpvId FaultVariable();
  SpvId AddressOf(const ir::Op& op);
  SpvId WordsType() { return module_.is_memory64 ? m_.TypeOf(ir::Type::kI64) : c.U32(); }

  // emit_atomic.cc.
  bool EmitAtomic(ir::OpId id);
  void TrapIfMisaligned(const ir::Op& op);
  SpvId AtomicAt(const Spot& spot, const ir::Op& op, std::span<const SpvId> operands);
  SpvId AtomicInOwn(const Spot& spot, const ir::Op& op, std::span<const SpvId> operands);
  SpvId AtomicNative(SpvId pointer, const ir::Op& op, std::span<const SpvId> operands, bool is_group);
  SpvId AtomicByExchange(SpvId pointer, SpvId shift, const ir::Op& op, std::span<const SpvId> operands, bool is_group);
  SpvId AtomicOperand(const ir::Op& op, SpvId value);
  SpvId AtomicResult(const ir::Op& op, SpvId old);
  SpvId Combine(const ir::Op& op, SpvId type, SpvId old, std::span<const SpvId> operands);

  SpvId ValueOf(ir::ValueId id) { return values_[id.index]; }
  SpvId Operand(const ir::Op& op, uint32_t i) { return values_[f_.operands_of(op)[i].index]; }
  SpvId ConditionOf(ir::ValueId id);
  void SetResult(const ir::Op& op, SpvId value) { values_[op.first_result.index] = value; }
  bool IsProven(ir::OpId id) const {
    return !options_.is_checked && options_.is_proven != nullptr && id.index < options_.is_proven->size() &&
           (*options_.is_proven)[id.index];
  }
  bool OmitsCheck(ir::OpId id) const { return IsProven(id) && !options_.audits_proofs; }
  // What an access that misses its buffer or group memory traps with.
  ir::TrapCode MissCode(ir::OpId id) const {
    return IsProven(id) ? ir::TrapCode::kWrongProof : ir::TrapCode::kOutOfBounds;
  }
  bool CanTrap(ir::OpId id) const;
  void Refuse(const std::string& reason);  // The first reason counts.

  ModuleEmitter& m_;
  SpirvWriter& w;
  Code& c;
  const ir::Module& module_;
  const ir::Function& f_;
  const gpu::GpuPlan& plan_;
  const VariantOptions options_;
  Status status_;

  SpirvFunction kernel_, prologue_;
  bool hoists_ = false;
  std::map<uint64_t, WordArray> segments_;
  std::vector<SpvId> values_;                                                     // By ValueId.
  const std::vector<bool> index_loads_ = FindIndexLoads(module_, module_.entry);  // By ValueId.
  std::vector<SpvId> conditions_;                     // By ValueId: the bool of a comparison's result; 0: none.
  std::map<uint32_t, std::vector<SpvId>> variables_;  // By the first value: of results and parameters.
  std::map<uint64_t, SpvId> globals_;                 // Mutable globals.
  std::vector<Frame> frames_;
  uint32_t next_name_ = 1;
  SpvId selector_ = 0;
  std::set<SpvId> interface_;
  std::map<std::string, SpvId> functions_;
  std::map<std::string, SpvId> hoisted_;

  std::vector<WordArray> module_memory_, state_;
  std::optional<WordArray> group_;
  SpvId trap_code_ = 0, trap_source_ = 0, trap_function_ = 0, trap_address_ = 0;
  std::array<SpvId, 2> trap_place_{};  // Coarse modules: the place in the tile of the instance that trapped.
  SpvId fault_ = 0;
  bool can_trap_ = false;

  // What the structure of control needs, by OpId; control_plan.cc.
  std::vector<bool> is_left_inside_;  // Left from a region that it does not own.
  std::vector<bool> is_continued_;
  std::vector<bool> ends_kernel_;  // Leaving it is returning.
  std::vector<ir::RegionId> region_of_;
  std::vector<uint32_t> place_in_region_;
  void PlanControl();
  void RefuseLoopsThatCannotBeWatched();

  // llvmpipe is the target's driver (ir/loops_cut.h). A loop that is left writes its name into a word of group memory,
  // through which no compiler sees; whoever does not find it behind the loop traps with kLoopsCut. The vector that
  // reaches beyond a group's end runs with lanes that are no instances, but whose loops count: they skip the kernel.
  bool cuts_loops_ = false;
  // Lavapipe takes any memory barrier, an atomic operation's own too, for one at which the vectors of a group wait for
  // each other, and drops the others when one of them ends. There atomics are relaxed: they are LLVM's strongest all
  // the same, and what they order is volatile, so that Mesa's passes keep it in its place.
  bool has_no_fences_ = false;
  SpvId left_loops_ = 0;

  // Postponed traps.
  struct Meeting {
    ir::OpId first;  // In the anchor's region: the first operation that has a trap going there.
    bool is_open = false;
    size_t frame = 0;
  };
  bool postpones_ = false;
  std::vector<ir::OpId> routes_;              // By OpId; gpu::FindTrapRoutes.
  std::map<uint32_t, Meeting> meetings_;      // By the anchor.
  std::vector<std::vector<ir::OpId>> users_;  // By ValueId.
  SpvId trap_flags_ = 0, parity_ = 0;
};

}  // namespace hpvm::vulkan

#endif  // HPVMD_COMPILER_BACK_VULKAN_EMITTER_H_
