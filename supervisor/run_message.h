// SPDX-License-Identifier: Apache-2.0
// A run as it is sent to an executor: its description, and its inline inputs laid out in the frame's body.
#ifndef HPVMD_SUPERVISOR_RUN_MESSAGE_H_
#define HPVMD_SUPERVISOR_RUN_MESSAGE_H_

#include <span>
#include <vector>

#include "supervisor/executor_process.h"

namespace hpvm {

// A frame's head and body, ready to send. `body` views `storage`, or the caller's bytes when there is a single piece.
struct EncodedRequest {
  internal::Envelope envelope;
  std::span<const uint8_t> body;
  std::vector<uint8_t> storage;
};

// kInvalidArgument for what the protocol does not carry. The memories that a run names are those of its inputs and
// outputs.
Status EncodeRun(const RunInput& input, EncodedRequest* request);

}  // namespace hpvm

#endif  // HPVMD_SUPERVISOR_RUN_MESSAGE_H_
