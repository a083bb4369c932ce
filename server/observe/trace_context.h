// SPDX-License-Identifier: Apache-2.0
// W3C Trace Context (https://www.w3.org/TR/trace-context/): reading and writing its two headers, and new ids.
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

// Nothing for whatever is not exactly as the specification says; of versions to come the known part.
std::optional<TraceContext> ParseTraceparent(std::string_view text);
std::string FormatTraceparent(const TraceContext& context);
// Whether it is a list of at most 32 members and 512 bytes that the specification allows, no key twice.
bool IsTracestate(std::string_view text);

// New ids: a sequence that starts at random, so that ids of two daemons do not meet. Ids are no secrets. Any thread.
class TraceIds {
 public:
  explicit TraceIds(Rng& rng) : state_(rng.Next()) {}
  TraceId NewTrace();
  SpanId NewSpan();
  // True for `per_mille` of 1,000 calls.
  bool Sample(uint64_t per_mille) { return Next() % 1'000 < per_mille; }

 private:
  uint64_t Next();  // Not 0.
  std::atomic<uint64_t> state_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_OBSERVE_TRACE_CONTEXT_H_
