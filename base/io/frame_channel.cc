// SPDX-License-Identifier: Apache-2.0
#include "base/io/frame_channel.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <utility>

namespace hpvm {
namespace {

// Limit of descriptors waiting while several frames are buffered: a multiple of one frame's limit.
constexpr size_t kWaitingFdsMax = 64;

void TakeFds(msghdr& message, std::vector<UniqueFd>& fds) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      fds.emplace_back(fd);
    }
  }
}

}  // namespace

FrameReader::FrameReader(int socket, const FrameLimits& limits, size_t buffer_bytes)
    : socket_(socket), limits_(limits), buffer_(buffer_bytes) {
  HPVMD_CHECK(buffer_bytes >= sizeof(FrameHeader));
}

StatusOr<bool> FrameReader::Fill(Wait wait) {
  iovec parts[2];
  size_t count = 0;
  if (large_) {
    const size_t head = large_frame_.head.size();
    if (large_done_ < head) {
      parts[count++] = {large_frame_.head.data() + large_done_, head - large_done_};
    }
    const size_t body_done = large_done_ > head ? large_done_ - head : 0;
    parts[count++] = {large_frame_.body.data() + body_done, large_frame_.body.size() - body_done};
  } else {
    if (begin_ != 0) {
      memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
    }
    parts[count++] = {buffer_.data() + end_, buffer_.size() - end_};
  }
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kFrameFdsMax)];
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = count;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t got;
  do {
    got = recvmsg(socket_, &message, MSG_CMSG_CLOEXEC | (wait == Wait::kNo ? MSG_DONTWAIT : 0));
  } while (got < 0 && errno == EINTR);
  if (got < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return false;
    }
    return FromErrno(errno, "Receiving from the peer process");
  }
  TakeFds(message, fds_);
  if (got == 0) {
    return Unavailable("The peer process closed the connection.");
  }
  if ((message.msg_flags & MSG_CTRUNC) != 0 || fds_.size() > kWaitingFdsMax ||
      (limits_.fds_max == 0 && !fds_.empty())) {
    return InvalidArgument("The peer process sent more descriptors than it may.");
  }
  (large_ ? large_done_ : end_) += static_cast<size_t>(got);
  return true;
}

void FrameReader::StartLarge(const FrameHeader& header) {
  large_ = true;
  large_header_ = header;
  large_frame_.head.resize(header.head_bytes);
  large_frame_.body.resize(header.body_bytes);
  begin_ += sizeof(FrameHeader);
  // Fewer bytes have arrived than the frame has, so both copies stay inside it.
  const size_t here = end_ - begin_;
  const size_t head = std::min<size_t>(here, header.head_bytes);
  memcpy(large_frame_.head.data(), buffer_.data() + begin_, head);
  if (here > head) {
    memcpy(large_frame_.body.data(), buffer_.data() + begin_ + head, here - head);
  }
  large_done_ = here;
  begin_ = end_ = 0;
}

StatusOr<bool> FrameReader::FinishFrame(const FrameHeader& header, Frame* frame) {
  if (fds_.size() < header.fds) {
    return InvalidArgument("A frame announces " + std::to_string(header.fds) + " descriptors and carries " +
                           std::to_string(fds_.size()) + ".");
  }
  frame->fds.clear();
  std::move(fds_.begin(), fds_.begin() + header.fds, std::back_inserter(frame->fds));
  fds_.erase(fds_.begin(), fds_.begin() + header.fds);
  if (empty() && !fds_.empty()) {
    return InvalidArgument("The peer process sent a descriptor that no frame announces.");
  }
  return true;
}

StatusOr<bool> FrameReader::Next(Frame* frame) {
  if (large_) {
    if (large_done_ < large_frame_.head.size() + large_frame_.body.size()) {
      return false;
    }
    large_ = false;
    frame->head = std::move(large_frame_.head);
    frame->body = std::move(large_frame_.body);
    large_frame_ = Frame();
    return FinishFrame(large_header_, frame);
  }
  if (end_ - begin_ < sizeof(FrameHeader)) {
    return false;
  }
  FrameHeader header;
  memcpy(&header, buffer_.data() + begin_, sizeof(header));
  HPVMD_RETURN_IF_ERROR(CheckFrameHeader(header, limits_));
  const size_t total = sizeof(header) + header.head_bytes + header.body_bytes;
  if (end_ - begin_ < total) {
    if (total > buffer_.size()) {
      StartLarge(header);
    }
    return false;
  }
  const uint8_t* head = buffer_.data() + begin_ + sizeof(header);
  frame->head.assign(reinterpret_cast<const char*>(head), header.head_bytes);
  frame->body.assign(head + header.head_bytes, head + header.head_bytes + header.body_bytes);
  begin_ += total;
  return FinishFrame(header, frame);
}

