// SPDX-License-Identifier: Apache-2.0
#include "base/io/frame_socket.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>

#include "base/io/frame_channel.h"

namespace hpvm {
namespace {

Status WaitFor(int socket, short events, Time deadline) {
  while (true) {
    int timeout_ms = -1;
    if (deadline != kNever) {
      Time left = deadline - RealClock().Now();
      if (left <= Time(0)) {
        return DeadlineExceeded("The peer process does not answer in time.");
      }
      timeout_ms =
          static_cast<int>(std::min<int64_t>(std::chrono::ceil<std::chrono::milliseconds>(left).count(), 1'000'000));
    }
    pollfd item{socket, events, 0};
    int ready = poll(&item, 1, timeout_ms);
    if (ready > 0) {
      return absl::OkStatus();
    }
    if (ready < 0 && errno != EINTR) {
      return FromErrno(errno, "Waiting for the peer process");
    }
  }
}

// Advances `parts` over `done` bytes.
void Consume(std::span<iovec>& parts, size_t done) {
  while (!parts.empty() && done >= parts.front().iov_len) {
    done -= parts.front().iov_len;
    parts = parts.subspan(1);
  }
  if (!parts.empty()) {
    parts.front().iov_base = static_cast<uint8_t*>(parts.front().iov_base) + done;
    parts.front().iov_len -= done;
  }
}

}  // namespace

Status CheckFrameHeader(const FrameHeader& header, const FrameLimits& limits) {
  if (header.magic != kFrameMagic) {
    return InvalidArgument("A frame does not begin with the expected magic number.");
  }
  if (header.head_bytes > limits.head_bytes_max || header.body_bytes > limits.body_bytes_max ||
      header.fds > limits.fds_max) {
    return InvalidArgument("A frame's head (" + std::to_string(header.head_bytes) + " bytes), body (" +
                           std::to_string(header.body_bytes) + " bytes) or descriptors (" + std::to_string(header.fds) +
                           ") exceed the limits (" + std::to_string(limits.head_bytes_max) + ", " +
                           std::to_string(limits.body_bytes_max) + ", " + std::to_string(limits.fds_max) + ").");
  }
  return absl::OkStatus();
}

StatusOr<std::pair<UniqueFd, UniqueFd>> CreateSocketPair() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return FromErrno(errno, "Creating a socket pair");
  }
  return std::pair(UniqueFd(ends[0]), UniqueFd(ends[1]));
}

ssize_t SendOnce(int socket, std::span<iovec> parts, std::span<const int> fds, bool wait) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kFrameFdsMax)];
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(fds.size_bytes());
    memcpy(CMSG_DATA(part), fds.data(), fds.size_bytes());
  }
  while (true) {
    const ssize_t put = sendmsg(socket, &message, MSG_NOSIGNAL | (wait ? 0 : MSG_DONTWAIT));
    if (put >= 0) {
      return put;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return 0;
    }
    if (errno != EINTR) {
      return -1;
    }
  }
}

Status SendFrame(int socket, std::string_view head, std::span<const uint8_t> body, std::span<const int> fds,
                 Time deadline) {
  HPVMD_CHECK(head.size() <= UINT32_MAX && body.size() <= UINT32_MAX && fds.size() <= kFrameFdsMax);
  FrameHeader header{kFrameMagic, static_cast<uint32_t>(head.size()), static_cast<uint32_t>(body.size()),
                     static_cast<uint32_t>(fds.size())};
  iovec pieces[3] = {{&header, sizeof(header)},
                     {const_cast<char*>(head.data()), head.size()},
                     {const_cast<uint8_t*>(body.data()), body.size()}};
  std::span<iovec> parts(pieces);
  while (!parts.empty()) {
    const ssize_t put = SendOnce(socket, parts, fds, false);
    if (put < 0) {
      return FromErrno(errno, "Sending to the peer process");
    }
    if (put == 0) {
      HPVMD_RETURN_IF_ERROR(WaitFor(socket, POLLOUT, deadline));
      continue;
    }
    fds = {};
    Consume(parts, static_cast<size_t>(put));
  }
  return absl::OkStatus();
}

StatusOr<Frame> ReceiveFrame(int socket, const FrameLimits& limits, Time deadline) {
  // A reader with room for only the header takes nothing of the next frame.
  FrameReader reader(socket, limits, sizeof(FrameHeader));
  Frame frame;
  while (true) {
    HPVMD_RETURN_IF_ERROR(reader.Fill(FrameReader::Wait::kNo).status());
    HPVMD_ASSIGN_OR_RETURN(const bool is_whole, reader.Next(&frame));
    if (is_whole) {
      return frame;
    }
    HPVMD_RETURN_IF_ERROR(WaitFor(socket, POLLIN, deadline));
  }
}

}  // namespace hpvm
