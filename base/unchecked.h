// SPDX-License-Identifier: Apache-2.0
// Unchecked holds a message from another process. It can be read only through a check, so that no message is passed on
// unchecked: proto/internal/protocol.h checks messages of the daemon and executors; builder/message.h and its users
// check messages of builders.
#ifndef HPVMD_BASE_UNCHECKED_H_
#define HPVMD_BASE_UNCHECKED_H_

#include <string_view>
#include <utility>

#include "base/status.h"

namespace hpvm {

template <typename Message>
class Unchecked {
 public:
  explicit Unchecked(Message message) : message_(std::move(message)) {}
  Unchecked(Unchecked&&) = default;
  Unchecked& operator=(Unchecked&&) = default;

  // Passes the message by value to `check` and returns its result, a StatusOr.
  template <typename Check>
  auto Open(Check check) && {
    return check(std::move(message_));
  }

 private:
  Message message_;
};

// Returns kInvalidArgument when the bytes are no such protobuf message. The caller limits the number of bytes: small
// messages inside a message take many times their encoded size in memory.
template <typename Message>
StatusOr<Unchecked<Message>> ParseUnchecked(std::string_view bytes) {
  Message message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return InvalidArgument("A message of " + std::to_string(bytes.size()) +
                           " bytes from another process is malformed.");
  }
  return Unchecked<Message>(std::move(message));
}

}  // namespace hpvm

#endif  // HPVMD_BASE_UNCHECKED_H_
