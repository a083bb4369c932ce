// SPDX-License-Identifier: Apache-2.0
// Kernel IR → LLVM IR for a whole tile of instances in lockstep (compiler/pass/gang/gang_plan.h says what a tile is).
// Internal to this folder.
//
// The entry becomes an internal function
//   i32 g(ptr context, ptr arguments, i64 x, i64 y, i64 z, i64 count, p...)
// that runs the instances (x + i, y + r, z), i < width, r < rows; a masked one, of one row, only those with i < count.
// It returns kGangDone; kGangMixed when an assumed condition differs within the tile (nothing has had an effect then,
// and the caller runs the tile with a masked function instead); or kGangTrapped + (r << 16 | i) for the instance that
// trapped, after hpvm.record.
//
// Masks. Control that lanes take separately is linearised: each masked construct keeps, in allocas that LLVM turns into
// values, the lanes that have left it and the results they brought. Code behind a point where lanes have left runs only
// if some lane is active, so that scalar work (a load of a uniform address) always has a lane that asked for it.
// Lanes that are off may hold poison: masks are combined with selects, never with plain `and`.
#ifndef HPVMD_COMPILER_BACK_LLVM_GANG_H_
#define HPVMD_COMPILER_BACK_LLVM_GANG_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "llvm/ADT/SmallVector.h"
#include "llvm/IR/Instructions.h"

#include "compiler/api/report.h"
#include "compiler/back/llvm/arith.h"
#include "compiler/back/llvm/emitter.h"
#include "compiler/pass/gang/gang_plan.h"

namespace hpvm::cpu {

inline constexpr uint32_t kGangDone = 0;
inline constexpr uint32_t kGangTrapped = 1;
inline constexpr uint32_t kGangMixed = 0xffffffff;
inline constexpr unsigned kGangCount = 5;  // The parameter `count`; the kernel's follow.

// Active lanes: empty for all of the tile, else <lanes x i1> for part row * columns + column, always for every part.
using Mask = llvm::SmallVector<llvm::Value*, 1>;

// A value for all instances of a tile, kept as its Layout says: scalars by row (or one), vectors by part (or by column
// when rows share it).
using Tiled = llvm::SmallVector<llvm::Value*, 1>;

struct GangFunction {
  GangShape shape;
  bool is_masked = false;    // Has a mask from the start: lanes i < count; one row, one column.
  bool is_unchecked = false;  // Accesses in `proven` are known to be inside, buffers to have at most 2^31 bytes.
};

class GangAccess;

class GangEmitter {
 public:
  // `proven` holds, by OpId, the accesses that ProveBounds covers; all false for a checked function. `report` may be
  // null. Everything is borrowed while the emitter lives.
  GangEmitter(ModuleEmitter& m, const GangPlan& plan, const GangFunction& kind, const std::vector<bool>& proven,
              KernelReport* report);
  StatusOr<llvm::Function*> Emit();

 private:
  friend class GangArith;
  // For what rows share: not one row's.
  static constexpr unsigned kAllRows = ~0u;
  using Slots = llvm::SmallVector<llvm::AllocaInst*, 1>;  // As a Tiled or a Mask.

  void EmitStackCheck();

