// SPDX-License-Identifier: Apache-2.0
// How probes answer: lines for people, and a message for whoever started them.
#ifndef HPVMD_EXECUTOR_PROBE_OUTPUT_H_
#define HPVMD_EXECUTOR_PROBE_OUTPUT_H_

#include <string>

#include "base/status.h"
#include "proto/internal/executor.pb.h"

namespace hpvm::executor {

// A JSON string of at most kNameBytesMax clean bytes of `text`.
std::string Quoted(const std::string& text);
// On standard output, where perhaps nobody listens. Not by stdio, which asks for facts that the filter refuses.
void PutLine(const std::string& line);
// Whether kExecutorSocket is a socket. Call before the process locks itself down: the filter refuses the question.
bool HasSocket();
// On kExecutorSocket.
Status SendAnswer(const internal::Envelope& answer);

}  // namespace hpvm::executor

#endif  // HPVMD_EXECUTOR_PROBE_OUTPUT_H_
