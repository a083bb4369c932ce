// SPDX-License-Identifier: Apache-2.0
// Output of probes: lines for people, and a message for the parent process.
#ifndef HPVMD_EXECUTOR_PROBE_OUTPUT_H_
#define HPVMD_EXECUTOR_PROBE_OUTPUT_H_

#include <string>

#include "base/status.h"
#include "proto/internal/executor.pb.h"

namespace hpvm::executor {

// Returns a JSON string of at most kNameBytesMax clean bytes of `text`.
std::string Quoted(const std::string& text);
// Writes to standard output, which may have no reader. Does not use stdio, whose system calls the filter refuses.
void PutLine(const std::string& line);
// Returns true when kExecutorSocket is a socket. Call before the lock-down, because the filter refuses the query.
bool HasSocket();
// Sends the answer on kExecutorSocket.
Status SendAnswer(const internal::Envelope& answer);

}  // namespace hpvm::executor

#endif  // HPVMD_EXECUTOR_PROBE_OUTPUT_H_
