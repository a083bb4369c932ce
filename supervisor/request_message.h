// SPDX-License-Identifier: Apache-2.0
// Encodes requests to an executor: the message, and the bytes and descriptors that accompany it.
#ifndef HPVMD_SUPERVISOR_REQUEST_MESSAGE_H_
#define HPVMD_SUPERVISOR_REQUEST_MESSAGE_H_

#include <functional>
#include <span>
#include <vector>

#include "base/io/fd.h"
#include "supervisor/executor_process.h"

namespace hpvm::supervisor {

// A frame, ready to send. `body` views `storage`, or the caller's bytes when there is a single piece; `fds` holds
// `copy`, or the caller's descriptors.
struct EncodedRequest {
  internal::Envelope envelope;
  std::span<const uint8_t> body{};
  std::vector<uint8_t> storage{};
  std::vector<int> fds{};
  UniqueFd copy{};
};

// Adds existing bytes: small ones to the body, in which case `range` returns the range to fill in; larger ones in a
// memfd.
Status AddSource(const BytesSource& source, EncodedRequest* request, const std::function<internal::Range*()>& range);
// Both return kInvalidArgument for input that the protocol does not support. The modules and memories that a request
// names are sent before it.
Status EncodePrepare(const PrepareInput& input, EncodedRequest* request);
Status EncodeRun(const RunInput& input, EncodedRequest* request);

}  // namespace hpvm::supervisor

#endif  // HPVMD_SUPERVISOR_REQUEST_MESSAGE_H_
