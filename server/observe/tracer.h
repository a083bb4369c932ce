// SPDX-License-Identifier: Apache-2.0
// Tracer turns the daemon's events into spans.
//
//   CALL (server)            Run, Stream, PrepareGraph, Submit, RetryJob: a child of the caller's span, or a root
//     queue, bind, copy_in, run, copy_out     of a Run or an item of a Stream
//       node                 leaves with a record, at most 200 a run
//     parse, compile, load   of a PrepareGraph that did so
//     job                    from Submit to its end
//       queue                before each attempt
//       attempt              with prepare, bind, copy_in, run, copy_out, node as above
//
// A call's span context replaces options.traceparent of its request, so that it is stored with the job and the trace
// continues after a restart of the daemon. A job's span ids are derived from its id, so that spans exported by an
// earlier daemon have the same parent. Span names are ours; a tenant's names are attribute values, cut to 256 bytes.
#ifndef HPVMD_SERVER_OBSERVE_TRACER_H_
#define HPVMD_SERVER_OBSERVE_TRACER_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "server/events/events.h"
#include "server/observe/span.h"
#include "server/observe/trace_context.h"

namespace hpvm::server {

class Tracer final : public Observer {
 public:
  static constexpr size_t kNodesMax = 200;

  // All are borrowed and must outlive the tracer.
  Tracer(uint64_t sampled_per_mille, const Clock& clock, Rng& rng, SpanSink& sink);

  // One call's span, between its request and its status.
  struct Call {
    TraceContext self;
    SpanId parent{};
    std::string tracestate;
    int64_t start_unix_ns = 0;
    std::vector<Span> children;
    std::vector<Span::Attribute> attributes;
  };
  // Reads the caller's context from the options and replaces it by the call's own. The result says whether to call
  // EndCall.
  Call BeginCall(v1::RequestOptions& options);
  // Adds the spans inside the call, from its response.
  void AddPrepare(Call& call, const v1::PrepareTiming& timing);
  void EndCall(Call call, const char* name, const Status& status);

  void On(const Event& event) override { Dispatch(*this, event); }
  void Take(const events::JobChanged& event);
  void Take(const events::RunEnded& event);
  void Take(const events::CallBegan& event);
  void Take(const events::CallPrepared& event);
  void Take(const events::CallEnded& event);

 private:
  struct Attempt {
    uint32_t number = 0;
    int64_t start_unix_ns = 0;
  };
  struct JobTrace {
    TraceContext self;  // The job's span.
    SpanId parent{};
  };
  JobTrace TraceOf(const v1::Job& job) const;
  static SpanId AttemptSpan(std::string_view job_id, uint32_t number);
  Span MakeSpan(const TraceContext& in, const char* name, int64_t start, int64_t end);
  void AddPhases(const TraceContext& in, const RunOutcome& outcome, int64_t start, int64_t end, bool with_queue,
                 std::vector<Span>& spans);
  void AddNodes(const TraceContext& in, const RunOutcome& outcome, int64_t start, int64_t end,
                std::vector<Span>& spans);
  void BeginAttempt(std::string_view tenant, const v1::Job& job, const JobTrace& trace);
  void EndAttempt(std::string_view tenant, const v1::Job& job, const JobTrace& trace, std::vector<Span>& spans);
  void EndJob(std::string_view tenant, const v1::Job& job, const JobTrace& trace, std::vector<Span>& spans);

  const uint64_t sampled_per_mille_;
  const Clock& clock_;
  TraceIds ids_;
  SpanSink& sink_;
  std::mutex mutex_;
  std::unordered_map<const void*, Call> calls_;           // Calls in progress.
  std::map<std::string, Attempt, std::less<>> attempts_;  // Running attempts, by job.
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_OBSERVE_TRACER_H_
