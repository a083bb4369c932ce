// SPDX-License-Identifier: Apache-2.0
// Fuzzes the bytes of a hostile client: the verdict does not depend on how the bytes are split, and no more frames
// pass than the limits allow, according to an independent count.
#include <stddef.h>

#include <algorithm>
#include <span>
#include <vector>

#include "base/status.h"
#include "server/front/frame_meter.h"

namespace hpvm::server {
namespace {

FrameLimits SmallLimits() {
  FrameLimits limits;
  limits.control_frames_per_second = 20;
  limits.resets_per_second = 10;
  limits.header_bytes_per_second = 8'000;
  limits.header_block_bytes = 2'000;
  return limits;
}

// Counts frames of each limited kind in the simplest way.
struct Counts {
  uint64_t calls = 0, resets = 0, pings = 0;
};
Counts CountFrames(std::span<const uint8_t> bytes) {
  Counts counts;
  for (bytes = bytes.subspan(std::min(bytes.size(), kHttp2Preface.size())); bytes.size() >= 9;) {
    const size_t size = size_t{bytes[0]} << 16 | size_t{bytes[1]} << 8 | bytes[2];
    counts.calls += bytes[3] == 1 ? 1 : 0;
    counts.resets += bytes[3] == 3 ? 1 : 0;
    counts.pings += bytes[3] == 6 ? 1 : 0;
    bytes = bytes.subspan(std::min(bytes.size(), 9 + size));
  }
  return counts;
}

}  // namespace

// The first byte says how the rest is split.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) {
    return 0;
  }
  const size_t step = data[0] % 64 + 1;
  std::vector<uint8_t> bytes(kHttp2Preface.begin(), kHttp2Preface.end());
  bytes.insert(bytes.end(), data + 1, data + size);
  PeerCalls peer(30, 20);
  OpenCalls whole_calls(20, peer);
  FrameMeter whole(SmallLimits(), whole_calls);

  const FrameFault fault = whole.Receive(bytes, Time{0}, {});
  HPVMD_CHECK(whole_calls.size() <= 20 && peer.count == whole_calls.size());
  PeerCalls other_peer(30, 20);
  OpenCalls pieces_calls(20, other_peer);
  FrameMeter pieces(SmallLimits(), pieces_calls);
  for (size_t at = 0; at < bytes.size(); at += step) {
    pieces.Receive(std::span(bytes).subspan(at, std::min(step, bytes.size() - at)), Time{0}, {});
  }
  // When a frame has two faults, either may be reported first.
  HPVMD_CHECK((pieces.Receive({}, Time{0}, {}) == FrameFault::kNone) == (fault == FrameFault::kNone));
  if (fault == FrameFault::kNone) {
    const Counts counts = CountFrames(bytes);
    HPVMD_CHECK(counts.resets <= 10);
    HPVMD_CHECK(counts.pings <= 20 + 4 * counts.calls);
  }
  // The server's output is trusted, but still arrives in pieces.
  SentMeter sent(whole_calls);
  for (size_t at = 0; at < bytes.size(); at += step) {
    sent.Send(std::span(bytes).subspan(at, std::min(step, bytes.size() - at)));
  }
  HPVMD_CHECK(sent.sent().bytes == bytes.size());
  HPVMD_CHECK(peer.count == whole_calls.size());
  return 0;
}

}  // namespace hpvm::server
