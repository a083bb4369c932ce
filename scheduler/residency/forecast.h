// SPDX-License-Identifier: Apache-2.0
// How long a memory plan takes: its own steps, segment by segment, worked off in virtual time. Placement searches with
// a quicker model of copies; what decides whether launches are cut, and what runs are held to later, is this. Pure.
//
// The model of a run. Each lane of a device works its segments off in order; a segment begins when those that it waits
// for have ended. Segments of the processor share the submitting thread; launches of one of them that were planned side
// by side run so. Devices of one silicon take turns. Copies between host memory and a space have the direction's link
// to themselves and, where the device copies beside launches, what the host moves for all links together.
#ifndef HPVMD_SCHEDULER_RESIDENCY_FORECAST_H_
#define HPVMD_SCHEDULER_RESIDENCY_FORECAST_H_

#include <span>

#include "base/clock.h"
#include "scheduler/cost/cost_model.h"
#include "scheduler/residency/residency.h"

namespace hpvm::scheduler {

struct ForecastInput {
  const Residency& residency;
  std::span<const DeviceFacts> devices;  // As the plan was made with.
  std::span<const Task> tasks;           // The same; they say how long launches take.
  const CostModel& costs;                // Of copies.
  uint32_t repeat = 1;                   // So often the body runs between prologue and epilogue; at least 1.
};

// The time of one body, with an equal share of what comes before the first and after the last. Time and memory are
// linear in the steps, times the lanes used.
Duration Forecast(const ForecastInput& input);

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_RESIDENCY_FORECAST_H_
