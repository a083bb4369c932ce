// SPDX-License-Identifier: Apache-2.0
// Method: a state machine over bytes: preface, frame header of nine bytes, contents. Only header blocks are read,
// through nghttp2's HPACK decoder; token buckets count control frames, resets and header bytes, and credit pays for
// frames that the server's own ones asked for.
// Invariants: left_ is what the present frame still has, and header_at_ what is known of the next one's header.
// Inside a header block only a CONTINUATION of its stream passes. A fault is final. Credit is at most kCreditMax.
// Each step consumes a byte or fails. A block ends at header_block_bytes, on the wire or decoded, and empty pieces
// count as 32 bytes.
// Source: RFC 9113 (frames), RFC 7541 (HPACK).
#include "server/front/frame_meter.h"

#include <nghttp2/nghttp2.h>

#include <algorithm>

#include "base/status.h"

namespace hpvm::server {
namespace {

enum Type : uint8_t {
  kData = 0,
  kHeaders = 1,
  kPriority = 2,
  kReset = 3,
  kSettings = 4,
  kPushPromise = 5,
  kPing = 6,
  kGoAway = 7,
  kWindowUpdate = 8,
  kContinuation = 9
};
constexpr uint8_t kEndStream = 1, kAck = 1, kEndHeaders = 4, kPadded = 8, kHasPriority = 0x20;
constexpr uint32_t kPriorityBytes = 5;

// Largest frame outside of calls: RFC 9113 requires everybody to accept this size.
constexpr uint32_t kFrameBytesMax = 16'384;
// HPACK's overhead per field (RFC 7541, 4.1).
constexpr uint64_t kFieldBytes = 32;

// Clients answer data with WINDOW_UPDATE and PING frames: one frame per KiB is more than any client sends.
constexpr uint64_t kBytesPerCredit = 1'024;
// Credit for each DATA frame, however small: a window update of its stream, and one of the connection.
constexpr uint64_t kCreditPerData = 2;
constexpr uint64_t kCreditPerCall = 4;
constexpr uint64_t kCreditMax = 4'096;

uint32_t Word(const uint8_t* at, size_t bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < bytes; ++i) {
    value = value << 8 | at[i];
  }
  return value;
}

// Fills a frame's header; returns false while it is incomplete.
bool FillHeader(std::array<uint8_t, 9>& header, size_t& at, std::span<const uint8_t>& rest) {
  const size_t count = std::min(header.size() - at, rest.size());
  std::copy_n(rest.begin(), count, header.begin() + static_cast<ptrdiff_t>(at));
  at += count;
  rest = rest.subspan(count);
  return at == header.size();
}

}  // namespace

std::string_view NameOf(FrameFault fault) {
  constexpr std::array<std::string_view, kFrameFaults> kNames = {
      "none", "preface", "frame", "control_frames", "resets", "headers", "calls", "stalled", "unknown"};
  return kNames[static_cast<size_t>(fault)];
}

std::string_view SentenceOf(FrameFault fault) {
  constexpr std::array<std::string_view, kFrameFaults> kSentences = {
      "Nothing is wrong.",
      "The connection does not begin with the preface of HTTP/2.",
      "A frame violates HTTP/2.",
      "More frames outside of calls came than limits.control_frames_per_second_max allows.",
      "More streams were reset than limits.resets_per_second_max allows, or twice as many by all connections of the "
      "peer.",
      "Headers are larger than limits.metadata_bytes_max and limits.header_bytes_per_second_max allow.",
      "More calls are in progress than limits.streams_per_connection_max or limits.calls_per_peer_max allows.",
      "The client read nothing for limits.write_stall_ms.",
      "The connection came over TCP, and no call on it has had valid credentials."};
  return kSentences[static_cast<size_t>(fault)];
}

bool OpenCalls::Begin(uint32_t stream) {
  if (stream <= last_) {
    return true;  // The end of a call, or frames after it.
  }
  last_ = stream;
  if (streams_.size() >= max_ || peer_.count.fetch_add(1) >= peer_.max) {
    peer_.count.fetch_sub(streams_.size() >= max_ ? 0 : 1);
    return false;
  }
  streams_.insert(stream);
  return true;
}

void OpenCalls::End(uint32_t stream) { peer_.count.fetch_sub(streams_.erase(stream)); }

bool RateBucket::Take(uint64_t count, Time now) {
  const double elapsed_s = std::max(0.0, std::chrono::duration<double>(now - last_).count());
  level_ = std::min(per_second_, level_ + elapsed_s * per_second_);
  last_ = std::max(last_, now);
  if (level_ < static_cast<double>(count)) {
    return false;
  }
  level_ -= static_cast<double>(count);
  return true;
}

