// SPDX-License-Identifier: Apache-2.0
// FrameMeter counts what an HTTP/2 connection demands of the server, from its bytes alone. No I/O, clock or threads.
//
// gRPC does not limit it: frames outside of calls (PING, SETTINGS, WINDOW_UPDATE ...), resets and headers cost memory
// and time, however many come. A connection that exceeds a limit has a fault, and from then on none of its bytes may
// reach gRPC.
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
  // Frames outside of calls that no frame of the server asked for.
  uint64_t control_frames_per_second = 200;
  // Streams that either side resets: a client can make the server do it.
  uint64_t resets_per_second = 200;
  // Bytes of decompressed header fields; each field counts 32 more than its name and value, as in HPACK.
  uint64_t header_bytes_per_second = 16 * limits::kMiB;
  uint64_t header_block_bytes = 64 * limits::kKiB;
  // Concurrent calls. gRPC limits them too, but only once the client has acknowledged the limit.
  uint64_t calls = 100;
  // Longest time that a client may leave the server's output unread.
  Duration stall_max = std::chrono::seconds(60);
  // Time from accepting a TCP connection until a call on it has had an authenticated caller; unknown clients may not
  // occupy a place longer.
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
// Returns a word for metrics, and a sentence for the log.
std::string_view NameOf(FrameFault fault);
std::string_view SentenceOf(FrameFault fault);

// The first bytes of a connection.
inline constexpr std::string_view kHttp2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// Totals of the frames that the server has sent so far.
struct SentFrames {
  uint64_t bytes = 0;
  uint64_t resets = 0;
  uint64_t asks = 0;  // Frames that the client answers, or may answer, with a frame of its own.
};

// RateBucket is a token bucket: the rate per second, with a burst of the same number after a pause.
class RateBucket {
 public:
  explicit RateBucket(uint64_t per_second) : per_second_(static_cast<double>(per_second)), level_(per_second_) {}
  bool Take(uint64_t count, Time now);

 private:
  double per_second_, level_;
  Time last_{0};
};

// Calls in progress and resets of all connections of one peer; resets are limited because gRPC takes time to forget a
// call that was reset. Thread-safe.
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

// Open calls of one connection: from its client's headers until the server ends the stream, or either side
// resets it.
class OpenCalls {
 public:
  // Borrows `peer`.
  OpenCalls(uint64_t max, PeerCalls& peer) : max_(max), peer_(peer) {}
  ~OpenCalls() { peer_.count.fetch_sub(streams_.size()); }
  OpenCalls(const OpenCalls&) = delete;
  OpenCalls& operator=(const OpenCalls&) = delete;

  // Called when headers have come, of a call or at its end. Returns false when there are too many calls.
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

// Meter of the client's side. Not thread-safe.
class FrameMeter {
 public:
  // Borrows the calls, which the two meters of a connection share.
  FrameMeter(const FrameLimits& limits, OpenCalls& calls);
  ~FrameMeter();
  FrameMeter(const FrameMeter&) = delete;
  FrameMeter& operator=(const FrameMeter&) = delete;

  // Processes the next bytes from the client. Time and memory are bounded by their number and by header_block_bytes.
  // After a fault every call returns it.
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
  // Skips padding and priorities, which are not part of the header block; `part` becomes the rest.
  bool SkipAround(std::span<const uint8_t>* part);
  FrameFault Inflate(std::span<const uint8_t> part, Time now);
  bool TakeControl(Time now);
  void Credit(const SentFrames& sent, Time now);

  const FrameLimits limits_;
  OpenCalls& calls_;
  RateBucket control_, resets_, header_bytes_;
  uint64_t credit_ = 0;  // Remaining control frames that the server's own frames asked for.
  SentFrames sent_;
  FrameFault fault_ = FrameFault::kNone;
  size_t preface_at_ = 0;
  bool has_settings_ = false;
  // The frame being read.
  std::array<uint8_t, 9> header_{};
  size_t header_at_ = 0;
  uint32_t length_ = 0, left_ = 0, stream_ = 0;
  uint8_t type_ = 0, flags_ = 0;
  // The open header block, if any: from HEADERS to END_HEADERS.
  bool in_block_ = false, has_pad_ = false;
  uint32_t block_stream_ = 0, prefix_left_ = 0, pad_ = 0;
  uint64_t block_bytes_ = 0, block_wire_bytes_ = 0;
  std::unique_ptr<nghttp2_hd_inflater, FreeInflater> inflater_;
};

// Meter of the server's side, which is trusted. Not thread-safe.
class SentMeter {
 public:
  explicit SentMeter(OpenCalls& calls) : calls_(calls) {}
  void Send(std::span<const uint8_t> bytes);
  const SentFrames& sent() const { return sent_; }
  // Returns true when a frame may begin here.
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
