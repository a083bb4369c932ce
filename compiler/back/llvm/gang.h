// SPDX-License-Identifier: Apache-2.0
// Kernel IR → LLVM IR for a whole tile of instances in lockstep (compiler/pass/gang_plan.h says what a tile is).
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
#include <utility>
#include <vector>

#include "llvm/ADT/SmallVector.h"

#include "compiler/back/llvm/arith.h"
#include "compiler/back/llvm/emitter.h"
#include "compiler/pass/gang_plan.h"
#include "compiler/report.h"

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
  // --- gang.cc: values.
  unsigned parts() const { return kind_.shape.rows * kind_.shape.columns; }
  const Layout& LayoutOf(ir::ValueId id) const { return plan_.layouts[id.index]; }
  // The scalar of a uniform or linear value in a row (linear: of the row's lane 0 of column 0).
  llvm::Value* Scalar(ir::ValueId id, unsigned row);
  // Any value as <lanes x T>, splatted or spread out where it is kept as a scalar.
  llvm::Value* Vector(ir::ValueId id, unsigned row, unsigned column);
  // Lane 0's scalar as the layout of lanes of that column: base + (column * lanes + i) * step.
  llvm::Value* Spread(llvm::Value* base, uint64_t step, unsigned column);
  void Set(ir::ValueId id, Tiled value);
  llvm::Value* Operand(const ir::Op& op, uint32_t index, unsigned row);                         // Scalar.
  llvm::Value* Operand(const ir::Op& op, uint32_t index, unsigned row, unsigned column);        // Vector.
  llvm::Type* VectorOf(llvm::Type* scalar) const;
  // Emits an operation of ArithEmitter's families in its result's layout.
  void EmitArith(const ir::Op& op);
  llvm::SmallVector<llvm::AllocaInst*, 1> NewSlots(ir::ValueId like);  // Of the layout of `like`.

  // --- gang.cc: masks.
  llvm::Value* PartMask(unsigned row, unsigned column);       // <lanes x i1>; all true when mask_ is empty.
  llvm::Value* SharedMask(unsigned column);                   // Any row's lanes, for what rows share.
  llvm::Value* AnyOf(llvm::Value* lanes);                     // i1: some lane of a <lanes x i1>.
  llvm::Value* Any(const Mask& mask);                         // i1.
  llvm::Value* Both(llvm::Value* mask, llvm::Value* more);    // select(mask, more, false); mask may be null.
  // The number of the first lane that is set, i32; poison when none is.
  llvm::Value* FirstLane(llvm::Value* lanes);
  // Runs `body(lane)` (i32) once for each set lane, in order, as a loop.
  template <typename F>
  void ForEachLane(llvm::Value* lanes, F body);

  // --- gang_control.cc
  Status EmitRegion(ir::RegionId region);
  Status EmitOp(const ir::Op& op, ir::OpId id);
  Status EmitControl(const ir::Op& op, ir::OpId id);

  // --- gang_trap.cc. Ends the tile if `condition` (<lanes x i1>, or i1 for the row's first active lane) holds for an
  // active lane of that part. `code` i32 or <lanes x i32>; `address` null, i64 or <lanes x i64>; `bytes` null or i64.
  void TrapIf(unsigned row, unsigned column, llvm::Value* condition, llvm::Value* code, uint32_t source,
              llvm::Value* address = nullptr, llvm::Value* bytes = nullptr);
  void TrapIfStopped(uint32_t source);  // Loops' edges back.

  // --- gang_memory.cc, gang_gather.cc, gang_atomic.cc
  friend class GangAccess;  // One operation (gang_memory.h).
  Status EmitMemory(const ir::Op& op, ir::OpId id);
  Status EmitAtomic(const ir::Op& op, ir::OpId id);

  // --- gang_call.cc: calls lane by lane, queries, global_get.
  Status EmitCall(const ir::Op& op);
  Status EmitQuery(const ir::Op& op);
  Status EmitGlobal(const ir::Op& op);

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
  // What the first block has loaded of the context (kOfContext) or of a parameter, by offset.
  static constexpr uint32_t kOfContext = 0xffffffffu;
  std::map<std::pair<uint32_t, uint64_t>, llvm::Value*> loaded_;
  // Vectors made of scalars so far in a block, so that one is made once.
  Mask mask_;  // The current place's.
};

}  // namespace hpvm::cpu

#endif  // HPVMD_COMPILER_BACK_LLVM_GANG_H_
