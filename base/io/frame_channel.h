// SPDX-License-Identifier: Apache-2.0
// Frames (base/io/frame_socket.h) read and written in bulk: many small frames a system call, and a reader that never
// blocks on half a frame, so that one thread can serve several peers it does not trust.
#ifndef HPVMD_BASE_IO_FRAME_CHANNEL_H_
#define HPVMD_BASE_IO_FRAME_CHANNEL_H_

#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/io/frame_socket.h"

namespace hpvm {

// A dozen requests with 4 KiB each in one system call.
inline constexpr size_t kFrameBufferBytes = 128 * 1024;

// One thread at a time.
class FrameReader {
 public:
  enum class Wait : uint8_t { kNo, kYes };

  // Receives at most `buffer_bytes` beyond the end of a frame.
  FrameReader(int socket, const FrameLimits& limits, size_t buffer_bytes = kFrameBufferBytes);

  // Receives once; false when kNo found an empty socket. With kYes it waits. kUnavailable at the peer's end,
  // kInvalidArgument when descriptors break the limits.
  StatusOr<bool> Fill(Wait wait);
  // Takes the next whole frame out of what was received: false when there is none. kInvalidArgument as ReceiveFrame;
  // then the connection is of no more use.
  StatusOr<bool> Next(Frame* frame);
  // Bytes were received that no Next has returned.
  bool empty() const { return begin_ == end_ && !large_; }

 private:
  StatusOr<bool> FinishFrame(const FrameHeader& header, Frame* frame);
  void StartLarge(const FrameHeader& header);

  int socket_;  // Borrowed.
  FrameLimits limits_;
  std::vector<uint8_t> buffer_;
  size_t begin_ = 0, end_ = 0;
  std::vector<UniqueFd> fds_;  // Received, in order; not yet claimed by a frame.
  // A frame larger than the buffer is received in place.
  bool large_ = false;
  FrameHeader large_header_{};
  Frame large_frame_;
  size_t large_done_ = 0;  // Bytes of head and body that are there.
};

// One thread at a time.
class FrameWriter {
 public:
  enum class Wait : uint8_t { kNo, kYes };

  // With kNo what the socket does not take is kept, up to `queued_bytes_max`; Flush sends it later.
  FrameWriter(int socket, Wait wait, size_t queued_bytes_max);

  // Sends a frame, or keeps it behind those that are kept; descriptors stay the caller's (kept ones are duplicated).
  // `more`: another frame follows at once, so this one may be kept until that one or Flush. kResourceExhausted when the
  // queue is full: nothing of the frame was sent. Other failures: the connection is of no more use.
  Status Send(std::string_view head, std::span<const uint8_t> body = {}, std::span<const int> fds = {},
              bool more = false);
  // Sends what is kept. OK when the socket takes no more just now: see pending().
  Status Flush();
  bool pending() const { return !queue_.empty(); }
  size_t queued_bytes() const { return queued_bytes_; }

 private:
  struct Piece {
    std::string bytes;
    size_t sent = 0;
    std::vector<UniqueFd> fds;  // Sent with the first byte.
  };

  void Keep(const FrameHeader& header, std::string_view head, std::span<const uint8_t> body, size_t skip,
            std::span<const int> fds);

  int socket_;  // Borrowed.
  Wait wait_;
  size_t queued_bytes_max_;
  size_t queued_bytes_ = 0;
  std::deque<Piece> queue_;
};

}  // namespace hpvm

#endif  // HPVMD_BASE_IO_FRAME_CHANNEL_H_
