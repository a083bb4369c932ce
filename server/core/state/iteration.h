// SPDX-License-Identifier: Apache-2.0
// Checks a request's options for repetitions of a run before they are sent to an executor.
#ifndef HPVMD_SERVER_CORE_STATE_ITERATION_H_
#define HPVMD_SERVER_CORE_STATE_ITERATION_H_

#include <string>

#include "base/status.h"
#include "hpvm/v1/job.pb.h"
#include "proto/internal/executor.pb.h"

namespace hpvm::server {

// Sets the options of repetitions other than their number. Returns kInvalidArgument for a name that no port can have.
Status SetIteration(const google::protobuf::RepeatedPtrField<v1::Rotation>& rotations, const std::string& until,
                    internal::RunOptions* options);
// Reads a RunRequest or a SubmitRequest.
template <typename Request>
Status SetIteration(const Request& request, internal::RunOptions* options) {
  return SetIteration(request.rotations(), request.until(), options);
}

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_STATE_ITERATION_H_
