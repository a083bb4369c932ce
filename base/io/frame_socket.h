// SPDX-License-Identifier: Apache-2.0
// Frames over a Unix stream socket, with file descriptors: the transport between daemon, executor and compiler.
//
// A frame is a 16-byte header {u32 magic, u32 head bytes, u32 body bytes, u32 descriptors}, followed by a head (a small
// protobuf message) and a body (raw bytes: an inline tensor, an image). Each end treats the other as hostile: every
// length is compared with the caller's limits before a byte is read, surplus descriptors are closed, and a malformed
// frame ends the connection.
#ifndef HPVMD_BASE_IO_FRAME_SOCKET_H_
#define HPVMD_BASE_IO_FRAME_SOCKET_H_

#include <sys/types.h>
#include <sys/uio.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/io/fd.h"
#include "base/status.h"

namespace hpvm {

struct FrameHeader {
  uint32_t magic;
  uint32_t head_bytes;
  uint32_t body_bytes;
  uint32_t fds;
};
static_assert(sizeof(FrameHeader) == 16);
inline constexpr uint32_t kFrameMagic = 0x48504d31;  // "1MPH"
// Limit of descriptors per frame, regardless of the caller's limits.
inline constexpr size_t kFrameFdsMax = 16;

struct FrameLimits {
  uint32_t head_bytes_max = 64 * 1024;
  uint32_t body_bytes_max = 8 * 1024 * 1024;
  uint32_t fds_max = 16;
};

struct Frame {
  std::string head;
  std::vector<uint8_t> body;
  std::vector<UniqueFd> fds;
};

// Returns kInvalidArgument when the header violates the format or a limit. For readers that do not block.
Status CheckFrameHeader(const FrameHeader& header, const FrameLimits& limits);

// Returns a connected pair; both ends are close-on-exec.
StatusOr<std::pair<UniqueFd, UniqueFd>> CreateSocketPair();

// Sends one whole frame. Blocks while the peer does not read, until `deadline` (RealClock). Descriptors remain the
// caller's. Used by one thread at a time. Errors: kUnavailable when the peer is gone, kDeadlineExceeded when it does
// not read.
Status SendFrame(int socket, std::string_view head, std::span<const uint8_t> body = {}, std::span<const int> fds = {},
                 Time deadline = kNever);

// Calls sendmsg once; descriptors go with it. Returns 0 when the socket takes nothing now, negative with errno on
// failure.
ssize_t SendOnce(int socket, std::span<iovec> parts, std::span<const int> fds, bool wait);

// Receives one whole frame. Returns kUnavailable when the peer has closed the socket, and kInvalidArgument when the
// frame violates the format or a limit, after which the connection is unusable. Used by one thread at a time. Received
// descriptors are close-on-exec.
StatusOr<Frame> ReceiveFrame(int socket, const FrameLimits& limits, Time deadline = kNever);

}  // namespace hpvm

#endif  // HPVMD_BASE_IO_FRAME_SOCKET_H_
