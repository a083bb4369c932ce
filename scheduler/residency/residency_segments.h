// SPDX-License-Identifier: Apache-2.0
// Of PlanResidency: cuts steps into segments, in an order that lets one thread submit ahead.
//
// Each lane of a device keeps the plan's order; between lanes only conflicts of bytes count. A segment is cut where
// another lane waits for what is done so far, or where it would have to wait for more itself, unless it has not done
// enough yet to be worth a submission. Copies to the host for which nobody waits count for what they take: many small
// ones are not worth a submission each. Lanes that only queue are served before those that occupy the submitting
// thread.
#ifndef HPVMD_SCHEDULER_RESIDENCY_RESIDENCY_SEGMENTS_H_
#define HPVMD_SCHEDULER_RESIDENCY_RESIDENCY_SEGMENTS_H_

#include <cstdint>

#include "scheduler/residency/residency.h"

namespace hpvm::scheduler {

// Reorders the steps [first, first + count) of `residency` with their touches, and appends their segments and waits.
// Earlier steps have their segments; nothing waits for those.
StepRange CutSegments(const ResidencyInput& input, uint32_t first, uint32_t count, Residency& residency);

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_RESIDENCY_RESIDENCY_SEGMENTS_H_
