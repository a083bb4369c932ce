// SPDX-License-Identifier: Apache-2.0
#include "base/io/ring.h"

#include <algorithm>
#include <cstring>

#include "base/io/futex.h"

namespace hpvm {
namespace {

static_assert((kRingBytes & (kRingBytes - 1)) == 0);
static_assert(std::atomic<uint32_t>::is_always_lock_free);

// Magic number of a mark, which stands for a frame that travels through the socket.
constexpr uint32_t kMarkMagic = 0x48504d32;  // "2MPH"

// Alignment of frames, so that the ring's end splits no header.
constexpr uint32_t kStep = sizeof(FrameHeader);

// 64-bit arithmetic, because the peer chooses the lengths.
uint64_t Room(uint64_t bytes) { return (bytes + kStep - 1) / kStep * kStep; }

Status BrokenPosition() { return InvalidArgument("The peer process published an impossible position in the ring."); }

}  // namespace

void RingProducer::CopyIn(uint32_t at, const void* from, size_t bytes) {
  if (bytes == 0) {
    return;  // `from` may be null.
  }
  const uint32_t begin = at % kRingBytes;
  const size_t first = std::min<size_t>(bytes, kRingBytes - begin);
  std::memcpy(memory_.bytes + begin, from, first);
  std::memcpy(memory_.bytes, static_cast<const uint8_t*>(from) + first, bytes - first);
}

StatusOr<bool> RingProducer::PutFrame(const FrameHeader& header, std::string_view head, std::span<const uint8_t> body) {
  const uint64_t room = Room(sizeof(header) + head.size() + body.size());
  if (room > kRingFrameBytesMax) {
    return InvalidArgument("A frame of " + std::to_string(room) + " bytes is too large for a ring (limit " +
                           std::to_string(kRingFrameBytesMax) + ").");
  }
  const auto fits = [&]() -> StatusOr<bool> {
    const uint32_t used = written_ - memory_.taken.load(std::memory_order_seq_cst);
    if (used > kRingBytes) {
      return BrokenPosition();
    }
    return room <= kRingBytes - used;
  };
  HPVMD_ASSIGN_OR_RETURN(bool has_room, fits());
  if (!has_room) {
    // Announces the wait first, then checks again, as with sleep.
    memory_.wants_room.store(1, std::memory_order_seq_cst);
    HPVMD_ASSIGN_OR_RETURN(has_room, fits());
    if (!has_room) {
      return false;
    }
    memory_.wants_room.store(0, std::memory_order_relaxed);
  }
  CopyIn(written_, &header, sizeof(header));
  CopyIn(written_ + static_cast<uint32_t>(sizeof(header)), head.data(), head.size());
  CopyIn(written_ + static_cast<uint32_t>(sizeof(header) + head.size()), body.data(), body.size());
  written_ += static_cast<uint32_t>(room);
  memory_.written.store(written_, std::memory_order_seq_cst);
  return true;
}

StatusOr<bool> RingProducer::Put(std::string_view head, std::span<const uint8_t> body) {
  // The size check in PutFrame rejects sizes that do not fit in 32 bits.
  const FrameHeader header{kFrameMagic, static_cast<uint32_t>(head.size()), static_cast<uint32_t>(body.size()), 0};
  return PutFrame(header, head, body);
}

StatusOr<bool> RingProducer::PutMark() { return PutFrame({kMarkMagic, 0, 0, 0}, {}, {}); }

bool RingProducer::MustWake() {
  return memory_.asleep.load(std::memory_order_seq_cst) != 0 &&
         memory_.asleep.exchange(0, std::memory_order_seq_cst) != 0;
}

void RingProducer::Wake() { FutexWake(memory_.asleep, 1, FutexScope::kShared); }

void RingProducer::WaitForRoom(Duration limit) { FutexWait(memory_.wants_room, 1, limit, FutexScope::kShared); }

void RingConsumer::CopyOut(uint32_t at, void* into, size_t bytes) const {
  if (bytes == 0) {
    return;
  }
  const uint32_t begin = at % kRingBytes;
  const size_t first = std::min<size_t>(bytes, kRingBytes - begin);
  std::memcpy(into, memory_.bytes + begin, first);
  std::memcpy(static_cast<uint8_t*>(into) + first, memory_.bytes, bytes - first);
}

StatusOr<RingConsumer::Got> RingConsumer::Next(Frame* frame) {
  const uint32_t there = memory_.written.load(std::memory_order_acquire) - taken_;
  if (there == 0) {
    return Got::kNothing;
  }
  if (there > kRingBytes || there < sizeof(FrameHeader)) {
    return BrokenPosition();
  }
  FrameHeader header;
  CopyOut(taken_, &header, sizeof(header));
  const bool is_mark = header.magic == kMarkMagic;
  if (is_mark) {
    header = {kFrameMagic, 0, 0, 0};
  }
  HPVMD_RETURN_IF_ERROR(CheckFrameHeader(header, limits_));
  const uint64_t room = Room(sizeof(header) + uint64_t{header.head_bytes} + header.body_bytes);
  if (header.fds != 0 || room > there || room > kRingFrameBytesMax) {
    return InvalidArgument("A frame in a ring is incomplete or too large, or announces descriptors.");
  }
  if (!is_mark) {
    frame->head.resize(header.head_bytes);
    frame->body.resize(header.body_bytes);
    frame->fds.clear();
    CopyOut(taken_ + static_cast<uint32_t>(sizeof(header)), frame->head.data(), header.head_bytes);
    CopyOut(taken_ + static_cast<uint32_t>(sizeof(header)) + header.head_bytes, frame->body.data(), header.body_bytes);
  }
  taken_ += static_cast<uint32_t>(room);
  memory_.taken.store(taken_, std::memory_order_seq_cst);
  return is_mark ? Got::kMark : Got::kFrame;
}

bool RingConsumer::MustWakeProducer() {
  // Below half there is room for any frame; a higher threshold would wake the producer for each frame taken.
  if (memory_.written.load(std::memory_order_relaxed) - taken_ > kRingBytes / 2) {
    return false;
  }
  return memory_.wants_room.load(std::memory_order_seq_cst) != 0 &&
         memory_.wants_room.exchange(0, std::memory_order_seq_cst) != 0;
}

void RingConsumer::WakeProducer() { FutexWake(memory_.wants_room, 1, FutexScope::kShared); }

bool RingConsumer::BeginSleep() {
  memory_.asleep.store(1, std::memory_order_seq_cst);
  if (memory_.written.load(std::memory_order_seq_cst) != taken_) {
    memory_.asleep.store(0, std::memory_order_relaxed);
    return false;
  }
  return true;
}

void RingConsumer::Wait(Duration limit) { FutexWait(memory_.asleep, 1, limit, FutexScope::kShared); }

void RingConsumer::EndSleep() { memory_.asleep.store(0, std::memory_order_relaxed); }

}  // namespace hpvm
