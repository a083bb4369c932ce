// SPDX-License-Identifier: Apache-2.0
// W3C Trace Context (https://www.w3.org/TR/trace-context/): parses and formats its two headers, and makes ids.
#ifndef HPVMD_SERVER_OBSERVE_TRACE_CONTEXT_H_
#define HPVMD_SERVER_OBSERVE_TRACE_CONTEXT_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace hpvm::server {

using TraceId = std::array<uint8_t, 16>;  // Not all zero.
using SpanId = std::array<uint8_t, 8>;    // Not all zero; as a parent, zero means none.

struct TraceContext {
  TraceId trace{};
  SpanId span{};
  bool sampled = false;
};

// Returns nothing for a text that violates the specification; for later versions the known part.
std::optional<TraceContext> ParseTraceparent(std::string_view text);
std::string FormatTraceparent(const TraceContext& context);
// Returns true for a valid list of at most 32 members and 512 bytes, without duplicate keys.
bool IsTracestate(std::string_view text);

// TraceIds makes ids: a sequence with a random start, so that ids of two daemons do not collide. Ids are not secret.
// Thread-safe.
class TraceIds {
 public:
  explicit TraceIds(Rng& rng) : state_(rng.Next()) {}
  TraceId NewTrace();
  SpanId NewSpan();
  // Returns true for `per_mille` of 1,000 calls.
  bool Sample(uint64_t per_mille) { return Next() % 1'000 < per_mille; }

 private:
  uint64_t Next();  // Never 0.
  std::atomic<uint64_t> state_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_OBSERVE_TRACE_CONTEXT_H_
