// SPDX-License-Identifier: Apache-2.0
// Requests as they are sent to an executor: what they describe, and the bytes and descriptors that go along.
#ifndef HPVMD_SUPERVISOR_REQUEST_MESSAGE_H_
#define HPVMD_SUPERVISOR_REQUEST_MESSAGE_H_

#include <functional>
#include <span>
#include <vector>

#include "base/io/fd.h"
#include "supervisor/executor_process.h"

namespace hpvm::supervisor {

// A frame, ready to send. `body` views `storage`, or the caller's bytes when there is a single piece; `fds` are `copy`,
// or the caller's.
struct EncodedRequest {
  internal::Envelope envelope;
  std::span<const uint8_t> body{};
  std::vector<uint8_t> storage{};
  std::vector<int> fds{};
  UniqueFd copy{};
};

// Adds bytes that exist already: few in the body, and then `range` gives their place in it to fill; more in a memfd.
Status AddSource(const BytesSource& source, EncodedRequest* request, const std::function<internal::Range*()>& range);
// These two answer kInvalidArgument for what the protocol does not carry. The modules and memories that a request names
// are sent before it.
Status EncodePrepare(const PrepareInput& input, EncodedRequest* request);
Status EncodeRun(const RunInput& input, EncodedRequest* request);

}  // namespace hpvm::supervisor

#endif  // HPVMD_SUPERVISOR_REQUEST_MESSAGE_H_
