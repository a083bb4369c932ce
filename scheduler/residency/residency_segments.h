// SPDX-License-Identifier: Apache-2.0
// Cuts steps into segments, in an order that lets one thread submit ahead (part of PlanResidency).
//
// Each lane of a device keeps the plan's order; between lanes only conflicts of bytes count. A segment is cut where
// another lane waits for the work done so far, or where it would itself have to wait for more, unless it does not yet
// have enough work to justify a submission. Copies to the host for which no lane waits count with their own time: many
// small ones do not justify a submission each. Lanes that only queue work come before those that occupy the submitting
// thread.
#ifndef HPVMD_SCHEDULER_RESIDENCY_RESIDENCY_SEGMENTS_H_
#define HPVMD_SCHEDULER_RESIDENCY_RESIDENCY_SEGMENTS_H_

#include <cstdint>

#include "scheduler/residency/residency.h"

namespace hpvm::scheduler {

// Reorders the steps [first, first + count) of `residency` with their touches, and appends their segments and waits.
// Earlier steps already have segments, for which nothing waits.
StepRange CutSegments(const ResidencyInput& input, uint32_t first, uint32_t count, Residency& residency);

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_RESIDENCY_RESIDENCY_SEGMENTS_H_
