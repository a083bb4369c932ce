// SPDX-License-Identifier: Apache-2.0
#include "executor/probe_output.h"

#include <sys/socket.h>
#include <unistd.h>

#include "base/io/frame_socket.h"
#include "executor/launcher.h"
#include "proto/internal/protocol.h"

namespace hpvm::executor {

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : CleanText(text, kNameBytesMax, false)) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
    }
    quoted += c;
  }
  return quoted + "\"";
}

void PutLine(const std::string& line) {
  const std::string whole = line + "\n";
  const ssize_t put = write(STDOUT_FILENO, whole.data(), whole.size());
  (void)put;
}

bool HasSocket() {
  int type;
  socklen_t length = sizeof(type);
  return getsockopt(kExecutorSocket, SOL_SOCKET, SO_TYPE, &type, &length) == 0;
}

Status SendAnswer(const internal::Envelope& answer) {
  return SendFrame(kExecutorSocket, answer.SerializeAsString());
}

}  // namespace hpvm::executor
