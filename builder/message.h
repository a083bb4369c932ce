// SPDX-License-Identifier: Apache-2.0
// Messages between a process that wants something built, the supervisor that has it built, and a worker that stays:
// heads of frames (base/io/frame_socket.h). The users decide what a request, an answer and a note hold.
//
//   client → supervisor   kHello, once and first
//   client → supervisor   kRequest, any number under way; supervisor → client   kAnswer, in the order of completion
//   client → supervisor   kCancel, for a request that is not answered yet: it is forgotten, and has no answer
//   client → supervisor   kNote, no answer
//   supervisor → worker   kRequest, one at a time; worker → supervisor   kAnswer, with id 0 when it has loaded
//
// Each end closes the connection at the first malformed message; the supervisor exits when the client goes away.
#ifndef HPVMD_BUILDER_MESSAGE_H_
#define HPVMD_BUILDER_MESSAGE_H_

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/io/frame_socket.h"
#include "base/status.h"

namespace hpvm {

struct BuildMessage {
  enum class Kind : uint8_t { kHello = 1, kRequest = 2, kAnswer = 3, kCancel = 4, kNote = 5 };
  Kind kind = Kind::kRequest;
  uint64_t id = 0;                   // The request's number, which is not 0.
  std::span<const uint8_t> payload;  // Borrowed.
};
std::vector<uint8_t> EncodeMessage(const BuildMessage& message);
// Borrows the frame's head.
StatusOr<BuildMessage> DecodeMessage(const Frame& frame);

using BuildKey = std::array<uint8_t, 32>;
struct BuildHello {
  BuildKey key{};  // Tags what is kept.
  // Belongs to one tenant; empty: nothing is kept. It comes by the socket, since everybody on the machine may read a
  // command line, and so that a supervisor can be started before its tenant is known.
  std::string cache_folder;
};
std::vector<uint8_t> EncodeHello(const BuildHello& hello);
StatusOr<BuildHello> DecodeHello(const Frame& frame);

}  // namespace hpvm

#endif  // HPVMD_BUILDER_MESSAGE_H_
