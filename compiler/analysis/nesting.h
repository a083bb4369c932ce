// SPDX-License-Identifier: Apache-2.0
// The places of operations: their regions, their constructs and their order.
#ifndef HPVMD_COMPILER_ANALYSIS_NESTING_H_
#define HPVMD_COMPILER_ANALYSIS_NESTING_H_

#include <cstdint>
#include <span>
#include <vector>

#include "compiler/analysis/words.h"

namespace hpvm::analysis {

// A construct is a block, loop or if. Borrows the function, whose regions must stay as they are; made in time linear in
// it. What nothing reaches from the body has no place.
class Nesting {
 public:
  explicit Nesting(const ir::Function& function);

  // The region that the operation stands in, and its index there.
  ir::RegionId RegionOf(ir::OpId id) const { return places_[id.index].region; }
  uint32_t IndexOf(ir::OpId id) const { return places_[id.index].index; }
  // The construct around it; invalid in the function's body.
  ir::OpId OwnerOf(ir::OpId id) const { return function_.region(RegionOf(id)).owner; }
  // The number of constructs around it.
  uint32_t DepthOf(ir::OpId id) const { return places_[id.index].depth; }
  // The next operation of its region; invalid behind the last.
  ir::OpId Behind(ir::OpId id) const {
    const std::vector<ir::OpId>& ops = function_.region(RegionOf(id)).ops;
    return IndexOf(id) + 1 < ops.size() ? ops[IndexOf(id) + 1] : ir::OpId();
  }
  // All operations in the order of the text; the operation and those that stand in it.
  std::span<const ir::OpId> order() const { return order_; }
  std::span<const ir::OpId> OpsOf(ir::OpId id) const {
    const Place& place = places_[id.index];
    return std::span(order_).subspan(place.number, place.end - place.number);
  }
  // True if the operation is `construct`, or stands in it.
  bool IsIn(ir::OpId id, ir::OpId construct) const {
    const uint32_t number = places_[id.index].number;
    return places_[construct.index].number <= number && number < places_[construct.index].end;
  }
  // The operation that has the value as a result, or as a parameter of its region; invalid: a parameter of the
  // function.
  ir::OpId MakerOf(ir::ValueId value) const { return makers_[value.index]; }
  // True if the value is a result or a region's parameter of `construct` or of an operation in it.
  bool IsMadeIn(ir::ValueId value, ir::OpId construct) const {
    return makers_[value.index].valid() && IsIn(makers_[value.index], construct);
  }
  // True if the regions are one, or `inner` stands in the other.
  bool Encloses(ir::RegionId outer, ir::RegionId inner) const {
    const std::vector<ir::OpId>& ops = function_.region(outer).ops;
    const uint32_t number = places_[function_.region(inner).ops.front().index].number;
    return places_[ops.front().index].number <= number && number < places_[ops.back().index].end;
  }

 private:
  struct Place {
    ir::RegionId region;
    uint32_t index = 0, depth = 0;
    uint32_t number = 0, end = 0;  // In order_: of the operation, and behind the last one in it.
  };

  const ir::Function& function_;
  std::vector<Place> places_;     // By OpId.
  std::vector<ir::OpId> order_;   // As in the text.
  std::vector<ir::OpId> makers_;  // By ValueId.
};

}  // namespace hpvm::analysis

#endif  // HPVMD_COMPILER_ANALYSIS_NESTING_H_