  // --- gang.cc: values.
  unsigned rows() const { return kind_.shape.rows; }
  unsigned columns() const { return kind_.shape.columns; }
  unsigned lanes() const { return kind_.shape.lanes; }
  unsigned parts() const { return rows() * columns(); }
  const Layout& LayoutOf(ir::ValueId id) const { return plan_.layouts[id.index]; }
  bool IsScalar(ir::ValueId id) const { return LayoutOf(id).kind != Layout::Kind::kVarying; }
  // How many rows a value of that layout is kept for: 1 when they share it.
  unsigned RowsOf(const Layout& layout) const { return layout.by_row ? rows() : 1; }
  // The scalar of a uniform or linear value in a row (linear: of the row's lane 0 of column 0).
  llvm::Value* Scalar(ir::ValueId id, unsigned row);
  // Any value as <lanes x T>, splatted or spread out where it is kept as a scalar. `row` may be kAllRows for a value
  // that rows share.
  llvm::Value* Vector(ir::ValueId id, unsigned row, unsigned column);
  // Lane 0's scalar as the layout of lanes of that column: base + (column * lanes + i) * step.
  llvm::Value* Spread(llvm::Value* base, uint64_t step, unsigned column);
  llvm::Value* Splat(llvm::Value* scalar) { return b_.CreateVectorSplat(lanes(), scalar); }
  void Set(ir::ValueId id, Tiled value);
  llvm::Value* Operand(const ir::Op& op, uint32_t index, unsigned row);                   // Scalar.
  llvm::Value* Operand(const ir::Op& op, uint32_t index, unsigned row, unsigned column);  // Vector.
  ir::ValueId OperandId(const ir::Op& op, uint32_t index) const { return f_.operands[op.first_operand + index]; }
  llvm::Type* VectorOf(llvm::Type* scalar) const;
  llvm::Type* TypeOf(ir::ValueId id) const { return m_.TypeOf(f_.type_of(id)); }
  // Emits an operation of ArithEmitter's families in its result's layout.
  void EmitArith(const ir::Op& op);
  // An operation of those families on vectors of a part.
  llvm::Value* EmitVector(const ir::Op& op, ir::Type result, llvm::ArrayRef<llvm::Value*> operands, unsigned row,
                          unsigned column);
  Slots NewSlots(ir::ValueId like);  // Of the layout of `like`.
  llvm::BasicBlock* NewBlock(const char* name) { return llvm::BasicBlock::Create(m_.context(), name, function_); }
  llvm::Value* I32(uint32_t value) { return b_.getInt32(value); }
  llvm::Value* I64(uint64_t value) { return b_.getInt64(value); }

  // --- gang.cc: masks.
  // <lanes x i1>; all true when mask_ is empty. kAllRows: as SharedMask.
  llvm::Value* PartMask(unsigned row, unsigned column);
  // Some row's lanes, for what rows share.
  llvm::Value* SharedMask(unsigned column);
  // Null when mask_ is empty or the tile has one row: then a lane of the row is active here (see above). Else i1: in
  // this row one is. A scalar that belongs to a row alone (by_row) must not be loaded, divided by, ... where none is.
  llvm::Value* RowIsActive(unsigned row);
  llvm::Value* AnyOf(llvm::Value* lanes);                   // i1: some lane of a <lanes x i1>.
  llvm::Value* Any(const Mask& mask);                       // i1.
  llvm::Value* Both(llvm::Value* mask, llvm::Value* more);  // select(mask, more, false); mask may be null.
  llvm::Value* BitsOf(llvm::Value* lanes);                  // i64: bit i is lane i.
  // The number of the first lane that is set, i32; some lane when none is.
  llvm::Value* FirstLane(llvm::Value* lanes);
  // Runs `body(lane)` (i32) once for each set lane, in order, as a loop.
  template <typename F>
  void ForEachLane(llvm::Value* lanes, F body);

