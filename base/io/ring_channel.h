// SPDX-License-Identifier: Apache-2.0
// Frames between two processes that share rings (ring.h) beside a socket: small ones go through the ring, those with
// descriptors and large ones by the socket behind a mark, all in one order.
//
// The first frames of a connection may go by the socket alone: before rings are shared, and of a process that fails
// before it uses them. Once a side has put something into its ring, what it sends by the socket without a mark is not
// read.
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

// A peer that sleeps by futex.
inline constexpr int kNoBell = -1;

// One thread at a time.
class RingChannelReader {
 public:
  // Both are borrowed. `bell` is the peer's.
  RingChannelReader(int socket, RingMemory& ring, int bell, const FrameLimits& limits);

  // Takes the next whole frame: false when there is none. kInvalidArgument as RingConsumer and FrameReader; then the
  // connection is of no more use. Does not wait.
  StatusOr<bool> Next(Frame* frame);
  // After Next found none: receives from the socket, if the next frame comes from there. False when nothing came. Does
  // not wait. As FrameReader::Fill otherwise.
  StatusOr<bool> Fill();
  // There is nothing that Next or Fill could take, as far as can be seen without asking the system.
  bool empty() const { return ring_.empty() && socket_.empty() && !awaits_marked_; }

  // Says that this side is about to sleep. False when there is something to take after all.
  bool BeginSleep() { return ring_.BeginSleep(); }
  // Waits for something to take, for a side that is woken by futex: looks again for `spin` first. May return early.
  // kUnavailable when the peer went away in the middle of a frame.
  Status Wait(Duration spin);

 private:
  FrameReader socket_;
  RingConsumer ring_;
  int bell_;
  bool has_begun_ = false;      // Something came through the ring.
  bool awaits_marked_ = false;  // The next frame comes by the socket.
};

// One thread at a time.
class RingChannelWriter {
 public:
  using Wait = FrameWriter::Wait;

  // By the socket, which is borrowed, until UseRing. With kNo what finds no room is kept, up to `queued_bytes_max`;
  // Flush sends it later.
  RingChannelWriter(int socket, Wait wait, size_t queued_bytes_max);
  // From the next frame on. `ring` is borrowed; `bell` is the peer's.
  void UseRing(RingMemory& ring, int bell);

  // As FrameWriter::Send; with `more` the frame goes, and the peer is not woken yet. kInvalidArgument when the peer
  // broke the ring.
  Status Send(std::string_view head, std::span<const uint8_t> body = {}, std::span<const int> fds = {},
              bool more = false);
  // Sends what is kept, as far as there is room, and wakes the peer for what it has not seen.
  Status Flush();
  // Flush has something to do, now or when the peer has made room.
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
