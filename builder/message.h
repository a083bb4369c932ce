// SPDX-License-Identifier: Apache-2.0
// Messages between a process that wants something built, the supervisor that has it built, and a worker that stays:
// heads of frames (base/io/frame_socket.h), proto/internal/builder.proto. The users decide what a request, an answer
// and a note hold.
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

// The frame's head for a message, whose version is this build's.
std::string HeadOf(BuildMessage message);
std::string AnswerHead(uint64_t id, std::string payload);
// The message in the frame's head, if it follows the rules of builder.proto and no body or descriptor comes with it
// that has no use. What a request, an answer and a note hold is their reader's to check.
StatusOr<BuildMessage> ReadMessage(const Frame& frame);

using BuildKey = std::array<uint8_t, 32>;
struct BuildHello {
  BuildKey key{};  // Tags what is kept.
  // Belongs to one tenant; empty: nothing is kept. It comes by the socket, since everybody on the machine may read a
  // command line, and so that a supervisor can be started before its tenant is known.
  std::string cache_folder;
};
std::string HeadOf(const BuildHello& hello);
StatusOr<BuildHello> ReadHello(const Frame& frame);

}  // namespace hpvm::builder

#endif  // HPVMD_BUILDER_MESSAGE_H_
