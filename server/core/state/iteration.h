// SPDX-License-Identifier: Apache-2.0
// Repetitions of a run: what a request says of them, checked before an executor sees it.
#ifndef HPVMD_SERVER_CORE_STATE_ITERATION_H_
#define HPVMD_SERVER_CORE_STATE_ITERATION_H_

#include <string>

#include "base/status.h"
#include "hpvm/v1/job.pb.h"
#include "proto/internal/executor.pb.h"

namespace hpvm::server {

// What a request says of repetitions beside their number. kInvalidArgument for what cannot be a port's name.
Status SetIteration(const google::protobuf::RepeatedPtrField<v1::Rotation>& rotations, const std::string& until,
                    internal::RunOptions* options);
// Reads a RunRequest or a SubmitRequest.
template <typename Request>
Status SetIteration(const Request& request, internal::RunOptions* options) {
  return SetIteration(request.rotations(), request.until(), options);
}

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_STATE_ITERATION_H_
