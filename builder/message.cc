// SPDX-License-Identifier: Apache-2.0
#include "builder/message.h"

#include <algorithm>
#include <utility>

namespace hpvm::builder {
namespace {

// Both ends are of one build, but a program may be replaced while another one runs.
constexpr uint32_t kVersion = 8;
constexpr size_t kFolderBytesMax = 4096;

}  // namespace

std::string HeadOf(BuildMessage message) {
  message.set_version(kVersion);
  return message.SerializeAsString();
}

std::string AnswerHead(uint64_t id, std::string payload) {
  BuildMessage message;
  message.set_id(id);
  message.set_answer(std::move(payload));
  return HeadOf(std::move(message));
}

StatusOr<BuildMessage> ReadMessage(const Frame& frame) {
  HPVMD_ASSIGN_OR_RETURN(Unchecked<BuildMessage> said, ParseUnchecked<BuildMessage>(frame.head));
  return std::move(said).Open([&](BuildMessage message) -> StatusOr<BuildMessage> {
    const bool needs_id = message.has_request() || message.has_cancel();
    const bool is_alone = message.has_hello() || message.has_cancel();
    if (message.version() != kVersion || message.says_case() == BuildMessage::SAYS_NOT_SET ||
        (needs_id && message.id() == 0) || (is_alone && !(frame.body.empty() && frame.fds.empty()))) {
      return InvalidArgument("A builder's message is malformed or of another version.");
    }
    return message;
  });
}

std::string HeadOf(const BuildHello& hello) {
  BuildMessage message;
  message.mutable_hello()->set_key(hello.key.data(), hello.key.size());
  message.mutable_hello()->set_cache_folder(hello.cache_folder);
  return HeadOf(std::move(message));
}

StatusOr<BuildHello> ReadHello(const Frame& frame) {
  HPVMD_ASSIGN_OR_RETURN(const BuildMessage message, ReadMessage(frame));
  BuildHello hello;
  if (message.hello().key().size() != hello.key.size() || message.hello().cache_folder().size() > kFolderBytesMax) {
    return InvalidArgument("A builder's first message is not a hello.");
  }
  std::copy_n(message.hello().key().begin(), hello.key.size(), hello.key.begin());
  hello.cache_folder = message.hello().cache_folder();
  return hello;
}

}  // namespace hpvm::builder
