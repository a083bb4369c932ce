// SPDX-License-Identifier: Apache-2.0
#include "base/io/frame_socket.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>

namespace hpvm {
namespace {

constexpr uint32_t kFdsHardMax = 64;  // Below the kernel's SCM_MAX_FD (253).

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

// Takes descriptors out of a received message; all are owned (and so closed) whatever the caller does with them.
void TakeFds(msghdr& message, std::vector<UniqueFd>& fds) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      fds.emplace_back(fd);
    }
  }
}

Status ReceiveAll(int socket, std::span<iovec> parts, std::vector<UniqueFd>& fds, Time deadline) {
  while (!parts.empty()) {
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kFdsHardMax)];
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    ssize_t got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | (deadline == kNever ? 0 : MSG_DONTWAIT));
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      HPVMD_RETURN_IF_ERROR(WaitFor(socket, POLLIN, deadline));
      continue;
    }
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      return FromErrno(errno, "Receiving from the peer process");
    }
    TakeFds(message, fds);
    if (got == 0) {
      return Unavailable("The peer process closed the connection.");
    }
    if ((message.msg_flags & MSG_CTRUNC) != 0) {
      return InvalidArgument("The peer process sent more descriptors than one message may carry.");
    }
    Consume(parts, static_cast<size_t>(got));
  }
  return absl::OkStatus();
}

}  // namespace

Status CheckFrameHeader(const FrameHeader& header, const FrameLimits& limits) {
  if (header.magic != kFrameMagic) {
    return InvalidArgument("A frame does not begin with the expected mark.");
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

Status SendFrame(int socket, std::span<const uint8_t> head, std::span<const uint8_t> body, std::span<const int> fds,
                 Time deadline) {
  HPVMD_CHECK(head.size() <= UINT32_MAX && body.size() <= UINT32_MAX && fds.size() <= kFdsHardMax);
  FrameHeader header{kFrameMagic, static_cast<uint32_t>(head.size()), static_cast<uint32_t>(body.size()),
                     static_cast<uint32_t>(fds.size())};
  iovec pieces[3] = {{&header, sizeof(header)},
                     {const_cast<uint8_t*>(head.data()), head.size()},
                     {const_cast<uint8_t*>(body.data()), body.size()}};
  std::span<iovec> parts(pieces);
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kFdsHardMax)];
  bool fds_sent = fds.empty();
  while (!parts.empty()) {
    if (parts.front().iov_len == 0) {
      parts = parts.subspan(1);
      continue;
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    if (!fds_sent) {
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(fds.size_bytes());
      cmsghdr* part = CMSG_FIRSTHDR(&message);
      part->cmsg_level = SOL_SOCKET;
      part->cmsg_type = SCM_RIGHTS;
      part->cmsg_len = CMSG_LEN(fds.size_bytes());
      memcpy(CMSG_DATA(part), fds.data(), fds.size_bytes());
    }
    ssize_t put = sendmsg(socket, &message, MSG_NOSIGNAL | (deadline == kNever ? 0 : MSG_DONTWAIT));
    if (put < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      HPVMD_RETURN_IF_ERROR(WaitFor(socket, POLLOUT, deadline));
      continue;
    }
    if (put < 0 && errno == EINTR) {
      continue;
    }
    if (put < 0) {
      return FromErrno(errno, "Sending to the peer process");
    }
    fds_sent = true;
    Consume(parts, static_cast<size_t>(put));
  }
  return absl::OkStatus();
}

Status SendFrame(int socket, std::string_view head, std::span<const uint8_t> body, std::span<const int> fds,
                 Time deadline) {
  return SendFrame(socket, std::span(reinterpret_cast<const uint8_t*>(head.data()), head.size()), body, fds, deadline);
}

StatusOr<Frame> ReceiveFrame(int socket, const FrameLimits& limits, Time deadline) {
  FrameHeader header;
  Frame frame;
  iovec first{&header, sizeof(header)};
  HPVMD_RETURN_IF_ERROR(ReceiveAll(socket, std::span(&first, 1), frame.fds, deadline));
  HPVMD_RETURN_IF_ERROR(CheckFrameHeader(header, limits));
  frame.head.resize(header.head_bytes);
  frame.body.resize(header.body_bytes);
  iovec pieces[2] = {{frame.head.data(), frame.head.size()}, {frame.body.data(), frame.body.size()}};
  std::span<iovec> parts(pieces);
  Consume(parts, 0);
  HPVMD_RETURN_IF_ERROR(ReceiveAll(socket, parts, frame.fds, deadline));
  if (frame.fds.size() != header.fds) {
    return InvalidArgument("A frame announces " + std::to_string(header.fds) + " descriptors and carries " +
                           std::to_string(frame.fds.size()) + ".");
  }
  return frame;
}

}  // namespace hpvm