void FrameMeter::FreeInflater::operator()(nghttp2_hd_inflater* inflater) const { nghttp2_hd_inflate_del(inflater); }

FrameMeter::FrameMeter(const FrameLimits& limits, OpenCalls& calls)
    : limits_(limits),
      calls_(calls),
      control_(limits.control_frames_per_second),
      resets_(limits.resets_per_second),
      header_bytes_(limits.header_bytes_per_second) {
  // The table has HTTP/2's initial size; gRPC never offers another.
  nghttp2_hd_inflater* inflater = nullptr;
  HPVMD_CHECK(nghttp2_hd_inflate_new(&inflater) == 0);
  inflater_.reset(inflater);
}

FrameMeter::~FrameMeter() = default;

FrameFault FrameMeter::Receive(std::span<const uint8_t> bytes, Time now, const SentFrames& sent) {
  if (fault_ == FrameFault::kNone) {
    Credit(sent, now);
  }
  while (fault_ == FrameFault::kNone && !bytes.empty()) {
    fault_ = Step(bytes, now);
  }
  return fault_;
}

// Processes one frame's header, or the available part of its contents.
FrameFault FrameMeter::Step(std::span<const uint8_t>& rest, Time now) {
  if (preface_at_ < kHttp2Preface.size()) {
    return ReadPreface(rest);
  }
  if (left_ == 0) {
    if (!FillHeader(header_, header_at_, rest)) {
      return FrameFault::kNone;
    }
    header_at_ = 0;
    return BeginFrame(now);
  }
  const auto part = rest.first(std::min<size_t>(left_, rest.size()));
  rest = rest.subspan(part.size());
  left_ -= static_cast<uint32_t>(part.size());
  return type_ == kHeaders || type_ == kContinuation ? ReadHeaders(part, now) : FrameFault::kNone;
}

FrameFault FrameMeter::ReadPreface(std::span<const uint8_t>& rest) {
  while (!rest.empty() && preface_at_ < kHttp2Preface.size()) {
    if (rest[0] != static_cast<uint8_t>(kHttp2Preface[preface_at_++])) {
      return FrameFault::kPreface;
    }
    rest = rest.subspan(1);
  }
  return FrameFault::kNone;
}

FrameFault FrameMeter::BeginFrame(Time now) {
  length_ = left_ = Word(&header_[0], 3);
  type_ = header_[3];
  flags_ = header_[4];
  stream_ = Word(&header_[5], 4) & 0x7fffffffu;
  if (const FrameFault fault = CheckForm(); fault != FrameFault::kNone) {
    return fault;
  }
  has_settings_ = true;
  switch (type_) {
    case kData:
      return length_ > 0 || (flags_ & kEndStream) != 0 || TakeControl(now) ? FrameFault::kNone
                                                                           : FrameFault::kControlFrames;
    case kReset:
      calls_.End(stream_);
      return TakeResets(1, now) ? FrameFault::kNone : FrameFault::kResets;
    case kHeaders:
    case kContinuation: {
      // Pieces of a header block cost the same even when they are empty.
      const FrameFault fault = BeginHeaders();
      return fault == FrameFault::kNone && left_ == 0 ? ReadHeaders({}, now) : fault;
    }
    default:
      return TakeControl(now) ? FrameFault::kNone : FrameFault::kControlFrames;
  }
}

FrameFault FrameMeter::CheckForm() const {
  const bool fits = [this] {
    // Nothing may interrupt the header block of a call, and only CONTINUATION continues one.
    if (in_block_ ? type_ != kContinuation || stream_ != block_stream_ : type_ == kContinuation) {
      return false;
    }
    if (!has_settings_ && (type_ != kSettings || (flags_ & kAck) != 0)) {
      return false;
    }
    switch (type_) {
      case kData:  // gRPC limits its size, because it may have offered more.
        return stream_ != 0;
      case kHeaders:
        return stream_ != 0 && length_ <= kFrameBytesMax;
      case kPriority:
        return stream_ != 0 && length_ == kPriorityBytes;
      case kReset:
        return stream_ != 0 && length_ == 4;
      case kSettings:
        return stream_ == 0 && length_ % 6 == 0 && length_ <= kFrameBytesMax && ((flags_ & kAck) == 0 || length_ == 0);
      case kPushPromise:
        return false;
      case kPing:
        return stream_ == 0 && length_ == 8;
      case kWindowUpdate:
        return length_ == 4;
      default:
        return length_ <= kFrameBytesMax;
    }
  }();
  return fits ? FrameFault::kNone : FrameFault::kFrame;
}

