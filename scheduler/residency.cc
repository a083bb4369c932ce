// SPDX-License-Identifier: Apache-2.0
#include "scheduler/residency.h"

#include <utility>

#include "scheduler/residency_segments.h"
#include "scheduler/residency_walk.h"

namespace hpvm::scheduler {

StatusOr<Residency> PlanResidency(const ResidencyInput& input, uint32_t* culprit) {
  HPVMD_ASSIGN_OR_RETURN(Residency residency, ResidencyWalk(input).Run(culprit));
  residency.body = CutSegments(input, 0, static_cast<uint32_t>(residency.steps.size()), residency);
  return residency;
}

}  // namespace hpvm::scheduler
