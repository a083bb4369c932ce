// SPDX-License-Identifier: Apache-2.0
// Counts what an HTTP/2 connection asks of the server, from its bytes alone. No I/O, no clock, no threads.
//
// gRPC counts none of it: frames that carry no call (PING, SETTINGS, WINDOW_UPDATE ...), resets and headers cost it
// memory and time, however many come. A connection that goes over a limit has a fault, and from then on nothing that it
// sends may reach gRPC.
#ifndef HPVMD_SERVER_FRONT_FRAME_METER_H_
#define HPVMD_SERVER_FRONT_FRAME_METER_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <unordered_set>

#include "base/clock.h"
#include "base/limits.h"

struct nghttp2_hd_inflater;

namespace hpvm::server {

struct FrameLimits {
  // Frames without a call that nothing of the server's has asked for.
  uint64_t control_frames_per_second = 200;
  // Streams that either side breaks off: a client can make the server do it.
  uint64_t resets_per_second = 200;
  // Of header fields when they are decompressed; each counts 32 more than its name and value, as HPACK does.
  uint64_t header_bytes_per_second = 16 * limits::kMiB;
  uint64_t header_block_bytes = 64 * limits::kKiB;
  // In progress at a time. gRPC limits them too, but only once the client has said that it knows of the limit.
  uint64_t calls = 100;
  // How long a client may leave in the network what is sent to it.
  Duration stall_max = std::chrono::seconds(60);
  // From accepting a TCP connection until a call has had a caller who is known: others' place is not theirs for long.
  Duration unknown_max = std::chrono::seconds(30);
};

enum class FrameFault : uint8_t {
  kNone,
  kPreface,
  kFrame,
  kControlFrames,
  kResets,
  kHeaders,
  kCalls,
  kStalled,
  kUnknown
};
inline constexpr size_t kFrameFaults = 9;
// A word for metrics, and a sentence for the log.
std::string_view NameOf(FrameFault fault);
std::string_view SentenceOf(FrameFault fault);

// How a connection begins.
inline constexpr std::string_view kHttp2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// What the server has sent so far, in sums.
struct SentFrames {
  uint64_t bytes = 0;
  uint64_t resets = 0;
  uint64_t asks = 0;  // Frames that the client answers with one of its own, or may.
};

// As many as the rate a second; the same number at once after a pause.
class RateBucket {
 public:
  explicit RateBucket(uint64_t per_second) : per_second_(static_cast<double>(per_second)), level_(per_second_) {}
  bool Take(uint64_t count, Time now);

 private:
  double per_second_, level_;
  Time last_{0};
};

// What all connections of one peer have together: calls in progress, and resets, as gRPC takes its time to forget a
// call that was reset. Any thread.
struct PeerCalls {
  PeerCalls(uint64_t calls_max, uint64_t resets_per_second) : max(calls_max), resets(resets_per_second) {}
  bool TakeResets(uint64_t many, Time now) {
    std::lock_guard lock(mutex);
    return resets.Take(many, now);
  }
  const uint64_t max;
  std::atomic<uint64_t> count{0};
  std::mutex mutex;
  RateBucket resets;  // Guarded by mutex.
};

// Those of one connection: from its client's headers until either side ends the stream for good.
class OpenCalls {
 public:
  // Borrows the peer's.
  OpenCalls(uint64_t max, PeerCalls& peer) : max_(max), peer_(peer) {}
  ~OpenCalls() { peer_.count.fetch_sub(streams_.size()); }
  OpenCalls(const OpenCalls&) = delete;
  OpenCalls& operator=(const OpenCalls&) = delete;

  // Headers have come: of a call, or at the end of one. False: there are too many.
  bool Begin(uint32_t stream);
  void End(uint32_t stream);
  PeerCalls& peer() { return peer_; }
  size_t size() const { return streams_.size(); }

 private:
  const uint64_t max_;
  PeerCalls& peer_;
  uint32_t last_ = 0;
  std::unordered_set<uint32_t> streams_;
};

// The client's side. One thread at a time.
class FrameMeter {
 public:
  // Borrows the calls, which the two meters of a connection share.
  FrameMeter(const FrameLimits& limits, OpenCalls& calls);
  ~FrameMeter();
  FrameMeter(const FrameMeter&) = delete;
  FrameMeter& operator=(const FrameMeter&) = delete;

  // The next bytes from the client. Time and memory are bounded by their number and by header_block_bytes. Once there
  // is a fault every call answers it.
  FrameFault Receive(std::span<const uint8_t> bytes, Time now, const SentFrames& sent);

 private:
  struct FreeInflater {
    void operator()(nghttp2_hd_inflater* inflater) const;
  };

  bool TakeResets(uint64_t count, Time now) { return resets_.Take(count, now) && calls_.peer().TakeResets(count, now); }
  FrameFault Step(std::span<const uint8_t>& rest, Time now);
  FrameFault ReadPreface(std::span<const uint8_t>& rest);
  FrameFault BeginFrame(Time now);
  FrameFault CheckForm() const;
  FrameFault BeginHeaders();
  FrameFault ReadHeaders(std::span<const uint8_t> part, Time now);
  // Pads and priorities are in no header block; `part` becomes what is.
  bool SkipAround(std::span<const uint8_t>* part);
  FrameFault Inflate(std::span<const uint8_t> part, Time now);
  bool TakeControl(Time now);
  void Credit(const SentFrames& sent, Time now);

  const FrameLimits limits_;
  OpenCalls& calls_;
  RateBucket control_, resets_, header_bytes_;
  uint64_t credit_ = 0;  // Control frames that the server's own have asked for.
  SentFrames sent_;
  FrameFault fault_ = FrameFault::kNone;
  size_t preface_at_ = 0;
  bool has_settings_ = false;
  // The frame that is being read.
  std::array<uint8_t, 9> header_{};
  size_t header_at_ = 0;
  uint32_t length_ = 0, left_ = 0, stream_ = 0;
  uint8_t type_ = 0, flags_ = 0;
  // The header block, if one is open: from HEADERS to END_HEADERS.
  bool in_block_ = false, has_pad_ = false;
  uint32_t block_stream_ = 0, prefix_left_ = 0, pad_ = 0;
  uint64_t block_bytes_ = 0, block_wire_bytes_ = 0;
  std::unique_ptr<nghttp2_hd_inflater, FreeInflater> inflater_;
};

// The server's side, which is believed. One thread at a time.
class SentMeter {
 public:
  explicit SentMeter(OpenCalls& calls) : calls_(calls) {}
  void Send(std::span<const uint8_t> bytes);
  const SentFrames& sent() const { return sent_; }
  // Whether a frame may begin here.
  bool is_between_frames() const { return header_at_ == 0 && left_ == 0; }

 private:
  void BeginFrame();

  OpenCalls& calls_;
  SentFrames sent_;
  std::array<uint8_t, 9> header_{};
  size_t header_at_ = 0;
  uint32_t left_ = 0;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_FRONT_FRAME_METER_H_
