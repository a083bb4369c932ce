// SPDX-License-Identifier: Apache-2.0
// Frames between two processes that share rings (ring.h) beside a socket: small frames go through the ring; large
// frames and those with descriptors go through the socket, with a mark in the ring. All are in one order.
//
// The first frames of a connection may use the socket alone: before rings are shared, and from a process that fails
// before it uses them. Once a side has put something into its ring, frames that it sends through the socket without a
// mark are not read.
//
// Each side is woken in one way, for frames and for room alike: by its bell, or by futex (ring.h).
#ifndef HPVMD_BASE_IO_RING_CHANNEL_H_
#define HPVMD_BASE_IO_RING_CHANNEL_H_

#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/io/frame_channel.h"
#include "base/io/ring.h"

namespace hpvm {

// The peer sleeps by futex.
inline constexpr int kNoBell = -1;

// Used by one thread at a time.
class RingChannelReader {
 public:
  // Both are borrowed. `bell` is the peer's.
  RingChannelReader(int socket, RingMemory& ring, int bell, const FrameLimits& limits);

  // Takes the next whole frame; returns false when there is none. Returns kInvalidArgument like RingConsumer and
  // FrameReader, after which the connection is unusable. Does not wait.
  StatusOr<bool> Next(Frame* frame);
  // After Next found none: receives from the socket, if the next frame comes from there. Returns false when nothing
  // arrived. Does not wait. Otherwise like FrameReader::Fill.
  StatusOr<bool> Fill();
  // Returns true when there is nothing that Next or Fill could take, as far as is visible without a system call.
  bool empty() const { return ring_.empty() && socket_.empty() && !awaits_marked_; }

  // Announces that this side is about to sleep. Returns false when there is something to take.
  bool BeginSleep() { return ring_.BeginSleep(); }
  // Waits for something to take, for a side that is woken by futex; polls for `spin` first. May return early. Returns
  // kUnavailable when the peer went away in the middle of a frame.
  Status Wait(Duration spin);

 private:
  FrameReader socket_;
  RingConsumer ring_;
  int bell_;
  bool has_begun_ = false;      // Something arrived through the ring.
  bool awaits_marked_ = false;  // The next frame arrives through the socket.
};

// Used by one thread at a time.
class RingChannelWriter {
 public:
  using Wait = FrameWriter::Wait;

  // Uses the socket, which is borrowed, until UseRing. With kNo, data that finds no room is queued, up to
  // `queued_bytes_max`; Flush sends it later.
  RingChannelWriter(int socket, Wait wait, size_t queued_bytes_max);
  // Takes effect with the next frame. `ring` is borrowed; `bell` is the peer's.
  void UseRing(RingMemory& ring, int bell);

  // Like FrameWriter::Send; with `more` the frame is sent, but the peer is not woken yet. Returns kInvalidArgument when
  // the peer violated the ring's protocol.
  Status Send(std::string_view head, std::span<const uint8_t> body = {}, std::span<const int> fds = {},
              bool more = false);
  // Sends queued frames, as far as there is room, and wakes the peer for frames that it has not seen.
  Status Flush();
  // Returns true when Flush has something to do, now or when the peer has made room.
  bool pending() const { return is_unseen_ || !kept_.empty() || socket_.pending(); }

 private:
  struct Kept {
    std::string head, body;
    std::vector<UniqueFd> fds;
  };

  StatusOr<bool> Put(std::string_view head, std::span<const uint8_t> body, std::span<const int> fds);
  Status PutKept();
  void WakePeer();

  int socket_fd_;  // Borrowed.
  FrameWriter socket_;
  const Wait wait_;
  const size_t queued_bytes_max_;
  std::optional<RingProducer> ring_;
  int bell_ = kNoBell;
  bool is_unseen_ = false;  // The peer was not woken for the last frame.
  std::deque<Kept> kept_;
  size_t kept_bytes_ = 0;
};

}  // namespace hpvm

#endif  // HPVMD_BASE_IO_RING_CHANNEL_H_
