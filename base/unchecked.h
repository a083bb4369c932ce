// SPDX-License-Identifier: Apache-2.0
// A message as another process sent it. Nothing can be read from it but through a check, so that none is handed on
// without one: proto/internal/protocol.h checks what daemon and executors say, builder/message.h and its users what
// builders say.
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

  // Returns what `check`, which gets the message by value, makes of it: a StatusOr.
  template <typename Check>
  auto Open(Check check) && {
    return check(std::move(message_));
  }

 private:
  Message message_;
};

// kInvalidArgument when the bytes are no such message of Protobuf. The caller limits how many bytes there are: small
// messages inside a message take many times their bytes as memory.
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
