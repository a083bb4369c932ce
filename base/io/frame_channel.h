// SPDX-License-Identifier: Apache-2.0
// Reads and writes frames (base/io/frame_socket.h) in bulk: many small frames per system call, and a reader that never
// blocks on a partial frame, so that one thread can serve several untrusted peers.
#ifndef HPVMD_BASE_IO_FRAME_CHANNEL_H_
#define HPVMD_BASE_IO_FRAME_CHANNEL_H_

#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/io/frame_socket.h"

namespace hpvm {

// Holds a dozen requests of 4 KiB each in one system call.
inline constexpr size_t kFrameBufferBytes = 128 * 1024;

// Used by one thread at a time.
class FrameReader {
 public:
  enum class Wait : uint8_t { kNo, kYes };

  // Receives at most `buffer_bytes` beyond the end of a frame.
  FrameReader(int socket, const FrameLimits& limits, size_t buffer_bytes = kFrameBufferBytes);

  // Receives once; returns false when kNo found an empty socket. With kYes it waits. Errors: kUnavailable when the peer
  // has closed the socket, kInvalidArgument when descriptors exceed the limits.
  StatusOr<bool> Fill(Wait wait);
  // Takes the next whole frame from the received bytes; returns false when there is none. Returns kInvalidArgument like
  // ReceiveFrame, after which the connection is unusable.
  StatusOr<bool> Next(Frame* frame);
  // Returns false when bytes were received that Next has not returned.
  bool empty() const { return begin_ == end_ && !large_; }

 private:
  StatusOr<bool> FinishFrame(const FrameHeader& header, Frame* frame);
  void StartLarge(const FrameHeader& header);

  int socket_;  // Borrowed.
  FrameLimits limits_;
  std::vector<uint8_t> buffer_;
  size_t begin_ = 0, end_ = 0;
  std::vector<UniqueFd> fds_;  // Received descriptors, in order, not yet claimed by a frame.
  // A frame larger than the buffer is received in place.
  bool large_ = false;
  FrameHeader large_header_{};
  Frame large_frame_;
  size_t large_done_ = 0;  // Number of bytes of head and body received so far.
};

// Used by one thread at a time.
class FrameWriter {
 public:
  enum class Wait : uint8_t { kNo, kYes };

  // With kNo, data that the socket does not take is queued, up to `queued_bytes_max`; Flush sends it later.
  FrameWriter(int socket, Wait wait, size_t queued_bytes_max);

  // Sends a frame, or queues it behind those already queued. Descriptors remain the caller's (queued ones are
  // duplicated). `more` says that another frame follows at once, so this frame may be queued until then or until Flush.
  // Returns kResourceExhausted when the queue is full, in which case nothing of the frame was sent. After other
  // failures the connection is unusable.
  Status Send(std::string_view head, std::span<const uint8_t> body = {}, std::span<const int> fds = {},
              bool more = false);
  // Sends queued data. Returns OK also when the socket takes no more now; see pending().
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
