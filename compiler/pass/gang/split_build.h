// SPDX-License-Identifier: Apache-2.0
// Builds the functions of a kernel that is cut at its barriers. Internal to split_barriers.
#ifndef HPVMD_COMPILER_PASS_GANG_SPLIT_BUILD_H_
#define HPVMD_COMPILER_PASS_GANG_SPLIT_BUILD_H_

#include <cstdint>
#include <vector>

#include "compiler/pass/gang/group_plan.h"
#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

inline constexpr uint32_t kNoPlace = 0xffffffffu;

struct GroupPlaces {
  std::vector<uint32_t> of;  // By ValueId: in an instance's values; kNoPlace for those not kept.
  uint32_t check = 0;
  uint32_t bytes = 0;
};

// What the driver passes to a segment: a scalar of the entry, or what `query` of `dimension` gives for the group's
// first instance.
struct SegmentArgument {
  ir::ValueId scalar;  // Invalid for a query.
  ir::Opcode query = ir::Opcode::kInstanceId;
  uint32_t dimension = 0;
  ir::Type type = ir::Type::kI32;
  friend bool operator==(const SegmentArgument&, const SegmentArgument&) = default;
};

struct SegmentFunctions {
  bool has_effects = false;  // Else there is nothing to run.
  ir::Function loop, gang;
  std::vector<SegmentArgument> arguments;
  std::vector<ir::OpId> original;
};
SegmentFunctions BuildSegment(const ir::Module& module, const ir::Function& entry, const GroupPlan& plan,
                              const GroupPlaces& places, uint32_t segment);

struct SegmentCall {
  ir::FunctionId loop;  // Invalid when there is nothing to run.
  std::vector<SegmentArgument> arguments;
  bool is_checked = false;
};
ir::Function BuildDriver(const ir::Module& module, const ir::Function& entry, const GroupPlan& plan,
                         const std::vector<SegmentCall>& calls);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_GANG_SPLIT_BUILD_H_
