// SPDX-License-Identifier: Apache-2.0
// Messages between a client that needs something built, its supervisor, and a persistent worker: heads of frames
// (base/io/frame_socket.h), as in proto/internal/builder.proto. The users of this protocol define the contents of
// requests, answers and notes.
//
//   client → supervisor   hello, once and first
//   client → supervisor   request, any number under way; supervisor → client   answer, in the order of completion
//   client → supervisor   cancel, for a request that is not answered yet: it is forgotten, and has no answer
//   client → supervisor   note, no answer
//   supervisor → worker   request, one at a time; worker → supervisor   answer, with id 0 when it has loaded
//
// Each end closes the connection at the first malformed message; the supervisor exits when the client goes away.
#ifndef HPVMD_BUILDER_MESSAGE_H_
#define HPVMD_BUILDER_MESSAGE_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/io/frame_socket.h"
#include "base/status.h"
#include "base/unchecked.h"
#include "proto/internal/builder.pb.h"

namespace hpvm::builder {

using internal::BuildMessage;

// Returns the frame's head for a message, with this build's version.
std::string HeadOf(BuildMessage message);
std::string AnswerHead(uint64_t id, std::string payload);
// Returns the message in the frame's head, if it obeys the rules of builder.proto and the frame has no unexpected body
// or descriptor. The reader checks the contents of requests, answers and notes.
StatusOr<BuildMessage> ReadMessage(const Frame& frame);

using BuildKey = std::array<uint8_t, 32>;
struct BuildHello {
  BuildKey key{};  // Tags cached files.
  // Belongs to one tenant; empty: nothing is cached. It is sent by the socket, since command lines are readable by
  // everyone on the machine, and so that a supervisor can be started before its tenant is known.
  std::string cache_folder;
};
std::string HeadOf(const BuildHello& hello);
StatusOr<BuildHello> ReadHello(const Frame& frame);

}  // namespace hpvm::builder

#endif  // HPVMD_BUILDER_MESSAGE_H_