FrameFault FrameMeter::BeginHeaders() {
  prefix_left_ = pad_ = 0;
  has_pad_ = false;
  if (type_ == kHeaders) {
    if (!calls_.Begin(stream_)) {
      return FrameFault::kCalls;
    }
    in_block_ = true;
    block_stream_ = stream_;
    block_bytes_ = block_wire_bytes_ = 0;
    credit_ = std::min(kCreditMax, credit_ + kCreditPerCall);
    has_pad_ = (flags_ & kPadded) != 0;
    prefix_left_ = (has_pad_ ? 1 : 0) + ((flags_ & kHasPriority) != 0 ? kPriorityBytes : 0);
  }
  // Each piece counts like a field, so that a block of empty pieces ends.
  block_wire_bytes_ += kFieldBytes;
  return prefix_left_ <= length_ ? FrameFault::kNone : FrameFault::kFrame;
}

bool FrameMeter::SkipAround(std::span<const uint8_t>* part) {
  while (prefix_left_ > 0 && !part->empty()) {
    if (has_pad_) {
      has_pad_ = false;
      pad_ = (*part)[0];
      if (pad_ + prefix_left_ > length_) {
        return false;
      }
    }
    --prefix_left_;
    *part = part->subspan(1);
  }
  // Number of padding bytes in this part and the rest of the frame.
  const size_t pad_here = pad_ > left_ ? std::min<size_t>(pad_ - left_, part->size()) : 0;
  *part = part->first(part->size() - pad_here);
  return true;
}

FrameFault FrameMeter::ReadHeaders(std::span<const uint8_t> part, Time now) {
  if (!SkipAround(&part)) {
    return FrameFault::kFrame;
  }
  block_wire_bytes_ += part.size();
  if (block_wire_bytes_ > limits_.header_block_bytes) {
    return FrameFault::kHeaders;
  }
  return Inflate(part, now);
}

FrameFault FrameMeter::Inflate(std::span<const uint8_t> part, Time now) {
  const bool is_last = left_ == 0 && (flags_ & kEndHeaders) != 0;
  if (part.empty() && !is_last) {
    return FrameFault::kNone;
  }
  while (true) {
    nghttp2_nv field{};
    int flags = 0;
    const ssize_t used =
        nghttp2_hd_inflate_hd2(inflater_.get(), &field, &flags, part.data(), part.size(), is_last ? 1 : 0);
    if (used < 0) {
      return FrameFault::kFrame;
    }
    part = part.subspan(static_cast<size_t>(used));
    if ((flags & NGHTTP2_HD_INFLATE_EMIT) != 0) {
      const uint64_t bytes = field.namelen + field.valuelen + kFieldBytes;
      block_bytes_ += bytes;
      if (block_bytes_ > limits_.header_block_bytes || !header_bytes_.Take(bytes, now)) {
        return FrameFault::kHeaders;
      }
      continue;
    }
    if ((flags & NGHTTP2_HD_INFLATE_FINAL) != 0) {
      nghttp2_hd_inflate_end_headers(inflater_.get());
      in_block_ = false;
      return FrameFault::kNone;
    }
    if (part.empty()) {
      return FrameFault::kNone;
    }
  }
}

bool FrameMeter::TakeControl(Time now) {
  if (credit_ > 0) {
    --credit_;
    return true;
  }
  return control_.Take(1, now);
}

void FrameMeter::Credit(const SentFrames& sent, Time now) {
  const uint64_t asked = sent.bytes / kBytesPerCredit - sent_.bytes / kBytesPerCredit + sent.asks - sent_.asks;
  credit_ = std::min(kCreditMax, credit_ + std::min(kCreditMax, asked));
  if (sent.resets != sent_.resets && !TakeResets(sent.resets - sent_.resets, now)) {
    fault_ = FrameFault::kResets;
  }
  sent_ = sent;
}

void SentMeter::Send(std::span<const uint8_t> bytes) {
  sent_.bytes += bytes.size();
  while (!bytes.empty()) {
    if (left_ == 0) {
      if (!FillHeader(header_, header_at_, bytes)) {
        return;
      }
      header_at_ = 0;
      BeginFrame();
      continue;
    }
    const size_t count = std::min<size_t>(left_, bytes.size());
    left_ -= static_cast<uint32_t>(count);
    bytes = bytes.subspan(count);
  }
}

void SentMeter::BeginFrame() {
  const uint8_t type = header_[3], flags = header_[4];
  left_ = Word(&header_[0], 3);
  sent_.resets += type == kReset ? 1 : 0;
  sent_.asks += (type == kPing || type == kSettings) && (flags & kAck) == 0 ? 1 : 0;
  sent_.asks += type == kData && left_ > 0 ? kCreditPerData : 0;
  if (type == kReset || ((type == kData || type == kHeaders) && (flags & kEndStream) != 0)) {
    calls_.End(Word(&header_[5], 4) & 0x7fffffffu);
  }
}

}  // namespace hpvm::server
