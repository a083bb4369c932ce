// SPDX-License-Identifier: Apache-2.0
// Decides how a kernel with barriers runs a whole group at a time. Internal to split_barriers.
//
// Control around barriers is the same for all of a group, so it runs once a group (group level): constructs that hold a
// barrier or a local_alloc, and those whose jumps end such a construct. What stands between is cut into segments, each
// of which runs for every instance before the next begins: fission and interchange as in Moses et al. (PPoPP 2023).
//
// Conditions at group level that are not surely the same are compared when they have been computed, and instances that
// differ trap as at a barrier (S41, S42). That is right only if the ways lead to different barriers, or one to the end;
// other kernels are refused.
//
// The last part of a region at group level that has no more barriers may leave by several jumps to one place, apart
// for each instance: it is one segment, the region's tail.
#ifndef HPVMD_COMPILER_PASS_GANG_GROUP_PLAN_H_
#define HPVMD_COMPILER_PASS_GANG_GROUP_PLAN_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/status.h"
#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

// Where a jump goes; the end of the function when `op` is invalid.
struct GroupTarget {
  ir::OpId op;
  bool is_continue = false;
  friend bool operator==(const GroupTarget&, const GroupTarget&) = default;
};

struct SegmentPlan {
  std::vector<ir::OpId> ops;  // Of one region, in order. A tail's include the terminator.
  // What an instance keeps at the end: results or parameters of constructs at group level, and their values.
  std::vector<std::pair<ir::ValueId, ir::ValueId>> passes;
  ir::OpId checked;  // An if or leave_table whose condition is compared at the end; invalid for none.
  bool is_tail = false;
  GroupTarget tail_target;
};

struct GroupStep {
  enum class Kind : uint8_t { kSegment, kScalar, kConstruct, kEnd };
  Kind kind = Kind::kSegment;
  uint32_t segment = 0;  // kSegment.
  ir::OpId op;           // kScalar: done once; kConstruct: a block, loop or if at group level; kEnd: a terminator.
};

struct GroupPlan {
  std::vector<SegmentPlan> segments;
  std::vector<std::vector<GroupStep>> steps;  // By RegionId; of regions at group level.
  // By RegionId: the jump of all of its tail; only if its last step is a segment that is a tail.
  std::vector<std::optional<GroupTarget>> tails;
  std::vector<bool> is_scalar;       // By ValueId: the same for all of the group and known at group level.
  std::vector<bool> for_first;       // By ValueId: can be computed at group level, for the group's first instance.
  std::vector<bool> is_passed;       // By ValueId: a construct's parameter or result at group level that is no scalar.
  std::vector<bool> is_kept;         // By ValueId: a segment's value that others read back instead of making it again.
  std::vector<uint32_t> segment_of;  // By ValueId; kNoSegment for others.
  std::vector<ir::OpId> definition;  // By ValueId; invalid for parameters.
};
inline constexpr uint32_t kNoSegment = 0xffffffffu;

// Whether another instance-level place may do the operation again instead of keeping its result.
bool IsCheapAndPure(const ir::Op& op);

// Requires a verified module after the pipeline. kUnimplemented with the reason when the kernel cannot be split.
StatusOr<GroupPlan> PlanGroup(const ir::Module& module);

// By OpId: blocks, loops and ifs at group level. Structure alone decides.
std::vector<bool> FindGroupLevel(const ir::Function& entry);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_GANG_GROUP_PLAN_H_
