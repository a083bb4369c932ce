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
#include <string>
#include <utility>
#include <vector>

#include "compiler/analysis/definitions.h"
#include "compiler/pass/gang/gang_plan.h"
#include "compiler/pass/rewrite/words.h"
#include "compiler/pass/tile/coarsen.h"
#include "compiler/pass/tile/stage_loads.h"

namespace hpvm::pass {

// How a value is kept along x and y.
struct TileLayout {
  std::array<bool, 2> varies{};    // A copy for each place.
  std::array<uint64_t, 2> step{};  // Else the copy of place 0; place i has it plus i * step, modulo its type.
  bool Differs(size_t d) const { return varies[d] || step[d] != 0; }
  friend bool operator==(const TileLayout&, const TileLayout&) = default;
};

// What is known of a kernel before a line of it is written for a tile.
struct TilePlan {
  std::array<uint32_t, 2> tile{1, 1};
  GangPlan gang;
  std::vector<TileLayout> layouts;  // By ValueId.
  std::vector<bool> is_vector;      // By OpId: loads and stores that become 16-byte accesses.
  std::vector<GpuFactor> factors;   // What that rests on, besides buffers that begin at 16 bytes.
  std::optional<StagePlan> stage;   // If the tile asks for it.
};
StatusOr<TilePlan> PlanTile(const ir::Module& module, const GpuTile& tile);

// Within each run of operations that only compute, finishes what one of them is for before the next: what a tile's
// instances do alike is done for one after the other, and few values live at a time. Drops what nothing uses.
void OrderByUse(ir::Function& function);

class Coarsener {
 public:
  Coarsener(const ir::Module& module, const TilePlan& plan)
      : module_(module), plan_(plan), f_(module.function(module.entry)), builder_(out_) {}
  // Once.
  CoarseModule Run();
  // Of a tile, in about the time of an addition; loops weigh 16 times what stands in them. After Run.
  double cost() const { return cost_; }

 private:
  struct Place {
    uint32_t x = 0, y = 0;
  };
  // Where a copied construct stands: a place of the tile, or, on the slow way, one that is computed.
  struct Copy {
    Place place;
    std::array<std::optional<ir::ValueId>, 2> at;  // Slow: the place.
    ir::OpId body;                                 // Slow: the block that a return leaves.
    bool is_slow = false;
  };

  // What is appended from here on is for the instance at that place.
  void SetPlace(std::array<uint8_t, 2> place) {
    place_.resize(out_.ops.size(), here_);
    here_ = place;
  }
  void BeginPlace(Place place) { SetPlace({static_cast<uint8_t>(place.x), static_cast<uint8_t>(place.y)}); }
  uint32_t Count(size_t d, bool is_for_each) const { return is_for_each ? plan_.tile[d] : 1; }
  const TileLayout& LayoutOf(ir::ValueId id) const { return plan_.layouts[id.index]; }
  ir::ValueId At(ir::ValueId id, Place place);
  void Keep(ir::ValueId id, Place place, ir::ValueId copy);
  ir::ValueId Plus(ir::ValueId base, uint64_t delta);
  ir::ValueId Add(ir::Opcode code, ir::Type type, std::span<const ir::ValueId> operands);
  ir::ValueId Number(ir::Type type, uint64_t bits);
  ir::OpId AppendAccess(ir::OpId original, const ir::Op& op, std::span<const ir::ValueId> operands,
                        std::span<const ir::Type> results);
  std::vector<ir::Type> TypesOf(ir::ValueId first, uint32_t count, bool is_flat) const;
  std::vector<ir::ValueId> Flatten(std::span<const ir::ValueId> values, ir::ValueId first_slot);
  void KeepAll(ir::ValueId first, uint32_t count, std::span<const ir::ValueId> copies);

  void EmitParams();
  void EmitRegion(ir::RegionId region);
  void EmitOp(ir::OpId id);
  void EmitConstruct(ir::OpId id);
  void EmitTerminator(ir::OpId id);
  void EmitPlain(ir::OpId id);
  void EmitGuard(ir::OpId id);
  void EmitExtension(ir::OpId id);
  void LeaveIf(ir::ValueId mixed);
  void EmitSlowWay();
  std::array<bool, 2> DimensionsIn(ir::OpId construct) const;
  void NoteDimensions(const ir::Op& op, std::array<bool, 2>* dimensions) const;

