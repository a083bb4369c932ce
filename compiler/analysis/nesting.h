// SPDX-License-Identifier: Apache-2.0
// Nesting maps operations to their regions, enclosing constructs and program order.
#ifndef HPVMD_COMPILER_ANALYSIS_NESTING_H_
#define HPVMD_COMPILER_ANALYSIS_NESTING_H_

#include <cstdint>
#include <span>
#include <vector>

#include "compiler/analysis/words.h"

namespace hpvm::analysis {

// A construct is a block, loop or if. Borrows the function, whose regions must not change; construction takes time
// linear in its size. Operations that are unreachable from the body have no place.
class Nesting {
 public:
  explicit Nesting(const ir::Function& function);

  // Returns the region that contains the operation, and the operation's index there.
  ir::RegionId RegionOf(ir::OpId id) const { return places_[id.index].region; }
  uint32_t IndexOf(ir::OpId id) const { return places_[id.index].index; }
  // Returns the innermost construct around the operation; invalid in the function's body.
  ir::OpId OwnerOf(ir::OpId id) const { return function_.region(RegionOf(id)).owner; }
  // Returns the number of constructs around the operation.
  uint32_t DepthOf(ir::OpId id) const { return places_[id.index].depth; }
  // Returns the next operation of the same region; invalid after the last.
  ir::OpId Behind(ir::OpId id) const {
    const std::vector<ir::OpId>& ops = function_.region(RegionOf(id)).ops;
    return IndexOf(id) + 1 < ops.size() ? ops[IndexOf(id) + 1] : ir::OpId();
  }
  // Return all operations in the order of the text, and the operation followed by those nested in it.
  std::span<const ir::OpId> order() const { return order_; }
  std::span<const ir::OpId> OpsOf(ir::OpId id) const {
    const Position& place = places_[id.index];
    return std::span(order_).subspan(place.number, place.end - place.number);
  }
  // Returns true if the operation is `construct` or is nested in it.
  bool IsIn(ir::OpId id, ir::OpId construct) const {
    const uint32_t number = places_[id.index].number;
    return places_[construct.index].number <= number && number < places_[construct.index].end;
  }
  // Returns the operation that has the value as a result or as a parameter of its region; invalid for a parameter of
  // the function.
  ir::OpId MakerOf(ir::ValueId value) const { return makers_[value.index]; }
  // Returns true if the value is a result or a region parameter of `construct` or of an operation nested in it.
  bool IsMadeIn(ir::ValueId value, ir::OpId construct) const {
    return makers_[value.index].valid() && IsIn(makers_[value.index], construct);
  }
  // Returns true if the regions are the same, or `inner` is nested in `outer`.
  bool Encloses(ir::RegionId outer, ir::RegionId inner) const {
    const std::vector<ir::OpId>& ops = function_.region(outer).ops;
    const uint32_t number = places_[function_.region(inner).ops.front().index].number;
    return places_[ops.front().index].number <= number && number < places_[ops.back().index].end;
  }

 private:
  struct Position {
    ir::RegionId region;
    uint32_t index = 0, depth = 0;
    uint32_t number = 0, end = 0;  // In order_: of the operation, and past the last one in it.
  };

  const ir::Function& function_;
  std::vector<Position> places_;  // Indexed by OpId.
  std::vector<ir::OpId> order_;   // In the order of the text.
  std::vector<ir::OpId> makers_;  // Indexed by ValueId.
};

}  // namespace hpvm::analysis

#endif  // HPVMD_COMPILER_ANALYSIS_NESTING_H_