FrameWriter::FrameWriter(int socket, Wait wait, size_t queued_bytes_max)
    : socket_(socket), wait_(wait), queued_bytes_max_(queued_bytes_max) {}

void FrameWriter::Keep(const FrameHeader& header, std::string_view head, std::span<const uint8_t> body, size_t skip,
                       std::span<const int> fds) {
  // Small frames without descriptors join the last piece: one system call sends them all.
  const bool join = !queue_.empty() && fds.empty() && queue_.back().bytes.size() < kFrameBufferBytes;
  if (!join) {
    queue_.emplace_back();
  }
  Piece& piece = queue_.back();
  const size_t before = piece.bytes.size();
  piece.bytes.append(reinterpret_cast<const char*>(&header), sizeof(header));
  piece.bytes.append(head);
  piece.bytes.append(reinterpret_cast<const char*>(body.data()), body.size());
  piece.bytes.erase(before, skip);
  queued_bytes_ += piece.bytes.size() - before;
  for (const int fd : fds) {
    piece.fds.emplace_back(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  }
}

Status FrameWriter::Send(std::string_view head, std::span<const uint8_t> body, std::span<const int> fds, bool more) {
  HPVMD_CHECK(fds.size() <= kFrameFdsMax);
  const FrameHeader header{kFrameMagic, static_cast<uint32_t>(head.size()), static_cast<uint32_t>(body.size()),
                           static_cast<uint32_t>(fds.size())};
  const size_t total = sizeof(header) + head.size() + body.size();
  if (wait_ == Wait::kNo && queued_bytes_ + total > queued_bytes_max_) {
    return ResourceExhausted("The messages that wait for the peer process (" + std::to_string(queued_bytes_ + total) +
                             " bytes) exceed the limit (" + std::to_string(queued_bytes_max_) + ").");
  }
  const bool may_join = more && total < kFrameBufferBytes / 2;
  if (may_join || !queue_.empty()) {
    Keep(header, head, body, 0, fds);
    return may_join && queued_bytes_ < kFrameBufferBytes ? absl::OkStatus() : Flush();
  }
  iovec parts[3] = {{const_cast<FrameHeader*>(&header), sizeof(header)},
                    {const_cast<char*>(head.data()), head.size()},
                    {const_cast<uint8_t*>(body.data()), body.size()}};
  const ssize_t put = SendOnce(socket_, parts, fds, false);
  if (put < 0) {
    return FromErrno(errno, "Sending to the peer process");
  }
  if (static_cast<size_t>(put) < total) {
    Keep(header, head, body, static_cast<size_t>(put), put == 0 ? fds : std::span<const int>());
    return wait_ == Wait::kYes ? Flush() : absl::OkStatus();
  }
  return absl::OkStatus();
}

Status FrameWriter::Flush() {
  while (!queue_.empty()) {
    Piece& piece = queue_.front();
    std::vector<int> fds;
    for (const UniqueFd& fd : piece.fds) {
      fds.push_back(fd.get());
    }
    iovec part{piece.bytes.data() + piece.sent, piece.bytes.size() - piece.sent};
    const ssize_t put = SendOnce(socket_, {&part, 1}, fds, wait_ == Wait::kYes);
    if (put < 0) {
      return FromErrno(errno, "Sending to the peer process");
    }
    if (put == 0) {
      return absl::OkStatus();
    }
    piece.fds.clear();
    piece.sent += static_cast<size_t>(put);
    queued_bytes_ -= static_cast<size_t>(put);
    if (piece.sent == piece.bytes.size()) {
      queue_.pop_front();
    }
  }
  return absl::OkStatus();
}

}  // namespace hpvm
