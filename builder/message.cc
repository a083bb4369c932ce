// SPDX-License-Identifier: Apache-2.0
#include "builder/message.h"

#include <algorithm>
#include <cstring>

namespace hpvm {
namespace {

using Kind = BuildMessage::Kind;

// Both ends are of one build, and yet a program may be replaced while another one runs.
constexpr uint32_t kVersion = 7;
constexpr size_t kFolderBytesMax = 4096;

struct __attribute__((packed)) Head {
  uint32_t version;
  Kind kind;
  uint64_t id;
};
static_assert(sizeof(Head) == 13);

}  // namespace

std::vector<uint8_t> EncodeMessage(const BuildMessage& message) {
  const Head head = {kVersion, message.kind, message.id};
  std::vector<uint8_t> encoded(sizeof(head) + message.payload.size());
  std::memcpy(encoded.data(), &head, sizeof(head));
  std::copy(message.payload.begin(), message.payload.end(), encoded.begin() + sizeof(head));
  return encoded;
}

StatusOr<BuildMessage> DecodeMessage(const Frame& frame) {
  Head head{};
  if (frame.head.size() < sizeof(head)) {
    return InvalidArgument("A builder's message has " + std::to_string(frame.head.size()) + " bytes instead of " +
                           std::to_string(sizeof(head)) + " at least.");
  }
  std::memcpy(&head, frame.head.data(), sizeof(head));
  const std::span<const uint8_t> bytes = {reinterpret_cast<const uint8_t*>(frame.head.data()), frame.head.size()};
  const BuildMessage message = {head.kind, head.id, bytes.subspan(sizeof(head))};
  const bool needs_id = head.kind == Kind::kRequest || head.kind == Kind::kCancel;
  const bool is_empty = message.payload.empty() && frame.body.empty() && frame.fds.empty();
  if (head.version != kVersion || head.kind < Kind::kHello || head.kind > Kind::kNote || (needs_id && head.id == 0) ||
      (head.kind == Kind::kCancel && !is_empty)) {
    return InvalidArgument("A builder's message is malformed or of another version.");
  }
  return message;
}

std::vector<uint8_t> EncodeHello(const BuildHello& hello) {
  std::vector<uint8_t> payload(hello.key.begin(), hello.key.end());
  payload.insert(payload.end(), hello.cache_folder.begin(), hello.cache_folder.end());
  return EncodeMessage({Kind::kHello, 0, payload});
}

StatusOr<BuildHello> DecodeHello(const Frame& frame) {
  HPVMD_ASSIGN_OR_RETURN(const BuildMessage message, DecodeMessage(frame));
  BuildHello hello;
  if (message.kind != Kind::kHello || message.payload.size() < hello.key.size() ||
      message.payload.size() > hello.key.size() + kFolderBytesMax || !frame.body.empty() || !frame.fds.empty()) {
    return InvalidArgument("A builder's first message is not a hello.");
  }
  const std::span<const uint8_t> folder = message.payload.subspan(hello.key.size());
  std::copy_n(message.payload.begin(), hello.key.size(), hello.key.begin());
  hello.cache_folder.assign(folder.begin(), folder.end());
  return hello;
}

}  // namespace hpvm
