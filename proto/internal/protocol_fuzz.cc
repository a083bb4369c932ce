// SPDX-License-Identifier: Apache-2.0
// Heads of frames from a hostile peer, both ways: the first byte says which. Whatever is accepted must survive being
// used.
#include <stddef.h>

#include "proto/internal/executor_request.h"
#include "proto/internal/protocol.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hpvm;
  if (size < 3) {
    return 0;
  }
  const std::string_view head(reinterpret_cast<const char*>(data) + 3, size - 3);
  const size_t body_bytes = data[1] * size_t{16};
  internal::Envelope envelope;
  if ((data[0] & 1) == 0) {
    DecodeToExecutor(head, body_bytes, data[2] & 1, &envelope).IgnoreError();
    return 0;
  }
  if (!DecodeFromExecutor(head, body_bytes, data[2] & 1, &envelope).ok()) {
    return 0;
  }
  const ExecutorDevice devices[2] = {};
  if (envelope.has_run_done()) {
    const StatusOr<RunReply> reply = DecodeRunDone(envelope.run_done(), std::vector<uint8_t>(body_bytes), devices);
    uint64_t sum = 0;
    if (reply.ok()) {
      for (const OutputTensor& output : reply->outputs) {
        for (const uint8_t byte : output.data) {
          sum += byte;
        }
      }
    }
    HPVMD_CHECK(sum == 0);  // The body is zero; reading it is what is tested.
  } else if (envelope.has_prepared()) {
    DecodePrepared(envelope.prepared());
  } else if (envelope.has_ready()) {
    DecodeReady(envelope.ready());
  }
  return 0;
}
