// SPDX-License-Identifier: Apache-2.0
// Builds the functions of a kernel that is cut at its barriers. Internal to split_barriers.
#ifndef HPVMD_COMPILER_PASS_GANG_SPLIT_BUILD_H_
#define HPVMD_COMPILER_PASS_GANG_SPLIT_BUILD_H_

#include <cstdint>
#include <vector>

#include "compiler/pass/gang/group_plan.h"
#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

inline constexpr uint32_t kNotKept = 0xffffffffu;

struct GroupFrame {
  std::vector<uint32_t> of;  // Indexed by ValueId: offset in an instance's values; kNotKept if not kept.
  uint32_t check = 0;
  uint32_t bytes = 0;
};

// An argument that the driver passes to an interval: a scalar of the entry, or the result of `query` of `dimension` for
// the group's first instance.
struct IntervalArgument {
  ir::ValueId scalar;  // Invalid for a query.
  ir::Opcode query = ir::Opcode::kInstanceId;
  uint32_t dimension = 0;
  ir::Type type = ir::Type::kI32;
  friend bool operator==(const IntervalArgument&, const IntervalArgument&) = default;
};

struct IntervalFunctions {
  bool has_effects = false;  // If false, there is nothing to run.
  ir::Function loop, gang;
  std::vector<IntervalArgument> arguments;
  std::vector<ir::OpId> original;
};
IntervalFunctions BuildInterval(const ir::Module& module, const ir::Function& entry, const GroupPlan& plan,
                                const GroupFrame& places, uint32_t interval);

struct IntervalCall {
  ir::FunctionId loop;  // Invalid when there is nothing to run.
  std::vector<IntervalArgument> arguments;
  bool is_checked = false;
};
ir::Function BuildDriver(const ir::Module& module, const ir::Function& entry, const GroupPlan& plan,
                         const std::vector<IntervalCall>& calls);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_GANG_SPLIT_BUILD_H_
