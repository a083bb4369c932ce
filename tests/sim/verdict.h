// SPDX-License-Identifier: Apache-2.0
// Verdict is the result of one seed's world.
#ifndef HPVMD_TESTS_SIM_VERDICT_H_
#define HPVMD_TESTS_SIM_VERDICT_H_

#include <cstdint>
#include <optional>

#include "tests/sim/context.h"

namespace hpvm::server::sim {

struct Verdict {
  std::optional<Failure> failure;
  uint64_t trace_hash = 0, trace_lines = 0;
  // Amount of activity.
  uint64_t jobs = 0, runs = 0, starts = 0, steps = 0;
  Duration simulated{0};
};

}  // namespace hpvm::server::sim

#endif  // HPVMD_TESTS_SIM_VERDICT_H_
