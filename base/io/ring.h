// SPDX-License-Identifier: Apache-2.0
// Frames through memory that two processes share: one ring per direction, each with one producer and one consumer, and
// words by which each side announces that it sleeps. No system call is made while both sides are awake.
//
// Neither side trusts the other. Each keeps its own position private and only publishes it; it reads the other's
// position once per call and checks that it is possible; it copies a frame out before it examines it. A hostile peer
// can therefore send arbitrary frames, send none, or end the connection, but nothing else (docs/SECURITY.md).
//
// Sleeping without missing a frame follows Dekker's argument: the consumer stores `asleep`, then checks once more; the
// producer publishes, then reads `asleep`. Both are in one total order, so at least one of them sees the other's store.
//
// A side sleeps by futex (RingConsumer::Wait) or, if it also watches other things, by a bell: an eventfd that the other
// side writes to. A process that does not trust its peer neither reads nor writes an eventfd that the peer can reach,
// because the peer could make it block; it watches the eventfd by epoll, edge-triggered, and never reads it.
#ifndef HPVMD_BASE_IO_RING_H_
#define HPVMD_BASE_IO_RING_H_

#include <atomic>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/clock.h"
#include "base/io/frame_socket.h"

namespace hpvm {

// Capacity in bytes of one direction; a power of two.
inline constexpr uint32_t kRingBytes = 256 * 1024;
// Largest frame, including its header, that goes through a ring: a quarter, so that several fit.
inline constexpr uint32_t kRingFrameBytesMax = kRingBytes / 4;

// One direction as laid out in the shared memory. Zeroed memory is an empty ring.
struct RingMemory {
  // Written by the producer.
  alignas(64) std::atomic<uint32_t> written;  // Bytes ever put, modulo 2^32.
  std::atomic<uint32_t> wants_room;           // Not 0: the producer waits for room and wants to be woken.
  // Written by the consumer.
  alignas(64) std::atomic<uint32_t> taken;  // Bytes ever taken, modulo 2^32.
  std::atomic<uint32_t> asleep;             // Not 0: the consumer waits for frames and wants to be woken.
  alignas(64) uint8_t bytes[kRingBytes];
};

// A connection, mapped by both sides.
struct RingPairMemory {
  RingMemory to_server, to_client;
};
inline constexpr uint64_t kRingPairBytes = sizeof(RingPairMemory);

// Used by one thread at a time.
class RingProducer {
 public:
  explicit RingProducer(RingMemory& memory) : memory_(memory) {}

  // Puts a frame without descriptors. Returns false when there is no room now: nothing was put, and the consumer will
  // see wants_room. Returns kInvalidArgument when the frame is larger than kRingFrameBytesMax, or the peer's position
  // is impossible; after the latter the connection is unusable.
  StatusOr<bool> Put(std::string_view head, std::span<const uint8_t> body = {});
  // Puts a mark for a frame that travels through the socket beside the ring, so that the ring defines the order of all
  // frames.
  StatusOr<bool> PutMark();
  // After Put: returns true when the consumer has to be woken, by Wake or the bell; true once for each of its sleeps.
  bool MustWake();
  // Wakes a consumer that sleeps in RingConsumer::Wait.
  void Wake();
  // After a Put that found no room: sleeps until the consumer reports room through RingConsumer::WakeProducer, or
  // `limit` has passed. May return early.
  void WaitForRoom(Duration limit);

 private:
  StatusOr<bool> PutFrame(const FrameHeader& header, std::string_view head, std::span<const uint8_t> body);
  void CopyIn(uint32_t at, const void* from, size_t bytes);

  RingMemory& memory_;  // Borrowed.
  uint32_t written_ = 0;
};

// Used by one thread at a time.
class RingConsumer {
 public:
  enum class Got : uint8_t { kNothing, kFrame, kMark };

  RingConsumer(RingMemory& memory, const FrameLimits& limits) : memory_(memory), limits_(limits) {}

  // Takes the next frame. Returns kInvalidArgument when the peer violated the format or a limit, after which the
  // connection is unusable. Does not wait.
  StatusOr<Got> Next(Frame* frame);
  // Returns true when there is nothing to take.
  bool empty() const { return memory_.written.load(std::memory_order_acquire) == taken_; }
  // After Next: returns true when the producer waits for the freed room and has to be woken; true once for each of its
  // waits.
  bool MustWakeProducer();
  // Wakes a producer that sleeps in RingProducer::WaitForRoom.
  void WakeProducer();

  // Announces that this side is about to sleep. Returns false, without announcing it, when there is something to take.
  bool BeginSleep();
  // Sleeps until a frame arrives or `limit` has passed. Call after BeginSleep. May return early.
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
