// SPDX-License-Identifier: Apache-2.0
// A memory plan carried out in virtual time, as the engine submits it and devices work it off.
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
  // How long a step takes, in nanoseconds; jitter included.
  std::function<int64_t(const scheduler::Step&)> duration;
  uint32_t bodies = 1;  // Iterations.
  uint32_t window = 8;  // Segments of one lane that are submitted and not done.
  // From this moment on the device does nothing any more; negative: never.
  int64_t lost_at = -1;
  scheduler::DeviceIndex lost_device = 0;
  // From this moment on no step begins; negative: never.
  int64_t stop_at = -1;
  uint32_t failing_task = 0xffffffffu;  // Its launch fails.
};

struct Execution {
  std::vector<std::string> faults;  // "property: sentence".
  int64_t end = 0;                  // When everything that was begun is over.
  bool is_complete = false;
  std::vector<scheduler::SegmentState> states;  // Of the body that ran last.
  std::vector<int64_t> task_ns;                 // By task, of that body; -1: did not run.
};

// Everything: prologue, bodies, between which storages trade places, epilogue. Contents are replayed in the order of
// time: what a step reads is looked at when it begins, what it writes is there when it ends.
Execution Execute(const ExecutionInput& input);

}  // namespace hpvm::schedsim

#endif  // HPVMD_TESTS_SCHEDSIM_EXECUTION_H_