  // --- gang_control.cc
  // An open block, loop or if.
  struct Open {
    llvm::BasicBlock* exit = nullptr;
    llvm::BasicBlock* header = nullptr;         // Loops without a mask.
    llvm::SmallVector<Slots, 2> results, next;  // One a result; one a parameter of a loop.
    Mask before;                                // The active lanes where it began.
    Slots left, again;                          // Masked: lanes that have left it, or go on with the next iteration.
    bool blends_results = false, blends_next = false;  // Several edges, or several runs of one, bring values.
  };
  Status EmitRegion(ir::RegionId region);
  Status EmitOp(const ir::Op& op, ir::OpId id);
  Status EmitControl(const ir::Op& op, ir::OpId id);
  void NoteEdges();
  void NoteJump(const ir::Op& op, std::span<const ir::OpId> open);
  void Begin(const ir::Op& op, ir::OpId id);
  void End(const ir::Op& op, ir::OpId id);
  Status EmitBlock(const ir::Op& op, ir::OpId id);
  Status EmitLoop(const ir::Op& op, ir::OpId id);
  Status EmitMaskedLoop(const ir::Op& op, ir::OpId id);
  Status EmitIf(const ir::Op& op, ir::OpId id);
  Status EmitWays(const ir::Op& op, ir::OpId id, llvm::BasicBlock* then_block, llvm::BasicBlock* else_block);
  Status EmitMaskedIf(const ir::Op& op, ir::OpId id);
  Status EmitAssumedIf(const ir::Op& op, ir::OpId id);
  void EmitAssumedExtension(const ir::Op& op);
  llvm::BasicBlock* Mixed();
  Status EmitArm(ir::RegionId region, const Mask& mask, llvm::BasicBlock* behind);
  // Whether all active lanes of the tile have the same scalar.
  bool IsOne(ir::ValueId id) const;
  bool IsCheap(ir::RegionId region) const;
  bool IsMasked(ir::OpId id) const { return plan_.is_masked[id.index]; }
  void Jump(const ir::Target& target, const ir::Op& op, uint32_t first_operand);
  void Bring(const ir::Target& target, const ir::Op& op, uint32_t first_operand);
  void EmitLeaveTable(const ir::Op& op);
  void EmitMaskedTable(const ir::Op& op);
  // `value`, kept as `like` is.
  Tiled As(ir::ValueId like, ir::ValueId value);
  void StoreTo(const Slots& slots, ir::ValueId like, ir::ValueId value, bool blends);
  Tiled LoadFrom(const Slots& slots);
  void StorePoison(const Slots& slots);
  Slots NewMaskSlots();
  void StoreMask(const Slots& slots, const Mask& mask);
  void AddMask(const Slots& slots);  // The active lanes join those in `slots`.
  Mask LoadMask(const Slots& slots);
  Mask Explicit(const Mask& mask);
  Mask Narrowed(ir::ValueId condition, bool holds);

  // --- gang_trap.cc. Ends the tile if `condition` (<lanes x i1>, or i1 for the row's first active lane) holds for an
  // active lane of that part. `row` is kAllRows for what rows share. `code` i32 or <lanes x i32>; `address` null, i64
  // or <lanes x i64>; `bytes` null or i64.
  void TrapIf(unsigned row, unsigned column, llvm::Value* condition, llvm::Value* code, uint32_t source,
              llvm::Value* address = nullptr, llvm::Value* bytes = nullptr);
  // The same for one lane of a part, an i32 (ForEachLane); the lane is active. A null `code`: it is on record already.
  void TrapLaneIf(unsigned row, unsigned column, llvm::Value* lane, llvm::Value* condition, llvm::Value* code,
                  uint32_t source, llvm::Value* address = nullptr, llvm::Value* bytes = nullptr);
  void TrapIfStopped(uint32_t source);  // Loops' edges back.
  struct TrapEdge {
    llvm::BasicBlock* from;
    uint32_t function;
    llvm::Value* code;
    uint32_t source;
    llvm::Value* address;
    llvm::Value* bytes;
    llvm::Value* where;  // row << 16 | column * lanes + lane
  };
  void TrapNow(unsigned row, unsigned column, llvm::Value* lanes, llvm::Value* code, uint32_t source,
               llvm::Value* address, llvm::Value* bytes);
  void RecordTrap(TrapEdge edge);
  // The first lane of a row, or of any, that is active: row << 16 | number in the row.
  llvm::Value* FirstActive(unsigned row);
  llvm::Value* Where(unsigned row, unsigned column, llvm::Value* lane);
  void EmitTrapBlock();

  // --- gang_memory.cc, gang_gather.cc, gang_atomic.cc
  friend class GangAccess;  // One operation (gang_memory.h).
  bool IsUsed(ir::ValueId id);
  Status EmitMemory(const ir::Op& op, ir::OpId id);
  Status EmitAtomic(const ir::Op& op, ir::OpId id);

  // --- group_values.cc: loads and stores of Space::kPrivate, what lanes keep across barriers.
  Status EmitKept(const ir::Op& op);

