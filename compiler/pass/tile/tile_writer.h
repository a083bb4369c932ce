// SPDX-License-Identifier: Apache-2.0
// Writes operations for a tile of instances: sums and constants once in a region, for which place each operation is,
// where it comes from, and what all of them cost. Which operations those are is the coarsener's concern (coarsener.h);
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
  struct Place {
    uint32_t x = 0, y = 0;
  };

  // Borrows both.
  TileWriter(const ir::Module& module, const TilePlan& plan)
      : module_(module), plan_(plan), f_(module.function(module.entry)), builder_(out_) {}

  // What is appended from here on is for the instance at that place.
  void SetPlace(std::array<uint8_t, 2> place) {
    place_.resize(out_.ops.size(), here_);
    here_ = place;
  }
  void BeginPlace(Place place) { SetPlace({static_cast<uint8_t>(place.x), static_cast<uint8_t>(place.y)}); }
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
  std::vector<OpId> original_;                 // By new OpId.
  std::vector<std::array<uint8_t, 2>> place_;  // By new OpId; the last ones are not in it before EndPlace.
  std::array<uint8_t, 2> here_{};              // Of what is appended now.
  double weight_ = 1, cost_ = 0;

 private:
  using SumKey = std::pair<uint64_t, uint64_t>;
  // The value that `make` gives, once in the open regions.
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
