// SPDX-License-Identifier: Apache-2.0
// Translates kernel IR to LLVM IR for a whole tile of instances in lockstep (compiler/pass/gang/gang_plan.h defines
// tiles). Internal to this folder.
//
// The entry becomes an internal function
//   i32 g(ptr context, ptr arguments, i64 x, i64 y, i64 z, i64 count, p...)
// that runs the instances (x + i, y + r, z), i < width, r < rows; a masked function, of one row, runs only those with
// i < count. It returns kGangDone; kGangMixed when an assumed condition differs within the tile (then nothing has had
// an effect, and the caller runs the tile with a masked function instead); or kGangTrapped + (r << 16 | i) for the
// instance that trapped, after hpvm.record.
//
// Masks: divergent control is linearised. Each masked construct keeps, in allocas that LLVM turns into values, the
// lanes that have left it and the results they brought. Code after a point where lanes have left runs only if some
// lane is active, so that scalar work (a load of a uniform address) is always done on behalf of an active lane.
// Inactive lanes may hold poison: masks are combined with selects, never with plain `and`.
#ifndef HPVMD_COMPILER_BACK_LLVM_GANG_GANG_TILE_H_
#define HPVMD_COMPILER_BACK_LLVM_GANG_GANG_TILE_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "llvm/ADT/SmallVector.h"
#include "llvm/IR/Instructions.h"

#include "compiler/analysis/before_effects.h"
#include "compiler/api/report.h"
#include "compiler/back/llvm/emit/emitter.h"
#include "compiler/pass/gang/gang_plan.h"

namespace hpvm::cpu {

inline constexpr uint32_t kGangDone = 0;
inline constexpr uint32_t kGangTrapped = 1;
inline constexpr uint32_t kGangMixed = 0xffffffff;
inline constexpr unsigned kGangCount = 5;  // Index of the parameter `count`; the kernel's follow.

// Active lanes: empty when all of the tile is active, else <lanes x i1> for part row * columns + column, for every
// part.
using Mask = llvm::SmallVector<llvm::Value*, 1>;

// A value for all instances of a tile, represented as its Layout says: scalars by row (or one), vectors by part (or by
// column when rows share it).
using Tiled = llvm::SmallVector<llvm::Value*, 1>;

struct GangFunction {
  pass::GangShape shape;
  bool is_masked = false;     // Has a mask from the start: lanes i < count; one row, one column.
  bool is_unchecked = false;  // Accesses in `proven` are known to be inside, buffers to have at most 2^31 bytes.
  // A load that misses its buffer before the tile has had an effect gives the tile up (kGangMixed), and the caller
  // runs the tile by another function.
  bool gives_up = false;
};

using Slots = llvm::SmallVector<llvm::AllocaInst*, 1>;  // For a Tiled or a Mask.
// Stands for a row where rows share a value.
inline constexpr unsigned kAllRows = ~0u;

// GangTile holds the function being written, and the tile's values in it (gang.cc).
class GangTile {
 public:
  // `proven` holds, by OpId, the accesses that ProveBounds covers; all false for a checked function. `report` may be
  // null. Borrows all arguments.
  GangTile(ModuleEmitter& module, const pass::GangPlan& gang_plan, const GangFunction& function_kind,
           const std::vector<bool>& proven_accesses, KernelReport* kernel_report);

