// SPDX-License-Identifier: Apache-2.0
// Frames through memory that two processes share: a ring each way, of one producer and one consumer, and the words by
// which each side tells that it sleeps. No call of the system is made while both sides are awake.
//
// Neither side believes the other. Each keeps its own position to itself and only shows it; the other's position is
// read once a call and has to be possible; a frame is copied out before anything of it is looked at. So a hostile peer
// can send any frame, none, or end the connection, and that is all (docs/SECURITY.md).
//
// How to sleep without missing a frame (the argument is Dekker's): the consumer stores `asleep`, then looks once more;
// the producer publishes, then reads `asleep`. Both in one total order, so at least one of them sees the other.
//
// A side sleeps by futex (RingConsumer::Wait) or, if it watches other things too, by a bell: an eventfd that the other
// side writes to. A process that does not trust its peer neither reads nor writes an eventfd that the peer can reach
// (the peer may make it block): it watches it by epoll, edge-triggered, and reads nothing.
#ifndef HPVMD_BASE_IO_RING_H_
#define HPVMD_BASE_IO_RING_H_

#include <atomic>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/clock.h"
#include "base/io/frame_socket.h"

namespace hpvm {

// Bytes of frames on the way in one direction; a power of two.
inline constexpr uint32_t kRingBytes = 256 * 1024;
// The largest frame, header included, that goes through a ring: a quarter, so that several fit.
inline constexpr uint32_t kRingFrameBytesMax = kRingBytes / 4;

// One direction, as it lies in the shared memory. Zeroed memory is an empty ring.
struct RingMemory {
  // The producer's.
  alignas(64) std::atomic<uint32_t> written;  // Bytes that were ever put, modulo 2^32.
  std::atomic<uint32_t> wants_room;           // Not 0: the producer waits for room, and wants to be woken.
  // The consumer's.
  alignas(64) std::atomic<uint32_t> taken;  // Bytes that were ever taken.
  std::atomic<uint32_t> asleep;             // Not 0: the consumer waits for frames, and wants to be woken.
  alignas(64) uint8_t bytes[kRingBytes];
};

// A connection: what both sides map.
struct RingPairMemory {
  RingMemory to_server, to_client;
};
inline constexpr uint64_t kRingPairBytes = sizeof(RingPairMemory);

// One thread at a time.
class RingProducer {
 public:
  explicit RingProducer(RingMemory& memory) : memory_(memory) {}

  // Puts a frame without descriptors. False when there is no room just now: nothing of it was put, and the consumer
  // will find wants_room. kInvalidArgument when it is larger than kRingFrameBytesMax, or the peer's position is
  // impossible; after the latter the connection is of no more use.
  StatusOr<bool> Put(std::string_view head, std::span<const uint8_t> body = {});
  // Puts the mark of a frame that comes by the socket beside the ring, so that the order of all frames is the ring's.
  StatusOr<bool> PutMark();
  // After Put: whether the consumer has to be woken, by Wake or the bell. True once for each of its sleeps.
  bool MustWake();
  // Wakes a consumer that sleeps in RingConsumer::Wait.
  void Wake();
  // After a Put that found no room: sleeps until the consumer says that there is some, by RingConsumer::WakeProducer,
  // or `limit` has passed. May return early.
  void WaitForRoom(Duration limit);

 private:
  StatusOr<bool> PutFrame(const FrameHeader& header, std::string_view head, std::span<const uint8_t> body);
  void CopyIn(uint32_t at, const void* from, size_t bytes);

  RingMemory& memory_;  // Borrowed.
  uint32_t written_ = 0;
};

// One thread at a time.
class RingConsumer {
 public:
  enum class Got : uint8_t { kNothing, kFrame, kMark };

  RingConsumer(RingMemory& memory, const FrameLimits& limits) : memory_(memory), limits_(limits) {}

  // Takes the next frame. kInvalidArgument when the peer broke the format or a limit; then the connection is of no more
  // use. Does not wait.
  StatusOr<Got> Next(Frame* frame);
  // There is nothing to take.
  bool empty() const { return memory_.written.load(std::memory_order_acquire) == taken_; }
  // After Next: whether the producer waits for the room that has become free, and has to be woken. True once for each
  // of its waits.
  bool MustWakeProducer();
  // Wakes a producer that sleeps in RingProducer::WaitForRoom.
  void WakeProducer();

  // Says that this side is about to sleep. False when there is something to take after all; then it is not said.
  bool BeginSleep();
  // Sleeps until a frame comes or `limit` has passed; after BeginSleep. May return early.
  void Wait(Duration limit);
  void EndSleep();

 private:
  void CopyOut(uint32_t at, void* into, size_t bytes) const;

  RingMemory& memory_;  // Borrowed.
  FrameLimits limits_;
  uint32_t taken_ = 0;
};

}  // namespace hpvm

#endif  // HPVMD_BASE_IO_RING_H_
