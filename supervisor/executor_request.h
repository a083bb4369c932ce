// SPDX-License-Identifier: Apache-2.0
// Between the link's plain structs and the wire's messages.
#ifndef HPVMD_SUPERVISOR_EXECUTOR_REQUEST_H_
#define HPVMD_SUPERVISOR_EXECUTOR_REQUEST_H_

#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/io/frame_socket.h"
#include "proto/internal/protocol.h"
#include "supervisor/executor_link.h"

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
Status EncodeOutputShapes(uint64_t handle, const std::vector<InputTensor>& inputs,
                          const std::map<std::string, int64_t>& symbols, EncodedRequest* request);
internal::Envelope EncodeHello(const ExecutorOptions& options);

// Of messages that DecodeFromExecutor accepted.
ExecutorReady DecodeReady(const internal::Ready& ready);
PrepareReply DecodePrepared(const internal::Prepared& prepared);
std::vector<OutputTensor> DecodeOutputs(const google::protobuf::RepeatedPtrField<internal::OutputTensor>& outputs,
                                        std::span<const uint8_t> body);
// Fails when it names a device that `devices` does not have.
StatusOr<ExecutorCosts> DecodeCostList(const internal::Costs& costs, std::span<const ExecutorDevice> devices);
// Takes the frame's body. Fails when a node names a device that `devices` does not have.
StatusOr<RunReply> DecodeRunDone(const internal::RunDone& done, std::vector<uint8_t> body,
                                 std::span<const ExecutorDevice> devices);

}  // namespace hpvm

#endif  // HPVMD_SUPERVISOR_EXECUTOR_REQUEST_H_