  unsigned rows() const { return kind.shape.rows; }
  unsigned columns() const { return kind.shape.columns; }
  unsigned lanes() const { return kind.shape.lanes; }
  unsigned parts() const { return rows() * columns(); }
  const pass::Layout& LayoutOf(ir::ValueId id) const { return plan.layouts[id.index]; }
  // Returns the number of rows for which a value of that layout is kept: 1 when they share it.
  unsigned RowsOf(const pass::Layout& layout) const { return layout.by_row ? rows() : 1; }
  // Returns true if all active lanes of the tile have the same scalar.
  bool IsOne(ir::ValueId id) const;
  // Returns the scalar of a uniform or linear value in a row (linear: of the row's lane 0 of column 0).
  llvm::Value* Scalar(ir::ValueId id, unsigned row);
  // Returns any value as <lanes x T>, splatted or spread where it is kept as a scalar. `row` may be kAllRows for a
  // value that rows share.
  llvm::Value* Vector(ir::ValueId id, unsigned row, unsigned column);
  // Returns lane i of that column as base + (column * lanes + i) * step, where `base` is lane 0's scalar.
  llvm::Value* Spread(llvm::Value* base, uint64_t step, unsigned column);
  llvm::Value* Splat(llvm::Value* scalar) { return b.CreateVectorSplat(lanes(), scalar); }
  void Set(ir::ValueId id, Tiled value);
  llvm::Value* Operand(const ir::Op& op, uint32_t index, unsigned row);                   // Scalar.
  llvm::Value* Operand(const ir::Op& op, uint32_t index, unsigned row, unsigned column);  // Vector.
  ir::ValueId OperandId(const ir::Op& op, uint32_t index) const { return f.operands[op.first_operand + index]; }
  Tiled As(ir::ValueId like, ir::ValueId value);  // `value`, represented as `like` is.
  llvm::Type* VectorOf(llvm::Type* scalar) const;
  llvm::Type* TypeOf(ir::ValueId id) const { return m.TypeOf(f.type_of(id)); }
  // Adds to the report, if there is one, how an access is done; only once, because whole and partial tiles are emitted
  // separately.
  void RemarkAccess(const ir::Op& op, std::string text) const;
  Slots NewSlots(ir::ValueId like);  // In the layout of `like`.
  Tiled LoadFrom(const Slots& slots);
  void StorePoison(const Slots& slots);
  // Returns the block that gives the tile up.
  llvm::BasicBlock* Mixed();
  llvm::BasicBlock* NewBlock(const char* name) { return llvm::BasicBlock::Create(m.context(), name, function); }
  llvm::Value* I32(uint32_t value) { return b.getInt32(value); }
  llvm::Value* I64(uint64_t value) { return b.getInt64(value); }

  ModuleEmitter& m;
  const pass::GangPlan& plan;
  const GangFunction kind;
  const std::vector<bool>& proven;
  KernelReport* const report;
  const ir::Function& f;
  llvm::Function* const function;
  llvm::IRBuilder<> b;      // The current position.
  llvm::IRBuilder<> entry;  // The function's first block: allocas, values loaded once.
  ContextFields fields, entry_fields;
  uint32_t written_in;  // The function in which the current operation was written.
  // Indexed by OpId: true where a load that misses gives the tile up; empty when no load does.
  const std::vector<bool> gives_up;

 private:
  llvm::BasicBlock* mixed_ = nullptr;  // Returns kGangMixed; null until first used.
  std::vector<Tiled> values_;
  const std::vector<bool> index_loads_ = analysis::FindIndexLoads(m.source, m.source.entry);  // Indexed by ValueId.
};

// GangMasks holds the active lanes at the current position, at least one, and operates on masks (gang.cc,
// gang_control.cc).
class GangMasks {
 public:
  explicit GangMasks(GangTile& tile) : tile_(tile) {}

  const Mask& mask() const { return mask_; }
  bool IsWhole() const { return mask_.empty(); }
  void Become(Mask mask) { mask_ = std::move(mask); }
  // Returns <lanes x i1>; all true when the mask is empty. kAllRows: as SharedMask.
  llvm::Value* PartMask(unsigned row, unsigned column);
  // Returns the lanes active in any row, for values that rows share.
  llvm::Value* SharedMask(unsigned column);
  // Returns null when the mask is empty or the tile has one row: then a lane of the row is active here (see above).
  // Otherwise returns an i1: true if a lane of this row is active. If it is false, a scalar that belongs to the row
  // alone (by_row) must not be loaded, used as a divisor, etc.
  llvm::Value* RowIsActive(unsigned row);
  llvm::Value* AnyOf(llvm::Value* lanes);                   // i1: some lane of a <lanes x i1> is set.
  llvm::Value* Any(const Mask& mask);                       // i1.
  llvm::Value* Both(llvm::Value* mask, llvm::Value* more);  // select(mask, more, false); mask may be null.
  llvm::Value* BitsOf(llvm::Value* lanes);                  // i64: bit i is lane i.
  // Returns the number of the first set lane, an i32; any lane when none is set.
  llvm::Value* FirstLane(llvm::Value* lanes);
  // Runs `body(lane)` (i32) once for each set lane, in order, as a loop.
  template <typename F>
  void ForEachLane(llvm::Value* lanes, F body);
  // `blends`: inactive lanes keep their values in the slots.
  void StoreTo(const Slots& slots, ir::ValueId like, ir::ValueId value, bool blends);
  Slots NewMaskSlots();
  void StoreMask(const Slots& slots, const Mask& mask);
  void AddMask(const Slots& slots);  // Adds the active lanes to those in `slots`.
  Mask LoadMask(const Slots& slots);
  Mask Explicit(const Mask& mask);
  Mask Narrowed(ir::ValueId condition, bool holds);

