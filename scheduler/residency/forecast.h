// SPDX-License-Identifier: Apache-2.0
// Forecasts how long a memory plan takes, by executing its own steps, segment by segment, in virtual time. Placement
// searches with a faster model of copies; this forecast decides whether launches are cut, and is the standard to which
// runs are compared later. Pure.
//
// Model of a run: each lane of a device executes its segments in order; a segment begins when the segments that it
// waits for have ended. Segments of the processor share the submitting thread; launches within one of them run
// concurrently if they were planned so. Devices of one silicon take turns. Copies between host memory and a space have
// the direction's link to themselves and, when the device copies concurrently with launches, also the host's copy
// bandwidth.
#ifndef HPVMD_SCHEDULER_RESIDENCY_FORECAST_H_
#define HPVMD_SCHEDULER_RESIDENCY_FORECAST_H_

#include <span>

#include "base/clock.h"
#include "scheduler/cost/cost_model.h"
#include "scheduler/residency/residency.h"

namespace hpvm::scheduler {

struct ForecastInput {
  const Residency& residency;
  std::span<const DeviceFacts> devices;  // The devices for which the plan was made.
  std::span<const Task> tasks;           // The tasks for which the plan was made; they give the launch times.
  const CostModel& costs;                // Costs of copies.
  uint32_t repeat = 1;                   // Number of runs of the body between prologue and epilogue; at least 1.
};

// Returns the time of one body, with an equal share of the prologue and epilogue. Time and memory are linear in the
// number of steps times the number of lanes used.
Duration Forecast(const ForecastInput& input);

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_RESIDENCY_FORECAST_H_
