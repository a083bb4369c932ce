// SPDX-License-Identifier: Apache-2.0
// Sends spans to an OpenTelemetry collector: OTLP over HTTP with JSON, in batches, from a thread of its own.
//
// At most 2,048 spans wait; what comes beyond is dropped and counted, so a dead collector costs nothing but spans. A
// batch that a collector refuses for now (429, 502, 503, 504) or that does not reach it is tried again after 1 s, then
// twice as long up to 30 s; another refusal drops it.
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
  uint64_t dropped = 0;   // No room, refused, or left at the end.
  uint64_t failures = 0;  // Requests that did not succeed.
  uint64_t waiting = 0;
};

// What every span of this process says about it.
struct SpanResource {
  std::string service_version, instance;
};

class SpanExporter final : public SpanSink {
 public:
  static constexpr size_t kWaitingMax = 2'048, kBatchMax = 512;
  static constexpr Duration kFlushMax = std::chrono::milliseconds(900);

  SpanExporter(HttpTarget target, SpanResource resource);
  // Sends what waits, for up to kFlushMax.
  ~SpanExporter() override;
  void Add(std::vector<Span> spans) override;
  SpanCounts counts() const;

 private:
  struct State;
  // Shared with the thread, which is left behind when resolving a name hangs at the end.
  std::shared_ptr<State> state_;
};

// ExportTraceServiceRequest as JSON; texts that are not UTF-8 are repaired.
std::string ToOtlpJson(const std::vector<Span>& spans, const SpanResource& resource);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_OBSERVE_SPAN_EXPORTER_H_
