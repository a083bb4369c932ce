// SPDX-License-Identifier: Apache-2.0
#include "server/front/session.h"

#include <errno.h>
#include <openssl/err.h>

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <utility>

#include "server/front/libc_calls.h"

namespace hpvm::server {
namespace {

// Size of a TLS record.
constexpr size_t kRecordBytes = 16'384;
// Number of records read and dropped from a client that is disconnected.
constexpr int kDrainedRecords = 16;

// GOAWAY on stream 0, with the largest possible last stream and ENHANCE_YOUR_CALM.
constexpr std::array<uint8_t, 17> kGoodbye = {0, 0, 8, 7, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0x0b};

// Calls `act` for each piece of the first `bytes` bytes of a message; `act` returns whether to continue.
template <typename Act>
void ForEachPiece(const msghdr& message, size_t bytes, Act act) {
  for (size_t i = 0; i < message.msg_iovlen && bytes > 0; ++i) {
    const size_t size = std::min(bytes, message.msg_iov[i].iov_len);
    if (size > 0 && !act(std::span(static_cast<uint8_t*>(message.msg_iov[i].iov_base), size))) {
      return;
    }
    bytes -= size;
  }
}

constexpr size_t kAll = std::numeric_limits<size_t>::max();

}  // namespace

void EndInOrder(int fd) {
  shutdown(fd, SHUT_WR);
  std::array<uint8_t, kRecordBytes> ignored;
  for (int i = 0; i < kDrainedRecords && recv(fd, ignored.data(), ignored.size(), MSG_DONTWAIT) > 0; ++i) {
  }
}

Session::Session(int fd, ConnectionFacts facts, ConnectionPlace place, const FrameLimits& limits,
                 std::shared_ptr<PeerCalls> peer, SslPtr ssl, OnFault on_fault, const Clock& clock)
    : fd_(fd),
      facts_(std::move(facts)),
      place_(std::move(place)),
      on_fault_(std::move(on_fault)),
      stall_max_(limits.stall_max),
      unknown_max_(limits.unknown_max),
      clock_(clock),
      peer_(std::move(peer)),
      is_known_(facts_.is_unix),  // The kernel has identified it.
      calls_(limits.calls, *peer_),
      meter_(limits, calls_),
      ssl_(std::move(ssl)),
      sent_(calls_) {}

ssize_t Session::Receive(msghdr* message, int flags) {
  if (ended_) {
    errno = ECONNRESET;
    return -1;
  }
  const ssize_t count = ssl_ != nullptr ? ReceiveTls(message) : PlainReceive(fd_, message, flags);
  if (count <= 0) {
    return count;
  }
  is_counted_.store(true, std::memory_order_relaxed);
  FrameFault fault = FrameFault::kNone;
  const Time now = clock_.Now();
  {
    std::lock_guard lock(mutex_);
    ForEachPiece(*message, static_cast<size_t>(count), [&](std::span<const uint8_t> piece) {
      fault = meter_.Receive(piece, now, sent_.sent());
      return fault == FrameFault::kNone;
    });
  }
  return fault == FrameFault::kNone ? count : End(fault);
}

// Fills the available room, because gRPC keeps reading until nothing comes any more.
ssize_t Session::ReceiveTls(msghdr* message) {
  size_t total = 0;
  int why = SSL_ERROR_NONE;
  ForEachPiece(*message, kAll, [&](std::span<uint8_t> room) {
    while (!room.empty() && why == SSL_ERROR_NONE) {
      size_t got = 0;
      std::lock_guard lock(mutex_);  // Taken for each record, so that gRPC's writer gets its turn.
      ERR_clear_error();
      const int done = SSL_read_ex(ssl_.get(), room.data(), room.size(), &got);
      why = done == 1 ? SSL_ERROR_NONE : SSL_get_error(ssl_.get(), done);
      room = room.subspan(got);
      total += got;
    }
    return why == SSL_ERROR_NONE;
  });
  message->msg_controllen = 0;
  message->msg_flags = 0;
  if (total > 0 || why == SSL_ERROR_ZERO_RETURN) {
    return static_cast<ssize_t>(total);
  }
  errno = why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE ? EAGAIN : ECONNRESET;
  return -1;
}

ssize_t Session::Send(const msghdr* message, int flags) {
  std::lock_guard lock(mutex_);
  const ssize_t count = ssl_ != nullptr ? SendTls(message) : PlainSend(fd_, message, flags);
  if (count > 0) {
    stalled_since_ns_.store(0, std::memory_order_relaxed);
    ForEachPiece(*message, static_cast<size_t>(count), [this](std::span<const uint8_t> piece) {
      sent_.Send(piece);
      return true;
    });
  } else if (count < 0 && errno == EAGAIN && stalled_since_ns_.load(std::memory_order_relaxed) == 0) {
    stalled_since_ns_.store(clock_.Now().count(), std::memory_order_relaxed);
  }
  return count;
}

// Records have the maximum size, whatever the pieces are. A record that the socket has not accepted is not counted as
// sent: gRPC returns with the same bytes, as OpenSSL requires, after waiting for the socket.
ssize_t Session::SendTls(const msghdr* message) {
  thread_local std::array<uint8_t, kRecordBytes> record;
  size_t total = 0, gathered = 0;
  int error = 0;
  const auto write = [&](const uint8_t* bytes, size_t size) {
    const ssize_t count = WriteTls(bytes, size);
    error = count < 0 ? errno : static_cast<size_t>(count) < size ? EAGAIN : 0;
    total += static_cast<size_t>(std::max<ssize_t>(count, 0));
    return error == 0;
  };
  ForEachPiece(*message, kAll, [&](std::span<const uint8_t> piece) {
    while (!piece.empty()) {
      if (gathered == 0 && piece.size() >= kRecordBytes) {
        if (!write(piece.data(), kRecordBytes)) {
          return false;
        }
        piece = piece.subspan(kRecordBytes);
        continue;
      }
      const size_t count = std::min(piece.size(), kRecordBytes - gathered);
      std::copy_n(piece.begin(), count, record.begin() + static_cast<ptrdiff_t>(gathered));
      gathered += count;
      piece = piece.subspan(count);
      if (gathered == kRecordBytes) {
        gathered = 0;
        if (!write(record.data(), kRecordBytes)) {
          return false;
        }
      }
    }
    return true;
  });
  if (error == 0 && gathered > 0) {
    write(record.data(), gathered);
  }
  if (total > 0 || error == 0) {
    return static_cast<ssize_t>(total);
  }
  errno = error;
  return -1;
}

ssize_t Session::WriteTls(const uint8_t* bytes, size_t size) {
  size_t count = 0;
  ERR_clear_error();
  const int done = SSL_write_ex(ssl_.get(), bytes, size, &count);
  if (done == 1) {
    return static_cast<ssize_t>(count);
  }
  const int why = SSL_get_error(ssl_.get(), done);
  errno = why == SSL_ERROR_WANT_WRITE || why == SSL_ERROR_WANT_READ ? EAGAIN : EPIPE;
  return -1;
}

FrameFault Session::EndIfLate(Time now) {
  FrameFault fault = FrameFault::kNone;
  if (const int64_t since = stalled_since_ns_.load(std::memory_order_relaxed);
      since != 0 && now - Time(since) >= stall_max_) {
    stalled_since_ns_.store(0, std::memory_order_relaxed);
    fault = FrameFault::kStalled;
  } else if (now - facts_.accepted >= unknown_max_ && !is_known_.exchange(true, std::memory_order_relaxed)) {
    fault = FrameFault::kUnknown;
  }
  if (fault != FrameFault::kNone) {
    shutdown(fd_, SHUT_RDWR);
  }
  return fault;
}

ssize_t Session::End(FrameFault fault) {
  ended_ = true;
  SayGoodbye();
  shutdown(fd_, SHUT_RDWR);
  on_fault_(*this, fault);
  errno = ECONNRESET;
  return -1;
}

// Sends only between two frames of gRPC's, and only if the socket accepts it at once.
void Session::SayGoodbye() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || !sent_.is_between_frames() || stalled_since_ns_.load() != 0) {
    return;
  }
  if (ssl_ != nullptr) {
    WriteTls(kGoodbye.data(), kGoodbye.size());
  } else {
    send(fd_, kGoodbye.data(), kGoodbye.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  EndInOrder(fd_);
}

}  // namespace hpvm::server
