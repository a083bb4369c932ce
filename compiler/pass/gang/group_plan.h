// SPDX-License-Identifier: Apache-2.0
// PlanGroup decides how a kernel with barriers runs a whole group at a time. Internal to split_barriers.
//
// Control around barriers is the same for all instances of a group, so it runs once per group (group level):
// constructs that contain a barrier or a local_alloc, and constructs whose jumps end such a construct. The code in
// between is cut into intervals, each of which runs for every instance before the next begins: fission and interchange
// as in Moses et al. (PPoPP 2023).
//
// Conditions at group level that are not certainly uniform are compared after their computation, and instances that
// differ trap as at a barrier (S41, S42). That is correct only if the branches lead to different barriers, or one to
// the end; other kernels are refused.
//
// The last part of a region at group level, after its last barrier, may leave by several jumps to one target,
// separately for each instance: it is one interval, the region's tail.
#ifndef HPVMD_COMPILER_PASS_GANG_GROUP_PLAN_H_
#define HPVMD_COMPILER_PASS_GANG_GROUP_PLAN_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/status.h"
#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

// The target of a jump; the end of the function when `op` is invalid.
struct GroupTarget {
  ir::OpId op;
  bool is_continue = false;
  friend bool operator==(const GroupTarget&, const GroupTarget&) = default;
};

struct IntervalPlan {
  std::vector<ir::OpId> ops;  // Operations of one region, in order. A tail's include the terminator.
  // Values that an instance keeps at the end: results or parameters of constructs at group level, and their values.
  std::vector<std::pair<ir::ValueId, ir::ValueId>> passes;
  ir::OpId checked;  // An if or br_table whose condition is compared at the end; may be invalid.
  bool is_tail = false;
  GroupTarget tail_target;
};

struct GroupStep {
  enum class Kind : uint8_t { kSegment, kScalar, kConstruct, kEnd };
  Kind kind = Kind::kSegment;
  uint32_t interval = 0;  // For kSegment.
  ir::OpId op;            // kScalar: executed once; kConstruct: a block, loop or if at group level; kEnd: a terminator.
};

struct GroupPlan {
  std::vector<IntervalPlan> intervals;
  std::vector<std::vector<GroupStep>> steps;  // Indexed by RegionId; of regions at group level.
  // Indexed by RegionId: the target of its tail; only if its last step is an interval that is a tail.
  std::vector<std::optional<GroupTarget>> tails;
  std::vector<bool> is_scalar;       // Indexed by ValueId: the same for all of the group and known at group level.
  std::vector<bool> for_first;       // Indexed by ValueId: group level can compute it for the group's first instance.
  std::vector<bool> is_passed;       // Indexed by ValueId: a nonscalar parameter or result of a group-level construct.
  std::vector<bool> is_kept;         // Indexed by ValueId: an interval's value that others read, not recompute.
  std::vector<uint32_t> segment_of;  // Indexed by ValueId; kNoSegment for others.
  std::vector<ir::OpId> definition;  // Indexed by ValueId; invalid for parameters.
};
inline constexpr uint32_t kNoSegment = 0xffffffffu;

// Returns true if an interval may execute the operation again instead of keeping its result.
bool IsCheapAndPure(const ir::Op& op);

// Requires a verified module after the pipeline. Returns kUnimplemented with the reason when the kernel cannot be
// split.
StatusOr<GroupPlan> PlanGroup(const ir::Module& module);

// Returns, by OpId, the blocks, loops and ifs at group level. The result depends on structure alone.
std::vector<bool> FindGroupLevel(const ir::Function& entry);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_GANG_GROUP_PLAN_H_
