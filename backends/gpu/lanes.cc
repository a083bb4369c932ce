// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/lanes.h"

namespace hpvm::gpu {

Status Lanes::Submit(const Submission& submission) {
  const Lane lane = has_copy_lanes_ ? submission.lane : Lane::kCompute;
  std::lock_guard lock(mutex_);
  std::unique_ptr<SubmitThread>& thread = threads_[static_cast<size_t>(lane)];
  if (thread == nullptr) {
    HPVMD_ASSIGN_OR_RETURN(Driver * driver, drivers_.OpenLane(lane));
    thread = std::make_unique<SubmitThread>(hub_, *driver, board_, lane, gate_, near_);
  }
  return thread->Submit(submission);
}

}  // namespace hpvm::gpu
