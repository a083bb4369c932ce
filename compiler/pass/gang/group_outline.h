// SPDX-License-Identifier: Apache-2.0
// GroupOutline finds the constructs that run once for a group, by structure alone. Internal to group_plan.
#ifndef HPVMD_COMPILER_PASS_GANG_GROUP_OUTLINE_H_
#define HPVMD_COMPILER_PASS_GANG_GROUP_OUTLINE_H_

#include <cstddef>
#include <optional>
#include <vector>

#include "compiler/analysis/nesting.h"
#include "compiler/pass/gang/group_plan.h"
#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

constexpr bool IsSync(ir::Opcode code) { return code == ir::Opcode::kBarrier || code == ir::Opcode::kLocalAlloc; }

class GroupOutline {
 public:
  explicit GroupOutline(const ir::Function& f);

  struct Tail {
    size_t begin = 0;  // Index in the region's operations.
    GroupTarget target;
  };

  const std::vector<bool>& is_group() const { return is_group_; }  // Indexed by OpId.
  const std::optional<Tail>& tail(ir::RegionId region) const { return tails_[region.index]; }
  bool is_level(ir::RegionId region) const { return is_level_[region.index]; }
  ir::RegionId region_of(ir::OpId op) const { return nesting_.RegionOf(op); }
  // Returns the final target of a jump if the code after its target only jumps on.
  GroupTarget Resolve(GroupTarget target) const;
  // Returns the targets outside `op` of jumps inside it, or of `op` itself if it is a jump.
  std::vector<GroupTarget> EscapesOf(ir::OpId op) const;

 private:
  void VisitRegion(ir::RegionId region);
  std::optional<GroupTarget> TailFrom(const std::vector<ir::OpId>& ops, size_t begin) const;

  const ir::Function& f_;
  const analysis::Nesting nesting_{f_};
  std::vector<bool> has_sync_, is_group_;
  std::vector<bool> is_level_;
  std::vector<std::optional<Tail>> tails_;
};

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_GANG_GROUP_OUTLINE_H_
