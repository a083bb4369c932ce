// SPDX-License-Identifier: Apache-2.0
// Executes a memory plan in virtual time, as the engine submits it and devices process it.
#ifndef HPVMD_TESTS_SCHEDSIM_EXECUTION_H_
#define HPVMD_TESTS_SCHEDSIM_EXECUTION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "scheduler/placement/remainder.h"
#include "scheduler/residency/residency.h"
#include "scheduler/testing/interval_map.h"

namespace hpvm::schedsim {

struct ExecutionInput {
  const scheduler::ResidencyInput& plan_input;
  const scheduler::Residency& plan;
  // Duration of a step in nanoseconds, including jitter.
  std::function<int64_t(const scheduler::Step&)> duration;
  uint32_t bodies = 1;  // Number of iterations.
  uint32_t window = 8;  // Maximum number of submitted unfinished segments of one lane.
  // Time at which the device is lost; never when negative.
  int64_t lost_at = -1;
  scheduler::DeviceIndex lost_device = 0;
  // Time from which no step starts any more; never when negative.
  int64_t stop_at = -1;
  uint32_t failing_task = 0xffffffffu;  // The task whose launch fails.
};

struct Execution {
  std::vector<std::string> faults;  // "property: sentence".
  int64_t end = 0;                  // End of everything that was started.
  bool is_complete = false;
  std::vector<scheduler::SegmentState> states;  // States after the last body.
  std::vector<int64_t> task_ns;                 // Indexed by task, for that body; -1 when it did not run.
};

// Runs everything: prologue, bodies, between which storages are swapped, epilogue. Contents are replayed in order of
// time: a step's inputs are checked when it begins, and its outputs exist when it ends.
Execution Execute(const ExecutionInput& input);

}  // namespace hpvm::schedsim

#endif  // HPVMD_TESTS_SCHEDSIM_EXECUTION_H_
