// SPDX-License-Identifier: Apache-2.0
// Cuts a kernel at its barriers, so that a whole group can run in lockstep without a fiber an instance.
//
// The result is a module with new functions behind the kernel's own:
//   the driver  has the entry's type and runs once a group, as if it were the group's first instance: control around
//               barriers, what is the same for all, local_alloc, and calls of the segments' loops between;
//   a loop      one a segment, called by the driver with scalars; its body is a stub, the back end's is a loop over the
//               gangs of the group;
//   a gang      one a segment: what an instance does there, an ordinary kernel without barriers. Its parameters are
//               the loop's and one more, of the address type.
// What an instance keeps from one segment to another are loads and stores of Space::kPrivate in gang functions: the
// operand is that last parameter (where the gang's values lie), the immediate the value's place in an instance's
// value_bytes. Which values are kept and which are made again is a minimum cut by bytes (min_cut.h).
//
// local_id becomes instance_id less a parameter, group_id a parameter, so that gangs, which lie within a group, see
// numbers that are the same or grow by one.
#ifndef HPVMD_COMPILER_PASS_GANG_SPLIT_BARRIERS_H_
#define HPVMD_COMPILER_PASS_GANG_SPLIT_BARRIERS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "compiler/api/report.h"
#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

// After the segment all instances of the group must have the same i32 at `place` of their values: the loop's result.
struct GroupCheck {
  uint32_t place = 0;
  // By that number: where in the module the barrier stands that an instance goes to next, if it goes to one; others
  // are trapped for it.
  std::vector<std::optional<uint32_t>> barriers;
  uint32_t function = 0;  // Where those stand.
};

struct GroupSegment {
  ir::FunctionId loop, gang;
  std::optional<GroupCheck> check;
  std::vector<ir::OpId> original;  // By OpId of the gang: the operation of the entry that it is a copy of, or none.
};

struct GroupSplit {
  ir::Module module;  // Without data; the entry is the driver.
  std::vector<GroupSegment> segments;
  uint32_t value_bytes = 0;  // That an instance keeps.
};

// What an instance of a group may keep, so that a group of 1,024 fits into a cache.
inline constexpr uint32_t kGroupValueBytesMax = 1024;

// Requires a verified module after the pipeline, with a barrier or local_alloc. kUnimplemented with the reason when
// control around barriers is of another kind. `report` may be null.
StatusOr<GroupSplit> SplitBarriers(const ir::Module& module, KernelReport* report = nullptr);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_GANG_SPLIT_BARRIERS_H_
