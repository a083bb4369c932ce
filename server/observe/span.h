// SPDX-License-Identifier: Apache-2.0
// Span is one timed operation within a trace.
#ifndef HPVMD_SERVER_OBSERVE_SPAN_H_
#define HPVMD_SERVER_OBSERVE_SPAN_H_

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "server/observe/trace_context.h"

namespace hpvm::server {

struct Span {
  enum class Kind : uint8_t { kInternal = 1, kServer = 2 };  // Numbered as in OTLP.
  using Value = std::variant<std::string, int64_t, bool>;
  using Attribute = std::pair<const char*, Value>;

  TraceId trace{};
  SpanId id{}, parent{};  // The parent is zero for a root.
  const char* name = "";  // A name of ours, never a tenant's text.
  Kind kind = Kind::kInternal;
  int64_t start_unix_ns = 0, end_unix_ns = 0;
  std::vector<Attribute> attributes;  // Values may be a tenant's text.
  bool failed = false;
  std::string error;  // Set when the operation failed.
  std::string tracestate;
};

// SpanSink accepts finished spans. Thread-safe; never blocks.
class SpanSink {
 public:
  virtual ~SpanSink() = default;
  virtual void Add(std::vector<Span> spans) = 0;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_OBSERVE_SPAN_H_