  // --- gang_call.cc: calls lane by lane, queries, global_get.
  Status EmitCall(const ir::Op& op);
  Status EmitQuery(const ir::Op& op);
  Status EmitGlobal(const ir::Op& op);
  // Calls for each active lane of a part. Slots of the results.
  void EmitCalls(const ir::Op& op, unsigned row, unsigned column, llvm::ArrayRef<Slots> results);
  // `operands`: scalars where uniform, else vectors in memory.
  void EmitLaneCall(const ir::Op& op, unsigned row, unsigned column, llvm::Value* lane,
                    llvm::ArrayRef<llvm::Value*> operands, llvm::ArrayRef<Slots> results);
  llvm::Value* RowId(unsigned row);  // Along y.
  llvm::Value* Query(const ir::Op& op, llvm::Value* dimension, unsigned row, unsigned column);
  llvm::Value* QueryOf(const ir::Op& op, unsigned dimension, unsigned row, unsigned column, bool is_vector);
  llvm::Value* BufferSize(llvm::Value* param);

  ModuleEmitter& m_;
  const GangPlan& plan_;
  const GangFunction kind_;
  const std::vector<bool>& proven_;
  KernelReport* const report_;
  const ir::Function& f_;
  llvm::Function* function_ = nullptr;
  llvm::IRBuilder<> b_;      // The current place.
  llvm::IRBuilder<> entry_;  // The function's first block: allocas, what is loaded once.
  std::vector<Tiled> values_;
  const std::vector<bool> index_loads_ = FindIndexLoads(m_.source, m_.source.entry);  // By ValueId.
  // What the first block has loaded of the context (kOfContext) or of a parameter, by offset; arrays in the frame.
  static constexpr uint32_t kOfContext = 0xffffffffu, kOfFrame = 0xfffffffeu;
  std::map<std::pair<uint32_t, uint64_t>, llvm::Value*> loaded_;
  std::vector<bool> is_used_;  // By ValueId; empty until asked for.
  ContextFields fields_, entry_fields_;
  Mask mask_;  // The current place's. Some lane of it is active.
  // Where control goes when no lane is active any more: to the end of the innermost masked construct, or arm.
  llvm::BasicBlock* join_ = nullptr;
  llvm::BasicBlock* done_ = nullptr;   // Returns kGangDone.
  llvm::BasicBlock* mixed_ = nullptr;  // Returns kGangMixed; null until asked for.
  std::vector<Open> open_;             // By operation.
  std::vector<bool> is_passed_;        // By operation: some jump leaves it for a target further out.
  std::vector<uint32_t> leaves_, continues_;  // By operation: how many jumps end there; a jump out of an inner loop: 2.
  std::vector<TrapEdge> trap_edges_;
  llvm::BasicBlock* trap_block_ = nullptr;   // Writes the record.
  llvm::BasicBlock* ended_block_ = nullptr;  // Returns where, when it is written.
  uint32_t written_in_ = 0;  // The function in which the operation at hand was written.
};

// The entry of a variant that runs tiles (gang_entry.cc).
struct TileEntry {
  std::string name;
  GangShape shape;
  llvm::Function* whole = nullptr;   // Runs whole tiles; null: all are run by `masked`.
  llvm::Function* masked = nullptr;  // Of shape lanes x 1 x 1.
};
void EmitTileEntry(ModuleEmitter& m, const TileEntry& tiles);

template <typename F>
void GangEmitter::ForEachLane(llvm::Value* lanes, F body) {
  llvm::Value* bits = BitsOf(lanes);
  llvm::BasicBlock* before = b_.GetInsertBlock();
  llvm::BasicBlock* loop = NewBlock("lane");
  llvm::BasicBlock* after = NewBlock("lanes.done");
  b_.CreateCondBr(b_.CreateICmpNE(bits, I64(0)), loop, after);
  b_.SetInsertPoint(loop);
  llvm::PHINode* rest = b_.CreatePHI(b_.getInt64Ty(), 2);
  rest->addIncoming(bits, before);
  body(b_.CreateTrunc(b_.CreateBinaryIntrinsic(llvm::Intrinsic::cttz, rest, b_.getTrue()), b_.getInt32Ty()));
  llvm::Value* next = b_.CreateAnd(rest, b_.CreateSub(rest, I64(1)));
  rest->addIncoming(next, b_.GetInsertBlock());
  b_.CreateCondBr(b_.CreateICmpNE(next, I64(0)), loop, after);
  b_.SetInsertPoint(after);
}

}  // namespace hpvm::cpu

#endif  // HPVMD_COMPILER_BACK_LLVM_GANG_H_
