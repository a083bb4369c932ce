// SPDX-License-Identifier: Apache-2.0
#include "base/io/ring_channel.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <utility>

#include "base/io/spin.h"

namespace hpvm {
namespace {

// Bounds the cost of a lost wake-up; a waiting side is woken normally.
constexpr Duration kWaitMax = std::chrono::seconds(60);
// Interval at which a side that waits for room checks whether the peer still exists.
constexpr Duration kLookEvery = std::chrono::seconds(1);

// Ignores failure: the write fails only after 2^64 rings.
void Ring(int bell) {
  const uint64_t one = 1;
  const ssize_t put = write(bell, &one, sizeof(one));
  (void)put;
}

bool IsGone(int socket) {
  pollfd item{socket, 0, 0};
  return poll(&item, 1, 0) > 0 && (item.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0;
}

}  // namespace

RingChannelReader::RingChannelReader(int socket, RingMemory& ring, int bell, const FrameLimits& limits)
    : socket_(socket, limits), ring_(ring, limits), bell_(bell) {}

StatusOr<bool> RingChannelReader::Next(Frame* frame) {
  if (!awaits_marked_) {
    HPVMD_ASSIGN_OR_RETURN(const RingConsumer::Got got, ring_.Next(frame));
    if (got == RingConsumer::Got::kNothing) {
      // The socket's frames precede anything in the ring.
      return has_begun_ ? StatusOr<bool>(false) : socket_.Next(frame);
    }
    has_begun_ = true;
    if (ring_.MustWakeProducer()) {
      bell_ == kNoBell ? ring_.WakeProducer() : Ring(bell_);
    }
    if (got == RingConsumer::Got::kFrame) {
      return true;
    }
    awaits_marked_ = true;
  }
  HPVMD_ASSIGN_OR_RETURN(const bool is_whole, socket_.Next(frame));
  awaits_marked_ = !is_whole;
  return is_whole;
}

StatusOr<bool> RingChannelReader::Fill() {
  return awaits_marked_ || !has_begun_ ? socket_.Fill(FrameReader::Wait::kNo) : StatusOr<bool>(false);
}

Status RingChannelReader::Wait(Duration spin) {
  if (awaits_marked_) {
    return socket_.Fill(FrameReader::Wait::kYes).status();
  }
  const bool has_come = spin > Duration(0) && SpinUntil(spin, [&] { return !ring_.empty(); });
  if (!has_come && ring_.BeginSleep()) {
    ring_.Wait(kWaitMax);
    ring_.EndSleep();
  }
  return absl::OkStatus();
}

RingChannelWriter::RingChannelWriter(int socket, Wait wait, size_t queued_bytes_max)
    : socket_fd_(socket), socket_(socket, wait, queued_bytes_max), wait_(wait), queued_bytes_max_(queued_bytes_max) {}

void RingChannelWriter::UseRing(RingMemory& ring, int bell) {
  ring_.emplace(ring);
  bell_ = bell;
}

void RingChannelWriter::WakePeer() {
  is_unseen_ = false;
  if (ring_->MustWake()) {
    bell_ == kNoBell ? ring_->Wake() : Ring(bell_);
  }
}

// Returns false when the ring has no room.
StatusOr<bool> RingChannelWriter::Put(std::string_view head, std::span<const uint8_t> body, std::span<const int> fds) {
  if (fds.empty() && sizeof(FrameHeader) + head.size() + body.size() <= kRingFrameBytesMax) {
    return ring_->Put(head, body);
  }
  HPVMD_ASSIGN_OR_RETURN(const bool has_room, ring_->PutMark());
  if (!has_room) {
    return false;
  }
  WakePeer();  // The peer has to read while this side sends.
  HPVMD_RETURN_IF_ERROR(socket_.Send(head, body, fds));
  return true;
}

Status RingChannelWriter::Send(std::string_view head, std::span<const uint8_t> body, std::span<const int> fds,
                               bool more) {
  if (!ring_.has_value()) {
    return socket_.Send(head, body, fds, more);
  }
  const size_t total = sizeof(FrameHeader) + head.size() + body.size();
  const size_t queued = kept_bytes_ + socket_.queued_bytes() + total;
  if (wait_ == Wait::kNo && queued > queued_bytes_max_) {
    return ResourceExhausted("The messages that wait for the peer process (" + std::to_string(queued) +
                             " bytes) exceed the limit (" + std::to_string(queued_bytes_max_) + ").");
  }
  bool is_put = false;
  if (kept_.empty()) {
    HPVMD_ASSIGN_OR_RETURN(is_put, Put(head, body, fds));
  }
  while (!is_put && wait_ == Wait::kYes) {
    WakePeer();
    ring_->WaitForRoom(kLookEvery);
    if (IsGone(socket_fd_)) {
      return Unavailable("The peer process closed the connection.");
    }
    HPVMD_ASSIGN_OR_RETURN(is_put, Put(head, body, fds));
  }
  if (!is_put) {
    Kept& kept = kept_.emplace_back();
    kept.head = head;
    kept.body.assign(body.begin(), body.end());
    for (const int fd : fds) {
      kept.fds.emplace_back(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    }
    kept_bytes_ += total;
  }
  is_unseen_ = true;
  if (!more) {
    WakePeer();
  }
  return absl::OkStatus();
}

Status RingChannelWriter::PutKept() {
  while (!kept_.empty()) {
    const Kept& kept = kept_.front();
    std::vector<int> fds;
    for (const UniqueFd& fd : kept.fds) {
      fds.push_back(fd.get());
    }
    const std::span<const uint8_t> body(reinterpret_cast<const uint8_t*>(kept.body.data()), kept.body.size());
    HPVMD_ASSIGN_OR_RETURN(const bool is_put, Put(kept.head, body, fds));
    if (!is_put) {
      break;
    }
    is_unseen_ = true;
    kept_bytes_ -= sizeof(FrameHeader) + kept.head.size() + kept.body.size();
    kept_.pop_front();
  }
  return absl::OkStatus();
}

Status RingChannelWriter::Flush() {
  if (ring_.has_value()) {
    HPVMD_RETURN_IF_ERROR(PutKept());
    // A peer that has seen everything sleeps, and would be woken for nothing.
    if (is_unseen_) {
      WakePeer();
    }
  }
  return socket_.pending() ? socket_.Flush() : absl::OkStatus();
}

}  // namespace hpvm
