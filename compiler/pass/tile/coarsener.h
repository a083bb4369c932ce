// SPDX-License-Identifier: Apache-2.0
// Coarsener implements Coarsen and ChooseTiles; internal to this folder.
//
// A tile represents a value according to the gang plan (gang_plan.h): one copy if instances share it, one copy of the
// tile's first instance if it grows by a constant, else a copy for each lane. Control that the plan does not mask is
// shared: one loop, whose body does the work of all instances, operation by operation. Masked constructs run for one
// instance after the other. A guard that the plan assumes to be uniform in a tile is tested: if instances differ, the
// tile restarts and runs its instances one after the other. No effect has happened by then.
#ifndef HPVMD_COMPILER_PASS_TILE_COARSENER_H_
#define HPVMD_COMPILER_PASS_TILE_COARSENER_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "compiler/analysis/definitions.h"
#include "compiler/pass/tile/tile_writer.h"

namespace hpvm::pass {

// Within each run of pure operations, completes the operations for one result before the next: the instances' work is
// done one after the other, and few values are alive at a time. Drops unused operations.
void OrderByUse(ir::Function& function);

class Coarsener : private TileWriter {
 public:
  Coarsener(const ir::Module& module, const TilePlan& plan) : TileWriter(module, plan) {}
  // May be called once.
  CoarseModule Run();
  // Returns the estimated cost of a tile, in units of an addition; operations in a loop count 16 times. Valid after
  // Run.
  double cost() const { return cost_; }

 private:
  // The instance of a copied construct: a lane of the tile, or, on the slow path, a computed lane.
  struct Copy {
    Lane lane;
    std::array<std::optional<ValueId>, 2> at;  // Slow path: the lane.
    OpId body;                                 // Slow path: the block that a return leaves.
    bool is_slow = false;
  };

  uint32_t Count(size_t d, bool is_for_each) const { return is_for_each ? plan_.tile[d] : 1; }
  const TileLayout& LayoutOf(ValueId id) const { return plan_.layouts[id.index]; }
  ValueId At(ValueId id, Lane lane);
  void Keep(ValueId id, Lane lane, ValueId copy);
  std::vector<Type> TypesOf(ValueId first, uint32_t count, bool is_flat) const;
  std::vector<ValueId> Flatten(std::span<const ValueId> values, ValueId first_slot);
  void KeepAll(ValueId first, uint32_t count, std::span<const ValueId> copies);

  void EmitParams();
  void EmitRegion(RegionId region);
  void EmitOp(OpId id);
  void EmitConstruct(OpId id);
  void EmitTerminator(OpId id);
  void EmitPlain(OpId id);
  void EmitGuard(OpId id);
  void EmitExtension(OpId id);
  void LeaveIf(ValueId mixed);
  void EmitSlowWay();
  std::array<bool, 2> DimensionsIn(OpId construct) const;
  void NoteDimensions(const Op& op, std::array<bool, 2>* dimensions) const;

  void Replicate(OpId id);
  void CloneRegion(RegionId region, Copy& copy);
  void CloneOp(OpId id, Copy& copy);
  void CloneConstruct(OpId id, Copy& copy);
  void CloneTerminator(OpId id, Copy& copy);
  ValueId Here(ValueId id, const Copy& copy);
  std::vector<ValueId> OperandsHere(const Op& op, const Copy& copy);
  std::vector<ir::Target> NewTargets(const Op& op) const;
  ValueId FirstId(OpId id, ValueId dimension);

  void EmitVectorLoad(OpId id);
  void EmitVectorStore(OpId id);

  // Another instance and iteration of the loop whose loads are staged.
  struct Elsewhere {
    std::array<ValueId, 2> id{};
    ValueId turn{};
  };
  // Values of a work item about its group, if loads are staged.
  struct Stage {
    std::array<ValueId, 2> local{}, first{};  // The work item's local id; the group's first instance.
    ValueId item{}, memory{}, turn{};         // Number in the group; the panels; the iteration in the block.
  };
  std::vector<ValueId> EmitStage(const Op& loop);
  std::vector<ValueId> EmitTurn(const Op& loop, ValueId turns, std::span<const ValueId> sums);
  std::vector<ValueId> FlattenSums(std::span<const ValueId> values, ValueId first_param);
  void EmitLocalId();
  ValueId EmitBlockCount(const Op& loop);
  // A piece of a panel that a work item loads: its iteration in the block, and its number in the row.
  struct PanelPiece {
    ValueId turn{}, lane{};
  };
  std::vector<PanelPiece> EmitPieces(const StagePanel& panel);
  uint32_t PiecesOfRow(const StagePanel& panel) const;
  uint32_t PiecesOfItem(const StagePanel& panel) const;
  std::vector<Type> TypesOfPiece(const StagePanel& panel) const;
  void EmitFetch(const StagePanel& panel, ValueId block, std::vector<ValueId>* pieces);
  void EmitFill(const StagePanel& panel, std::span<const ValueId>* pieces);
  std::vector<ValueId> EmitFirstFetch(ValueId blocks);
  std::vector<ValueId> EmitBlock(const Op& loop, ValueId block, std::span<const ValueId> sums);
  std::vector<ValueId> EmitBlocks(const Op& loop, ValueId blocks);
  void EmitPanelLoad(const StagePanel& panel);
  ValueId Slice(ValueId id, const Elsewhere& where, std::map<uint32_t, ValueId>* known);
  ValueId AfterTurns(ValueId init, ValueId turns, ValueId step);
  ValueId StepOf(uint32_t param);

  std::vector<std::vector<ValueId>> copies_;  // Indexed by ValueId: lane (x, y) at y * (copies along x) + x.
  const analysis::Definitions definitions_{f_};
  Stage stage_;
  std::vector<ValueId> clones_;  // Indexed by ValueId: in the construct that is being copied.
  std::vector<OpId> new_ops_;    // Indexed by OpId of open constructs.
  std::array<ValueId, 2> computed_{};
  OpId fast_;  // The block that a mixed tile leaves.
};

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_TILE_COARSENER_H_