 private:
  GangTile& tile_;
  llvm::IRBuilder<>& b_ = tile_.b;
  Mask mask_;
};

// In gang_trap.cc. Ends the tile if `condition` (<lanes x i1>, or i1 for the row's first active lane) holds for an
// active lane of that part. `row` is kAllRows where rows share the value. `code` i32 or <lanes x i32>; `address` null,
// i64 or <lanes x i64>; `bytes` null or i64.
class GangTraps {
 public:
  GangTraps(GangTile& tile, GangMasks& masks) : tile_(tile), masks_(masks) {}

  void TrapIf(unsigned row, unsigned column, llvm::Value* condition, llvm::Value* code, uint32_t source,
              llvm::Value* address = nullptr, llvm::Value* bytes = nullptr);
  // The same for one lane of a part, an i32 (ForEachLane); the lane is active. A null `code`: it is already recorded.
  void TrapLaneIf(unsigned row, unsigned column, llvm::Value* lane, llvm::Value* condition, llvm::Value* code,
                  uint32_t source, llvm::Value* address = nullptr, llvm::Value* bytes = nullptr);
  void TrapIfStopped(uint32_t source);  // On loop back edges.
  void TrapNow(unsigned row, unsigned column, llvm::Value* lanes, llvm::Value* code, uint32_t source,
               llvm::Value* address, llvm::Value* bytes);
  void EmitTrapBlock();

 private:
  struct TrapEdge {
    llvm::BasicBlock* from;
    uint32_t function;
    llvm::Value* code;
    uint32_t source;
    llvm::Value* address;
    llvm::Value* bytes;
    llvm::Value* where;  // row << 16 | column * lanes + lane
  };
  void RecordTrap(TrapEdge edge);
  // Returns the first active lane of a row, or of any: row << 16 | number in the row.
  llvm::Value* FirstActive(unsigned row);
  llvm::Value* Where(unsigned row, unsigned column, llvm::Value* lane);

  GangTile& tile_;
  GangMasks& masks_;
  ModuleEmitter& m_ = tile_.m;
  llvm::IRBuilder<>& b_ = tile_.b;
  std::vector<TrapEdge> trap_edges_;
  llvm::BasicBlock* trap_block_ = nullptr;   // Writes the record.
  llvm::BasicBlock* ended_block_ = nullptr;  // Returns `where` after the record is written.
};

// GangFrame holds values that accesses share: loads in the first block, and arrays in the frame.
class GangFrame {
 public:
  static constexpr uint32_t kAddresses = 0, kValues = 1, kFirstAtomic = 2;

  explicit GangFrame(GangTile& tile) : tile_(tile) {}

  llvm::Value* OfContext(llvm::Type* type, uint64_t offset);
  llvm::Value* OfParam(llvm::Type* type, uint32_t param, uint64_t offset);
  llvm::Value* Scratch(uint32_t which);  // Valid while one column is emitted.
  // Returns the array of the lanes' stacks of a part, initially zero: for each unit of the frame a vector with every
  // lane's unit.
  llvm::Value* Stack(unsigned part);
  bool IsUsed(ir::ValueId id);

 private:
  static constexpr uint32_t kOfContext = 0xffffffffu, kOfFrame = 0xfffffffeu, kOfStack = 0xfffffffdu;

  GangTile& tile_;
  std::map<std::pair<uint32_t, uint64_t>, llvm::Value*> loaded_;  // Key: parameter or constant above; offset.
  std::vector<bool> is_used_;                                     // Indexed by ValueId; empty until first used.
};

template <typename F>
void GangMasks::ForEachLane(llvm::Value* lanes, F body) {
  llvm::Value* bits = BitsOf(lanes);
  llvm::BasicBlock* before = b_.GetInsertBlock();
  llvm::BasicBlock* loop = tile_.NewBlock("lane");
  llvm::BasicBlock* after = tile_.NewBlock("lanes.done");
  b_.CreateCondBr(b_.CreateICmpNE(bits, tile_.I64(0)), loop, after);
  b_.SetInsertPoint(loop);
  llvm::PHINode* rest = b_.CreatePHI(b_.getInt64Ty(), 2);
  rest->addIncoming(bits, before);
  body(b_.CreateTrunc(b_.CreateBinaryIntrinsic(llvm::Intrinsic::cttz, rest, b_.getTrue()), b_.getInt32Ty()));
  llvm::Value* next = b_.CreateAnd(rest, b_.CreateSub(rest, tile_.I64(1)));
  rest->addIncoming(next, b_.GetInsertBlock());
  b_.CreateCondBr(b_.CreateICmpNE(next, tile_.I64(0)), loop, after);
  b_.SetInsertPoint(after);
}

}  // namespace hpvm::cpu

#endif  // HPVMD_COMPILER_BACK_LLVM_GANG_GANG_TILE_H_
