// SPDX-License-Identifier: Apache-2.0
// SplitBarriers cuts a kernel at its barriers, so that a whole group can run in lockstep without a fiber per instance.
//
// The result is a module with new functions behind the kernel's own:
//   the driver  has the entry's type and runs once per group, as if it were the group's first instance: control around
//               barriers, uniform values, local_alloc, and calls of the intervals' loops in between;
//   a loop      one per interval, called by the driver with scalars; its body is a stub that the back end replaces by
//               a loop over the gangs of the group;
//   a gang      one per interval: an instance's work there, an ordinary kernel without barriers. Its parameters are
//               the loop's and one more, of the address type.
// Values that an instance keeps from one interval to another are loads and stores of Space::kPrivate in gang functions:
// the operand is that last parameter (the location of the gang's values), the immediate the offset of the value in an
// instance's value_bytes. A minimum cut by bytes (min_cut.h) selects the values to keep; others are recomputed.
//
// local_id becomes instance_id minus a parameter, group_id a parameter, so that gangs, which lie within a group, see
// values that are uniform or grow by one.
#ifndef HPVMD_COMPILER_PASS_GANG_SPLIT_BARRIERS_H_
#define HPVMD_COMPILER_PASS_GANG_SPLIT_BARRIERS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "compiler/api/report.h"
#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

// After the interval all instances of the group must have the same i32 at `place` of their values: the loop's result.
struct GroupCheck {
  uint32_t place = 0;
  // Indexed by that number: the place in the module of the next barrier on that branch, if any; instances that differ
  // trap with this place.
  std::vector<std::optional<uint32_t>> barriers;
  uint32_t function = 0;  // The function that contains the barriers.
};

struct BarrierInterval {
  ir::FunctionId loop, gang;
  std::optional<GroupCheck> check;
  std::vector<ir::OpId> original;  // Indexed by OpId of the gang: the entry's operation that it copies, or invalid.
};

struct GroupSplit {
  ir::Module module;  // Without data; the entry is the driver.
  std::vector<BarrierInterval> intervals;
  uint32_t value_bytes = 0;  // Bytes that an instance keeps.
};

// Maximum bytes that an instance of a group may keep, so that a group of 1,024 fits into a cache.
inline constexpr uint32_t kGroupValueBytesMax = 1024;

// Requires a verified module after the pipeline, with a barrier or local_alloc. Returns kUnimplemented with the reason
// when control around barriers has another form. `report` may be null.
StatusOr<GroupSplit> SplitBarriers(const ir::Module& module, KernelReport* report = nullptr);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_GANG_SPLIT_BARRIERS_H_
