// SPDX-License-Identifier: Apache-2.0
// Emits the function of a whole tile (gang_tile.h). Internal to this folder.
#ifndef HPVMD_COMPILER_BACK_LLVM_GANG_GANG_H_
#define HPVMD_COMPILER_BACK_LLVM_GANG_GANG_H_

#include <string>
#include <vector>

#include "llvm/ADT/SmallVector.h"
#include "llvm/IR/Instructions.h"

#include "compiler/analysis/edge_forms.h"
#include "compiler/back/llvm/gang/gang_tile.h"
#include "compiler/pass/gang/gang_records.h"

namespace hpvm::cpu {

// GangOps emits operations that are neither control nor memory.
class GangOps {
 public:
  GangOps(GangTile& tile, GangMasks& masks, GangTraps& traps) : tile_(tile), masks_(masks), traps_(traps) {}

  // Emits an operation of ArithEmitter's families in its result's layout.
  void EmitArith(const ir::Op& op);
  // Emits loads and stores of Space::kPrivate, the values that lanes keep across barriers (group_loop.cc).
  Status EmitKept(const ir::Op& op);
  // In gang_call.cc: calls lane by lane, queries, global_get.
  void EmitCall(const ir::Op& op);
  void EmitPrint(const ir::Op& op);
  Status EmitQuery(const ir::Op& op);
  Status EmitGlobal(const ir::Op& op);

 private:
  // Emits an operation of ArithEmitter's families on vectors of a part.
  llvm::Value* EmitVector(const ir::Op& op, ir::Type result, llvm::ArrayRef<llvm::Value*> operands, unsigned row,
                          unsigned column);
  // An operation's operands, of one part, for a loop over its lanes: scalars where uniform, else vectors in memory, so
  // that one load selects a lane's element.
  using LaneValues = llvm::SmallVector<llvm::Value*, 4>;
  LaneValues SpillOperands(const ir::Op& op, unsigned row, unsigned column);
  llvm::Value* OfLane(const ir::Op& op, uint32_t index, const LaneValues& operands, llvm::Value* lane);
  // Returns the lane's distance from the row's first instance, an i64; `lane` is an i32.
  llvm::Value* AlongX(llvm::Value* lane, unsigned column);
  // Emits calls for each active lane of a part; `results` are the slots of the results.
  void EmitCalls(const ir::Op& op, unsigned row, unsigned column, llvm::ArrayRef<Slots> results);
  void EmitLaneCall(const ir::Op& op, unsigned row, unsigned column, llvm::Value* lane, const LaneValues& operands,
                    llvm::ArrayRef<Slots> results);
  llvm::Value* RowId(unsigned row);  // Along y.
  llvm::Value* Query(const ir::Op& op, llvm::Value* dimension, unsigned row, unsigned column);
  llvm::Value* QueryOf(const ir::Op& op, unsigned dimension, unsigned row, unsigned column, bool is_vector);

  GangTile& tile_;
  GangMasks& masks_;
  GangTraps& traps_;
  ModuleEmitter& m_ = tile_.m;
  llvm::IRBuilder<>& b_ = tile_.b;
};

// GangEmitter emits the tile's function and its control (gang_control.cc, gang_jump.cc).
class GangEmitter {
 public:
  GangEmitter(ModuleEmitter& m, const pass::GangPlan& plan, const GangFunction& kind, const std::vector<bool>& proven,
              KernelReport* report);
  StatusOr<llvm::Function*> Emit();