  void Replicate(ir::OpId id);
  void CloneRegion(ir::RegionId region, Copy& copy);
  void CloneOp(ir::OpId id, Copy& copy);
  void CloneConstruct(ir::OpId id, Copy& copy);
  void CloneTerminator(ir::OpId id, Copy& copy);
  ir::ValueId Here(ir::ValueId id, const Copy& copy);
  ir::ValueId FirstId(ir::OpId id, ir::ValueId dimension);

  void EmitVectorLoad(ir::OpId id);
  void EmitVectorStore(ir::OpId id);
  ir::ValueId FromWords(ir::Type type, std::span<const ir::ValueId> words);
  void ToWords(ir::ValueId value, std::vector<ir::ValueId>* words);

  // Another instance and iteration of the loop whose loads are staged.
  struct Elsewhere {
    std::array<ir::ValueId, 2> id{};
    ir::ValueId turn{};
  };
  // What a work item knows of its group, where loads are staged.
  struct Stage {
    std::array<ir::ValueId, 2> local{}, first{};  // Its place among work items; the group's first instance.
    ir::ValueId item{}, memory{}, turn{};         // Its number in the group; the panels; the iteration in the block.
  };
  std::vector<ir::ValueId> EmitStage(const ir::Op& loop);
  std::vector<ir::ValueId> EmitTurn(const ir::Op& loop, ir::ValueId turns, std::span<const ir::ValueId> sums);
  std::vector<ir::ValueId> FlattenSums(std::span<const ir::ValueId> values, ir::ValueId first_param);
  void EmitGroupPlace();
  ir::ValueId EmitBlockCount(const ir::Op& loop);
  // A piece of a panel that a work item brings: its iteration in the block, and its number in the row.
  struct PanelPiece {
    ir::ValueId turn{}, place{};
  };
  std::vector<PanelPiece> EmitPieces(const StagePanel& panel);
  uint32_t PiecesOfRow(const StagePanel& panel) const;
  uint32_t PiecesOfItem(const StagePanel& panel) const;
  std::vector<ir::Type> TypesOfPiece(const StagePanel& panel) const;
  void EmitFetch(const StagePanel& panel, ir::ValueId block, std::vector<ir::ValueId>* pieces);
  void EmitFill(const StagePanel& panel, std::span<const ir::ValueId>* pieces);
  std::vector<ir::ValueId> EmitFirstFetch(ir::ValueId blocks);
  std::vector<ir::ValueId> EmitBlock(const ir::Op& loop, ir::ValueId block, std::span<const ir::ValueId> sums);
  std::vector<ir::ValueId> EmitBlocks(const ir::Op& loop, ir::ValueId blocks);
  std::vector<ir::Type> TypesOfCopies(std::span<const ir::ValueId> copies) const;
  void EmitPanelLoad(const StagePanel& panel);
  ir::ValueId Slice(ir::ValueId id, const Elsewhere& where, std::map<uint32_t, ir::ValueId>* known);
  ir::ValueId AfterTurns(ir::ValueId init, ir::ValueId turns, ir::ValueId step);
  ir::ValueId StepOf(uint32_t param);
  ir::ValueId Widened(ir::ValueId id);
  ir::ValueId Compute(ir::Opcode code, ir::ValueId a, uint64_t b);

  void OpenScope() { scopes_.emplace_back(); }
  void CloseScope();
  void Charge(const ir::Op& op, bool is_strided = false);

  const ir::Module& module_;
  const TilePlan& plan_;
  const ir::Function& f_;
  ir::Function out_;
  ir::Builder builder_;
  std::vector<std::vector<ir::ValueId>> copies_;  // By ValueId: place (x, y) at y * (copies along x) + x.
  const analysis::Definitions definitions_{f_};
  Stage stage_;
  std::vector<ir::ValueId> clones_;            // By ValueId: in the construct that is being copied.
  std::vector<ir::OpId> new_ops_;              // By OpId of open constructs.
  std::vector<ir::OpId> original_;             // By new OpId.
  std::vector<std::array<uint8_t, 2>> place_;  // By new OpId; the last ones are not in it before EndPlace.
  std::array<uint8_t, 2> here_{};              // Of what is appended now.
  std::array<ir::ValueId, 2> computed_{};
  ir::OpId fast_;  // The block that a mixed tile leaves.
  // Sums and constants that the open regions can use.
  using SumKey = std::pair<uint64_t, uint64_t>;
  std::map<SumKey, ir::ValueId> sums_;
  std::vector<std::vector<SumKey>> scopes_;
  double weight_ = 1, cost_ = 0;
};

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_TILE_COARSENER_H_
