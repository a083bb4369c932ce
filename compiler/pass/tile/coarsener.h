// SPDX-License-Identifier: Apache-2.0
// The work behind Coarsen and ChooseTiles; internal to this folder.
//
// A value is kept for a tile as the plan of gangs says (gang_plan.h): one copy where instances share it, one copy of
// the tile's first instance where it grows by a constant, else a copy for each place. Control that the plan does not
// mask is shared: one loop, whose body does the work of all instances, operation by operation. What is masked is run
// for one instance after the other. A guard that the plan assumes to be the same for a tile is looked at: where
// instances differ, the tile starts again and runs its instances one after the other. Nothing has had an effect by
// then.
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

// Within each run of operations that only compute, finishes what one of them is for before the next: what a tile's
// instances do alike is done for one after the other, and few values live at a time. Drops what nothing uses.
void OrderByUse(ir::Function& function);

class Coarsener : private TileWriter {
 public:
  Coarsener(const ir::Module& module, const TilePlan& plan) : TileWriter(module, plan) {}
  // Once.
  CoarseModule Run();
  // Of a tile, in about the time of an addition; loops weigh 16 times what stands in them. After Run.
  double cost() const { return cost_; }

 private:
  // Where a copied construct stands: a place of the tile, or, on the slow way, one that is computed.
  struct Copy {
    Place place;
    std::array<std::optional<ValueId>, 2> at;  // Slow: the place.
    OpId body;                                 // Slow: the block that a return leaves.
    bool is_slow = false;
  };

  uint32_t Count(size_t d, bool is_for_each) const { return is_for_each ? plan_.tile[d] : 1; }
  const TileLayout& LayoutOf(ValueId id) const { return plan_.layouts[id.index]; }
  ValueId At(ValueId id, Place place);
  void Keep(ValueId id, Place place, ValueId copy);
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
  // What a work item knows of its group, where loads are staged.
  struct Stage {
    std::array<ValueId, 2> local{}, first{};  // Its place among work items; the group's first instance.
    ValueId item{}, memory{}, turn{};         // Its number in the group; the panels; the iteration in the block.
  };
  std::vector<ValueId> EmitStage(const Op& loop);
  std::vector<ValueId> EmitTurn(const Op& loop, ValueId turns, std::span<const ValueId> sums);
  std::vector<ValueId> FlattenSums(std::span<const ValueId> values, ValueId first_param);
  void EmitGroupPlace();
  ValueId EmitBlockCount(const Op& loop);
  // A piece of a panel that a work item brings: its iteration in the block, and its number in the row.
  struct PanelPiece {
    ValueId turn{}, place{};
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

  std::vector<std::vector<ValueId>> copies_;  // By ValueId: place (x, y) at y * (copies along x) + x.
  const analysis::Definitions definitions_{f_};
  Stage stage_;
  std::vector<ValueId> clones_;  // By ValueId: in the construct that is being copied.
  std::vector<OpId> new_ops_;    // By OpId of open constructs.
  std::array<ValueId, 2> computed_{};
  OpId fast_;  // The block that a mixed tile leaves.
};

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_TILE_COARSENER_H_
