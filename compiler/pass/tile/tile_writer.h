// SPDX-License-Identifier: Apache-2.0
// TileWriter writes operations for a tile of instances: it makes sums and constants once per region, and records each
// operation's lane in the tile, its origin, and the total cost. The coarsener (coarsener.h) selects the operations;
// internal to this folder.
#ifndef HPVMD_COMPILER_PASS_TILE_TILE_WRITER_H_
#define HPVMD_COMPILER_PASS_TILE_TILE_WRITER_H_

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "compiler/pass/rewrite/words.h"
#include "compiler/pass/tile/tile_plan.h"

namespace hpvm::pass {

class TileWriter {
 protected:
  struct Lane {
    uint32_t x = 0, y = 0;
  };

  // Borrows both.
  TileWriter(const ir::Module& module, const TilePlan& plan)
      : module_(module), plan_(plan), f_(module.function(module.entry)), builder_(out_) {}

  // Sets the lane of the instance that the operations appended from now on serve.
  void SetLane(std::array<uint8_t, 2> lane) {
    lane_.resize(out_.ops.size(), here_);
    here_ = lane;
  }
  void BeginLane(Lane lane) { SetLane({static_cast<uint8_t>(lane.x), static_cast<uint8_t>(lane.y)}); }
  ValueId Add(Opcode code, Type type, std::span<const ValueId> operands);
  ValueId Number(Type type, uint64_t bits);
  ValueId Plus(ValueId base, uint64_t delta);
  ValueId Compute(Opcode code, ValueId a, uint64_t b);
  ValueId Widened(ValueId id);
  OpId AppendAccess(OpId original, const Op& op, std::span<const ValueId> operands, std::span<const Type> results);
  ValueId FromWords(Type type, std::span<const ValueId> words);
  void ToWords(ValueId value, std::vector<ValueId>* words);
  void OpenScope() { scopes_.emplace_back(); }
  void CloseScope();
  void Charge(const Op& op, bool is_strided = false);

  const ir::Module& module_;
  const TilePlan& plan_;
  const ir::Function& f_;
  ir::Function out_;
  ir::Builder builder_;
  std::vector<OpId> original_;                // Indexed by new OpId.
  std::vector<std::array<uint8_t, 2>> lane_;  // Indexed by new OpId; incomplete until the next SetLane.
  std::array<uint8_t, 2> here_{};             // The place of operations that are appended now.
  double weight_ = 1, cost_ = 0;

 private:
  using SumKey = std::pair<uint64_t, uint64_t>;
  // Returns the value that `make` makes, which is called once within the open regions.
  template <typename Make>
  ValueId Once(const SumKey& key, Make&& make) {
    if (const auto found = sums_.find(key); found != sums_.end()) {
      return found->second;
    }
    const ValueId made = make();
    sums_[key] = made;
    scopes_.back().push_back(key);
    return made;
  }

  // Sums and constants that the open regions can use.
  std::map<SumKey, ValueId> sums_;
  std::vector<std::vector<SumKey>> scopes_;
};

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_TILE_TILE_WRITER_H_