 private:
  // An open block, loop or if.
  struct Open {
    llvm::BasicBlock* exit = nullptr;
    llvm::BasicBlock* header = nullptr;         // Loops without a mask.
    llvm::SmallVector<Slots, 2> results, next;  // One per result; one per loop parameter.
    Mask before;                                // The lanes active at its beginning.
    Slots left, again;                          // Masked: lanes that left it, or continue with the next iteration.
    bool blends_results = false, blends_next = false;  // Several edges, or repeated runs of one, bring values.
  };
  Status EmitRegion(ir::RegionId region);
  Status EmitOp(const ir::Op& op, ir::OpId id);
  Status EmitControl(const ir::Op& op, ir::OpId id);
  void NoteEdges();
  void NoteJump(const ir::Op& op, std::span<const ir::OpId> open);
  void Begin(const ir::Op& op, ir::OpId id);
  void End(const ir::Op& op, ir::OpId id);
  Status EmitBlock(const ir::Op& op, ir::OpId id);
  void BeginParams(const ir::Op& op, Open& open);
  Status EmitLoop(const ir::Op& op, ir::OpId id);
  Status EmitMaskedLoop(const ir::Op& op, ir::OpId id);
  Status EmitIf(const ir::Op& op, ir::OpId id);
  Status EmitWays(const ir::Op& op, ir::OpId id, llvm::BasicBlock* then_block, llvm::BasicBlock* else_block);
  Status EmitMaskedIf(const ir::Op& op, ir::OpId id);
  Status EmitAssumedIf(const ir::Op& op, ir::OpId id);
  // In gang_assumed.cc.
  void EmitAssumed(const ir::Op& op);
  void EmitAssumedExtension(const ir::Op& op);
  void EmitAssumedChoice(const ir::Op& op);
  void EmitAssumedDivision(const ir::Op& op, const analysis::EdgeForm& form);
  void GiveUpIf(llvm::Value* is_mixed);
  int64_t ReachOf(const ir::Op& op, uint32_t operand) const;
  llvm::BasicBlock* Mixed();
  Status EmitArm(ir::RegionId region, const Mask& mask, llvm::BasicBlock* behind);
  bool IsCheap(ir::RegionId region) const;
  bool IsMasked(ir::OpId id) const { return tile_.plan.is_masked[id.index]; }
  void Jump(const ir::Target& target, const ir::Op& op, uint32_t first_operand);
  void Bring(const ir::Target& target, const ir::Op& op, uint32_t first_operand);
  void EmitBrTable(const ir::Op& op);
  void EmitMaskedTable(const ir::Op& op);
  // In gang_memory.cc and gang_atomic.cc, by a GangAccess each.
  Status EmitMemory(const ir::Op& op, ir::OpId id);
  Status EmitAtomic(const ir::Op& op, ir::OpId id);
  // Emits all members of a record together, at its first load or last store. Returns false if the member must be
  // emitted alone.
  bool EmitOfRecord(ir::OpId id);

  GangTile tile_;
  ModuleEmitter& m_ = tile_.m;
  llvm::IRBuilder<>& b_ = tile_.b;
  const ir::Function& f_ = tile_.f;
  const analysis::Definitions definitions_{f_};
  GangMasks masks_{tile_};
  GangTraps traps_{tile_, masks_};
  GangOps ops_{tile_, masks_, traps_};
  GangFrame frame_{tile_};
  pass::GangRecords records_;
  // The target when no lane is active any more: the end of the innermost masked construct or arm.
  llvm::BasicBlock* join_ = nullptr;
  llvm::BasicBlock* done_ = nullptr;          // Returns kGangDone.
  std::vector<Open> open_;                    // Indexed by OpId.
  std::vector<bool> is_passed_;               // Indexed by OpId: some jump leaves it for an outer target.
  std::vector<uint32_t> leaves_, continues_;  // Jumps that end at an OpId; one out of an inner loop counts as 2.
};

// The entry of a variant that runs tiles (gang_entry.cc).
struct TileEntry {
  std::string name;
  pass::GangShape shape;
  llvm::Function* whole = nullptr;   // Runs whole tiles; null: `masked` runs all.
  llvm::Function* masked = nullptr;  // Has shape lanes x 1 x 1.
  bool is_along_y = false;           // The functions are of the kernel with x and y exchanged; one row.
};
void EmitTileEntry(ModuleEmitter& m, const TileEntry& tiles);

}  // namespace hpvm::cpu

#endif  // HPVMD_COMPILER_BACK_LLVM_GANG_GANG_H_
