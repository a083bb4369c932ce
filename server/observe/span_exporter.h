// SPDX-License-Identifier: Apache-2.0
// SpanExporter sends spans to an OpenTelemetry collector: OTLP over HTTP with JSON, in batches, from a thread of its
// own.
//
// At most 2,048 spans wait; further ones are dropped and counted, so a dead collector costs nothing but spans. A
// batch that a collector refuses temporarily (429, 502, 503, 504) or that does not reach it is retried after 1 s,
// then with delays that double up to 30 s; any other refusal drops it.
#ifndef HPVMD_SERVER_OBSERVE_SPAN_EXPORTER_H_
#define HPVMD_SERVER_OBSERVE_SPAN_EXPORTER_H_

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "server/observe/http_post.h"
#include "server/observe/span.h"

namespace hpvm::server {

struct SpanCounts {
  uint64_t exported = 0;
  uint64_t dropped = 0;   // For lack of room, refused, or left at the end.
  uint64_t failures = 0;  // Number of failed requests.
  uint64_t waiting = 0;
};

// Attributes that every span of this process has.
struct SpanResource {
  std::string service_version, instance;
};

class SpanExporter final : public SpanSink {
 public:
  static constexpr size_t kWaitingMax = 2'048, kBatchMax = 512;
  static constexpr Duration kFlushMax = std::chrono::milliseconds(900);

  SpanExporter(HttpTarget target, SpanResource resource);
  // Sends the waiting spans, for up to kFlushMax.
  ~SpanExporter() override;
  void Add(std::vector<Span> spans) override;
  SpanCounts counts() const;

 private:
  struct State;
  // Shared with the thread, which is detached when resolving a name hangs at the end.
  std::shared_ptr<State> state_;
};

// Formats an ExportTraceServiceRequest as JSON; repairs texts that are not UTF-8.
std::string ToOtlpJson(const std::vector<Span>& spans, const SpanResource& resource);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_OBSERVE_SPAN_EXPORTER_H_
